/*
 * Unit tests of results: runs and their waits, keys, output, errors, pages
 * (LBB-28, LBB-196 ... LBB-199).
 */
#include "mcp_test_want.h"

static void user_json_keeps_its_bytes(void **state)
{
	(void)state;
	ready_reply(200,
		    "{\"object\":\"run\",\"ok\":true,\"result\":{\"a\" : "
		    "[1.0, 1e400,\"\\ud800\\u0000\"]},\"status\":"
		    "\"succeeded\",\"exit_code\":0,\"command\":\"cmd_a\"}");
	call("lbb_sandboxes_manage",
	     "{\"input\":{ \"n\":18446744073709551617, \"x\":1.0},"
	     "\"action\":\"run\",\"code\":\"c\",\"idempotency_key\":\"k\"}");
	want_sent(0, HTTP_POST, "/v1/sandboxes", "graph=main",
		  "{\"run\":{\"code\":\"c\",\"input\":{ \"n\":"
		  "18446744073709551617, \"x\":1.0}},\"wait_ms\":30000}");
	assert_string_equal(sent[0].key, "k");
	want_result("\"result\":{\"a\" : [1.0, 1e400,\"\\ud800\\u0000\"]}");
	want_result("\"idempotency_key\":\"k\"");
	want_result("\"summary\":\"run cmd_a: succeeded, exit code 0.");
	want_result("\"untrusted\":\"data.result and data.output\"");
}

/* The same arguments in another order are the same request. */
static void order_does_not_matter(void **state)
{
	(void)state;
	ready_reply(200, "{\"ok\":true,\"status\":\"succeeded\"}");
	call("lbb_sandboxes_manage",
	     "{\"action\":\"run\",\"input\":1,\"config\":2,\"code\":\"c\"}");
	call("lbb_sandboxes_manage",
	     "{\"config\":2,\"code\":\"c\",\"input\":1,\"action\":\"run\"}");
	assert_string_equal((char *)sent[0].body.data,
			    (char *)sent[1].body.data);
	assert_string_not_equal(sent[0].key, sent[1].key);
	assert_int_equal(strncmp(sent[0].key, "mcp.run:", 8), 0);
}

static const char running[] =
	"{\"object\":\"run\",\"ok\":false,\"result\":null,\"status\":"
	"\"running\",\"exit_code\":null,\"command\":\"cmd_a\",\"sandbox\":"
	"\"sbx_a\"}";
static const char lost[] =
	"{\"object\":\"run\",\"ok\":false,\"status\":\"lost\",\"exit_code\":"
	"null,\"command\":\"cmd_a\",\"sandbox\":\"sbx_a\"}";

/* LBB-196: 47 s of waiting in all, then it comes back as running. */
static void run_ends_in_time(void **state)
{
	(void)state;
	is_waiting = true;
	ready_reply(202, running);
	call("lbb_sandboxes_manage",
	     "{\"action\":\"run\",\"code\":\"c\",\"idempotency_key\":\"k\"}");
	want_sent(0, HTTP_POST, "/v1/sandboxes", "graph=main",
		  "{\"run\":{\"code\":\"c\"},\"wait_ms\":30000}");
	pass_time(30000);
	answer_now();
	want_sent(1, HTTP_POST, "/v1/sandboxes", "graph=main",
		  "{\"run\":{\"code\":\"c\"},\"wait_ms\":17000}");
	assert_string_equal(sent[1].key, "k");
	pass_time(17000);
	answer_now();
	assert_int_equal(n_sent, 2);
	want_result("\"status\":\"running\"");
	want_result("\"command\":\"cmd_a\",\"sandbox\":\"sbx_a\"");
	want_result("action=commands_retrieve command=cmd_a.");
	want_result("\"idempotency_key\":\"k\"");
	unwanted("\"output\"");
}

/* LBB-28: under the next key, twice at most. */
static void a_lost_run_is_sent_again(void **state)
{
	(void)state;
	ready_reply(200, lost);
	call("lbb_sandboxes_manage",
	     "{\"action\":\"run\",\"code\":\"c\",\"idempotency_key\":\"k\"}");
	assert_int_equal(n_sent, 4);
	assert_string_equal(sent[0].key, "k");
	assert_string_equal(sent[1].key, "k.2");
	assert_string_equal(sent[2].key, "k.3");
	assert_string_equal(sent[3].path, "/v1/sandboxes/commands/get");
	want_result("\"status\":\"lost\"");
	want_result("\"idempotency_key\":\"k\"");
	/* Not when there is no time left. */
	n_sent = 0;
	is_waiting = true;
	call("lbb_sandboxes_manage",
	     "{\"action\":\"run\",\"code\":\"c\",\"idempotency_key\":\"k\"}");
	pass_time(46900);
	answer_now();
	assert_int_equal(n_sent, 2);
	assert_string_equal(sent[1].path, "/v1/sandboxes/commands/get");
	answer_now();
}

