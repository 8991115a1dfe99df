/* The pipe of a guest's boot log; see boot_log.h. */
#include "boot_log.h"
#include "fd.h"
#include "gp_up.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* False when there is nothing now, or nothing any more. */
static bool read_some(struct boot_log *b)
{
	char buf[BOOT_LOG_BYTES / 2];
	ssize_t n = read(b->watch.fd, buf, sizeof(buf));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		boot_log_close(b);
	if (n <= 0)
		return false;
	if (b->len + (size_t)n > sizeof(b->text)) {
		size_t keep = sizeof(b->text) / 2;

		if (keep > b->len)
			keep = b->len;
		memmove(b->text, b->text + b->len - keep, keep);
		b->len = keep;
	}
	memcpy(b->text + b->len, buf, (size_t)n);
	b->len += (size_t)n;
	return true;
}

static void on_pipe(struct loop_watch *w, uint32_t revents)
{
	(void)revents;
	read_some(container_of(w, struct boot_log, watch));
}

void boot_log_init(struct boot_log *b)
{
	b->len = 0;
	b->watch = (struct loop_watch){on_pipe, -1, POLLIN, NULL};
}

int boot_log_open(struct boot_log *b, struct loop *loop, int *ret_fd)
{
	int fds[2], rc;

	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	b->loop = loop;
	b->watch.fd = fds[0];
	rc = loop_watch_add(loop, &b->watch);
	if (rc) {
		fd_close(&b->watch.fd);
		fd_close(&fds[1]);
		return rc;
	}
	*ret_fd = fds[1];
	return 0;
}

/* Bounded, should somebody write on and on. */
void boot_log_drain(struct boot_log *b)
{
	for (int i = 0; i < 64 && b->watch.fd >= 0; i++)
		if (!read_some(b))
			break;
}

void boot_log_close(struct boot_log *b)
{
	if (b->watch.fd < 0)
		return;
	loop_watch_remove(b->loop, &b->watch);
	fd_close(&b->watch.fd);
}

void boot_log_tail(const struct boot_log *b, char dst[BOOT_LOG_TAIL_BYTES])
{
	size_t n = b->len < BOOT_LOG_TAIL_BYTES - 1 ? b->len
						    : BOOT_LOG_TAIL_BYTES - 1;

	gp_text_clean(dst, BOOT_LOG_TAIL_BYTES, b->text + b->len - n, n, true);
	for (char *p = dst; *p; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
}
