/*
 * virtio-vsock: the three queues and the device's life.
 *
 *	RX     packets to the guest: resets, control, then data, one packet a
 *	       connection in turn
 *	TX     packets of the guest (vsock_packet.c)
 *	EVENT  transport reset after a restore without an agent
 *
 * One function, vsock_pump(), does all there is to do, whatever woke it: a
 * kick, a socket, an answer of the owner.  Each of its loops is bounded by a
 * queue's size.  Every packet to the guest carries our credit numbers, so a
 * separate CREDIT_UPDATE is sent only after half a buffer.
 *
 * Small writes of the host do not become small packets: a packet is filled
 * with all that the socket holds, up to the guest's buffer and its credit.
 */
#include "vsock_priv.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VIRTIO_ID_VSOCK	      19
#define VSOCK_CFG_BYTES	      8
#define EVENT_TRANSPORT_RESET 0u
#define EVENT_BYTES	      4

/* Ring sizes: Linux fills all of RX with 4 KiB buffers at boot, which took it
 * 0.65 s for 64 of them on a busy soft KVM host and 5.3 s for 256. */
#define RX_ENTRIES    64
#define TX_ENTRIES    64
#define EVENT_ENTRIES 8

/* Sent packets taken without telling; a packet has at least two descriptors
 * in Linux. */
#define TX_HELD_MAX(q) ((q)->size / 8)

static struct vsock *vsock_of(struct virtio_dev *d)
{
	return (struct vsock *)d;
}

/* ---- RX ---- */

static void hdr_put(struct vsock *v, const struct vq_chain *chain,
		    struct vsock_hdr h)
{
	h.dst_cid = v->guest_cid;
	h.type = VSOCK_TYPE_STREAM;
	vq_out(chain, 0, &h, sizeof(h));
}

static void conn_hdr_put(struct conn *c, const struct vq_chain *chain,
			 enum vsock_op op, uint32_t flags, uint32_t len)
{
	c->fwd_told = c->fwd_cnt;
	c->due &= ~(uint32_t)DUE_CREDIT;
	hdr_put(c->v, chain,
		(struct vsock_hdr){
			.src_cid = VSOCK_CID_HOST,
			.src_port = c->dst_port,
			.dst_port = c->src_port,
			.len = len,
			.op = (uint16_t)op,
			.flags = flags,
			.buf_alloc = VSOCK_BUF_BYTES,
			.fwd_cnt = c->fwd_cnt,
		});
}

static void rst_put(struct vsock *v, const struct vq_chain *chain)
{
	struct vsock_rst r = v->rst[v->rst_at];

	v->rst_at = (v->rst_at + 1) % VSOCK_RSTS_MAX;
	v->n_rsts--;
	hdr_put(v, chain,
		(struct vsock_hdr){
			.src_cid = r.host_cid,
			.src_port = r.of.dst_port,
			.dst_port = r.of.src_port,
			.op = VSOCK_OP_RST,
		});
}

static void due_put(struct conn *c, const struct vq_chain *chain)
{
	if (c->due & DUE_RESPONSE) {
		c->due &= ~(uint32_t)DUE_RESPONSE;
		conn_hdr_put(c, chain, VSOCK_OP_RESPONSE, 0, 0);
	} else if (c->due & DUE_SHUTDOWN) {
		c->due &= ~(uint32_t)DUE_SHUTDOWN;
		conn_hdr_put(c, chain, VSOCK_OP_SHUTDOWN, c->shut_want, 0);
	} else {
		conn_hdr_put(c, chain, VSOCK_OP_CREDIT_UPDATE, 0, 0);
	}
}

static bool has_packets(const struct vsock *v)
{
	if (v->n_rsts > 0)
		return true;
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++)
		if (v->conn[i] &&
		    (v->conn[i]->due || conn_can_fill(v->conn[i])))
			return true;
	return false;
}

/* Put one packet into the buffer: its bytes; 0 = the buffer is too small for
 * what waits; -ENODATA = nothing waits after all. */
static int packet_put(struct vsock *v, const struct vq_chain *chain)
{
	bool is_too_small = chain->out_len < VSOCK_HDR_BYTES;

	if (!is_too_small && v->n_rsts > 0) {
		rst_put(v, chain);
		return VSOCK_HDR_BYTES;
	}
	for (unsigned n = 0; n < VSOCK_CONNS_MAX && !is_too_small; n++) {
		unsigned i = (v->turn + n) % VSOCK_CONNS_MAX;
		struct conn *c = v->conn[i];
		uint32_t len;

		if (c && c->due) {
			due_put(c, chain);
			v->turn = i + 1;
			return VSOCK_HDR_BYTES;
		}
		if (!c || !conn_can_fill(c))
			continue;
		if (chain->out_len == VSOCK_HDR_BYTES) {
			is_too_small = true;
			break;
		}
		len = conn_fill(c, chain);
		if (len > 0) {
			conn_hdr_put(c, chain, VSOCK_OP_RW, 0, len);
			v->turn = i + 1;
			return (int)(VSOCK_HDR_BYTES + len);
		}
		/* Nothing came, or the socket ended: then tell that. */
		if (v->n_rsts > 0) {
			rst_put(v, chain);
			return VSOCK_HDR_BYTES;
		}
		if (c->due) {
			due_put(c, chain);
			return VSOCK_HDR_BYTES;
		}
	}
	return is_too_small ? 0 : -ENODATA;
}

