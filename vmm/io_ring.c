/*
 * I/O backend: one io_uring ring that can do little.
 *
 * seccomp does not see what a ring does, so the ring itself is restricted
 * before it is enabled: only the opcodes below, only on registered files, and
 * no registration afterwards but the update of those files (a new channel's
 * descriptor).  Buffers are not registered: that would pin guest RAM.
 *
 * Completion task work is left until this thread enters the kernel anyway
 * (COOP_TASKRUN), and kernel worker threads are few (WORKERS_MAX).
 */
#include "io_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>

#define CQ_ENTRIES  (2 * IO_OPS_MAX)
#define BATCH	    64
#define WORKERS_MAX 4

static const uint8_t opcodes[] = {
	IORING_OP_READV,       /* blk IN */
	IORING_OP_WRITEV,      /* blk OUT */
	IORING_OP_FSYNC,       /* blk FLUSH */
	IORING_OP_FALLOCATE,   /* blk DISCARD, WRITE_ZEROES */
	IORING_OP_POLL_ADD,    /* channel sockets */
	IORING_OP_POLL_REMOVE, /* the same */
	IORING_OP_READ,	       /* the wake-up */
};
#define N_OPCODES (sizeof(opcodes) / sizeof(opcodes[0]))
#define N_RULES	  (N_OPCODES + 3)

static int ring_restrict(struct io_uring *ring)
{
	struct io_uring_restriction rule[N_RULES] = {0};
	unsigned n = 0;

	for (; n < N_OPCODES; n++) {
		rule[n].opcode = IORING_RESTRICTION_SQE_OP;
		rule[n].sqe_op = opcodes[n];
	}
	rule[n].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
	rule[n++].sqe_flags = IOSQE_FIXED_FILE;
	rule[n].opcode = IORING_RESTRICTION_SQE_FLAGS_REQUIRED;
	rule[n++].sqe_flags = IOSQE_FIXED_FILE;
	rule[n].opcode = IORING_RESTRICTION_REGISTER_OP;
	rule[n++].register_op = IORING_REGISTER_FILES_UPDATE;
	return io_uring_register_restrictions(ring, rule, n);
}

static void ring_destroy(struct io *io)
{
	struct io_uring *ring = io->be_state;

	io_uring_queue_exit(ring);
	free(ring);
	io->be_state = NULL;
}

static struct io_uring_sqe *sqe_get(struct io *io)
{
	struct io_uring *ring = io->be_state;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (sqe)
		return sqe;
	atomic_fetch_add(&io->syscalls, 1);
	if (io_uring_submit(ring) < 0)
		return NULL;
	return io_uring_get_sqe(ring);
}

static int ring_submit(struct io *io, struct io_op *op,
		       const struct io_req *req)
{
	struct io_uring_sqe *sqe = sqe_get(io);
	unsigned n = (unsigned)req->n;

	if (!sqe)
		return -EAGAIN;
	switch (req->kind) {
	case IO_READV:
		io_uring_prep_readv(sqe, op->slot, req->iov, n, req->off);
		break;
	case IO_WRITEV:
		io_uring_prep_writev(sqe, op->slot, req->iov, n, req->off);
		break;
	case IO_FSYNC:
		io_uring_prep_fsync(sqe, op->slot, IORING_FSYNC_DATASYNC);
		break;
	case IO_PUNCH:
		io_uring_prep_fallocate(sqe, op->slot,
					FALLOC_FL_PUNCH_HOLE |
						FALLOC_FL_KEEP_SIZE,
					(off_t)req->off, (off_t)req->len);
		break;
	case IO_POLL:
		io_uring_prep_poll_add(sqe, op->slot, req->events);
		break;
	case IO_READ:
		io_uring_prep_read(sqe, op->slot, req->buf, (unsigned)req->len,
				   0);
		break;
	}
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data(sqe, op);
	return 0;
}

static int ring_cancel(struct io *io, struct io_op *op)
{
	struct io_uring_sqe *sqe = sqe_get(io);

	if (!sqe)
		return -EAGAIN;
	io_uring_prep_poll_remove(sqe, (uint64_t)(uintptr_t)op);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data(sqe, NULL);
	return 0;
}

static void ring_turn(struct io *io, bool is_waiting)
{
	struct io_uring *ring = io->be_state;
	struct io_uring_cqe *cqe[BATCH];
	struct {
		struct io_op *op;
		int res;
	} got[BATCH];
	unsigned left = CQ_ENTRIES, n;

	/* Errors (EINTR, EBUSY, EAGAIN) mean: look at completions first. */
	atomic_fetch_add(&io->syscalls, 1);
	if (is_waiting)
		io_uring_submit_and_wait(ring, 1);
	else
		io_uring_submit_and_get_events(ring);

	/* Bounded: what is started below may complete at once. */
	while (left > 0 && (n = io_uring_peek_batch_cqe(ring, cqe, BATCH))) {
		for (unsigned i = 0; i < n; i++) {
			got[i].op = io_uring_cqe_get_data(cqe[i]);
			got[i].res = cqe[i]->res;
		}
		io_uring_cq_advance(ring, n);
		for (unsigned i = 0; i < n; i++)
			if (got[i].op)
				io_complete(io, got[i].op, got[i].res);
		left -= n < left ? n : left;
	}
}

static int ring_file_set(struct io *io, int slot, int fd)
{
	int r = io_uring_register_files_update(io->be_state, (unsigned)slot,
					       &fd, 1);

	return r < 0 ? r : 0;
}

static const struct io_backend ring_backend = {
	.submit = ring_submit,
	.cancel = ring_cancel,
	.turn = ring_turn,
	.file_set = ring_file_set,
	.destroy = ring_destroy,
};

static int ring_open(struct io_uring *ring, unsigned entries)
{
	struct io_uring_params p = {
		.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE |
			 IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		.cq_entries = CQ_ENTRIES,
	};
	int r = io_uring_queue_init_params(entries, ring, &p);

	if (r == -EINVAL) { /* Linux before 5.19 */
		p = (struct io_uring_params){
			.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE,
			.cq_entries = CQ_ENTRIES,
		};
		r = io_uring_queue_init_params(entries, ring, &p);
	}
	return r;
}

int io_ring_create(struct io *io, unsigned entries)
{
	unsigned workers[2] = {WORKERS_MAX, WORKERS_MAX};
	struct io_uring *ring = calloc(1, sizeof(*ring));
	int r;

	if (!ring)
		return -ENOMEM;
	r = ring_open(ring, entries);
	if (r < 0) {
		free(ring);
		return r;
	}
	r = io_uring_register_files_sparse(ring, IO_FILES_MAX);
	if (r == 0)
		r = io_uring_register_iowq_max_workers(ring, workers);
	if (r == 0)
		r = ring_restrict(ring);
	if (r == 0)
		r = io_uring_enable_rings(ring);
	if (r < 0) {
		io_uring_queue_exit(ring);
		free(ring);
		return r;
	}
	io->be_state = ring;
	io->be = &ring_backend;
	return 0;
}

bool io_has_ring(const struct io *io)
{
	return io->be == &ring_backend;
}
