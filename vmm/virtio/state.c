/*
 * What a snapshot keeps of any virtio device.
 *
 * A state file is input like any other: loading makes the checks that a
 * driver's register writes would have met (ring places and sizes, features
 * offered, statuses that can be reached) and refuses the rest with -EPROTO.
 * The VM is paused and the device drained, so nothing is in flight: as many
 * chains were pushed as were taken, and in_flight is empty.
 */
#include "virtio.h"
#include <errno.h>
#include <stddef.h>

#define ST_A	VIRTIO_ACKNOWLEDGE
#define ST_AD	(ST_A | VIRTIO_DRIVER)
#define ST_ADF	(ST_AD | VIRTIO_FEATURES_OK)
#define ST_LIVE (ST_ADF | VIRTIO_DRIVER_OK)

void virtio_dev_save(const struct virtio_dev *d, struct virtio_state *s)
{
	*s = (struct virtio_state){
		.acked = d->acked,
		.status = d->status,
		.isr = d->isr,
		.cfg_gen = d->cfg_gen,
		.queue_sel = d->queue_sel,
		.dev_feat_sel = d->dev_feat_sel,
		.drv_feat_sel = d->drv_feat_sel,
		.kicked = d->kicked,
	};
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		const struct vq *q = &d->vq[i];

		s->vq[i].desc = q->desc;
		s->vq[i].avail = q->avail;
		s->vq[i].used = q->used;
		s->vq[i].size = q->size;
		s->vq[i].last_avail = q->last_avail;
		s->vq[i].used_idx = q->used_idx;
		s->vq[i].signalled = q->signalled;
		s->vq[i].is_ready = q->is_ready;
		s->vq[i].signalled_valid = q->signalled_valid;
	}
}

static bool is_status_possible(uint32_t status)
{
	static const uint32_t reachable[] = {0, ST_A, ST_AD, ST_ADF, ST_LIVE};
	uint32_t base = status & ~(VIRTIO_NEEDS_RESET | VIRTIO_FAILED);

	for (size_t i = 0; i < sizeof(reachable) / sizeof(reachable[0]); i++)
		if (base == reachable[i])
			return true;
	return false;
}

static int queue_load(struct virtio_dev *d, const struct virtio_state *s,
		      unsigned i)
{
	struct vq q = {
		.mem = d->mem,
		.size = s->vq[i].size,
		.is_ready = s->vq[i].is_ready == 1,
		.has_event_idx = s->acked & VIRTIO_F_EVENT_IDX,
		.desc = s->vq[i].desc,
		.avail = s->vq[i].avail,
		.used = s->vq[i].used,
		.last_avail = s->vq[i].last_avail,
		.used_idx = s->vq[i].used_idx,
		.signalled = s->vq[i].signalled,
		.signalled_valid = s->vq[i].signalled_valid == 1,
	};

	if (s->vq[i].is_ready > 1 || s->vq[i].signalled_valid > 1)
		return -EPROTO;
	if (q.size > VIRTIO_QUEUE_SIZE_MAX || q.size > d->ops->queue_max[i])
		return -EPROTO;
	if (q.is_ready) {
		if (i >= d->ops->n_queues || vq_check(&q) < 0)
			return -EPROTO;
		/* A drained queue: as many pushed as taken. */
		if (q.last_avail != q.used_idx)
			return -EPROTO;
	}
	d->vq[i] = q;
	return 0;
}

int virtio_dev_load(struct virtio_dev *d, const struct virtio_state *s)
{
	bool is_past_features = s->status & VIRTIO_FEATURES_OK;

	if (!is_status_possible(s->status) ||
	    s->isr & ~(uint32_t)(VIRTIO_ISR_USED | VIRTIO_ISR_CONFIG) ||
	    s->kicked >> d->ops->n_queues)
		return -EPROTO;
	if (is_past_features &&
	    ((s->acked & ~d->features) || !(s->acked & VIRTIO_F_VERSION_1)))
		return -EPROTO;
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		if (s->vq[i].is_ready && !is_past_features)
			return -EPROTO;
		if (queue_load(d, s, i) < 0)
			return -EPROTO;
	}
	d->acked = s->acked;
	d->status = s->status;
	d->isr = s->isr;
	d->cfg_gen = s->cfg_gen;
	d->queue_sel = s->queue_sel;
	d->dev_feat_sel = s->dev_feat_sel;
	d->drv_feat_sel = s->drv_feat_sel;
	d->kicked = s->kicked;
	if (d->status == ST_LIVE && d->ops->activate(d) < 0)
		return -EPROTO;
	return 0;
}
