/*
 * A run from its VM to its end.
 *
 * The rule of every step: the state is changed by the tables (state.h), then
 * written, and only when the write is on disk it is told (told_sbx, told_cmd).
 * The end of the command and the sandbox's way to `destroying` are one write;
 * the answer goes out when that is durable, and the VM is torn down after it.
 *
 * A write that fails is tried again, more and more slowly, as long as the
 * daemon lives; the VM is ended at once, because what it said is in memory and
 * its disk may be what is missing.  A VM that is gone without an end is
 * `lost`, whatever it said before.
 */
#include "../clock.h"
#include "../http/json_raw.h"
#include "engine_priv.h"
#include "log.h"
#include "state.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define BASE_SHELL "lbb/shell"

struct command_rec run_told_command(const struct run *r)
{
	struct command_rec c = r->told_cmd;

	c.out[0] = output_view(&r->out[0]);
	c.out[1] = output_view(&r->out[1]);
	return c;
}

/* ---- writing
 * -------------------------------------------------------------------- */

/* One write on its way: what it makes durable. */
struct write {
	struct run *r;
	uint64_t number;
	bool has_end;
	struct sandbox_rec sbx;
	struct command_rec cmd; /* borrows from the run */
};

/* The VM is of no more use: end it; `gone` comes later. */
static void vm_let_go(struct run *r, bool is_end_durable)
{
	struct vm *vm = r->vm;

	if (!vm)
		return;
	r->vm = NULL;
	if (is_end_durable)
		vm_ack(vm, ENGINE_CMD);
	vm_destroy(vm);
}

void run_vm_end(struct run *r)
{
	vm_let_go(r, false);
}

static void write_failed(struct run *r, int rc)
{
	if (!r->retry_ms)
		r->retry_ms = ENGINE_RETRY_MS_MIN;
	log_error("%s the state cannot be written: %s; next try in %lld ms",
		  r->sbx.id, strerror(-rc), (long long)r->retry_ms);
	if (r->e->is_ending)
		return;
	if (command_status_is_final(r->cmd.status))
		vm_let_go(r, false);
	loop_timer_set(r->e->loop, &r->retry, r->retry_ms);
	r->retry_ms *= 2;
	if (r->retry_ms > ENGINE_RETRY_MS_MAX)
		r->retry_ms = ENGINE_RETRY_MS_MAX;
}

/* Where its time went, in microseconds. */
static void end_is_durable(struct run *r)
{
	const struct run_times *t = &r->times;
	int64_t now = clock_mono_us();

	r->is_end_durable = true;
	if (!t->ended) /* it did not come to its end by itself */
		return;
	log_info("%s command=%s timing=%s record_us=%lld ready_us=%lld "
		 "bind_us=%lld run_us=%lld result_us=%lld all_us=%lld",
		 r->sbx.id, r->cmd.id, t->was_claimed ? "claimed" : "restored",
		 (long long)(t->durable - t->taken_up),
		 (long long)(t->ready - t->durable),
		 (long long)(t->bound - t->ready),
		 (long long)(t->ended - t->bound), (long long)(now - t->ended),
		 (long long)(now - t->taken_up));
}

static void on_written(void *ctx, int rc)
{
	struct write *w = ctx;
	struct run *r = w->r;
	struct engine *e = r->e;

	r->n_pending--;
	if (rc) {
		write_failed(r, rc);
	} else {
		r->told_sbx = w->sbx;
		memcpy(r->told_sbx.progress, r->sbx.progress,
		       sizeof(r->told_sbx.progress)); /* newer */
		r->told_cmd = w->cmd;
		if (w->has_end && !r->is_end_durable)
			end_is_durable(r);
		if (w->number == r->n_writes) {
			/* All there is to say is said. */
			loop_timer_stop(e->loop, &r->retry);
			r->retry_ms = 0;
		}
		run_wake(r);
		if (r->is_end_durable && r->told_sbx.status >= SBX_DESTROYING)
			vm_let_go(r, true);
	}
	free(w);
	run_maybe_free(r);
	engine_op_end(e);
}

