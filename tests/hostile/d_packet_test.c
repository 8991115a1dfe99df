/*
 * Hostile cases of virtio-vsock, first part: packets that are wrong in
 * themselves or on their connection (D1-D13, D19, D23, D28).  Credit is in
 * d_credit_test.c, streams, floods and life cycle in d_stream_test.c.
 */
#include "channel.h"
#include <errno.h>
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

static uint64_t drops(void)
{
	return channel_stats(&ch).drops;
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

static void d1_header_shapes(void **state)
{
	const struct pkt ok =
		*PKT(.op = OP_REQUEST, .src_port = 5, .dst_port = 1024);
	struct gbuf b[44];
	uint32_t len;
	uint64_t n = drops();
	struct pkt p;

	(void)state;
	ch.policy = REFUSE;
	guest_put(g, ch.tx_buf, &ok, sizeof(ok));
	for (uint32_t l = 0; l < 44; l++) { /* too short: dropped */
		guest_chain(g, 1, &(struct gbuf){ch.tx_buf, l, false}, 1);
		guest_kick(g, 1);
		assert_true(guest_used(g, 1, NULL, &len));
		assert_int_equal(len, 0);
		assert_int_equal(drops(), ++n);
	}
	/* Split into bytes: as good as whole. */
	for (unsigned i = 0; i < 44; i++)
		b[i] = (struct gbuf){ch.tx_buf + i, 1, false};
	guest_chain(g, 1, b, 44);
	guest_kick(g, 1);
	assert_true(guest_used(g, 1, NULL, &len));
	assert_int_equal(len, 0);
	channel_run(&ch);
	rx_expect(&ch, OP_RST, 5, 1024, &p);
	assert_int_equal(ch.n_asks, 1);
	/* All zeroes: from nobody. */
	tx(&ch, &(struct pkt){0}, NULL, 0);
	assert_int_equal(drops(), ++n);
	rx_none(&ch);
	assert_live(g);
}

static void d1_directions(void **state)
{
	(void)state;
	/* A sent packet that the device shall write; a receive buffer that it
	 * shall read. */
	guest_chain(g, 1, &(struct gbuf){ch.tx_buf, 64, true}, 1);
	guest_kick(g, 1);
	assert_broken(g);
	guest_reset(g);
	channel_start(&ch, 0, 4096);
	guest_chain(g, 0, &(struct gbuf){ch.tx_buf, 64, false}, 1);
	guest_kick(g, 0);
	assert_live(g); /* nobody looks before there is something to send */
	tx(&ch, PKT(.op = OP_RW, .src_port = 1), NULL, 0);
	assert_broken(g);
	assert_int_equal(n_conns(), 0);
}

static void d2_len_beyond_descriptors(void **state)
{
	static const uint32_t lens[] = {
		1, 5, 65, 65537, 0x7fffffff, 0xffffffff, 0xffffffff - 43};
	static uint8_t big[VSOCK_PKT_BYTES_MAX];
	int fd;

	(void)state;
	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint32_t n = lens[i] > 4 && lens[i] < 70 ? lens[i] - 1 : 0;

		fd = channel_connect(&ch, 9, 1024);
		tx(&ch,
		   PKT(.op = OP_RW, .src_port = 9, .dst_port = 1024,
		       .len = lens[i]),
		   big, n);
		rx_expect(&ch, OP_RST, 9, 1024, NULL);
		assert_int_equal(n_conns(), 0);
		closed(fd);
	}
	/* Without a connection: one RST, no state. */
	tx(&ch, PKT(.op = OP_REQUEST, .src_port = 9, .len = 0xffffffff), NULL,
	   0);
	rx_expect(&ch, OP_RST, 9, 0, NULL);
	assert_int_equal(ch.n_asks, sizeof(lens) / sizeof(lens[0]));
	rx_none(&ch);
}

static void d3_len_short_of_descriptors(void **state)
{
	char got[16];
	int fd = channel_connect(&ch, 9, 1024);

	(void)state;
	tx(&ch, PKT(.op = OP_RW, .src_port = 9, .dst_port = 1024, .len = 3),
	   "abcdefgh", 8);
	assert_int_equal(read(fd, got, sizeof(got)), 3);
	assert_memory_equal(got, "abc", 3);
	assert_int_equal(fd_readable(fd, 0), 0);
	channel_close(&ch, 9, 1024);
	close(fd);
}

