/*
 * virtio over MMIO, register layout 2 (virtio 1.2, section 4.2).
 *
 * Registers are 32 bits wide and take only aligned 4-byte accesses; anything
 * else reads 0 and writes nothing.  The configuration space after 0x100 is
 * read by bytes and never written (no device of ours has a writable field).
 *
 * What a driver may do depends on the status it has reached: features between
 * DRIVER and FEATURES_OK, queues between FEATURES_OK and DRIVER_OK, kicks
 * after DRIVER_OK.  A queue's registers are frozen by QueueReady = 1, which is
 * refused unless size, alignment and place are good (CVE-2026-5747: checked
 * state that could be rewritten after the check).
 *
 * A reset drops the lock while the device waits for its I/O, so `is_resetting`
 * turns all other accesses away meanwhile.
 */
#include "../../api/guest_abi.h"
#include "virtio.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define MMIO_MAGIC  0x74726976u /* "virt" */
#define MMIO_VENDOR 0x48545548u /* "HUTH" */
#define MMIO_LAYOUT 2u
#define REG_BYTES   4u

enum mmio_reg {
	REG_MAGIC = 0x000,
	REG_LAYOUT = 0x004,
	REG_DEVICE_ID = 0x008,
	REG_VENDOR_ID = 0x00c,
	REG_DEVICE_FEATURES = 0x010,
	REG_DEVICE_FEATURES_SEL = 0x014,
	REG_DRIVER_FEATURES = 0x020,
	REG_DRIVER_FEATURES_SEL = 0x024,
	REG_QUEUE_SEL = 0x030,
	REG_QUEUE_NUM_MAX = 0x034,
	REG_QUEUE_NUM = 0x038,
	REG_QUEUE_READY = 0x044,
	REG_QUEUE_NOTIFY = 0x050,
	REG_ISR = 0x060,
	REG_ISR_ACK = 0x064,
	REG_STATUS = 0x070,
	REG_DESC_LOW = 0x080,
	REG_DESC_HIGH = 0x084,
	REG_DRIVER_LOW = 0x090,
	REG_DRIVER_HIGH = 0x094,
	REG_DEVICE_LOW = 0x0a0,
	REG_DEVICE_HIGH = 0x0a4,
	REG_SHM_LEN_LOW = 0x0b0,
	REG_SHM_LEN_HIGH = 0x0b4,
	REG_SHM_BASE_LOW = 0x0b8,
	REG_SHM_BASE_HIGH = 0x0bc,
	REG_CONFIG_GENERATION = 0x0fc,
	REG_CONFIG = 0x100,
};

#define ST_A	VIRTIO_ACKNOWLEDGE
#define ST_AD	(ST_A | VIRTIO_DRIVER)
#define ST_ADF	(ST_AD | VIRTIO_FEATURES_OK)
#define ST_LIVE (ST_ADF | VIRTIO_DRIVER_OK)

void virtio_dev_init(struct virtio_dev *d, const struct virtio_dev_ops *ops,
		     struct mem *mem, uint64_t offered)
{
	*d = (struct virtio_dev){
		.ops = ops,
		.mem = mem,
		.features = offered | VIRTIO_F_VERSION_1 | VIRTIO_F_EVENT_IDX,
	};
	strncpy(d->name, ops->name, sizeof(d->name) - 1);
	pthread_mutex_init(&d->lock, NULL);
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		d->vq[i].mem = mem;
}

void virtio_dev_finish(struct virtio_dev *d)
{
	pthread_mutex_destroy(&d->lock);
}

static bool is_live(const struct virtio_dev *d)
{
	return d->status == ST_LIVE;
}

static void raise_isr(struct virtio_dev *d, uint32_t bit)
{
	d->isr |= bit;
	if (d->raise)
		d->raise(d->ctx, d->line);
}

void virtio_dev_needs_reset(struct virtio_dev *d, const char *what)
{
	bool was_live = d->status & VIRTIO_DRIVER_OK;

	d->rule_breaks++;
	d->kicked = 0;
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		d->vq[i].is_ready = false;
	if (!(d->status & VIRTIO_NEEDS_RESET)) {
		d->status |= VIRTIO_NEEDS_RESET;
		if (was_live)
			raise_isr(d, VIRTIO_ISR_CONFIG);
	}
	if (d->broken)
		d->broken(d->ctx, d, what);
}

