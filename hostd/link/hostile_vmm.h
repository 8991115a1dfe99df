/* What the parts of hostile_vmm share. */
#ifndef HUTCHD_HOSTILE_VMM_H
#define HUTCHD_HOSTILE_VMM_H

#include "guest_proto.h"
#include "vmm_ctl.h"
#include <stdbool.h>

extern int control;

/* One message to the owner. */
void tell(uint32_t type, int status, const void *body, uint32_t len);
/* The next frame of this type on the channel. */
void wait_for_frame(uint16_t type);

/* hostile_lane.c: one letter of a script; false: not of the lane. */
bool play_lane(char c);
/* By the first letter of a script. */
uint32_t lanes_of(const char *script);

#endif