/* A connect to another CID ends at once: RST in that one's name. */
static void refused_by(uint64_t cid)
{
	struct pkt p;

	rx_expect(&ch, OP_RST, 9, 1024, &p);
	assert_int_equal(p.src_cid, cid);
}

static void d4_d5_foreign_addresses(void **state)
{
	static const uint64_t cids[] = {0,	    1,		4,
					1ull << 32, UINT64_MAX, UINT32_MAX};
	int fd = channel_connect(&ch, 9, 1024);
	uint64_t n = drops();

	(void)state;
	for (unsigned i = 0; i < sizeof(cids) / sizeof(cids[0]); i++) {
		for (uint16_t op = OP_REQUEST; op <= OP_CREDIT_REQUEST; op++) {
			tx(&ch,
			   PKT(.op = op, .src_port = 9, .dst_port = 1024,
			       .src_cid = cids[i]),
			   NULL, 0);
			tx(&ch,
			   PKT(.op = op, .src_port = 9, .dst_port = 1024,
			       .dst_cid = cids[i]),
			   NULL, 0);
			n += 2;
			if (op == OP_REQUEST)
				refused_by(cids[i]);
		}
	}
	tx(&ch,
	   PKT(.op = OP_REQUEST, .src_port = 9, .dst_port = 1024,
	       .dst_cid = CH_CID),
	   NULL, 0);
	refused_by(CH_CID);
	/* The host's own CID as sender, this guest's own as receiver. */
	tx(&ch,
	   PKT(.op = OP_RST, .src_port = 9, .dst_port = 1024,
	       .src_cid = CH_HOST),
	   NULL, 0);
	tx(&ch,
	   PKT(.op = OP_RST, .src_port = 9, .dst_port = 1024,
	       .dst_cid = CH_CID),
	   NULL, 0);
	assert_int_equal(drops(), n + 3);
	rx_none(&ch);
	assert_int_equal(n_conns(), 1);
	assert_int_equal(ch.n_asks, 1);
	channel_close(&ch, 9, 1024);
	close(fd);
}

static void d6_port_refused(void **state)
{
	static const uint32_t ports[] = {0, 1, 22, 1023, 65536, 0xffffffff};
	unsigned fds = fds_count();

	(void)state;
	ch.policy = REFUSE;
	for (unsigned i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
		tx(&ch,
		   PKT(.op = OP_REQUEST, .src_port = 9, .dst_port = ports[i]),
		   NULL, 0);
		assert_int_equal(ch.ask_port[i], ports[i]);
		rx_expect(&ch, OP_RST, 9, ports[i], NULL);
		assert_int_equal(n_conns(), 0);
	}
	assert_int_equal(fds_count(), fds);
}

static void d7_types(void **state)
{
	static const uint16_t types[] = {0, 2, 3, 0xffff};
	int fd;

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		tx(&ch,
		   PKT(.op = OP_REQUEST, .src_port = 9, .dst_port = 1024,
		       .type = types[i]),
		   NULL, 0);
		rx_expect(&ch, OP_RST, 9, 1024, NULL);
		fd = channel_connect(&ch, 9, 1024);
		tx(&ch,
		   PKT(.op = OP_RW, .src_port = 9, .dst_port = 1024,
		       .type = types[i], .len = 1),
		   "x", 1);
		rx_expect(&ch, OP_RST, 9, 1024, NULL);
		closed(fd);
	}
	assert_int_equal(ch.n_asks, 4);
}

static void d8_operations_unknown(void **state)
{
	static const uint16_t codes[] = {0, 8, 9, 0x100, 0xffff};
	int fd;

	(void)state;
	for (unsigned i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		tx(&ch, PKT(.op = codes[i], .src_port = 9, .dst_port = 1024),
		   NULL, 0);
		rx_expect(&ch, OP_RST, 9, 1024, NULL);
		fd = channel_connect(&ch, 9, 1024);
		tx(&ch, PKT(.op = codes[i], .src_port = 9, .dst_port = 1024),
		   NULL, 0);
		rx_expect(&ch, OP_RST, 9, 1024, NULL);
		closed(fd);
	}
	rx_none(&ch);
}

