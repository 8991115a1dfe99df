/* PREPARE; see prepare.h. */
#include "prepare.h"
#include "bind.h"
#include "exec.h"
#include "files.h"
#include "payload.h"
#include "port.h"
#include "refill.h"
#include "runner.h"
#include "runner_files.h"
#include "zygote.h"
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Heap that init has touched before it is locked into memory. */
#define HEAP_BYTES (1u << 20)

void prepare_progress(struct guest *g, const char *text)
{
	uint64_t s = (loop_now_ns() - g->prepare.started_ns) / 1000000000ull;

	port_log("%" PRIu64 " s: %s", s, text);
	link_send_text(&g->link, GP_PROGRESS, text);
	link_flush(&g->link);
}

void prepare_report(struct guest *g)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};
	bool is_ok = g->phase != PHASE_BROKEN;

	wire_put_map(&w, 2);
	wire_put_bool(&w, GP_READY_OK, is_ok);
	if (is_ok)
		wire_put_uint(&w, GP_READY_LANES, g->lane.fd >= 0);
	else
		wire_put_text(&w, GP_READY_ERROR, g->prepare.error);
	if (!w.rc)
		link_send(&g->link, GP_READY, 0, &b);
}

void prepare_fail(struct guest *g, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(g->prepare.error, sizeof(g->prepare.error), fmt, ap);
	va_end(ap);
	g->phase = PHASE_BROKEN;
	port_log("prepare: %s", g->prepare.error);
	prepare_report(g);
}

/* ---- the end: READY ---------------------------------------------------- */

/*
 * What user code can have: what is there now, less a reserve.  The program text
 * that the interpreter has mapped counts as available to the kernel; user code
 * that took it would be read in again and again, and the limit would be met
 * only after minutes of that.
 */
static uint64_t user_room(void)
{
	unsigned long long room = 0, mapped = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &room) != 1)
			sscanf(line, "Mapped: %llu kB", &mapped);
	if (f)
		fclose(f);
	room *= 1024;
	mapped *= 1024;
	room -= mapped < room / 2 ? mapped : room / 2;
	room -= room < RESERVE_BYTES_MIN ? room : RESERVE_BYTES_MIN;
	return room - room / RESERVE_SHARE;
}

/*
 * Init must answer when user code has eaten the memory and while the kernel
 * is slow: what it has touched is locked, and so is what it will touch; its
 * program is read in once.  The strings of starts (nest.h) are not touched
 * here: they are large and seldom used.
 */
static void memory_lock(void)
{
	extern char __executable_start, etext;
	uintptr_t page = 4096, from = (uintptr_t)&__executable_start & -page;
	size_t len = ((uintptr_t)&etext - from + page - 1) & -page;
	char *p = malloc(HEAP_BYTES);

	if (p)
		memset(p, 1, HEAP_BYTES);
	free(p);
	if (madvise((void *)from, len, MADV_POPULATE_READ))
		port_log("reading the program in: %s", strerror(errno));
	if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT))
		port_log("mlockall: %s", strerror(errno));
}

static void on_settled(struct timer *t)
{
	struct guest *g = container_of(t, struct guest, prepare.settle);
	char text[128];

	if (g->phase != PHASE_PREPARING)
		return; /* it failed meanwhile */
	g->user_room = user_room();
	g->phase = PHASE_READY;
	snprintf(text, sizeof(text), "ready; %" PRIu64 " MiB for user code",
		 g->user_room >> 20);
	prepare_progress(g, text);
	prepare_report(g);
	port_mark(HUTCH_MARK_READY);
}

static void prepare_done(struct guest *g)
{
	memory_lock();
	sync();
	timer_set_in(&g->loop, &g->prepare.settle, PREPARE_SETTLE_MS);
}

/* ---- the runners -------------------------------------------------------- */

void prepare_waits(struct guest *g)
{
	if (g->phase == PHASE_PREPARING && !refill_prepare(g) &&
	    g->phase == PHASE_PREPARING)
		prepare_done(g);
}

static void start_runner(struct guest *g)
{
	if (g->prepare.runner == RUNNER_NONE) {
		prepare_done(g);
		return;
	}
	refill_decide(g, user_room());
	prepare_progress(g, "starting the interpreter");
	prepare_waits(g);
}

/* ---- programs, each once ----------------------------------------------- */

#define PROGRAM_ARGS_MAX 4

