/* Programs started for the host; see exec.h. */
#include "exec.h"
#include "fd.h"
#include "guest.h"
#include "payload.h"
#include "pipes.h"
#include "spare.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* bash opens many locale files at each start when LANG is set, so the shell's
 * template goes without. */
static const char *const env_base[] = {
	("PATH=" PATH_DEFAULT),
	"HOME=/workspace",
	"USER=sandbox",
	"LOGNAME=sandbox",
	"SHELL=/bin/bash",
	"TMPDIR=/tmp",
	"TERM=dumb",
	"PYTHONDONTWRITEBYTECODE=1",
};
#define ENV_LANG "LANG=C.UTF-8"

static size_t name_len(const void *p, size_t len)
{
	const char *eq = memchr(p, '=', len);

	return eq ? (size_t)(eq - (const char *)p) : len;
}

static bool is_in_list(struct span list, const char *pair)
{
	size_t n = name_len(pair, strlen(pair));
	struct span item;

	while (wire_list_next(&list, &item))
		if (name_len(item.data, item.len) == n &&
		    !memcmp(item.data, pair, n))
			return true;
	return false;
}

static void add_one(struct nest_strings *s, struct span list, const char *pair,
		    uint32_t *ret_n)
{
	if (is_in_list(list, pair))
		return;
	nest_add(s, pair, strlen(pair));
	++*ret_n;
}

void exec_add_env(struct nest_strings *s, struct span list, bool is_shell,
		  uint32_t *ret_n)
{
	struct span item;

	for (size_t i = 0; i < ARRAY_LEN(env_base); i++)
		add_one(s, list, env_base[i], ret_n);
	if (!is_shell)
		add_one(s, list, ENV_LANG, ret_n);
	while (wire_list_next(&list, &item)) {
		nest_add(s, item.data, item.len);
		++*ret_n;
	}
}

int exec_stdin_make(const struct guest *g, struct span data)
{
	int fd, rc;

	if (!data.len)
		return fcntl(g->null_fd, F_DUPFD_CLOEXEC, 0);
	fd = memfd_create("stdin", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = fd_pwrite_all(fd, data.data, data.len, 0);
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

void exec_add_all(const struct guest *g, struct nest_strings *s,
		  const struct wire_map *m, uint32_t *ret_argc,
		  uint32_t *ret_envc)
{
	const struct wire_value *cwd = &m->v[GP_EXEC_CWD];
	struct span argv = m->v[GP_EXEC_ARGV].s, item;

	if (cwd->is_set)
		nest_add(s, cwd->s.data, cwd->s.len);
	else
		nest_add(s, "/workspace", strlen("/workspace"));
	while (wire_list_next(&argv, &item)) {
		nest_add(s, item.data, item.len);
		++*ret_argc;
	}
	exec_add_env(s, m->v[GP_RUN_ENV].s, g->prepare.runner == RUNNER_SHELL,
		     ret_envc);
}

/* Everything but the process itself; 0 or -errno with *ret_what. */
static int start_now(struct command *c, const struct wire_map *m,
		     const char **ret_what)
{
	struct nest_ask a = {.type = NEST_START, .tag = c->tag};
	int fds[3] = {-1, -1, -1}, rc;
	struct nest_strings s;

	*ret_what = "argv and env";
	nest_begin(&c->g->nest, &s);
	exec_add_all(c->g, &s, m, &a.n_argv, &a.n_env);
	if (s.rc)
		return s.rc;
	*ret_what = "control group";
	c->slot = slot_take(&c->g->cg);
	if (c->slot < 0)
		return c->slot;
	a.slot = (uint32_t)c->slot;
	slot_mark(&c->g->cg.slots[c->slot]);
	*ret_what = "stdin";
	fds[0] = exec_stdin_make(c->g, m->v[GP_EXEC_STDIN].s);
	rc = fds[0] < 0 ? fds[0] : 0;
	if (!rc) {
		*ret_what = "pipes";
		rc = pipes_open(c, fds + 1);
	}
	if (!rc)
		rc = nest_send(&c->g->nest, &a, fds, 3);
	for (int i = 0; i < 3; i++)
		fd_close(&fds[i]);
	return rc;
}

void exec_ask(struct command *c, const void *payload, size_t len)
{
	struct wire_map m;
	char why[128];
	const char *what = "";
	int rc;

	if (payload_decode(GP_EXEC, payload, len, &m, why, sizeof(why))) {
		command_refuse(c, "%s", why);
		return;
	}
	if (!m.v[GP_EXEC_ARGV].u) {
		command_refuse(c, "EXEC: argv is empty");
		return;
	}
	if (spare_take(c, &m, payload, len))
		return;
	if (c->g->nest.is_busy) {
		if (bytes_append(&c->request, payload, len))
			command_refuse(c, "no memory in the sandbox's init");
		return;
	}
	pipes_limits(c, &m);
	rc = start_now(c, &m, &what);
	if (rc)
		command_refuse(c, "%s: %s (%s)", what, strerrorname_np(-rc),
			       strerror(-rc));
	else
		command_event(c, EV_START);
}

void exec_next(struct guest *g)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (g->nest.is_busy)
			return;
		if (c->kind != CMD_EXEC || c->state != CMD_QUEUED)
			continue;
		exec_ask(c, c->request.data, c->request.len);
		bytes_finish(&c->request);
	}
}

int exec_internal(struct guest *g, const char *const *argv, uint64_t timeout_ms,
		  void (*done)(struct command *c))
{
	struct command *c = command_new(g, CMD_EXEC, 0);
	struct nest_ask a = {.type = NEST_START};
	struct nest_strings s;
	int fds[3] = {-1, -1, -1}, rc;

	if (!c)
		return -ENOMEM;
	a.tag = c->tag;
	c->done = done;
	c->timeout_ms = timeout_ms;
	nest_begin(&g->nest, &s);
	nest_add(&s, "/", 1);
	for (; *argv; argv++, a.n_argv++)
		nest_add(&s, *argv, strlen(*argv));
	exec_add_env(&s, (struct span){0}, g->prepare.runner == RUNNER_SHELL,
		     &a.n_env);
	c->slot = slot_take(&g->cg);
	fds[0] = fcntl(g->null_fd, F_DUPFD_CLOEXEC, 0);
	rc = c->slot < 0 ? c->slot : pipes_open(c, fds + 1);
	if (!rc) {
		a.slot = (uint32_t)c->slot;
		/* Page cache of the template's programs is nobody's. */
		a.in_prep = c->is_in_prep = true;
		rc = nest_send(&g->nest, &a, fds, 3);
	}
	for (int i = 0; i < 3; i++)
		fd_close(&fds[i]);
	if (rc)
		c->is_over = true;
	else
		command_event(c, EV_START);
	return rc;
}
