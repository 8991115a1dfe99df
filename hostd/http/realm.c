/* Environments and graphs in memory; see realm.h. */
#include "realm.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *copy_of(const void *list, size_t n, size_t each)
{
	void *copy = calloc(n + 1, each);

	if (copy && n)
		memcpy(copy, list, n * each);
	return copy;
}

int realm_take(struct realm *r, const struct realm_rows *rows)
{
	struct realm to = {
		.environments =
			copy_of(rows->environments, rows->n_environments,
				sizeof(*rows->environments)),
		.graphs = copy_of(rows->graphs, rows->n_graphs,
				  sizeof(*rows->graphs)),
		.n_environments = rows->n_environments,
		.n_graphs = rows->n_graphs,
	};

	if (!to.environments || !to.graphs) {
		realm_finish(&to);
		return -ENOMEM;
	}
	realm_finish(r);
	*r = to;
	return 0;
}

void realm_finish(struct realm *r)
{
	free(r->environments);
	free(r->graphs);
	memset(r, 0, sizeof(*r));
}

static int by_id(const void *key, const void *at)
{
	const struct environment_info *e = at;

	return strcmp(key, e->id);
}

const struct environment_info *realm_environment(const struct realm *r,
						 const char *id)
{
	return r->n_environments
		       ? bsearch(id, r->environments, r->n_environments,
				 sizeof(*r->environments), by_id)
		       : NULL;
}

struct graph_name {
	const char *environment, *graph;
};

static int by_name(const void *key, const void *at)
{
	const struct graph_name *name = key;
	const struct graph_info *g = at;
	int c = strcmp(name->environment, g->environment);

	return c ? c : strcmp(name->graph, g->name);
}

static const struct graph_info *graph_of(const struct realm *r,
					 const char *environment,
					 const char *graph)
{
	const struct graph_name name = {environment, graph};

	return r->n_graphs ? bsearch(&name, r->graphs, r->n_graphs,
				     sizeof(*r->graphs), by_name)
			   : NULL;
}

uint64_t realm_epoch(const struct realm *r, const char *environment,
		     const char *graph)
{
	const struct graph_info *g = graph_of(r, environment, graph);

	return g ? g->epoch : 1;
}

struct realm_places realm_places(const struct realm *r, const char *environment,
				 const char *graph)
{
	const struct environment_info *e = realm_environment(r, environment);
	const struct graph_info *g = graph_of(r, environment, graph);
	struct realm_places p = {0};

	if (e)
		p = (struct realm_places){e->places, e->graph_places};
	if (g && g->places)
		p.graph = g->places;
	return p;
}
