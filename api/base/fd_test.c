/* Unit tests of fd.c: ownership, whole reads and writes, passing. */
#include "fd.c"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static int n_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int null_fd(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void close_leaves_minus_one(void **state)
{
	int before = n_open(), fd = null_fd();

	(void)state;
	errno = ENOSPC;
	fd_close(&fd);
	assert_int_equal(fd, -1);
	assert_int_equal(errno, ENOSPC);
	fd_close(&fd); /* twice is harmless */
	assert_int_equal(n_open(), before);
}

static void cleanup_and_take(void **state)
{
	int before = n_open(), kept;

	(void)state;
	{
		_cleanup_fd_ int a = null_fd();
		_cleanup_fd_ int b = null_fd();

		kept = fd_take(&b);
		assert_int_equal(b, -1);
		assert_true(a >= 0);
	}
	assert_int_equal(n_open(), before + 1);
	fd_close(&kept);
}

static void *write_slowly(void *arg)
{
	int fd = *(int *)arg;

	for (int i = 0; i < 10; i++) {
		assert_int_equal(write(fd, &"abcdefghij"[i], 1), 1);
		usleep(500);
	}
	close(fd);
	return NULL;
}

static void read_all_joins_pieces(void **state)
{
	char buf[16] = "";
	int p[2];
	pthread_t t;

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pthread_create(&t, NULL, write_slowly, &p[1]);
	assert_int_equal(fd_read_all(p[0], buf, 10), 0);
	assert_string_equal(buf, "abcdefghij");
	pthread_join(t, NULL);
	assert_int_equal(fd_read_all(p[0], buf, 1), -ENODATA);
	close(p[0]);
}

static void *drain(void *arg)
{
	int fd = *(int *)arg;
	static char buf[4096];
	size_t n = 0;
	ssize_t k;

	while ((k = read(fd, buf, sizeof(buf))) > 0)
		n += (size_t)k;
	return (void *)n;
}

static void write_all_over_a_full_pipe(void **state)
{
	size_t len = 1u << 20;
	char *big = calloc(1, len);
	void *got;
	int p[2];
	pthread_t t;

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	pthread_create(&t, NULL, drain, &p[0]);
	assert_int_equal(fd_write_all(p[1], big, len), 0);
	close(p[1]);
	pthread_join(t, &got);
	assert_int_equal((size_t)got, len);
	close(p[0]);
	free(big);
}

static void pread_and_pwrite_at_the_end(void **state)
{
	char path[] = "/tmp/hutch-fd-test-XXXXXX", buf[8];
	int fd = mkostemp(path, O_CLOEXEC);

	(void)state;
	unlink(path);
	assert_int_equal(fd_pwrite_all(fd, "12345678", 8, 100), 0);
	assert_int_equal(fd_pread_all(fd, buf, 8, 100), 0);
	assert_memory_equal(buf, "12345678", 8);
	assert_int_equal(fd_pread_all(fd, buf, 8, 101), -ENODATA);
	assert_int_equal(fd_pread_all(-1, buf, 8, 0), -EBADF);
	assert_int_equal(fd_pwrite_all(-1, buf, 8, 0), -EBADF);
	close(fd);
}

static void descriptors_travel(void **state)
{
	int s[2], out[FD_PASS_MAX], in[FD_PASS_MAX], before;
	size_t n = FD_PASS_MAX;
	char buf[8];

	(void)state;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	for (size_t i = 0; i < FD_PASS_MAX; i++)
		out[i] = null_fd();
	before = n_open();
	assert_int_equal(fd_send(s[0], "hello", 5, out, FD_PASS_MAX), 0);
	assert_int_equal(fd_recv(s[1], buf, sizeof(buf), in, &n, 0), 5);
	assert_int_equal(n, FD_PASS_MAX);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(n_open(), before + FD_PASS_MAX);
	for (size_t i = 0; i < n; i++) {
		assert_true(fcntl(in[i], F_GETFD) & FD_CLOEXEC);
		close(in[i]);
		close(out[i]);
	}
	assert_int_equal(fd_send(s[0], "", 0, out, FD_PASS_MAX + 1), -EINVAL);
	close(s[0]);
	assert_int_equal(fd_recv(s[1], buf, sizeof(buf), NULL, NULL, 0), 0);
	close(s[1]);
}

/* Too many descriptors, or a packet cut short: refused, nothing left open. */
static void surplus_is_closed(void **state)
{
	int s[2], fds[2] = {null_fd(), null_fd()}, in[1], before;
	size_t n = 1;
	char buf[4];

	(void)state;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	before = n_open();
	assert_int_equal(fd_send(s[0], "ab", 2, fds, 2), 0);
	assert_int_equal(fd_recv(s[1], buf, 4, in, &n, 0), -EMSGSIZE);
	assert_int_equal(n, 0);
	assert_int_equal(fd_send(s[0], "abcdefgh", 8, fds, 1), 0);
	n = 1;
	assert_int_equal(fd_recv(s[1], buf, 4, in, &n, 0), -EMSGSIZE);
	assert_int_equal(n, 0);
	assert_int_equal(fd_send(s[0], "x", 1, fds, 2), 0);
	assert_int_equal(fd_recv(s[1], buf, 4, NULL, NULL, 0), -EMSGSIZE);
	assert_int_equal(n_open(), before);
	close(s[0]);
	close(s[1]);
	close(fds[0]);
	close(fds[1]);
}

static void send_to_a_closed_peer(void **state)
{
	int s[2];

	(void)state;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	close(s[1]);
	assert_int_equal(fd_send(s[0], "x", 1, NULL, 0), -EPIPE);
	close(s[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(close_leaves_minus_one),
		cmocka_unit_test(cleanup_and_take),
		cmocka_unit_test(read_all_joins_pieces),
		cmocka_unit_test(write_all_over_a_full_pipe),
		cmocka_unit_test(pread_and_pwrite_at_the_end),
		cmocka_unit_test(descriptors_travel),
		cmocka_unit_test(surplus_is_closed),
		cmocka_unit_test(send_to_a_closed_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
