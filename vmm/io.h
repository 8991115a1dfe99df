/*
 * The I/O thread: one io_uring ring for disks and channel.
 *
 * The ring is created disabled, restricted to the operations used
 * (READV WRITEV FSYNC FALLOCATE POLL_ADD POLL_REMOVE READ) on registered
 * files only, and then enabled; seccomp later forbids io_uring_setup and
 * io_uring_register except the registered-file update that gives a channel
 * its descriptor.  When the kernel has no io_uring (or io_config.use_ring is
 * false) a ppoll loop with synchronous disk I/O serves instead.
 *
 * One thread runs io_run().  Operations are embedded in their owner
 * (struct io_op) and the owner lives until `done` ran.  io_wake() may be
 * called from any thread and makes io_run() call every device's `serve` whose
 * `kicked` bits are set.
 */
#ifndef HUTCH_IO_H
#define HUTCH_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct io;
struct virtio_dev;

struct io_op {
	void (*done)(struct io_op *op, int res); /* I/O thread; res as CQE */
	int slot; /* registered file, by io_file_add */
	bool is_pending;
	/* io's own: */
	bool is_data; /* touches guest memory: waited for at the end */
	int res;
	struct io_op *next;
};

#define IO_FILES_MAX 128 /* registered slots */
#define IO_OPS_MAX   256 /* operations pending at once */

struct io_config {
	bool use_ring;
	unsigned entries; /* SQ entries; 0 = default */
};

int io_create(struct io **ret, const struct io_config *cfg);
void io_destroy(struct io *io);
bool io_has_ring(const struct io *io);

/* Give a descriptor a registered slot; fd stays the caller's.  >= 0 or
 * -errno.  Any thread before io_run, I/O thread after. */
int io_file_add(struct io *io, int fd);
void io_file_remove(struct io *io, int slot);

/* I/O thread only.  -EAGAIN when the ring is full (backpressure). */
int io_readv(struct io *io, struct io_op *op, const struct iovec *iov, int n,
	     uint64_t off);
int io_writev(struct io *io, struct io_op *op, const struct iovec *iov, int n,
	      uint64_t off);
int io_fsync(struct io *io, struct io_op *op);
int io_punch(struct io *io, struct io_op *op, uint64_t off, uint64_t len);
/* One-shot poll for POLLIN/POLLOUT. */
int io_poll(struct io *io, struct io_op *op, uint32_t events);
int io_poll_cancel(struct io *io, struct io_op *op);

/* Devices to serve; before io_run. */
int io_device_add(struct io *io, struct virtio_dev *d);
void io_device_remove(struct io *io, struct virtio_dev *d);
void io_wake(struct io *io); /* any thread */
/* Run `fn` on the I/O thread and wait for it (any other thread). */
void io_call(struct io *io, void (*fn)(void *), void *arg);
/* Until io_stop; the thread's main function.  Before it returns every disk
 * operation has completed, so guest memory may go away after it. */
void io_run(struct io *io);
/* One turn of io_run that does not wait (tests, fuzzing). */
void io_step(struct io *io);
void io_stop(struct io *io); /* any thread */

/* io_uring_enter calls (or polls) made so far. */
uint64_t io_syscalls(const struct io *io);

#endif