static void write_state(struct run *r, bool is_urgent)
{
	struct write *w = calloc(1, sizeof(*w));
	bool has_end = command_status_is_final(r->cmd.status);
	bool with_output = has_end && !r->is_end_durable;
	struct command_rec cmd = r->cmd;
	int rc = w ? 0 : -ENOMEM;

	loop_timer_stop(r->e->loop, &r->note);
	r->n_writes++;
	if (has_end) {
		/* Sizes go into the record; bytes only once. */
		cmd.out[0] = output_view(&r->out[0]);
		cmd.out[1] = output_view(&r->out[1]);
	}
	if (!rc) {
		w->r = r;
		w->number = r->n_writes;
		w->has_end = has_end;
		w->sbx = r->sbx;
		w->cmd = r->cmd;
		if (is_urgent || with_output)
			rc = store_update(r->e->store, &r->sbx, &cmd,
					  with_output, on_written, w);
		else
			rc = store_update_later(r->e->store, &r->sbx, &cmd,
						on_written, w);
	}
	if (rc) {
		free(w);
		write_failed(r, rc);
		return;
	}
	r->n_pending++;
	engine_op_begin(r->e);
}

void run_write(struct run *r)
{
	write_state(r, true);
}

static void on_retry(struct loop_timer *t)
{
	run_write(container_of(t, struct run, retry));
}

static void on_note(struct loop_timer *t)
{
	run_write(container_of(t, struct run, note));
}

/* ---- ending
 * ------------------------------------------------------------------------ */

void run_end(struct run *r, enum end_reason why, const char *text, bool is_lost)
{
	int64_t now = clock_wall_ms();

	if (!command_status_is_final(r->cmd.status)) {
		command_set(&r->cmd, is_lost ? CMD_EV_LOSE : CMD_EV_CANCEL, why,
			    text, now);
		r->e->n_lost += is_lost;
		r->e->n_ended++;
	}
	sandbox_set(&r->sbx, is_lost ? SBX_EV_GONE : SBX_EV_DESTROY, why, text,
		    now);
	if (!r->has_vm)
		sandbox_set(&r->sbx, SBX_EV_GONE, why, text, now);
	run_write(r);
}

/* It never ran: no snapshot, no process, no memory. */
static void cannot_start(struct run *r, enum end_reason why, const char *text)
{
	int64_t now = clock_wall_ms();

	command_set(&r->cmd, CMD_EV_FAIL, why, text, now);
	sandbox_set(&r->sbx, SBX_EV_CANNOT_START, why, text, now);
	r->e->n_ended++;
	r->holds_place = false;
	run_write(r);
}

static const struct {
	enum command_event ev;
	enum end_reason why;
} ends[] = {
	[GP_END_EXITED] = {CMD_EV_FAIL, END_EXIT_CODE}, /* code not 0 */
	[GP_END_SIGNALED] = {CMD_EV_FAIL, END_SIGNAL},
	[GP_END_TIMED_OUT] = {CMD_EV_TIME_OUT, END_TIMEOUT},
	[GP_END_CANCELLED] = {CMD_EV_CANCEL, END_CANCELLED},
	[GP_END_OOM] = {CMD_EV_FAIL, END_OOM},
	[GP_END_NOT_STARTED] = {CMD_EV_FAIL, END_NOT_STARTED},
	[GP_END_RESULT_TOO_LARGE] = {CMD_EV_FAIL, END_RESULT_TOO_LARGE},
	[GP_END_RESULT_NOT_JSON] = {CMD_EV_FAIL, END_RESULT_NOT_JSON},
};

static int result_set(struct run *r, const void *p, size_t len)
{
	int rc = bytes_append(&r->cmd.result, p, len);

	r->cmd.has_result = !rc;
	return rc;
}

/* A shell script's result is its output, when that is one JSON value. */
static int result_from_stdout(struct run *r)
{
	const struct output *o = &r->out[0];
	struct json_span root;
	struct err err;

	if (strcmp(r->sbx.template_base, BASE_SHELL) || !output_is_whole(o) ||
	    o->head.len > GP_RESULT_BYTES_MAX ||
	    json_check(o->head.data, o->head.len, JSON_USER_DEPTH_MAX, &root,
		       &err))
		return 0;
	return result_set(r, root.at, root.len);
}

