/*
 * Grants: what lets one attempt of a workflow's step make one kind of call.
 *
 * A token "lbb_wke_" and 64 hex digits stands in the place of an API key.  It
 * is bound to environment, graph and its epoch, workflow, run, step, turn,
 * attempt and one operation, and lives GRANT_TTL_MS_MAX at most.  Only its
 * SHA-256 is kept, in the store and here; grants outlive a restart.
 *
 * A grant of a later attempt fences those of earlier ones of the same step:
 * they are refused from then on, and no more are given.  For that, one that is
 * over is remembered for as long as another may live.  Loop thread.
 */
#ifndef HUTCHD_GRANTS_H
#define HUTCHD_GRANTS_H

#include "../store/store.h"
#include "route.h"

#define GRANT_PREFIX	  "lbb_wke_"
#define GRANT_TOKEN_BYTES 80
#define GRANT_TTL_MS_MIN  1000
#define GRANT_TTL_MS_MAX  60000
#define GRANTS_MAX	  10000 /* remembered at once */

/* As a request has it. */
struct grant {
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	struct origin origin;
	enum route_access access;
	uint64_t epoch;
	int64_t issued_ms, expires_ms;
};

struct grants {
	struct {
		uint8_t hash[HASH_BYTES];
		struct grant grant;
	} * list; /* owned, as they were issued */
	size_t n, cap;
};

void grants_finish(struct grants *g);
/* -ENOMEM: not taken.  Forgets what is over for long. */
int grants_add(struct grants *g, const struct grant_row *row, int64_t now_ms);

/*
 * May one be issued?  0, or -1 with `e`: ERR_FENCE_LOST, ERR_LIMIT_REACHED.
 */
int grants_may_issue(struct grants *g, const struct grant_row *row,
		     int64_t now_ms, struct err *e);
/* Makes token and hash; -EIO without random bytes. */
int grants_make(struct grant_row *row, char token[GRANT_TOKEN_BYTES]);

/*
 * The grant of a token: 0 and *ret, or -1 with `e`: ERR_UNAUTHORIZED (not
 * known), ERR_GRANT_EXPIRED, ERR_FENCE_LOST.
 */
int grants_check(const struct grants *g, const char *token, int64_t now_ms,
		 struct grant *ret, struct err *e);

#endif
