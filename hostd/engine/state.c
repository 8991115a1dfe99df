/* The states of sandboxes and commands; see state.h. */
#include "state.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static void reason_set(char dst[REASON_BYTES_MAX], const char *text)
{
	/* May come from the guest: only what is printable is kept. */
	struct log_text t = log_text(text, text ? strlen(text) : 0);

	snprintf(dst, REASON_BYTES_MAX, "%.*s", REASON_BYTES_MAX - 1, t.s);
}

/* ---- sandbox
 * ------------------------------------------------------------------ */

static void sbx_started(struct sandbox_rec *r, int64_t now_ms)
{
	r->last_active_ms = record_time(now_ms, r->created_ms);
	if (!r->started_ms) /* the first time */
		r->started_ms = r->last_active_ms;
	r->progress[0] = 0;
}

static void sbx_ended(struct sandbox_rec *r, int64_t now_ms)
{
	r->ended_ms = record_end_time(now_ms, r->created_ms, r->started_ms);
	r->progress[0] = 0;
}

static void sbx_stopped(struct sandbox_rec *r, int64_t now_ms)
{
	r->stopped_ms = record_time(now_ms, r->started_ms);
	r->progress[0] = 0;
}

static const struct {
	enum sandbox_status from;
	enum sandbox_event ev;
	enum sandbox_status to;
	void (*note)(struct sandbox_rec *r, int64_t now_ms);
} sandbox_rules[] = {
	{SBX_STARTING, SBX_EV_BOUND, SBX_RUNNING, sbx_started},
	{SBX_STARTING, SBX_EV_CANNOT_START, SBX_FAILED, sbx_ended},
	{SBX_STARTING, SBX_EV_DESTROY, SBX_DESTROYING, NULL},
	{SBX_STARTING, SBX_EV_GONE, SBX_LOST, sbx_ended},
	{SBX_RUNNING, SBX_EV_DESTROY, SBX_DESTROYING, NULL},
	{SBX_RUNNING, SBX_EV_GONE, SBX_LOST, sbx_ended},
	{SBX_DESTROYING, SBX_EV_GONE, SBX_DESTROYED, sbx_ended},

	{SBX_RUNNING, SBX_EV_STOP, SBX_STOPPING, NULL},
	{SBX_STOPPING, SBX_EV_STOPPED, SBX_STOPPED, sbx_stopped},
	{SBX_STOPPING, SBX_EV_GO_ON, SBX_RUNNING, NULL},
	{SBX_STOPPING, SBX_EV_DESTROY, SBX_DESTROYING, NULL},
	{SBX_STOPPING, SBX_EV_GONE, SBX_LOST, sbx_ended},
	{SBX_STOPPED, SBX_EV_RESUME, SBX_STARTING, NULL},
	{SBX_STARTING, SBX_EV_CANNOT_RESUME, SBX_STOPPED, NULL},
	{SBX_STOPPED, SBX_EV_DESTROY, SBX_DESTROYING, NULL},
	{SBX_STOPPED, SBX_EV_GONE, SBX_LOST, sbx_ended},
};

int sandbox_set(struct sandbox_rec *r, enum sandbox_event ev,
		enum end_reason why, const char *text, int64_t now_ms)
{
	for (size_t i = 0; i < N_OF(sandbox_rules); i++) {
		if (sandbox_rules[i].from != r->status ||
		    sandbox_rules[i].ev != ev)
			continue;
		log_info("%s status=%s was=%s reason=%s", r->id,
			 sandbox_status_name(sandbox_rules[i].to),
			 sandbox_status_name(r->status), end_reason_name(why));
		r->status = sandbox_rules[i].to;
		if (sandbox_rules[i].note)
			sandbox_rules[i].note(r, now_ms);
		/* The first reason stays: `gone` after `destroy` adds none. */
		if (!r->reason && why) {
			r->reason = why;
			reason_set(r->reason_text, text);
		}
		return 0;
	}
	log_debug("%s status=%s has no way for event %d", r->id,
		  sandbox_status_name(r->status), (int)ev);
	return -EINVAL;
}

/* ---- command
 * ------------------------------------------------------------------ */

static void cmd_started(struct command_rec *r, int64_t now_ms)
{
	r->started_ms = record_time(now_ms, r->created_ms);
}

static void cmd_ended(struct command_rec *r, int64_t now_ms)
{
	r->ended_ms = record_end_time(now_ms, r->created_ms, r->started_ms);
}

static const struct {
	enum command_status from;
	enum command_event ev;
	enum command_status to;
	void (*note)(struct command_rec *r, int64_t now_ms);
} command_rules[] = {
	{CMD_QUEUED, CMD_EV_START, CMD_RUNNING, cmd_started},
	{CMD_QUEUED, CMD_EV_FAIL, CMD_FAILED, cmd_ended},
	{CMD_QUEUED, CMD_EV_CANCEL, CMD_CANCELLED, cmd_ended},
	{CMD_QUEUED, CMD_EV_LOSE, CMD_LOST, cmd_ended},
	{CMD_RUNNING, CMD_EV_SUCCEED, CMD_SUCCEEDED, cmd_ended},
	{CMD_RUNNING, CMD_EV_FAIL, CMD_FAILED, cmd_ended},
	{CMD_RUNNING, CMD_EV_TIME_OUT, CMD_TIMED_OUT, cmd_ended},
	{CMD_RUNNING, CMD_EV_CANCEL, CMD_CANCELLED, cmd_ended},
	{CMD_RUNNING, CMD_EV_LOSE, CMD_LOST, cmd_ended},
};

int command_set(struct command_rec *r, enum command_event ev,
		enum end_reason why, const char *text, int64_t now_ms)
{
	for (size_t i = 0; i < N_OF(command_rules); i++) {
		if (command_rules[i].from != r->status ||
		    command_rules[i].ev != ev)
			continue;
		log_info("%s command=%s status=%s was=%s reason=%s", r->sandbox,
			 r->id, command_status_name(command_rules[i].to),
			 command_status_name(r->status), end_reason_name(why));
		r->status = command_rules[i].to;
		command_rules[i].note(r, now_ms);
		r->reason = why;
		reason_set(r->reason_text, text);
		return 0;
	}
	log_debug("%s command=%s status=%s has no way for event %d", r->sandbox,
		  r->id, command_status_name(r->status), (int)ev);
	return -EINVAL;
}
