/*
 * Unit tests of the arguments of tools: what is refused, and what each action
 * becomes in /v1 (LBB-192, LBB-193, LBB-195).
 */
#include "mcp_test_want.h"

static const struct {
	const char *tool, *arguments, *message;
} refused[] = {
	{"lbb_sandboxes", "{}", "action is missing; lbb_sandboxes "},
	{"lbb_sandboxes", "{\"action\":\"run\"}",
	 "action \\\"run\\\" is none of lbb_sandboxes: list, "},
	{"lbb_sandboxes", "{\"action\":5}", "action 5 is none"},
	{"lbb_sandboxes", "{\"action\":\"list\",\"code\":\"x\"}",
	 "code does not belong to lbb_sandboxes action=list, which "
	 "takes status, template, limit, cursor, graph"},
	{"lbb_sandboxes", "{\"action\":\"list\",\"xyz\":1}",
	 "xyz does not belong"},
	{"lbb_sandboxes", "{\"action\":\"list\",\"\":1}", " does not belong"},
	{"lbb_sandboxes", "{\"action\":\"retrieve\"}", "sandbox is missing"},
	{"lbb_sandboxes", "{\"action\":\"retrieve\",\"sandbox\":5}",
	 "sandbox is a number; it must be a string"},
	{"lbb_sandboxes", "{\"action\":\"retrieve\",\"sandbox\":\"a\\u0000\"}",
	 "sandbox has a NUL"},
	{"lbb_sandboxes", "{\"action\":\"retrieve\",\"sandbox\":\"\\ud800\"}",
	 "sandbox has a lone surrogate"},
	{"lbb_sandboxes", "{\"action\":\"list\",\"graph\":[\"main\"]}",
	 "graph is an array; it must be a string"},
	{"lbb_sandboxes", "{\"action\":\"list\",\"limit\":\"3\"}",
	 "limit is a string; it must be a number"},
	{"lbb_sandboxes",
	 "{\"action\":\"commands_logs\",\"command\":\"cmd_a\","
	 "\"limit\":131073}",
	 "limit must be a whole number from 1 to 131072"},
	{"lbb_sandboxes",
	 "{\"action\":\"files_read\",\"sandbox\":\"sbx_a\",\"path\":"
	 "\"p\",\"offset\":-1}",
	 "offset must be a whole number from 0"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"stop\",\"sandbox\":\"sbx_a\","
	 "\"idempotency_key\":\"k\"}",
	 "idempotency_key does not belong"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"run\",\"code\":\"x\",\"sandbox\":\"sbx_a\"}",
	 "sandbox does not belong"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"run\",\"idempotency_key\":\"\"}",
	 "idempotency_key has 0 bytes"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"run\",\"idempotency_key\":\"\\u00e4\"}",
	 "not printable ASCII"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"files_write\",\"sandbox\":\"sbx_a\",\"path\":"
	 "\"p\"}",
	 "one of content, content_base64"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"files_write\",\"sandbox\":\"sbx_a\",\"path\":"
	 "\"p\",\"content\":\"a\",\"content_base64\":\"\"}",
	 "only one of content"},
	{"lbb_sandboxes_delete",
	 "{\"action\":\"delete\",\"sandbox\":\"sbx_a\"}",
	 "action does not belong to lbb_sandboxes_delete, which"},
	{"lbb_sandboxes_delete", "{}", "sandbox is missing"},
	{"lbb_sandboxes_delete", "{\"sandbox\":\"sbx_a\"}",
	 "confirm is missing: ask the person whether sbx_a "},
	{"lbb_sandboxes_delete",
	 "{\"sandbox\":\"sbx_a\",\"confirm\":\"sbx_b\"}",
	 "confirm is not the id of sandbox"},
};

static void arguments_are_of_their_action(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		call(refused[i].tool, refused[i].arguments);
		want_result("{\"error\":{\"type\":\"invalid_request_error\"");
		want_result(refused[i].message);
		want_result("\"status\":400");
		want(200, "\"isError\":true");
	}
	assert_int_equal(n_sent, 0);
}

