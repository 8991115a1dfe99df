/*
 * Snapshot of a paused VM to two files, and restore in a fresh process.
 *
 * Save is called by the main thread while the VM is paused and leaves it as it
 * was.  Load is called before any thread exists.  The agent's connection lives
 * on (vsock_attach); every other one is reset.
 */
#ifndef HUTCH_SNAPSHOT_H
#define HUTCH_SNAPSHOT_H

#include "err.h"
#include <stdbool.h>

struct vm;

/* -EBUSY when not paused.  The files are borrowed.  0 or -errno with `e`. */
int snapshot_save(struct vm *vm, int state_fd, int mem_fd, struct err *e);

/*
 * Two steps: the state is read and checked against this host and the VM's
 * shape, and its memory is laid over the VM's, before KVM sees any of it.
 * Then vCPUs, interrupts, clock and devices get theirs.
 */
int snapshot_open(struct vm *vm, int state_fd, int mem_fd, bool is_verified,
		  struct err *e);
int snapshot_load(struct vm *vm, struct err *e);

#endif
