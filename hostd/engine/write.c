/*
 * What is so becomes what is told.
 *
 * The rule of every step: the state is changed by the tables (state.h), then
 * written, and only when the write is on disk it is told (box.told, cmd.told).
 * The end of a one-call run's command and its sandbox's way to `destroying` are
 * one write; the answer goes out when that is durable, and the VM is torn down
 * after it.
 *
 * A write that fails is tried again, more and more slowly, as long as the
 * daemon lives.  The VM of a command whose end cannot be written is ended at
 * once: what it said is in memory, and its disk may be what is missing.
 */
#include "../clock.h"
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include <errno.h>
#include <stdlib.h>

struct command_rec cmd_told(const struct cmd *c)
{
	struct command_rec r = c->told;

	r.out[0] = output_view(&c->out[0]);
	r.out[1] = output_view(&c->out[1]);
	return r;
}

/* One write on its way: what it makes durable. */
struct write {
	struct box *box;
	struct cmd *cmd; /* NULL = the sandbox alone */
	bool has_end;
	uint64_t n_updates; /* of the box, in it */
	struct sandbox_rec box_rec;
	struct command_rec cmd_rec; /* borrows from the command */
};

/* A sandbox's states, before and after they are durable. */
static const struct {
	enum fault write, written;
} faults[] = {
	[SBX_STARTING] = {FAULT_WRITE_STARTING, FAULT_WRITTEN_STARTING},
	[SBX_RUNNING] = {FAULT_WRITE_RUNNING, FAULT_WRITTEN_RUNNING},
	[SBX_STOPPING] = {FAULT_WRITE_STOPPING, FAULT_WRITTEN_STOPPING},
	[SBX_STOPPED] = {FAULT_WRITE_STOPPED, FAULT_WRITTEN_STOPPED},
	[SBX_DESTROYING] = {FAULT_WRITE_DESTROYING, FAULT_WRITTEN_DESTROYING},
	[SBX_DESTROYED] = {FAULT_NONE, FAULT_WRITTEN_DESTROYED},
	[SBX_LOST] = {FAULT_NONE, FAULT_NONE},
};

static bool is_stale(const struct cmd *c)
{
	return c->is_durable && c->sent != c->rec.status;
}

static bool has_stale(const struct box *b)
{
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next)
		if (is_stale(container_of(n, struct cmd, node)))
			return true;
	return b->sent != b->rec.status;
}

static void write_failed(struct box *b, struct cmd *c, int rc)
{
	bool has_end = c && command_status_is_final(c->rec.status);

	if (!b->retry_ms)
		b->retry_ms = ENGINE_RETRY_MS_MIN;
	log_error("%s the state cannot be written: %s; next try in %lld ms",
		  b->rec.id, strerror(-rc), (long long)b->retry_ms);
	b->sent = 0; /* not known */
	if (c)
		c->sent = 0;
	if (b->e->is_ending)
		return;
	if (has_end)
		box_vm_end(b);
	loop_timer_set(b->e->loop, &b->retry, b->retry_ms);
	b->retry_ms *= 2;
	if (b->retry_ms > ENGINE_RETRY_MS_MAX)
		b->retry_ms = ENGINE_RETRY_MS_MAX;
}

/* Where its time went, in microseconds. */
static void end_is_durable(struct cmd *c)
{
	const struct run_times *t = &c->times;
	int64_t now = clock_mono_us();

	c->is_end_durable = true;
	if (!t->ended) /* it did not come to its end by itself */
		return;
	log_info("%s command=%s timing=%s record_us=%lld ready_us=%lld "
		 "bind_us=%lld run_us=%lld result_us=%lld all_us=%lld",
		 c->rec.sandbox, c->rec.id,
		 c->box->rec.kind == SBX_KIND_HELD ? "held"
		 : t->was_claimed		   ? "claimed"
						   : "restored",
		 (long long)(t->durable - t->taken_up),
		 (long long)(t->ready - t->durable),
		 (long long)(t->bound - t->ready),
		 (long long)(t->ended - t->bound), (long long)(now - t->ended),
		 (long long)(now - t->taken_up));
}

