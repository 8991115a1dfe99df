/*
 * For mcp_test.c and the fuzz target: the folder over a front that is made of
 * variables.  A request of /v1 is kept and answered by what was put ready, at
 * once or when the test says; what the client would get is kept, too.
 */
#ifndef HUTCHD_MCP_TEST_UTIL_H
#define HUTCHD_MCP_TEST_UTIL_H

#include "mcp.h"

#define SENT_MAX 32

struct sent {
	enum http_method method;
	char path[128], key[300];
	bool has_key;
	struct bytes query, body; /* NUL behind */
};
extern struct sent sent[SENT_MAX];
extern unsigned n_sent;

/* The next answers, in order; the last one stays. */
void ready_reply(int status, const char *body);
extern bool is_waiting; /* answers are for later: answer_now */
void answer_now(void);

/* Of the head of the next POST; NULL = absent. */
extern const char *head_accept, *head_session, *head_version;

/* What the client got of the last POST that was answered whole. */
extern int got_status;	 /* 0 = nothing yet */
extern struct bytes got; /* NUL behind */
extern char got_session[64];
/* Of the one that is answered by a stream. */
extern struct bytes streamed; /* NUL behind */
extern bool is_stream, is_stream_over, is_reader_gone, is_draining;

/* The milliseconds that fn sees; a timer that is due then is called. */
void pass_time(int64_t ms);

/* A POST; NULL = it was answered whole and is gone. */
struct request *post_bytes(const void *body, size_t len);
struct request *post(const char *body);
void util_reset(void); /* between tests: fails when something is left */

#endif
