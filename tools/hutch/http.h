/*
 * A small HTTP/1.1 client: one connection, one call at a time, kept open
 * between calls.  Over a Unix socket or TCP, no TLS.
 *
 * Answers are bounded: HTTP_HEAD_BYTES_MAX of head, HTTP_BODY_BYTES_MAX of
 * body.  An idle wait longer than the time-out is -ETIMEDOUT.  A signal that
 * set http.is_cancelled ends the wait with -EINTR.
 */
#ifndef HUTCH_CLI_HTTP_H
#define HUTCH_CLI_HTTP_H

#include "bytes.h"
#include "err.h"
#include <signal.h>

#define HTTP_HEAD_BYTES_MAX (64u << 10)
#define HTTP_BODY_BYTES_MAX (64u << 20)

struct http {
	char host[256]; /* TCP: name or address; "" = Unix socket */
	char port[8];
	char socket[108]; /* path of the Unix socket */
	char prefix[256]; /* put in front of each path */
	int fd;		  /* -1 = not connected; owned */
	int timeout_ms;
	const volatile sig_atomic_t *is_cancelled; /* may be NULL */
	/* Called with the body so far each time a piece of it arrived. */
	void (*on_body)(void *ctx, const struct bytes *body); /* or NULL */
	void *on_body_ctx;
	/* Whole lines for the next calls, or NULL. */
	const char *more_headers;
	/* In place of a body, of the next call; fd -1 = none.  bytes
	 * UINT64_MAX: to its end, in chunks.  Sent once. */
	struct {
		int fd;
		uint64_t bytes;
		const char *type;
	} file;
};

struct http_reply {
	int status;
	struct bytes head, body; /* owned */
};

void http_init_socket(struct http *h, const char *path);
/* http://HOST[:PORT][/PREFIX]; 0 or -1 with `e`. */
int http_init_url(struct http *h, const char *url, struct err *e);
void http_finish(struct http *h);
void http_reply_finish(struct http_reply *r);

/* 0 or -errno. */
int http_connect(struct http *h);

/*
 * One call.  `headers`: whole lines, each with CRLF, or "".  `body` NULL =
 * none.  A kept connection that the server closed meanwhile is opened again
 * once, when nothing of an answer had arrived and the call may be repeated
 * (GET, or `is_repeatable`).  0 or -errno.
 */
int http_call(struct http *h, const char *method, const char *path,
	      const char *headers, const struct bytes *body, bool is_repeatable,
	      struct http_reply *ret);

/* Value of a header copied to dst; false = absent or too long. */
bool http_header(const struct http_reply *r, const char *name, char *dst,
		 size_t cap);

#endif
