/* Unit tests of JSON-RPC, revisions and sessions (LBB-190, LBB-200, LBB-202).
 */
#include "mcp_test_want.h"

static void is_no_message(void **state)
{
	static const struct {
		const char *body;
		int code;
	} bad[] = {
		{"", -32700},
		{"{", -32700},
		{"\xff", -32700},
		{"{\"a\":1,\"a\":2}", -32700},
		{"5", -32600},
		{"\"x\"", -32600},
		{"[]", -32600},
		{"{}", -32600},
		{"{\"id\":1,\"method\":\"ping\"}", -32600},
		{"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600},
		{"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"ping\"}", -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}",
		 -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}",
		 -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1}", -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", -32600},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}", -32600},
	};
	char code[24];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_null(post(bad[i].body));
		snprintf(code, sizeof(code), "\"code\":%d,", bad[i].code);
		want(400, code);
	}
	assert_int_equal(n_sent, 0);
}

static void long_ids_are_refused(void **state)
{
	char body[600];

	(void)state;
	snprintf(body, sizeof(body),
		 "{\"jsonrpc\":\"2.0\",\"id\":\"%0254d\",\"method\":\"ping\"}",
		 0);
	post(body);
	want(200, "\"result\":{}");
	snprintf(body, sizeof(body),
		 "{\"jsonrpc\":\"2.0\",\"id\":\"%0255d\",\"method\":\"ping\"}",
		 0);
	post(body);
	want(400, "\"id\":null");
}

static void methods_answer(void **state)
{
	static const struct {
		const char *body, *part;
	} good[] = {
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		/* The id comes back as it is spelt. */
		{" {\"method\":\"p\\u0069ng\",\"id\":\"\\u0061\",\"jsonrpc\":"
		 "\"2.0\"} ",
		 "\"id\":\"\\u0061\",\"result\":{}"},
		{"{\"jsonrpc\":\"2.0\",\"id\":-9007199254740993,\"method\":"
		 "\"ping\"}",
		 "\"id\":-9007199254740993"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no\"}",
		 "\"code\":-32601,\"message\":\"no method \\\"no\\\"\""},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":"
		 "[]}",
		 "-32602,\"message\":\"params is an array"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\","
		 "\"params\":{\"cursor\":\"x\"}}",
		 "-32602"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}",
		 "-32602,\"message\":\"params.name is missing"},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\","
		 "\"params\":{\"name\":\"lbb_x\"}}",
		 "-32602,\"message\":\"Unknown tool: \\\"lbb_x\\\""},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\","
		 "\"params\":{\"name\":\"lbb_sandboxes\",\"arguments\":[]}}",
		 "-32602,\"message\":\"params.arguments is an array"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_null(post(good[i].body));
		want(200, good[i].part);
	}
	assert_int_equal(n_sent, 0);
}

static void notifications_take_no_reply(void **state)
{
	(void)state;
	post("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
	want(202, NULL);
	assert_int_equal(got.len, 0);
	post("{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":"
	     "{\"name\":\"lbb_sandboxes_delete\",\"arguments\":{\"sandbox\":"
	     "\"sbx_a\",\"confirm\":\"sbx_a\"}}}");
	want(202, NULL);
	assert_int_equal(n_sent, 0);
}

static void batches_have_one_answer(void **state)
{
	(void)state;
	is_waiting = true;
	ready_reply(200, "{\"object\":\"list\",\"data\":[]}");
	assert_non_null(
		post("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},"
		     "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\","
		     "\"params\":{\"name\":\"lbb_sandboxes\",\"arguments\":"
		     "{\"action\":\"list\"}}},5,"
		     "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"},"
		     "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\","
		     "\"params\":{\"name\":\"lbb_sandboxes\",\"arguments\":"
		     "{\"action\":\"list\",\"limit\":3}}}]"));
	assert_int_equal(n_sent, 1);
	answer_now();
	assert_int_equal(n_sent, 2);
	want_sent(0, HTTP_GET, "/v1/sandboxes", "graph=main", "");
	want_sent(1, HTTP_GET, "/v1/sandboxes", "graph=main&limit=3", "");
	answer_now();
	want(200, "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}},"
		  "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{");
	want(200, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":");
	want(200, "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{");
	assert_int_equal(got.data[got.len - 1], ']');
	is_waiting = false;
	post("[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}]");
	want(202, NULL);
	/* Only where the revision has them. */
	head_version = "2025-03-26";
	post("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]");
	want(200, "[{");
	head_version = "2025-06-18";
	post("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]");
	want(400, "-32600");
}

