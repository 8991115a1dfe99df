/*
 * I/O backend without io_uring: disk operations run at once by the classic
 * system calls, descriptors are waited for by ppoll.
 *
 * A disk operation's result is kept until the next turn: `done` never runs
 * inside the call that started the operation, as with the ring.
 */
#include "io_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct poller {
	int fd[IO_FILES_MAX];
	struct io_op *ready; /* completed, result in op->res */
	struct io_op **ready_end;
	unsigned n;
	struct io_op *op[IO_OPS_MAX]; /* waiting, beside pfd */
	void *buf[IO_OPS_MAX];	      /* IO_READ: where to, else NULL */
	struct pollfd pfd[IO_OPS_MAX];
};

static void ready_add(struct poller *p, struct io_op *op, int res)
{
	op->res = res;
	op->next = NULL;
	*p->ready_end = op;
	p->ready_end = &op->next;
}

static int wait_add(struct poller *p, struct io_op *op, uint32_t events,
		    void *buf)
{
	if (p->n == IO_OPS_MAX)
		return -EAGAIN;
	p->op[p->n] = op;
	p->buf[p->n] = buf;
	p->pfd[p->n] = (struct pollfd){
		.fd = p->fd[op->slot],
		.events = (short)events,
	};
	p->n++;
	return 0;
}

static void wait_drop(struct poller *p, unsigned i)
{
	p->n--;
	p->op[i] = p->op[p->n];
	p->buf[i] = p->buf[p->n];
	p->pfd[i] = p->pfd[p->n];
}

static int poller_submit(struct io *io, struct io_op *op,
			 const struct io_req *req)
{
	struct poller *p = io->be_state;
	int fd = p->fd[op->slot];
	ssize_t r = 0;

	switch (req->kind) {
	case IO_POLL:
		return wait_add(p, op, req->events, NULL);
	case IO_READ:
		return wait_add(p, op, POLLIN, req->buf);
	case IO_READV:
		r = preadv(fd, req->iov, req->n, (off_t)req->off);
		break;
	case IO_WRITEV:
		r = pwritev(fd, req->iov, req->n, (off_t)req->off);
		break;
	case IO_FSYNC:
		r = fdatasync(fd);
		break;
	case IO_PUNCH:
		r = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      (off_t)req->off, (off_t)req->len);
		break;
	}
	atomic_fetch_add(&io->syscalls, 1);
	ready_add(p, op, r < 0 ? -errno : (int)r);
	return 0;
}

static int poller_cancel(struct io *io, struct io_op *op)
{
	struct poller *p = io->be_state;

	for (unsigned i = 0; i < p->n; i++) {
		if (p->op[i] != op)
			continue;
		wait_drop(p, i);
		ready_add(p, op, -ECANCELED);
		break;
	}
	return 0;
}

static void poller_turn(struct io *io, bool is_waiting)
{
	struct poller *p = io->be_state;
	static const struct timespec now = {0};
	struct io_op *op, *next;

	atomic_fetch_add(&io->syscalls, 1);
	if (ppoll(p->pfd, p->n, is_waiting && !p->ready ? NULL : &now, NULL) >
	    0) {
		for (unsigned i = p->n; i-- > 0;) {
			short got = p->pfd[i].revents;
			ssize_t r = got;

			if (!got)
				continue;
			op = p->op[i];
			if (p->buf[i])
				r = read(p->pfd[i].fd, p->buf[i],
					 sizeof(uint64_t));
			wait_drop(p, i);
			ready_add(p, op, r < 0 ? -errno : (int)r);
		}
	}

	/* Only what is ready now: `done` may start and finish more. */
	op = p->ready;
	p->ready = NULL;
	p->ready_end = &p->ready;
	for (; op; op = next) {
		next = op->next;
		io_complete(io, op, op->res);
	}
}

static int poller_file_set(struct io *io, int slot, int fd)
{
	struct poller *p = io->be_state;

	p->fd[slot] = fd;
	return 0;
}

static void poller_destroy(struct io *io)
{
	free(io->be_state);
	io->be_state = NULL;
}

static const struct io_backend poll_backend = {
	.submit = poller_submit,
	.cancel = poller_cancel,
	.turn = poller_turn,
	.file_set = poller_file_set,
	.destroy = poller_destroy,
};

int io_poll_create(struct io *io)
{
	struct poller *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	for (int i = 0; i < IO_FILES_MAX; i++)
		p->fd[i] = -1;
	p->ready_end = &p->ready;
	io->be_state = p;
	io->be = &poll_backend;
	return 0;
}
