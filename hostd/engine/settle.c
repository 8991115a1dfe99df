/*
 * How a command ended: what its VM said, as status, reason, code and result.
 */
#include "../http/json_raw.h"
#include "engine_priv.h"
#include "state.h"
#include <stdio.h>

#define BASE_SHELL "lbb/shell"

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

static int result_set(struct cmd *c, const void *p, size_t len)
{
	int rc = bytes_append(&c->rec.result, p, len);

	c->rec.has_result = !rc;
	return rc;
}

/* A shell script's result is its output, when that is one JSON value. */
static int result_from_stdout(struct cmd *c)
{
	const struct output *o = &c->out[0];
	struct json_span root;
	struct err err;

	if (c->rec.kind != CMD_KIND_RUN ||
	    strcmp(c->box->rec.template_base, BASE_SHELL) ||
	    !output_is_whole(o) || o->head.len > GP_RESULT_BYTES_MAX ||
	    json_check(o->head.data, o->head.len, JSON_USER_DEPTH_MAX, &root,
		       &err))
		return 0;
	return result_set(c, root.at, root.len);
}

/* The result of a command that ended with exit code 0; 0 or -ENOMEM. */
static int result_take(struct cmd *c, const struct vm_end *end)
{
	if (!end->result)
		return result_from_stdout(c);
	return result_set(c, end->result, end->result_len);
}

static void numbers_take(struct cmd *c, const struct vm_end *end)
{
	const uint64_t totals[] = {end->stdout_bytes, end->stderr_bytes};

	c->rec.user_us = end->user_us;
	c->rec.sys_us = end->sys_us;
	c->rec.rss_bytes = end->rss_bytes;
	for (int i = 0; i < 2; i++)
		if (totals[i] > c->out[i].total)
			c->out[i].total = totals[i];
}

static void exit_take(struct cmd *c, const struct vm_end *end)
{
	switch (end->how) {
	case GP_END_EXITED:
		c->rec.exit_code = end->code & 0xff;
		break;
	case GP_END_SIGNALED:
	case GP_END_OOM:
		c->rec.signal = end->signal;
		break;
	case GP_END_RESULT_TOO_LARGE:
	case GP_END_RESULT_NOT_JSON:
		/* The code ended well, the run did not: never 0. */
		c->rec.exit_code = end->code & 0xff ? end->code & 0xff : 1;
		break;
	case GP_END_TIMED_OUT:
	case GP_END_CANCELLED:
	case GP_END_NOT_STARTED:
		break;
	}
}

void cmd_settle(struct cmd *c, const struct vm_end *end, int64_t now)
{
	enum command_event ev = ends[end->how].ev;
	enum end_reason why = ends[end->how].why;
	const char *text = end->error;
	char made[128];

	numbers_take(c, end);
	exit_take(c, end);
	if (end->how == GP_END_EXITED && !c->rec.exit_code) {
		ev = CMD_EV_SUCCEED;
		why = END_NONE;
		if (end->result && end->result_len > GP_RESULT_BYTES_MAX) {
			ev = CMD_EV_FAIL;
			why = END_RESULT_TOO_LARGE;
			c->rec.exit_code = 1;
			snprintf(made, sizeof(made),
				 "the result has %zu bytes; at most %u are "
				 "taken",
				 end->result_len, GP_RESULT_BYTES_MAX);
			text = made;
		} else if (result_take(c, end)) {
			/* It succeeded, but nobody will know with what. */
			ev = CMD_EV_LOSE;
			why = END_VM_LOST;
			c->rec.exit_code = -1;
			text = "the daemon had no memory for the result";
		}
	} else if (end->how == GP_END_OOM && (!text || !*text)) {
		snprintf(made, sizeof(made),
			 "out of memory: it took all that a sandbox of "
			 "%u MiB has for code; see limits.memory_mib",
			 c->box->rec.limits.memory_mib);
		text = made;
	}
	command_set(&c->rec, ev, why, text, now);
}
