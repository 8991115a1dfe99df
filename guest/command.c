/* Life of a command; see command.h. */
#include "command.h"
#include "exec.h"
#include "fd.h"
#include "guest.h"
#include "pipes.h"
#include "port.h"
#include "report.h"
#include "runner.h"
#include "runner_lane.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

const char *cmd_state_name(enum cmd_state s)
{
	static const char *const names[] = {
		"queued",  "starting", "warm",	   "armed",
		"running", "stopping", "draining", "ended",
	};
	static_assert(ARRAY_LEN(names) == CMD_STATES_N, "a name each");

	return names[s];
}

/* ---- actions ----------------------------------------------------------- */

static struct slot *slot_of(struct command *c)
{
	return c->slot < 0 ? NULL : &c->g->cg.slots[c->slot];
}

static void no_action(struct command *c)
{
	(void)c;
}

static void probe_in(struct command *c, uint64_t ms)
{
	c->probe_ms = ms < PROBE_MS_MAX ? ms : PROBE_MS_MAX;
	timer_set_in(&c->g->loop, &c->probe, c->probe_ms);
}

static void say_started(struct command *c)
{
	if (c->timeout_ms)
		timer_set_in(&c->g->loop, &c->deadline, c->timeout_ms);
	if (c->number)
		probe_in(c, PROBE_MS_MIN);
	report_started(c);
	/* KILL came while the nest was at work. */
	if (c->stop_how)
		command_event(c, EV_KILL);
	/* Or its end did, before that of its channel (spare.h). */
	if (c->has_exited)
		command_event(c, EV_EXIT);
}

/* The whole tree: also what was daemonised or made its own session. */
static void tree_kill(struct command *c)
{
	if (c->is_in_prep)
		cgroups_kill_prep(&c->g->cg);
	else if (slot_of(c))
		slot_kill(slot_of(c));
	c->is_killed = true;
	timer_set_in(&c->g->loop, &c->deadline, TREE_DEATH_MS);
	probe_in(c, PROBE_KILLED_MS);
}

static void stop_timed_out(struct command *c)
{
	c->stop_how = GP_END_TIMED_OUT;
	tree_kill(c);
}

static void stop_killed(struct command *c)
{
	c->stop_how = GP_END_CANCELLED;
	if (!c->grace_ms) {
		tree_kill(c);
		return;
	}
	if (slot_of(c))
		slot_signal(slot_of(c), SIGTERM);
	timer_set_in(&c->g->loop, &c->deadline, c->grace_ms);
	c->grace_ms = 0;
}

/* STOPPING and time passed: TERM was not enough, or the kernel is still at the
 * memory of what was killed. */
static void stop_harder(struct command *c)
{
	if (c->is_killed)
		command_event(c, EV_GRACE);
	else
		tree_kill(c);
}

/* KILL while the nest is at work: done as soon as the process exists. */
static void note_stop(struct command *c)
{
	c->stop_how = GP_END_CANCELLED;
}

/* Tell first, tidy up after: the host waits for it.  No frame is read and
 * nothing is started before both are done. */
static void finish(struct command *c)
{
	struct slot *s = slot_of(c);

	for (int i = 0; i < 2; i++)
		pipes_visit(c, i);
	runner_collect(c);
	report_ended(c);
	link_flush(&c->g->link);
	timer_clear(&c->deadline);
	timer_clear(&c->flush);
	timer_clear(&c->pause);
	timer_clear(&c->holders);
	timer_clear(&c->probe);
	/* run() is over and so is all it started; a command's background
	 * processes stay, in the sandbox's limits. */
	if (s && (c->kind == CMD_RUNNER || c->stop_how))
		slot_kill(s);
	if (s)
		slot_leave(s);
	c->slot = -1;
	pipes_close(c);
	if (c->channel.watch.fd >= 0) {
		loop_unwatch(&c->g->loop, &c->channel.watch);
		fd_close(&c->channel.watch.fd);
	}
	fd_close(&c->stat_fd);
	if (!c->number || c->is_foreign)
		c->is_over = true;
	if (c->done)
		c->done(c);
}

static void drain(struct command *c)
{
	timer_clear(&c->deadline);
	timer_clear(&c->probe);
	for (int i = 0; i < 2; i++)
		pipes_visit(c, i);
	if (c->out[0].fd < 0 && c->out[1].fd < 0) {
		command_event(c, EV_CLOSED);
		return;
	}
	/* Stopped: the tree is gone or going, and the pipes with it. */
	if (c->stop_how) {
		if (slot_of(c))
			slot_kill(slot_of(c));
		timer_set_in(&c->g->loop, &c->holders, TREE_DEATH_MS);
		return;
	}
	timer_set_in(&c->g->loop, &c->holders, PIPE_HOLDERS_MS);
}

