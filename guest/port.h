/*
 * The monitor's ports: log, marks, power.  One port write is one exit and no
 * system call, so the log costs little where the guest's kernel is slow.
 *
 * Before port_open() (unit tests never call it: on a real machine these ports
 * belong to someone else) the log goes to standard error and marks are
 * dropped.
 */
#ifndef HUTCH_GUEST_PORT_H
#define HUTCH_GUEST_PORT_H

#include "guest_abi.h"
#include <stdint.h>

int port_open(void); /* 0, or -errno of ioperm */
void port_close(void);
void port_mark(uint32_t mark);
/* The huge page `frame` is the shared page of that lane (lane.h). */
void port_lane_page(uint64_t frame, uint32_t lane);
/* Comes back when the VM goes on. */
void port_lane_ring(uint32_t lane);
void port_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void port_power_off(void);

#endif
