/*
 * Hostile cases of virtio-vsock, third part: streams, floods, buffers and life
 * cycle (D12, D17, D18, D20-D22, D24-D27).  Counts are larger with HUTCH_LONG.
 */
#include "channel.h"
#include <errno.h>
#include <stdlib.h>
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
	channel_start(&ch, 32, 4096);
	return 0;
}

static int down(void **state)
{
	(void)state;
	channel_down(&ch);
	return 0;
}

static unsigned times(unsigned n, unsigned n_long)
{
	return getenv("HUTCH_LONG") ? n_long : n;
}

static uint32_t n_conns(void)
{
	return channel_stats(&ch).n_conns;
}

static void shut(uint32_t port, uint32_t flags)
{
	tx(&ch,
	   PKT(.op = OP_SHUTDOWN, .src_port = port, .dst_port = 1024,
	       .flags = flags),
	   NULL, 0);
}

/* Write without blocking until the socket is full; bytes written. */
static size_t stuff(int fd)
{
	static const char block[4096];
	size_t n = 0;
	ssize_t r;

	while ((r = send(fd, block, sizeof(block),
			 MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
		n += (size_t)r;
	return n;
}

static void d12_request_flood(void **state)
{
	const unsigned n = times(20000, 1000000);
	unsigned fds = fds_count();
	struct pkt p;
	int fd;

	(void)state;
	ch.policy = SILENT;
	for (unsigned i = 0; i < n; i++) {
		struct pkt r =
			*PKT(.op = OP_REQUEST, .src_port = i, .dst_port = 1024);

		guest_put(g, ch.tx_buf, &r, sizeof(r));
		guest_chain(g, 1, &(struct gbuf){ch.tx_buf, sizeof(r), false},
			    1);
		guest_wr(g, R_NOTIFY, 1);
		io_step(ch.io);
		assert_true(guest_used_now(g, 1, NULL, NULL));
		assert_true(n_conns() <= VSOCK_CONNS_MAX);
		if (i >= VSOCK_CONNS_MAX) {
			assert_true(rx(&ch, &p, NULL));
			assert_int_equal(p.op, OP_RST);
			assert_int_equal(p.dst_port, i);
		}
	}
	assert_int_equal(ch.n_asks, VSOCK_CONNS_MAX);
	assert_int_equal(fds_count(), fds);
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++)
		channel_close(&ch, i, 1024);
	ch.n_taken = ch.n_asks;
	fd = channel_connect(&ch, 5, 1024);
	channel_close(&ch, 5, 1024);
	close(fd);
}

static void d17_no_receive_buffers(void **state)
{
	struct pkt p;
	size_t sent, got = 0;
	uint64_t before;
	int fd;

	(void)state;
	guest_reset(g);
	channel_start(&ch, 1, 4096); /* one buffer, used by the RESPONSE */
	tx(&ch, PKT(.op = OP_REQUEST, .src_port = 9, .dst_port = 1024), NULL,
	   0);
	assert_true(guest_used_now(g, 0, NULL, NULL));
	fd = ch.host_fd;
	ch.host_fd = -1;
	sent = stuff(fd);
	guest_run(g);
	before = channel_stats(&ch).rx_bytes;
	for (int i = 0; i < 100; i++)
		io_step(ch.io); /* no buffer: nothing is taken or polled */
	assert_int_equal(channel_stats(&ch).rx_bytes, before);
	assert_int_equal(stuff(fd), 0); /* the writer is held back */
	for (unsigned i = 0; i < 8; i++)
		rx_post(&ch, i);
	guest_kick(g, 0);
	while (got < sent && rx(&ch, &p, NULL)) {
		assert_int_equal(p.op, OP_RW);
		got += p.len;
		tx(&ch,
		   PKT(.op = OP_CREDIT, .src_port = 9, .dst_port = 1024,
		       .fwd_cnt = (uint32_t)got),
		   NULL, 0);
	}
	assert_int_equal(got, sent);
	channel_close(&ch, 9, 1024);
	close(fd);
}

static void d18_receive_buffers_tiny(void **state)
{
	static const uint32_t lens[] = {0, 1, 43, 44};
	uint32_t len;
	struct pkt p;
	int fd;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		fd = channel_connect(&ch, 9, 1024);
		guest_reset(g);
		close(fd);
		channel_start(&ch, 0, 4096);
		guest_chain(g, 0, &(struct gbuf){ch.rx_buf, 4096, true}, 1);
		tx(&ch, PKT(.op = OP_REQUEST, .src_port = 9, .dst_port = 1024),
		   NULL, 0);
		assert_true(guest_used(g, 0, NULL, &len));
		assert_int_equal(write(ch.host_fd, "abc", 3), 3);
		for (int k = 0; k < 20; k++) { /* too small for a byte */
			guest_chain(g, 0,
				    &(struct gbuf){ch.rx_buf, lens[i], true},
				    1);
			guest_kick(g, 0);
			assert_true(guest_used(g, 0, NULL, &len));
			assert_int_equal(len, 0); /* given back, no packet */
		}
		guest_run(g);
		assert_false(guest_used_now(g, 0, NULL, NULL));
		assert_live(g);
		guest_chain(g, 0, &(struct gbuf){ch.rx_buf, 45, true}, 1);
		guest_kick(g, 0);
		assert_true(guest_used(g, 0, NULL, &len));
		assert_int_equal(len, 45); /* progress by single bytes */
		guest_get(g, ch.rx_buf, &p, sizeof(p));
		assert_int_equal(p.op, OP_RW);
		assert_int_equal(p.len, 1);
		channel_close(&ch, 9, 1024);
		guest_reset(g);
		channel_start(&ch, 32, 4096);
	}
	/* Small writes of the host become few packets. */
	fd = channel_connect(&ch, 9, 1024);
	for (int i = 0; i < 200; i++)
		assert_int_equal(write(fd, "x", 1), 1);
	len = 0;
	for (unsigned n = 0; len < 200; n++) {
		assert_true(n < 4);
		assert_true(rx(&ch, &p, NULL));
		len += p.len;
	}
	channel_close(&ch, 9, 1024);
	close(fd);
}

static void d20_half_close(void **state)
{
	static uint8_t big[100000], got[100000];
	struct pkt p;
	uint8_t data[4096];
	size_t n = 0;
	int fd = channel_connect(&ch, 9, 1024);

	(void)state;
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (uint8_t)(i * 13);
	/* The guest says that it is done; the host still sends. */
	send_data(&ch, 9, 1024, 0, "last words", 10);
	shut(9, SEND);
	assert_int_equal(read(fd, got, sizeof(got)), 10);
	assert_int_equal(read(fd, got, 1), 0);
	assert_int_equal(write(fd, big, sizeof(big)), sizeof(big));
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	while (n < sizeof(big)) {
		assert_true(rx(&ch, &p, data));
		assert_int_equal(p.op, OP_RW);
		memcpy(got + n, data, p.len);
		n += p.len;
	}
	assert_memory_equal(got, big, sizeof(big));
	rx_expect(&ch, OP_SHUTDOWN, 9, 1024, &p);
	close(fd);
	shut(9, SEND | RCV);
	rx_expect(&ch, OP_RST, 9, 1024, NULL);

	/* The other way round: the host is done, the guest still sends. */
	fd = channel_connect(&ch, 10, 1024);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	rx_expect(&ch, OP_SHUTDOWN, 10, 1024, &p);
	assert_int_equal(p.flags, SEND);
	for (n = 0; n < sizeof(big); n += 20000) {
		send_data(&ch, 10, 1024, 0, big + n, 20000);
		assert_int_equal(recv(fd, got + n, 20000, MSG_WAITALL), 20000);
	}
	assert_memory_equal(got, big, sizeof(big));
	/* Gone altogether: the guest is told, its RST ends it. */
	close(fd);
	send_data(&ch, 10, 1024, 0, "into the void", 13);
	do {
		assert_true(rx(&ch, &p, NULL));
	} while (p.op == OP_CREDIT);
	assert_int_equal(p.op, OP_SHUTDOWN);
	assert_int_equal(p.flags, SEND | RCV);
	assert_int_equal(n_conns(), 1);
	channel_close(&ch, 10, 1024);
	assert_int_equal(n_conns(), 0);
	rx_none(&ch);
}

static void drain_packets(void)
{
	struct pkt p;

	while (rx(&ch, &p, NULL))
		;
}

static void d21_reset_mid_transfer(void **state)
{
	static uint8_t block[8192], got[8192];
	int other = channel_connect(&ch, 7, 1024);

	(void)state;
	memset(block, 0x5a, sizeof(block));
	for (uint32_t i = 0; i < 100; i++) {
		int fd = channel_connect(&ch, 1000 + i, 1024);

		stuff(fd);
		send_data(&ch, 1000 + i, 1024, 0, block, sizeof(block));
		if (i % 2) {
			channel_close(&ch, 1000 + i, 1024);
			close(fd);
		} else { /* with unread bytes: a reset on the socket */
			close(fd);
			send_data(&ch, 1000 + i, 1024, 0, block, sizeof(block));
			channel_close(&ch, 1000 + i, 1024);
		}
		drain_packets();
		send_data(&ch, 7, 1024, 0, block, sizeof(block));
		assert_int_equal(recv(other, got, sizeof(got), MSG_WAITALL),
				 sizeof(got));
		assert_memory_equal(got, block, sizeof(got));
		assert_int_equal(n_conns(), 1);
		drain_packets(); /* credit for the other stream */
	}
	channel_close(&ch, 7, 1024);
	close(other);
	drain_packets();
}

static void d22_port_reused_at_once(void **state)
{
	const unsigned n = times(3000, 100000);
	unsigned fds = fds_count();

	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t mark = i, got = 0;
		uint8_t data[4096];
		struct pkt p;
		int fd = channel_connect(&ch, 9, 1024);

		assert_int_equal(write(fd, &mark, 4), 4);
		assert_true(rx(&ch, &p, data));
		memcpy(&got, data, 4);
		assert_int_equal(p.len, 4);
		assert_int_equal(got, i); /* nothing of the one before */
		send_data(&ch, 9, 1024, 0, &mark, 4);
		assert_int_equal(read(fd, &got, 4), 4);
		assert_int_equal(got, i);
		/* Left unread on both sides. */
		assert_int_equal(write(fd, "stale", 5), 5);
		send_data(&ch, 9, 1024, 4, "stale", 5);
		while (rx(&ch, &p, data) && p.op != OP_RW)
			;
		channel_close(&ch, 9, 1024);
		close(fd);
	}
	guest_run(g);
	assert_int_equal(fds_count(), fds);
}

