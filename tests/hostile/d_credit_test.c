/*
 * Hostile cases D14-D16 of virtio-vsock: credit that is missing, shrinks,
 * runs ahead, goes back, wraps, or is not kept to.
 */
#include "channel.h"
#include <malloc.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct channel ch;
static struct guest *const g = &ch.g;
static bool use_ring;

static int up(void **state)
{
	(void)state;
	channel_up(&ch, use_ring);
	channel_start(&ch, 16, 4096);
	return 0;
}

static int down(void **state)
{
	(void)state;
	channel_down(&ch);
	return 0;
}

static uint32_t n_conns(void)
{
	return channel_stats(&ch).n_conns;
}

static void closed(int fd)
{
	char b;

	assert_int_equal(fd_readable(fd, 1000), 1);
	assert_true(read(fd, &b, 1) <= 0);
	close(fd);
}

static void d14_no_credit(void **state)
{
	struct pkt p;
	uint8_t data[4096];
	uint64_t before;
	int fd;

	(void)state;
	ch.policy = ANSWER;
	tx(&ch,
	   PKT(.op = OP_REQUEST, .src_port = 9, .dst_port = 1024,
	       .buf_alloc = 0),
	   NULL, 0);
	rx_expect(&ch, OP_RESPONSE, 9, 1024, NULL);
	fd = ch.host_fd;
	ch.host_fd = -1;
	assert_int_equal(write(fd, "hello", 5), 5);
	rx_none(&ch);
	before = io_syscalls(ch.io);
	guest_run(g);
	assert_int_equal(io_syscalls(ch.io) - before, 4); /* 4 idle turns */
	tx(&ch,
	   PKT(.op = OP_CREDIT, .src_port = 9, .dst_port = 1024,
	       .buf_alloc = 3),
	   NULL, 0);
	assert_true(rx(&ch, &p, data));
	assert_int_equal(p.op, OP_RW);
	assert_int_equal(p.len, 3);
	assert_memory_equal(data, "hel", 3);
	rx_none(&ch);
	tx(&ch,
	   PKT(.op = OP_CREDIT, .src_port = 9, .dst_port = 1024, .buf_alloc = 3,
	       .fwd_cnt = 3),
	   NULL, 0);
	assert_true(rx(&ch, &p, data));
	assert_memory_equal(data, "lo", 2);
	channel_close(&ch, 9, 1024);
	close(fd);
}

static void d15_credit_numbers(void **state)
{
	struct pkt p;
	uint8_t data[8192];
	int fd = channel_connect(&ch, 9, 1024);

#define CREDIT(a, f)                                                           \
	tx(&ch,                                                                \
	   PKT(.op = OP_CREDIT, .src_port = 9, .dst_port = 1024,               \
	       .buf_alloc = (a), .fwd_cnt = (f)),                              \
	   NULL, 0)
	(void)state;
	assert_int_equal(write(fd, "12345678", 8), 8);
	assert_true(rx(&ch, &p, data));
	assert_int_equal(p.len, 8);
	/* Shrinks below what is in flight: clamped at 0, not huge. */
	CREDIT(4, 0);
	assert_int_equal(write(fd, "abcd", 4), 4);
	rx_none(&ch);
	CREDIT(4, 4);
	rx_none(&ch);
	CREDIT(4, 6);
	assert_true(rx(&ch, &p, data));
	assert_int_equal(p.len, 2);
	/* Backwards: stale, ignored. */
	CREDIT(4, 5);
	rx_none(&ch);
	assert_int_equal(n_conns(), 1);
	CREDIT(0xffffffff, 10);
	assert_true(rx(&ch, &p, data));
	assert_int_equal(p.len, 2);
	/* Ahead of what was sent (12): nonsense. */
	CREDIT(262144, 13);
	rx_expect(&ch, OP_RST, 9, 1024, NULL);
	closed(fd);
	fd = channel_connect(&ch, 9, 1024);
	CREDIT(262144, 0x7fffffff);
	rx_expect(&ch, OP_RST, 9, 1024, NULL);
	closed(fd);
#undef CREDIT
}

