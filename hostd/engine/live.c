/*
 * A sandbox from its VM to its end, and the commands in it.
 *
 * A one-call run's command is given to the VM with its start, and its end is
 * the sandbox's.  A held sandbox goes on: its commands are given in their
 * order, at most ENGINE_COMMANDS_RUNNING_MAX at once, and the rest waits here,
 * not in the guest, so that a time-out counts from the start.
 *
 * A VM that is gone without an end is `lost`, whatever it said before; so are
 * the commands that it had.
 */
#include "../clock.h"
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include "state.h"
#include <errno.h>
#include <stdio.h>

/* The VM is of no more use: end it; `gone` comes later. */
void box_vm_end(struct box *b)
{
	struct vm *vm = b->vm;

	b->vm = NULL;
	if (vm)
		vm_destroy(vm);
}

static bool is_live(const struct cmd *c)
{
	return c->is_durable && !command_status_is_final(c->rec.status);
}

/* ---- ending ------------------------------------------------------------- */

/* Every command that is not over becomes `ev`. */
static void cmds_end(struct box *b, enum command_event ev, enum end_reason why,
		     const char *text, int64_t now)
{
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		struct cmd *c = container_of(n, struct cmd, node);

		if (!is_live(c))
			continue;
		command_set(&c->rec, ev, why, text, now);
		secrets_finish(&c->secrets);
		b->e->n_lost += ev == CMD_EV_LOSE;
		b->e->n_ended++;
	}
}

/* One write, where one command is all that there is to say. */
static void write_all(struct box *b)
{
	struct cmd *c = box_only_cmd(b);

	if (c)
		box_write(b, c);
	else
		box_write_stale(b);
}

void box_end(struct box *b, enum end_reason why, const char *text, bool is_lost)
{
	int64_t now = clock_wall_ms();

	b->is_resuming = false; /* who waits for that has waited enough */
	cmds_end(b, is_lost ? CMD_EV_LOSE : CMD_EV_CANCEL, why, text, now);
	sandbox_set(&b->rec, is_lost ? SBX_EV_GONE : SBX_EV_DESTROY, why, text,
		    now);
	if (!b->has_vm)
		sandbox_set(&b->rec, SBX_EV_GONE, why, text, now);
	write_all(b);
	box_files(b);
}

/* It never ran: no snapshot, no process, no memory. */
static void cannot_start(struct box *b, enum end_reason why, const char *text)
{
	int64_t now = clock_wall_ms();

	cmds_end(b, CMD_EV_FAIL, why, text, now);
	sandbox_set(&b->rec, SBX_EV_CANNOT_START, why, text, now);
	b->holds_place = false;
	write_all(b);
	box_files(b);
}

void box_expiry_arm(struct box *b)
{
	int64_t left = b->rec.expires_ms - clock_wall_ms();

	loop_timer_set(b->e->loop, &b->expiry, left > 0 ? left : 1);
}

static void on_expiry(struct loop_timer *t)
{
	struct box *b = container_of(t, struct box, expiry);

	if (b->rec.status >= SBX_DESTROYING)
		return;
	box_end(b, END_TIMEOUT, "the sandbox reached its expiry", false);
	box_vm_end(b);
}

/* ---- giving commands ---------------------------------------------------- */

static int cmd_put(struct cmd *c, uint64_t number)
{
	const struct secrets *s = &c->secrets;
	const struct vm_exec exec = {
		.argv = s->argv_list,
		.cwd = s->cwd.len ? (const char *)s->cwd.data : NULL,
		.stdin_data = s->stdin_data.data,
		.stdin_len = s->stdin_data.len,
		.timeout_ms = c->rec.timeout_ms,
		.env = s->env_list,
	};
	const struct vm_run run = {
		.code = s->code.data,
		.code_len = s->code.len,
		.input = s->has_input ? s->input.data : NULL,
		.input_len = s->input.len,
		.config = s->has_config ? s->config.data : NULL,
		.config_len = s->config.len,
		.timeout_ms = c->rec.timeout_ms,
		.env = s->env_list,
	};

	return c->rec.kind == CMD_KIND_EXEC ? vm_exec(c->box->vm, number, &exec)
					    : vm_run(c->box->vm, number, &run);
}

