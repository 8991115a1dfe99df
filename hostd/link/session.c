/* The guest protocol, host side; see session.h. */
#include "../http/json_raw.h"
#include "gp_up.h"
#include "lane.h"
#include "session_priv.h"
#include <errno.h>
#include <stdio.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))
#define BIT(n)	(1u << (n))

static const char *const state_names[] = {
	[SES_BOOTING] = "booting",   [SES_PREPARING] = "preparing",
	[SES_PREPARED] = "prepared", [SES_BINDING] = "binding",
	[SES_BOUND] = "bound",	     [SES_CLOSED] = "closed",
};
static_assert(N_OF(state_names) == SES_N, "a name for every state");

const char *session_state_name(enum session_state s)
{
	return (unsigned)s < SES_N ? state_names[s] : "?";
}

void session_init(struct session *s, enum session_state state,
		  const struct session_ops *ops, void *ctx)
{
	memset(s, 0, sizeof(*s));
	s->state = state;
	s->ops = ops;
	s->ctx = ctx;
	frame_reader_init(&s->reader, GP_UP_BYTES_MAX);
}

void session_finish(struct session *s)
{
	frame_reader_finish(&s->reader);
}

void session_restart(struct session *s, enum session_state state)
{
	frame_reader_finish(&s->reader);
	frame_reader_init(&s->reader, GP_UP_BYTES_MAX);
	s->state = state;
	s->why[0] = '\0';
}

bool session_is_mid_frame(const struct session *s)
{
	return s->reader.is_broken || s->reader.buf.len > s->reader.taken;
}

void session_close(struct session *s)
{
	s->state = SES_CLOSED;
}

struct session_cmd *session_cmd_find(struct session *s, uint64_t cmd)
{
	for (size_t i = 0; i < SESSION_CMDS_MAX; i++)
		if (s->cmds[i].state != CS_FREE && s->cmds[i].cmd == cmd)
			return &s->cmds[i];
	return NULL;
}

int session_cmd_add(struct session *s, uint64_t cmd, bool is_run,
		    uint32_t timeout_ms)
{
	if (!cmd)
		return -EINVAL;
	if (session_cmd_find(s, cmd))
		return -EEXIST;
	for (size_t i = 0; i < SESSION_CMDS_MAX; i++) {
		if (s->cmds[i].state != CS_FREE)
			continue;
		s->cmds[i] = (struct session_cmd){.cmd = cmd,
						  .state = CS_SENT,
						  .is_run = is_run,
						  .timeout_ms = timeout_ms};
		return 0;
	}
	return -ENOSPC;
}

void session_cmd_end(struct session_cmd *c)
{
	c->state = CS_ENDED;
	c->deadline_ms = 0;
}

void session_cmd_free(struct session_cmd *c)
{
	memset(c, 0, sizeof(*c));
}

/* ---- rule breaks ------------------------------------------------------ */

int session_broken(struct session *s, const struct frame *f, const char *why)
{
	snprintf(s->why, sizeof(s->why),
		 "guest broke the protocol: frame type %u, command %llu, "
		 "%u bytes, while %s: %s",
		 f->head.type, (unsigned long long)f->head.cmd, f->head.len,
		 session_state_name(s->state), why);
	return -EPROTO;
}

/* Of no use, but no harm either: a late frame, a frame that says nothing. */
int session_stray(struct session *s, const struct frame *f)
{
	if (++s->n_strays <= SESSION_STRAYS_MAX)
		return 0;
	return session_broken(s, f, "too many frames that say nothing");
}

/* ---- one function per frame type -------------------------------------- */

static int on_hello(struct session *s, const struct frame *f,
		    struct session_cmd *c)
{
	static const struct gp_rule rules[] = {
		{GP_HELLO_VERSION, GP_KIND_UINT, true, 0, UINT32_MAX},
		{GP_HELLO_KERNEL, GP_KIND_TEXT, true, 1, GP_TEXT_BYTES_MAX},
		{GP_HELLO_INIT, GP_KIND_TEXT, true, 1, GP_TEXT_BYTES_MAX},
	};
	char kernel[GP_TEXT_BYTES_MAX + 1], init[GP_TEXT_BYTES_MAX + 1];
	struct gp_map m;
	const char *why;