static const char *const programs[][4][PROGRAM_ARGS_MAX] = {
	[RUNNER_NONE] = {{"/bin/true"}},
	[RUNNER_PYTHON] = {{"bash", "-c", "cat /dev/null; :"},
			   {"python", "-c", "import json, subprocess"}},
	[RUNNER_NODE] = {{"bash", "-c", "cat /dev/null; :"},
			 {"node", "-e", "0"}},
	[RUNNER_SHELL] = {{"bash", "-c",
			   "jq -nc 1; cat /dev/null; "
			   "sed 1 /dev/null; grep x /dev/null; "
			   "head /dev/null; awk 1 /dev/null; ls /"}},
};

static void program_next(struct guest *g);

static void program_ended(struct command *c)
{
	if (c->answer.how == GP_END_NOT_STARTED)
		port_log("program not run: %s", c->error);
	program_next(c->g);
}

static void program_next(struct guest *g)
{
	struct prepare *p = &g->prepare;
	char text[64];

	for (; p->program < 4; p->program++) {
		const char *const *argv = programs[p->runner][p->program];

		if (!argv[0])
			break;
		p->program++;
		snprintf(text, sizeof(text), "first run of %s", argv[0]);
		prepare_progress(g, text);
		if (!exec_internal(g, argv, PREPARE_PROGRAM_MS, program_ended))
			return;
	}
	start_runner(g);
}

/* ---- the nest and the start -------------------------------------------- */

static void nest_told(void *ctx, const struct nest_tell *t)
{
	command_on_tell(ctx, t);
}

static void nest_died(void *ctx)
{
	struct guest *g = ctx;

	(void)g;
	/* Its namespace went with it, and with that all user code: this guest
	 * can only be reported lost. */
	port_log("the nest ended: powering off");
	sync();
	port_power_off();
}

/* First of all that takes memory, while it is in one piece. */
static void lane_make(struct guest *g)
{
	char why[GP_TEXT_BYTES_MAX];
	uint64_t frame;

	if (!runner_files_know_lane(g->prepare.runner))
		return;
	if (lane_page_make(&g->lane, &frame, why, sizeof(why)))
		port_log("no express lane: %s", why);
	else
		port_lane_page(frame, 0);
}

static int prepare_blocking(struct guest *g, bool want_disk)
{
	char why[GP_TEXT_BYTES_MAX];
	const char *what;
	int rc;

	prepare_progress(g, "mounting the template");
	if (world_build(&g->world, want_disk, why, sizeof(why)))
		goto fail;
	prepare_progress(g, "control groups");
	if (cgroups_init(&g->cg, "/sys/fs/cgroup",
			 g->prepare.runner == RUNNER_PYTHON ? SLOTS_MAX
							    : SLOTS_COMMANDS,
			 why, sizeof(why)))
		goto fail;
	g->nest.tell = nest_told;
	g->nest.died = nest_died;
	g->nest.ctx = g;
	if (nest_start(&g->nest, &g->loop, &g->cg, world_enter, why,
		       sizeof(why)))
		goto fail;
	/* After the nest, which is forked from one thread. */
	rc = files_start(g, WORLD_ROOT, USER_ID, &what);
	if (!rc)
		return 0;
	snprintf(why, sizeof(why), "%s: %s", what, strerror(-rc));
fail:
	prepare_fail(g, "%s", why);
	return -1;
}

void prepare_ask(struct guest *g, const void *payload, size_t len)
{
	struct wire_map m;
	const struct wire_value *name = &m.v[GP_PREPARE_RUNNER];
	char why[128];

	g->prepare.started_ns = loop_now_ns();
	g->phase = PHASE_PREPARING;
	if (payload_decode(GP_PREPARE, payload, len, &m, why, sizeof(why))) {
		prepare_fail(g, "%s", why);
		return;
	}
	g->prepare.runner =
		runner_kind_of((const char *)name->s.data, name->s.len);
	if (g->prepare.runner > RUNNER_SHELL) {
		prepare_fail(g, "PREPARE: no runner is called \"%.*s\"",
			     (int)(name->s.len < 32 ? name->s.len : 32),
			     (const char *)name->s.data);
		return;
	}
	g->prepare.has_preload = m.v[GP_PREPARE_PRELOAD].u;
	/* A kernel without entropy collects some in the first getrandom(2):
	 * 20 s where it is interpreted. */
	if (m.v[GP_PREPARE_ENTROPY].s.data) {
		int rc = entropy_give(&m.v[GP_PREPARE_ENTROPY].s);

		if (rc) {
			prepare_fail(g, "PREPARE: entropy: %s", strerror(-rc));
			return;
		}
	}
	lane_make(g);
	if (!prepare_blocking(g, m.v[GP_PREPARE_DISK].u))
		program_next(g);
}

void prepare_init(struct guest *g)
{
	g->lane.fd = -1;
	g->prepare.settle = (struct timer){.fn = on_settled};
	refill_init(g);
}
