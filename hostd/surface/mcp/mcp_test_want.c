/* A call and what came of it; see mcp_test_want.h. */
#include "mcp_test_want.h"

int reset(void **state)
{
	(void)state;
	util_reset();
	return 0;
}

void want(int status, const char *part)
{
	if (got_status != status || (part && !strstr((char *)got.data, part)))
		fail_msg("wanted %d with %s, got %d: %s", status,
			 part ? part : "", got_status, (char *)got.data);
}

void unwanted(const char *part)
{
	if (strstr((char *)got.data, part))
		fail_msg("unwanted %s in %s", part, (char *)got.data);
}

/* What structuredContent has: whole JSON, the same as the text. */
void want_result(const char *part)
{
	struct json_span root, s, text;
	struct bytes b = {0};
	struct err e;

	want(200, NULL);
	assert_int_equal(
		json_check(got.data, got.len, JSON_DEPTH_MAX, &root, &e), 0);
	if (!json_at(root, "result.structuredContent", &s))
		fail_msg("no result: %s", (char *)got.data);
	assert_true(json_at(root, "result.content", &text));
	/* [{"type":"text","text":"..."}] */
	text.at += 1;
	text.len -= 2;
	assert_true(json_at(text, "text", &text));
	assert_int_equal(json_text(text, &b), 0);
	assert_int_equal(b.len, s.len);
	assert_memory_equal(b.data, s.at, s.len);
	if (!memmem(s.at, s.len, part, strlen(part)))
		fail_msg("no %s in %.*s", part, (int)s.len, s.at);
	bytes_finish(&b);
}

void call(const char *tool, const char *arguments)
{
	struct bytes b = {0};

	bytes_printf(&b,
		     "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\","
		     "\"params\":{\"name\":\"%s\",\"arguments\":%s}}",
		     tool, arguments);
	post_bytes(b.data, b.len);
	bytes_finish(&b);
}

void want_sent(unsigned at, enum http_method method, const char *path,
	       const char *query, const char *body)
{
	assert_true(at < n_sent);
	assert_int_equal(sent[at].method, method);
	assert_string_equal(sent[at].path, path);
	assert_string_equal((char *)sent[at].query.data, query);
	assert_string_equal((char *)sent[at].body.data, body);
}
