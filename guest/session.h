/*
 * Frames from the host, dispatched by a table: which phase each needs, and
 * who answers.
 */
#ifndef HUTCH_GUEST_SESSION_H
#define HUTCH_GUEST_SESSION_H

#include "guest.h"

/* Callbacks of the link; ctx is the guest. */
void session_up(void *ctx);
void session_room(void *ctx);
void session_frame(void *ctx, const struct frame *f);

#endif
