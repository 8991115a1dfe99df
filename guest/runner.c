/* Waiting interpreters; see runner.h. */
#include "runner.h"
#include "dying.h"
#include "exec.h"
#include "fd.h"
#include "guest.h"
#include "payload.h"
#include "pipes.h"
#include "port.h"
#include "prepare.h"
#include "refill.h"
#include "runner_files.h"
#include "runner_lane.h"
#include "zygote.h"
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- from the runner --------------------------------------------------- */

static void answer_set(struct command *c, const struct verdict *v)
{
	if (c->answer.is_set)
		return;
	c->answer.is_set = true;
	c->answer.how = v->how;
	c->answer.code = v->code;
	if (v->how == GP_END_EXITED)
		bytes_append(&c->answer.text, v->text.data, v->text.len);
	else
		snprintf(c->error, sizeof(c->error), "%.*s",
			 (int)(v->text.len < sizeof(c->error)
				       ? v->text.len
				       : sizeof(c->error) - 1),
			 (const char *)v->text.data);
}

void runner_result(struct command *c, const void *text, size_t len)
{
	struct verdict v;

	ended_judge(RUNNER_RESULT, 0, text, len, &v);
	answer_set(c, &v);
}

static void message_handle(struct command *c, const struct runner_message *m,
			   const uint8_t *text)
{
	char progress[GP_TEXT_BYTES_MAX];
	struct verdict v;
	int32_t status;

	switch ((enum runner_message_kind)m->kind) {
	case RUNNER_PROGRESS:
		if (c->number)
			break;
		snprintf(progress, sizeof(progress), "%.*s", (int)m->len,
			 (const char *)text);
		prepare_progress(c->g, progress);
		break;
	case RUNNER_WAITING:
		if (c->is_zygote)
			zygote_waits(c);
		else if (!c->number)
			command_event(c, EV_WARM);
		break;
	case RUNNER_BORN:
		zygote_child_born(c, m->code);
		break;
	case RUNNER_DIED:
		if (c->is_zygote && m->len == sizeof(status)) {
			memcpy(&status, text, sizeof(status));
			zygote_child_died(c->g, m->code, status);
		}
		break;
	case RUNNER_ARMED:
		runner_lane_armed(c);
		break;
	case RUNNER_RESULT:
	case RUNNER_FAILED:
	case RUNNER_NOT_JSON:
	case RUNNER_TOO_LARGE:
		if (c->is_spare)
			spare_failed(c, m->code, text, m->len);
		else if (ended_judge(m->kind, m->code, text, m->len, &v))
			answer_set(c, &v);
		break;
	}
}

int runner_message_take(struct command *c)
{
	struct bytes *in = &c->channel.in;
	struct runner_message m;

	if (in->len < sizeof(m))
		return 0;
	memcpy(&m, in->data, sizeof(m));
	if (m.kind < RUNNER_PROGRESS || m.kind > RUNNER_DIED ||
	    m.len > GP_RESULT_BYTES_MAX + 1)
		return -EPROTO;
	if (in->len - sizeof(m) < m.len)
		return 0;
	message_handle(c, &m, in->data + sizeof(m));
	bytes_consume(in, sizeof(m) + m.len);
	return 1;
}