static void rx_pump(struct vsock *v)
{
	struct vq *q = &v->dev.vq[VSOCK_RX];
	uint16_t n = 0;

	v->is_rx_dry = false;
	while (n < q->size && has_packets(v)) {
		int r = vq_pop(q, &v->chain);

		if (r == 0 && !vq_has_work(q)) {
			v->is_rx_dry = true;
			return;
		}
		n++;
		if (r == 0)
			continue;
		if (r < 0 || v->chain.n_in > 0) {
			virtio_dev_needs_reset(&v->dev, "bad receive buffer");
			return;
		}
		r = packet_put(v, &v->chain);
		if (r >= 0)
			vq_push(q, v->chain.head, (uint32_t)r);
		else
			vq_unpop(q, v->chain.head);
	}
	if (n == q->size && has_packets(v))
		v->dev.kicked |= 1u << VSOCK_RX;
}

/* ---- TX ---- */

static void tx_pump(struct vsock *v)
{
	struct vq *q = &v->dev.vq[VSOCK_TX];
	uint16_t n = 0;

	v->is_tx_stalled = false;
	while (n < q->size) {
		int r;

		if (v->n_rsts >= VSOCK_RSTS_TX_MAX) {
			v->is_tx_stalled = true;
			return;
		}
		r = vq_pop(q, &v->chain);
		if (r == 0 && !vq_has_work(q))
			return;
		n++;
		if (r == 0)
			continue;
		if (r < 0 || v->chain.n_out > 0) {
			virtio_dev_needs_reset(&v->dev, "bad sent packet");
			return;
		}
		vsock_packet_take(v, &v->chain);
		vq_push(q, v->chain.head, 0);
	}
	v->dev.kicked |= 1u << VSOCK_TX; /* maybe more: come again */
}

/* ---- EVENT ---- */

static void event_pump(struct vsock *v)
{
	struct vq *q = &v->dev.vq[VSOCK_EVENT];
	uint32_t event = EVENT_TRANSPORT_RESET;

	for (uint16_t n = 0; n < q->size && v->is_event_due; n++) {
		int r = vq_pop(q, &v->chain);

		if (r == 0 && !vq_has_work(q))
			return;
		if (r == 0)
			continue;
		if (r < 0 || v->chain.n_in > 0) {
			virtio_dev_needs_reset(&v->dev, "bad event buffer");
			return;
		}
		if (v->chain.out_len < EVENT_BYTES) {
			vq_push(q, v->chain.head, 0);
			continue;
		}
		vq_out(&v->chain, 0, &event, EVENT_BYTES);
		vq_push(q, v->chain.head, EVENT_BYTES);
		v->is_event_due = false;
	}
}

/* ---- all ---- */

/*
 * One interrupt for all queues.  That a sent packet was taken is news which
 * the driver needs only to free it: it rides along with the next interrupt for
 * another queue, or comes when TX_HELD_MAX of them wait (long before the ring
 * is full).  On soft KVM an interrupt costs thousands of interpreted
 * instructions.
 */
static void irq_pump(struct vsock *v)
{
	struct vq *tx = &v->dev.vq[VSOCK_TX];
	uint16_t n_held = (uint16_t)(tx->used_idx - tx->signalled);
	bool is_due = vq_needs_irq(&v->dev.vq[VSOCK_RX]);

	is_due |= vq_needs_irq(&v->dev.vq[VSOCK_EVENT]);
	if (is_due || n_held >= TX_HELD_MAX(tx))
		is_due |= vq_needs_irq(tx);
	if (is_due)
		virtio_dev_raise_used(&v->dev);
}

static void sockets_pump(struct vsock *v)
{
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++) {
		if (v->conn[i] && v->conn[i]->is_answered)
			conn_answered(v->conn[i]);
		if (v->conn[i] && v->conn[i]->buf_len > 0)
			conn_flush(v->conn[i]);
	}
}

static bool is_serving(const struct vsock *v)
{
	return v->dev.vq[VSOCK_RX].is_ready && !v->dev.is_held &&
	       !v->dev.is_resetting;
}

