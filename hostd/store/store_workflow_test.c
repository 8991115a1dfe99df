/* What workflows need of the store: budgets, counted with the run or not at
 * all, and grants (LBB-220 to LBB-222, LBB-265). */
#include "store_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define HOUR_MS 3600000

static struct fixture f;

static int setup(void **state)
{
	(void)state;
	fixture_init(&f);
	fixture_open(&f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_finish(&f);
	return 0;
}

static void budget(const char *workflow, uint32_t runs)
{
	struct budget_row b = {"env_a", "", .runs_max = runs,
			       .window_ms = HOUR_MS};
	struct answer a;

	answer_init(&a, &f);
	snprintf(b.workflow, sizeof(b.workflow), "%s", workflow);
	assert_int_equal(store_budget_set(f.store, &b, on_rc, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
}

/* Run `n` of `workflow`, begun at `at_ms`; its key is "p/n". */
static int begin_at(int n, const char *workflow, int64_t at_ms,
		    struct store_found *ret)
{
	struct sandbox_rec s = sandbox_of(n);
	struct command_rec c = command_of(n);
	char key[32];
	struct store_begin b = {"env_a", "main", "run", key, {1}};
	struct answer a;

	snprintf(key, sizeof(key), "p/%d", n);
	snprintf(c.origin.workflow, sizeof(c.origin.workflow), "%s", workflow);
	s.origin = c.origin;
	c.created_ms = at_ms;
	answer_init(&a, &f);
	assert_int_equal(store_run_begin(f.store, &b, &s, &c, on_found, &a), 0);
	command_rec_finish(&c);
	answer_wait(&a, 1);
	*ret = a.found;
	return a.rc;
}

static struct budget_row listed[4];
static size_t n_listed;

static void on_budgets(void *ctx, int rc, const struct budget_row *b, size_t n)
{
	n_listed = n;
	for (size_t i = 0; i < n && i < 4; i++)
		listed[i] = b[i];
	on_rc(ctx, rc);
}

static void list(const char *environment)
{
	struct answer a;

	answer_init(&a, &f);
	assert_int_equal(
		store_budget_list(f.store, environment, on_budgets, &a), 0);
	answer_wait(&a, 1);
}

static void a_budget_counts_what_begins(void **state)
{
	const int64_t t0 = 1700000000000;
	struct store_found found;

	(void)state;
	budget("nightly", 2);
	assert_int_equal(begin_at(1, "nightly", t0, &found), 0);
	assert_int_equal(begin_at(1, "nightly", t0 + 1, &found), 0);
	assert_true(found.is_found); /* by its key: not counted */
	assert_int_equal(begin_at(2, "nightly", t0 + 5, &found), 0);
	assert_int_equal(begin_at(3, "nightly", t0 + 6, &found), -EDQUOT);
	assert_false(found.is_found);
	assert_int_equal(found.retry_at_ms, t0 + HOUR_MS);
	assert_string_equal(found.spent.workflow, "nightly");
	/* Found, spent or not. */
	assert_int_equal(begin_at(2, "nightly", t0 + 7, &found), 0);
	assert_true(found.is_found);
	/* No other workflow, no run of none. */
	assert_int_equal(begin_at(4, "hourly", t0 + 8, &found), 0);
	assert_int_equal(begin_at(5, "", t0 + 9, &found), 0);
	/* It is on disk. */
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM idempotency"), 4);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM sandbox"), 4);
	fixture_open(&f);
	assert_int_equal(begin_at(3, "nightly", t0 + HOUR_MS - 1, &found),
			 -EDQUOT);
	/* The next window begins with its first run. */
	assert_int_equal(begin_at(3, "nightly", t0 + HOUR_MS + 500, &found), 0);
	assert_false(found.is_found);
	list("env_a");
	assert_int_equal(n_listed, 1);
	assert_int_equal(listed[0].runs, 1);
	assert_int_equal(listed[0].began_ms, t0 + HOUR_MS + 500);
}

static void both_budgets_count_or_none(void **state)
{
	const int64_t t0 = 1700000000000;
	struct store_found found;

	(void)state;
	budget("", 3);
	budget("nightly", 1);
	assert_int_equal(begin_at(1, "nightly", t0, &found), 0);
	/* Refused by the workflow's: the environment's has counted nothing. */
	assert_int_equal(begin_at(2, "nightly", t0 + 1, &found), -EDQUOT);
	list(NULL);
	assert_int_equal(n_listed, 2);
	assert_string_equal(listed[0].workflow, "");
	assert_int_equal(listed[0].runs, 1);
	assert_int_equal(begin_at(3, "", t0 + 2, &found), 0);
	assert_int_equal(begin_at(4, "other", t0 + 3, &found), 0);
	assert_int_equal(begin_at(5, "", t0 + 4, &found), -EDQUOT);
	assert_string_equal(found.spent.workflow, "");
	/* A new limit keeps what was counted. */
	budget("", 4);
	assert_int_equal(begin_at(5, "", t0 + 5, &found), 0);
	assert_int_equal(begin_at(6, "", t0 + 6, &found), -EDQUOT);
	/* A clock that was set back does not lock anybody out. */
	assert_int_equal(begin_at(6, "", t0 - HOUR_MS, &found), 0);
}

static void a_budget_is_removed(void **state)
{
	struct store_found found;
	struct answer a;

	(void)state;
	budget("nightly", 1);
	assert_int_equal(begin_at(1, "nightly", 1000, &found), 0);
	assert_int_equal(begin_at(2, "nightly", 1001, &found), -EDQUOT);
	answer_init(&a, &f);
	assert_int_equal(
		store_budget_delete(f.store, "env_a", "nightly", on_rc, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	assert_int_equal(begin_at(2, "nightly", 1002, &found), 0);
	assert_int_equal(
		store_budget_delete(f.store, "env_a", "nightly", on_rc, &a), 0);
	answer_wait(&a, 2);
	assert_int_equal(a.rc, -ENOENT);
	list("env_b");
	assert_int_equal(n_listed, 0);
}

/* ---- grants ---------------------------------------------------------------
 */

static struct grant_row last;
static size_t n_grants;

static void on_grants(void *ctx, int rc, const struct grant_row *g, size_t n)
{
	n_grants = n;
	if (n)
		last = g[n - 1];
	on_rc(ctx, rc);
}

static void load_grants(int64_t now_ms)
{
	struct answer a;

	answer_init(&a, &f);
	assert_int_equal(store_grant_load(f.store, now_ms, on_grants, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
}

static void grants_outlive_a_restart_and_are_forgotten(void **state)
{
	struct grant_row g = {.environment = "env_a",
			      .graph = "main",
			      .origin = {"nightly", "r7", "sum", 4, 2},
			      .operation = "sandbox_run",
			      .epoch = 9};
	struct answer a;

	(void)state;
	answer_init(&a, &f);
	for (int i = 1; i <= 40; i++) {
		g.hash[0] = (uint8_t)i;
		g.issued_ms = 1000 + i;
		g.expires_ms = g.issued_ms + 60000;
		assert_int_equal(store_grant_add(f.store, &g, on_rc, &a), 0);
	}
	answer_wait(&a, 40);
	fixture_close(&f);
	fixture_open(&f);
	load_grants(2000);
	assert_int_equal(n_grants, 40);
	assert_memory_equal(&last, &g, sizeof(g));
	/* Over for a minute: not loaded, and erased bit by bit. */
	load_grants(1040 + 120000);
	assert_int_equal(n_grants, 1);
	answer_init(&a, &f);
	for (int i = 41; i <= 43; i++) {
		g.hash[0] = (uint8_t)i;
		g.issued_ms = 1000000;
		g.expires_ms = g.issued_ms + 60000;
		assert_int_equal(store_grant_add(f.store, &g, on_rc, &a), 0);
	}
	answer_wait(&a, 3);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM \"grant\""), 3);
	fixture_open(&f);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_budget_counts_what_begins),
		TEST(both_budgets_count_or_none),
		TEST(a_budget_is_removed),
		TEST(grants_outlive_a_restart_and_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
