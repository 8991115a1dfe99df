/*
 * Table `budget`: how many runs an environment, or one of its workflows, may
 * begin in a window of time.
 *
 * Counted in the transaction that begins the run: a run that is there was
 * counted, and one that was refused, or found by its key, was not.  A window
 * begins with its first run and ends window_ms later; the next run begins the
 * next.
 */
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- counting -------------------------------------------------------------
 */

static void row_read(const struct query *q, struct budget_row *b)
{
	memset(b, 0, sizeof(*b));
	snprintf(b->environment, sizeof(b->environment), "%s", q_text_at(q, 0));
	snprintf(b->workflow, sizeof(b->workflow), "%s", q_text_at(q, 1));
	b->runs_max = (uint32_t)q_int_at(q, 2);
	b->window_ms = q_int_at(q, 3);
	b->began_ms = q_int_at(q, 4);
	b->runs = (uint32_t)q_int_at(q, 5);
}

#define COLUMNS "environment, workflow, runs_max, window_ms, began_ms, runs"

/* One run at now_ms; -EDQUOT. */
static int count(struct budget_row *b, int64_t now_ms)
{
	/* A clock that was set back begins a window, too. */
	if (!b->began_ms || now_ms >= b->began_ms + b->window_ms ||
	    now_ms < b->began_ms) {
		b->began_ms = now_ms;
		b->runs = 0;
	}
	if (b->runs >= b->runs_max)
		return -EDQUOT;
	b->runs++;
	return 0;
}

static int row_update(struct db *db, const struct budget_row *b)
{
	struct query q = query(db, "UPDATE budget SET began_ms = ?3, runs = ?4"
				   " WHERE environment = ?1 AND workflow = ?2");

	q_text(&q, b->environment);
	q_text(&q, b->workflow);
	q_int(&q, b->began_ms);
	q_int(&q, b->runs);
	return q_run(&q);
}

int budget_take(struct db *db, const char *environment, const char *workflow,
		int64_t now_ms, struct budget_row *ret_spent)
{
	struct query q = query(db, "SELECT " COLUMNS " FROM budget WHERE"
				   " environment = ?1 AND workflow IN ('', ?2)"
				   " ORDER BY workflow");
	struct budget_row rows[2];
	int n = 0, rc;

	q_text(&q, environment);
	q_text(&q, workflow);
	while ((rc = q_row(&q)) > 0 && n < 2)
		row_read(&q, &rows[n++]);
	if (rc > 0)
		q_end(&q);
	if (rc < 0)
		return rc;
	for (int i = 0; i < n; i++) {
		rc = count(&rows[i], now_ms);
		if (rc) {
			*ret_spent = rows[i];
			return rc;
		}
	}
	for (int i = 0; !rc && i < n; i++)
		rc = row_update(db, &rows[i]);
	return rc;
}

/* ---- set, delete ----------------------------------------------------------
 */

struct change_op {
	struct store_op op;
	struct budget_row row;
	store_rc_fn fn;
	void *ctx;
};

static int set_exec(struct db *db, struct store_op *op)
{
	const struct budget_row *b = &((struct change_op *)op)->row;
	struct query q = query(
		db, "INSERT INTO budget(" COLUMNS ")"
		    " VALUES(?1, ?2, ?3, ?4, 0, 0) ON CONFLICT DO UPDATE SET"
		    " runs_max = ?3, window_ms = ?4");

	q_text(&q, b->environment);
	q_text(&q, b->workflow);
	q_int(&q, b->runs_max);
	q_int(&q, b->window_ms);
	return q_run(&q);
}

static int delete_exec(struct db *db, struct store_op *op)
{
	const struct budget_row *b = &((struct change_op *)op)->row;
	struct query q = query(db, "DELETE FROM budget WHERE environment = ?1"
				   " AND workflow = ?2");
	int rc;

	q_text(&q, b->environment);
	q_text(&q, b->workflow);
	rc = q_run(&q);
	return rc || sqlite3_changes(db->h) ? rc : -ENOENT;
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

int store_budget_set(struct store *s, const struct budget_row *b,
		     store_rc_fn fn, void *ctx)
{
	const struct change_op set = {
		.op.exec = set_exec, .row = *b, .fn = fn, .ctx = ctx};

	return change(s, &set);
}

int store_budget_delete(struct store *s, const char *environment,
			const char *workflow, store_rc_fn fn, void *ctx)
{
	struct change_op del = {.op.exec = delete_exec, .fn = fn, .ctx = ctx};

	snprintf(del.row.environment, sizeof(del.row.environment), "%s",
		 environment);
	snprintf(del.row.workflow, sizeof(del.row.workflow), "%s", workflow);
	return change(s, &del);
}

/* ---- list -----------------------------------------------------------------
 */

struct load_op {
	struct store_op op;
	char environment[ID_BYTES_MAX]; /* "" = all */
	struct budget_row *rows;	/* owned */
	size_t n, cap;
	store_budgets_fn fn;
	void *ctx;
};

static int load_exec(struct db *db, struct store_op *op)
{
	struct load_op *l = (struct load_op *)op;
	struct query q = query(db, "SELECT " COLUMNS " FROM budget WHERE"
				   " ?1 IN ('', environment) ORDER BY"
				   " environment, workflow");
	int rc;

	q_text(&q, l->environment);
	while ((rc = q_row(&q)) > 0) {
		struct budget_row *more =
			list_grown(l->rows, l->n, &l->cap, sizeof(*more));

		if (!more) {
			q_end(&q);
			return -ENOMEM;
		}
		l->rows = more;
		row_read(&q, &l->rows[l->n++]);
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

int store_budget_list(struct store *s, const char *environment,
		      store_budgets_fn fn, void *ctx)
{
	struct load_op *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->op.exec = load_exec;
	l->op.done = load_done;
	l->op.is_read = true;
	snprintf(l->environment, sizeof(l->environment), "%s",
		 environment ? environment : "");
	l->fn = fn;
	l->ctx = ctx;
	store_submit(s, &l->op);
	return 0;
}
