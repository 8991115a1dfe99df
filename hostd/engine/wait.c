/*
 * Waiters: each call that will be answered later.
 *
 * A waiter hangs on a sandbox, or on a command in it, until the state on disk
 * says what it waits for, or its time is over; or it reads from the store; or
 * it is refused.  Its function is called exactly once, never from within the
 * call that made it, unless the client went away (is_cancelled).  A callback
 * may call the engine again, also to cancel other waiters: lists are searched
 * anew after each.
 */
#include "engine_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void waiter_free(struct waiter *w)
{
	/* Whoever is on the way back here frees it. */
	if (w->is_posted || w->is_reading || w->is_answering)
		return;
	free(w);
}

/* Out of all lists: nobody finds it any more. */
static void waiter_leave(struct waiter *w)
{
	loop_timer_stop(w->loop, &w->timer);
	list_remove(&w->node);
	list_remove(&w->all);
	if (w->cmd)
		w->cmd->n_waiters--;
	w->box = NULL;
	w->cmd = NULL;
	w->is_cancelled = true;
}

static void waiter_answer(struct waiter *w, const struct err *err,
			  const struct sandbox_rec *sbx,
			  const struct command_rec *cmd)
{
	struct box *b = w->box;
	struct cmd *c = w->cmd;
	bool is_silent = w->is_cancelled;

	waiter_leave(w);
	w->is_answering = true; /* err may be its own */
	/* The records are theirs. */
	if (b)
		b->n_pending++;
	if (c)
		c->n_pending++;
	if (is_silent)
		;
	else if (w->run_fn)
		w->run_fn(w->ctx, err, sbx, cmd);
	else
		w->sandbox_fn(w->ctx, err, sbx);
	if (b)
		b->n_pending--;
	if (c)
		c->n_pending--;
	w->is_answering = false;
	waiter_free(w);
}

static bool is_ready(const struct waiter *w)
{
	const struct box *b = w->box;
	const struct cmd *c = w->cmd;

	if (!(c ? c->is_durable : b->is_durable))
		return false;
	if (w->is_due)
		return true;
	if (w->is_refused)
		return b->told.status == b->rec.status;
	switch (w->what) {
	case WAIT_COMMAND_END:
		return command_status_is_final(c->told.status);
	case WAIT_SANDBOX_STARTED:
		return b->told.status != SBX_STARTING && !b->is_resuming;
	case WAIT_SANDBOX_STOPPED:
		return b->told.status >= SBX_STOPPED;
	case WAIT_SANDBOX_DESTROYING:
		return b->told.status >= SBX_DESTROYING;
	case WAIT_SANDBOX_UPDATED:
		return b->n_updates_told >= w->update;
	case WAIT_NOTHING:
		return true;
	}
	return true;
}

/* What was changed is not on disk yet, and its time is over. */
static bool is_late(struct waiter *w)
{
	if (w->what != WAIT_SANDBOX_UPDATED ||
	    w->box->n_updates_told >= w->update)
		return false;
	err_set(&w->err, ERR_UNAVAILABLE, NULL,
		"The update of %s cannot be written down now; send it again.",
		w->box->rec.id);
	return true;
}

static void answer_from_memory(struct waiter *w)
{
	struct command_rec rec;

	if (w->is_refused || is_late(w)) {
		waiter_answer(w, &w->err, NULL, NULL);
		return;
	}
	if (w->cmd)
		rec = cmd_told(w->cmd);
	waiter_answer(w, NULL, &w->box->told, w->cmd ? &rec : NULL);
}

void box_wake(struct box *b)
{
	struct list *n;

	b->n_pending++;
again:
	for (n = b->waiters.next; n != &b->waiters; n = n->next) {
		struct waiter *w = container_of(n, struct waiter, node);

		if (w->is_posted || !is_ready(w))
			continue;
		answer_from_memory(w);
		goto again;
	}
	b->n_pending--;
}

/* One that waits for this first record; NULL when there is none left. */
static struct waiter *waiter_of(const struct begin *g)
{
	struct box *b = g->box;

	for (struct list *n = b->waiters.next; n != &b->waiters; n = n->next) {
		struct waiter *w = container_of(n, struct waiter, node);

		if (g->makes_box || w->cmd == g->cmd)
			return w;
	}
	return NULL;
}