void vsock_pump(struct vsock *v)
{
	struct virtio_dev *d = &v->dev;

	if (!is_serving(v)) {
		v->is_missed = true;
		return;
	}
	sockets_pump(v);
	tx_pump(v);
	rx_pump(v);
	if (v->is_tx_stalled && v->n_rsts < VSOCK_RSTS_TX_MAX)
		d->kicked |= 1u << VSOCK_TX;
	event_pump(v);
	if (d->status & VIRTIO_NEEDS_RESET) {
		conns_kill_all(v);
		return;
	}
	irq_pump(v);
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++)
		if (v->conn[i])
			conn_arm(v->conn[i]);
}

static void vsock_serve(struct virtio_dev *d, uint16_t q)
{
	(void)q;
	vsock_pump(vsock_of(d));
}

static void vsock_cfg_read(struct virtio_dev *d, uint32_t off, void *dst,
			   uint32_t len)
{
	uint64_t cid = vsock_of(d)->guest_cid;

	memcpy(dst, (uint8_t *)&cid + off, len);
}

static int vsock_activate(struct virtio_dev *d)
{
	return d->vq[VSOCK_RX].is_ready && d->vq[VSOCK_TX].is_ready ? 0
								    : -EINVAL;
}

static void all_closed(void *arg)
{
	struct vsock *v = arg;

	pthread_mutex_lock(&v->dev.lock);
	conns_kill_all(v);
	v->is_event_due = false;
	pthread_mutex_unlock(&v->dev.lock);
}

/* Sockets belong to the I/O thread.  No poll of ours touches guest memory, so
 * there is no operation to wait for. */
static void vsock_reset(struct virtio_dev *d)
{
	struct vsock *v = vsock_of(d);

	pthread_mutex_unlock(&d->lock);
	io_call(v->io, all_closed, v);
	pthread_mutex_lock(&d->lock);
}

static const struct virtio_dev_ops vsock_dev_ops = {
	.name = "vsock",
	.id = VIRTIO_ID_VSOCK,
	.n_queues = VSOCK_QUEUES,
	.queue_max = {RX_ENTRIES, TX_ENTRIES, EVENT_ENTRIES},
	.cfg_size = VSOCK_CFG_BYTES,
	.cfg_read = vsock_cfg_read,
	.activate = vsock_activate,
	.serve = vsock_serve,
	.reset = vsock_reset,
};

int vsock_create(struct vsock **ret, struct mem *mem, struct io *io,
		 uint64_t guest_cid, const struct vsock_ops *ops, void *ctx)
{
	struct vsock *v;

	if (guest_cid <= VSOCK_CID_HOST || guest_cid >= UINT32_MAX)
		return -EINVAL;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	virtio_dev_init(&v->dev, &vsock_dev_ops, mem, 0);
	v->io = io;
	v->guest_cid = guest_cid;
	v->ops = ops;
	v->ctx = ctx;
	v->is_missed = true;
	*ret = v;
	return 0;
}

/* After io_run has ended. */
void vsock_destroy(struct vsock *v)
{
	if (!v)
		return;
	pthread_mutex_lock(&v->dev.lock);
	conns_kill_all(v);
	pthread_mutex_unlock(&v->dev.lock);
	io_device_remove(v->io, &v->dev);
	while (v->n_dead > 0)
		io_step(v->io); /* the cancelled polls end */
	virtio_dev_finish(&v->dev);
	free(v);
}

struct virtio_dev *vsock_dev(struct vsock *v)
{
	return &v->dev;
}

static void kick_rx(struct vsock *v)
{
	v->dev.kicked |= 1u << VSOCK_RX;
}

int vsock_answer(struct vsock *v, uint32_t conn, int fd)
{
	int r = -ENOENT;

	pthread_mutex_lock(&v->dev.lock);
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++) {
		struct conn *c = v->conn[i];

		if (!c || c->id != conn || c->state != CONN_ASKED ||
		    c->is_answered)
			continue;
		c->is_answered = true;
		c->answer_fd = fd;
		kick_rx(v);
		r = 0;
	}
	pthread_mutex_unlock(&v->dev.lock);
	if (r == 0)
		io_wake(v->io);
	else if (fd >= 0)
		close(fd);
	return r;
}

void vsock_hold(struct vsock *v, bool is_held)
{
	bool is_due;

	pthread_mutex_lock(&v->dev.lock);
	v->dev.is_held = is_held;
	/* Often nothing came meanwhile: the I/O thread may sleep on. */
	is_due = !is_held && (v->is_missed || v->dev.kicked);
	if (is_due) {
		v->is_missed = false;
		kick_rx(v);
	}
	pthread_mutex_unlock(&v->dev.lock);
	if (is_due)
		io_wake(v->io);
}

void vsock_stats(struct vsock *v, struct vsock_stats *ret)
{
	pthread_mutex_lock(&v->dev.lock);
	*ret = v->stats;
	ret->n_conns = v->n_conns;
	pthread_mutex_unlock(&v->dev.lock);
}
