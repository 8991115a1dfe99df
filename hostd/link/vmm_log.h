/*
 * What a hutch-vmm writes to its log, as lines of ours.
 *
 * A guest can cause notices: a burst of lines passes, then a steady trickle,
 * and what is dropped is counted.
 */
#ifndef HUTCHD_VMM_LOG_H
#define HUTCHD_VMM_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VMM_LOG_BURST_LINES 30
#define VMM_LOG_LINES_PER_S 2
#define VMM_LOG_LINE_BYTES  512

struct vmm_log {
	const char *name; /* borrowed, as is pid: lines begin with them */
	const pid_t *pid;
	char buf[VMM_LOG_LINE_BYTES];
	size_t len;
	unsigned n_tokens, n_dropped;
	int64_t refilled_ms;
};

void vmm_log_begin(struct vmm_log *l, const char *name, const pid_t *pid);
/* Takes what the pipe has, one read: its bytes, 0 at the end, or -errno. */
int vmm_log_read(struct vmm_log *l, int fd);
void vmm_log_flush(struct vmm_log *l); /* a last line without an end */
/* May one more line be written?  Also for lines of other origin. */
bool vmm_log_token(struct vmm_log *l);

#endif
