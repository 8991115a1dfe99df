/*
 * Init at the doorbell: the snapshot point of a template that has a lane.
 *
 * ARM before BIND makes the waiting runner rehearse and sleep for its turn
 * (lane_page.h); then init itself rings READY.  The monitor parks the VM, and
 * there the snapshot is taken: what is restored from it waits for a request in
 * the page, and its first words cost no interrupt, no socket and no second
 * thread.  What init finds when the VM goes on:
 *
 *   BIND, RUN   the identity is set, BOUND put before the runner's answer, and
 *               the runner let go: it finds RUN as if it had rung itself
 *   BIND        answered at once; then the runner seeds itself and rings READY
 *   nothing     the lane is closed; BIND comes by the channel
 *
 * A BIND that fails is answered, and the runner sleeps on.  A run that is
 * adopted meanwhile stays one: BOUND is then told on the channel.
 */
#ifndef HUTCH_GUEST_LANE_BELL_H
#define HUTCH_GUEST_LANE_BELL_H

#include "guest.h"

/* The runner sleeps for its turn; comes back when the VM was parked, restored
 * and resumed. */
void lane_bell_wait(struct guest *g);
/* On the channel, when the host has not heard it by the lane. */
void lane_bell_tell_bound(struct guest *g);

#endif