static void d24_table_full(void **state)
{
	int fd[VSOCK_CONNS_MAX], more;
	unsigned fds = fds_count();
	struct pkt p;

	(void)state;
	/* Only the guest connects; one more than there is room for. */
	for (uint32_t i = 0; i < VSOCK_CONNS_MAX; i++)
		fd[i] = channel_connect(&ch, 100 + i, 1024);
	tx(&ch, PKT(.op = OP_REQUEST, .src_port = 5, .dst_port = 1024), NULL,
	   0);
	rx_expect(&ch, OP_RST, 5, 1024, NULL);
	assert_int_equal(n_conns(), VSOCK_CONNS_MAX);
	/* One whose host side is gone gives way, though the guest has not yet
	 * acknowledged it. */
	close(fd[3]);
	rx_expect(&ch, OP_SHUTDOWN, 103, 1024, NULL);
	tx(&ch, PKT(.op = OP_REQUEST, .src_port = 5, .dst_port = 1024), NULL,
	   0);
	rx_expect(&ch, OP_RST, 103, 1024, NULL);
	rx_expect(&ch, OP_RESPONSE, 5, 1024, &p);
	more = ch.host_fd;
	ch.host_fd = -1;
	channel_close(&ch, 5, 1024);
	close(more);
	for (uint32_t i = 0; i < VSOCK_CONNS_MAX; i++) {
		if (i == 3)
			continue;
		channel_close(&ch, 100 + i, 1024);
		close(fd[i]);
	}
	guest_run(g);
	assert_int_equal(n_conns(), 0);
	assert_int_equal(fds_count(), fds);
}