static bool are_ends_durable(const struct box *b)
{
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		const struct cmd *c = container_of(n, struct cmd, node);

		if (c->is_durable && !c->is_end_durable)
			return false;
	}
	return true;
}

static void told(struct write *w)
{
	struct box *b = w->box;
	struct cmd *c = w->cmd;
	bool is_new_end = w->has_end && !c->is_end_durable;

	fault_point(faults[w->box_rec.status].written);
	b->told = w->box_rec;
	b->n_updates_told = w->n_updates;
	memcpy(b->told.progress, b->rec.progress,
	       sizeof(b->told.progress)); /* newer */
	if (b->told.status == b->rec.status)
		b->sent = b->rec.status;
	if (c) {
		c->told = w->cmd_rec;
		if (c->told.status == c->rec.status)
			c->sent = c->rec.status;
		if (is_new_end)
			end_is_durable(c);
	}
	if (!has_stale(b)) {
		/* All there is to say is said. */
		loop_timer_stop(b->e->loop, &b->retry);
		b->retry_ms = 0;
	}
	box_wake(b);
	box_files(b);
	if (is_new_end && b->vm && c->number)
		vm_ack(b->vm, c->number);
	if (b->told.status >= SBX_DESTROYING && are_ends_durable(b))
		box_vm_end(b);
	else if (is_new_end)
		box_give(b);
	if (b->e->is_ending)
		return; /* the link is gone; the next start sweeps */
	if (b->told.status == SBX_STARTING)
		box_resume_vm(b);
	if (b->has_files && sandbox_status_is_final(b->told.status)) {
		b->has_files = false;
		vm_stopped_remove(b->e->link, b->rec.id);
	}
}

static void on_written(void *ctx, int rc)
{
	struct write *w = ctx;
	struct box *b = w->box;
	struct engine *e = b->e;

	if (rc)
		write_failed(b, w->cmd, rc);
	else
		told(w);
	b->n_pending--;
	if (w->cmd)
		w->cmd->n_pending--;
	free(w);
	box_maybe_free(b);
	engine_op_end(e);
}

static void write_state(struct box *b, struct cmd *c, bool is_urgent)
{
	struct write *w = calloc(1, sizeof(*w));
	bool has_end = c && command_status_is_final(c->rec.status);
	bool with_output = has_end && !c->is_end_durable;
	struct command_rec rec = {0};
	int rc = w ? 0 : -ENOMEM;

	if (c) {
		rec = c->rec;
		c->sent = c->rec.status;
	}
	b->sent = b->rec.status;
	if (has_end) {
		/* Sizes go into the record; bytes only once. */
		rec.out[0] = output_view(&c->out[0]);
		rec.out[1] = output_view(&c->out[1]);
	}
	if (!rc) {
		*w = (struct write){.box = b,
				    .cmd = c,
				    .has_end = has_end,
				    .n_updates = b->n_updates,
				    .box_rec = b->rec};
		if (c)
			w->cmd_rec = c->rec;
		fault_point(faults[b->rec.status].write);
		if (is_urgent || with_output)
			rc = store_update(b->e->store, &b->rec, c ? &rec : NULL,
					  with_output, on_written, w);
		else
			rc = store_update_later(b->e->store, &b->rec,
						c ? &rec : NULL, on_written, w);
	}
	if (rc) {
		free(w);
		write_failed(b, c, rc);
		return;
	}
	b->n_pending++;
	if (c)
		c->n_pending++;
	engine_op_begin(b->e);
}

void box_write(struct box *b, struct cmd *c)
{
	write_state(b, c, true);
}

void box_write_later(struct box *b)
{
	write_state(b, NULL, false);
}

void box_write_stale(struct box *b)
{
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		struct cmd *c = container_of(n, struct cmd, node);

		if (is_stale(c))
			box_write(b, c);
	}
	if (b->sent != b->rec.status)
		box_write(b, NULL);
}