static void base64_is_strict(void **state)
{
	static const char *const good[][2] = {
		{"", ""},
		{"YQ==", "a"},
		{"YWI=", "ab"},
		{"YWJj", "abc"},
	};
	static const char *const bad[] = {"Y",	      "YQ=",	"YQ",
					  "=YQ=",     "Y===",	"YWJj YWJj",
					  "YQ==YQ==", "YW\\n=", " YWJ",
					  "Y-Jj"};
	char arguments[200];

	(void)state;
	ready_reply(200, "{\"object\":\"file\",\"path\":\"p\"}");
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		snprintf(arguments, sizeof(arguments),
			 "{\"action\":\"files_write\",\"sandbox\":\"s\","
			 "\"path\":\"p\",\"content_base64\":\"%s\"}",
			 good[i][0]);
		call("lbb_sandboxes_manage", arguments);
		want_sent((unsigned)i, HTTP_PUT, "/v1/sandboxes/files/content",
			  "graph=main&sandbox=s&path=p", good[i][1]);
	}
	n_sent = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(arguments, sizeof(arguments),
			 "{\"action\":\"files_write\",\"sandbox\":\"s\","
			 "\"path\":\"p\",\"content_base64\":\"%s\"}",
			 bad[i]);
		call("lbb_sandboxes_manage", arguments);
		want_result("content_base64 is not base64");
	}
	assert_int_equal(n_sent, 0);
}

