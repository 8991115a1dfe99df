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

#define REQUEST_ID_BYTES_MAX   32
#define REQUEST_BODY_DEPTH_MAX 64 /* of our own fields */

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

	void (*abandon)(struct request *r);
	void *op; /* the handler's own */

	struct request_priv *priv;
};

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

/* {"error":{...}} into `j`; used by replies and by streams. */
void error_envelope(struct json_out *j, const struct request *r,
		    const struct err *e);

#endif
