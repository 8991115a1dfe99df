/* See channel.h. */
#include "channel.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RX, TX, EV };

static void on_ask(void *ctx, uint32_t conn, uint32_t port)
{
	struct channel *c = ctx;
	unsigned i = c->n_asks++ % CH_ASKS_MAX;

	c->ask_conn[i] = conn;
	c->ask_port[i] = port;
}

static const struct vsock_ops ops = {.ask = on_ask};

void channel_device(struct channel *c)
{
	assert_int_equal(vsock_create(&c->v, &c->mem, c->io, CH_CID, &ops, c),
			 0);
	assert_int_equal(io_device_add(c->io, vsock_dev(c->v)), 0);
	guest_init(&c->g, &c->mem, c->io, vsock_dev(c->v));
}

void channel_up(struct channel *c, bool use_ring)
{
	struct io_config ic = {.use_ring = use_ring};

	memset(c, 0, sizeof(*c));
	c->host_fd = -1;
	c->fds_before = fds_count();
	assert_int_equal(mem_init(&c->mem, GUEST_RAM_BYTES), 0);
	guest_canary_fill(&c->mem);
	assert_int_equal(io_create(&c->io, &ic), 0);
	channel_device(c);
}

void rx_post(struct channel *c, unsigned i)
{
	guest_desc(&c->g, RX, (uint16_t)i, c->rx_buf + 8192ull * i, c->rx_len,
		   F_WRITE, 0);
	guest_avail(&c->g, RX, (uint16_t)i);
	c->rx_posted[i] = true;
}

void channel_start(struct channel *c, unsigned n, uint32_t len)
{
	guest_start(&c->g);
	guest_free_all(&c->g);
	c->rx_buf = guest_alloc(&c->g, 8192ul * CH_RX_MAX);
	c->tx_buf = guest_alloc(&c->g, CH_PAYLOAD_MAX * 2ul);
	c->rx_len = len;
	for (unsigned i = 0; i < n; i++)
		rx_post(c, i);
	guest_kick(&c->g, RX);
}

