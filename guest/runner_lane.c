/* Runners on the express lane; see runner_lane.h. */
#include "runner_lane.h"
#include "guest.h"
#include "lane_bell.h"
#include "payload.h"
#include "pipes.h"
#include "port.h"
#include "refill.h"
#include "runner.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* The one runner in this state that is nobody's command yet. */
static struct command *runner_in(const struct guest *g, enum cmd_state state)
{
	for (struct list *n = g->commands.all.next; n != &g->commands.all;
	     n = n->next) {
		struct command *c = container_of(n, struct command, node);

		if (c->kind == CMD_RUNNER && !c->number && !c->is_over &&
		    c->state == state && !c->is_in_prep && !c->is_forked)
			return c;
	}
	return NULL;
}

void runner_lane_ask(struct guest *g)
{
	struct command *c = runner_in(g, CMD_WARM);

	if (g->lane.fd < 0 || !c)
		port_log("ARM ignored: %s",
			 c ? "there is no lane" : "no runner waits");
	else
		command_event(c, EV_ARM);
}

void runner_lane_arm(struct command *c)
{
	struct runner_request h = {.kind = RUNNER_REQUEST_ARM};

	pipes_unwatch(c);
	lane_page_close(&c->g->lane);
	lane_page_turn(&c->g->lane, c->g->phase == PHASE_READY
					    ? LANE_TURN_INIT
					    : LANE_TURN_RUNNER);
	c->g->is_bound_untold = false;
	c->was_armed = true;
	c->done = refill_soon;
	/* A header always fits; a runner that ended is told by its exit. */
	if (send(c->channel.watch.fd, &h, sizeof(h),
		 MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		port_log("ARM: %s", strerror(errno));
}

/* Before BIND no user code has run: this is the runner's own word. */
void runner_lane_armed(struct command *c)
{
	if (c->state == CMD_ARMED && c->g->phase == PHASE_READY)
		lane_bell_wait(c->g);
}

void runner_lane_disarm(struct command *c)
{
	pipes_watch(c);
}

/* Answered by the lane: nothing is told, all it started ends.  Else its end is
 * that of a run which ADOPT will name. */
void runner_lane_exit(struct command *c)
{
	if (lane_page_state(&c->g->lane) == LANE_ANSWERED)
		command_event(c, EV_SERVED);
}

bool runner_lane_is_free(struct command *c)
{
	uint32_t state = lane_page_state(&c->g->lane);

	if (c->has_exited || state == LANE_ANSWERED) {
		command_event(c, EV_SERVED);
		return false;
	}
	return state == LANE_READY || state == LANE_CLOSED;
}

void runner_lane_adopt(struct command *c, const void *payload, size_t len)
{
	struct command *r = runner_in(c->g, CMD_ARMED);
	struct wire_map m;
	char why[128];

	if (!r)
		r = runner_in(c->g, CMD_WARM);
	if (payload_decode(GP_ADOPT, payload, len, &m, why, sizeof(why))) {
		command_refuse(c, "%s", why);
		return;
	}
	if (!r || !r->was_armed) {
		command_refuse(c, "ADOPT: no runner is on its lane");
		return;
	}
	lane_bell_tell_bound(c->g);
	r->number = c->number;
	c->number = 0;
	c->is_over = true;
	pipes_limits(r, &m);
	command_event(r, EV_ADOPT);
}
