/*
 * A waiting runner on its express lane (api/lane.h), as init sees it.
 *
 *   ARM     the runner rehearses, then waits on its lane.  From here init
 *           leaves its pipes alone: the runner reads them itself.  Before BIND
 *           init waits there in its place (lane_bell.h)
 *   ADOPT   the run that it got there is a command like any other
 *
 * In between init hears nothing of a run.  What comes early is kept: an answer
 * on the channel, the end of the process.  A runner that answered by the lane
 * is used up: it exits, init tidies up as after any run.
 */
#ifndef HUTCH_GUEST_RUNNER_LANE_H
#define HUTCH_GUEST_RUNNER_LANE_H

#include "command.h"

/* ARM: the waiting runner, if there is one and it has a lane. */
void runner_lane_ask(struct guest *g);
/* ADOPT: c gives its number to the armed runner. */
void runner_lane_adopt(struct command *c, const void *payload, size_t len);
/* ARMED: has no run, so one may come by the channel.  A runner that is used up
 * is dropped here. */
bool runner_lane_is_free(struct command *c);

/* RUNNER_ARMED. */
void runner_lane_armed(struct command *c);

/* Actions of command.c. */
void runner_lane_arm(struct command *c);
void runner_lane_disarm(struct command *c);
void runner_lane_exit(struct command *c);

#endif
