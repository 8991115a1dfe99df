/*
 * Graphs: list, set.
 *
 * A graph needs no making: it is there from its first sandbox on.  It may have
 * places of its own, and an epoch: a new one ends all grants of the old.
 */
#include "../../config.h"
#include "../../http/auth.h"
#include "../lbb/decode.h"
#include "../lbb/lbb.h"
#include "admin.h"
#include <inttypes.h>
#include <stdio.h>

void admin_epoch_print(char dst[24], uint64_t epoch)
{
	snprintf(dst, 24, "%" PRIu64, epoch);
}

static void put_graph(struct json_out *j, const struct request *r,
		      const struct graph_info *g)
{
	const struct environment_info *e = realm_environment(
		auth_realm(r->services->auth), g->environment);
	uint64_t otherwise = e && e->graph_places
				     ? e->graph_places
				     : r->services->config->graph_places;
	char epoch[24];

	admin_epoch_print(epoch, g->epoch);
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "graph");
	json_out_str(j, "environment", g->environment);
	json_out_str(j, "name", g->name);
	json_out_str(j, "epoch", epoch);
	admin_put_places(j, "places", g->places, otherwise);
	json_out_u64(j, "places_held",
		     admin_places_held(r, g->environment, g->name));
	json_out_time(j, "created_at", g->created_ms);
	json_out_end(j, '}');
}

static void on_graphs(void *ctx, int rc, const struct realm_rows *rows)
{
	struct request *r = ctx;
	const char *only = query_get(&r->query, "environment");
	const char *name = query_get(&r->query, "graph");
	struct json_out j = {0};
	size_t n_put = 0;
	struct err e;

	if (rc) {
		admin_failed(r, "nothing: the graphs cannot be read", rc);
		return;
	}
	lbb_list_begin(&j);
	for (size_t i = 0; i < rows->n_graphs; i++) {
		const struct graph_info *g = &rows->graphs[i];

		if ((only && strcmp(only, g->environment)) ||
		    (name && strcmp(name, g->name)))
			continue;
		put_graph(&j, r, g);
		n_put++;
	}
	lbb_list_end(&j, false, NULL);
	if (name && !n_put) {
		json_out_finish(&j);
		err_set(&e, ERR_NOT_FOUND, "graph",
			"there is no graph %s in environment %s: it comes into "
			"being with its first sandbox",
			name, r->environment);
		reply_err(r, &e);
		return;
	}
	reply_json(r, 200, &j);
}

void admin_graph_list(struct request *r)
{
	int rc = store_realm_load(r->services->store, true, on_graphs, r);

	if (rc)
		lbb_engine_failed(r, rc);
}

static int graph_places(void *ctx, const char *path, struct json_span v,
			struct err *e)
{
	struct graph_change *c = ctx;

	c->has_places = true;
	return decode_u32(path, v, 0, ADMIN_PLACES_MAX, ERR_INVALID_REQUEST,
			  &c->places, e);
}

static int graph_epoch(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct graph_change *c = ctx;

	return decode_bool(path, v, &c->is_new_epoch, e);
}

static const struct decode_field fields[] = {
	{"places", graph_places},
	{"new_epoch", graph_epoch},
};

static void on_known(void *ctx, int rc)
{
	struct request *r = ctx;

	if (rc)
		admin_failed(r, "the graph", rc);
	else
		admin_graph_list(r);
}

static void on_set(void *ctx, int rc)
{
	admin_reload(ctx, rc, on_known);
}

void admin_graph_set(struct request *r)
{
	struct graph_change c = {0};
	struct json_span body;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	if (decode_object(&c, "", body, fields,
			  sizeof(fields) / sizeof(*fields), &e)) {
		reply_err(r, &e);
		return;
	}
	memcpy(c.environment, r->environment, sizeof(c.environment));
	memcpy(c.name, r->graph, sizeof(c.name));
	rc = store_graph_set(r->services->store, &c, on_set, r);
	if (rc)
		on_known(r, rc);
}
