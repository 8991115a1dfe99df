/*
 * Fuzz: the state of a device as a snapshot's file gives it.
 *
 * Input: which device (disk or vsock) over which I/O backend, then a list of
 * edits to a state that a live device was saved with (now and then the whole
 * state is the input's bytes), for vsock also to its connections, then what
 * lies in the rings.  A state that is accepted must be sound by the rules of
 * the registers, come back the same when saved, and the device must serve its
 * queues with it; whatever was loaded, a reset heals.
 * Reached = a state was accepted.
 */
#include "../../vmm/virtio/blk_priv.h"
#include "../../vmm/virtio/vsock.h"
#include "driver.h"
#include "fuzz.h"
#include "input.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define RAM	   (256u << 10)
#define DISK_BYTES (256u << 10)
#define RINGS_AT   0x1000u /* queue i at RINGS_AT * (i + 1) */
#define AVAIL_OFF  0x800u
#define USED_OFF   0xc00u
#define BUFS_AT	   0x8000u
#define EDITS_MAX  8
#define CHAINS_MAX 6
#define STEPS_MAX  100000

static struct mem ram;

static struct unit {
	struct io *io;
	struct virtio_dev *dev;
	struct blk *blk;
	struct vsock *v;
	struct virtio_state live;
} units[2][2]; /* disk, vsock; ppoll, io_uring */

static void check(bool is_true)
{
	if (!is_true)
		abort();
}

/* Until nothing is in flight: a reset would wait for it. */
static void settle(struct unit *u)
{
	for (int i = 0; i < 4; i++)
		io_step(u->io);
	for (int i = 0; u->blk && u->blk->n_flying > 0; i++) {
		check(i < STEPS_MAX);
		io_step(u->io);
	}
}

static void go_live(struct unit *u)
{
	struct virtio_dev *d = u->dev;

	driver_write(d, 0x70, 0);
	driver_negotiate(d);
	for (uint32_t q = 0; q < d->ops->n_queues; q++) {
		uint32_t at = RINGS_AT * (q + 1);

		driver_queue(d, q, d->ops->queue_max[q] / 2, at, at + AVAIL_OFF,
			     at + USED_OFF);
	}
	driver_write(d, 0x70, 15);
	check(d->status == 15);
}

static uint32_t asked;

static void on_ask(void *ctx, uint32_t conn, uint32_t port)
{
	(void)ctx;
	(void)port;
	asked = conn;
}

static void unit_up(struct unit *u, bool is_vsock, bool use_ring)
{
	static const struct vsock_ops ops = {.ask = on_ask};
	struct io_config ic = {.use_ring = use_ring};
	struct blk_config bc = {.bytes = DISK_BYTES};

	check(io_create(&u->io, &ic) == 0);
	if (is_vsock) {
		check(vsock_create(&u->v, &ram, u->io, 3, &ops, NULL) == 0);
		u->dev = vsock_dev(u->v);
	} else {
		bc.fd = memfd_create("disk", MFD_CLOEXEC);
		check(bc.fd >= 0 && ftruncate(bc.fd, DISK_BYTES) == 0);
		check(blk_create(&u->blk, &ram, u->io, &bc) == 0);
		u->dev = blk_dev(u->blk);
	}
	check(io_device_add(u->io, u->dev) == 0);
	go_live(u);
	virtio_dev_save(u->dev, &u->live);
	driver_write(u->dev, 0x70, 0);
}

/* ---- edits ---- */

#define FIELD(type, f)                                                         \
	{                                                                      \
		offsetof(type, f), sizeof(((type *)0)->f)                      \
	}
#define VQ(i)                                                                  \
	FIELD(struct virtio_state, vq[i].desc),                                \
		FIELD(struct virtio_state, vq[i].avail),                       \
		FIELD(struct virtio_state, vq[i].used),                        \
		FIELD(struct virtio_state, vq[i].size),                        \
		FIELD(struct virtio_state, vq[i].last_avail),                  \
		FIELD(struct virtio_state, vq[i].used_idx),                    \
		FIELD(struct virtio_state, vq[i].signalled),                   \
		FIELD(struct virtio_state, vq[i].is_ready),                    \
		FIELD(struct virtio_state, vq[i].signalled_valid)

struct field {
	size_t off, len;
};

static const struct field dev_fields[] = {
	FIELD(struct virtio_state, acked),
	FIELD(struct virtio_state, status),
	FIELD(struct virtio_state, isr),
	FIELD(struct virtio_state, cfg_gen),
	FIELD(struct virtio_state, queue_sel),
	FIELD(struct virtio_state, dev_feat_sel),
	FIELD(struct virtio_state, drv_feat_sel),
	FIELD(struct virtio_state, kicked),
	VQ(0),
	VQ(1),
	VQ(2),
};

static const struct field vsock_fields[] = {
	FIELD(struct vsock_state, has_agent),
	FIELD(struct vsock_state, src_port),
	FIELD(struct vsock_state, dst_port),
	FIELD(struct vsock_state, rx_cnt),
	FIELD(struct vsock_state, tx_cnt),
	FIELD(struct vsock_state, fwd_cnt),
	FIELD(struct vsock_state, peer_buf_alloc),
	FIELD(struct vsock_state, peer_fwd_cnt),
	FIELD(struct vsock_state, unsent_len),
	FIELD(struct vsock_state, undelivered_len),
	FIELD(struct vsock_state, n_others),
	FIELD(struct vsock_state, is_credit_due),
	FIELD(struct vsock_state, is_event_due),
	FIELD(struct vsock_state, n_rsts),
};

