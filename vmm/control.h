/*
 * The main thread's loop: the owner's requests and the VM's notices.
 */
#ifndef HUTCH_CONTROL_H
#define HUTCH_CONTROL_H

#include "vm.h"

struct control {
	struct vm *vm;
	int sock;	   /* owned; -1 = standalone */
	int channel;	   /* owned; for the first agent connection, then -1 */
	int log;	   /* borrowed; -1 = none */
	uint64_t start_ns; /* CLOCK_MONOTONIC of main() */
};

/* Until the VM ends; returns why (also the exit status). */
enum vmm_why control_run(struct control *c);
/* The last message to the owner. */
void control_tell_end(struct control *c, const struct vmm_exit *end);

#endif