void begin_answer_all(struct begin *g, const struct sandbox_rec *sbx,
		      const struct command_rec *cmd)
{
	struct waiter *w;

	g->box->n_pending++;
	while ((w = waiter_of(g)))
		waiter_answer(w, NULL, sbx, cmd);
	g->box->n_pending--;
}

/* Later: it may be given up inside the call that asked for it. */
static void refuse_later(struct waiter *w, const struct err *err)
{
	list_remove(&w->node);
	if (w->cmd)
		w->cmd->n_waiters--;
	w->box = NULL;
	w->cmd = NULL;
	waiter_refuse(w, err);
}

void begin_refuse_all(struct begin *g, const struct err *err)
{
	struct waiter *w;

	while ((w = waiter_of(g)))
		refuse_later(w, err);
}

void box_refuse_all(struct box *b, enum wait_for what, const struct err *err)
{
	for (struct list *n = b->waiters.next; n != &b->waiters; n = n->next) {
		struct waiter *w = container_of(n, struct waiter, node);

		if (w->what != what)
			continue;
		w->err = *err;
		w->is_refused = true;
	}
}

void waiters_refuse_all(struct engine *e, const struct err *err)
{
	while (!list_is_empty(&e->waiters)) {
		struct waiter *w =
			container_of(e->waiters.next, struct waiter, all);

		waiter_answer(w, w->err.code ? &w->err : err, NULL, NULL);
	}
}

/* ---- timers and calls
 * ------------------------------------------------------------- */

static void on_call(void *arg)
{
	struct waiter *w = arg;
	struct box *b = w->box;

	w->is_posted = false;
	if (w->is_cancelled) {
		waiter_free(w);
		return;
	}
	if (!b) {
		waiter_answer(w, &w->err, NULL, NULL);
		return;
	}
	if (is_ready(w))
		answer_from_memory(w);
	box_maybe_free(b);
}

static void waiter_post(struct waiter *w)
{
	if (w->is_posted)
		return;
	w->is_posted = true;
	w->call.fn = on_call;
	w->call.arg = w;
	loop_post_call(w->loop, &w->call);
}

static void on_due(struct loop_timer *t)
{
	struct waiter *w = container_of(t, struct waiter, timer);
	struct box *b = w->box;

	w->is_due = true;
	if (!b || w->is_posted || !is_ready(w))
		return;
	answer_from_memory(w);
	box_maybe_free(b);
}

struct waiter *waiter_new(struct engine *e, engine_run_fn run_fn,
			  engine_sandbox_fn sandbox_fn, void *ctx)
{
	struct waiter *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	list_init(&w->node);
	list_append(&e->waiters, &w->all);
	w->e = e;
	w->loop = e->loop;
	w->run_fn = run_fn;
	w->sandbox_fn = sandbox_fn;
	w->ctx = ctx;
	w->timer.fn = on_due;
	return w;
}

void waiter_refuse(struct waiter *w, const struct err *err)
{
	w->err = *err;
	waiter_post(w);
}

void waiter_join(struct waiter *w, struct box *b, struct cmd *c,
		 enum wait_for what, uint32_t wait_ms)
{
	w->box = b;
	w->cmd = c;
	w->what = what;
	if (c)
		c->n_waiters++;
	list_append(&b->waiters, &w->node);
	/* Without a timer there would be no answer in time; at once is the
	 * better mistake. */
	if (!wait_ms || loop_timer_set(w->loop, &w->timer, wait_ms))
		w->is_due = true;
	if (is_ready(w))
		waiter_post(w);
}

void engine_cancel_wait(struct engine *e, struct waiter *w)
{
	struct box *b = w->box;

	(void)e;
	waiter_leave(w);
	waiter_free(w);
	if (b)
		box_maybe_free(b);
}

/* ---- from the store
 * ---------------------------------------------------------------- */

void store_error(struct err *err, enum err_code not_found, const char *what,
		 const char *id, int rc)
{
	if (rc == -ENOENT)
		err_set(err, not_found, what, NULL);
	else if (rc == -EBADMSG)
		err_set(err, ERR_INTERNAL, NULL,
			"The record of %s %.40s is damaged; it was set aside.",
			what, id);
	else
		err_set(err, ERR_INTERNAL, NULL,
			"The database cannot be used now: %s.", strerror(-rc));
}

