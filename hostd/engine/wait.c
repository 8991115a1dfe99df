/*
 * Waiters: each call that will be answered later.
 *
 * A waiter hangs on a run until the run's state on disk says what it waits
 * for, or its time is over; or it reads from the store; or it is refused.  Its
 * function is called exactly once, never from within the call that made it,
 * unless the client went away (is_cancelled).  A callback may call the engine
 * again, also to cancel other waiters: lists are searched anew after each.
 */
#include "engine_priv.h"
#include <errno.h>
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
	w->run = NULL;
	w->is_cancelled = true;
}

static void waiter_answer(struct waiter *w, const struct err *err,
			  const struct sandbox_rec *sbx,
			  const struct command_rec *cmd)
{
	struct run *r = w->run;
	bool is_silent = w->is_cancelled;

	waiter_leave(w);
	w->is_answering = true; /* err may be its own */
	if (r)
		r->n_pending++; /* the records are the run's */
	if (is_silent)
		;
	else if (w->run_fn)
		w->run_fn(w->ctx, err, sbx, cmd);
	else
		w->sandbox_fn(w->ctx, err, sbx);
	if (r)
		r->n_pending--;
	w->is_answering = false;
	waiter_free(w);
}

static bool is_ready(const struct waiter *w)
{
	const struct run *r = w->run;

	if (!r->is_durable)
		return false;
	if (w->is_due)
		return true;
	switch (w->what) {
	case WAIT_COMMAND_END:
		return command_status_is_final(r->told_cmd.status);
	case WAIT_SANDBOX_DESTROYING:
		return r->told_sbx.status >= SBX_DESTROYING;
	case WAIT_NOTHING:
		return true;
	}
	return true;
}

static void answer_from_run(struct waiter *w)
{
	struct command_rec cmd = run_told_command(w->run);

	waiter_answer(w, NULL, &w->run->told_sbx, &cmd);
}

void run_wake(struct run *r)
{
	struct list *n;

	r->n_pending++;
again:
	for (n = r->waiters.next; n != &r->waiters; n = n->next) {
		struct waiter *w = container_of(n, struct waiter, node);

		if (w->is_posted || !is_ready(w))
			continue;
		answer_from_run(w);
		goto again;
	}
	r->n_pending--;
}

void run_answer_all(struct run *r, const struct sandbox_rec *sbx,
		    const struct command_rec *cmd)
{
	r->n_pending++;
	while (!list_is_empty(&r->waiters))
		waiter_answer(
			container_of(r->waiters.next, struct waiter, node),
			NULL, sbx, cmd);
	r->n_pending--;
}

/* Later: a run may be given up inside the call that asked for it. */
void run_refuse_all(struct run *r, const struct err *err)
{
	while (!list_is_empty(&r->waiters)) {
		struct waiter *w =
			container_of(r->waiters.next, struct waiter, node);

		list_remove(&w->node);
		w->run = NULL;
		waiter_refuse(w, err);
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
	struct run *r = w->run;

	w->is_posted = false;
	if (w->is_cancelled) {
		waiter_free(w);
		return;
	}
	if (!r) {
		waiter_answer(w, &w->err, NULL, NULL);
		return;
	}
	if (is_ready(w))
		answer_from_run(w);
	run_maybe_free(r);
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
	struct run *r = w->run;

	w->is_due = true;
	if (!r || w->is_posted || !is_ready(w))
		return;
	answer_from_run(w);
	run_maybe_free(r);
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

void waiter_join(struct waiter *w, struct run *r, enum wait_for what,
		 uint32_t wait_ms)
{
	w->run = r;
	w->what = what;
	list_append(&r->waiters, &w->node);
	/* Without a timer there would be no answer in time; at once is the
	 * better mistake. */
	if (!wait_ms || loop_timer_set(w->loop, &w->timer, wait_ms))
		w->is_due = true;
	if (is_ready(w))
		waiter_post(w);
}

void engine_cancel_wait(struct engine *e, struct waiter *w)
{
	struct run *r = w->run;

	(void)e;
	waiter_leave(w);
	waiter_free(w);
	if (r)
		run_maybe_free(r);
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
