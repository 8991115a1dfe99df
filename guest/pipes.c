/* The two pipes of a command; see pipes.h. */
#include "pipes.h"
#include "fd.h"
#include "guest.h"
#include "report.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

bool pipes_visit(struct command *c, int i)
{
	int rc = stream_pull(&c->out[i], c->g->null_fd);

	if (rc == -EPIPE)
		loop_forget(&c->watch[i]);
	return rc == 1;
}

static void streams_check_end(struct command *c)
{
	if (c->out[0].fd < 0 && c->out[1].fd < 0)
		command_event(c, EV_CLOSED);
}

/*
 * A stream that was just read is left alone for a while: its bytes are sent in
 * batches anyway, and a visit at every write would cost more than the writes.
 * Past the head, where bytes are mostly counted, the pause grows with what a
 * visit costs here.
 */
static void streams_pause(struct command *c, bool is_flood, uint64_t visit_ns)
{
	uint64_t ms = is_flood ? visit_ns * 4 / NS_PER_MS : OUTPUT_BATCH_MS;

	if (ms < FLOOD_PAUSE_MS_MIN)
		ms = FLOOD_PAUSE_MS_MIN;
	if (ms > FLOOD_PAUSE_MS_MAX)
		ms = FLOOD_PAUSE_MS_MAX;
	if (!c->pause.is_set)
		timer_set_in(&c->g->loop, &c->pause, ms);
}

/* A busy stream stays paused, a quiet one is watched again. */
static void on_pause(struct timer *t)
{
	struct command *c = container_of(t, struct command, pause);
	uint64_t from = loop_now_ns();
	bool is_busy = false, is_flood = false;

	for (int i = 0; i < 2; i++) {
		if (c->out[i].fd < 0 || c->watch[i].events)
			continue;
		if (pipes_visit(c, i)) {
			is_busy = true;
			is_flood |= stream_is_past_head(&c->out[i]);
		} else if (c->out[i].fd >= 0) {
			loop_watch_once(&c->g->loop, &c->watch[i], EPOLLIN);
		}
	}
	report_output_later(c);
	if (is_busy)
		streams_pause(c, is_flood, loop_now_ns() - from);
	streams_check_end(c);
}

static void stream_event(struct command *c, int i)
{
	uint64_t from = loop_now_ns();

	c->watch[i].events = 0; /* it was watched for one event */
	pipes_visit(c, i);
	if (c->out[i].fd >= 0)
		streams_pause(c, stream_is_past_head(&c->out[i]),
			      loop_now_ns() - from);
	report_output_later(c);
	streams_check_end(c);
}

static void on_stdout(struct watch *w, uint32_t events)
{
	(void)events;
	stream_event(container_of(w, struct command, watch[0]), 0);
}

static void on_stderr(struct watch *w, uint32_t events)
{
	(void)events;
	stream_event(container_of(w, struct command, watch[1]), 1);
}

void pipes_unwatch(struct command *c)
{
	timer_clear(&c->pause);
	timer_clear(&c->flush);
	for (int i = 0; i < 2; i++)
		loop_unwatch(&c->g->loop, &c->watch[i]);
}

void pipes_watch(struct command *c)
{
	for (int i = 0; i < 2; i++)
		if (c->out[i].fd >= 0)
			loop_watch_once(&c->g->loop, &c->watch[i], EPOLLIN);
}

void pipes_close(struct command *c)
{
	for (int i = 0; i < 2; i++) {
		loop_unwatch(&c->g->loop, &c->watch[i]);
		fd_close(&c->out[i].fd);
	}
}

void pipes_init(struct command *c)
{
	c->pause.fn = on_pause;
	for (int i = 0; i < 2; i++)
		stream_init(&c->out[i], -1, OUTPUT_CAP_BYTES_DEFAULT,
			    OUTPUT_CAP_BYTES_DEFAULT);
}

int pipes_open(struct command *c, int ret_fds[2])
{
	static void (*const fns[])(struct watch *, uint32_t) = {on_stdout,
								on_stderr};

	ret_fds[0] = ret_fds[1] = -1;
	for (int i = 0; i < 2; i++) {
		int p[2], rc;

		if (pipe2(p, O_CLOEXEC))
			return -errno;
		/* The writer blocks; only the reader must not. */
		fcntl(p[0], F_SETFL, O_NONBLOCK);
		fcntl(p[1], F_SETPIPE_SZ, PIPE_BYTES);
		c->out[i].fd = p[0];
		ret_fds[i] = p[1];
		c->watch[i] = (struct watch){.fd = p[0], .fn = fns[i]};
		rc = loop_watch_once(&c->g->loop, &c->watch[i], EPOLLIN);
		if (rc)
			return rc;
	}
	return 0;
}

void pipes_limits(struct command *c, const struct wire_map *m)
{
	const struct wire_value *head = &m->v[GP_RUN_HEAD_MAX];
	const struct wire_value *tail = &m->v[GP_RUN_TAIL_MAX];
	const struct wire_value *timeout = &m->v[GP_RUN_TIMEOUT_MS];

	c->timeout_ms = timeout->is_set ? timeout->u : TIMEOUT_MS_DEFAULT;
	for (int i = 0; i < 2; i++)
		stream_reset(&c->out[i],
			     head->is_set ? head->u : OUTPUT_CAP_BYTES_DEFAULT,
			     tail->is_set ? tail->u : OUTPUT_CAP_BYTES_DEFAULT);
}