static const struct {
	const char *tool, *arguments;
	enum http_method method;
	const char *path, *query, *body;
} requests[] = {
	{"lbb_sandboxes",
	 "{\"action\":\"list\",\"status\":\"running\",\"template\":"
	 "\"lbb/shell\",\"limit\":2,\"cursor\":\"c\",\"graph\":\"g\"}",
	 HTTP_GET, "/v1/sandboxes",
	 "graph=g&status=running&template=lbb%2Fshell&limit=2&cursor=c", ""},
	{"lbb_sandboxes",
	 "{\"action\":\"retrieve\",\"sandbox\":\"a &=%\\u00e4\"}", HTTP_GET,
	 "/v1/sandboxes/get", "graph=main&sandbox=a%20%26%3D%25%C3%A4", ""},
	{"lbb_sandboxes", "{\"action\":\"templates_list\"}", HTTP_GET,
	 "/v1/sandboxes/templates", "graph=main", ""},
	{"lbb_sandboxes",
	 "{\"action\":\"templates_retrieve\",\"name\":\"n\","
	 "\"versions\":true}",
	 HTTP_GET, "/v1/sandboxes/templates", "graph=main&name=n&versions=true",
	 ""},
	{"lbb_sandboxes",
	 "{\"action\":\"commands_list\",\"sandbox\":\"sbx_a\"}", HTTP_GET,
	 "/v1/sandboxes/commands", "graph=main&sandbox=sbx_a", ""},
	{"lbb_sandboxes",
	 "{\"action\":\"commands_retrieve\",\"command\":\"cmd_a\","
	 "\"wait_ms\":5}",
	 HTTP_GET, "/v1/sandboxes/commands/get",
	 "graph=main&command=cmd_a&wait_ms=5", ""},
	{"lbb_sandboxes",
	 "{\"action\":\"commands_logs\",\"command\":\"cmd_a\","
	 "\"stream\":\"stderr\",\"offset\":7,\"limit\":9}",
	 HTTP_GET, "/v1/sandboxes/commands/logs",
	 "graph=main&limit=9&command=cmd_a&stream=stderr&offset=7", ""},
	{"lbb_sandboxes", "{\"action\":\"files_list\",\"sandbox\":\"s\"}",
	 HTTP_GET, "/v1/sandboxes/files", "graph=main&sandbox=s", ""},
	{"lbb_sandboxes",
	 "{\"action\":\"files_read\",\"sandbox\":\"s\",\"path\":"
	 "\"a/b\"}",
	 HTTP_GET, "/v1/sandboxes/files/content",
	 "graph=main&limit=16385&sandbox=s&path=a%2Fb", ""},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"create\",\"env\":{\"A\":\"b\"},\"template\":"
	 "\"lbb/shell\",\"labels\":{},\"name\":\"n\"}",
	 HTTP_POST, "/v1/sandboxes", "graph=main",
	 "{\"template\":\"lbb/shell\",\"env\":{\"A\":\"b\"},\"name\":"
	 "\"n\",\"labels\":{},\"wait_ms\":30000}"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"update\",\"sandbox\":\"s\",\"name\":null,"
	 "\"idle_seconds\":30}",
	 HTTP_PATCH, "/v1/sandboxes", "graph=main&sandbox=s",
	 "{\"idle_seconds\":30,\"name\":null}"},
	{"lbb_sandboxes_manage", "{\"action\":\"stop\",\"sandbox\":\"s\"}",
	 HTTP_POST, "/v1/sandboxes/stop", "graph=main&sandbox=s", ""},
	{"lbb_sandboxes_manage", "{\"action\":\"resume\",\"sandbox\":\"s\"}",
	 HTTP_POST, "/v1/sandboxes/resume", "graph=main&sandbox=s", ""},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"templates_create\",\"name\":\"n\",\"base\":"
	 "\"lbb/python\",\"config\":1.0}",
	 HTTP_POST, "/v1/sandboxes/templates", "graph=main",
	 "{\"name\":\"n\",\"base\":\"lbb/python\",\"config\":1.0}"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"commands_create\",\"sandbox\":\"s\",\"wait_ms\""
	 ":0,\"argv\":[\"ls\", \"-l\"]}",
	 HTTP_POST, "/v1/sandboxes/commands", "graph=main&sandbox=s",
	 "{\"argv\":[\"ls\", \"-l\"],\"wait_ms\":0}"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"commands_create\",\"sandbox\":\"s\",\"input\":"
	 "[1],\"code\":\"c\"}",
	 HTTP_POST, "/v1/sandboxes/commands", "graph=main&sandbox=s",
	 "{\"run\":{\"code\":\"c\",\"input\":[1]},\"wait_ms\":30000}"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"commands_cancel\",\"command\":\"c\"}", HTTP_POST,
	 "/v1/sandboxes/commands/cancel", "graph=main&command=c", ""},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"files_write\",\"sandbox\":\"s\",\"path\":\"p\","
	 "\"content\":\"\\u00e4\\n\"}",
	 HTTP_PUT, "/v1/sandboxes/files/content", "graph=main&sandbox=s&path=p",
	 "\xc3\xa4\n"},
	{"lbb_sandboxes_manage",
	 "{\"action\":\"files_delete\",\"sandbox\":\"s\",\"path\":"
	 "\"p\"}",
	 HTTP_DELETE, "/v1/sandboxes/files", "graph=main&sandbox=s&path=p", ""},
	{"lbb_sandboxes_delete",
	 "{\"sandbox\":\"sbx_a\",\"confirm\":\"sbx_a\"}", HTTP_DELETE,
	 "/v1/sandboxes", "graph=main&sandbox=sbx_a", ""},
};

/* Every action as a request of /v1 (LBB-192, LBB-193). */
static void actions_are_routes(void **state)
{
	(void)state;
	ready_reply(200, "{\"object\":\"thing\",\"id\":\"x_1\"}");
	for (unsigned i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		call(requests[i].tool, requests[i].arguments);
		want(200, "\"isError\":false");
		assert_int_equal(n_sent, i + 1);
		want_sent(i, requests[i].method, requests[i].path,
			  requests[i].query, requests[i].body);
	}
	/* All of them, but run, which has cases of its own. */
	assert_int_equal(n_sent, mcp_n_actions);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(arguments_are_of_their_action),
		TEST(base64_is_strict),
		TEST(actions_are_routes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