static void d27_hold_and_reset(void **state)
{
	struct pkt p;
	int fd = channel_connect(&ch, 9, 1024), again;
	char b;

	(void)state;
	vsock_hold(ch.v, true);
	assert_int_equal(write(fd, "while held", 10), 10);
	rx_none(&ch);
	assert_int_equal(channel_stats(&ch).rx_bytes, 0);
	vsock_hold(ch.v, false);
	assert_true(rx(&ch, &p, NULL));
	assert_int_equal(p.op, OP_RW);
	assert_int_equal(p.len, 10);
	/* A reset with a live stream: its socket closes, new ones work. */
	assert_int_equal(write(fd, "lost", 4), 4);
	guest_reset(g);
	assert_int_equal(n_conns(), 0);
	assert_int_equal(fd_readable(fd, 1000), 1);
	assert_true(read(fd, &b, 1) <= 0);
	close(fd);
	channel_start(&ch, 8, 4096);
	again = channel_connect(&ch, 9, 1024);
	rx_none(&ch); /* nothing of the old stream */
	channel_close(&ch, 9, 1024);
	close(again);
}

static void sends(unsigned n, unsigned n_irqs)
{
	guest_used_event(g, 0, guest_used_idx(g, 0));
	guest_used_event(g, 1, g->d->vq[1].signalled);
	g->n_irqs = 0;
	for (unsigned i = 0; i < n; i++)
		send_data(&ch, 9, 1024, 0, "x", 1);
	assert_int_equal(g->n_irqs, n_irqs);
}