	(void)c;
	if (gp_map_decode(f->payload, f->head.len, rules, N_OF(rules), &m,
			  &why))
		return session_broken(s, f, why);
	if (m.v[GP_HELLO_VERSION].u != GP_VERSION)
		return session_broken(s, f, "the guest speaks another version");
	gp_text_clean(kernel, sizeof(kernel), m.v[GP_HELLO_KERNEL].data,
		      m.v[GP_HELLO_KERNEL].len, false);
	gp_text_clean(init, sizeof(init), m.v[GP_HELLO_INIT].data,
		      m.v[GP_HELLO_INIT].len, false);
	s->state = SES_PREPARING;
	s->ops->hello(s->ctx, kernel, init);
	return 0;
}

/* READY and BOUND are alike: ok, or an error's text. */
static_assert((int)GP_READY_OK == (int)GP_BOUND_OK &&
		      (int)GP_READY_ERROR == (int)GP_BOUND_ERROR,
	      "one decoder for both");

static int answer(struct session *s, const struct frame *f,
		  enum session_state next,
		  void (*event)(void *ctx, const char *error))
{
	static const struct gp_rule rules[] = {
		{GP_READY_OK, GP_KIND_BOOL, true, 0, 1},
		{GP_READY_ERROR, GP_KIND_TEXT, false, 0, GP_TEXT_BYTES_MAX},
		{GP_READY_LANES, GP_KIND_UINT, false, 0, LANES_MAX},
	};
	size_t n_rules = N_OF(rules) - (next == SES_BOUND); /* no LANES */
	char text[GP_TEXT_BYTES_MAX + 1];
	struct gp_map m;
	const char *why;

	if (gp_map_decode(f->payload, f->head.len, rules, n_rules, &m, &why))
		return session_broken(s, f, why);
	s->state = next;
	if (next == SES_PREPARED)
		s->n_lanes = (uint32_t)m.v[GP_READY_LANES].u;
	if (m.v[GP_READY_OK].u) {
		event(s->ctx, NULL);
		return 0;
	}
	gp_text_clean(text, sizeof(text), m.v[GP_READY_ERROR].data,
		      m.v[GP_READY_ERROR].len, false);
	event(s->ctx, text[0] ? text : "the guest gave no reason");
	return 0;
}

static int on_ready(struct session *s, const struct frame *f,
		    struct session_cmd *c)
{
	(void)c;
	return answer(s, f, SES_PREPARED, s->ops->ready);
}

static int on_bound(struct session *s, const struct frame *f,
		    struct session_cmd *c)
{
	(void)c;
	return answer(s, f, SES_BOUND, s->ops->bound);
}

static int on_progress(struct session *s, const struct frame *f,
		       struct session_cmd *c)
{
	char text[GP_TEXT_BYTES_MAX + 1];

	(void)c;
	if (f->head.len > GP_TEXT_BYTES_MAX)
		return session_broken(s, f, "the progress text is too long");
	if (++s->n_progress > SESSION_PROGRESS_MAX)
		return session_broken(s, f, "too many progress texts");
	/* A runner is made for the next run: nobody is told. */
	if (s->state == SES_BOUND)
		return 0;
	gp_text_clean(text, sizeof(text), f->payload, f->head.len, false);
	s->ops->progress(s->ctx, text);
	return 0;
}

static int on_pong(struct session *s, const struct frame *f,
		   struct session_cmd *c)
{
	(void)c;
	if (!s->has_ping)
		return session_stray(s, f);
	s->has_ping = false;
	s->ops->pong(s->ctx);
	return 0;
}

static int on_started(struct session *s, const struct frame *f,
		      struct session_cmd *c)
{
	if (c->state != CS_SENT)
		return session_broken(s, f, "the command started twice");
	c->state = CS_STARTED;
	s->ops->started(s->ctx, c->cmd);
	return 0;
}

static int on_output(struct session *s, const struct frame *f,
		     struct session_cmd *c)
{
	struct gp_output_head h;
	uint64_t end;
	size_t len;
	int idx;

