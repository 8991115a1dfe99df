/*
 * The I/O thread: both backends do the same, wake-ups and calls from other
 * threads arrive, the ring refuses whatever it was not made for (G5).
 */
#include "io.c"
#include "io_ring.c"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
/* cmocka wants four of the above first */
#include <cmocka.h>

static bool use_ring;
static struct io *io;

static int up(void **state)
{
	(void)state;
	assert_int_equal(
		io_create(&io, &(struct io_config){.use_ring = use_ring}), 0);
	assert_int_equal(io_has_ring(io), use_ring);
	return 0;
}

static int down(void **state)
{
	(void)state;
	io_destroy(io);
	return 0;
}

struct op {
	struct io_op op;
	int res, n_done;
};

static void on_done(struct io_op *op, int res)
{
	struct op *o = (struct op *)op;

	o->res = res;
	o->n_done++;
}

static void wait_done(struct op *o)
{
	static const struct timespec nap = {.tv_nsec = 100000};

	for (int i = 0; i < 50000 && !o->n_done; i++) {
		io_step(io);
		if (!o->n_done)
			nanosleep(&nap, NULL);
	}
	assert_int_equal(o->n_done, 1);
	assert_false(o->op.is_pending);
	o->n_done = 0;
}

static void disk_operations(void **state)
{
	char out[] = "over the page", in[16] = {0};
	struct iovec w[2] = {{out, 4}, {out + 4, 9}}, r = {in, 16};
	int fd = memfd_create("file", MFD_CLOEXEC);
	struct op o = {.op.done = on_done};

	(void)state;
	o.op.slot = io_file_add(io, fd);
	assert_true(o.op.slot >= 0);
	assert_int_equal(io_writev(io, &o.op, w, 2, 4090), 0);
	assert_true(o.op.is_pending);
	assert_int_equal(o.n_done, 0); /* never inside the call */
	wait_done(&o);
	assert_int_equal(o.res, 13);
	assert_int_equal(io_fsync(io, &o.op), 0);
	wait_done(&o);
	assert_int_equal(o.res, 0);
	assert_int_equal(io_readv(io, &o.op, &r, 1, 4090), 0);
	wait_done(&o);
	assert_int_equal(o.res, 13); /* short at the end of the file */
	assert_memory_equal(in, out, 13);
	assert_int_equal(io_punch(io, &o.op, 4090, 5), 0);
	wait_done(&o);
	assert_int_equal(o.res, 0);
	assert_int_equal(io_readv(io, &o.op, &r, 1, 4090), 0);
	wait_done(&o);
	assert_memory_equal(in, "\0\0\0\0\0the page", 13);
	io_file_remove(io, o.op.slot);
	assert_int_equal(io_readv(io, &o.op, &r, 1, 0), 0);
	wait_done(&o);
	assert_int_equal(o.res, -EBADF);
	close(fd);
}

static void polls(void **state)
{
	struct op a = {.op.done = on_done}, b = {.op.done = on_done};
	int sv[2];
	char c;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	a.op.slot = b.op.slot = io_file_add(io, sv[0]);
	assert_int_equal(io_poll(io, &a.op, POLLIN), 0);
	assert_int_equal(io_poll(io, &b.op, POLLOUT), 0);
	wait_done(&b);
	assert_true(b.res & POLLOUT);
	for (int i = 0; i < 5; i++)
		io_step(io);
	assert_int_equal(a.n_done, 0);
	assert_int_equal(write(sv[1], "x", 1), 1);
	wait_done(&a);
	assert_true(a.res & POLLIN);
	assert_int_equal(read(sv[0], &c, 1), 1);
	assert_int_equal(io_poll(io, &a.op, POLLIN), 0);
	io_step(io);
	assert_int_equal(io_poll_cancel(io, &a.op), 0);
	wait_done(&a);
	assert_int_equal(a.res, -ECANCELED);
	assert_int_equal(io_poll_cancel(io, &a.op), 0); /* not pending */
	/* shutdown() ends a poll by itself. */
	assert_int_equal(io_poll(io, &a.op, POLLIN), 0);
	io_step(io);
	shutdown(sv[0], SHUT_RDWR);
	wait_done(&a);
	assert_true(a.res & POLLHUP);
	io_file_remove(io, a.op.slot);
	close(sv[0]);
	close(sv[1]);
}

static void room_is_bounded(void **state)
{
	static struct op o[IO_OPS_MAX + 8];
	unsigned n = 0;
	int sv[2];

	(void)state;
	memset(o, 0, sizeof(o));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	io_step(io);
	for (n = 0; n < IO_OPS_MAX + 8; n++) {
		o[n].op.done = on_done;
		o[n].op.slot = n ? o[0].op.slot : io_file_add(io, sv[0]);
		if (io_poll(io, &o[n].op, POLLIN) == -EAGAIN)
			break;
	}
	assert_in_range(n, IO_OPS_MAX - 2, IO_OPS_MAX);
	for (int i = 0; i < 10; i++)
		io_step(io);
	io_wake(io); /* still heard */
	assert_int_equal(write(sv[1], "x", 1), 1);
	for (unsigned i = 0; i < n; i++)
		wait_done(&o[i]);
	assert_int_equal(io_poll(io, &o[n].op, POLLIN), 0);
	wait_done(&o[n]);
	io_file_remove(io, o[0].op.slot);
	close(sv[0]);
	close(sv[1]);
}

