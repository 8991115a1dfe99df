/*
 * Reading, cancelling, deleting, logs: calls on what exists.
 *
 * What is in memory answers from there, with what is on disk; every
 * other one is over and is read from the store.
 */
#include "engine_priv.h"
#include <errno.h>
#include <stdlib.h>

/* ---- get
 * ----------------------------------------------------------------------------
 */

int engine_sandbox_get(struct engine *e, const struct caller *who,
		       const char *id, engine_sandbox_fn fn, void *ctx)
{
	struct waiter *w = waiter_new(e, NULL, fn, ctx);
	struct box *b = box_by_id(e, who, id);

	if (!w)
		return -ENOMEM;
	if (b)
		waiter_join(w, b, NULL, WAIT_NOTHING, 0);
	else
		waiter_read_sandbox(w, who->environment, who->graph, id);
	return 0;
}

int engine_command_get(struct engine *e, const struct caller *who,
		       const char *id, uint32_t wait_ms, engine_run_fn fn,
		       void *ctx, struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, fn, NULL, ctx);
	struct cmd *c = cmd_by_id(e, who, id);
	struct err err;

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (wait_ms > ENGINE_WAIT_MS_MAX) {
		err_set(&err, ERR_INVALID_REQUEST, "wait_ms",
			"wait_ms is %u; it must be 0 to %d.", wait_ms,
			ENGINE_WAIT_MS_MAX);
		waiter_refuse(w, &err);
	} else if (c) {
		waiter_join(w, c->box, c, WAIT_COMMAND_END, wait_ms);
	} else {
		waiter_read_command(w, who->environment, who->graph, id);
	}
	return 0;
}

/* ---- cancel, delete
 * ------------------------------------------------------------------ */

int engine_command_cancel(struct engine *e, const struct caller *who,
			  const char *id, engine_run_fn fn, void *ctx)
{
	struct waiter *w = waiter_new(e, fn, NULL, ctx);
	struct cmd *c = cmd_by_id(e, who, id);

	if (!w)
		return -ENOMEM;
	if (!c) {
		waiter_read_command(w, who->environment, who->graph, id);
		return 0;
	}
	waiter_join(w, c->box, c, WAIT_COMMAND_END, ENGINE_CANCEL_WAIT_MS);
	cmd_cancel(c);
	return 0;
}

int engine_sandbox_delete(struct engine *e, const struct caller *who,
			  const char *id, engine_sandbox_fn fn, void *ctx)
{
	struct waiter *w = waiter_new(e, NULL, fn, ctx);
	struct box *b = box_by_id(e, who, id);

	if (!w)
		return -ENOMEM;
	if (!b) {
		waiter_read_sandbox(w, who->environment, who->graph, id);
		return 0;
	}
	waiter_join(w, b, NULL, WAIT_SANDBOX_DESTROYING, ENGINE_CANCEL_WAIT_MS);
	if (b->rec.status < SBX_DESTROYING) {
		box_end(b, END_CANCELLED, "the sandbox was deleted", false);
		box_vm_end(b);
	}
	return 0;
}

/* ---- lists
 * ---------------------------------------------------------------------------
 */

struct list_ask {
	struct engine *e;
	engine_sandboxes_fn sandboxes_fn;
	engine_commands_fn commands_fn;
	void *ctx;
};

void list_error(struct err *err, int rc)
{
	if (rc == -EINVAL)
		err_set(err, ERR_INVALID_REQUEST, "cursor",
			"cursor names no record of this list.");
	else
		store_error(err, ERR_INTERNAL, "list", "", rc);
}

static void on_sandboxes(void *ctx, int rc, struct sandbox_rec *r, size_t n,
			 bool has_more)
{
	struct list_ask a = *(struct list_ask *)ctx;
	struct err err;

	free(ctx);
	if (rc)
		list_error(&err, rc);
	a.sandboxes_fn(a.ctx, rc ? &err : NULL, r, n, has_more);
	engine_op_end(a.e);
}

