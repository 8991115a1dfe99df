/* A VMM's log, line by line; see vmm_log.h. */
#include "vmm_log.h"
#include "../clock.h"
#include "log.h"
#include <errno.h>
#include <unistd.h>

void vmm_log_begin(struct vmm_log *l, const char *name, const pid_t *pid)
{
	*l = (struct vmm_log){
		.name = name,
		.pid = pid,
		.n_tokens = VMM_LOG_BURST_LINES,
		.refilled_ms = clock_mono_ms(),
	};
}

bool vmm_log_token(struct vmm_log *l)
{
	int64_t now = clock_mono_ms();
	int64_t more = (now - l->refilled_ms) * VMM_LOG_LINES_PER_S / 1000;

	if (more > 0) {
		l->n_tokens = (unsigned)(l->n_tokens + more);
		if (l->n_tokens > VMM_LOG_BURST_LINES)
			l->n_tokens = VMM_LOG_BURST_LINES;
		l->refilled_ms = now;
	}
	if (!l->n_tokens) {
		l->n_dropped++;
		return false;
	}
	l->n_tokens--;
	return true;
}

void vmm_log_flush(struct vmm_log *l)
{
	if (l->len && vmm_log_token(l)) {
		log_info("%s pid=%d vmm=\"%s\" dropped=%u", l->name,
			 (int)*l->pid, log_quoted(l->buf, l->len).s,
			 l->n_dropped);
		l->n_dropped = 0;
	}
	l->len = 0;
}

int vmm_log_read(struct vmm_log *l, int fd)
{
	char buf[2048];
	ssize_t n = read(fd, buf, sizeof(buf));

	if (n < 0)
		return -errno;
	for (ssize_t i = 0; i < n; i++) {
		if (buf[i] == '\n' || l->len == sizeof(l->buf))
			vmm_log_flush(l);
		if (buf[i] != '\n')
			l->buf[l->len++] = buf[i];
	}
	return (int)n;
}
