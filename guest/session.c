/* Frames from the host; see session.h. */
#include "session.h"
#include "bind.h"
#include "exec.h"
#include "files.h"
#include "payload.h"
#include "port.h"
#include "prepare.h"
#include "report.h"
#include "runner.h"
#include "runner_lane.h"
#include <stdio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define INIT_VERSION "1"
/* Power-off: the tree and the nest have this long to go. */
#define POWEROFF_WAIT_MS 2000

void session_up(void *ctx)
{
	struct guest *g = ctx;
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};
	struct utsname u;

	uname(&u);
	wire_put_map(&w, 3);
	wire_put_uint(&w, GP_HELLO_VERSION, GP_VERSION);
	wire_put_text(&w, GP_HELLO_KERNEL, u.release);
	wire_put_text(&w, GP_HELLO_INIT, INIT_VERSION);
	if (!w.rc)
		link_send(&g->link, GP_HELLO, 0, &b);
	/* A connection in the middle of a life: say again where we are. */
	if (g->phase == PHASE_READY || g->phase == PHASE_BOUND ||
	    g->phase == PHASE_BROKEN)
		prepare_report(g);
	report_again(g);
	files_drop(g); /* its host counts it as failed */
	port_mark(HUTCH_MARK_HELLO);
}

void session_room(void *ctx)
{
	report_room(ctx);
	files_room(ctx);
}

/* ---- one function a frame ---------------------------------------------- */

static void on_welcome(struct guest *g, const struct frame *f)
{
	struct wire_map m;
	char why[96];

	(void)g;
	if (payload_decode(f->head.type, f->payload, f->head.len, &m, why,
			   sizeof(why)))
		port_log("%s", why);
	else if (m.v[GP_WELCOME_VERSION].u != GP_VERSION)
		port_log("the host speaks version %llu, this is %d",
			 (unsigned long long)m.v[GP_WELCOME_VERSION].u,
			 GP_VERSION);
}

static void on_prepare(struct guest *g, const struct frame *f)
{
	if (g->phase == PHASE_NEW)
		prepare_ask(g, f->payload, f->head.len);
	else if (g->phase != PHASE_PREPARING)
		prepare_report(g); /* asked again after a lost connection */
}

static void on_bind(struct guest *g, const struct frame *f)
{
	bind_ask(g, f->payload, f->head.len);
}

/*
 * Numbers rise, so a repeated frame starts nothing twice: a known command is
 * already reported (or will be), and one that was acked is over.
 */
static struct command *command_accept(struct guest *g, const struct frame *f,
				      enum cmd_kind kind)
{
	uint64_t number = f->head.cmd;
	struct command *c;

	if (command_by_number(g, number))
		return NULL;
	if (!number || number <= g->commands.last_number) {
		report_refused(g, number,
			       "a command's number must be above all before");
		return NULL;
	}
	g->commands.last_number = number;
	c = command_new(g, kind, number);
	if (!c)
		report_refused(g, number, "too many commands in the sandbox");
	return c;
}

static void on_run(struct guest *g, const struct frame *f)
{
	struct command *c = command_accept(g, f, CMD_RUNNER);

	if (c)
		runner_ask(c, f->payload, f->head.len);
}

static void on_exec(struct guest *g, const struct frame *f)
{
	struct command *c = command_accept(g, f, CMD_EXEC);

	if (c)
		exec_ask(c, f->payload, f->head.len);
}

static void on_arm(struct guest *g, const struct frame *f)
{
	(void)f;
	runner_lane_ask(g);
}

static void on_adopt(struct guest *g, const struct frame *f)
{
	struct command *c = command_accept(g, f, CMD_RUNNER);

	if (c)
		runner_lane_adopt(c, f->payload, f->head.len);
}

static void on_kill(struct guest *g, const struct frame *f)
{
	struct command *c = command_by_number(g, f->head.cmd);
	struct wire_map m;
	char why[96];

	if (!c)
		return;
	if (payload_decode(f->head.type, f->payload, f->head.len, &m, why,
			   sizeof(why)))
		port_log("%s", why); /* and it is a KILL all the same */
	c->grace_ms = m.v[GP_KILL_GRACE_MS].u;
	command_event(c, EV_KILL);
}

static void on_ack(struct guest *g, const struct frame *f)
{
	struct command *c = command_by_number(g, f->head.cmd);

	if (c)
		command_ack(c);
}

static void on_ping(struct guest *g, const struct frame *f)
{
	link_send(&g->link, GP_PONG, f->head.cmd, NULL);
}

static void on_hold(struct guest *g, const struct frame *f)
{
	on_ping(g, f);
	link_hold(&g->link);
}

static void on_go(struct guest *g, const struct frame *f)
{
	(void)f;
	link_go(&g->link, false);
}

/* The nest takes all user code with it; then the disk can be closed. */
static void on_poweroff(struct guest *g, const struct frame *f)
{
	(void)f;
	commands_kill_all(g);
	link_flush(&g->link);
	if (g->nest.pid > 0) {
		nest_kill(&g->nest);
		for (int ms = 0; ms < POWEROFF_WAIT_MS; ms += 10) {
			if (waitpid(g->nest.pid, NULL, WNOHANG))
				break;
			usleep(10000);
		}
	}
	files_stop(g);
	world_close(&g->world);
	port_log("power off");
	port_power_off();
}

struct route {
	uint16_t type;
	uint32_t phases; /* bits 1 << enum phase */
	void (*fn)(struct guest *g, const struct frame *f);
	bool is_command; /* out of phase: the host gets an ENDED */
};

#define IN(p)	  (1u << (p))
#define ANY_PHASE UINT32_MAX

static const struct route routes[] = {
	{GP_WELCOME, ANY_PHASE, on_welcome, false},
	{GP_PREPARE, ANY_PHASE, on_prepare, false},
	{GP_BIND, IN(PHASE_READY) | IN(PHASE_BOUND), on_bind, false},
	{GP_RUN, IN(PHASE_BOUND), on_run, true},
	{GP_EXEC, IN(PHASE_BOUND), on_exec, true},
	{GP_ARM, IN(PHASE_READY) | IN(PHASE_BOUND), on_arm, false},
	{GP_ADOPT, IN(PHASE_BOUND), on_adopt, true},
	{GP_KILL, ANY_PHASE, on_kill, false},
	{GP_ACK, ANY_PHASE, on_ack, false},
	{GP_PING, ANY_PHASE, on_ping, false},
	{GP_POWEROFF, ANY_PHASE, on_poweroff, false},
	{GP_HOLD, IN(PHASE_BOUND), on_hold, false},
	{GP_GO, IN(PHASE_BOUND), on_go, false},
	{GP_FILE, IN(PHASE_BOUND), files_ask, false},
	{GP_FILE_PIECE, IN(PHASE_BOUND), files_piece, false},
};

void session_frame(void *ctx, const struct frame *f)
{
	struct guest *g = ctx;

	for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
		const struct route *r = &routes[i];

		if (r->type != f->head.type)
			continue;
		if (r->phases & IN(g->phase))
			r->fn(g, f);
		else if (r->is_command)
			report_refused(g, f->head.cmd,
				       "the sandbox is not bound");
		else
			port_log("frame %u out of place", r->type);
		return;
	}
	port_log("frame of unknown type %u ignored", f->head.type);
}