/* The result of a command that ended with exit code 0; 0 or -ENOMEM. */
static int result_take(struct run *r, const struct vm_end *end)
{
	if (!end->result)
		return result_from_stdout(r);
	return result_set(r, end->result, end->result_len);
}

static void numbers_take(struct run *r, const struct vm_end *end)
{
	const uint64_t totals[] = {end->stdout_bytes, end->stderr_bytes};

	r->cmd.user_us = end->user_us;
	r->cmd.sys_us = end->sys_us;
	r->cmd.rss_bytes = end->rss_bytes;
	for (int i = 0; i < 2; i++)
		if (totals[i] > r->out[i].total)
			r->out[i].total = totals[i];
}

static void exit_take(struct run *r, const struct vm_end *end)
{
	struct command_rec *c = &r->cmd;

	switch (end->how) {
	case GP_END_EXITED:
		c->exit_code = end->code & 0xff;
		break;
	case GP_END_SIGNALED:
	case GP_END_OOM:
		c->signal = end->signal;
		break;
	case GP_END_RESULT_TOO_LARGE:
	case GP_END_RESULT_NOT_JSON:
		/* The code ended well, the run did not: never 0. */
		c->exit_code = end->code & 0xff ? end->code & 0xff : 1;
		break;
	case GP_END_TIMED_OUT:
	case GP_END_CANCELLED:
	case GP_END_NOT_STARTED:
		break;
	}
}

static void settle(struct run *r, const struct vm_end *end, int64_t now)
{
	enum command_event ev = ends[end->how].ev;
	enum end_reason why = ends[end->how].why;
	const char *text = end->error;
	char made[128];

	numbers_take(r, end);
	exit_take(r, end);
	if (end->how == GP_END_EXITED && !r->cmd.exit_code) {
		ev = CMD_EV_SUCCEED;
		why = END_NONE;
		if (end->result && end->result_len > GP_RESULT_BYTES_MAX) {
			ev = CMD_EV_FAIL;
			why = END_RESULT_TOO_LARGE;
			r->cmd.exit_code = 1;
			snprintf(made, sizeof(made),
				 "the result has %zu bytes; at most %u are "
				 "taken",
				 end->result_len, GP_RESULT_BYTES_MAX);
			text = made;
		} else if (result_take(r, end)) {
			/* It succeeded, but nobody will know with what. */
			ev = CMD_EV_LOSE;
			why = END_VM_LOST;
			r->cmd.exit_code = -1;
			text = "the daemon had no memory for the result";
		}
	} else if (end->how == GP_END_OOM && (!text || !*text)) {
		snprintf(made, sizeof(made),
			 "out of memory: the run took all that a sandbox of "
			 "%u MiB has for code; see limits.memory_mib",
			 r->sbx.limits.memory_mib);
		text = made;
	}
	command_set(&r->cmd, ev, why, text, now);
}

/* ---- what the VM says ------------------------------------------------- */

static void on_progress(void *ctx, const char *text)
{
	struct run *r = ctx;
	struct log_text t = log_text(text, strlen(text));

	snprintf(r->sbx.progress, sizeof(r->sbx.progress), "%.*s",
		 REASON_BYTES_MAX - 1, t.s);
	memcpy(r->told_sbx.progress, r->sbx.progress,
	       sizeof(r->told_sbx.progress)); /* is not stored */
}

static void on_bound(void *ctx)
{
	struct run *r = ctx;
	int64_t now = clock_wall_ms();

	if (sandbox_set(&r->sbx, SBX_EV_BOUND, END_NONE, NULL, now))
		return;
	command_set(&r->cmd, CMD_EV_START, END_NONE, NULL, now);
	r->times.bound = clock_mono_us();
	r->times.ready = vm_ready_us(r->vm);
	pool_kick(r->e);
}

/*
 * Written when what came along with it is known: a short run says its start
 * and its end in one go, and they are one write.
 */
static void on_started(void *ctx, uint64_t cmd)
{
	struct run *r = ctx;

	if (cmd != ENGINE_CMD || r->cmd.status != CMD_RUNNING)
		return;
	/* The process exists: a better time than that of the identity.  A
	 * claimed VM had its identity before, and began when it was given. */
	if (!r->times.was_claimed)
		r->cmd.started_ms =
			record_time(clock_wall_ms(), r->cmd.started_ms);
	if (loop_timer_set(r->e->loop, &r->note, 0))
		run_write(r);
}

