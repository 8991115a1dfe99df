/* Grants in memory: what a token is good for, and for how long (LBB-221,
 * LBB-264). */
#include "grants.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define NOW 1700000000000

static struct grants all;

static struct grant_row row_of(uint32_t attempt)
{
	struct grant_row g = {
		.environment = "env_a",
		.graph = "main",
		.origin = {"nightly", "r7", "sum", 1, attempt},
		.operation = "sandbox_run",
		.epoch = 3,
		.issued_ms = NOW,
		.expires_ms = NOW + GRANT_TTL_MS_MAX,
	};

	return g;
}

static void issue(struct grant_row *g, char token[GRANT_TOKEN_BYTES])
{
	struct err e;

	assert_int_equal(grants_may_issue(&all, g, g->issued_ms, &e), 0);
	assert_int_equal(grants_make(g, token), 0);
	assert_int_equal(grants_add(&all, g, g->issued_ms), 0);
}

static enum err_code check(const char *token, int64_t now_ms)
{
	struct grant got;
	struct err e = {0};

	grants_check(&all, token, now_ms, &got, &e);
	return e.code;
}

static int teardown(void **state)
{
	(void)state;
	grants_finish(&all);
	return 0;
}

static void a_token_is_what_was_granted(void **state)
{
	char token[GRANT_TOKEN_BYTES], other[GRANT_TOKEN_BYTES];
	struct grant_row g = row_of(2);
	struct grant got;
	struct err e;

	(void)state;
	issue(&g, token);
	assert_int_equal(strlen(token), 8 + 64);
	assert_int_equal(strncmp(token, "lbb_wke_", 8), 0);
	assert_null(memmem(&all.list[0], sizeof(all.list[0]), token + 8, 16));
	assert_int_equal(grants_check(&all, token, NOW, &got, &e), 0);
	assert_string_equal(got.environment, "env_a");
	assert_string_equal(got.graph, "main");
	assert_string_equal(got.origin.workflow, "nightly");
	assert_int_equal(got.origin.attempt, 2);
	assert_int_equal(got.access, ACCESS_RUN);
	assert_int_equal(got.epoch, 3);
	memcpy(other, token, sizeof(other));
	other[20] ^= 1;
	assert_int_equal(check(other, NOW), ERR_UNAUTHORIZED);
	assert_int_equal(check("lbb_wke_", NOW), ERR_UNAUTHORIZED);
	memset(other, 'a', sizeof(other) - 1);
	assert_int_equal(check(other, NOW), ERR_UNAUTHORIZED);
}

static void it_lives_a_minute(void **state)
{
	char token[GRANT_TOKEN_BYTES];
	struct grant_row g = row_of(1);

	(void)state;
	issue(&g, token);
	assert_int_equal(check(token, NOW + 59999), ERR_NONE);
	assert_int_equal(check(token, NOW + 60000), ERR_GRANT_EXPIRED);
	/* Set back by an hour: it was not given yet. */
	assert_int_equal(check(token, NOW - 3600000), ERR_GRANT_EXPIRED);
	assert_int_equal(check(token, NOW - 1000), ERR_NONE);
}

static void a_later_attempt_fences_earlier_ones(void **state)
{
	char first[GRANT_TOKEN_BYTES], second[GRANT_TOKEN_BYTES];
	struct grant_row a = row_of(1), b = row_of(2), c;
	struct err e;

	(void)state;
	issue(&a, first);
	b.expires_ms = NOW + 1000;
	issue(&b, second);
	assert_int_equal(check(first, NOW), ERR_FENCE_LOST);
	assert_int_equal(check(second, NOW), ERR_NONE);
	/* The later one is over: the earlier one stays refused as long as it
	 * could live. */
	assert_int_equal(check(first, NOW + 30000), ERR_FENCE_LOST);
	assert_int_equal(grants_may_issue(&all, &a, NOW + 30000, &e), -1);
	assert_int_equal(e.code, ERR_FENCE_LOST);
	/* Another step, run, workflow, graph, environment is another thing. */
	c = row_of(1);
	memcpy(c.origin.step, "sun", 4);
	assert_int_equal(grants_may_issue(&all, &c, NOW, &e), 0);
	c = row_of(1);
	memcpy(c.origin.run, "r8", 3);
	assert_int_equal(grants_may_issue(&all, &c, NOW, &e), 0);
	c = row_of(1);
	memcpy(c.graph, "mail", 5);
	assert_int_equal(grants_may_issue(&all, &c, NOW, &e), 0);
	c = row_of(1);
	memcpy(c.environment, "env_b", 6);
	assert_int_equal(grants_may_issue(&all, &c, NOW, &e), 0);
	/* The same attempt may ask again: another operation, a retry. */
	assert_int_equal(grants_may_issue(&all, &b, NOW, &e), 0);
}

static void what_is_over_is_forgotten(void **state)
{
	char token[GRANT_TOKEN_BYTES];
	struct grant_row g = row_of(1);
	struct err e;

	(void)state;
	for (int i = 0; i < GRANTS_MAX; i++) {
		snprintf(g.origin.step, sizeof(g.origin.step), "s%d", i);
		issue(&g, token);
	}
	assert_int_equal(grants_may_issue(&all, &g, NOW, &e), -1);
	assert_int_equal(e.code, ERR_LIMIT_REACHED);
	assert_true(e.retry_after_s > 0);
	assert_int_equal(grants_may_issue(&all, &g, NOW + 120000, &e), -1);
	assert_int_equal(grants_may_issue(&all, &g, NOW + 120001, &e), 0);
	assert_int_equal(all.n, 0);
	assert_int_equal(check(token, NOW), ERR_UNAUTHORIZED);
}

static void operations_are_kinds_of_calls(void **state)
{
	(void)state;
	assert_int_equal(route_access_of_operation("sandbox_run"), ACCESS_RUN);
	assert_int_equal(route_access_of_operation("sandbox_manage"),
			 ACCESS_MANAGE);
	/* None hands out grants, and none is for what needs no key. */
	assert_int_equal(route_access_of_operation("sandbox_grant"),
			 ACCESS_OPEN);
	assert_int_equal(route_access_of_operation("sandbox_open"),
			 ACCESS_OPEN);
	assert_int_equal(route_access_of_operation("sandbox_"), ACCESS_OPEN);
	assert_int_equal(route_access_of_operation("run"), ACCESS_OPEN);
}

#define TEST(fn) cmocka_unit_test_teardown(fn, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_token_is_what_was_granted),
		TEST(it_lives_a_minute),
		TEST(a_later_attempt_fences_earlier_ones),
		TEST(what_is_over_is_forgotten),
		TEST(operations_are_kinds_of_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
