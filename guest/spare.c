/* Interpreters that wait for their command line; see spare.h. */
#include "spare.h"
#include "dying.h"
#include "exec.h"
#include "fd.h"
#include "guest.h"
#include "pipes.h"
#include "port.h"
#include "refill.h"
#include "runner.h"
#include "runner_files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

/* In a row, before they wait: then it does not work here. */
#define ENDS_MAX 2

static bool is_free(const struct command *c)
{
	return c->is_spare && !c->number && !c->is_over;
}

unsigned spare_count(const struct guest *g)
{
	unsigned n_free = 0;

	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		n_free += is_free(c) && c->state <= CMD_RUNNING;
	}
	return n_free;
}

bool spare_is_coming(const struct guest *g)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		if (is_free(c) && c->is_in_prep && c->state <= CMD_RUNNING)
			return true;
	}
	return false;
}

bool spare_is_wanted(const struct guest *g)
{
	return g->spares.ends < ENDS_MAX && spare_count(g) < g->spares.wanted;
}

/* ---- start ------------------------------------------------------------- */

static void spare_ended(struct command *c)
{
	struct guest *g = c->g;

	port_log("a waiting interpreter ended: status 0x%x %s",
		 (unsigned)c->status, c->error);
	if (c->is_in_prep)
		g->spares.ends++;
	refill_more(g);
}

/* "NAME=xxx…" and, as an argument, the same. */
static void strings_fill(struct nest *n, struct nest_strings *s,
			 struct nest_ask *a)
{
	static const char preload[] = "LD_PRELOAD=" RUNNER_DIR "spare.so";
	char pad[sizeof(SPARE_PAD) + SPARE_PAD_BYTES];

	memset(pad, 'x', sizeof(pad));
	memcpy(pad, SPARE_PAD "=", sizeof(SPARE_PAD));
	nest_begin(n, s);
	nest_add(s, "/", 1);
	nest_add(s, "python3", strlen("python3"));
	nest_add(s, pad, sizeof(pad));
	a->n_argv = 2;
	exec_add_env(s, (struct span){0}, false, &a->n_env);
	nest_add(s, preload, strlen(preload));
	nest_add(s, pad, sizeof(pad));
	a->n_env += 2;
}

static int start_ask(struct command *c)
{
	struct guest *g = c->g;
	struct nest_ask a = {.type = NEST_START,
			     .tag = c->tag,
			     .in_prep = 1,
			     .has_channel = 1};
	int fds[4] = {-1, -1, -1, -1}, rc;
	struct nest_strings s;

	rc = runner_files_make(g);
	if (rc)
		return rc;
	c->slot = slot_take(&g->cg);
	if (c->slot < 0)
		return c->slot;
	a.slot = (uint32_t)c->slot;
	c->is_in_prep = true;
	strings_fill(&g->nest, &s, &a);
	fds[0] = fcntl(g->null_fd, F_DUPFD_CLOEXEC, 0);
	rc = s.rc ? s.rc : fds[0] < 0 ? -errno : pipes_open(c, fds + 1);
	rc = rc ? rc : runner_channel_make(c, &fds[3]);
	rc = rc ? rc : nest_send(&g->nest, &a, fds, 4);
	for (int i = 0; i < 4; i++)
		fd_close(&fds[i]);
	return rc;
}

int spare_start(struct guest *g)
{
	struct command *c = command_new(g, CMD_EXEC, 0);
	int rc;

	if (!c)
		return -ENOMEM;
	c->is_spare = true;
	rc = start_ask(c);
	if (rc) {
		runner_undo(c);
		return rc;
	}
	c->done = spare_ended;
	c->timeout_ms = PREPARE_RUNNER_MS;
	command_event(c, EV_START);
	return 0;
}

/* ---- the command ------------------------------------------------------- */

