/* File descriptors with an owner; see fd.h. */
#include "fd.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

int fd_take(int *fd)
{
	int got = *fd;

	*fd = -1;
	return got;
}

int fd_read_all(int fd, void *dst, size_t len)
{
	char *p = dst;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_write_all(int fd, const void *src, size_t len)
{
	const char *p = src;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_pread_all(int fd, void *dst, size_t len, off_t at)
{
	char *p = dst;

	while (len) {
		ssize_t n = pread(fd, p, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		p += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_pwrite_all(int fd, const void *src, size_t len, off_t at)
{
	const char *p = src;

	while (len) {
		ssize_t n = pwrite(fd, p, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_send(int sock, const void *data, size_t len, const int *fds,
	    size_t n_fds)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
		struct cmsghdr align;
	} u;
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data,
			    .iov_len = len};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n_fds > FD_PASS_MAX)
		return -EINVAL;
	if (n_fds) {
		struct cmsghdr *c;

		memset(&u, 0, sizeof(u));
		m.msg_control = u.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
	}
	for (;;) {
		ssize_t n = sendmsg(sock, &m, MSG_NOSIGNAL);

		if (n >= 0)
			return (size_t)n == len ? 0 : -EMSGSIZE;
		if (errno != EINTR)
			return -errno;
	}
}

ssize_t fd_recv(int sock, void *dst, size_t cap, int *fds, size_t *n_fds,
		int flags)
{
	union {
		char buf[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
		struct cmsghdr align;
	} u;
	struct iovec iov = {.iov_base = dst, .iov_len = cap};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = u.buf,
			   .msg_controllen = sizeof(u.buf)};
	size_t room = n_fds ? *n_fds : 0, got = 0;
	int too_many = 0;
	ssize_t n;

	do
		n = recvmsg(sock, &m, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		size_t k;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < k; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (got < room) {
				fds[got++] = fd;
			} else {
				close(fd);
				too_many = 1;
			}
		}
	}
	if (n_fds)
		*n_fds = got;
	if (too_many || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		for (size_t i = 0; i < got; i++)
			close(fds[i]);
		if (n_fds)
			*n_fds = 0;
		return -EMSGSIZE;
	}
	return n;
}
