/* What waits for user code; see refill.h. */
#include "refill.h"
#include "port.h"
#include "prepare.h"
#include "runner.h"
#include <errno.h>
#include <stdio.h>

/* Idle time before something is made that nobody waits for. */
#define REFILL_IDLE_MS	2000
#define REFILL_RETRY_MS 500

static bool is_run_queued(const struct guest *g)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		if (c->kind == CMD_RUNNER && c->state == CMD_QUEUED &&
		    !c->is_over)
			return true;
	}
	return false;
}

static bool is_idle(const struct guest *g)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		if (c->number && c->state != CMD_ENDED && !c->is_over)
			return false;
	}
	return !g->nest.is_busy;
}

/* ---- how much ---------------------------------------------------------- */

/* A row is for sandboxes where user code has that much room without any of
 * it; the first that fits. */
static const struct set {
	bool has_preload;
	uint64_t room_min; /* bytes */
	unsigned runners, spares;
} sets[] = {
	{true, 640ull << 20, 3, 2},
	{true, 192ull << 20, 1, 2},
	{false, 96ull << 20, 2, 1},
};

void refill_decide(struct guest *g, uint64_t room)
{
	g->zygote.runners = 1;
	g->spares.wanted = 0;
	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		const struct set *s = &sets[i];

		if (g->prepare.runner != RUNNER_PYTHON ||
		    g->prepare.has_preload != s->has_preload ||
		    room < s->room_min)
			continue;
		g->zygote.runners = s->runners;
		g->spares.wanted = s->spares;
		return;
	}
}

/* A runner on its way, or what makes runners. */
static bool is_runner_coming(const struct guest *g)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		if (c->kind == CMD_RUNNER && !c->number && !c->is_over &&
		    c->is_in_prep && c->state < CMD_STOPPING &&
		    !(c->is_zygote && g->zygote.is_ready))
			return true;
	}
	return false;
}

/* ---- one of them ------------------------------------------------------- */

static void runner_ended(struct command *c)
{
	struct guest *g = c->g;
	const struct stream *err = &c->out[1];
	size_t len = err->head.len < 300 ? err->head.len : 300;
	const char *tail = (const char *)err->head.data + err->head.len - len;

	if (g->phase == PHASE_PREPARING) {
		prepare_fail(g,
			     "the runner ended at its start (status 0x%x): "
			     "%s%.*s",
			     (unsigned)c->status, c->error, len ? (int)len : 0,
			     len ? tail : "");
		return;
	}
	port_log("the waiting runner ended: status 0x%x %s",
		 (unsigned)c->status, c->error);
	refill_soon(c);
}

/* The first one has the lane; what follows it is cheaper as a fork. */
static int runner_make(struct guest *g)
{
	bool is_first = g->phase == PHASE_PREPARING && !runner_count(g);
	int rc;

	if (!is_first && zygote_is_wanted(g)) {
		rc = zygote_ask(g, runner_ended);
		if (!rc || runner_count(g))
			return rc;
	}
	return runner_start(g, runner_ended);
}

static int spare_make(struct guest *g)
{
	if (g->phase == PHASE_PREPARING)
		prepare_progress(g, "starting a waiting interpreter");
	return spare_start(g);
}

/* false: nothing is missing, or it cannot be made. */
static bool make_next(struct guest *g)
{
	int rc;

	if (runner_count(g) < zygote_runners(g))
		rc = runner_make(g);
	else if (spare_is_wanted(g) && !spare_is_coming(g))
		rc = spare_make(g);
	else
		return false;
	if (rc && g->phase == PHASE_PREPARING && !runner_count(g))
		prepare_fail(g, "starting the runner: %s", strerror(-rc));
	else if (rc)
		port_log("one more that waits: %s", strerror(-rc));
	return !rc;
}

unsigned refill_n_waiting(const struct guest *g)
{
	unsigned n_waiting = 0;

	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		n_waiting += !c->number && !c->is_over && !c->is_in_prep &&
			     (c->state == CMD_WARM || c->state == CMD_ARMED);
	}
	return n_waiting;
}

/* ---- before READY ------------------------------------------------------ */

bool refill_prepare(struct guest *g)
{
	return is_runner_coming(g) || spare_is_coming(g) || make_next(g);
}

/* ---- after it ---------------------------------------------------------- */

void refill_now(struct guest *g)
{
	if (is_runner_coming(g))
		return;
	if (g->nest.is_busy)
		timer_set_in(&g->loop, &g->refill, REFILL_RETRY_MS);
	else
		make_next(g);
}

static bool is_run_active(const struct guest *g)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		const struct command *c = container_of(n, struct command, node);

		if (c->kind == CMD_RUNNER && c->number && !c->is_over &&
		    c->state > CMD_QUEUED && c->state < CMD_ENDED)
			return true;
	}
	return false;
}

/* None waits, it is no more than a fork, and no run would share its time. */
static bool is_cheap(const struct guest *g)
{
	return g->zygote.is_ready && !runner_count(g) && !is_run_active(g);
}

static void on_refill(struct timer *t)
{
	struct guest *g = container_of(t, struct guest, refill);

	if (is_run_queued(g) || is_cheap(g) ||
	    (is_idle(g) && !spare_is_coming(g)))
		refill_now(g);
	else
		timer_set_in(&g->loop, t, REFILL_IDLE_MS);
}

void refill_init(struct guest *g)
{
	g->refill = (struct timer){.fn = on_refill};
}

void refill_soon(struct command *c)
{
	struct guest *g = c->g;

	timer_set_in(&g->loop, &g->refill,
		     is_cheap(g)	? 0
		     : is_run_queued(g) ? REFILL_RETRY_MS
					: REFILL_IDLE_MS);
}

void refill_more(struct guest *g)
{
	if (g->phase == PHASE_PREPARING)
		prepare_waits(g);
	else if (is_run_queued(g) && g->zygote.is_ready)
		refill_now(g);
	else if (!g->refill.is_set)
		timer_set_in(&g->loop, &g->refill, REFILL_IDLE_MS);
}
