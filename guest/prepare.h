/*
 * PREPARE: everything slow, before the snapshot.
 *
 * Steps in order: mounts, control groups, the nest, each of the template's
 * programs once (so that the page cache holds them), then the runner, which
 * imports its libraries, and what else shall wait (refill.h).  READY follows
 * when all of it waits, or says what failed.  Frames are served meanwhile; only
 * mounts and groups block.
 */
#ifndef HUTCH_GUEST_PREPARE_H
#define HUTCH_GUEST_PREPARE_H

#include "guest.h"

void prepare_init(struct guest *g);
void prepare_ask(struct guest *g, const void *payload, size_t len);
void prepare_progress(struct guest *g, const char *text);
/* READY says why; the guest is of no use. */
void prepare_fail(struct guest *g, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* One of what shall wait does, or never will. */
void prepare_waits(struct guest *g);
/* READY again, on a new connection. */
void prepare_report(struct guest *g);

#endif
