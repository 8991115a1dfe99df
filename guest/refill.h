/*
 * What waits for user code, and when more of it is made: runners (runner.h,
 * zygote.h), and interpreters for commands (spare.h).
 *
 *   before READY   the whole set, one after another: it waits in the snapshot
 *   after that     a runner at once, while a run is queued, or none waits, a
 *                  fork is all it takes (zygote.h) and no run goes on; the rest
 *                  when the sandbox has been idle for a moment
 *
 * One is made at a time, so what comes meanwhile waits for no more than that
 * one.
 */
#ifndef HUTCH_GUEST_REFILL_H
#define HUTCH_GUEST_REFILL_H

#include "guest.h"

void refill_init(struct guest *g);
/* PREPARE: how much is worth its memory where user code has `room` bytes
 * without it. */
void refill_decide(struct guest *g, uint64_t room);
/* Before READY: true, and the next one is under way; its end brings us back to
 * prepare_waits().  false: the set is whole. */
bool refill_prepare(struct guest *g);

/* Processes that are below /user and not user code's. */
unsigned refill_n_waiting(const struct guest *g);

/* A command ended; as `done` of one. */
void refill_soon(struct command *c);
/* A run is queued and nobody waits for it. */
void refill_now(struct guest *g);
/* One of the set waits, or will not: is another missing? */
void refill_more(struct guest *g);

#endif
