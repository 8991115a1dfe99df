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
	ROUTE_RAW = 128,      /* the body is a file: any type, and its bytes */
	/* The handler is called before the body, which it takes as it comes:
	 * request.sink.  Any type. */
	ROUTE_STREAM = 256,
};

/*
 * What a call does with sandboxes, one word in each row: X(NAME, word, does it
 * need a plan that runs code?, may a grant be for it?).  All but OPEN need an
 * environment with sandboxes enabled.  The words of those that a grant may be
 * for are its operations, with "sandbox_" in front.
 */
#define ROUTE_ACCESS(X)                                                        \
	X(OPEN, "open", 0, 0)	  /* nothing with sandboxes */                 \
	X(READ, "read", 0, 1)	  /* lists, reads, waits */                    \
	X(MANAGE, "manage", 0, 1) /* stops, deletes, cancels, updates */       \
	X(RUN, "run", 1, 1)	  /* one call; its route creates, too */       \
	X(CREATE, "create", 1, 1) /* a sandbox that is held */                 \
	X(RESUME, "resume", 1, 1)                                              \
	X(COMMAND, "command", 1, 1) /* on one that is held */                  \
	X(WRITE, "write", 1, 1)	    /* files, templates, snapshots, keeps */   \
	X(GRANT, "grant", 1, 0)	    /* hands out a grant */

enum route_access {
#define X(name, ...) ACCESS_##name,
	ROUTE_ACCESS(X)
#undef X
		ACCESS_N,
};

const char *route_access_name(enum route_access a);
bool route_access_needs_plan(enum route_access a);
/* Of a grant's operation, "sandbox_run"; ACCESS_OPEN: there is none. */
enum route_access route_access_of_operation(const char *operation);

struct route {
	enum http_method method;
	const char *path;
	const char *operation; /* operationId */
	unsigned flags;
	enum route_access access;
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
