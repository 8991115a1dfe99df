/* Runners by fork; see zygote.h. */
#include "zygote.h"
#include "fd.h"
#include "guest.h"
#include "pipes.h"
#include "port.h"
#include "prepare.h"
#include "refill.h"
#include "runner.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#define ENDS_MAX 2

bool zygote_is_wanted(const struct guest *g)
{
	return g->zygote.runners > 1 && g->zygote.ends < ENDS_MAX;
}

unsigned zygote_runners(const struct guest *g)
{
	return zygote_is_wanted(g) ? g->zygote.runners : 1;
}

/* Runners that it was asked for and did not make. */
static void forks_fail(struct guest *g)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (!c->is_forked || c->state != CMD_STARTING)
			continue;
		snprintf(c->error, sizeof(c->error), "the zygote ended");
		command_event(c, EV_FAILED);
	}
}

static void zygote_ended(struct command *c)
{
	struct guest *g = c->g;

	port_log("the zygote ended: status 0x%x %s", (unsigned)c->status,
		 c->error);
	g->zygote.c = NULL;
	g->zygote.is_ready = false;
	g->zygote.ends++;
	forks_fail(g);
	if (g->phase == PHASE_PREPARING)
		prepare_waits(g);
	else
		refill_soon(c);
}

static int start(struct guest *g)
{
	int rc;

	if (g->phase == PHASE_PREPARING)
		prepare_progress(g, "starting the zygote");
	rc = runner_start_zygote(g, zygote_ended, &g->zygote.c);
	if (rc) {
		port_log("a zygote: %s", strerror(-rc));
		g->zygote.ends = ENDS_MAX;
	}
	return rc;
}

/* Its group is /prep until it waits, as that of any runner. */
static int fork_ask(struct command *c)
{
	struct runner_request h = {.kind = RUNNER_REQUEST_FORK,
				   .tag = (uint32_t)c->tag};
	struct guest *g = c->g;
	int fds[3] = {-1, -1, -1};
	int rc;

	c->slot = slot_take(&g->cg);
	if (c->slot < 0)
		return c->slot;
	c->is_in_prep = true;
	c->is_forked = true;
	rc = pipes_open(c, fds);
	rc = rc ? rc : runner_channel_make(c, &fds[2]);
	rc = rc ? rc
		: fd_send(g->zygote.c->channel.watch.fd, &h, sizeof(h), fds, 3);
	for (int i = 0; i < 3; i++)
		fd_close(&fds[i]);
	return rc;
}

int zygote_ask(struct guest *g, void (*done)(struct command *c))
{
	struct command *c;
	int rc;

	if (!g->zygote.c)
		return start(g);
	if (!g->zygote.is_ready)
		return 0;
	if (g->phase == PHASE_PREPARING)
		prepare_progress(g, "forking a runner");
	c = command_new(g, CMD_RUNNER, 0);
	if (!c)
		return -ENOMEM;
	rc = fork_ask(c);
	if (rc) {
		runner_undo(c);
		return rc;
	}
	c->done = done;
	c->timeout_ms = PREPARE_RUNNER_MS;
	command_event(c, EV_START);
	return 0;
}

void zygote_waits(struct command *c)
{
	timer_clear(&c->deadline);
	c->g->zygote.is_ready = true;
	refill_more(c->g);
}

void zygote_child_born(struct command *c, uint32_t pid)
{
	struct nest_ask a = {
		.type = NEST_FOSTER, .tag = c->tag, .pid = (int32_t)pid};

	if (!c->is_forked || c->state != CMD_STARTING)
		return;
	c->pid = (pid_t)pid;
	nest_send(&c->g->nest, &a, NULL, 0);
	command_event(c, EV_STARTED);
}

void zygote_child_died(struct guest *g, uint32_t tag, int status)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (!c->is_forked || (uint32_t)c->tag != tag || c->has_exited)
			continue;
		c->has_exited = true;
		c->status = status;
		command_event(c,
			      c->state == CMD_STARTING ? EV_FAILED : EV_EXIT);
	}
}
