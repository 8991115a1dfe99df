/* Unit tests of outcome.c and of what output.c does with gaps. */
#include "outcome.c"
#include "output.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

static struct json_span parse(const char *text)
{
	struct json_span root;
	struct err e;

	assert_int_equal(
		json_check(text, strlen(text), JSON_DEPTH_MAX, &root, &e), 0);
	return root;
}

static void every_end_has_words(void **state)
{
	static const struct {
		const char *json, *text;
		int exit_status;
	} cases[] = {
		{"{\"status\":\"succeeded\",\"exit_code\":0}", "succeeded", 0},
		{"{\"status\":\"failed\",\"reason\":\"exit_code\","
		 "\"exit_code\":7}",
		 "failed: exit code 7", 7},
		{"{\"status\":\"failed\",\"reason\":\"signal\",\"signal\":11}",
		 "failed: killed by signal 11 (SIGSEGV)", 139},
		{"{\"status\":\"failed\",\"reason\":\"signal\",\"signal\":40}",
		 "failed: killed by signal 40", 168},
		{"{\"status\":\"timed_out\",\"reason\":\"timeout\","
		 "\"timeout_ms\":3000}",
		 "timed out after 3 s (--timeout)", 124},
		{"{\"status\":\"timed_out\",\"timeout_ms\":1500}",
		 "timed out after 1.5 s (--timeout)", 124},
		{"{\"status\":\"cancelled\",\"reason\":\"cancelled\"}",
		 "cancelled", 130},
		{"{\"status\":\"failed\",\"reason\":\"prepare_failed\","
		 "\"message\":\"a.erofs: No such file\"}",
		 "failed: the sandbox could not be prepared: a.erofs: No such "
		 "file",
		 75},
		{"{\"status\":\"failed\",\"reason\":\"oom\",\"signal\":9,"
		 "\"started_at\":\"x\",\"message\":\"out of memory: 128\"}",
		 "failed: out of memory: 128", 137},
		{"{\"status\":\"failed\",\"reason\":\"result_not_json\","
		 "\"started_at\":\"x\",\"exit_code\":1}",
		 "failed: the result is not JSON", 1},
		{"{\"status\":\"lost\",\"reason\":\"daemon_restart\"}",
		 "lost: the daemon was stopped", 75},
		{"{\"status\":\"failed\",\"reason\":\"not_started\","
		 "\"message\":\"exec: ENOENT (No such file)\"}",
		 "failed: the code could not be started: exec: ENOENT (No such "
		 "file)",
		 127},
		{"{\"status\":\"failed\",\"reason\":\"not_started\","
		 "\"message\":\"exec: EACCES (Permission denied)\"}",
		 "failed: the code could not be started: exec: EACCES "
		 "(Permission denied)",
		 126},
		{"{\"status\":\"failed\",\"reason\":\"not_started\","
		 "\"message\":\"cwd: ENOENT (No such file)\"}",
		 "failed: the code could not be started: cwd: ENOENT (No such "
		 "file)",
		 75},
		{"{\"status\":\"failed\",\"reason\":\"new\"}", "failed: new",
		 1},
	};
	char text[400];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct json_span root = parse(cases[i].json);

		outcome_text(root, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
		assert_int_equal(outcome_exit_status(root),
				 cases[i].exit_status);
	}
}

/* Head and tail in one answer or in two, and a tail that is not kept. */
static void gaps_are_counted(void **state)
{
	struct answer a = {0};
	struct pump p;
	struct err e;

	(void)state;
	pump_init(&p, "stdout", -1);
	a.root = parse("{\"data\":\"head\",\"offset\":0,\"next_offset\":10,"
		       "\"eof\":false,\"total_bytes\":14}");
	assert_int_equal(take(&p, &a, &e), 0);
	assert_int_equal(p.omitted, 0);
	a.root = parse("{\"data\":\"tail\",\"offset\":10,\"next_offset\":14,"
		       "\"eof\":true,\"total_bytes\":20}");
	assert_int_equal(take(&p, &a, &e), 0);
	assert_int_equal(p.omitted, 12);
	assert_int_equal(p.kept.len, 8);
	assert_memory_equal(p.kept.data, "headtail", 8);
	pump_finish(&p);
}

static void a_result_that_was_written(void **state)
{
	struct pump p;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	pump_init(&p, "stdout", fds[1]);
	assert_true(pump_ends_in_line(&p));
	assert_false(pump_wrote_only(&p, "", 0));
	assert_int_equal(put(&p, " {\"a\":1}", 8), 0);
	p.end = 8;
	assert_false(pump_ends_in_line(&p));
	assert_true(pump_wrote_only(&p, "{\"a\":1}", 7));
	assert_int_equal(put(&p, "\n", 1), 0);
	p.end = 9;
	assert_true(pump_ends_in_line(&p));
	assert_true(pump_wrote_only(&p, "{\"a\":1}", 7));
	assert_false(pump_wrote_only(&p, "{\"a\":2}", 7));
	assert_false(pump_wrote_only(&p, "null", 4));
	pump_finish(&p);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_end_has_words),
		cmocka_unit_test(gaps_are_counted),
		cmocka_unit_test(a_result_that_was_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