static void files_are_bounded(void **state)
{
	int slot[IO_FILES_MAX], n = 0, fd = memfd_create("f", MFD_CLOEXEC);

	(void)state;
	while ((slot[n] = io_file_add(io, fd)) >= 0)
		n++;
	assert_int_equal(slot[n], -ENFILE);
	assert_int_equal(n, IO_FILES_MAX - 1); /* one is the wake-up's */
	io_file_remove(io, slot[5]);
	assert_int_equal(io_file_add(io, fd), slot[5]);
	if (use_ring)
		assert_true(io_file_add(io, -1) < 0);
	while (n-- > 0)
		io_file_remove(io, slot[n]);
	close(fd);
}

static void *runner(void *arg)
{
	io_run(arg);
	return NULL;
}

static void add_one(void *arg)
{
	/* Always on the I/O thread: no lock needed between calls. */
	++*(unsigned *)arg;
}

static void *caller(void *arg)
{
	for (int i = 0; i < 500; i++)
		io_call(io, add_one, arg);
	return NULL;
}

static void calls_and_wakes(void **state)
{
	static const struct timespec nap = {.tv_nsec = 100000000};
	pthread_t run, call[3];
	uint64_t before = 0, after = 0;
	unsigned n = 0;

	(void)state;
	io_call(io, add_one, &n); /* no loop yet: at once */
	assert_int_equal(n, 1);
	pthread_create(&run, NULL, runner, io);
	for (int i = 0; i < 3; i++)
		pthread_create(&call[i], NULL, caller, &n);
	for (int i = 0; i < 3; i++)
		pthread_join(call[i], NULL);
	assert_int_equal(n, 1501);
	/* Idle: it sleeps, once a busy machine let it get there. */
	for (int i = 0; i < 50; i++) {
		before = io_syscalls(io);
		nanosleep(&nap, NULL);
		after = io_syscalls(io);
		if (after - before <= 1)
			break;
	}
	assert_true(after - before <= 1);
	io_stop(io);
	pthread_join(run, NULL);
	io_call(io, add_one, &n);
	assert_int_equal(n, 1502);
}

/* ---- G5: what the ring refuses ---- */

static int raw(struct io_uring *ring, uint8_t opcode, unsigned flags, int fd)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;
	int res;

	assert_non_null(sqe);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = opcode;
	sqe->flags = (uint8_t)flags;
	sqe->fd = fd;
	io_uring_submit(ring);
	for (;;) {
		assert_int_equal(io_uring_wait_cqe(ring, &cqe), 0);
		res = cqe->res;
		io_uring_cqe_seen(ring, cqe);
		return res;
	}
}

static bool is_listed(unsigned opcode)
{
	for (unsigned i = 0; i < N_OPCODES; i++)
		if (opcodes[i] == opcode)
			return true;
	return false;
}

#define OPCODES_TRIED 96 /* more than any kernel has */

static void refused(unsigned op, int res)
{
	if (res == -EINVAL)
		assert_true(op >= IORING_OP_LAST); /* the kernel has none */
	else
		assert_int_equal(res, -EACCES);
}

static void g5_ring_is_restricted(void **state)
{
	int fd = memfd_create("f", MFD_CLOEXEC), slot;
	struct io_uring *ring = io->be_state;
	struct iovec iov = {&slot, 4};

	(void)state;
	slot = io_file_add(io, fd);
	for (unsigned op = 0; op < OPCODES_TRIED; op++) {
		refused(op, raw(ring, (uint8_t)op, 0, fd));
		if (!is_listed(op))
			refused(op,
				raw(ring, (uint8_t)op, IOSQE_FIXED_FILE, slot));
	}
	assert_int_equal(raw(ring, IORING_OP_FSYNC, IOSQE_FIXED_FILE, slot), 0);
	assert_int_equal(raw(ring, IORING_OP_FSYNC,
			     IOSQE_FIXED_FILE | IOSQE_ASYNC, slot),
			 -EACCES);
	assert_int_equal(io_uring_register_buffers(ring, &iov, 1), -EACCES);
	assert_int_equal(io_uring_register_eventfd(ring, fd), -EACCES);
	assert_int_equal(io_uring_unregister_files(ring), -EACCES);
	assert_true(io_uring_register_files(ring, &fd, 1) < 0);
	io_file_remove(io, slot); /* the update of files still works */
	close(fd);
}

static bool ring_is_here(void)
{
	struct io *probe;
	bool is;

	if (io_create(&probe, &(struct io_config){.use_ring = true}) < 0)
		return false;
	is = io_has_ring(probe);
	io_destroy(probe);
	return is;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)
#define COMMON                                                                 \
	CASE(disk_operations), CASE(polls), CASE(room_is_bounded),             \
		CASE(files_are_bounded), CASE(calls_and_wakes)

int main(void)
{
	const struct CMUnitTest both[] = {COMMON};
	const struct CMUnitTest ring[] = {COMMON, CASE(g5_ring_is_restricted)};
	int failed = cmocka_run_group_tests_name("ppoll", both, NULL, NULL);

	use_ring = true;
	if (!ring_is_here()) {
		print_message("# skip io_uring: the kernel refuses it\n");
		return failed;
	}
	return failed +
	       cmocka_run_group_tests_name("io_uring", ring, NULL, NULL);
}
