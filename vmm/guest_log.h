/*
 * The guest's boot log: the last GUEST_LOG_BYTES that it wrote to
 * HUTCH_PORT_LOG.
 *
 * Writers are vCPU threads and never wait for a reader: a full ring drops its
 * oldest bytes.  The main thread copies the ring for VMM_LOG, and forwards
 * new bytes to --log.  The bytes are the guest's: untrusted, unescaped.
 */
#ifndef HUTCH_GUEST_LOG_H
#define HUTCH_GUEST_LOG_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define GUEST_LOG_BYTES (32u << 10) /* power of two */

struct guest_log {
	pthread_mutex_t lock;
	uint64_t total;	    /* bytes ever written */
	uint64_t forwarded; /* main thread: how far --log has got */
	uint8_t ring[GUEST_LOG_BYTES];
};

void guest_log_init(struct guest_log *l);
void guest_log_add(struct guest_log *l, const uint8_t *data, size_t len);
/* Copy what is still there from byte `*at` of the whole stream on; returns the
 * count and moves *at behind it (and over what was dropped). */
size_t guest_log_read(struct guest_log *l, uint64_t *at, void *dst, size_t cap);
/* The last line that is not empty, printable, NUL terminated; "" if none. */
void guest_log_last_line(struct guest_log *l, char *dst, size_t cap);

#endif