static void on_output(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		      uint64_t total, const uint8_t *data, size_t len)
{
	struct run *r = ctx;

	if (cmd != ENGINE_CMD || stream < 0 || stream > 1 ||
	    command_status_is_final(r->cmd.status))
		return;
	if (output_add(&r->out[stream], offset, total, data, len))
		log_warn("%s no memory for %zu bytes of output", r->sbx.id,
			 len);
}

static void on_ended(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	struct run *r = ctx;
	int64_t now = clock_wall_ms();

	if (cmd != ENGINE_CMD || r->cmd.status != CMD_RUNNING)
		return; /* the first end counts; none before the start */
	if (end->how < GP_END_EXITED || end->how > GP_END_RESULT_NOT_JSON) {
		run_end(r, END_GUEST_PROTOCOL,
			"the guest reported an end that does not exist", true);
		vm_let_go(r, false);
		return;
	}
	r->times.ended = clock_mono_us();
	settle(r, end, now);
	r->e->n_lost += r->cmd.status == CMD_LOST;
	r->e->n_ended++;
	sandbox_set(&r->sbx, SBX_EV_DESTROY, END_NONE, NULL, now);
	run_write(r);
}

static void on_gone(void *ctx, enum end_reason why, const char *text)
{
	struct run *r = ctx;

	r->vm = NULL;
	r->has_vm = false;
	r->holds_place = false;
	pool_kick(r->e);
	if (sandbox_status_is_final(r->sbx.status)) {
		run_maybe_free(r);
	} else if (r->sbx.status == SBX_DESTROYING) {
		sandbox_set(&r->sbx, SBX_EV_GONE, END_NONE, NULL,
			    clock_wall_ms());
		/* A restart would find it out: store_recover. */
		write_state(r, false);
	} else if (r->sbx.status == SBX_STARTING &&
		   (why == END_PREPARE_FAILED || why == END_NOT_STARTED)) {
		cannot_start(r, why, text);
	} else {
		run_end(r, why ? why : END_VM_LOST, text, true);
	}
}

static const struct vm_ops vm_ops = {
	.progress = on_progress,
	.bound = on_bound,
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
	.gone = on_gone,
};

static void on_expiry(struct loop_timer *t)
{
	struct run *r = container_of(t, struct run, expiry);

	if (r->sbx.status >= SBX_DESTROYING)
		return;
	run_end(r, END_TIMEOUT, "the sandbox reached its expiry", false);
	vm_let_go(r, false);
}

void run_start_vm(struct run *r)
{
	struct secrets *s = &r->secrets;
	struct vm_run run = {
		.code = s->code.data,
		.code_len = s->code.len,
		.input = s->has_input ? s->input.data : NULL,
		.input_len = s->input.len,
		.config = s->has_config ? s->config.data : NULL,
		.config_len = s->config.len,
		.timeout_ms = r->cmd.timeout_ms,
		.env = s->env_list,
	};
	struct err err = {0};
	int rc;

	r->expiry.fn = on_expiry;
	r->retry.fn = on_retry;
	r->note.fn = on_note;
	loop_timer_set(r->e->loop, &r->expiry,
		       (int64_t)r->sbx.expires_in_seconds * 1000);
	r->times.was_claimed = pool_claim(r, &vm_ops);
	if (!r->times.was_claimed &&
	    vm_create(&r->vm, r->e->link, &r->spec, &vm_ops, r, &err)) {
		r->vm = NULL;
		secrets_finish(s);
		cannot_start(r, END_PREPARE_FAILED, err.text);
		return;
	}
	r->has_vm = true;
	r->e->n_vms++;
	rc = vm_run(r->vm, ENGINE_CMD, &run);
	secrets_finish(s);
	if (rc) {
		command_set(&r->cmd, CMD_EV_FAIL, END_NOT_STARTED,
			    strerror(-rc), clock_wall_ms());
		sandbox_set(&r->sbx, SBX_EV_DESTROY, END_NOT_STARTED,
			    strerror(-rc), clock_wall_ms());
		r->e->n_ended++;
		run_write(r);
		vm_let_go(r, false);
	}
}
