/*
 * The end of a guest's boot log, for the text of an error.
 *
 * The VMM writes what the guest's kernel prints to a pipe; the last few KiB of
 * it are kept, and its last line or two are shown when a boot fails.  All of
 * it is the guest's: cleaned before it is shown.
 */
#ifndef HUTCHD_BOOT_LOG_H
#define HUTCHD_BOOT_LOG_H

#include "../loop.h"

#define BOOT_LOG_BYTES	    8192
#define BOOT_LOG_TAIL_BYTES 181 /* shown, with the NUL */

struct boot_log {
	struct loop *loop;
	struct loop_watch watch; /* fd: our end of the pipe, -1 = closed */
	char text[BOOT_LOG_BYTES];
	size_t len;
};

void boot_log_init(struct boot_log *b);
/* 0 and the end to write to, or -errno. */
int boot_log_open(struct boot_log *b, struct loop *loop, int *ret_fd);
/* All that is in the pipe now. */
void boot_log_drain(struct boot_log *b);
void boot_log_close(struct boot_log *b); /* twice is fine */

/* The end of it as one line. */
void boot_log_tail(const struct boot_log *b, char dst[BOOT_LOG_TAIL_BYTES]);

#endif