static void run_armed(struct command *c)
{
	pipes_watch(c);
	say_started(c);
}

/*
 * Its end may have come before: it is told now.  CPU time counts from here:
 * what passed while the VM was parked was charged to the runner.
 */
static void adopt(struct command *c)
{
	if (slot_of(c))
		slot_mark_cpu(slot_of(c));
	pipes_watch(c);
	say_started(c);
	if (c->answer.is_set)
		command_event(c, EV_ANSWER);
	else if (c->has_exited)
		command_event(c, EV_EXIT);
}

static void cancel_queued(struct command *c)
{
	c->stop_how = GP_END_CANCELLED;
	finish(c);
}

struct rule {
	enum cmd_state from;
	enum cmd_event event;
	enum cmd_state to;
	void (*act)(struct command *c);
};

static const struct rule rules[] = {
	{CMD_QUEUED, EV_START, CMD_STARTING, no_action},
	{CMD_QUEUED, EV_FAILED, CMD_ENDED, finish},
	{CMD_QUEUED, EV_KILL, CMD_ENDED, cancel_queued},

	{CMD_STARTING, EV_STARTED, CMD_RUNNING, say_started},
	{CMD_STARTING, EV_FAILED, CMD_ENDED, finish},
	{CMD_STARTING, EV_KILL, CMD_STARTING, note_stop},

	{CMD_RUNNING, EV_WARM, CMD_WARM, runner_warm},
	{CMD_WARM, EV_MOVED, CMD_WARM, runner_moved},
	{CMD_WARM, EV_RUN, CMD_RUNNING, say_started},
	{CMD_WARM, EV_START, CMD_STARTING, no_action},
	{CMD_WARM, EV_EXIT, CMD_DRAINING, drain},
	{CMD_WARM, EV_KILL, CMD_STOPPING, stop_killed},

	{CMD_WARM, EV_ARM, CMD_ARMED, runner_lane_arm},
	{CMD_ARMED, EV_WARM, CMD_WARM, runner_lane_disarm},
	{CMD_ARMED, EV_RUN, CMD_RUNNING, run_armed},
	{CMD_ARMED, EV_ADOPT, CMD_RUNNING, adopt},
	{CMD_WARM, EV_ADOPT, CMD_RUNNING, adopt},
	{CMD_ARMED, EV_EXIT, CMD_ARMED, runner_lane_exit},
	{CMD_ARMED, EV_SERVED, CMD_ENDED, finish},
	{CMD_ARMED, EV_KILL, CMD_STOPPING, stop_killed},

	{CMD_RUNNING, EV_ANSWER, CMD_ENDED, finish},
	{CMD_RUNNING, EV_EXIT, CMD_DRAINING, drain},
	{CMD_RUNNING, EV_KILL, CMD_STOPPING, stop_killed},
	{CMD_RUNNING, EV_TIMEOUT, CMD_STOPPING, stop_timed_out},

	{CMD_STOPPING, EV_EXIT, CMD_DRAINING, drain},
	{CMD_STOPPING, EV_KILL, CMD_STOPPING, tree_kill},
	{CMD_STOPPING, EV_TIMEOUT, CMD_STOPPING, stop_harder},
	{CMD_STOPPING, EV_GRACE, CMD_ENDED, finish},

	{CMD_DRAINING, EV_CLOSED, CMD_ENDED, finish},
	{CMD_DRAINING, EV_GRACE, CMD_ENDED, finish},
	{CMD_DRAINING, EV_KILL, CMD_DRAINING, no_action},
};

static const struct rule *rule_find(enum cmd_state s, enum cmd_event ev)
{
	for (size_t i = 0; i < ARRAY_LEN(rules); i++)
		if (rules[i].from == s && rules[i].event == ev)
			return &rules[i];
	return NULL;
}

void command_event(struct command *c, enum cmd_event ev)
{
	const struct rule *r = rule_find(c->state, ev);

	if (!r)
		return;
	c->state = r->to;
	r->act(c);
}

static void on_deadline(struct timer *t)
{
	command_event(container_of(t, struct command, deadline), EV_TIMEOUT);
}

static void on_holders(struct timer *t)
{
	command_event(container_of(t, struct command, holders), EV_GRACE);
}

