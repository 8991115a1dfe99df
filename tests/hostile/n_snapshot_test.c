/*
 * Hostile cases N5 and N7, and what a snapshot of the devices must do: state
 * that could not have come from a device is refused; the agent's connection
 * goes on byte for byte in another process's device; all others are reset.
 */
#include "channel.h"
#include "disk.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct channel ch;
static struct guest *const g = &ch.g;
static struct vsock_state saved;

#define RX_BUFS 16

static int up(void **state)
{
	(void)state;
	channel_up(&ch, false);
	channel_start(&ch, RX_BUFS, 4096);
	return 0;
}

static int down(void **state)
{
	(void)state;
	channel_down(&ch);
	return 0;
}

/* Another device on the same guest memory, as after a restore. */
static void restore(const struct virtio_state *vs, const struct vsock_state *s)
{
	struct gq q[3];
	bool posted[CH_RX_MAX];

	guest_run(g);
	memcpy(q, g->q, sizeof(q));
	memcpy(posted, ch.rx_posted, sizeof(posted));
	vsock_destroy(ch.v);
	channel_device(&ch);
	memcpy(g->q, q, sizeof(q));
	memcpy(ch.rx_posted, posted, sizeof(posted));
	assert_int_equal(virtio_dev_load(g->d, vs), 0);
	assert_int_equal(vsock_load(ch.v, s), 0);
}

static void save(struct virtio_state *vs)
{
	vsock_hold(ch.v, true);
	virtio_dev_save(g->d, vs);
	vsock_save(ch.v, &saved);
}

static void agent_survives(void **state)
{
	struct virtio_state vs;
	uint8_t data[4096];
	struct pkt p;
	char got[64];
	int sv[2], fd = channel_connect(&ch, 9, 1024);

	(void)state;
	assert_int_equal(write(fd, "before", 6), 6);
	assert_true(rx(&ch, &p, data));
	send_data(&ch, 9, 1024, 6, "up", 2);
	/* Written by the host, not yet seen by the guest. */
	vsock_hold(ch.v, true);
	assert_int_equal(write(fd, "pending", 7), 7);
	save(&vs);
	assert_int_equal(saved.has_agent, 1);
	assert_int_equal(saved.unsent_len, 7);
	assert_int_equal(saved.undelivered_len, 0);
	assert_int_equal(saved.n_others, 0);
	/* The running VM loses nothing by it. */
	vsock_hold(ch.v, false);
	assert_true(rx(&ch, &p, data));
	assert_int_equal(p.len, 7);
	assert_memory_equal(data, "pending", 7);
	assert_int_equal(read(fd, got, sizeof(got)), 2);
	close(fd);
	rx_expect(&ch, OP_SHUTDOWN, 9, 1024, NULL);

	/* The rings moved on since; a real restore has the old memory too. */
	vsock_hold(ch.v, true);
	virtio_dev_save(g->d, &vs);
	restore(&vs, &saved);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	assert_int_equal(write(sv[1], " and after", 10), 10);
	/* The guest may send before anybody is attached. */
	send_data(&ch, 9, 1024, 6, "early", 5);
	assert_int_equal(vsock_attach(ch.v, sv[0]), 0);
	assert_int_equal(vsock_attach(ch.v, -1), -ENOENT);
	assert_true(rx(&ch, &p, data));
	assert_int_equal(p.op, OP_RW);
	assert_int_equal(p.len, 7);
	assert_memory_equal(data, "pending", 7);
	assert_true(rx(&ch, &p, data));
	assert_int_equal(p.len, 10);
	assert_memory_equal(data, " and after", 10);
	assert_int_equal(recv(sv[1], got, sizeof(got), MSG_DONTWAIT), 5);
	assert_memory_equal(got, "early", 5);
	send_data(&ch, 9, 1024, 23, "more", 4);
	assert_int_equal(recv(sv[1], got, sizeof(got), MSG_DONTWAIT), 4);
	channel_close(&ch, 9, 1024);
	close(sv[1]);
}

