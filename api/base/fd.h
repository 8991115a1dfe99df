/*
 * File descriptors with an owner.  -1 = none.  Every descriptor is O_CLOEXEC
 * from its birth; what a child shall have is passed on purpose.
 */
#ifndef HUTCH_FD_H
#define HUTCH_FD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Closes *fd unless it is -1; keeps errno; leaves -1. */
void fd_close(int *fd);
#define _cleanup_fd_ __attribute__((cleanup(fd_close)))

/* Hand over: returns *fd and leaves -1. */
int fd_take(int *fd);

/* Whole length or a negative errno (-ENODATA: file ended before `len`). */
int fd_read_all(int fd, void *dst, size_t len);
int fd_write_all(int fd, const void *src, size_t len);
int fd_pread_all(int fd, void *dst, size_t len, off_t at);
int fd_pwrite_all(int fd, const void *src, size_t len, off_t at);

/*
 * One packet with up to n_fds descriptors over a Unix socket.  Received ones
 * are O_CLOEXEC and owned by the caller.  fd_recv: bytes received, 0 at end of
 * file, or a negative errno; *n_fds in = room, out = received; a packet cut
 * short (MSG_TRUNC, MSG_CTRUNC) is -EMSGSIZE and its descriptors are closed.
 */
int fd_send(int sock, const void *data, size_t len, const int *fds,
	    size_t n_fds);
ssize_t fd_recv(int sock, void *dst, size_t cap, int *fds, size_t *n_fds,
		int flags);
#define FD_PASS_MAX 8

#endif
