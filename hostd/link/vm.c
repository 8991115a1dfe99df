/*
 * One microVM: from its template's snapshot to its end; see vm.h.
 *
 *   WAITING   for the template (vm_create asked; commands are kept)
 *   STARTING  a call is posted: disk copy, process
 *   BELL      the process is there, BIND is not given yet (vm_bell.c)
 *   RUNNING   hutch-vmm lives; the session says what the guest may send
 *   ENDING    the reason is known; the process is being reaped
 *
 * vm_pool.c adds RESTORING, POOLED and RESUMING: a claim leads from POOLED to
 * STARTING; the call that is posted then resumes the VM, instead of a start, or
 * gives it its run by the express lane (vm_lane.c).
 *
 * BIND and the commands that came with vm_create travel together, by the lane
 * or by the channel.
 *
 * One timer serves all deadlines: BOUND, each command's start, and each
 * command's own time-out with room for the guest to keep it itself.  A guest
 * that lets one pass is not trusted any more: its VM ends.
 */
#include "../clock.h"
#include "fault.h"
#include "fd.h"
#include "log.h"
#include "vm_priv.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* A channel that ended without the process: this long to say why. */
#define VM_LAST_WORDS_MS 1000

/* ---- the end ---------------------------------------------------------- */

/* With a call on its way the memory stays until that comes back. */
void vm_free(struct vm *vm)
{
	template_unwait(&vm->waiter);
	loop_timer_stop(vm->link->loop, &vm->timer);
	vm_stop_forget(vm);
	vm_from_forget(vm);
	vm_snapshot_forget(vm);
	fd_close(&vm->disk_fd);
	channel_close(&vm->channel);
	session_finish(&vm->session);
	bytes_finish_secret(&vm->early);
	list_remove(&vm->node);
	vm->link = NULL;
	if (!vm->is_posted)
		free(vm);
}

static void vm_post(struct vm *vm, void (*fn)(struct vm *vm))
{
	vm->posted = fn;
	vm->is_posted = true;
	loop_post_call(vm->link->loop, &vm->call);
}

static void on_call(void *arg)
{
	struct vm *vm = arg;

	vm->is_posted = false;
	if (vm->link)
		vm->posted(vm);
	else
		free(vm); /* the link ended before */
}

static void vm_gone(struct vm *vm)
{
	log_info("%s vm=gone reason=%d text=\"%s\"", vm->spec.sandbox,
		 (int)vm->why, log_quoted(vm->text, strlen(vm->text)).s);
	fd_close(&vm->disk_fd); /* its room is free when that is told */
	if (vm->ops)
		vm->ops->gone(vm->ctx, vm->why, vm->text);
	else
		vm->pool_ops->gone(vm->ctx, vm->why, vm->text);
	vm_free(vm);
}

/* The first reason stays.  `gone` comes later, never from within. */
void vm_end(struct vm *vm, enum end_reason why, const char *fmt, ...)
{
	enum vm_state was = vm->state;
	va_list ap;

	if (was == VM_ENDING)
		return;
	vm->state = VM_ENDING;
	vm->why = why;
	va_start(ap, fmt);
	vsnprintf(vm->text, sizeof(vm->text), fmt, ap);
	va_end(ap);
	session_close(&vm->session);
	channel_close(&vm->channel);
	template_unwait(&vm->waiter);
	vm_stop_forget(vm);
	loop_timer_stop(vm->link->loop, &vm->timer);
	if (vm->vmm) {
		vmm_kill(vm->vmm);
		return;
	}
	/* A posted start sees ENDING and becomes the end. */
	if (was == VM_STARTING)
		return;
	vm_post(vm, vm_gone);
}

static void on_vmm_gone(void *ctx, const struct vmm_end *end)
{
	struct vm *vm = ctx;

	vm->vmm = NULL;
	if (vm_is_ungiven(vm) || vm_lane_is_unread(vm, end)) {
		vm_pooled_instead(vm);
		return;
	}
	if (vm->state != VM_ENDING) {
		bool is_setup = end->why == VMM_WHY_SETUP;

		vm->state = VM_ENDING;
		/* A VM that could not be set up ran nothing. */
		vm->why = is_setup ? END_NOT_STARTED : END_VM_LOST;
		if (is_setup && !vm->was_live)
			template_suspect(vm->t);
		snprintf(vm->text, sizeof(vm->text), "%.250s", end->text);
		session_close(&vm->session);
	}
	vm_gone(vm);
}

void vm_destroy(struct vm *vm)
{
	vm_end(vm, END_NONE, "destroyed");
}