/* 0, or -errno: the VM does not have it, and its secrets are still here. */
static int cmd_give(struct cmd *c)
{
	int rc = cmd_put(c, c->box->last_number + 1);

	if (rc)
		return rc;
	c->number = ++c->box->last_number;
	secrets_finish(&c->secrets);
	return 0;
}

static void give_failed(struct cmd *c, int rc)
{
	secrets_finish(&c->secrets);
	command_set(&c->rec, CMD_EV_FAIL, END_NOT_STARTED, strerror(-rc),
		    clock_wall_ms());
	c->box->e->n_ended++;
}

/* Its channel, or its table of commands, has no room now. */
static bool is_busy(int rc)
{
	return rc == -ENOBUFS || rc == -ENOSPC;
}

static void give_in_order(struct box *b)
{
	unsigned n_given = 0;

	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		const struct cmd *c = container_of(n, struct cmd, node);

		n_given += c->number && is_live(c);
	}
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		struct cmd *c = container_of(n, struct cmd, node);
		int rc;

		if (!is_live(c) || c->number)
			continue;
		if (n_given == ENGINE_COMMANDS_RUNNING_MAX)
			return;
		c->times.ready = c->times.bound = clock_mono_us();
		rc = cmd_give(c);
		if (is_busy(rc)) {
			loop_timer_set(b->e->loop, &b->note,
				       ENGINE_GIVE_AGAIN_MS);
			return;
		}
		if (rc) {
			give_failed(c, rc);
			box_write(b, c);
			continue;
		}
		n_given++;
	}
}

void box_give(struct box *b)
{
	if (b->rec.kind != SBX_KIND_HELD)
		return;
	if (b->rec.status >= SBX_DESTROYING)
		/* It ended while a command was written down. */
		box_end(b, b->rec.reason, b->rec.reason_text,
			b->rec.status == SBX_LOST);
	else if (b->rec.status == SBX_RUNNING && b->vm)
		give_in_order(b);
	else if (b->rec.status == SBX_STOPPING || b->rec.status == SBX_STOPPED)
		box_cancel_waiting(b);
	box_files(b);
	box_stop_on(b);
}

static void on_note(struct loop_timer *t)
{
	struct box *b = container_of(t, struct box, note);

	box_write_stale(b);
	box_give(b);
}

void cmd_cancel(struct cmd *c)
{
	struct box *b = c->box;

	if (command_status_is_final(c->rec.status) || c->is_cancelling)
		return;
	c->is_cancelling = true;
	/* What the guest has is ended by the guest, which keeps its output. */
	if ((b->rec.kind == SBX_KIND_HELD || c->rec.status == CMD_RUNNING) &&
	    c->number && b->vm &&
	    !vm_kill(b->vm, c->number, ENGINE_CANCEL_GRACE_MS))
		return;
	if (b->rec.kind == SBX_KIND_ONE_CALL) {
		box_end(b, END_CANCELLED, "cancelled before it ran", false);
		box_vm_end(b);
		return;
	}
	command_set(&c->rec, CMD_EV_CANCEL, END_CANCELLED,
		    "cancelled before it ran", clock_wall_ms());
	secrets_finish(&c->secrets);
	b->e->n_ended++;
	box_write(b, c);
}

/* ---- what the VM says --------------------------------------------------- */

static void on_progress(void *ctx, const char *text)
{
	struct box *b = ctx;
	struct log_text t = log_text(text, strlen(text));

	snprintf(b->rec.progress, sizeof(b->rec.progress), "%.*s",
		 REASON_BYTES_MAX - 1, t.s);
	memcpy(b->told.progress, b->rec.progress,
	       sizeof(b->told.progress)); /* is not stored */
}