static struct command *waiting(const struct guest *g)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		struct command *c = container_of(n, struct command, node);

		if (is_free(c) && c->state == CMD_WARM && !c->is_in_prep &&
		    !c->has_exited && !process_was_killed(c->stat_fd))
			return c;
	}
	return NULL;
}

/* Python by its name, without options: the spare itself looks closer. */
static bool is_for_spare(struct span argv)
{
	static const char name[] = "python";
	const uint8_t *base;
	struct span item;

	if (!wire_list_next(&argv, &item))
		return false;
	base = memrchr(item.data, '/', item.len);
	base = base ? base + 1 : item.data;
	if (item.len - (size_t)(base - item.data) < strlen(name) ||
	    memcmp(base, name, strlen(name)))
		return false;
	if (!wire_list_next(&argv, &item) || item.len < 2 ||
	    item.data[0] != '-')
		return true;
	return item.len == 2 && (item.data[1] == 'c' || item.data[1] == 'm') &&
	       wire_list_next(&argv, &item);
}

/* Header and strings in one message; the socket holds more than that. */
static int request_send(const struct command *r, const struct wire_map *m)
{
	static struct {
		struct runner_request h;
		char text[SPARE_STRINGS_BYTES_MAX];
	} ask;
	struct nest_strings s = {.at = ask.text,
				 .end = ask.text + sizeof(ask.text)};
	int fd, rc;

	ask.h = (struct runner_request){.kind = RUNNER_REQUEST_EXEC};
	exec_add_all(r->g, &s, m, &ask.h.argc, &ask.h.envc);
	if (s.rc)
		return s.rc;
	ask.h.code_len = (uint32_t)(s.at - ask.text);
	fd = exec_stdin_make(r->g, m->v[GP_EXEC_STDIN].s);
	if (fd < 0)
		return fd;
	rc = fd_send(r->channel.watch.fd, &ask, sizeof(ask.h) + ask.h.code_len,
		     &fd, 1);
	fd_close(&fd);
	return rc;
}

bool spare_take(struct command *c, const struct wire_map *m,
		const void *payload, size_t len)
{
	struct command *r = waiting(c->g);

	if (!r || !is_for_spare(m->v[GP_EXEC_ARGV].s))
		return false;
	if (bytes_append(&r->request, payload, len) || request_send(r, m)) {
		bytes_finish(&r->request);
		return false;
	}
	r->number = c->number;
	c->number = 0;
	c->is_over = true;
	r->done = refill_soon;
	pipes_limits(r, m);
	slot_mark(&r->g->cg.slots[r->slot]);
	command_event(r, EV_START);
	return true;
}

static void told(struct command *c, struct nest_tell *t)
{
	if (!c->number || c->state != CMD_STARTING)
		return;
	t->tag = c->tag;
	command_on_tell(c->g, t);
}

/* It was killed before it had read the request: its end is nobody's, and the
 * command's is another's. */
static bool ask_again(struct command *r)
{
	_cleanup_bytes_ struct bytes request = {0};
	struct command *c;

	if (!r->channel.is_unread || r->stop_how || r->is_foreign)
		return false;
	c = command_new(r->g, CMD_EXEC, r->number);
	if (!c)
		return false;
	port_log("a waiting interpreter was killed as it became a command");
	request = r->request;
	r->request = (struct bytes){0};
	r->number = 0;
	r->done = spare_ended;
	command_event(r, EV_FAILED);
	exec_ask(c, request.data, request.len);
	return true;
}

void spare_closed(struct command *c)
{
	struct nest_tell t = {.type = NEST_STARTED, .pid = c->pid};

	if (!c->number || c->state != CMD_STARTING || ask_again(c))
		return;
	bytes_finish(&c->request);
	told(c, &t);
}

void spare_failed(struct command *c, uint32_t error, const void *step,
		  size_t len)
{
	struct nest_tell t = {.type = NEST_FAILED, .error = (int32_t)error};

	snprintf(t.what, sizeof(t.what), "%.*s", (int)len, (const char *)step);
	told(c, &t);
}