void vms_destroy(struct link *l)
{
	struct list *pos, *tmp;

	vmms_kill(l); /* so that all end at once, and we wait once */
	list_for_each_safe(pos, tmp, &l->vms)
	{
		struct vm *vm = container_of(pos, struct vm, node);

		if (vm->vmm)
			vmm_destroy(vm->vmm);
		vm_free(vm);
	}
	vmms_forgotten_destroy(l);
}

/* ---- deadlines -------------------------------------------------------- */

static void earlier(int64_t *at, int64_t candidate)
{
	if (candidate && (!*at || candidate < *at))
		*at = candidate;
}

void vm_timer_arm(struct vm *vm)
{
	int64_t at = 0;

	if (vm->state == VM_STARTING || vm->state == VM_ENDING)
		return;
	earlier(&at, vm->bind_deadline_ms);
	earlier(&at, vm->words_deadline_ms);
	earlier(&at, vm->lane.adopt_at_ms);
	for (size_t i = 0; !vm_is_snapping(vm) && i < SESSION_CMDS_MAX; i++)
		earlier(&at, vm->session.cmds[i].deadline_ms);
	if (!vm_is_snapping(vm))
		earlier(&at, vm->session.file.deadline_ms);
	if (at)
		loop_timer_set(vm->link->loop, &vm->timer,
			       at - clock_mono_ms());
	else
		loop_timer_stop(vm->link->loop, &vm->timer);
}

void vm_cmd_deadline(struct vm *vm, struct session_cmd *c, int64_t after_ms)
{
	c->deadline_ms = clock_mono_ms() + after_ms;
	vm_timer_arm(vm);
}

/* A command that the guest should have ended long ago. */
static void cmd_overrun(struct vm *vm, struct session_cmd *c)
{
	struct vm_end end = {
		.how = c->is_cancelled ? GP_END_CANCELLED : GP_END_TIMED_OUT,
		.error = "the guest did not end the command in time; its VM "
			 "was ended",
		.stdout_bytes = c->out[0].total,
		.stderr_bytes = c->out[1].total,
	};
	uint64_t cmd = c->cmd;
	bool is_started = c->state == CS_STARTED;

	session_cmd_end(c);
	/* It runs since it was given; only its answer would have said so. */
	if (!is_started && vm->state == VM_LANE_FINISHING) {
		vm->ops->started(vm->ctx, cmd);
		is_started = true;
	}
	if (is_started || end.how == GP_END_CANCELLED) {
		vm->ops->ended(vm->ctx, cmd, &end);
		vm_end(vm, END_VM_LOST,
		       "the guest did not end command %llu in time",
		       (unsigned long long)cmd);
		return;
	}
	vm_end(vm, END_VM_LOST, "the guest did not start command %llu in time",
	       (unsigned long long)cmd);
}

static void on_timer(struct loop_timer *t)
{
	struct vm *vm = container_of(t, struct vm, timer);
	int64_t now = clock_mono_ms();

	if (vm->words_deadline_ms && vm->words_deadline_ms <= now) {
		vm_end(vm, END_VM_LOST, "the guest's channel was closed");
		return;
	}
	if (vm->bind_deadline_ms && vm->bind_deadline_ms <= now) {
		if (vm->state == VM_ARMED) {
			vm_lane_unready(vm);
			return;
		}
		if (vm_is_ungiven(vm)) {
			vm_pooled_instead(vm);
			return;
		}
		if (vm_snapshot_is_late(vm))
			return;
		if (vm_is_stopping(vm) || vm_is_snapping(vm)) {
			vm_end(vm, END_VM_LOST, "the VM did not %s in time",
			       vm_is_stopping(vm) ? "stop" : "pause");
			return;
		}
		vm_end(vm, END_VM_LOST,
		       "the restored guest did not answer within %lld s",
		       (long long)vm->link->times.bind_ms / 1000);
		return;
	}
	for (size_t i = 0; !vm_is_snapping(vm) && i < SESSION_CMDS_MAX; i++) {
		struct session_cmd *c = &vm->session.cmds[i];

		if (vm->state != VM_ENDING && c->deadline_ms &&
		    c->deadline_ms <= now)
			cmd_overrun(vm, c);
	}
	if (vm->session.file.deadline_ms &&
	    vm->session.file.deadline_ms <= now && !vm_is_snapping(vm))
		vm_end(vm, END_VM_LOST,
		       "the guest did not end a call on files in time");
	if (vm->lane.adopt_at_ms && vm->lane.adopt_at_ms <= now)
		vm_lane_due(vm, now);
	vm_timer_arm(vm);
}

/* ---- what the guest says ---------------------------------------------- */

void vm_bound(struct vm *vm)
{
	vm->bind_deadline_ms = 0;
	for (size_t i = 0; i < SESSION_CMDS_MAX; i++)
		if (vm->session.cmds[i].state == CS_SENT)
			vm_cmd_deadline(vm, &vm->session.cmds[i],
					vm->session.cmds[i].start_ms);
	vm_timer_arm(vm);
	vm->ops->bound(vm->ctx);
}