/* User code may run. */
static void may_run(struct box *b)
{
	struct cmd *c = box_only_cmd(b);
	int64_t now = clock_wall_ms();

	if (sandbox_set(&b->rec, SBX_EV_BOUND, END_NONE, NULL, now))
		return;
	pool_kick(b->e);
	if (c) {
		command_set(&c->rec, CMD_EV_START, END_NONE, NULL, now);
		c->times.bound = clock_mono_us();
		c->times.ready = vm_ready_us(b->vm);
		return;
	}
	b->is_resuming = false;
	box_idle_arm(b);
	box_write(b, NULL);
	box_give(b);
}

static void on_bound(void *ctx)
{
	if (!fill_start(ctx))
		may_run(ctx);
}

static int only_cmd_give(struct box *b, struct cmd *c);

void box_filled(struct box *b)
{
	struct cmd *c = box_only_cmd(b);

	fault_point(FAULT_FILL_DONE);
	if (b->rec.status != SBX_STARTING || !b->vm ||
	    (c && only_cmd_give(b, c)))
		return;
	may_run(b);
}

void box_not_filled(struct box *b, const char *why)
{
	if (b->rec.status != SBX_STARTING)
		return;
	cannot_start(b, END_NOT_STARTED, why);
	/* Its memory is in use until the VM is gone. */
	b->holds_place = b->has_vm;
	box_vm_end(b);
}

/*
 * Written when what came along with it is known: a short command says its start
 * and its end in one go, and they are one write.
 */
static void on_started(void *ctx, uint64_t number)
{
	struct box *b = ctx;
	struct cmd *c = cmd_by_number(b, number);
	int64_t now = clock_wall_ms();

	if (!c || !is_live(c))
		return;
	if (c->rec.status == CMD_QUEUED && b->rec.kind == SBX_KIND_HELD)
		command_set(&c->rec, CMD_EV_START, END_NONE, NULL, now);
	if (c->rec.status != CMD_RUNNING)
		return;
	/* The process exists: a better time than that of the identity.  A
	 * claimed VM had its identity before, and began when it was given; so
	 * did one that got both by its lane. */
	if (!c->times.was_claimed && !vm_is_by_lane(b->vm, number))
		c->rec.started_ms = record_time(now, c->rec.started_ms);
	if (loop_timer_set(b->e->loop, &b->note, 0))
		box_write(b, c);
}

static void on_output(void *ctx, uint64_t number, int stream, uint64_t offset,
		      uint64_t total, const uint8_t *data, size_t len)
{
	struct box *b = ctx;
	struct cmd *c = cmd_by_number(b, number);

	if (!c || stream < 0 || stream > 1 || !is_live(c))
		return;
	if (output_add(&c->out[stream], offset, total, data, len))
		log_warn("%s no memory for %zu bytes of output", b->rec.id,
			 len);
}

/* A command that never started may end, too: no such program, cancelled. */
static bool may_end(const struct cmd *c, const struct vm_end *end)
{
	if (c->rec.status == CMD_RUNNING)
		return true;
	return c->rec.status == CMD_QUEUED &&
	       c->box->rec.kind == SBX_KIND_HELD &&
	       (end->how == GP_END_NOT_STARTED || end->how == GP_END_CANCELLED);
}

static void on_ended(void *ctx, uint64_t number, const struct vm_end *end)
{
	struct box *b = ctx;
	struct cmd *c = cmd_by_number(b, number);
	int64_t now = clock_wall_ms();

	if (!c)
		return;
	if (end->how < GP_END_EXITED || end->how > GP_END_RESULT_NOT_JSON) {
		box_end(b, END_GUEST_PROTOCOL,
			"the guest reported an end that does not exist", true);
		box_vm_end(b);
		return;
	}
	if (!may_end(c, end))
		return; /* the first end counts; none before the start */
	c->times.ended = clock_mono_us();
	cmd_settle(c, end, now);
	b->e->n_lost += c->rec.status == CMD_LOST;
	b->e->n_ended++;
	b->rec.last_active_ms = record_time(now, b->rec.last_active_ms);
	if (b->rec.kind == SBX_KIND_ONE_CALL)
		sandbox_set(&b->rec, SBX_EV_DESTROY, END_NONE, NULL, now);
	box_write(b, c);
	box_idle_arm(b);
	box_give(b);
}

