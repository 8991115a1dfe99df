/*
 * Fuzz: virtio-vsock, both sides.
 *
 * Input: steps: the guest sends a packet (fields from small domains, so that
 * they meet; now and then anything), posts a receive buffer, is reset; the
 * owner answers or refuses; the host writes, reads or closes; the device is
 * held, saved and loaded.  Reached = a connection was asked for.
 */
#include "../../vmm/virtio/vsock.h"
#include "driver.h"
#include "fuzz.h"
#include "input.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAM   (256u << 10)
#define HOSTS 8
#define ASKS  16

static struct mem ram;
static struct io *io;
static struct vsock *v;
static struct virtio_dev *dev;

static uint32_t ask[ASKS];
static unsigned n_asks;
static int host[HOSTS]; /* the owner's ends, -1 = none */
static uint16_t idx[3];

static const struct ring {
	uint16_t size;
	gpa_t desc, avail, used;
} ring[3] = {{64, 0x1000, 0x1800, 0x1c00},
	     {64, 0x2000, 0x2800, 0x2c00},
	     {8, 0x3000, 0x3800, 0x3c00}};

static void check(bool is_true)
{
	if (!is_true)
		abort();
}

static void on_ask(void *ctx, uint32_t conn, uint32_t port)
{
	(void)ctx;
	(void)port;
	fuzz_reach();
	ask[n_asks++ % ASKS] = conn;
}

static const struct vsock_ops ops = {.ask = on_ask};

static void set_up(void)
{
	struct io_config ic = {.use_ring = false};

	check(mem_init(&ram, RAM) == 0);
	check(io_create(&io, &ic) == 0);
	check(vsock_create(&v, &ram, io, 3, &ops, NULL) == 0);
	dev = vsock_dev(v);
	check(io_device_add(io, dev) == 0);
	for (int i = 0; i < HOSTS; i++)
		host[i] = -1;
}

static void wr(uint32_t off, uint32_t val)
{
	driver_write(dev, off, val);
}

static void go_live(void)
{
	wr(0x70, 0);
	memset(idx, 0, sizeof(idx));
	memset(ram.host, 0, 0x4000);
	driver_negotiate(dev);
	for (uint32_t q = 0; q < 3; q++) {
		driver_queue(dev, q, ring[q].size, (uint32_t)ring[q].desc,
			     (uint32_t)ring[q].avail, (uint32_t)ring[q].used);
	}
	wr(0x70, 15);
	check(dev->status == 15);
}

static void chain_put(struct in *in, unsigned q, gpa_t at, uint32_t len,
		      uint32_t more, bool is_out)
{
	uint16_t n = ring[q].size, i = (uint16_t)(idx[q] * 2u % n);
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} d[2] = {{at, len, (uint16_t)(is_out ? 2 : 0), (uint16_t)(i + 1)},
		  {at + len, more, (uint16_t)(is_out ? 2 : 0), 0}};

	if (more)
		d[0].flags |= 1;
	if (in_rarely(in) && in_rarely(in))
		d[in_u8(in) % 2].addr = in_edge(in);
	if (in_rarely(in) && in_rarely(in))
		d[in_u8(in) % 2].flags ^= (uint16_t)(1u << in_u8(in) % 4);
	mem_write(&ram, ring[q].desc + 16u * i, d, sizeof(d));
	mem_write(&ram, ring[q].avail + 4 + 2u * (idx[q] % n), &i, 2);
	mem_store16_release(&ram, ring[q].avail + 2, ++idx[q]);
	wr(0x50, q);
}

static void packet(struct in *in)
{
	struct {
		uint64_t src_cid, dst_cid;
		uint32_t src_port, dst_port, len;
		uint16_t type, op;
		uint32_t flags, buf_alloc, fwd_cnt;
	} __attribute__((packed)) h = {
		.src_cid = 3,
		.dst_cid = 2,
		.src_port = in_u8(in) % 4,
		.dst_port = 1024 + in_u8(in) % 2u,
		.len = in_u8(in) * 8u,
		.type = 1,
		.op = in_u8(in) % 8,
		.flags = in_u8(in) % 4,
		.buf_alloc = in_u8(in) * 64u,
		.fwd_cnt = in_u8(in) * 8u,
	};
	uint32_t n = h.len;

	if (h.op == 0)
		h.op = 1;
	if (in_rarely(in))
		h.len = (uint32_t)in_edge(in);
	if (in_rarely(in))
		h.fwd_cnt = in_u32(in);
	if (in_rarely(in))
		h.buf_alloc = in_u32(in);
	if (in_rarely(in))
		h.op = in_u16(in);
	if (in_rarely(in))
		h.type = in_u16(in);
	if (in_rarely(in))
		h.src_cid = in_edge(in);
	if (in_rarely(in))
		h.dst_cid = in_edge(in);
	mem_write(&ram, 0x8000, &h, sizeof(h));
	chain_put(in, 1, 0x8000, in_rarely(in) ? in_u8(in) : sizeof(h), n,
		  false);
}