void virtio_dev_irq_used(struct virtio_dev *d, struct vq *q)
{
	if (vq_needs_irq(q))
		raise_isr(d, VIRTIO_ISR_USED);
}

void virtio_dev_raise_used(struct virtio_dev *d)
{
	raise_isr(d, VIRTIO_ISR_USED);
}

bool virtio_dev_serve(struct virtio_dev *d)
{
	bool more;

	pthread_mutex_lock(&d->lock);
	if (!d->is_held && !d->is_resetting) {
		uint32_t kicked = d->kicked;

		d->kicked = 0;
		for (uint16_t i = 0; i < d->ops->n_queues; i++)
			if (kicked >> i & 1 && is_live(d))
				d->ops->serve(d, i);
	}
	more = d->kicked && !d->is_held && !d->is_resetting;
	pthread_mutex_unlock(&d->lock);
	return more;
}

/* ---- reads ---- */

static struct vq *selected(struct virtio_dev *d)
{
	return d->queue_sel < d->ops->n_queues ? &d->vq[d->queue_sel] : NULL;
}

static uint32_t reg_read(struct virtio_dev *d, uint32_t off)
{
	const struct vq *q = selected(d);

	switch (off) {
	case REG_MAGIC:
		return MMIO_MAGIC;
	case REG_LAYOUT:
		return MMIO_LAYOUT;
	case REG_DEVICE_ID:
		return d->ops->id;
	case REG_VENDOR_ID:
		return MMIO_VENDOR;
	case REG_DEVICE_FEATURES:
		if (d->dev_feat_sel > 1)
			return 0;
		return (uint32_t)(d->features >> 32 * d->dev_feat_sel);
	case REG_QUEUE_NUM_MAX:
		return q ? d->ops->queue_max[d->queue_sel] : 0;
	case REG_QUEUE_READY:
		return q ? q->is_ready : 0;
	case REG_ISR:
		return d->isr;
	case REG_STATUS:
		return d->status;
	case REG_SHM_LEN_LOW:
	case REG_SHM_LEN_HIGH:
	case REG_SHM_BASE_LOW:
	case REG_SHM_BASE_HIGH:
		return UINT32_MAX; /* no such region */
	case REG_CONFIG_GENERATION:
		return d->cfg_gen;
	default:
		return 0;
	}
}

static void cfg_read(struct virtio_dev *d, uint32_t off, uint8_t *data,
		     uint32_t len)
{
	uint32_t size = d->ops->cfg_size;

	if (off >= size)
		return;
	if (len > size - off)
		len = size - off;
	d->ops->cfg_read(d, off, data, len);
}

void virtio_mmio_read(struct virtio_dev *d, uint32_t off, void *data,
		      uint32_t len)
{
	uint32_t v;

	memset(data, 0, sizeof(uint64_t));
	if (len > sizeof(uint64_t) || off >= HUTCH_MMIO_SIZE)
		return;
	pthread_mutex_lock(&d->lock);
	if (off >= REG_CONFIG) {
		cfg_read(d, off - REG_CONFIG, data, len);
	} else if (len == REG_BYTES && off % REG_BYTES == 0) {
		v = reg_read(d, off);
		memcpy(data, &v, sizeof(v));
	}
	pthread_mutex_unlock(&d->lock);
}

/* ---- writes ---- */

static void dev_reset(struct virtio_dev *d)
{
	d->kicked = 0;
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		d->vq[i].is_ready = false;
	d->is_resetting = true;
	d->ops->reset(d); /* may drop the lock */
	d->is_resetting = false;

	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		d->vq[i] = (struct vq){.mem = d->mem};
	d->acked = 0;
	d->isr = 0;
	d->kicked = 0;
	d->refused = 0;
	d->dev_feat_sel = d->drv_feat_sel = d->queue_sel = 0;
	d->status = 0;
}

static void dev_start(struct virtio_dev *d)
{
	d->status = ST_LIVE;
	if (d->refused) {
		virtio_dev_needs_reset(d, "queue set-up refused");
		return;
	}
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		d->vq[i].has_event_idx = d->acked & VIRTIO_F_EVENT_IDX;
	if (d->ops->activate(d) < 0)
		virtio_dev_needs_reset(d, "activation refused");
}

static bool are_features_good(const struct virtio_dev *d)
{
	return !(d->acked & ~d->features) && (d->acked & VIRTIO_F_VERSION_1);
}