static void answer(struct channel *c, uint32_t conn)
{
	int sv[2];

	if (c->policy == REFUSE) {
		assert_int_equal(vsock_answer(c->v, conn, -1), 0);
		return;
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	if (c->host_fd >= 0)
		close(c->host_fd);
	c->host_fd = sv[1];
	assert_int_equal(vsock_answer(c->v, conn, sv[0]), 0);
}

void channel_run(struct channel *c)
{
	guest_run(&c->g);
	while (c->n_taken != c->n_asks && c->policy != SILENT) {
		answer(c, c->ask_conn[c->n_taken++ % CH_ASKS_MAX]);
		guest_run(&c->g);
	}
}

void tx(struct channel *c, const struct pkt *p, const void *payload, uint32_t n)
{
	struct gbuf b[2] = {{c->tx_buf, sizeof(*p), false},
			    {c->tx_buf + 64, n, false}};
	uint32_t len = 99;

	guest_put(&c->g, c->tx_buf, p, sizeof(*p));
	if (n > 0)
		guest_put(&c->g, c->tx_buf + 64, payload, n);
	guest_chain(&c->g, TX, b, n > 0 ? 2 : 1);
	guest_kick(&c->g, TX);
	assert_true(guest_used(&c->g, TX, NULL, &len));
	assert_int_equal(len, 0);
	channel_run(c);
}

static bool rx_take(struct channel *c, struct pkt *p, uint8_t *data)
{
	uint32_t id, len;
	gpa_t at;

	if (!guest_used_now(&c->g, RX, &id, &len))
		return false;
	assert_true(id < CH_RX_MAX && c->rx_posted[id]);
	c->rx_posted[id] = false;
	assert_true(len <= c->rx_len);
	memset(p, 0, sizeof(*p));
	at = c->rx_buf + 8192ull * id;
	if (len >= sizeof(*p)) {
		guest_get(&c->g, at, p, sizeof(*p));
		assert_true(p->src_cid == CH_HOST || p->op == OP_RST);
		assert_int_equal(p->dst_cid, CH_CID);
		assert_int_equal(p->type, 1);
		assert_int_equal(p->len, len - sizeof(*p));
		if (data)
			guest_get(&c->g, at + sizeof(*p), data, p->len);
	}
	rx_post(c, id);
	guest_kick(&c->g, RX);
	return true;
}

bool rx(struct channel *c, struct pkt *p, uint8_t *data)
{
	for (int i = 0; i < 50; i++) {
		if (rx_take(c, p, data))
			return true;
		channel_run(c);
	}
	return false;
}

void rx_none(struct channel *c)
{
	struct pkt p;

	assert_false(rx(c, &p, NULL));
}

void rx_expect(struct channel *c, enum op op, uint32_t guest_port,
	       uint32_t host_port, struct pkt *ret)
{
	struct pkt p;

	assert_true(rx(c, &p, NULL));
	assert_int_equal(p.op, op);
	assert_int_equal(p.dst_port, guest_port);
	assert_int_equal(p.src_port, host_port);
	if (ret)
		*ret = p;
}

int channel_connect(struct channel *c, uint32_t guest_port, uint32_t host_port)
{
	struct pkt p;
	int fd;

	c->policy = ANSWER;
	tx(c,
	   PKT(.op = OP_REQUEST, .src_port = guest_port, .dst_port = host_port),
	   NULL, 0);
	rx_expect(c, OP_RESPONSE, guest_port, host_port, &p);
	assert_int_equal(p.buf_alloc, VSOCK_BUF_BYTES);
	assert_int_equal(p.fwd_cnt, 0);
	fd = c->host_fd;
	c->host_fd = -1;
	assert_true(fd >= 0);
	return fd;
}

void channel_close(struct channel *c, uint32_t guest_port, uint32_t host_port)
{
	tx(c, PKT(.op = OP_RST, .src_port = guest_port, .dst_port = host_port),
	   NULL, 0);
}

void send_data(struct channel *c, uint32_t guest_port, uint32_t host_port,
	       uint32_t fwd_cnt, const void *data, uint32_t n)
{
	tx(c,
	   PKT(.op = OP_RW, .src_port = guest_port, .dst_port = host_port,
	       .len = n, .fwd_cnt = fwd_cnt),
	   data, n);
}

struct vsock_stats channel_stats(struct channel *c)
{
	struct vsock_stats s;

	vsock_stats(c->v, &s);
	return s;
}

int fd_readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1 ? 1 : 0;
}

void channel_invariants(struct channel *c)
{
	struct pkt p;
	uint8_t data[64];
	char got[16];
	int fd;

	guest_reset(&c->g);
	c->n_taken = c->n_asks;
	channel_start(c, 8, 4096);
	fd = channel_connect(c, 77, 1024);
	send_data(c, 77, 1024, 0, "ping", 4);
	assert_int_equal(fd_readable(fd, 1000), 1);
	assert_int_equal(read(fd, got, sizeof(got)), 4);
	assert_memory_equal(got, "ping", 4);
	assert_int_equal(write(fd, "pong", 4), 4);
	assert_true(rx(c, &p, data));
	assert_int_equal(p.op, OP_RW);
	assert_memory_equal(data, "pong", 4);
	assert_live(&c->g);
	channel_close(c, 77, 1024);
	close(fd);
	guest_run(&c->g);
	assert_int_equal(channel_stats(c).n_conns, 0);
	guest_canary_check(&c->mem);
}

void channel_down(struct channel *c)
{
	channel_invariants(c);
	guest_reset(&c->g);
	if (c->host_fd >= 0)
		close(c->host_fd);
	vsock_destroy(c->v);
	io_destroy(c->io);
	mem_finish(&c->mem);
	assert_int_equal(fds_count(), c->fds_before);
}
