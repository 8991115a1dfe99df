/*
 * Fuzz: a body of POST /mcp, from bytes to requests of /v1 and replies.
 *
 * The front is variables (hostd/surface/mcp/mcp_test_util.c); routes answer
 * with records like theirs.  Whatever comes: one answer, or a stream that ends;
 * an answer is 202 without a body, or JSON; a request of /v1 has a query that
 * the strict reader takes, a path of the tables, and a body of JSON unless it
 * is a file; and nothing is destroyed without a question unless the call
 * repeats the id.
 *
 * The first byte says what the client is: its session, what it accepts, its
 * revision, and how routes answer.
 */
#include "../../hostd/http/query.h"
#include "../../hostd/surface/mcp/mcp_priv.h"
#include "../../hostd/surface/mcp/mcp_test_util.h"
#include "fuzz.h"
#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                             \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

#define REACH_PERCENT 3

enum client {
	HAS_SESSION = 1,
	HAS_STREAM = 2,
	IS_LATE = 4, /* routes answer later */
	HAS_VERSION = 8,
};

static const struct {
	int status;
	const char *body;
} answers[] = {
	{200, "{\"object\":\"list\",\"data\":[{\"id\":\"a\"}],\"has_more\":"
	      "true,\"next_cursor\":\"a\"}"},
	{200, "{\"object\":\"sandbox\",\"id\":\"sbx_a\",\"status\":"
	      "\"running\",\"graph\":\"main\"}"},
	{202, "{\"object\":\"run\",\"ok\":false,\"status\":\"running\","
	      "\"command\":\"cmd_a\"}"},
	{200, "{\"object\":\"run\",\"ok\":false,\"status\":\"lost\","
	      "\"command\":\"cmd_a\"}"},
	{200, "{\"object\":\"command\",\"id\":\"cmd_a\",\"status\":\"failed\","
	      "\"stdout\":{\"head\":\"h\",\"tail\":\"t\\u0000\",\"bytes\":9,"
	      "\"truncated\":true,\"invalid_utf8\":true},\"stderr\":{}}"},
	{404, "{\"error\":{\"code\":\"c\",\"message\":\"run.m\",\"param\":"
	      "\"run.code\"}}"},
	{200, "\xff\xfe not JSON"},
	{503, ""},
};

static bool is_path(const struct sent *s)
{
	for (size_t i = 0; i < mcp_n_actions; i++)
		if (!strcmp(mcp_actions[i].path, s->path) &&
		    mcp_actions[i].method == s->method)
			return true;
	return false;
}

static void check_sent(const struct sent *s)
{
	struct json_span root;
	struct query q;
	struct err e;

	REQUIRE(is_path(s));
	/* 16 are read; no action has as many. */
	REQUIRE(!query_parse(&q, (char *)s->query.data, &e));
	REQUIRE(query_get(&q, "graph"));
	query_finish(&q);
	if (s->body.len && s->method != HTTP_PUT)
		REQUIRE(!json_check(s->body.data, s->body.len, JSON_DEPTH_MAX,
				    &root, &e) &&
			json_kind_of(root) == JSON_KIND_OBJECT);
}

static void check_answer(void)
{
	struct json_span root;
	struct err e;

	if (got_status == 202) {
		REQUIRE(!got.len);
		return;
	}
	REQUIRE(got_status == 200 || got_status == 400 || got_status == 404);
	REQUIRE(!json_check(got.data, got.len, JSON_DEPTH_MAX, &root, &e));
	if (!strstr((char *)got.data, "\"code\":-32700"))
		fuzz_reach();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t client = len ? data[0] : 0;
	size_t first = client >> 4 & 7;
	struct request *r;
	unsigned n = 0;

	fuzz_begin();
	/* Most changes of a text are no JSON any more. */
	fuzz_reach_want(REACH_PERCENT);
	util_reset();
	head_session = client & HAS_SESSION
			       ? "hutch-asks-0123456789abcdef0123456789abcdef"
			       : NULL;
	head_accept = client & HAS_STREAM ? "text/event-stream" : NULL;
	head_version = client & HAS_VERSION ? "2025-06-18" : NULL;
	is_waiting = client & IS_LATE;
	for (size_t i = 0; i < 4; i++) {
		size_t k = (first + i) % (sizeof(answers) / sizeof(*answers));

		ready_reply(answers[k].status, answers[k].body);
	}
	r = post_bytes(len ? data + 1 : data, len ? len - 1 : 0);
	/* A batch of runs, each asked as often as may be, and its output. */
	while (is_waiting && !got_status && !is_stream &&
	       n++ < MCP_BATCH_MAX * SENT_MAX)
		answer_now();
	for (unsigned i = 0; i < n_sent && i < SENT_MAX; i++)
		check_sent(&sent[i]);
	if (is_stream) {
		fuzz_reach();
		for (unsigned i = 0; i < n_sent && i < SENT_MAX; i++)
			REQUIRE(sent[i].method != HTTP_DELETE);
		REQUIRE(r && !got_status);
		r->abandon(r);
		REQUIRE(is_stream_over);
	} else {
		REQUIRE(got_status);
		check_answer();
	}
	return 0;
}