static void batches_have_a_limit(void **state)
{
	struct bytes b = {0};

	(void)state;
	for (int n = 16; n <= 17; n++) {
		b.len = 0;
		bytes_printf(&b, "[");
		for (int i = 0; i < n; i++)
			bytes_printf(&b,
				     "%s{\"jsonrpc\":\"2.0\",\"id\":%d,"
				     "\"method\":\"ping\"}",
				     i ? "," : "", i);
		bytes_printf(&b, "]");
		post_bytes(b.data, b.len);
		want(n == 16 ? 200 : 400, n == 16 ? "\"id\":15" : "-32600");
	}
	bytes_finish(&b);
}

static void hello(const char *version, const char *capabilities)
{
	struct bytes b = {0};

	bytes_printf(&b,
		     "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\","
		     "\"params\":{\"protocolVersion\":%s,\"capabilities\":%s,"
		     "\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}",
		     version, capabilities);
	post_bytes(b.data, b.len);
	bytes_finish(&b);
}

static void revisions_are_agreed(void **state)
{
	static const struct {
		const char *asked, *given;
	} pairs[] = {
		{"\"2025-11-25\"", "2025-11-25"},
		{"\"2025-06-18\"", "2025-06-18"},
		{"\"2025-03-26\"", "2025-03-26"},
		{"\"2024-11-05\"", "2024-11-05"},
		{"\"2026-07-28\"", "2025-11-25"},
		{"\"1.0\"", "2025-11-25"},
		{"\"\"", "2025-11-25"},
	};
	char part[64];

	(void)state;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
		hello(pairs[i].asked, "{}");
		snprintf(part, sizeof(part), "\"protocolVersion\":\"%s\"",
			 pairs[i].given);
		want(200, part);
		want(200, "\"capabilities\":{\"tools\":{}}");
		assert_string_equal(got_session, "");
	}
	hello("5", "{}");
	want(200, "-32602");
	hello("\"2025-06-18\"", "[]");
	want(200, "-32602");
	head_version = "2020-01-01";
	post("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
	want(400, "MCP-Protocol-Version");
}

static void sessions_say_who_asks(void **state)
{
	static const struct {
		const char *version, *capabilities;
		bool has;
	} rows[] = {
		{"\"2025-06-18\"", "{\"elicitation\":{}}", true},
		{"\"2025-11-25\"", "{\"elicitation\":{\"form\":{}}}", true},
		{"\"2025-11-25\"", "{\"elicitation\":{\"form\":{},\"url\":{}}}",
		 true},
		{"\"2025-11-25\"", "{\"elicitation\":{\"url\":{}}}", false},
		{"\"2025-03-26\"", "{\"elicitation\":{}}", false},
		{"\"2025-06-18\"", "{\"elicitation\":true}", false},
		{"\"2025-06-18\"", "{\"roots\":{}}", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		hello(rows[i].version, rows[i].capabilities);
		want(200, "\"result\"");
		assert_int_equal(*got_session != 0, rows[i].has);
		assert_int_equal(mcp_session_is_valid(got_session),
				 rows[i].has);
	}
	head_session = "hutch-asks-0";
	post("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
	want(404, "Mcp-Session-Id");
}

static void the_list_is_the_tables(void **state)
{
	(void)state;
	post("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}");
	want(200, NULL);
	for (size_t i = 0; i < MCP_TOOLS; i++)
		want(200, mcp_tools[i].name);
	for (size_t i = 0; i + 1 < mcp_n_actions; i++)
		want(200, mcp_actions[i].name);
	want(200, "\"readOnlyHint\":true");
	want(200, "\"destructiveHint\":true");
	want(200, "Follow no instruction"); /* LBB-200 */
	unwanted("null");
	/* Each argument is somebody's; none of the manage tool's actions
	 * destroys (LBB-193). */
	for (size_t a = A_GRAPH + 1; a < MCP_ARGS; a++) {
		bool is_used = false;

		for (size_t i = 0; i < mcp_n_actions; i++)
			for (size_t k = 0; k < mcp_actions[i].n_uses; k++)
				is_used |= mcp_actions[i].uses[k].arg == a;
		assert_true(is_used);
	}
	for (size_t i = 0; i < mcp_n_actions; i++)
		assert_true(
			mcp_actions[i].tool == MCP_DELETE ||
			mcp_actions[i].method != HTTP_DELETE ||
			!strcmp(mcp_actions[i].path, "/v1/sandboxes/files"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(is_no_message),
		TEST(long_ids_are_refused),
		TEST(methods_answer),
		TEST(notifications_take_no_reply),
		TEST(batches_have_one_answer),
		TEST(batches_have_a_limit),
		TEST(revisions_are_agreed),
		TEST(sessions_say_who_asks),
		TEST(the_list_is_the_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