static void d15_credit_wraps(void **state)
{
	struct vsock_state s = {
		.has_agent = 1,
		.src_port = 9,
		.dst_port = 1024,
		.rx_cnt = 0xfffffffe,
		.fwd_cnt = 0xfffffffe,
		.tx_cnt = 0xfffffffd,
		.peer_fwd_cnt = 0xfffffff0,
		.peer_buf_alloc = 32,
	};
	struct pkt p;
	uint8_t data[4096];
	char got[8];
	int sv[2];

	(void)state;
	assert_int_equal(vsock_load(ch.v, &s), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	assert_int_equal(vsock_attach(ch.v, sv[0]), 0);
	assert_int_equal(write(sv[1], "0123456789abcdefghijklmnopqrstuv", 32),
			 32);
	assert_true(rx(&ch, &p, data)); /* 13 in flight of 32: 19 more */
	assert_int_equal(p.len, 19);
	send_data(&ch, 9, 1024, 0x10, "wrap", 4); /* all 19 + 13 were read */
	assert_int_equal(read(sv[1], got, sizeof(got)), 4);
	assert_int_equal(n_conns(), 1);
	tx(&ch,
	   PKT(.op = OP_CREDIT_REQUEST, .src_port = 9, .dst_port = 1024,
	       .fwd_cnt = 0x10),
	   NULL, 0);
	assert_true(rx(&ch, &p, data));
	while (p.op == OP_RW)
		assert_true(rx(&ch, &p, data));
	assert_int_equal(p.op, OP_CREDIT);
	assert_int_equal(p.fwd_cnt, 2); /* 0xfffffffe + 4 */
	channel_close(&ch, 9, 1024);
	close(sv[1]);
}

static void d16_beyond_our_buffer(void **state)
{
	static uint8_t data[32768];
	unsigned kept = 0;
	struct pkt p = {0};
	int fd = channel_connect(&ch, 9, 1024);

	(void)state;
	/* Nobody reads `fd`: its own buffer fills, then ours, then RST.
	 */
	for (unsigned i = 0; i < 256 && p.op != OP_RST; i++) {
		send_data(&ch, 9, 1024, 0, data, sizeof(data));
		kept += sizeof(data);
		while (p.op != OP_RST && rx(&ch, &p, NULL))
			assert_true(p.op == OP_CREDIT || p.op == OP_RST);
	}
	assert_int_equal(p.op, OP_RST);
	assert_in_range(kept, VSOCK_BUF_BYTES, 2u << 20);
	assert_int_equal(n_conns(), 0);
	close(fd);
}

/* Bytes that malloc has given out; 0 under ASan, which has its own. */
static size_t heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* Send until the socket is full and then our buffer, to the last byte.
 * Returns what the socket took; the guest's credit numbers are sound. */
static size_t fill(uint32_t port)
{
	static uint8_t data[4096];
	uint64_t before = channel_stats(&ch).tx_bytes, sent = 0, took = 0;

	while (sent - took < VSOCK_BUF_BYTES) {
		uint32_t n = VSOCK_BUF_BYTES - (uint32_t)(sent - took);

		if (n > sizeof(data))
			n = sizeof(data);
		send_data(&ch, port, 1024, 0, data, n);
		sent += n;
		while (rx(&ch, &(struct pkt){0}, NULL))
			;
		took = channel_stats(&ch).tx_bytes - before;
	}
	return took;
}

/* The most that one guest can make the device keep: every place taken by a
 * connection that the owner allowed, and no owner that reads.  The figures
 * are in vmm/virtio/README.md. */
static void d16_all_connections_full(void **state)
{
	static uint8_t out[65536];
	int fd[VSOCK_CONNS_MAX];
	size_t took = 0, at_start = heap_bytes(), idle, full;

	(void)state;
	for (uint32_t i = 0; i < VSOCK_CONNS_MAX; i++)
		fd[i] = channel_connect(&ch, 100 + i, 1024);
	idle = heap_bytes();
	for (uint32_t i = 0; i < VSOCK_CONNS_MAX; i++)
		took += fill(100 + i);
	full = heap_bytes();
	print_message("# %d connections: %zu KiB idle, %zu KiB full, "
		      "%zu KiB taken by sockets\n",
		      VSOCK_CONNS_MAX, (idle - at_start) >> 10,
		      (full - at_start) >> 10, took >> 10);
	assert_true(idle - at_start <= VSOCK_CONNS_MAX * 1024);
	assert_true(full - idle <= VSOCK_CONNS_MAX * (VSOCK_BUF_BYTES + 64));
	assert_int_equal(n_conns(), VSOCK_CONNS_MAX);
	/* Read: nothing of it stays. */
	for (uint32_t i = 0; i < VSOCK_CONNS_MAX; i++) {
		while (recv(fd[i], out, sizeof(out), MSG_DONTWAIT) > 0)
			guest_run(g);
		while (rx(&ch, &(struct pkt){0}, NULL))
			;
	}
	assert_true(heap_bytes() <= idle);
	for (uint32_t i = 0; i < VSOCK_CONNS_MAX; i++) {
		channel_close(&ch, 100 + i, 1024);
		close(fd[i]);
	}
}

/* What a smaller promise would cost: a packet to the guest, and mostly an
 * interrupt, for each half of it that was read. */
static void credit_updates_a_mib(void **state)
{
	static uint8_t data[4096], out[65536];
	unsigned n_updates = 0;
	struct pkt p;
	int fd = channel_connect(&ch, 9, 1024);

	(void)state;
	for (unsigned i = 0; i < 256; i++) {
		send_data(&ch, 9, 1024, 0, data, sizeof(data));
		while (recv(fd, out, sizeof(out), MSG_DONTWAIT) > 0)
			;
		while (rx(&ch, &p, NULL))
			n_updates += p.op == OP_CREDIT;
	}
	print_message("# %u credit updates for 1 MiB\n", n_updates);
	assert_int_equal(n_updates, (1u << 20) / (VSOCK_BUF_BYTES / 2));
	channel_close(&ch, 9, 1024);
	close(fd);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(d14_no_credit),
		CASE(d15_credit_numbers),
		CASE(d15_credit_wraps),
		CASE(d16_beyond_our_buffer),
		CASE(d16_all_connections_full),
		CASE(credit_updates_a_mib),
	};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