static void edit(struct in *in, void *state, const struct field *f, size_t n)
{
	uint64_t v = 0;
	uint8_t how;

	f += in_u8(in) % n;
	how = in_u8(in);
	memcpy(&v, (uint8_t *)state + f->off, f->len);
	if (how % 4 == 0)
		v = in_edge(in);
	else if (how % 4 == 1)
		v ^= UINT64_C(1) << in_u8(in) % (8 * f->len);
	else
		v = in_u8(in);
	memcpy((uint8_t *)state + f->off, &v, f->len);
}

static void state_make(struct in *in, struct virtio_state *s)
{
	uint8_t n = in_u8(in);

	if (n % 32 == 31) { /* all of it, padding too */
		for (size_t i = 0; i < sizeof(*s); i++)
			((uint8_t *)s)[i] = in_u8(in);
		return;
	}
	for (n %= EDITS_MAX; n > 0; n--)
		edit(in, s, dev_fields,
		     sizeof(dev_fields) / sizeof(dev_fields[0]));
}

static void agent_load(struct in *in, struct unit *u)
{
	static struct vsock_state s;
	int sv[2];

	s = (struct vsock_state){
		.has_agent = 1,
		.src_port = 9,
		.dst_port = 1024,
		.peer_buf_alloc = 4096,
	};
	/* Some that is on its way, so that the numbers agree. */
	s.undelivered_len = s.rx_cnt = in_u8(in);
	s.unsent_len = in_u8(in);
	for (uint8_t n = in_u8(in) % EDITS_MAX; n > 0; n--)
		edit(in, &s, vsock_fields,
		     sizeof(vsock_fields) / sizeof(vsock_fields[0]));
	if (vsock_load(u->v, &s) < 0 || in_u8(in) % 2)
		return;
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	vsock_attach(u->v, sv[0]);
	send(sv[1], &s, in_u8(in), MSG_DONTWAIT | MSG_NOSIGNAL);
	settle(u);
	close(sv[1]);
}

/* ---- what the guest left in its rings ---- */

static void chains_put(struct in *in, struct virtio_dev *d)
{
	for (uint8_t n = in_u8(in) % CHAINS_MAX; n > 0; n--) {
		struct vq *q = &d->vq[in_u8(in) % d->ops->n_queues];
		uint16_t head = in_u8(in) % 32, idx = 0;
		struct {
			uint64_t addr;
			uint32_t len;
			uint16_t flags, next;
		} e = {.addr = BUFS_AT + in_u8(in) * 256u,
		       .len = in_u8(in) * 16u,
		       .flags = in_u8(in) % 4,
		       .next = (uint16_t)(head + 1)};

		if (!q->is_ready)
			continue;
		mem_write(&ram, q->desc + UINT64_C(16) * head, &e, sizeof(e));
		mem_load16_acquire(&ram, q->avail + 2, &idx);
		if (idx == 0) /* the driver's index goes on from there */
			idx = q->last_avail;
		mem_write(&ram, q->avail + 4 + UINT64_C(2) * (idx % q->size),
			  &head, 2);
		mem_store16_release(&ram, q->avail + 2, (uint16_t)(idx + 1));
	}
	for (uint32_t at = BUFS_AT; in->len > 0; at += 256) {
		uint8_t b[16];

		for (size_t i = 0; i < sizeof(b); i++)
			b[i] = in_u8(in);
		mem_write(&ram, at, b, sizeof(b));
	}
}

/* What the registers would never have let through. */
static void check_sound(const struct virtio_dev *d,
			const struct virtio_state *s)
{
	static struct virtio_state back;

	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		const struct vq *q = &d->vq[i];

		check(!q->is_ready ||
		      (i < d->ops->n_queues && vq_check(q) == 0 &&
		       q->size <= d->ops->queue_max[i] && q->n_out == 0));
	}
	check(!(d->status & VIRTIO_FEATURES_OK) ||
	      (!(d->acked & ~d->features) && d->acked & VIRTIO_F_VERSION_1));
	virtio_dev_save(d, &back);
	for (size_t i = 0; i < sizeof(dev_fields) / sizeof(dev_fields[0]); i++)
		check(memcmp((uint8_t *)&back + dev_fields[i].off,
			     (const uint8_t *)s + dev_fields[i].off,
			     dev_fields[i].len) == 0);
}

static void serve(struct in *in, struct unit *u)
{
	chains_put(in, u->dev);
	for (uint32_t q = 0; q < u->dev->ops->n_queues; q++)
		driver_write(u->dev, 0x50, q);
	settle(u);
	if (u->v && asked)
		vsock_answer(u->v, asked, -1);
	settle(u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct in in = {data, len};
	uint8_t which = in_u8(&in);
	struct unit *u = &units[which & 1][which >> 1 & 1];
	struct virtio_state s;
	int r;

	fuzz_begin();
	fuzz_reach_want(50);
	if (!ram.host)
		check(mem_init(&ram, RAM) == 0);
	if (!u->io)
		unit_up(u, which & 1, which & 2);
	memset(ram.host, 0, RAM);
	asked = 0;
	s = u->live;
	state_make(&in, &s);
	r = virtio_dev_load(u->dev, &s);
	check(r == 0 || r == -EPROTO);
	if (r == 0) {
		fuzz_reach();
		check_sound(u->dev, &s);
		if (u->v)
			agent_load(&in, u);
		serve(&in, u);
	}
	settle(u);
	go_live(u); /* whatever was loaded */
	driver_write(u->dev, 0x70, 0);
	settle(u);
	return 0;
}