static void on_stopped(void *ctx, const char *error)
{
	box_on_stopped(ctx, error);
}

static void on_file_entry(void *ctx, uint64_t number,
			  const struct vm_file_entry *e)
{
	box_on_file_entry(ctx, number, e);
}

static void on_file_data(void *ctx, uint64_t number, const uint8_t *data,
			 size_t len)
{
	box_on_file_data(ctx, number, data, len);
}

static void on_file_more(void *ctx, uint64_t number, size_t len)
{
	box_on_file_more(ctx, number, len);
}

static void on_file_done(void *ctx, uint64_t number,
			 const struct vm_file_end *end)
{
	box_on_file_done(ctx, number, end);
}

static void on_gone(void *ctx, enum end_reason why, const char *text)
{
	struct box *b = ctx;

	b->vm = NULL;
	b->has_vm = false;
	b->holds_place = false;
	pool_kick(b->e);
	if (sandbox_status_is_final(b->rec.status)) {
		box_maybe_free(b);
	} else if (b->rec.status == SBX_DESTROYING) {
		sandbox_set(&b->rec, SBX_EV_GONE, END_NONE, NULL,
			    clock_wall_ms());
		/* A restart would find it out: store_recover. */
		box_write_later(b);
	} else if (b->is_kept) {
		box_is_stopped(b);
	} else if (b->is_resuming &&
		   (why == END_PREPARE_FAILED || why == END_NOT_STARTED)) {
		box_cannot_resume(b, text);
	} else if (b->rec.status == SBX_STARTING &&
		   (why == END_PREPARE_FAILED || why == END_NOT_STARTED)) {
		cannot_start(b, why, text);
	} else {
		box_end(b, why ? why : END_VM_LOST, text, true);
	}
}

static const struct vm_ops vm_ops = {
	.progress = on_progress,
	.bound = on_bound,
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
	.stopped = on_stopped,
	.file_entry = on_file_entry,
	.file_data = on_file_data,
	.file_more = on_file_more,
	.file_done = on_file_done,
	.gone = on_gone,
};
const struct vm_ops *const box_vm_ops = &vm_ops;

static void on_retry(struct loop_timer *t)
{
	box_write_stale(container_of(t, struct box, retry));
}

void box_timers_init(struct box *b)
{
	b->expiry.fn = on_expiry;
	b->retry.fn = on_retry;
	b->note.fn = on_note;
	b->idle.fn = box_on_idle;
}

/* ---- the start ---------------------------------------------------------- */

static int vm_make(struct box *b, struct err *err)
{
	return *b->from.id ? vm_create_from(&b->vm, b->e->link, &b->spec,
					    &b->from, &vm_ops, b, err)
			   : vm_create(&b->vm, b->e->link, &b->spec, &vm_ops, b,
				       err);
}

/* 0, or it has failed. */
static int only_cmd_give(struct box *b, struct cmd *c)
{
	int rc = cmd_give(c);

	if (!rc)
		return 0;
	give_failed(c, rc);
	sandbox_set(&b->rec, SBX_EV_DESTROY, END_NOT_STARTED, strerror(-rc),
		    clock_wall_ms());
	box_write(b, c);
	box_vm_end(b);
	return rc;
}

void box_start_vm(struct box *b)
{
	struct cmd *c = box_only_cmd(b);
	bool was_claimed;
	struct err err = {0};

	loop_timer_set(b->e->loop, &b->expiry,
		       (int64_t)b->rec.expires_in_seconds * 1000);
	was_claimed = !*b->from.id && pool_claim(b, &vm_ops);
	if (!was_claimed && vm_make(b, &err)) {
		b->vm = NULL;
		cannot_start(b, END_PREPARE_FAILED, err.text);
		return;
	}
	b->has_vm = true;
	b->e->n_vms++;
	if (!c)
		return;
	c->times.was_claimed = was_claimed;
	/* With Files to begin with it is given when they are there. */
	if (!b->fill)
		only_cmd_give(b, c);
}
