/*
 * Tables `environment` and `graph`: what the operator set of them.
 *
 * A graph is there from its first sandbox on, or when something is set of it.
 * All of it is small and is kept in memory (hostd/http/realm.h), so there is
 * one read, of everything.
 */
#include "../clock.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* The record of what has columns only. */
#define REC_EMPTY "x'a10001'"

/* ---- changes --------------------------------------------------------------
 */

struct change_op {
	struct store_op op;
	struct environment_change env;
	struct graph_change graph;
	store_rc_fn fn;
	void *ctx;
};

/* A value, or what is there already. */
static void q_opt(struct query *q, bool has, int64_t v)
{
	if (has)
		q_int(q, v);
	else
		q_text(q, NULL);
}

static int add_exec(struct db *db, struct store_op *op)
{
	const struct environment_info *e = &((struct change_op *)op)->env.to;
	struct query q = query(
		db, "INSERT INTO environment(id, plan, is_enabled, created_ms,"
		    " environment_places, graph_places, rec)"
		    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, " REC_EMPTY ")");

	q_text(&q, e->id);
	q_int(&q, e->plan);
	q_int(&q, e->is_enabled);
	q_int(&q, clock_wall_ms());
	q_int(&q, e->places);
	q_int(&q, e->graph_places);
	return q_run(&q);
}

static int set_exec(struct db *db, struct store_op *op)
{
	const struct environment_change *c = &((struct change_op *)op)->env;
	struct query q = query(
		db, "UPDATE environment SET plan = coalesce(?2, plan),"
		    " is_enabled = coalesce(?3, is_enabled),"
		    " environment_places = coalesce(?4, environment_places),"
		    " graph_places = coalesce(?5, graph_places) WHERE id = ?1");
	int rc;

	q_text(&q, c->to.id);
	q_opt(&q, c->has_plan, c->to.plan);
	q_opt(&q, c->has_enabled, c->to.is_enabled);
	q_opt(&q, c->has_places, c->to.places);
	q_opt(&q, c->has_graph_places, c->to.graph_places);
	rc = q_run(&q);
	return rc || sqlite3_changes(db->h) ? rc : -ENOENT;
}

static int run_for(struct db *db, const char *sql, const char *id)
{
	struct query q = query(db, sql);

	q_text(&q, id);
	return q_run(&q);
}

static int delete_exec(struct db *db, struct store_op *op)
{
	static const char *const steps[] = {
		"DELETE FROM \"grant\" WHERE environment = ?1",
		"DELETE FROM budget WHERE environment = ?1",
		"DELETE FROM graph WHERE environment = ?1",
		"DELETE FROM idempotency WHERE environment = ?1",
		"DELETE FROM \"key\" WHERE environment = ?1",
		"DELETE FROM environment WHERE id = ?1",
	};
	const char *id = ((struct change_op *)op)->env.to.id;
	struct query q = query(
		db, "SELECT (SELECT count(*) FROM environment WHERE id = ?1),"
		    " EXISTS(SELECT 1 FROM sandbox WHERE environment = ?1) OR"
		    " EXISTS(SELECT 1 FROM snapshot WHERE environment = ?1) OR"
		    " EXISTS(SELECT 1 FROM template WHERE environment = ?1) OR"
		    " EXISTS(SELECT 1 FROM file WHERE environment = ?1)");
	bool is_there, is_used;
	int rc;

	q_text(&q, id);
	rc = q_row(&q);
	if (rc <= 0)
		return rc ? rc : -EIO;
	is_there = q_int_at(&q, 0);
	is_used = q_int_at(&q, 1);
	q_end(&q);
	if (!is_there || is_used)
		return is_there ? -ENOTEMPTY : -ENOENT;
	rc = 0;
	for (size_t i = 0; !rc && i < sizeof(steps) / sizeof(*steps); i++)
		rc = run_for(db, steps[i], id);
	return rc;
}

int graph_put(struct db *db, const char *environment, const char *name)
{
	struct query q = query(db, "INSERT OR IGNORE INTO graph(environment,"
				   " name, created_ms, rec)"
				   " VALUES(?1, ?2, ?3, " REC_EMPTY ")");

	q_text(&q, environment);
	q_text(&q, name);
	q_int(&q, clock_wall_ms());
	return q_run(&q);
}

static int graph_exec(struct db *db, struct store_op *op)
{
	const struct graph_change *c = &((struct change_op *)op)->graph;
	int rc = graph_put(db, c->environment, c->name);
	struct query q;

	if (rc)
		return rc;
	q = query(db, "UPDATE graph SET places = coalesce(?3, places),"
		      " epoch = epoch + ?4 WHERE environment = ?1 AND"
		      " name = ?2");
	q_text(&q, c->environment);
	q_text(&q, c->name);
	q_opt(&q, c->has_places, c->places);
	q_int(&q, c->is_new_epoch);
	return q_run(&q);
}

