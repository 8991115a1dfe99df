/*
 * Payloads of the host's frames: which keys each may have (api/guest.cddl),
 * in one table.
 */
#ifndef HUTCH_GUEST_PAYLOAD_H
#define HUTCH_GUEST_PAYLOAD_H

#include "guest_proto.h"
#include "wire.h"

/* 0, or -EPROTO with a sentence that begins with the frame's name. */
int payload_decode(enum gp_type type, const void *payload, size_t len,
		   struct wire_map *ret, char *why, size_t why_cap);
/* Appends each "NAME=value" of RUN's env and a NUL, as runners take it; one
 * with a NUL inside is left out.  0 or -ENOMEM. */
int payload_env_pack(struct bytes *out, struct span list);

#endif