	if (f->head.len < sizeof(h))
		return session_broken(s, f, "the output has no header");
	memcpy(&h, f->payload, sizeof(h));
	len = f->head.len - sizeof(h);
	if (len > GP_OUTPUT_BYTES_MAX)
		return session_broken(s, f, "the output is over its cap");
	if (h.stream != GP_STDOUT && h.stream != GP_STDERR)
		return session_broken(s, f, "unknown stream");
	if (c->state != CS_STARTED)
		return session_broken(s, f, "output before the start");
	idx = h.stream == GP_STDERR;
	if (h.total > SESSION_COUNT_MAX || h.total < c->out[idx].total)
		return session_broken(s, f,
				      "the total went backwards or is too big");
	if (__builtin_add_overflow(h.offset, (uint64_t)len, &end) ||
	    end > h.total)
		return session_broken(s, f, "the output ends behind its total");
	if (h.offset < c->out[idx].next)
		return session_broken(s, f, "the offset went backwards");
	if (h.offset > c->out[idx].next && c->out[idx].next < OUTPUT_HEAD_BYTES)
		return session_broken(s, f, "a gap in the head of the output");
	if (!len && h.total == c->out[idx].total)
		return session_stray(s, f);
	c->out[idx].next = end;
	c->out[idx].total = h.total;
	s->ops->output(s->ctx, c->cmd, idx, h.offset, h.total,
		       f->payload + sizeof(h), len);
	return 0;
}

static const struct gp_rule ended_rules[] = {
	{GP_ENDED_HOW, GP_KIND_UINT, true, GP_END_EXITED,
	 GP_END_RESULT_NOT_JSON},
	{GP_ENDED_CODE, GP_KIND_UINT, false, 0, 255},
	{GP_ENDED_SIGNAL, GP_KIND_UINT, false, 0, 64},
	{GP_ENDED_RESULT, GP_KIND_BYTES, false, 1, GP_RESULT_BYTES_MAX},
	{GP_ENDED_ERROR, GP_KIND_TEXT, false, 0, GP_TEXT_BYTES_MAX},
	{GP_ENDED_STDOUT_BYTES, GP_KIND_UINT, false, 0, SESSION_COUNT_MAX},
	{GP_ENDED_STDERR_BYTES, GP_KIND_UINT, false, 0, SESSION_COUNT_MAX},
	{GP_ENDED_USER_US, GP_KIND_UINT, false, 0, SESSION_COUNT_MAX},
	{GP_ENDED_SYS_US, GP_KIND_UINT, false, 0, SESSION_COUNT_MAX},
	{GP_ENDED_RSS_BYTES, GP_KIND_UINT, false, 0, SESSION_COUNT_MAX},
};

/* What the numbers of an end must be to each other; NULL = all well. */
static const char *end_check(const struct gp_map *m,
			     const struct session_cmd *c)
{
	uint64_t how = m->v[GP_ENDED_HOW].u;

	if (c->state == CS_SENT && how != GP_END_NOT_STARTED &&
	    how != GP_END_CANCELLED)
		return "an end before the start";
	if (c->state == CS_STARTED && how == GP_END_NOT_STARTED)
		return "not started after the start";
	if (how == GP_END_EXITED && !m->v[GP_ENDED_CODE].is_set)
		return "an exit without its code";
	if (how == GP_END_SIGNALED && !m->v[GP_ENDED_SIGNAL].u)
		return "a signal without its number";
	if (m->v[GP_ENDED_STDOUT_BYTES].u < c->out[0].total ||
	    m->v[GP_ENDED_STDERR_BYTES].u < c->out[1].total)
		return "fewer bytes of output than were sent";
	if (m->v[GP_ENDED_RESULT].is_set &&
	    (!c->is_run || how != GP_END_EXITED || m->v[GP_ENDED_CODE].u))
		return "a result of a command that has none";
	return NULL;
}

/*
 * A runner can make what is no JSON of ours without any ill will: {1: 0,
 * "1": 0} becomes an object that names a member twice.  So that is an end
 * like any other, not a rule break.
 */
static void result_check(struct vm_end *end, char *text, size_t cap)
{
	struct json_span root;
	struct err e = {0};

	if (!end->result || !json_check(end->result, end->result_len,
					JSON_USER_DEPTH_MAX, &root, &e))
		return;
	end->how = GP_END_RESULT_NOT_JSON;
	end->result = NULL;
	end->result_len = 0;
	snprintf(text, cap, "the result is not valid JSON: %.400s", e.text);
}

static int on_ended(struct session *s, const struct frame *f,
		    struct session_cmd *c)
{
	char text[GP_TEXT_BYTES_MAX + 1];
	struct vm_end end;
	struct gp_map m;
	const char *why;

