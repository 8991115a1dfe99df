/* See played_io.h. */
#include "played_io.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

struct pending pend[PENDING_MAX];
unsigned n_pend, n_started, room = PENDING_MAX;

static struct virtio_dev *dev;

static int start(struct io_op *op, enum kind kind, const struct iovec *iov,
		 int n, uint64_t off, uint64_t len)
{
	struct pending *p = &pend[n_pend];

	assert(!op->is_pending);
	if (n_pend >= room)
		return -EAGAIN;
	*p = (struct pending){.op = op,
			      .kind = kind,
			      .n = n,
			      .off = off,
			      .len = len,
			      .id = n_started};
	for (int i = 0; i < n; i++) {
		p->iov[i] = iov[i];
		p->len += iov[i].iov_len;
	}
	op->is_pending = true;
	n_pend++;
	n_started++;
	return 0;
}

int io_readv(struct io *io, struct io_op *op, const struct iovec *iov, int n,
	     uint64_t off)
{
	(void)io;
	return start(op, READV, iov, n, off, 0);
}

int io_writev(struct io *io, struct io_op *op, const struct iovec *iov, int n,
	      uint64_t off)
{
	(void)io;
	return start(op, WRITEV, iov, n, off, 0);
}

int io_fsync(struct io *io, struct io_op *op)
{
	(void)io;
	return start(op, FSYNC, NULL, 0, 0, 0);
}

int io_punch(struct io *io, struct io_op *op, uint64_t off, uint64_t len)
{
	(void)io;
	return start(op, PUNCH, NULL, 0, off, len);
}

int io_file_add(struct io *io, int fd)
{
	(void)io;
	return fd >= 0 ? 0 : -EBADF;
}

void io_file_remove(struct io *io, int slot)
{
	(void)io;
	(void)slot;
}

void io_device_remove(struct io *io, struct virtio_dev *d)
{
	(void)io;
	(void)d;
}

void io_wake(struct io *io)
{
	(void)io;
}

void io_step(struct io *io)
{
	(void)io;
	virtio_dev_serve(dev);
}

void played_begin(struct virtio_dev *served)
{
	n_pend = n_started = 0;
	room = PENDING_MAX;
	dev = served;
}

static void drop(unsigned i)
{
	assert(i < n_pend);
	pend[i].op->is_pending = false;
	n_pend--;
	memmove(&pend[i], &pend[i + 1], (n_pend - i) * sizeof(pend[0]));
}

void complete(unsigned i, int res)
{
	struct io_op *op = pend[i].op;

	drop(i);
	op->done(op, res);
}