static void on_run_read(void *ctx, int rc, struct sandbox_rec *sbx,
			struct command_rec *cmd)
{
	struct waiter *w = ctx;
	struct engine *e = w->e;
	struct err err = {0};

	w->is_reading = false;
	if (rc)
		store_error(&err, ERR_COMMAND_NOT_FOUND, "command", "", rc);
	waiter_answer(w, rc ? &err : NULL, sbx, cmd);
	engine_op_end(e);
}

static void on_sandbox_read(void *ctx, int rc, struct sandbox_rec *sbx)
{
	struct waiter *w = ctx;
	struct engine *e = w->e;
	struct err err = {0};

	w->is_reading = false;
	if (rc)
		store_error(&err, ERR_SANDBOX_NOT_FOUND, "sandbox", "", rc);
	waiter_answer(w, rc ? &err : NULL, sbx, NULL);
	engine_op_end(e);
}

static void reading(struct waiter *w, int rc)
{
	struct err err;

	if (!rc) {
		w->is_reading = true;
		engine_op_begin(w->e);
		return;
	}
	store_error(&err, ERR_INTERNAL, "record", "", rc);
	waiter_refuse(w, &err);
}

void waiter_read_command(struct waiter *w, const char *environment,
			 const char *graph, const char *command)
{
	reading(w, store_run_get(w->e->store, environment, graph, command, true,
				 on_run_read, w));
}

void waiter_read_sandbox(struct waiter *w, const char *environment,
			 const char *graph, const char *sandbox)
{
	reading(w, store_sandbox_get(w->e->store, environment, graph, sandbox,
				     on_sandbox_read, w));
}

/* ---- a sandbox that is not in memory ---------------------------- */

struct key_ask {
	struct waiter *w;
	struct engine *e;
	char environment[ID_BYTES_MAX], graph[GRAPH_NAME_BYTES_MAX + 1],
		sandbox[ID_BYTES_MAX], key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
};

static void on_over(void *ctx, int rc, struct sandbox_rec *sbx)
{
	struct waiter *w = ctx;
	struct engine *e = w->e;
	struct err err = {0};

	w->is_reading = false;
	if (rc)
		store_error(&err, ERR_SANDBOX_NOT_FOUND, "sandbox", "", rc);
	else
		err_not_running(&err, sbx);
	waiter_answer(w, &err, NULL, NULL);
	engine_op_end(e);
}

void waiter_refuse_over(struct waiter *w, const char *environment,
			const char *graph, const char *sandbox)
{
	reading(w, store_sandbox_get(w->e->store, environment, graph, sandbox,
				     on_over, w));
}

static void on_key(void *ctx, int rc, const struct store_found *f)
{
	struct key_ask a = *(struct key_ask *)ctx;
	struct err err = {0};

	free(ctx);
	a.w->is_reading = false;
	if (rc) {
		store_error(&err, ERR_INTERNAL, "command", "", rc);
		waiter_answer(a.w, &err, NULL, NULL);
	} else if (a.w->is_cancelled) {
		waiter_free(a.w);
	} else if (f->is_found && !f->is_same_request) {
		key_conflict(&err, a.key, a.graph);
		waiter_answer(a.w, &err, NULL, NULL);
	} else if (f->is_found) {
		waiter_read_command(a.w, a.environment, a.graph, f->command);
	} else {
		waiter_refuse_over(a.w, a.environment, a.graph, a.sandbox);
	}
	engine_op_end(a.e);
}

void waiter_read_by_key(struct waiter *w, const struct store_begin *key,
			const char *sandbox)
{
	struct key_ask *a = calloc(1, sizeof(*a));
	int rc = a ? 0 : -ENOMEM;

	if (a) {
		a->w = w;
		a->e = w->e;
		snprintf(a->environment, sizeof(a->environment), "%s",
			 key->environment);
		snprintf(a->graph, sizeof(a->graph), "%s", key->graph);
		snprintf(a->sandbox, sizeof(a->sandbox), "%s", sandbox);
		snprintf(a->key, sizeof(a->key), "%s", key->key);
		rc = store_key_find(w->e->store, key, on_key, a);
	}
	if (rc)
		free(a);
	reading(w, rc);
}