	if (gp_map_decode(f->payload, f->head.len, ended_rules,
			  N_OF(ended_rules), &m, &why))
		return session_broken(s, f, why);
	why = end_check(&m, c);
	if (why)
		return session_broken(s, f, why);
	gp_text_clean(text, sizeof(text), m.v[GP_ENDED_ERROR].data,
		      m.v[GP_ENDED_ERROR].len, true);
	end = (struct vm_end){
		.how = (enum gp_end)m.v[GP_ENDED_HOW].u,
		.code = (int)m.v[GP_ENDED_CODE].u,
		.signal = (int)m.v[GP_ENDED_SIGNAL].u,
		.result = m.v[GP_ENDED_RESULT].data,
		.result_len = m.v[GP_ENDED_RESULT].len,
		.error = text,
		.stdout_bytes = m.v[GP_ENDED_STDOUT_BYTES].u,
		.stderr_bytes = m.v[GP_ENDED_STDERR_BYTES].u,
		.user_us = m.v[GP_ENDED_USER_US].u,
		.sys_us = m.v[GP_ENDED_SYS_US].u,
		.rss_bytes = m.v[GP_ENDED_RSS_BYTES].u,
	};
	result_check(&end, text, sizeof(text));
	s->n_progress = 0;
	session_cmd_end(c);
	s->ops->ended(s->ctx, c->cmd, &end);
	return 0;
}

/* ---- which frame may come when ---------------------------------------- */

enum frame_of { OF_SESSION, OF_COMMAND, OF_FILE };

static const struct frame_rule {
	enum gp_type type;
	uint32_t states; /* bits of enum session_state */
	enum frame_of of;
	int (*fn)(struct session *s, const struct frame *f,
		  struct session_cmd *c);
} frame_rules[] = {
	{GP_HELLO, BIT(SES_BOOTING), OF_SESSION, on_hello},
	{GP_PROGRESS, BIT(SES_PREPARING) | BIT(SES_BOUND), OF_SESSION,
	 on_progress},
	{GP_READY, BIT(SES_PREPARING), OF_SESSION, on_ready},
	{GP_BOUND, BIT(SES_BINDING), OF_SESSION, on_bound},
	{GP_STARTED, BIT(SES_BOUND), OF_COMMAND, on_started},
	{GP_OUTPUT, BIT(SES_BOUND), OF_COMMAND, on_output},
	{GP_ENDED, BIT(SES_BOUND), OF_COMMAND, on_ended},
	{GP_PONG, BIT(SES_BOUND), OF_SESSION, on_pong},
	{GP_FILE_ENTRY, BIT(SES_BOUND), OF_FILE, session_file_entry},
	{GP_FILE_DATA, BIT(SES_BOUND), OF_FILE, session_file_data},
	{GP_FILE_MORE, BIT(SES_BOUND), OF_FILE, session_file_more},
	{GP_FILE_DONE, BIT(SES_BOUND), OF_FILE, session_file_done},
};

static int frame_take(struct session *s, const struct frame *f)
{
	const struct frame_rule *r = NULL;
	struct session_cmd *c = NULL;

	s->n_frames++;
	for (size_t i = 0; i < N_OF(frame_rules); i++)
		if (frame_rules[i].type == f->head.type)
			r = &frame_rules[i];
	if (!r)
		return session_broken(s, f, "the guest may not send this type");
	if (!(r->states & BIT(s->state)))
		return session_broken(s, f, "this type may not come now");
	if (r->of == OF_SESSION && f->head.cmd)
		return session_broken(s, f,
				      "a command number on a session frame");
	if (r->of == OF_COMMAND) {
		c = session_cmd_find(s, f->head.cmd);
		if (!c || c->state == CS_ENDED)
			return session_stray(s, f);
	}
	if (r->of == OF_FILE &&
	    (!s->file.number || s->file.number != f->head.cmd))
		return session_stray(s, f);
	return r->fn(s, f, c);
}

int session_feed(struct session *s, const void *data, size_t len)
{
	struct frame f;
	int rc;

	if (s->state == SES_CLOSED)
		return 0;
	rc = frame_feed(&s->reader, data, len);
	while (!rc && s->state != SES_CLOSED) {
		rc = frame_next(&s->reader, &f);
		if (rc == 0)
			return 0;
		if (rc < 0)
			break;
		rc = frame_take(s, &f);
	}
	if (rc == -EPROTO && !s->why[0])
		snprintf(s->why, sizeof(s->why),
			 "guest broke the protocol: a frame header over the "
			 "cap of %u bytes or with reserved bits",
			 GP_UP_BYTES_MAX);
	if (rc)
		session_close(s);
	return rc;
}
