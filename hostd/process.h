/* What the process asks of its host before it starts to serve. */
#ifndef HUTCHD_PROCESS_H
#define HUTCHD_PROCESS_H

#include "err.h"
#include <stddef.h>

/*
 * SIGPIPE ignored, descriptors raised to the hard limit, less likely to be
 * killed than the VMs when memory runs out.  What is refused is logged.
 *
 * No core file, whatever the host's core_pattern, and no debugger but root's:
 * memory holds code, input and values of env.
 */
void process_prepare(void);

/* SIGTERM, SIGINT and SIGHUP as a descriptor; blocked in all threads made
 * later.  -1 with `e`. */
int process_signals(struct err *e);

/* Folder of the running program. */
int process_exe_dir(char *dst, size_t cap, struct err *e);

/* /proc/sys/kernel/random/boot_id, 36 characters. */
int process_boot_id(char *dst, size_t cap, struct err *e);

#endif
