/*
 * Snapshot to two files, and restore in a fresh process.
 */
#ifndef HUTCH_SNAPSHOT_H
#define HUTCH_SNAPSHOT_H

#include "err.h"

struct vm;

/* VM paused, else -EBUSY.  The files are borrowed.  0 or -errno with `e`. */
int snapshot_save(struct vm *vm, int state_fd, int mem_fd, struct err *e);

#endif
