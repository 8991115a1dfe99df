/* Frames about commands; see report.h. */
#include "report.h"
#include "ended.h"
#include "guest.h"
#include "port.h"
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

/* Is it one that the host asked for? */
static bool is_told(const struct command *c)
{
	return c->number && !c->is_foreign;
}

void report_started(struct command *c)
{
	if (is_told(c))
		link_send(&c->g->link, GP_STARTED, c->number, NULL);
}

/* ---- output ------------------------------------------------------------ */

static void stream_send(struct command *c, int i, bool is_last, uint64_t now)
{
	struct stream *s = &c->out[i];
	const uint8_t *p;
	uint64_t offset;
	size_t len;

	while ((p = stream_next(s, GP_OUTPUT_BYTES_MAX, &offset, &len))) {
		bool is_tail = offset >= s->head.len;

		if (!is_last && link_is_full(&c->g->link))
			return;
		if (!is_last && is_tail && now < c->tail_at_ns)
			return;
		if (!c->g->link.is_up)
			return;
		link_send_output(&c->g->link, c->number,
				 i ? GP_STDERR : GP_STDOUT, offset, s->total, p,
				 len);
		stream_sent(s, offset, len);
	}
}

static void output_send(struct command *c, bool is_last)
{
	uint64_t now = loop_now_ns();
	bool is_tail_due = now >= c->tail_at_ns;

	for (int i = 0; i < 2; i++)
		stream_send(c, i, is_last, now);
	if (is_tail_due)
		c->tail_at_ns = now + OUTPUT_TAIL_MS * NS_PER_MS;
}

void report_output(struct command *c)
{
	if (!is_told(c))
		return;
	output_send(c, false);
	report_output_later(c);
}

void report_output_later(struct command *c)
{
	uint64_t now, at, head = 0;

	if (!is_told(c) || c->state == CMD_ENDED || link_is_full(&c->g->link) ||
	    !(stream_unsent(&c->out[0]) + stream_unsent(&c->out[1])))
		return;
	for (int i = 0; i < 2; i++)
		if (c->out[i].sent < c->out[i].head.len)
			head += c->out[i].head.len - c->out[i].sent;
	now = loop_now_ns();
	if (head >= OUTPUT_BATCH_BYTES) {
		output_send(c, false);
		return;
	}
	/* Bytes past the head wait for the next sending of the tail. */
	at = now + OUTPUT_BATCH_MS * NS_PER_MS;
	if (!head && at < c->tail_at_ns)
		at = c->tail_at_ns;
	if (!c->flush.is_set || c->flush.at_ns > at)
		timer_set(&c->g->loop, &c->flush, at);
}

/* ---- the end ----------------------------------------------------------- */

static struct ended end_of(const struct command *c, const struct slot_use *u)
{
	struct ended e = {.error = c->error[0] ? c->error : NULL,
			  .stream_bytes = {c->out[0].total, c->out[1].total}};

	if (c->has_exited && WIFEXITED(c->status))
		e.code = WEXITSTATUS(c->status);
	if (c->has_exited && WIFSIGNALED(c->status))
		e.signal = WTERMSIG(c->status);
	if (c->stop_how) {
		e.how = c->stop_how;
	} else if (e.signal == SIGKILL && u->oom_kills) {
		e.how = GP_END_OOM;
	} else if (e.signal) {
		e.how = GP_END_SIGNALED;
	} else if (c->answer.is_set) {
		e.how = c->answer.how;
		e.code = c->answer.code;
		if (e.how == GP_END_EXITED && c->answer.text.len)
			e.result = (struct span){c->answer.text.data,
						 c->answer.text.len};
	} else {
		e.how = GP_END_EXITED;
	}
	if (e.how != GP_END_NOT_STARTED) {
		e.user_us = u->user_us;
		e.sys_us = u->sys_us;
		e.rss_bytes = u->rss_bytes;
	}
	return e;
}

void report_ended(struct command *c)
{
	struct slot_use u = {0};
	struct ended e;

	if (!is_told(c))
		return;
	if (c->slot >= 0) {
		struct slot *s = &c->g->cg.slots[c->slot];

		u = slot_read(s);
		if (c->has_exited && WIFSIGNALED(c->status))
			u.oom_kills = slot_oom_kills(s) - s->oom_kills;
	}
	e = end_of(c, &u);
	if (ended_put(&c->ended, &e)) {
		/* No memory for the result: the first bytes, which fit (see
		 * command_new), tell the end all the same. */
		if (e.how == GP_END_EXITED && e.result.data)
			e.how = GP_END_RESULT_TOO_LARGE;
		e.result = (struct span){0};
		e.error = NULL;
		c->ended.len = 0;
		ended_put(&c->ended, &e);
	}
	output_send(c, true);
	link_send(&c->g->link, GP_ENDED, c->number, &c->ended);
	port_mark(HUTCH_MARK_ENDED);
}

void report_refused(struct guest *g, uint64_t number, const char *text)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};

	wire_put_map(&w, 2);
	wire_put_uint(&w, GP_ENDED_HOW, GP_END_NOT_STARTED);
	wire_put_text(&w, GP_ENDED_ERROR, text);
	if (!w.rc)
		link_send(&g->link, GP_ENDED, number, &b);
}

/* ---- the connection ---------------------------------------------------- */

void report_room(struct guest *g)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
		report_output_later(container_of(n, struct command, node));
}

void report_again(struct guest *g)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (!is_told(c) || c->state == CMD_QUEUED ||
		    c->state == CMD_STARTING)
			continue;
		stream_rewind(&c->out[0]);
		stream_rewind(&c->out[1]);
		if (c->answer.how != GP_END_NOT_STARTED)
			report_started(c);
		if (c->state != CMD_ENDED) {
			report_output_later(c);
			continue;
		}
		output_send(c, true);
		link_send(&g->link, GP_ENDED, c->number, &c->ended);
	}
}
