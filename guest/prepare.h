/*
 * PREPARE: everything slow, before the snapshot.
 *
 * Steps in order: mounts, control groups, the nest, each of the template's
 * programs once (so that the page cache holds them), then the runner, which
 * imports its libraries.  READY follows when the runner waits, or says what
 * failed.  Frames are served meanwhile; only mounts and groups block.
 */
#ifndef HUTCH_GUEST_PREPARE_H
#define HUTCH_GUEST_PREPARE_H

#include "guest.h"

void prepare_ask(struct guest *g, const void *payload, size_t len);
void prepare_progress(struct guest *g, const char *text);
void prepare_runner_waits(struct guest *g);
/* READY again, on a new connection. */
void prepare_report(struct guest *g);

/* After a run: another runner, at once or when the sandbox is idle. */
void prepare_refill(struct command *c);
void prepare_refill_now(struct guest *g);
/* A queued run was given to a runner: is there another, and is one cheap? */
void prepare_next(struct guest *g);
void prepare_init(struct guest *g);

#endif