static void on_commands(void *ctx, int rc, struct command_rec *r, size_t n,
			bool has_more)
{
	struct list_ask a = *(struct list_ask *)ctx;
	struct err err;

	free(ctx);
	if (rc)
		list_error(&err, rc);
	a.commands_fn(a.ctx, rc ? &err : NULL, r, n, has_more);
	engine_op_end(a.e);
}

struct store_page page_of(const struct caller *who, const struct store_page *p)
{
	struct store_page mine = *p;

	mine.environment = who->environment;
	mine.graph = who->graph;
	return mine;
}

int engine_sandbox_list(struct engine *e, const struct caller *who,
			const struct store_page *p, engine_sandboxes_fn fn,
			void *ctx)
{
	struct store_page mine = page_of(who, p);
	struct list_ask *a = calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return -ENOMEM;
	*a = (struct list_ask){.e = e, .sandboxes_fn = fn, .ctx = ctx};
	rc = store_sandbox_list(e->store, &mine, on_sandboxes, a);
	if (rc)
		free(a);
	else
		engine_op_begin(e);
	return rc;
}

int engine_command_list(struct engine *e, const struct caller *who,
			const struct store_page *p, engine_commands_fn fn,
			void *ctx)
{
	struct store_page mine = page_of(who, p);
	struct list_ask *a = calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return -ENOMEM;
	*a = (struct list_ask){.e = e, .commands_fn = fn, .ctx = ctx};
	rc = store_command_list(e->store, &mine, on_commands, a);
	if (rc)
		free(a);
	else
		engine_op_begin(e);
	return rc;
}

/* ---- logs
 * ----------------------------------------------------------------------------
 */

struct log_ask {
	struct engine *e;
	int stream;
	uint64_t offset;
	size_t limit;
	engine_log_fn fn;
	void *ctx;
};

static void log_answer(const struct log_ask *a, const struct err *err,
		       const struct command_rec *cmd)
{
	const struct output_rec *o;
	struct log_slice s;
	struct err expired;

	if (err) {
		a->fn(a->ctx, err, NULL);
		return;
	}
	o = &cmd->out[a->stream];
	if (o->is_expired && o->total) {
		err_set(&expired, ERR_OUTPUT_EXPIRED, NULL, NULL);
		a->fn(a->ctx, &expired, NULL);
		return;
	}
	s = log_slice_of(o, command_status_is_final(cmd->status), a->offset,
			 a->limit);
	a->fn(a->ctx, NULL, &s);
}

static void on_log_command(void *ctx, int rc, struct command_rec *cmd)
{
	struct log_ask a = *(struct log_ask *)ctx;
	struct err err = {0};

	free(ctx);
	if (rc)
		store_error(&err, ERR_COMMAND_NOT_FOUND, "command", "", rc);
	log_answer(&a, rc ? &err : NULL, cmd);
	engine_op_end(a.e);
}

static void on_log_live(void *ctx, const struct err *err,
			const struct sandbox_rec *sbx,
			const struct command_rec *cmd)
{
	struct log_ask a = *(struct log_ask *)ctx;

	(void)sbx;
	free(ctx);
	log_answer(&a, err, cmd);
}

int engine_log_read(struct engine *e, const struct caller *who,
		    const char *command, int stream, uint64_t offset,
		    size_t limit, engine_log_fn fn, void *ctx)
{
	struct cmd *c = cmd_by_id(e, who, command);
	struct log_ask *a;
	struct waiter *w;
	int rc;

	if (stream < 0 || stream > 1)
		return -EINVAL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	*a = (struct log_ask){e, stream, offset, limit, fn, ctx};
	if (c) {
		w = waiter_new(e, on_log_live, NULL, a);
		rc = w ? 0 : -ENOMEM;
		if (w)
			waiter_join(w, c->box, c, WAIT_NOTHING, 0);
	} else {
		rc = store_command_get(e->store, who->environment, who->graph,
				       command, true, on_log_command, a);
		if (!rc)
			engine_op_begin(e);
	}
	if (rc)
		free(a);
	return rc;
}
