/*
 * Routes are data.
 *
 * Each surface has one `static const` table; main lists the tables.  What a
 * row says is enforced before its handler runs: method, key, graph, query
 * names, content type, body size, idempotency key.  api/openapi describes the
 * same rows and a check compares the two (hutchd --routes).
 */
#ifndef HUTCHD_ROUTE_H
#define HUTCHD_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

struct request;

enum http_method {
	HTTP_GET,
	HTTP_POST,
	HTTP_PUT,
	HTTP_PATCH,
	HTTP_DELETE,
	HTTP_HEAD,
	HTTP_OPTIONS,
	HTTP_METHODS,
	HTTP_OTHER = HTTP_METHODS,
};

const char *http_method_name(enum http_method m);
enum http_method http_method_parse(const char *name);

enum route_flag {
	ROUTE_KEY = 1,	      /* needs a caller: API key, or the admin socket */
	ROUTE_GRAPH = 2,      /* takes graph and stack */
	ROUTE_IDEMPOTENT = 4, /* needs an Idempotency-Key */
	ROUTE_ADMIN = 8,      /* exists on the admin socket only */
	ROUTE_METRICS = 16,   /* may be closed by the config */
	ROUTE_ALWAYS = 32,    /* answers also while the daemon drains */
	ROUTE_SANDBOX = 64,   /* the environment must have sandboxes enabled */
	ROUTE_RAW = 128,      /* the body is a file: any type, and its bytes */
	/* The handler is called before the body, which it takes as it comes:
	 * request.sink.  Any type. */
	ROUTE_STREAM = 256,
};

struct route {
	enum http_method method;
	const char *path;
	const char *operation; /* operationId */
	unsigned flags;
	size_t body_bytes_max;	   /* 0 = takes no body */
	const char *const *params; /* own query names, NULL terminated */
	void (*handler)(struct request *r);
};

struct route_table {
	const char *name;
	const struct route *routes;
	size_t n;
};

/*
 * The row for a request.  HEAD finds the row of GET.  NULL: *ret_allow is 0
 * when no row has this path, else one bit per method that the path takes.
 */
const struct route *route_find(const struct route_table *const *tables,
			       enum http_method method, const char *path,
			       bool is_admin, unsigned *ret_allow);

/* "GET, HEAD, POST" for an Allow header. */
void route_allow(unsigned allow, char *dst, size_t cap);

#endif
