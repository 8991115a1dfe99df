/*
 * Between io.c (devices, wake-ups, calls, accounting) and its two backends:
 * io_ring.c (io_uring) and io_poll.c (ppoll and synchronous disk calls).
 * Nobody else includes this.
 */
#ifndef HUTCH_IO_PRIV_H
#define HUTCH_IO_PRIV_H

#include "io.h"
#include <pthread.h>
#include <stdatomic.h>

#define IO_DEVICES_MAX 8

enum io_kind { IO_READV, IO_WRITEV, IO_FSYNC, IO_PUNCH, IO_POLL, IO_READ };

struct io_req {
	enum io_kind kind;
	const struct iovec *iov;
	int n;
	uint64_t off, len;
	uint32_t events;
	void *buf; /* IO_READ */
};

struct io_backend {
	/* Queue `req` for op; 0 or -errno, -EAGAIN when there is no room. */
	int (*submit)(struct io *io, struct io_op *op,
		      const struct io_req *req);
	int (*cancel)(struct io *io, struct io_op *op);
	/* Start what is queued, wait for one completion if asked, and give
	 * all that completed to io_complete(). */
	void (*turn)(struct io *io, bool is_waiting);
	int (*file_set)(struct io *io, int slot, int fd); /* fd -1 = none */
	void (*destroy)(struct io *io);
};

struct io_call_item {
	void (*fn)(void *);
	void *arg;
	bool is_done;
	struct io_call_item *next;
};

struct io {
	const struct io_backend *be;
	void *be_state; /* owned by the backend */
	bool file_used[IO_FILES_MAX];
	struct virtio_dev *dev[IO_DEVICES_MAX]; /* borrowed */
	unsigned n_dev;
	unsigned n_pending, n_data; /* operations not completed */
	uint64_t n_completed;
	bool is_starved; /* a device was told -EAGAIN */
	bool is_stopping;
	bool has_more; /* a device is not through with its queue */

	int wake_fd; /* owned */
	struct io_op wake_op;
	uint64_t wake_buf;
	bool is_woken;
	atomic_bool wake_pending;
	atomic_bool stop;
	atomic_uint_fast64_t syscalls;

	pthread_mutex_t call_lock;
	pthread_cond_t call_done;
	bool is_running;
	pthread_t thread;
	struct io_call_item *calls;
};

int io_ring_create(struct io *io, unsigned entries);
int io_poll_create(struct io *io);
void io_complete(struct io *io, struct io_op *op, int res);

#endif
