/*
 * vCPUs: one thread each, parked and unparked together.
 *
 * A parked vCPU has left KVM_RUN by EINTR under `immediate_exit`, so a port
 * write or read that was pending is complete and its registers are final:
 * that is the state a snapshot reads.  Parking is free of races: the request
 * is stored first, then immediate_exit is set and a signal sent; a vCPU clears
 * immediate_exit before it looks at the request.
 *
 * All vCPUs start parked.  The main thread parks and unparks; a vCPU may ask
 * for all to park (vcpu_park_all), and the last one that does tells the owner,
 * or the main thread when that is busy, what lanes have to say.
 */
#ifndef HUTCH_VCPU_H
#define HUTCH_VCPU_H

#include "kvm.h"
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define VCPU_KICK_SIGNAL SIGUSR1
/* Exits a vCPU may still take between the request and its EINTR; a string
 * instruction can need many, nothing needs more than a page of bytes. */
#define VCPU_PARK_EXITS_MAX 8192

struct vm;

enum vcpu_want { VCPU_PARK, VCPU_RUN };

struct vcpu { /* counters: written by its thread, read by any (relaxed) */
	struct vm *vm; /* borrowed */
	unsigned idx;
	int fd;		     /* owned */
	int stats;	     /* owned; -1 = none */
	struct kvm_run *run; /* owned mapping */
	pthread_t thread;
	bool has_thread;
	uint64_t exits, exits_io, exits_mmio, exits_pvx, exits_other;
};

struct vcpus {
	pthread_mutex_t lock;
	pthread_cond_t unparked, parked, nap_over;
	int want; /* enum vcpu_want, atomic */
	unsigned n, n_parked;
	struct vcpu cpu[VCPUS_MAX];
};

/* Create `n` vCPUs of the VM with CPUID set; no threads yet. */
int vcpus_create(struct vcpus *s, struct vm *vm, unsigned n, struct err *e);
/* Start the threads; each confines itself, then parks. */
int vcpus_start(struct vcpus *s, struct err *e);
void vcpus_unpark(struct vcpus *s);
void vcpus_park(struct vcpus *s);

/* From a vCPU's thread: all shall park, it too, and nobody is waited for. */
void vcpu_park_all(struct vcpu *c);
/* From a vCPU's thread: sleep, or until all shall park. */
void vcpu_nap(struct vcpu *c, uint32_t ns);

static inline void vcpu_count(uint64_t *counter)
{
	__atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

#endif
