/*
 * What the operator set of environments and graphs, in memory.
 *
 * A copy of what the store has: read whole at the start and after each change,
 * so that a change that was told is in force at the next request.  A graph of
 * which nothing was set has no row here: epoch 1, places as its environment.
 * Belongs to auth.h.  Loop thread.
 */
#ifndef HUTCHD_REALM_H
#define HUTCHD_REALM_H

#include "../store/store.h"

struct realm {
	struct environment_info *environments; /* owned, by id */
	struct graph_info *graphs;	       /* owned, by environment, name */
	size_t n_environments, n_graphs;
};

/* -ENOMEM: `r` is as it was. */
int realm_take(struct realm *r, const struct realm_rows *rows);
void realm_finish(struct realm *r);

/* NULL: it has no row (the admin socket's own may have none). */
const struct environment_info *realm_environment(const struct realm *r,
						 const char *id);
uint64_t realm_epoch(const struct realm *r, const char *environment,
		     const char *graph);
/* 0 = as configured. */
struct realm_places {
	uint32_t environment, graph;
};
struct realm_places realm_places(const struct realm *r, const char *environment,
				 const char *graph);

#endif