/* Reads what is there; false when the channel is at its end or broken. */
static bool channel_read(struct command *c)
{
	static uint8_t buf[64u << 10];
	ssize_t n;
	int rc;

	n = recv(c->channel.watch.fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	/* The kernel's word for a peer that closed before it had read all. */
	if (n < 0 && errno == ECONNRESET)
		c->channel.is_unread = true;
	if (n <= 0 || bytes_append(&c->channel.in, buf, (size_t)n))
		return false;
	while ((rc = runner_message_take(c)) > 0)
		;
	return rc == 0;
}

static void channel_flush(struct command *c)
{
	struct bytes *out = &c->channel.out;
	ssize_t n;

	while (out->len) {
		n = send(c->channel.watch.fd, out->data, out->len,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			out->len = 0; /* it ended; its exit is reported */
			break;
		}
		bytes_consume(out, (size_t)n);
	}
	loop_watch(&c->g->loop, &c->channel.watch,
		   out->len ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void on_channel(struct watch *w, uint32_t events)
{
	struct command *c = container_of(w, struct command, channel.watch);

	if (events & EPOLLOUT)
		channel_flush(c);
	if (!(events & ~(uint32_t)EPOLLOUT))
		return;
	/* At its end the channel is quiet; how the process ends is told by
	 * the nest. */
	if (!channel_read(c)) {
		loop_unwatch(&c->g->loop, w);
		if (c->is_spare)
			spare_closed(c);
	}
	if (c->answer.is_set && c->number)
		command_event(c, EV_ANSWER);
}

void runner_collect(struct command *c)
{
	if (c->kind != CMD_RUNNER || !c->number || c->stop_how)
		return;
	if (c->channel.watch.fd >= 0 && !c->answer.is_set)
		channel_read(c);
	if (c->g->prepare.runner == RUNNER_SHELL && c->has_exited)
		runner_files_result(c);
}

/* ---- to the runner ----------------------------------------------------- */

/* Header and parts in one write; what does not fit follows by EPOLLOUT. */
static int request_write(struct command *c, const struct wire_map *m)
{
	static const struct span null_text = {(const uint8_t *)"null", 4};
	_cleanup_bytes_ struct bytes env = {0};
	struct span part[3] = {m->v[GP_RUN_CODE].s, m->v[GP_RUN_INPUT].s,
			       m->v[GP_RUN_CONFIG].s};
	struct runner_request h = {.kind = RUNNER_REQUEST_RUN};
	struct iovec iov[5] = {{&h, sizeof(h)}};
	size_t skip;
	ssize_t n;

	for (int i = 1; i < 3; i++)
		if (!part[i].data)
			part[i] = null_text;
	if (payload_env_pack(&env, m->v[GP_RUN_ENV].s))
		return -ENOMEM;
	h.code_len = (uint32_t)part[0].len;
	h.input_len = (uint32_t)part[1].len;
	h.config_len = (uint32_t)part[2].len;
	h.env_len = (uint32_t)env.len;
	for (int i = 0; i < 3; i++)
		iov[i + 1] = (struct iovec){(void *)(uintptr_t)part[i].data,
					    part[i].len};
	iov[4] = (struct iovec){env.data, env.len};
	n = writev(c->channel.watch.fd, iov, 5);
	if (n < 0 && errno != EAGAIN)
		return 0; /* it ended; its exit is reported */
	skip = n > 0 ? (size_t)n : 0;
	for (int i = 0; i < 5; i++) {
		size_t len = iov[i].iov_len, cut = skip < len ? skip : len;
		int rc = bytes_append(&c->channel.out,
				      (char *)iov[i].iov_base + cut, len - cut);

		if (rc)
			return rc;
		skip -= cut;
	}
	if (c->channel.out.len)
		loop_watch(&c->g->loop, &c->channel.watch, EPOLLIN | EPOLLOUT);
	return 0;
}

static struct command *runner_waiting(const struct guest *g)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		struct command *c = container_of(n, struct command, node);

		if (c->kind == CMD_RUNNER && c->state == CMD_WARM &&
		    !c->is_in_prep && !process_was_killed(c->stat_fd))
			return c;
		if (c->kind == CMD_RUNNER && c->state == CMD_ARMED &&
		    runner_lane_is_free(c))
			return c;
	}
	return NULL;
}

/* `r` becomes the command `number`; STARTED leaves before the code does. */
static void run_now(struct command *r, uint64_t number,
		    const struct wire_map *m)
{
	struct guest *g = r->g;
	int rc;

	r->number = number;
	r->done = refill_soon;
	pipes_limits(r, m);
	command_event(r, EV_RUN);
	link_flush(&g->link);
	if (g->prepare.runner == RUNNER_SHELL)
		rc = runner_files_request(r, m);
	else
		rc = request_write(r, m);
	port_mark(HUTCH_MARK_RUN);
	if (!rc)
		return;
	snprintf(r->error, sizeof(r->error),
		 "the request did not reach the "
		 "runner: %s",
		 strerror(-rc));
	r->grace_ms = 0;
	command_event(r, EV_KILL);
}

void runner_ask(struct command *c, const void *payload, size_t len)
{
	struct command *r = runner_waiting(c->g);
	struct wire_map m;
	char why[128];

	if (c->g->prepare.runner == RUNNER_NONE) {
		command_refuse(c, "RUN: this template has no runner");
		return;
	}
	if (payload_decode(GP_RUN, payload, len, &m, why, sizeof(why))) {
		command_refuse(c, "%s", why);
		return;
	}
	if (r) {
		uint64_t number = c->number;

		c->number = 0;
		c->is_over = true;
		run_now(r, number, &m);
	} else if (bytes_append(&c->request, payload, len)) {
		command_refuse(c, "no memory in the sandbox's init");
	} else {
		refill_now(c->g);
	}
}

void runner_warm(struct command *c)
{
	struct nest_ask a = {.type = NEST_MOVE,
			     .tag = c->tag,
			     .slot = (uint32_t)c->slot,
			     .pid = c->pid};

	timer_clear(&c->deadline);
	nest_send(&c->g->nest, &a, NULL, 0);
}

void runner_moved(struct command *c)
{
	struct guest *g = c->g;
	pid_t pid = slot_process(&g->cg.slots[c->slot]);
	struct list *n, *tmp;

	c->is_in_prep = false;
	fd_close(&c->stat_fd);
	if (pid > 0)
		c->stat_fd = process_stat_open(pid);
	slot_mark(&g->cg.slots[c->slot]);
	/* What it printed while it started is nobody's. */
	for (int i = 0; i < 2; i++) {
		pipes_visit(c, i);
		stream_reset(&c->out[i], OUTPUT_CAP_BYTES_DEFAULT,
			     OUTPUT_CAP_BYTES_DEFAULT);
	}
	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *q = container_of(n, struct command, node);

		if (c->is_spare)
			break;
		if (q->kind != CMD_RUNNER || q->state != CMD_QUEUED ||
		    q->is_over)
			continue;
		runner_ask(q, q->request.data, q->request.len);
		break;
	}
	refill_more(g);
}