static void agent_undelivered_survives(void **state)
{
	static uint8_t block[32768], got[4u << 20];
	struct virtio_state vs;
	size_t sent = 0, n = 0;
	int sv[2], fd = channel_connect(&ch, 9, 1024);
	ssize_t r;

	(void)state;
	/* Fill the socket and half of our buffer. */
	do {
		for (size_t i = 0; i < sizeof(block); i++)
			block[i] = (uint8_t)((sent + i) * 11 >> 3);
		send_data(&ch, 9, 1024, 0, block, sizeof(block));
		sent += sizeof(block);
		save(&vs);
		vsock_hold(ch.v, false);
	} while (saved.undelivered_len == 0);
	n = sent - saved.undelivered_len;
	assert_int_equal(recv(fd, got, n, MSG_WAITALL), n);
	vsock_hold(ch.v, true);
	virtio_dev_save(g->d, &vs);
	restore(&vs, &saved);
	close(fd);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	assert_int_equal(vsock_attach(ch.v, sv[0]), 0);
	while (n < sent) {
		guest_run(g);
		r = recv(sv[1], got + n, sent - n, MSG_DONTWAIT);
		assert_true(r > 0);
		n += (size_t)r;
	}
	for (size_t i = 0; i < sent; i++)
		assert_int_equal(got[i], (uint8_t)(i * 11 >> 3));
	channel_close(&ch, 9, 1024);
	close(sv[1]);
}

static void n7_others_are_reset(void **state)
{
	struct virtio_state vs;
	int agent = channel_connect(&ch, 9, 1024);
	int other = channel_connect(&ch, 10, 1024);
	int third = channel_connect(&ch, 11, 2000);

	(void)state;
	save(&vs);
	assert_int_equal(saved.n_others, 2);
	restore(&vs, &saved);
	rx_expect(&ch, OP_RST, 10, 1024, NULL);
	rx_expect(&ch, OP_RST, 11, 2000, NULL);
	rx_none(&ch);
	assert_int_equal(channel_stats(&ch).n_conns, 1);
	channel_close(&ch, 9, 1024);
	close(agent);
	close(other);
	close(third);
}

/* With no buffer of the guest left, what it is to be told waits.  A guest that
 * has used up its credit says nothing by itself: a snapshot must keep the word
 * of it, and so it must keep resets. */
static void n7_what_waits_for_a_buffer_survives(void **state)
{
	struct virtio_state vs;
	struct pkt p;
	int fd = channel_connect(&ch, 9, 1024);

	(void)state;
	for (int i = 0; i < RX_BUFS; i++) {
		assert_int_equal(write(fd, "x", 1), 1);
		guest_run(g);
	}
	tx(&ch, PKT(.op = OP_CREDIT_REQUEST, .src_port = 9, .dst_port = 1024),
	   NULL, 0);
	tx(&ch, PKT(.op = OP_RW, .src_port = 20, .dst_port = 1024), NULL, 0);
	tx(&ch,
	   PKT(.op = OP_REQUEST, .src_port = 21, .dst_port = 7, .dst_cid = 99),
	   NULL, 0);
	for (int i = 0; i < 2; i++) { /* the second time from a loaded one */
		save(&vs);
		assert_int_equal(saved.n_rsts, 2);
		restore(&vs, &saved);
	}
	for (int i = 0; i < RX_BUFS; i++) {
		assert_true(rx(&ch, &p, NULL));
		assert_int_equal(p.op, OP_RW);
	}
	rx_expect(&ch, OP_RST, 20, 1024, &p);
	assert_int_equal(p.src_cid, CH_HOST);
	rx_expect(&ch, OP_RST, 21, 7, &p);
	assert_int_equal(p.src_cid, 99);
	rx_expect(&ch, OP_CREDIT, 9, 1024, NULL);
	rx_none(&ch);
	channel_close(&ch, 9, 1024);
	close(fd);
}

static void vsock_state_refused(void **state)
{
	static struct vsock_state s;
	int fd;

	(void)state;
#define BAD(field, value)                                                      \
	do {                                                                   \
		s = (struct vsock_state){.has_agent = 1};                      \
		s.field = (value);                                             \
		assert_int_equal(vsock_load(ch.v, &s), -EPROTO);               \
	} while (0)
	BAD(has_agent, 2);
	BAD(unsent_len, VSOCK_BUF_BYTES + 1);
	BAD(undelivered_len, VSOCK_BUF_BYTES + 1);
	BAD(undelivered_len, 1);
	BAD(rx_cnt, 5);
	BAD(fwd_cnt, 1);
	BAD(peer_fwd_cnt, 1);
	BAD(n_others, VSOCK_CONNS_MAX + 1);
	BAD(n_others, UINT32_MAX);
	BAD(n_rsts, VSOCK_RSTS_MAX + 1);
	BAD(n_rsts, UINT32_MAX);
	BAD(is_credit_due, 2);
	BAD(is_event_due, 2);
#undef BAD
	fd = channel_connect(&ch, 9, 1024);
	s = (struct vsock_state){.has_agent = 1};
	assert_int_equal(vsock_load(ch.v, &s), -EBUSY);
	channel_close(&ch, 9, 1024);
	close(fd);
}

