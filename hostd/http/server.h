/*
 * HTTP/1.1 for the daemon: libmicrohttpd inside our loop.
 *
 * No thread of its own: each of the two listeners (TCP port, admin socket) is
 * one MHD daemon whose epoll descriptor is watched by the loop and whose
 * MHD_get_timeout is a loop timer.  A handler answers at once or later; while
 * it works the connection is suspended.
 *
 * Who ends slow clients: we do, by one timer per connection (MHD has idle
 * time-outs only, which a client that sends a byte now and then never meets):
 *
 *   head   HTTP_HEAD_MS  from accept to a whole header
 *   body   HTTP_BODY_MS  from the header to a whole body; of an upload, for
 *                        each MiB
 *   work   none          the handler answers within its own limits
 *   send   HTTP_SEND_MS  from the answer to its last byte; of a file, for
 *                        each piece
 *   idle   HTTP_IDLE_MS  between two requests, the next header included
 *
 * Accepting is ours, too: MHD's own loop spins, or never accepts again, when
 * descriptors run out.  conn.c has what happens then.
 *
 * What MHD decides by itself, in its own words and not in our envelope, and
 * then closes: 400 for a header it cannot read, 413 for a broken or huge
 * Content-Length or chunk size, 431 when head or query exceed
 * HTTP_CONN_MEMORY_BYTES (or no answer, when nothing is left to build it in).
 * It takes a bare LF for a line end, unfolds folded headers and cuts a value at
 * a NUL.
 */
#ifndef HUTCHD_SERVER_H
#define HUTCHD_SERVER_H

#include "../services.h"
#include "route.h"
#include <stdint.h>

#define HTTP_HEAD_MS	       10000
#define HTTP_BODY_MS	       60000 /* and of an upload, for each: */
#define HTTP_BODY_STEP_BYTES   (1u << 20)
#define HTTP_SEND_MS	       60000
#define HTTP_IDLE_MS	       60000
#define HTTP_CONN_MEMORY_BYTES (32u << 10)
#define HTTP_HEADERS_MAX       100
#define HTTP_BACKLOG	       511
/* Of the admin socket; the port has connections_max. */
#define HTTP_ADMIN_CONNECTIONS_MAX 64
/* A refused body up to this size is read to its end, so that the client gets
 * the answer and may keep the connection. */
#define HTTP_DRAIN_BYTES_MAX (8u << 20)
/* The same of an upload whose caller is known: most clients read an answer only
 * when they have sent everything. */
#define HTTP_DRAIN_UPLOAD_BYTES_MAX (256u << 20)

struct http_config {
	const char *listen;	   /* "127.0.0.1:7400", "[::1]:0", "none" */
	const char *admin_path;	   /* of the Unix socket */
	const char *public_url;	   /* "" = from the port */
	const char *allowed_hosts; /* comma separated, may be "" */
	unsigned connections_max;
	uint64_t body_budget_bytes;
	bool is_metrics_open;
	const struct route_table *const *tables; /* NULL terminated */
};

struct http_stats {
	uint64_t requests, connections, timeouts, wrong_keys;
	uint64_t by_class[6];	   /* answers 1xx ... 5xx */
	uint64_t evicted, refused; /* connections, at the limit */
	uint64_t body_bytes;	   /* held now */
	unsigned open_connections, working;
};

struct http_server;

int http_server_create(struct http_server **ret, struct services *sv,
		       const struct http_config *cfg, struct err *e);
/* Requests that still wait are answered with 503, then all is closed. */
void http_server_destroy(struct http_server *s);

/* "127.0.0.1:7400" with the real port; "" without a TCP listener. */
const char *http_server_address(const struct http_server *s);

/*
 * 503 for new requests, except those of ROUTE_ALWAYS: /readyz tells a load
 * balancer, and who follows a command that still runs sees its end.
 * http_server_stats has how many handlers work.
 */
void http_server_drain(struct http_server *s);
bool http_server_is_draining(const struct http_server *s);
void http_server_stats(const struct http_server *s, struct http_stats *ret);

#endif
