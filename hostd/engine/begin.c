/*
 * Idempotency and the first record of a sandbox, of a command, or of both.
 *
 * Calls with one key meet in memory first: from the moment one is taken up
 * until its last state is written it is found by its key, and a second call
 * joins it with a wait of its own.  So of eight calls at once one starts.
 * Older keys are in the database, and store_run_begin looks for the key in the
 * same transaction that writes the first record.
 *
 *   admitted      store_run_begin: key and records are durable, or the key was
 *                 there and the call is answered from its records
 *   not admitted  store_key_find first: a key that is known answers with its
 *                 record however full the host is.  Unknown: admission is
 *                 asked once more (those before this one in the store's queue
 *                 may have given their places back), then the call is refused
 *                 and the key is not burnt.  The same of what cannot begin
 *                 for another reason (is_refused, fill_check).
 */
#include "../clock.h"
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include "state.h"
#include <errno.h>
#include <stdio.h>

/* The store has it: neither the box nor the command goes away meanwhile. */
static void hold(struct begin *g)
{
	g->box->n_pending++;
	if (g->cmd)
		g->cmd->n_pending++;
	engine_op_begin(g->box->e);
}

static void let_go(struct begin *g)
{
	struct engine *e = g->box->e;

	g->box->n_pending--;
	if (g->cmd)
		g->cmd->n_pending--;
	box_maybe_free(g->box);
	engine_op_end(e);
}

/* Nothing was written.  is_name_free: nor is the sandbox's id in use. */
static void room_give_back(struct begin *g, bool is_name_free)
{
	if (!g->makes_box)
		return;
	g->box->holds_place = false;
	pool_release(g->box, is_name_free);
}

static void give_up(struct begin *g, const struct err *err)
{
	room_give_back(g, false);
	begin_refuse_all(g, err);
	g->key[0] = 0; /* nobody joins it any more */
	box_maybe_free(g->box);
}

static void give_up_store(struct begin *g, int rc)
{
	const char *id = g->cmd ? g->cmd->rec.id : g->box->rec.id;
	struct err err = {0};

	if (rc == -ENOSPC) {
		err_set(&err, ERR_CAPACITY, NULL,
			"The daemon's disk is full; nothing was started.");
		err.retry_after_s = ENGINE_RETRY_DISK_S;
	} else {
		store_error(&err, ERR_INTERNAL, g->cmd ? "command" : "sandbox",
			    id, rc);
	}
	give_up(g, &err);
}

void key_conflict(struct err *err, const char *key, const char *graph)
{
	err_set(err, ERR_KEY_CONFLICT, "Idempotency-Key",
		"The key \"%.128s\" was used with another request in graph %s: "
		"send the same request, or use another key.",
		key, graph);
}

/* ---- the key is in the database: its records are the answer ------------- */

static void found_read(struct begin *g, int rc, struct sandbox_rec *sbx,
		       struct command_rec *cmd)
{
	if (rc)
		give_up_store(g, rc == -ENOENT ? -EIO : rc);
	else
		begin_answer_all(g, sbx, cmd);
	g->key[0] = 0;
	let_go(g);
}

static void on_found_run(void *ctx, int rc, struct sandbox_rec *sbx,
			 struct command_rec *cmd)
{
	found_read(ctx, rc, sbx, cmd);
}

static void on_found_sandbox(void *ctx, int rc, struct sandbox_rec *sbx)
{
	found_read(ctx, rc, sbx, NULL);
}

static void answer_found(struct begin *g, const struct store_found *f)
{
	const struct sandbox_rec *s = &g->box->rec;
	struct store *store = g->box->e->store;
	struct err err = {0};
	int rc;

	room_give_back(g, true);
	if (!f->is_same_request) {
		key_conflict(&err, g->key, s->graph);
		give_up(g, &err);
		return;
	}
	rc = *f->command ? store_run_get(store, s->environment, s->graph,
					 f->command, true, on_found_run, g)
			 : store_sandbox_get(store, s->environment, s->graph,
					     f->sandbox, on_found_sandbox, g);
	if (rc)
		give_up_store(g, rc);
	else
		hold(g);
}

/* ---- the first record --------------------------------------------------- */

static void begun(struct begin *g)
{
	struct box *b = g->box;
	struct cmd *c = g->cmd;
	struct engine *e = b->e;

	if (c) {
		e->n_started++;
		c->is_durable = true;
		c->times.durable = clock_mono_us();
		c->told = c->rec;
	}
	if (g->makes_box) {
		b->is_durable = true;
		b->told = b->rec;
	}
	if (e->is_ending)
		box_end(b, END_DAEMON_RESTART, "hutchd was stopped", true);
	else if (g->makes_box)
		box_start_vm(b);
	else
		box_give(b);
	box_wake(b);
}

static void budget_spent(struct begin *g, const struct store_found *f)
{
	const struct budget_row *b = &f->spent;
	int64_t left_ms = f->retry_at_ms - clock_wall_ms();
	struct err err;

	room_give_back(g, true);
	err_set(&err, ERR_BUDGET, NULL,
		"The budget of %s%s is spent: %u runs in %lld s.",
		*b->workflow ? "workflow " : "environment ",
		*b->workflow ? b->workflow : b->environment, b->runs,
		(long long)b->window_ms / 1000);
	err.retry_at_ms = f->retry_at_ms;
	err.retry_after_s = left_ms > 0 ? (int)((left_ms + 999) / 1000) : 1;
	give_up(g, &err);
}

static void on_begun(void *ctx, int rc, const struct store_found *f)
{
	struct begin *g = ctx;

	fault_point(FAULT_BEGIN_WRITTEN);
	if (rc == -EDQUOT)
		budget_spent(g, f);
	else if (rc)
		give_up_store(g, rc);
	else if (f->is_found)
		answer_found(g, f);
	else
		begun(g);
	let_go(g);
}

struct store_begin begin_in_store(const struct begin *g)
{
	struct store_begin b = {
		.environment = g->box->rec.environment,
		.graph = g->box->rec.graph,
		.operation = g->operation,
		.key = g->key,
	};

	memcpy(b.request_hash, g->request_hash, HASH_BYTES);
	return b;
}

static void write_first(struct begin *g)
{
	struct store_begin sb = begin_in_store(g);
	int rc;

	fault_point(FAULT_BEGIN_WRITE);
	rc = store_run_begin(g->box->e->store, &sb, &g->box->rec,
			     g->cmd ? &g->cmd->rec : NULL, on_begun, g);
	if (rc)
		give_up_store(g, rc);
	else
		hold(g);
}

static int begin_admit(struct begin *g)
{
	if (g->is_refused || (g->makes_box && fill_check(g->box, &g->refusal)))
		return -1;
	return g->makes_box ? admit(g->box->e, g->box, &g->refusal)
			    : admit_command(g->cmd, &g->refusal);
}

static void on_looked_up(void *ctx, int rc, const struct store_found *f)
{
	struct begin *g = ctx;

	if (rc)
		give_up_store(g, rc);
	else if (f->is_found)
		answer_found(g, f);
	else if (!g->box->e->is_ending && !begin_admit(g))
		write_first(g);
	else
		give_up(g, &g->refusal);
	let_go(g);
}

static void look_up(struct begin *g)
{
	struct store_begin sb = begin_in_store(g);
	int rc = store_key_find(g->box->e->store, &sb, on_looked_up, g);

	if (rc)
		give_up_store(g, rc);
	else
		hold(g);
}

void begin_start(struct begin *g)
{
	if (begin_admit(g))
		look_up(g);
	else
		write_first(g);
}