/* Taken packets are told in batches, or with news for another queue. */
static void tx_interrupts_are_few(void **state)
{
	int fd = channel_connect(&ch, 9, 1024);

	(void)state;
	for (int round = 0; round < 3; round++) {
		sends(7, 0);
		sends(1, 1); /* the eighth */
		assert_int_equal(g->d->vq[1].signalled, guest_used_idx(g, 1));
		sends(3, 0);
		assert_int_equal(write(fd, "x", 1), 1);
		rx_expect(&ch, OP_RW, 9, 1024, NULL);
		assert_int_equal(g->n_irqs, 1); /* one for both */
		assert_int_equal(g->d->vq[1].signalled, guest_used_idx(g, 1));
	}
	channel_close(&ch, 9, 1024);
	close(fd);
}

/* A packet of which the socket takes a part: the rest follows as soon as
 * somebody reads, and not with the guest's next packet. */
static void the_socket_takes_a_part(void **state)
{
	static uint8_t data[60000], out[65536];
	int fd = channel_connect(&ch, 9, 1024);
	uint64_t before = channel_stats(&ch).tx_bytes, took = 0;
	size_t sent = 0, got = 0;
	ssize_t r;

	(void)state;
	while (took == sent) {
		send_data(&ch, 9, 1024, 0, data, sizeof(data));
		sent += sizeof(data);
		took = channel_stats(&ch).tx_bytes - before;
	}
	assert_int_not_equal(took % sizeof(data), 0);
	for (int i = 0; i < 100 && got < sent; i++) {
		while ((r = recv(fd, out, sizeof(out), MSG_DONTWAIT)) > 0)
			got += (size_t)r;
		guest_run(g);
	}
	assert_int_equal(got, sent);
	channel_close(&ch, 9, 1024);
	close(fd);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(d12_request_flood),	CASE(d17_no_receive_buffers),
		CASE(d18_receive_buffers_tiny), CASE(d20_half_close),
		CASE(d21_reset_mid_transfer),	CASE(d22_port_reused_at_once),
		CASE(d24_table_full),		CASE(d27_hold_and_reset),
		CASE(tx_interrupts_are_few),	CASE(the_socket_takes_a_part),
	};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
