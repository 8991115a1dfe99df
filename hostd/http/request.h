/*
 * One request, as a handler sees it.
 *
 * When the handler is called the row of its route has been enforced: the
 * caller is known, the query has only known names, the body is whole.  It
 * calls exactly one of the reply functions, now or later on the loop's
 * thread; after that the request is gone.
 *
 * While a handler works elsewhere it may set `abandon`: called at most once,
 * when the server closes before the answer; it must take back what would have
 * answered and then call request_drop.
 */
#ifndef HUTCHD_REQUEST_H
#define HUTCHD_REQUEST_H

#include "../engine/engine.h"
#include "../services.h"
#include "grants.h"
#include "json_out.h"
#include "json_raw.h"
#include "query.h"
#include "route.h"

#define REQUEST_ID_BYTES_MAX	 32
#define REQUEST_BODY_DEPTH_MAX	 64 /* of our own fields */
#define REQUEST_HEADER_BYTES_MAX 64

/*
 * Of a route with ROUTE_STREAM: who takes the body.  Set by the handler, which
 * is called when the head is good, unless it answers (refuses) at once.
 */
struct body_sink {
	/* The next bytes: 0; 1 = no more before request_body_more; -1 with `e`:
	 * refused, and nothing else of this is called. */
	int (*take)(struct request *r, const void *data, size_t len,
		    struct err *e);
	/* That was all: answer, as a handler does. */
	void (*end)(struct request *r);
	/* It will not be all: the client is gone or too slow, the server
	 * closes.  Nobody is to be answered. */
	void (*cut)(struct request *r);
};

struct request {
	const struct services *services;
	const struct route *route;
	char id[REQUEST_ID_BYTES_MAX];
	enum http_method method;
	char *path; /* owned; the raw path, no query */
	struct query query;
	char *idempotency_key; /* owned; NULL = none */
	struct bytes body;
	struct caller caller; /* borrows the two below */
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	bool is_admin;	/* came by the admin socket */
	bool has_grant; /* came with a grant, in place of a key: */
	struct grant grant;

	const struct body_sink *sink; /* NULL = the body is kept, in `body` */
	void (*abandon)(struct request *r);
	void *op; /* the handler's own */

	struct request_priv *priv;
};

/*
 * A field of the request's head, in the handler and in sink->end; NULL =
 * absent. request_set_header: one more field of its answer; `name` is a
 * literal, and what does not fit into REQUEST_HEADER_BYTES_MAX is left out.
 */
const char *request_header(const struct request *r, const char *name);
void request_set_header(struct request *r, const char *name, const char *value);

/* What the head says of the body: UINT64_MAX = it does not say. */
uint64_t request_body_bytes(const struct request *r);
/* Idempotency-Key, where the route leaves it to the handler: it is there and
 * good from now on, or -1 with `e`. */
int request_key(struct request *r, struct err *e);
/* The sink takes more. */
void request_body_more(struct request *r);

/*
 * Bytes of a file: [at, at + len) of fd, which is taken over.  They are read by
 * a worker as the client takes them.  Texts are copied; etag without quotes.
 */
struct reply_bytes_of {
	int fd;
	uint64_t at, len, total;
	bool is_part; /* 206: at and len are a range of total */
	const char *content_type, *etag;
};
void reply_file(struct request *r, const struct reply_bytes_of *f);
/* 416, of a file of `total` bytes. */
void reply_no_range(struct request *r, uint64_t total);
/*
 * What Range and If-Range ask of a file: 1 = the part in *ret_at and *ret_len,
 * 0 = all of it (none was asked for, or more than one, or of another state, or
 * in words that are not known), -1 = there is no such part.
 */
int request_range(const struct request *r, const char *etag, uint64_t total,
		  uint64_t *ret_at, uint64_t *ret_len);

void reply_json(struct request *r, int status, struct json_out *j);
/* Takes over `body`. */
void reply_bytes(struct request *r, int status, const char *content_type,
		 struct bytes *body);
void reply_err(struct request *r, const struct err *e);
void request_drop(struct request *r);

/*
 * The body as an object that passed json_check: 0 and *ret, or the request
 * has been answered and -1 is returned.
 */
int request_object(struct request *r, struct json_span *ret);

/*
 * An answer in pieces.  Begin, write, end; a client that does not read makes
 * the pieces pile up to STREAM_BYTES_MAX, after which they are dropped whole.
 * The last piece (NULL = none), up to STREAM_LAST_BYTES_MAX, never is.
 * After reply_stream_end the request is gone.
 */
#define STREAM_BYTES_MAX      (256u << 10)
#define STREAM_LAST_BYTES_MAX (4u << 10)
int reply_stream_begin(struct request *r, const char *content_type);
void reply_stream_write(struct request *r, const void *data, size_t len);
void reply_stream_end(struct request *r, const void *last, size_t len);

/* Nobody reads it any more. */
bool reply_stream_is_gone(const struct request *r);

/*
 * A call of our own routes that one request makes to answer another, as if its
 * client had made it: the same caller, the same route table, the same checks
 * from the route on, the same X-Request-Id, and no connection.  One at a time
 * for each outer request.
 *
 * `fn` is called exactly once, perhaps before request_inner returns, and may
 * answer the outer request or make the next call; so nothing of the outer
 * request may be touched after request_inner.  When the server closes, `fn`
 * gets an error like any other and the outer request has been answered
 * already: what it replies is dropped.
 */
struct inner_spec {
	enum http_method method;
	const char *path;
	const char *query;  /* raw, NULL = none */
	const char *key;    /* NULL = no Idempotency-Key */
	struct bytes *body; /* taken over; NULL = none */
};
struct inner_reply {
	int status;
	struct bytes body; /* fn may take it over; else freed behind it */
};
typedef void request_inner_fn(struct request *outer, struct inner_reply *reply);
void request_inner(struct request *outer, const struct inner_spec *spec,
		   request_inner_fn *fn);

/* {"error":{...}} into `j`; used by replies and by streams. */
void error_envelope(struct json_out *j, const struct request *r,
		    const struct err *e);

#endif