static void on_bound(void *ctx, const char *error)
{
	struct vm *vm = ctx;
	bool was_lane;

	if (error) {
		vm_end(vm, END_VM_LOST,
		       "the guest cannot take its identity: %.180s", error);
		return;
	}
	fault_point(FAULT_START_BOUND);
	log_info("%s vm=bound after_us=%lld", vm->spec.sandbox,
		 (long long)(clock_mono_us() - vm->created_us));
	was_lane = vm->lane.is_bind;
	vm->lane.is_bind = false;
	if (vm->is_stopped)
		vm_stopped_used(vm);
	if (vm->state == VM_RESTORING)
		vm_pooled_bound(vm);
	else if (vm->state == VM_BINDING)
		vm->session.state = SES_PREPARED;
	else if (!was_lane) /* else told when it took BIND and RUN */
		vm_bound(vm);
}

static void on_started(void *ctx, uint64_t cmd)
{
	struct vm *vm = ctx;
	struct session_cmd *c = session_cmd_find(&vm->session, cmd);

	/* A KILL that is on its way has set its own, shorter deadline. */
	if (!c->is_cancelled)
		vm_cmd_deadline(vm, c,
				(int64_t)c->timeout_ms +
					vm->link->times.overrun_ms);
	vm->ops->started(vm->ctx, cmd);
}

static void on_output(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		      uint64_t total, const uint8_t *data, size_t len)
{
	struct vm *vm = ctx;

	vm->ops->output(vm->ctx, cmd, stream, offset, total, data, len);
}

static void on_ended(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	struct vm *vm = ctx;

	vm_timer_arm(vm);
	vm->ops->ended(vm->ctx, cmd, end);
}

static void on_pong(void *ctx)
{
	vm_stop_ponged(ctx);
	vm_snapshot_ponged(ctx);
}

static void on_file_entry(void *ctx, uint64_t number,
			  const struct vm_file_entry *e)
{
	struct vm *vm = ctx;

	vm->ops->file_entry(vm->ctx, number, e);
}

static void on_file_data(void *ctx, uint64_t number, const uint8_t *data,
			 size_t len)
{
	struct vm *vm = ctx;

	vm->ops->file_data(vm->ctx, number, data, len);
}

static void on_file_done(void *ctx, uint64_t number,
			 const struct vm_file_end *end)
{
	struct vm *vm = ctx;

	vm_timer_arm(vm);
	vm->ops->file_done(vm->ctx, number, end);
}

static const struct session_ops session_ops = {
	.bound = on_bound,
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
	.pong = on_pong,
	.file_entry = on_file_entry,
	.file_data = on_file_data,
	.file_more = vm_file_more,
	.file_done = on_file_done,
};

static void on_channel_end(struct channel *c, int rc)
{
	struct vm *vm = container_of(c, struct vm, channel);

	if (vm_is_ungiven(vm)) {
		vm_pooled_instead(vm);
	} else if (rc == -EPROTO) {
		vm_end(vm, END_GUEST_PROTOCOL, "%s", vm->session.why);
	} else if (rc == -ENOMEM) {
		vm_end(vm, END_VM_LOST, "the host is out of memory");
	} else {
		/* Mostly the process ends: it knows the reason better.  No
		 * command can end any more, none has a deadline. */
		for (size_t i = 0; i < SESSION_CMDS_MAX; i++)
			vm->session.cmds[i].deadline_ms = 0;
		vm->session.file.deadline_ms = 0;
		vm->bind_deadline_ms = 0;
		vm->words_deadline_ms = clock_mono_ms() + VM_LAST_WORDS_MS;
		vm_timer_arm(vm);
	}
}

/* ---- the start -------------------------------------------------------- */

static void on_vmm_started(void *ctx, const struct vmm_started *s)
{
	struct vm *vm = ctx;

	fault_point(FAULT_START_STARTED);
	vm->ready_us = clock_mono_us();
	vm->lane.n = s->n_lanes;
	log_debug("%s vm=started pid=%d since_start_us=%llu", vm->spec.sandbox,
		  vm_pid(vm), (unsigned long long)s->since_start_ns / 1000);
	/* One that had run was not at its bell. */
	if (!vm->lane.n || vm->was_live)
		vm_bell_none(vm);
}

static void on_vmm_reply(void *ctx, enum vmm_type type, int status,
			 const uint8_t *body, size_t len)
{
	vm_pooled_replied(ctx, type, status);
	vm_lane_replied(ctx, type, status);
	vm_stop_replied(ctx, type, status);
	vm_snapshot_replied(ctx, type, status);
	(void)body;
	(void)len;
}

