/* Unit tests of questions to the person (LBB-194). */
#include "mcp_test_want.h"

#define SESSION	      "hutch-asks-0123456789abcdef0123456789abcdef"
#define OTHER_SESSION "hutch-asks-0123456789abcdef0123456789abcdee"

static const char sandbox[] =
	"{\"object\":\"sandbox\",\"id\":\"sbx_a\",\"status\":\"running\","
	"\"template\":\"lbb/shell\",\"graph\":\"main\",\"created_at\":\"now\"}";

static void want_streamed(const char *part)
{
	if (!strstr((char *)streamed.data, part))
		fail_msg("no %s in the stream: %s", part, streamed.data);
}

/* The question's id, from the stream. */
static void begin_question(char id[64])
{
	const char *at;

	head_session = SESSION;
	head_accept = "application/json, text/event-stream";
	ready_reply(200, sandbox);
	call("lbb_sandboxes_delete", "{\"sandbox\":\"sbx_a\"}");
	assert_true(is_stream && !is_stream_over);
	want_sent(0, HTTP_GET, "/v1/sandboxes/get", "graph=main&sandbox=sbx_a",
		  "");
	assert_int_equal(n_sent, 1);
	at = strstr((char *)streamed.data, "\"id\":\"ask-");
	assert_non_null(at);
	snprintf(id, 64, "%.36s", at + 6);
	want_streamed("\"method\":\"elicitation/create\"");
	want_streamed("Destroy sandbox sbx_a (lbb/shell, running, made now)");
}

/* In a POST of its own. */
static void answer(int status, const char *id, const char *rest)
{
	struct bytes b = {0};

	bytes_printf(&b, "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",%s}", id, rest);
	assert_null(post_bytes(b.data, b.len));
	bytes_finish(&b);
	want(status, NULL);
}

#define YES "\"result\":{\"action\":\"accept\",\"content\":{\"approve\":true}}"

static void the_person_approves(void **state)
{
	char id[64];

	(void)state;
	begin_question(id);
	answer(202, id, YES);
	assert_true(is_stream_over);
	want_sent(1, HTTP_DELETE, "/v1/sandboxes", "graph=main&sandbox=sbx_a",
		  "");
	want_streamed("event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,"
		      "\"result\":{");
	want_streamed("\"isError\":false}}\n\n");
	/* Once. */
	answer(400, id, YES);
	assert_int_equal(n_sent, 2);
}

static void the_person_does_not(void **state)
{
	static const char *const no[] = {
		"\"result\":{\"action\":\"decline\"}",
		"\"result\":{\"action\":\"cancel\"}",
		"\"result\":{\"action\":\"accept\"}",
		"\"result\":{\"action\":\"accept\",\"content\":{\"approve\":"
		"false}}",
		"\"result\":{\"action\":\"accept\",\"content\":{\"approve\":"
		"\"true\"}}",
		"\"result\":{\"action\":\"decline\",\"content\":{\"approve\":"
		"true}}",
		"\"result\":[]",
		"\"error\":{\"code\":-32603,\"message\":\"m\"}",
	};
	char id[64];

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++) {
		begin_question(id);
		answer(202, id, no[i]);
		assert_true(is_stream_over);
		want_streamed("\"code\":\"not_approved\"");
		want_streamed("nothing was destroyed");
		assert_int_equal(n_sent, 1);
		util_reset();
	}
}

static void nobody_else_answers(void **state)
{
	char id[64];

	(void)state;
	begin_question(id);
	/* Another session, none, another id: not the question's. */
	head_session = OTHER_SESSION;
	answer(400, id, YES);
	head_session = NULL;
	answer(400, id, YES);
	head_session = SESSION;
	answer(400, "ask-00000000000000000000000000000000", YES);
	head_session = OTHER_SESSION;
	post("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
	     "\"params\":{\"requestId\":7}}");
	want(202, NULL);
	assert_false(is_stream_over);
	pass_time(MCP_ASK_BEAT_MS);
	want_streamed(": waiting\n\n");
	/* Its own client takes the call back: no reply, nothing is done. */
	head_session = SESSION;
	post("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
	     "\"params\":{\"requestId\":8}}");
	assert_false(is_stream_over);
	post("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\","
	     "\"params\":{\"requestId\":7}}");
	assert_true(is_stream_over);
	assert_null(strstr((char *)streamed.data, "result"));
	assert_int_equal(n_sent, 1);
	answer(400, id, YES);
	assert_int_equal(n_sent, 1);
}

static void nobody_reads_the_stream(void **state)
{
	char id[64];

	(void)state;
	begin_question(id);
	is_reader_gone = true;
	pass_time(MCP_ASK_BEAT_MS);
	assert_true(is_stream_over);
	answer(400, id, YES);
	assert_int_equal(n_sent, 1);
}

/* Nothing is done in ten minutes without an answer. */
static void questions_are_over(void **state)
{
	char id[64];

	(void)state;
	begin_question(id);
	pass_time(MCP_ASK_MS_MAX - 1);
	assert_false(is_stream_over);
	pass_time(1);
	assert_true(is_stream_over);
	want_streamed("did not answer within 10 minutes");
	want_streamed("\"not_approved\"");
	assert_int_equal(n_sent, 1);
}

static void the_server_drains(void **state)
{
	char id[64];

	(void)state;
	begin_question(id);
	is_draining = true;
	pass_time(MCP_ASK_BEAT_MS);
	assert_true(is_stream_over);
	want_streamed("the daemon is stopping; nothing was destroyed");
	assert_int_equal(n_sent, 1);
}

static void the_server_closes(void **state)
{
	struct request *r;

	(void)state;
	head_session = SESSION;
	head_accept = "*/*";
	ready_reply(200, sandbox);
	r = post("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\","
		 "\"params\":{\"name\":\"lbb_sandboxes_delete\",\"arguments\":"
		 "{\"sandbox\":\"sbx_a\"}}}");
	assert_non_null(r);
	r->abandon(r);
	assert_true(is_stream_over);
	assert_int_equal(n_sent, 1);
}

/* Asked of one who cannot be: the confirmation counts (LBB-194). */
static void who_cannot_be_asked(void **state)
{
	(void)state;
	ready_reply(200, sandbox);
	head_session = SESSION;
	head_accept = "application/json";
	call("lbb_sandboxes_delete",
	     "{\"sandbox\":\"sbx_a\",\"confirm\":\"sbx_a\"}");
	want_result("sandbox sbx_a: running.");
	want_sent(0, HTTP_DELETE, "/v1/sandboxes", "graph=main&sandbox=sbx_a",
		  "");
	/* With a person there, it does not. */
	util_reset();
	ready_reply(404, "{\"error\":{\"code\":\"sandbox_not_found\"}}");
	head_session = SESSION;
	head_accept = "text/event-stream";
	call("lbb_sandboxes_delete",
	     "{\"sandbox\":\"sbx_a\",\"confirm\":\"sbx_a\"}");
	want_result("sandbox_not_found");
	assert_int_equal(n_sent, 1);
	assert_int_equal(sent[0].method, HTTP_GET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_person_approves), TEST(the_person_does_not),
		TEST(nobody_else_answers), TEST(nobody_reads_the_stream),
		TEST(questions_are_over),  TEST(the_server_drains),
		TEST(the_server_closes),   TEST(who_cannot_be_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
