/*
 * Table `grant`: what steps of workflows were allowed, by the hash of the
 * token.
 *
 * Rows live a minute or two; each new one takes some that are over along.
 */
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define FORGOTTEN_MAX 16 /* by each new one */

/* ---- add ------------------------------------------------------------------
 */

struct add_op {
	struct store_op op;
	struct grant_row row;
	store_rc_fn fn;
	void *ctx;
};

static int forget(struct db *db, int64_t now_ms)
{
	struct query q = query(db, "DELETE FROM \"grant\" WHERE hash IN (SELECT"
				   " hash FROM \"grant\" WHERE expires_ms < ?1"
				   " ORDER BY expires_ms LIMIT ?2)");

	q_int(&q, now_ms - GRANT_REMEMBERED_MS);
	q_int(&q, FORGOTTEN_MAX);
	return q_run(&q);
}

static int add_exec(struct db *db, struct store_op *op)
{
	const struct grant_row *g = &((struct add_op *)op)->row;
	struct query q;
	int rc = forget(db, g->issued_ms);

	if (rc)
		return rc;
	q = query(db,
		  "INSERT INTO \"grant\"(hash, environment, graph, workflow,"
		  " run, step, turn, attempt, operation, epoch, issued_ms,"
		  " expires_ms) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,"
		  " ?10, ?11, ?12)");
	q_blob(&q, g->hash, HASH_BYTES);
	q_text(&q, g->environment);
	q_text(&q, g->graph);
	q_text(&q, g->origin.workflow);
	q_text(&q, g->origin.run);
	q_text(&q, g->origin.step);
	q_int(&q, (int64_t)g->origin.turn);
	q_int(&q, g->origin.attempt);
	q_text(&q, g->operation);
	q_int(&q, (int64_t)g->epoch);
	q_int(&q, g->issued_ms);
	q_int(&q, g->expires_ms);
	return q_run(&q);
}

static void add_done(struct store_op *op)
{
	struct add_op *a = (struct add_op *)op;

	a->fn(a->ctx, op->rc);
	free(a);
}

int store_grant_add(struct store *s, const struct grant_row *g, store_rc_fn fn,
		    void *ctx)
{
	struct add_op *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->op.exec = add_exec;
	a->op.done = add_done;
	a->row = *g;
	a->fn = fn;
	a->ctx = ctx;
	store_submit(s, &a->op);
	return 0;
}

/* ---- load -----------------------------------------------------------------
 */

struct load_op {
	struct store_op op;
	int64_t now_ms;
	struct grant_row *rows; /* owned */
	size_t n, cap;
	store_grants_fn fn;
	void *ctx;
};

static int row_read(const struct query *q, struct grant_row *g)
{
	const void *hash;
	size_t len;

	memset(g, 0, sizeof(*g));
	hash = q_blob_at(q, 0, &len);
	if (len != HASH_BYTES)
		return -1;
	memcpy(g->hash, hash, HASH_BYTES);
	snprintf(g->environment, sizeof(g->environment), "%s", q_text_at(q, 1));
	snprintf(g->graph, sizeof(g->graph), "%s", q_text_at(q, 2));
	snprintf(g->origin.workflow, sizeof(g->origin.workflow), "%s",
		 q_text_at(q, 3));
	snprintf(g->origin.run, sizeof(g->origin.run), "%s", q_text_at(q, 4));
	snprintf(g->origin.step, sizeof(g->origin.step), "%s", q_text_at(q, 5));
	g->origin.turn = (uint64_t)q_int_at(q, 6);
	g->origin.attempt = (uint32_t)q_int_at(q, 7);
	snprintf(g->operation, sizeof(g->operation), "%s", q_text_at(q, 8));
	g->epoch = (uint64_t)q_int_at(q, 9);
	g->issued_ms = q_int_at(q, 10);
	g->expires_ms = q_int_at(q, 11);
	return 0;
}

static int load_exec(struct db *db, struct store_op *op)
{
	struct load_op *l = (struct load_op *)op;
	struct query q = query(
		db, "SELECT hash, environment, graph, workflow, run, step,"
		    " turn, attempt, operation, epoch, issued_ms, expires_ms"
		    " FROM \"grant\" WHERE expires_ms >= ?1 ORDER BY"
		    " issued_ms");
	int rc;

	q_int(&q, l->now_ms - GRANT_REMEMBERED_MS);
	while ((rc = q_row(&q)) > 0) {
		struct grant_row *more =
			list_grown(l->rows, l->n, &l->cap, sizeof(*more));

		if (!more) {
			q_end(&q);
			return -ENOMEM;
		}
		l->rows = more;
		if (!row_read(&q, &l->rows[l->n]))
			l->n++;
	}
	return rc;
}

static void load_done(struct store_op *op)
{
	struct load_op *l = (struct load_op *)op;

	l->fn(l->ctx, op->rc, l->rows, op->rc ? 0 : l->n);
	free(l->rows);
	free(l);
}

int store_grant_load(struct store *s, int64_t now_ms, store_grants_fn fn,
		     void *ctx)
{
	struct load_op *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->op.exec = load_exec;
	l->op.done = load_done;
	l->op.is_read = true;
	l->now_ms = now_ms;
	l->fn = fn;
	l->ctx = ctx;
	store_submit(s, &l->op);
	return 0;
}