static void d9_unknown_connection(void **state)
{
	static const uint16_t codes[] = {OP_RESPONSE, OP_SHUTDOWN, OP_RW,
					 OP_CREDIT, OP_CREDIT_REQUEST};
	int fd;

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		tx(&ch, PKT(.op = codes[i], .src_port = 9, .dst_port = 7), NULL,
		   0);
		rx_expect(&ch, OP_RST, 9, 7, NULL);
		rx_none(&ch);
		assert_int_equal(n_conns(), 0);
	}
	assert_int_equal(ch.n_asks, 0);
	/* Known, but nobody asked for a RESPONSE. */
	fd = channel_connect(&ch, 9, 1024);
	tx(&ch, PKT(.op = OP_RESPONSE, .src_port = 9, .dst_port = 1024), NULL,
	   0);
	rx_expect(&ch, OP_RST, 9, 1024, NULL);
	closed(fd);
}

static void d10_rst_is_not_answered(void **state)
{
	uint64_t n = drops();

	(void)state;
	for (uint32_t i = 0; i < 100; i++)
		channel_close(&ch, i, 1024);
	rx_none(&ch);
	assert_int_equal(drops(), n + 100);
	assert_int_equal(channel_stats(&ch).resets, 0);
}

static void d11_request_twice(void **state)
{
	int fd[50], again;
	char b;

	(void)state;
	for (uint32_t i = 0; i < 50; i++)
		fd[i] = channel_connect(&ch, 100 + i, 1024);
	assert_int_equal(n_conns(), 50);
	tx(&ch, PKT(.op = OP_REQUEST, .src_port = 107, .dst_port = 1024), NULL,
	   0);
	rx_expect(&ch, OP_RST, 107, 1024, NULL);
	assert_int_equal(n_conns(), 49);
	closed(fd[7]);
	for (uint32_t i = 0; i < 50; i++) {
		if (i == 7)
			continue;
		send_data(&ch, 100 + i, 1024, 0, "x", 1);
		assert_int_equal(read(fd[i], &b, 1), 1);
	}
	again = channel_connect(&ch, 107, 1024);
	for (uint32_t i = 0; i < 50; i++) {
		channel_close(&ch, 100 + i, 1024);
		if (i != 7)
			close(fd[i]);
	}
	close(again);
	/* Twice before the owner has answered. */
	ch.policy = SILENT;
	for (int i = 0; i < 2; i++)
		tx(&ch, PKT(.op = OP_REQUEST, .src_port = 3, .dst_port = 1024),
		   NULL, 0);
	rx_expect(&ch, OP_RST, 3, 1024, NULL);
	assert_int_equal(n_conns(), 0);
	rx_none(&ch);
}

