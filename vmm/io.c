/*
 * The I/O thread's loop, the same for both backends.
 *
 * One turn: give out completions, run calls from other threads, serve devices
 * that were kicked, submit.  A wake-up is one write to an eventfd, and only
 * when none is pending: `wake_pending` is cleared before devices are looked
 * at, so a kick that comes later writes again and a kick that came earlier is
 * seen under the device's lock.
 *
 * Operations pending are bounded by IO_OPS_MAX, which fits the completion
 * queue.  A device that is told -EAGAIN keeps its request, leaves its `kicked`
 * bit set and is served again after the next completion.
 */
#include "io_priv.h"
#include "virtio/virtio.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IO_ENTRIES_DEFAULT 64

static void wake_done(struct io_op *op, int res);

static int wake_arm(struct io *io)
{
	struct io_req req = {.kind = IO_READ,
			     .buf = &io->wake_buf,
			     .len = sizeof(io->wake_buf)};
	int r = io->be->submit(io, &io->wake_op, &req);

	if (r == 0) {
		io->wake_op.is_pending = true;
		io->n_pending++;
	}
	return r;
}

static int io_setup(struct io *io, const struct io_config *cfg)
{
	unsigned entries = cfg->entries ? cfg->entries : IO_ENTRIES_DEFAULT;
	int r = -ENOSYS;

	io->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (io->wake_fd < 0)
		return -errno;
	if (cfg->use_ring)
		r = io_ring_create(io, entries);
	if (r < 0)
		r = io_poll_create(io);
	if (r < 0)
		return r;
	r = io_file_add(io, io->wake_fd);
	if (r < 0)
		return r;
	io->wake_op = (struct io_op){.done = wake_done, .slot = r};
	return 0;
}

int io_create(struct io **ret, const struct io_config *cfg)
{
	struct io *io = calloc(1, sizeof(*io));
	int r;

	if (!io)
		return -ENOMEM;
	io->wake_fd = -1;
	pthread_mutex_init(&io->call_lock, NULL);
	pthread_cond_init(&io->call_done, NULL);
	r = io_setup(io, cfg);
	if (r < 0) {
		io_destroy(io);
		return r;
	}
	*ret = io;
	return 0;
}

void io_destroy(struct io *io)
{
	if (!io)
		return;
	assert(!io->is_running);
	assert(io->n_data == 0); /* nothing may still write to guest memory */
	if (io->be)
		io->be->destroy(io);
	if (io->wake_fd >= 0)
		close(io->wake_fd);
	pthread_mutex_destroy(&io->call_lock);
	pthread_cond_destroy(&io->call_done);
	free(io);
}

int io_file_add(struct io *io, int fd)
{
	for (int slot = 0; slot < IO_FILES_MAX; slot++) {
		int r;

		if (io->file_used[slot])
			continue;
		r = io->be->file_set(io, slot, fd);
		if (r < 0)
			return r;
		io->file_used[slot] = true;
		return slot;
	}
	return -ENFILE;
}

void io_file_remove(struct io *io, int slot)
{
	if (slot < 0)
		return;
	assert(slot < IO_FILES_MAX && io->file_used[slot]);
	io->be->file_set(io, slot, -1);
	io->file_used[slot] = false;
}

/* ---- operations ---- */

static int op_start(struct io *io, struct io_op *op, const struct io_req *req)
{
	bool is_data = req->kind != IO_POLL;
	int r;

	assert(!op->is_pending);
	assert(op->slot >= 0 && op->slot < IO_FILES_MAX);
	if (is_data && io->is_stopping)
		return -ECANCELED;
	/* One place stays free for the wake-up. */
	r = io->n_pending + 1 >= IO_OPS_MAX ? -EAGAIN
					    : io->be->submit(io, op, req);
	if (r == -EAGAIN)
		io->is_starved = true;
	if (r < 0)
		return r;
	op->is_pending = true;
	op->is_data = is_data;
	io->n_pending++;
	io->n_data += is_data;
	return 0;
}

int io_readv(struct io *io, struct io_op *op, const struct iovec *iov, int n,
	     uint64_t off)
{
	return op_start(
		io, op,
		&(struct io_req){
			.kind = IO_READV, .iov = iov, .n = n, .off = off});
}

int io_writev(struct io *io, struct io_op *op, const struct iovec *iov, int n,
	      uint64_t off)
{
	return op_start(
		io, op,
		&(struct io_req){
			.kind = IO_WRITEV, .iov = iov, .n = n, .off = off});
}

int io_fsync(struct io *io, struct io_op *op)
{
	return op_start(io, op, &(struct io_req){.kind = IO_FSYNC});
}