static const struct vmm_ops vmm_ops = {
	.started = on_vmm_started,
	.replied = on_vmm_reply,
	.lane = vm_lane_said,
	.writable = vm_lane_writable,
	.gone = on_vmm_gone,
};

int vm_begin_process(struct vm *vm, struct err *e)
{
	if (vm_process_start(vm, &vmm_ops, on_channel_end, e))
		return -1;
	vm->generation = vm->t->generation;
	vm->bind_deadline_ms = clock_mono_ms() + vm->link->times.bind_ms;
	vm_timer_arm(vm);
	return 0;
}

static void vm_begin(struct vm *vm)
{
	struct err e = {0};

	if (vm->state == VM_ENDING) {
		if (!vm->vmm) /* else its end is on the way */
			vm_gone(vm);
		return;
	}
	if (vm->is_claimed) {
		vm_pooled_resume(vm);
		return;
	}
	vm->state = VM_BELL;
	if (vm_begin_process(vm, &e)) {
		vm_end(vm, END_NOT_STARTED, "%.250s", e.text);
		return;
	}
	log_info("%s vm=spawned pid=%d after_us=%lld", vm->spec.sandbox,
		 vm_pid(vm), (long long)(clock_mono_us() - vm->created_us));
}

/* Posted, not called: commands that follow vm_create travel with BIND. */
void vm_start_post(struct vm *vm)
{
	vm->state = VM_STARTING;
	vm_post(vm, vm_begin);
}

static void on_template(void *ctx, const struct err *e)
{
	struct vm *vm = ctx;

	if (e)
		vm_end(vm, END_PREPARE_FAILED, "%.250s", e->text);
	else
		vm_start_post(vm);
}

static void on_template_progress(void *ctx, const char *text)
{
	struct vm *vm = ctx;

	vm->ops->progress(vm->ctx, text);
}

struct vm *vm_new(struct link *link, const struct vm_spec *spec, void *ctx,
		  struct err *e)
{
	struct shape shape;
	struct vm *vm;

	if (link->is_stopping) {
		err_set(e, ERR_UNAVAILABLE, NULL, NULL);
		return NULL;
	}
	if (shape_for(spec->base, &spec->limits, &shape, e))
		return NULL;
	vm = calloc(1, sizeof(*vm));
	if (!vm || template_get(link, &shape, &vm->t)) {
		free(vm);
		err_set(e, ERR_INTERNAL, NULL, "out of memory");
		return NULL;
	}
	vm->ctx = ctx;
	vm->link = link;
	vm->spec = *spec;
	vm->created_us = clock_mono_us();
	vm->timer.fn = on_timer;
	vm->call.fn = on_call;
	vm->call.arg = vm;
	vm->channel.watch.fd = -1;
	vm->disk_fd = -1;
	session_init(&vm->session, SES_PREPARED, &session_ops, vm);
	list_append(&link->vms, &vm->node);
	return vm;
}

static void owner_set(struct vm *vm, const struct vm_ops *ops)
{
	vm->ops = ops;
	vm->waiter.progress = on_template_progress;
	vm->waiter.done = on_template;
	vm->waiter.ctx = vm;
}

struct vm *vm_new_live(struct link *link, const struct vm_spec *spec,
		       const struct vm_ops *ops, void *ctx, struct err *e)
{
	struct vm *vm = vm_new(link, spec, ctx, e);

	if (!vm)
		return NULL;
	vm->was_live = true;
	vm->had_run = true; /* its runner may be gone */
	owner_set(vm, ops);
	return vm;
}

void vm_await_template(struct vm *vm)
{
	if (template_is_fresh(vm->t))
		vm_start_post(vm);
	else
		template_wait(vm->t, &vm->waiter);
}

int vm_create(struct vm **ret, struct link *link, const struct vm_spec *spec,
	      const struct vm_ops *ops, void *ctx, struct err *e)
{
	struct vm *vm = vm_new(link, spec, ctx, e);

	if (!vm)
		return -1;
	owner_set(vm, ops);
	vm_await_template(vm);
	*ret = vm;
	return 0;
}

int vm_create_stopped(struct vm **ret, struct link *link,
		      const struct vm_spec *spec, const struct vm_ops *ops,
		      void *ctx, struct err *e)
{
	struct vm *vm = vm_new_live(link, spec, ops, ctx, e);

	if (!vm)
		return -1;
	vm->is_stopped = true;
	vm_await_template(vm);
	*ret = vm;
	return 0;
}

int64_t vm_ready_us(const struct vm *vm)
{
	return vm->ready_us;
}

int vm_pid(const struct vm *vm)
{
	return vm->vmm ? vmm_pid(vm->vmm) : 0;
}