static void d13_request_and_silence(void **state)
{
	uint32_t conn;
	int sv[2];

	(void)state;
	/* The owner takes its time; the guest may give up meanwhile, and the
	 * late answer finds nobody and leaves nothing open. */
	ch.policy = SILENT;
	tx(&ch, PKT(.op = OP_REQUEST, .src_port = 3, .dst_port = 1024), NULL,
	   0);
	conn = ch.ask_conn[0];
	assert_int_equal(n_conns(), 1);
	rx_none(&ch);
	channel_close(&ch, 3, 1024);
	assert_int_equal(n_conns(), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	assert_int_equal(vsock_answer(ch.v, conn, sv[0]), -ENOENT);
	closed(sv[1]);
	assert_int_equal(vsock_answer(ch.v, conn, -1), -ENOENT);
	assert_int_equal(vsock_answer(ch.v, 0, -1), -ENOENT);
	/* Data before the RESPONSE is nothing that a guest may send. */
	tx(&ch, PKT(.op = OP_REQUEST, .src_port = 4, .dst_port = 1024), NULL,
	   0);
	send_data(&ch, 4, 1024, 0, "x", 1);
	rx_expect(&ch, OP_RST, 4, 1024, NULL);
	assert_int_equal(n_conns(), 0);
}

static void d19_shutdown_flags(void **state)
{
	int fd = channel_connect(&ch, 9, 1024);
	uint64_t n = drops();
	char b;

#define SHUT(f)                                                                \
	tx(&ch,                                                                \
	   PKT(.op = OP_SHUTDOWN, .src_port = 9, .dst_port = 1024,             \
	       .flags = (f)),                                                  \
	   NULL, 0)
	(void)state;
	SHUT(0);
	SHUT(0xfffffffc);
	rx_none(&ch);
	SHUT(SEND);
	SHUT(SEND);
	rx_none(&ch);
	assert_int_equal(read(fd, &b, 1), 0); /* end of the guest's stream */
	send_data(&ch, 9, 1024, 0, "late", 4);
	assert_int_equal(drops(), n + 1);
	assert_int_equal(n_conns(), 1);
	SHUT(0xff); /* both, and bits that mean nothing */
	rx_expect(&ch, OP_RST, 9, 1024, NULL);
	assert_int_equal(n_conns(), 0);
	send_data(&ch, 9, 1024, 0, "later", 5);
	rx_expect(&ch, OP_RST, 9, 1024, NULL);
	closed(fd);
	fd = channel_connect(&ch, 9, 1024);
	SHUT(RCV | SEND);
	rx_expect(&ch, OP_RST, 9, 1024, NULL);
	closed(fd);
#undef SHUT
}

/* The event is due after a restore in which others than the agent existed. */
static void event_load(void)
{
	struct vsock_state s = {.n_others = 1,
				.other = {{.src_port = 1, .dst_port = 2}}};

	assert_int_equal(vsock_load(ch.v, &s), 0);
}

static void d23_event_queue(void **state)
{
	gpa_t at = guest_alloc(g, 64);
	uint32_t len, event = 0xffffffff;

	(void)state;
	event_load();
	guest_kick(g, 0);
	guest_run(g);
	assert_int_equal(guest_used_idx(g, 2), 0); /* no buffer: it waits */
	guest_fill(g, at, 0xff, 64);
	guest_chain(g, 2, &(struct gbuf){at, 3, true}, 1);
	guest_kick(g, 2);
	assert_true(guest_used(g, 2, NULL, &len));
	assert_int_equal(len, 0); /* too small: it still waits */
	guest_chain(g, 2, &(struct gbuf){at, 4, true}, 1);
	guest_chain(g, 2, &(struct gbuf){at + 16, 8, true}, 1);
	guest_kick(g, 2);
	assert_true(guest_used(g, 2, NULL, &len));
	assert_int_equal(len, 4);
	guest_get(g, at, &event, 4);
	assert_int_equal(event, 0); /* TRANSPORT_RESET */
	guest_run(g);
	assert_false(guest_used_now(g, 2, NULL, &len)); /* once */
	/* A buffer to read from. */
	guest_reset(g);
	channel_start(&ch, 4, 4096);
	event_load();
	guest_chain(g, 2, &(struct gbuf){at, 8, false}, 1);
	guest_kick(g, 2);
	assert_broken(g);
}

static void d28_failures_then_success(void **state)
{
	unsigned fds = fds_count();
	int fd;

	(void)state;
	ch.policy = REFUSE;
	for (uint32_t i = 0; i < 1000; i++) {
		tx(&ch, PKT(.op = OP_REQUEST, .src_port = i, .dst_port = 1024),
		   NULL, 0);
		rx_expect(&ch, OP_RST, i, 1024, NULL);
	}
	assert_int_equal(n_conns(), 0);
	assert_int_equal(fds_count(), fds);
	fd = channel_connect(&ch, 9, 1024);
	channel_close(&ch, 9, 1024);
	close(fd);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(d1_header_shapes),
		CASE(d1_directions),
		CASE(d2_len_beyond_descriptors),
		CASE(d3_len_short_of_descriptors),
		CASE(d4_d5_foreign_addresses),
		CASE(d6_port_refused),
		CASE(d7_types),
		CASE(d8_operations_unknown),
		CASE(d9_unknown_connection),
		CASE(d10_rst_is_not_answered),
		CASE(d11_request_twice),
		CASE(d13_request_and_silence),
		CASE(d19_shutdown_flags),
		CASE(d23_event_queue),
		CASE(d28_failures_then_success),
	};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
