/*
 * Unit tests of a body's `workflow` (LBB-262) and of what a grant makes of it
 * (LBB-264).
 */
#include "../../http/canon.h"
#include "workflow.c"
#include <setjmp.h>
#include <stdarg.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static struct work work;
static struct err got;

static int take(const char *json)
{
	const struct json_span v = {json, strlen(json)};

	memset(&work, 0, sizeof(work));
	memset(&got, 0, sizeof(got));
	return work_workflow(&work, "workflow", v, &got);
}

static void accepts(const char *json)
{
	if (take(json))
		fail_msg("refused: %.200s\n%s", json, got.text);
}

static void refuses(const char *json, const char *param)
{
	if (!take(json))
		fail_msg("accepted: %.200s", json);
	if (got.code != ERR_INVALID_REQUEST || strcmp(got.param, param))
		fail_msg("%.200s\ncode %d param \"%s\": %s", json, got.code,
			 got.param, got.text);
}

/* LBB-262: its fields; any other is named. */
static void test_shape(void **state)
{
	char json[4096], name[200];

	(void)state;
	accepts("{\"identity\":\"a.B_9-\",\"turn\":1}");
	assert_string_equal(work.origin.workflow, "a.B_9-");
	assert_int_equal(work.origin.turn, 1);
	assert_string_equal(work.origin.run, "");
	accepts("{\"identity\":\"w\",\"turn\":9223372036854775807,\"run_id\":"
		"\"w:3/x\",\"step\":\"s-1\",\"instance\":\"caf\\u00e9\"}");
	assert_string_equal(work.origin.run, "w:3/x");
	assert_string_equal(work.origin.step, "s-1");
	assert_int_equal(work.origin.attempt, 0);
	refuses("[]", "workflow");
	refuses("{}", "workflow");
	refuses("{\"identity\":\"w\"}", "workflow");
	refuses("{\"turn\":1}", "workflow");
	refuses("{\"identity\":\"w\",\"turn\":1,\"x\":1}", "workflow.x");
	refuses("{\"identity\":\"\",\"turn\":1}", "workflow.identity");
	refuses("{\"identity\":\"a/b\",\"turn\":1}", "workflow.identity");
	refuses("{\"identity\":\"w\",\"turn\":0}", "workflow.turn");
	refuses("{\"identity\":\"w\",\"turn\":-1}", "workflow.turn");
	refuses("{\"identity\":\"w\",\"turn\":1.5}", "workflow.turn");
	refuses("{\"identity\":\"w\",\"turn\":\"1\"}", "workflow.turn");
	refuses("{\"identity\":\"w\",\"turn\":1,\"step\":\"a b\"}",
		"workflow.step");
	refuses("{\"identity\":\"w\",\"turn\":1,\"run_id\":\"a b\"}",
		"workflow.run_id");
	refuses("{\"identity\":\"w\",\"turn\":1,\"run_id\":\"\\u00e9\"}",
		"workflow.run_id");
	for (int len = 512; len <= 513; len++) {
		int n = snprintf(json, sizeof(json),
				 "{\"identity\":\"w\",\"turn\":1,"
				 "\"instance\":\"");

		for (int i = 0; i < len; i++)
			n += snprintf(json + n, sizeof(json) - (size_t)n, "%s",
				      i % 2 ? "\\u00e9" : "i");
		snprintf(json + n, sizeof(json) - (size_t)n, "\"}");
		if (len == 512)
			accepts(json);
		else
			refuses(json, "workflow.instance");
	}
	for (size_t len = 128; len <= 129; len++) {
		memset(name, 'n', len);
		name[len] = 0;
		snprintf(json, sizeof(json),
			 "{\"identity\":\"%s\",\"turn\":1,\"step\":\"%s\","
			 "\"run_id\":\"%s\"}",
			 name, name, name);
		if (len == 128)
			accepts(json);
		else
			refuses(json, "workflow.identity");
	}
}

static const struct origin *origin;

static int with_grant(const char *json, enum route_access wants)
{
	struct request r = {
		.has_grant = true,
		.grant = {.origin = {"nightly", "r7", "sum", 4, 2},
			  .access = ACCESS_RUN},
	};
	static struct origin kept;
	int rc;

	if (json)
		accepts(json);
	else
		memset(&work, 0, sizeof(work));
	origin = NULL;
	rc = work_origin(&r, &work, wants, &origin, &got);
	if (!rc) {
		kept = *origin;
		origin = &kept;
	}
	return rc;
}

static void denies(const char *json, enum route_access wants, const char *param)
{
	assert_int_equal(with_grant(json, wants), -1);
	assert_int_equal(got.code, ERR_GRANT_DENIED);
	assert_string_equal(got.param, param);
}

static void test_grant(void **state)
{
	struct request key = {0};

	(void)state;
	assert_int_equal(with_grant(NULL, ACCESS_RUN), 0);
	assert_string_equal(origin->step, "sum");
	assert_int_equal(origin->attempt, 2);
	/* The body may say less, and the same. */
	assert_int_equal(
		with_grant("{\"identity\":\"nightly\",\"turn\":4}", ACCESS_RUN),
		0);
	assert_string_equal(origin->run, "r7");
	denies("{\"identity\":\"other\",\"turn\":4}", ACCESS_RUN,
	       "workflow.identity");
	denies("{\"identity\":\"nightly\",\"turn\":5}", ACCESS_RUN,
	       "workflow.turn");
	denies("{\"identity\":\"nightly\",\"turn\":4,\"step\":\"sun\"}",
	       ACCESS_RUN, "workflow.step");
	denies("{\"identity\":\"nightly\",\"turn\":4,\"run_id\":\"r8\"}",
	       ACCESS_RUN, "workflow.run_id");
	/* A run is no create, and no command. */
	denies(NULL, ACCESS_CREATE, "");
	denies(NULL, ACCESS_COMMAND, "");
	/* With a key the body is a note. */
	accepts("{\"identity\":\"w\",\"turn\":7}");
	assert_int_equal(work_origin(&key, &work, ACCESS_RUN, &origin, &got),
			 0);
	assert_ptr_equal(origin, &work.origin);
	memset(&work, 0, sizeof(work));
	assert_int_equal(work_origin(&key, &work, ACCESS_RUN, &origin, &got),
			 0);
	assert_null(origin);
}

/* The second attempt of a step is the same request (LBB-220, LBB-261). */
static void test_hash(void **state)
{
	static const char *const bodies[] = {
		"{\"run\":{\"code\":\"x\"},\"workflow\":{\"identity\":\"w\","
		"\"turn\":1}}",
		"{\"workflow\":{\"identity\":\"w\",\"turn\":2},\"run\":{"
		"\"code\":\"x\"}}",
		"{\"run\":{\"code\":\"x\"}}",
	};
	const uint8_t secret[CANON_KEY_BYTES] = {1};
	uint8_t hash[3][HASH_BYTES];

	(void)state;
	for (int i = 0; i < 3; i++) {
		const struct canon_request c = {"POST",
						"/v1/sandboxes",
						"createSandbox",
						"main",
						NULL,
						{bodies[i], strlen(bodies[i])}};

		assert_int_equal(canon_hash(secret, &c, hash[i]), 0);
		assert_memory_equal(hash[i], hash[0], HASH_BYTES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shape),
		cmocka_unit_test(test_grant),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests_name("workflow", tests, NULL, NULL);
}