static void on_probe(struct timer *t)
{
	struct command *c = container_of(t, struct command, probe);
	struct nest_ask a = {.type = NEST_PROBE, .tag = c->tag};

	nest_send(&c->g->nest, &a, NULL, 0);
	probe_in(c, c->probe_ms + c->probe_ms / 2);
}

static void on_flush(struct timer *t)
{
	report_output(container_of(t, struct command, flush));
}

/* ---- making and finding ------------------------------------------------ */

struct command *command_new(struct guest *g, enum cmd_kind kind,
			    uint64_t number)
{
	struct command *c;

	if (g->commands.n >= COMMANDS_MAX)
		return NULL;
	c = calloc(1, sizeof(*c));
	/* An end can be told without memory (report.c). */
	if (!c || bytes_reserve(&c->ended, 128)) {
		free(c);
		return NULL;
	}
	c->g = g;
	c->kind = kind;
	c->number = number;
	c->tag = ++g->commands.last_tag;
	c->slot = c->stat_fd = -1;
	c->channel.watch.fd = -1;
	c->deadline.fn = on_deadline;
	c->holders.fn = on_holders;
	c->flush.fn = on_flush;
	c->probe.fn = on_probe;
	pipes_init(c);
	list_append(&g->commands.all, &c->node);
	g->commands.n++;
	return c;
}

static void command_free(struct command *c)
{
	list_remove(&c->node);
	c->g->commands.n--;
	fd_close(&c->stat_fd);
	for (int i = 0; i < 2; i++)
		stream_finish(&c->out[i]);
	bytes_finish(&c->request);
	bytes_finish(&c->channel.in);
	bytes_finish(&c->channel.out);
	bytes_finish(&c->answer.text);
	bytes_finish(&c->ended);
	free(c);
}

void commands_sweep(struct guest *g)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (c->is_over)
			command_free(c);
	}
}

struct command *command_by_number(struct guest *g, uint64_t number)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (c->number == number && number && !c->is_over &&
		    !c->is_foreign)
			return c;
	}
	return NULL;
}

struct command *command_by_tag(struct guest *g, uint64_t tag)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (c->tag == tag)
			return c;
	}
	return NULL;
}

/* ---- what happens to one ----------------------------------------------- */

void command_refuse(struct command *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->error, sizeof(c->error), fmt, ap);
	va_end(ap);
	c->answer.is_set = true;
	c->answer.how = GP_END_NOT_STARTED;
	command_event(c, EV_FAILED);
}

static void start_failed(struct command *c, const struct nest_tell *t)
{
	const char *name = strerrorname_np(t->error);

	command_refuse(c, "%s: %s (%s)", t->what, name ? name : "error",
		       strerror(t->error));
}

void command_on_tell(struct guest *g, const struct nest_tell *t)
{
	struct command *c = command_by_tag(g, t->tag);

	if (c && t->type == NEST_STARTED) {
		c->pid = t->pid;
		command_event(c, EV_STARTED);
	} else if (c && t->type == NEST_FAILED) {
		start_failed(c, t);
	} else if (c && t->type == NEST_EXITED) {
		c->has_exited = true;
		c->status = t->status;
		command_event(c, EV_EXIT);
	} else if (c && t->type == NEST_MOVED && !t->error) {
		command_event(c, EV_MOVED);
	} else if (c && t->type == NEST_MOVED) {
		/* Outside its group it would have no limit. */
		snprintf(c->error, sizeof(c->error), "control group: %s",
			 strerror(t->error));
		command_event(c, EV_KILL);
	}
	if (t->type == NEST_STARTED || t->type == NEST_FAILED)
		exec_next(g);
}

void command_ack(struct command *c)
{
	if (c->state == CMD_ENDED)
		c->is_over = true;
}

static void disown(struct command *c)
{
	c->is_foreign = true;
	timer_clear(&c->flush);
	if (c->state == CMD_QUEUED) {
		command_event(c, EV_KILL);
	} else if (c->state == CMD_ENDED) {
		c->is_over = true;
	} else if (c->state == CMD_STARTING || c->state == CMD_RUNNING) {
		c->timeout_ms = 0;
		timer_clear(&c->deadline);
	}
}

void commands_disown(struct guest *g)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		if (c->number && !c->is_foreign)
			disown(c);
	}
}

void commands_kill_all(struct guest *g)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &g->commands.all)
	{
		struct command *c = container_of(n, struct command, node);

		c->grace_ms = 0;
		command_event(c, EV_KILL);
	}
}