/* Steps a driver may make; whatever is not listed is ignored. */
static const struct {
	uint32_t from, to;
} steps[] = {
	{0, ST_A},
	{ST_A, ST_AD},
	{ST_AD, ST_ADF},
	{ST_ADF, ST_LIVE},
};

static void status_write(struct virtio_dev *d, uint32_t to)
{
	if (to == 0) {
		dev_reset(d);
		return;
	}
	if (to == (d->status | VIRTIO_FAILED)) {
		d->status = to; /* the driver gave up: no more kicks */
		return;
	}
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (d->status != steps[i].from || to != steps[i].to)
			continue;
		if (to == ST_LIVE)
			dev_start(d);
		else if (to != ST_ADF || are_features_good(d))
			d->status = to;
		return;
	}
}

static void features_write(struct virtio_dev *d, uint32_t v)
{
	unsigned shift = 32 * d->drv_feat_sel;

	if (d->status != ST_AD || d->drv_feat_sel > 1)
		return;
	d->acked &= ~((uint64_t)UINT32_MAX << shift);
	d->acked |= (uint64_t)v << shift;
}

static void addr_set(gpa_t *a, uint32_t v, bool is_high)
{
	if (is_high)
		*a = (*a & UINT32_MAX) | (uint64_t)v << 32;
	else
		*a = (*a & ~(uint64_t)UINT32_MAX) | v;
}

static void queue_ready_write(struct virtio_dev *d, struct vq *q, uint32_t v)
{
	uint32_t bit = 1u << d->queue_sel;

	if (v == 0) {
		q->is_ready = false;
	} else if (v == 1 && !q->is_ready) {
		if (vq_check(q) == 0) {
			q->is_ready = true;
			d->refused &= ~bit;
		} else {
			d->refused |= bit;
		}
	}
}

/* Queue registers: only between FEATURES_OK and DRIVER_OK. */
static void queue_write(struct virtio_dev *d, uint32_t off, uint32_t v)
{
	struct vq *q = selected(d);

	if (!q || d->status != ST_ADF)
		return;
	if (off == REG_QUEUE_READY) {
		queue_ready_write(d, q, v);
		return;
	}
	if (q->is_ready)
		return;
	switch (off) {
	case REG_QUEUE_NUM:
		q->size =
			v <= d->ops->queue_max[d->queue_sel] ? (uint16_t)v : 0;
		break;
	case REG_DESC_LOW:
	case REG_DESC_HIGH:
		addr_set(&q->desc, v, off == REG_DESC_HIGH);
		break;
	case REG_DRIVER_LOW:
	case REG_DRIVER_HIGH:
		addr_set(&q->avail, v, off == REG_DRIVER_HIGH);
		break;
	case REG_DEVICE_LOW:
	case REG_DEVICE_HIGH:
		addr_set(&q->used, v, off == REG_DEVICE_HIGH);
		break;
	default:
		break;
	}
}

static void notify_write(struct virtio_dev *d, uint32_t v)
{
	if (v >= d->ops->n_queues || !is_live(d) || !d->vq[v].is_ready)
		return;
	d->kicked |= 1u << v;
	if (d->wake)
		d->wake(d->ctx);
}

static void reg_write(struct virtio_dev *d, uint32_t off, uint32_t v)
{
	switch (off) {
	case REG_DEVICE_FEATURES_SEL:
		d->dev_feat_sel = v;
		break;
	case REG_DRIVER_FEATURES:
		features_write(d, v);
		break;
	case REG_DRIVER_FEATURES_SEL:
		d->drv_feat_sel = v;
		break;
	case REG_QUEUE_SEL:
		d->queue_sel = v;
		break;
	case REG_QUEUE_NOTIFY:
		notify_write(d, v);
		break;
	case REG_ISR_ACK:
		d->isr &= ~v;
		break;
	case REG_STATUS:
		status_write(d, v);
		break;
	default:
		queue_write(d, off, v);
		break;
	}
}

void virtio_mmio_write(struct virtio_dev *d, uint32_t off, const void *data,
		       uint32_t len)
{
	uint32_t v;

	if (len != REG_BYTES || off % REG_BYTES || off >= REG_CONFIG)
		return;
	memcpy(&v, data, sizeof(v));
	pthread_mutex_lock(&d->lock);
	if (!d->is_resetting)
		reg_write(d, off, v);
	pthread_mutex_unlock(&d->lock);
}