static void refused(const struct virtio_state *s)
{
	struct disk k;

	disk_up(&k, &(struct disk_options){0});
	assert_int_equal(virtio_dev_load(k.g.d, s), -EPROTO);
	disk_down(&k);
}

/* N5: the same checks as A7, A10, A11, A13-A15. */
static void n5_device_state_refused(void **state)
{
	struct virtio_state good, s;
	struct disk k;

	(void)state;
	disk_up(&k, &(struct disk_options){0});
	guest_start(&k.g);
	for (int i = 0; i < 3; i++) {
		guest_free_all(&k.g);
		assert_int_equal(
			disk_do(&k, &(struct blk_req){.type = 4}, NULL), 0);
	}
	virtio_dev_save(k.g.d, &good);
	assert_int_equal(good.vq[0].last_avail, 3);
	disk_down(&k);

#define BAD(field, value)                                                      \
	do {                                                                   \
		s = good;                                                      \
		s.field = (value);                                             \
		refused(&s);                                                   \
	} while (0)
	BAD(status, 4);
	BAD(status, 0x7fffffff);
	BAD(status, VIRTIO_NEEDS_RESET | 2);
	BAD(status, S_DRIVER); /* with a queue that is ready */
	BAD(isr, 4);
	BAD(kicked, 2);
	BAD(acked, 0);
	BAD(acked, good.acked | 1ull << 28);
	BAD(acked, good.acked | 1ull << 63);
	BAD(vq[0].size, 0);
	BAD(vq[0].size, 3);
	BAD(vq[0].size, 256);
	BAD(vq[0].size, 32768);
	BAD(vq[0].desc, good.vq[0].desc + 1);
	BAD(vq[0].desc, UINT64_MAX - 15);
	BAD(vq[0].desc, GUEST_RAM_BYTES - 16);
	BAD(vq[0].avail, good.vq[0].avail + 1);
	BAD(vq[0].avail, 0xd0000000);
	BAD(vq[0].used, good.vq[0].used + 2);
	BAD(vq[0].used, GUEST_RAM_BYTES);
	BAD(vq[0].last_avail, 4); /* a request lost in between */
	BAD(vq[0].used_idx, 2);
	BAD(vq[0].is_ready, 2);
	BAD(vq[0].is_ready, 0); /* live without its queue */
	BAD(vq[0].signalled_valid, 2);
	BAD(vq[1].is_ready, 1); /* a queue that the device does not have */
#undef BAD
}

static void disk_goes_on(void **state)
{
	struct virtio_state s;
	struct blk_config cfg = {.bytes = DISK_BYTES};
	struct gq q;
	struct disk k;

	(void)state;
	disk_up(&k, &(struct disk_options){0});
	guest_start(&k.g);
	for (int i = 0; i < 200; i++) {
		guest_free_all(&k.g);
		assert_int_equal(
			disk_do(&k, &(struct blk_req){.type = 4}, NULL), 0);
	}
	blk_drain(k.blk);
	virtio_dev_save(k.g.d, &s);
	q = k.g.q[0];
	guest_reset(&k.g);
	blk_destroy(k.blk);
	cfg.fd = k.dev_fd;
	assert_int_equal(blk_create(&k.blk, &k.mem, k.io, &cfg), 0);
	assert_int_equal(io_device_add(k.io, blk_dev(k.blk)), 0);
	guest_init(&k.g, &k.mem, k.io, blk_dev(k.blk));
	k.g.q[0] = q;
	assert_int_equal(virtio_dev_load(k.g.d, &s), 0);
	for (int i = 0; i < 200; i++) {
		guest_free_all(&k.g);
		assert_int_equal(
			disk_do(&k, &(struct blk_req){.type = 4}, NULL), 0);
	}
	assert_live(&k.g);
	disk_down(&k);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(agent_survives),
		CASE(agent_undelivered_survives),
		CASE(n7_others_are_reset),
		CASE(n7_what_waits_for_a_buffer_survives),
		CASE(vsock_state_refused),
		cmocka_unit_test(n5_device_state_refused),
		cmocka_unit_test(disk_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