/* LBB-198: the end of its output. */
static void a_failed_run_shows_its_output(void **state)
{
	struct bytes b = {0};

	(void)state;
	bytes_printf(&b, "{\"object\":\"command\",\"id\":\"cmd_a\",\"stdout\":{"
			 "\"head\":\"");
	for (int i = 0; i < 3000; i++)
		bytes_printf(&b, "\xc3\xa4");
	bytes_printf(&b, "\",\"tail\":\"");
	for (int i = 0; i < 4100; i++)
		bytes_printf(&b, "\xc3\xa4");
	bytes_printf(&b, "Z\",\"bytes\":9000,\"truncated\":false,"
			 "\"invalid_utf8\":false},\"stderr\":{\"head\":\"E\","
			 "\"tail\":\"E\",\"bytes\":1,\"truncated\":false,"
			 "\"invalid_utf8\":true}}");
	bytes_append(&b, "", 1);
	ready_reply(200, "{\"object\":\"run\",\"ok\":false,\"status\":"
			 "\"failed\",\"exit_code\":1,\"command\":\"cmd_a\"}");
	ready_reply(200, (char *)b.data);
	call("lbb_sandboxes_manage", "{\"action\":\"run\",\"code\":\"c\"}");
	want_sent(1, HTTP_GET, "/v1/sandboxes/commands/get",
		  "graph=main&command=cmd_a", "");
	want_result("failed, exit code 1. data.output has the end of its "
		    "output.");
	want_result("\"stderr\":{\"tail\":\"E\",\"bytes\":1,\"truncated\":"
		    "false,\"invalid_utf8\":true}");
	want_result("Z\",\"bytes\":9000,\"truncated\":true");
	want_result("\"truncated\":true,\"untrusted\"");
	/* Twice in the answer: 8 KiB and 2 KiB at most, whole characters. */
	assert_in_range(got.len, 2 * 10000, 2 * 11300);
	bytes_finish(&b);
}

/* What a failed run says cannot be had: the run is told all the same. */
static void a_failed_run_without_output(void **state)
{
	(void)state;
	ready_reply(200, "{\"object\":\"run\",\"ok\":false,\"status\":"
			 "\"failed\",\"exit_code\":1,\"command\":\"cmd_a\"}");
	ready_reply(503, "{\"error\":{}}");
	call("lbb_sandboxes_manage", "{\"action\":\"run\",\"code\":\"c\"}");
	want_result("\"summary\":\"run cmd_a: failed, exit code 1. Text");
	want(200, "\"isError\":false");
}

static void errors_are_told(void **state)
{
	(void)state;
	ready_reply(400, "{\"error\":{\"type\":\"invalid_request_error\","
			 "\"code\":\"sandbox_limits_invalid\",\"message\":"
			 "\"run.limits.vcpus is 9\",\"request_id\":\"r\","
			 "\"doc_url\":\"u\",\"param\":\"run.limits.vcpus\","
			 "\"retryable\":false}}");
	call("lbb_sandboxes_manage",
	     "{\"action\":\"run\",\"code\":\"c\",\"limits\":{\"vcpus\":9},"
	     "\"idempotency_key\":\"k\"}");
	want_result("{\"error\":{\"type\":\"invalid_request_error\",\"code\":"
		    "\"sandbox_limits_invalid\",\"message\":\"limits.vcpus is "
		    "9\",\"request_id\":\"r\",\"doc_url\":\"u\",\"param\":"
		    "\"limits.vcpus\",\"retryable\":false,\"status\":400},"
		    "\"idempotency_key\":\"k\"}");
	want(200, "\"isError\":true");
	util_reset();
	ready_reply(503, "");
	call("lbb_sandboxes", "{\"action\":\"list\"}");
	want(200, "\"code\":-32603");
}

static void lists_go_on(void **state)
{
	(void)state;
	ready_reply(200, "{\"object\":\"list\",\"data\":[{\"a\":1},{}],"
			 "\"has_more\":true,\"next_cursor\":\"sbx_z\"}");
	call("lbb_sandboxes",
	     "{\"action\":\"list\",\"limit\":2,\"graph\":\"g\",\"cursor\":"
	     "\"sbx_b\"}");
	want_result("\"counts\":{\"items\":2}");
	want_result("\"next\":{\"action\":\"list\",\"graph\":\"g\",\"limit\":2,"
		    "\"cursor\":\"sbx_z\"}");
	want_result("\"truncated\":true");
}

static void files_are_paged(void **state)
{
	char text[16400];

	(void)state;
	memset(text, 'a', 16385);
	text[16385] = 0;
	ready_reply(200, text);
	call("lbb_sandboxes", "{\"action\":\"files_read\",\"sandbox\":\"s\","
			      "\"path\":\"p\",\"offset\":5}");
	want_result("\"next\":{\"action\":\"files_read\",\"sandbox\":\"s\","
		    "\"path\":\"p\",\"offset\":16389}");
	want_result("\"encoding\":\"utf-8\",\"offset\":5,\"next_offset\":16389,"
		    "\"eof\":false");
	util_reset();
	/* Not in the middle of a character. */
	ready_reply(200, "abc\xc3\xa4");
	call("lbb_sandboxes", "{\"action\":\"files_read\",\"sandbox\":\"s\","
			      "\"path\":\"p\",\"limit\":4}");
	want_result("\"content\":\"abc\",\"encoding\":\"utf-8\",\"offset\":0,"
		    "\"next_offset\":3");
	util_reset();
	ready_reply(200, "abc\xc3");
	call("lbb_sandboxes", "{\"action\":\"files_read\",\"sandbox\":\"s\","
			      "\"path\":\"p\",\"limit\":4}");
	want_result("\"content\":\"YWJjww==\",\"encoding\":\"base64\"");
	want_result("\"eof\":true");
	util_reset();
	ready_reply(200, "");
	call("lbb_sandboxes", "{\"action\":\"files_read\",\"sandbox\":\"s\","
			      "\"path\":\"p\"}");
	want_result("\"content\":\"\",\"encoding\":\"utf-8\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(user_json_keeps_its_bytes),
		TEST(order_does_not_matter),
		TEST(run_ends_in_time),
		TEST(a_lost_run_is_sent_again),
		TEST(a_failed_run_shows_its_output),
		TEST(a_failed_run_without_output),
		TEST(errors_are_told),
		TEST(lists_go_on),
		TEST(files_are_paged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
