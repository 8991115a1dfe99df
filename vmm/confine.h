/*
 * Giving up power, in named stages, before the guest runs.
 *
 * confine_process() runs once, single threaded, after everything is open:
 *
 *   fds          0-2 exist; what is not ours is closed
 *   limits       no core, few descriptors, bounded file size
 *   namespaces   own mount, net, ipc and uts (with root), empty root
 *   ids          uid, gid, no groups; all capabilities gone, also bounding
 *   privileges   no new ones, ever
 *   landlock     every right of the running kernel denied, no exceptions
 *   dump         not dumpable: no core, no ptrace, /proc/PID owned by root
 *
 * confine_thread() is each thread's last stage: its seccomp list, narrow and
 * with a reason an entry (confine_seccomp.c); a call outside kills the
 * process.  It fails closed: a stage that cannot be had ends the start.
 */
#ifndef HUTCH_CONFINE_H
#define HUTCH_CONFINE_H

#include "options.h"

enum confine_kind { CONFINE_MAIN, CONFINE_VCPU, CONFINE_IO, CONFINE_TRACE };

int confine_process(const struct options *o, struct err *e);
int confine_thread(enum confine_kind kind, struct err *e);
/* Main thread: until `n` other threads have been through confine_thread; -1
 * with the first one's error when any failed. */
int confine_threads_wait(unsigned n, struct err *e);
/* --no-confine: confine_thread does nothing from now on. */
void confine_threads_off(void);

#endif
