/*
 * BIND: a clone becomes one sandbox.
 *
 * In the path of every run, so it only calls what was opened before the
 * snapshot: random numbers, clock, host name, machine id, limits.  User code
 * runs only after all of them are done.
 */
#ifndef HUTCH_GUEST_BIND_H
#define HUTCH_GUEST_BIND_H

#include "guest.h"

void bind_init(void); /* before the snapshot */
/* 64 bytes into the kernel's generator, which uses them at once; 0 or
 * -errno. */
int entropy_give(const struct span *s);
/* PHASE_BOUND and true when all went well.  *ret: BOUND's payload in any case.
 */
bool bind_do(struct guest *g, const void *payload, size_t len,
	     struct bytes *ret);
/* BOUND's payload; error: NULL = all went well. */
void bind_bound(struct bytes *ret, const char *error);
/* BIND by the channel: BOUND is sent. */
void bind_ask(struct guest *g, const void *payload, size_t len);
/* Before runners start: a clock that is visibly not now, see bind.c. */
void bind_unset_clock(void);

#endif