static void answer(struct in *in)
{
	uint32_t conn = ask[in_u8(in) % ASKS];
	uint8_t how = in_u8(in);
	int sv[2], *slot = &host[how % HOSTS];

	if (how & 64) {
		vsock_answer(v, conn, -1);
		return;
	}
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	if (*slot >= 0)
		close(*slot);
	*slot = sv[1];
	vsock_answer(v, conn, sv[0]);
}

static void host_step(struct in *in)
{
	static char block[8192];
	uint8_t how = in_u8(in);
	int *fd = &host[how % HOSTS];

	if (*fd < 0)
		return;
	switch (how / HOSTS % 4) {
	case 0:
		send(*fd, block, 32u * in_u8(in), MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 1:
		recv(*fd, block, sizeof(block), MSG_DONTWAIT);
		break;
	case 2:
		shutdown(*fd, in_u8(in) % 3);
		break;
	case 3:
		close(*fd);
		*fd = -1;
		break;
	}
}

static void state_step(struct in *in)
{
	static struct vsock_state s;
	struct vsock_stats st;
	uint8_t how = in_u8(in);

	switch (how % 6) {
	case 0:
		vsock_hold(v, how & 64);
		break;
	case 1:
		vsock_save(v, &s);
		check(s.unsent_len <= VSOCK_BUF_BYTES &&
		      s.undelivered_len == s.rx_cnt - s.fwd_cnt);
		break;
	case 2: /* what was saved, or what a hostile file says */
		if (how & 64)
			s.rx_cnt ^= in_u32(in);
		if (how & 32)
			s.n_others = s.n_rsts = in_u8(in);
		vsock_load(v, &s);
		break;
	case 3: {
		int sv[2];

		check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) ==
		      0);
		vsock_attach(v, sv[0]);
		close(sv[1]);
		break;
	}
	case 4:
		go_live();
		break;
	default:
		vsock_stats(v, &st);
		check(st.n_conns <= VSOCK_CONNS_MAX);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct in in = {data, len};

	fuzz_begin();
	fuzz_reach_want(50);
	if (!dev)
		set_up();
	vsock_hold(v, false);
	go_live();
	n_asks = 0;
	memset(ask, 0, sizeof(ask));
	if (in_u8(&in) % 8) { /* most inputs start with a connection */
		static const uint8_t request[] = {1, 0, 0, 1, 0, 255, 0};

		chain_put(&in, 0, 0x10000, 4096, 0, true);
		packet(&(struct in){request, sizeof(request)});
		io_step(io);
	}
	while (in.len > 0) {
		uint8_t op = in_u8(&in);

		switch (op % 8) {
		case 0:
		case 1:
			packet(&in);
			break;
		case 2:
			chain_put(&in, 0, 0x10000 + in_u8(&in) * 512u,
				  in_u8(&in) * 20u, op & 64 ? in_u8(&in) : 0,
				  true);
			break;
		case 3:
			answer(&in);
			break;
		case 4:
		case 5:
			host_step(&in);
			break;
		case 6:
			state_step(&in);
			break;
		case 7:
			chain_put(&in, 2, 0x30000, in_u8(&in) % 16u, 0, true);
			break;
		}
		io_step(io);
		if (dev->status & VIRTIO_NEEDS_RESET)
			go_live();
	}
	for (int i = 0; i < HOSTS; i++) {
		if (host[i] >= 0)
			close(host[i]);
		host[i] = -1;
	}
	wr(0x70, 0);
	for (int i = 0; i < 4; i++)
		io_step(io);
	return 0;
}
