/*
 * What vCPU and I/O threads tell the main thread.
 *
 * Bounded mail boxes under one lock and an eventfd that makes the main thread
 * look.  A sender never waits: what does not fit is counted (an open request
 * is then refused by the caller).  The first end wins; later ones are ignored.
 */
#ifndef HUTCH_NOTICE_H
#define HUTCH_NOTICE_H

#include "vmm_ctl.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define NOTICE_OPENS_MAX   64
#define NOTICE_DEVICES_MAX 4

struct notice_open {
	uint32_t conn, port;
};

struct notice {
	pthread_mutex_t lock;
	int fd; /* owned: eventfd */
	bool has_end, has_started;
	struct vmm_exit end;
	uint64_t
		started_ns; /* CLOCK_MONOTONIC of the first KVM_RUN; 0 = none */
	uint32_t n_opens, n_devices, n_devices_lost;
	struct notice_open open[NOTICE_OPENS_MAX];
	struct vmm_exit device[NOTICE_DEVICES_MAX];
};

int notice_init(struct notice *n); /* 0 or -errno */
/* Make the main thread look (also used for log bytes). */
void notice_wake(struct notice *n);
/* Forget the wakes so far; main thread, before it looks. */
void notice_clear(struct notice *n);

/* Any thread. */
void notice_end(struct notice *n, enum vmm_why why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void notice_started(struct notice *n, uint64_t ns); /* the first counts */
bool notice_open(struct notice *n, uint32_t conn, uint32_t port);
void notice_device(struct notice *n, const char *text);

/* Main thread: take one; false when there is none. */
bool notice_take_open(struct notice *n, struct notice_open *ret);
bool notice_take_device(struct notice *n, struct vmm_exit *ret);
bool notice_take_started(struct notice *n, uint64_t *ret_ns);
bool notice_get_end(struct notice *n, struct vmm_exit *ret);

#endif