int io_punch(struct io *io, struct io_op *op, uint64_t off, uint64_t len)
{
	return op_start(
		io, op,
		&(struct io_req){.kind = IO_PUNCH, .off = off, .len = len});
}

int io_poll(struct io *io, struct io_op *op, uint32_t events)
{
	return op_start(io, op,
			&(struct io_req){.kind = IO_POLL, .events = events});
}

int io_poll_cancel(struct io *io, struct io_op *op)
{
	return op->is_pending ? io->be->cancel(io, op) : 0;
}

void io_complete(struct io *io, struct io_op *op, int res)
{
	assert(op->is_pending);
	op->is_pending = false;
	io->n_pending--;
	io->n_data -= op->is_data;
	io->n_completed++;
	if (op == &io->wake_op)
		io->is_woken = true;
	else
		op->done(op, res);
}

/* ---- other threads ---- */

/* Only io_complete sees the wake-up's end. */
static void wake_done(struct io_op *op, int res)
{
	(void)op;
	(void)res;
}

void io_wake(struct io *io)
{
	uint64_t one = 1;

	if (atomic_exchange(&io->wake_pending, true))
		return;
	while (write(io->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void io_stop(struct io *io)
{
	atomic_store(&io->stop, true);
	io_wake(io);
}

void io_call(struct io *io, void (*fn)(void *), void *arg)
{
	struct io_call_item item = {.fn = fn, .arg = arg};
	struct io_call_item **at;

	pthread_mutex_lock(&io->call_lock);
	if (!io->is_running || pthread_equal(io->thread, pthread_self())) {
		fn(arg); /* no loop to hand it to, or we are it */
		pthread_mutex_unlock(&io->call_lock);
		return;
	}
	for (at = &io->calls; *at; at = &(*at)->next)
		;
	*at = &item;
	io_wake(io);
	while (!item.is_done)
		pthread_cond_wait(&io->call_done, &io->call_lock);
	pthread_mutex_unlock(&io->call_lock);
}

static void calls_run(struct io *io)
{
	struct io_call_item *item;

	pthread_mutex_lock(&io->call_lock);
	while ((item = io->calls)) {
		io->calls = item->next;
		pthread_mutex_unlock(&io->call_lock);
		item->fn(item->arg);
		pthread_mutex_lock(&io->call_lock);
		item->is_done = true;
		pthread_cond_broadcast(&io->call_done);
	}
	pthread_mutex_unlock(&io->call_lock);
}

/* ---- the loop ---- */

int io_device_add(struct io *io, struct virtio_dev *d)
{
	for (unsigned i = 0; i < io->n_dev; i++)
		if (io->dev[i] == d)
			return 0;
	if (io->n_dev == IO_DEVICES_MAX)
		return -ENOSPC;
	io->dev[io->n_dev++] = d;
	return 0;
}

void io_device_remove(struct io *io, struct virtio_dev *d)
{
	for (unsigned i = 0; i < io->n_dev; i++) {
		if (io->dev[i] != d)
			continue;
		io->dev[i] = io->dev[--io->n_dev];
		return;
	}
}

static void devices_serve(struct io *io)
{
	io->has_more = false;
	for (unsigned i = 0; i < io->n_dev; i++)
		if (virtio_dev_serve(io->dev[i]) && !io->is_starved)
			io->has_more = true;
}

static void turn(struct io *io, bool is_waiting)
{
	uint64_t before = io->n_completed;

	if (!io->wake_op.is_pending && wake_arm(io) < 0)
		is_waiting = false; /* no room: others complete first */
	if (io->has_more)
		is_waiting = false;
	io->be->turn(io, is_waiting);
	if (io->is_woken) {
		io->is_woken = false;
		atomic_store(&io->wake_pending, false);
		calls_run(io);
	}
	/* A completion makes room, and may have left a device with more. */
	if (io->n_completed != before) {
		io->is_starved = false;
		io->has_more = true;
	}
	if (io->has_more)
		devices_serve(io);
}

void io_step(struct io *io)
{
	io->has_more = true;
	turn(io, false);
}

void io_run(struct io *io)
{
	pthread_mutex_lock(&io->call_lock);
	io->thread = pthread_self();
	io->is_running = true;
	pthread_mutex_unlock(&io->call_lock);

	io->has_more = true; /* kicks saved in a snapshot */
	while (!atomic_load(&io->stop))
		turn(io, true);

	io->is_stopping = true;
	while (io->n_data > 0)
		io->be->turn(io, true);

	pthread_mutex_lock(&io->call_lock);
	io->is_running = false;
	pthread_mutex_unlock(&io->call_lock);
	calls_run(io);
}

uint64_t io_syscalls(const struct io *io)
{
	return atomic_load(&io->syscalls);
}