static void change_done(struct store_op *op)
{
	struct change_op *c = (struct change_op *)op;

	c->fn(c->ctx, op->rc);
	free(c);
}

static int change(struct store *s, const struct change_op *what)
{
	struct change_op *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*c = *what;
	c->op.done = change_done;
	store_submit(s, &c->op);
	return 0;
}

int store_environment_add(struct store *s, const struct environment_info *e,
			  store_rc_fn fn, void *ctx)
{
	const struct change_op add = {
		.op.exec = add_exec, .env.to = *e, .fn = fn, .ctx = ctx};

	return change(s, &add);
}

int store_environment_set(struct store *s, const struct environment_change *c,
			  store_rc_fn fn, void *ctx)
{
	const struct change_op set = {
		.op.exec = set_exec, .env = *c, .fn = fn, .ctx = ctx};

	return change(s, &set);
}

int store_environment_delete(struct store *s, const char *id, store_rc_fn fn,
			     void *ctx)
{
	struct change_op del = {.op.exec = delete_exec, .fn = fn, .ctx = ctx};

	snprintf(del.env.to.id, sizeof(del.env.to.id), "%s", id);
	return change(s, &del);
}

int store_graph_set(struct store *s, const struct graph_change *c,
		    store_rc_fn fn, void *ctx)
{
	const struct change_op set = {
		.op.exec = graph_exec, .graph = *c, .fn = fn, .ctx = ctx};

	return change(s, &set);
}

/* ---- all of it ------------------------------------------------------------
 */

struct load_op {
	struct store_op op;
	bool with_all_graphs;
	struct environment_info *environments; /* owned */
	struct graph_info *graphs;	       /* owned */
	size_t n_environments, n_graphs, environments_cap, graphs_cap;
	store_realm_fn fn;
	void *ctx;
};

static int load_environments(struct db *db, struct load_op *l)
{
	struct query q = query(db, "SELECT id, plan, is_enabled, created_ms,"
				   " environment_places, graph_places FROM"
				   " environment ORDER BY id");
	int rc;

	while ((rc = q_row(&q)) > 0) {
		struct environment_info *e =
			list_grown(l->environments, l->n_environments,
				   &l->environments_cap, sizeof(*e));

		if (!e) {
			q_end(&q);
			return -ENOMEM;
		}
		l->environments = e;
		e += l->n_environments++;
		*e = (struct environment_info){
			.plan = q_int_at(&q, 1) == PLAN_FULL ? PLAN_FULL
							     : PLAN_FREE,
			.is_enabled = q_int_at(&q, 2),
			.created_ms = q_int_at(&q, 3),
			.places = (uint32_t)q_int_at(&q, 4),
			.graph_places = (uint32_t)q_int_at(&q, 5),
		};
		snprintf(e->id, sizeof(e->id), "%s", q_text_at(&q, 0));
	}
	return rc;
}

static int load_graphs(struct db *db, struct load_op *l)
{
	struct query q = query(db, "SELECT environment, name, places, epoch,"
				   " created_ms FROM graph WHERE ?1 OR"
				   " places > 0 OR epoch > 1"
				   " ORDER BY environment, name");
	int rc;

	q_int(&q, l->with_all_graphs);
	while ((rc = q_row(&q)) > 0) {
		struct graph_info *g = list_grown(l->graphs, l->n_graphs,
						  &l->graphs_cap, sizeof(*g));

		if (!g) {
			q_end(&q);
			return -ENOMEM;
		}
		l->graphs = g;
		g += l->n_graphs++;
		*g = (struct graph_info){
			.places = (uint32_t)q_int_at(&q, 2),
			.epoch = (uint64_t)q_int_at(&q, 3),
			.created_ms = q_int_at(&q, 4),
		};
		snprintf(g->environment, sizeof(g->environment), "%s",
			 q_text_at(&q, 0));
		snprintf(g->name, sizeof(g->name), "%s", q_text_at(&q, 1));
	}
	return rc;
}

static int load_exec(struct db *db, struct store_op *op)
{
	struct load_op *l = (struct load_op *)op;
	int rc = load_environments(db, l);

	return rc ? rc : load_graphs(db, l);
}

static void load_done(struct store_op *op)
{
	struct load_op *l = (struct load_op *)op;
	const struct realm_rows rows = {l->environments, l->graphs,
					l->n_environments, l->n_graphs};

	l->fn(l->ctx, op->rc, &rows);
	free(l->environments);
	free(l->graphs);
	free(l);
}

int store_realm_load(struct store *s, bool with_all_graphs, store_realm_fn fn,
		     void *ctx)
{
	struct load_op *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->op.exec = load_exec;
	l->op.done = load_done;
	l->op.is_read = true;
	l->with_all_graphs = with_all_graphs;
	l->fn = fn;
	l->ctx = ctx;
	store_submit(s, &l->op);
	return 0;
}