/* ---- start ------------------------------------------------------------- */

enum runner_kind runner_kind_of(const char *name, size_t len)
{
	static const char *const names[] = {"none", "python", "node", "shell"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == len && !memcmp(names[i], name, len))
			return (enum runner_kind)i;
	return (enum runner_kind)ARRAY_LEN(names);
}

unsigned runner_count(const struct guest *g)
{
	unsigned n_free = 0;

	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		n_free += c->kind == CMD_RUNNER && !c->number && !c->is_over &&
			  !c->is_zygote && c->state <= CMD_RUNNING;
	}
	return n_free;
}

int runner_channel_make(struct command *c, int *ret_theirs)
{
	int pair[2], size = CHANNEL_BYTES;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	c->channel.watch = (struct watch){.fd = pair[0], .fn = on_channel};
	*ret_theirs = pair[1];
	return loop_watch(&c->g->loop, &c->channel.watch, EPOLLIN);
}

static int start_ask(struct command *c)
{
	struct guest *g = c->g;
	struct nest_ask a = {.type = NEST_START,
			     .tag = c->tag,
			     .in_prep = 1,
			     .has_channel = 1,
			     .has_lane = g->lane.fd >= 0 && !c->is_zygote};
	int fds[7] = {-1, -1, -1, -1}, rc; /* the last three are borrowed */
	struct nest_strings s;

	rc = runner_files_make(g);
	if (rc)
		return rc;
	c->slot = slot_take(&g->cg);
	if (c->slot < 0)
		return c->slot;
	a.slot = (uint32_t)c->slot;
	c->is_in_prep = true;
	nest_begin(&g->nest, &s);
	nest_add(&s, "/workspace", strlen("/workspace"));
	runner_files_argv(g, &s,
			  c->is_zygote ? "zygote"
			  : a.has_lane ? "lane"
				       : NULL,
			  &a.n_argv);
	exec_add_env(&s, (struct span){0}, g->prepare.runner == RUNNER_SHELL,
		     &a.n_env);
	runner_files_env(g, &s, &a.n_env);
	fds[0] = runner_files_stdin(g);
	rc = s.rc ? s.rc : fds[0] < 0 ? fds[0] : pipes_open(c, fds + 1);
	rc = rc ? rc : runner_channel_make(c, &fds[3]);
	fds[4] = g->lane.fd;
	fds[5] = c->out[0].fd;
	fds[6] = c->out[1].fd;
	rc = rc ? rc : nest_send(&g->nest, &a, fds, a.has_lane ? 7 : 4);
	for (int i = 0; i < 4; i++)
		fd_close(&fds[i]);
	return rc;
}

void runner_undo(struct command *c)
{
	c->is_over = true;
	if (c->slot >= 0)
		c->g->cg.slots[c->slot].state = SLOT_FREE;
	c->slot = -1;
}

static int start(struct guest *g, bool is_zygote,
		 void (*done)(struct command *c), struct command **ret)
{
	struct command *c = command_new(g, CMD_RUNNER, 0);
	int rc;

	if (!c)
		return -ENOMEM;
	c->is_zygote = is_zygote;
	rc = start_ask(c);
	if (rc) {
		runner_undo(c);
		return rc;
	}
	c->done = done;
	c->timeout_ms = PREPARE_RUNNER_MS;
	command_event(c, EV_START);
	*ret = c;
	return 0;
}

int runner_start(struct guest *g, void (*done)(struct command *c))
{
	struct command *c;

	return start(g, false, done, &c);
}

int runner_start_zygote(struct guest *g, void (*done)(struct command *c),
			struct command **ret)
{
	return start(g, true, done, ret);
}
