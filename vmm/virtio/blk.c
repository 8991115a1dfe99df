/*
 * virtio-blk: the device around the requests (blk_req.c).
 *
 * Requests are popped while a slot is free, at most BLK_SLOTS at once; the
 * rest stays in the guest's ring until a completion frees one.  When io has no
 * room a started request waits in its slot and nothing more is popped.
 *
 * A reset waits until no operation is in flight: the kernel must not write
 * into guest memory that the guest already uses for something else.  What
 * completes meanwhile is dropped, not pushed.
 */
#include "blk_priv.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define VIRTIO_ID_BLK	      2
#define BLK_QUEUE_SIZE_MAX    128 /* BLK_SEG_MAX + header + status */
#define DISCARD_ALIGN_SECTORS 8

static_assert(BLK_SEG_MAX + 2 <= BLK_QUEUE_SIZE_MAX, "a full request fits");

struct blk_cfg {
	uint64_t capacity;
	uint32_t size_max, seg_max;
	uint8_t geometry[4];
	uint32_t blk_size;
	uint8_t topology[8];
	uint8_t writeback, unused;
	uint16_t num_queues;
	uint32_t max_discard_sectors, max_discard_seg;
	uint32_t discard_sector_alignment;
	uint32_t max_write_zeroes_sectors, max_write_zeroes_seg;
	uint8_t write_zeroes_may_unmap, unused1[3];
};
static_assert(sizeof(struct blk_cfg) == 64, "wire is 60 bytes, 4 of padding");
#define BLK_CFG_BYTES 60

static struct blk *blk_of(struct virtio_dev *d)
{
	return (struct blk *)d;
}

static void blk_cfg_read(struct virtio_dev *d, uint32_t off, void *dst,
			 uint32_t len)
{
	struct blk *b = blk_of(d);
	struct blk_cfg cfg = {
		.capacity = b->bytes / BLK_SECTOR_BYTES,
		.size_max = BLK_SIZE_MAX,
		.seg_max = BLK_SEG_MAX,
		.blk_size = BLK_SECTOR_BYTES,
		.num_queues = 1,
		.max_discard_sectors = BLK_DISCARD_SECTORS_MAX,
		.max_discard_seg = BLK_DISCARD_SEGS_MAX,
		.discard_sector_alignment = DISCARD_ALIGN_SECTORS,
		.max_write_zeroes_sectors = BLK_DISCARD_SECTORS_MAX,
		.max_write_zeroes_seg = BLK_DISCARD_SEGS_MAX,
		.write_zeroes_may_unmap = 1,
	};

	memcpy(dst, (uint8_t *)&cfg + off, len);
}

static int blk_activate(struct virtio_dev *d)
{
	return d->vq[0].is_ready ? 0 : -EINVAL;
}

/* ---- slots ---- */

static void blk_op_done(struct io_op *op, int res);

static struct blk_slot *slot_take(struct blk *b)
{
	struct blk_slot *s = b->free;

	if (s) {
		b->free = s->next;
	} else { /* not used before: an idle disk touches no slot */
		s = &b->slots[b->n_used++];
		s->b = b;
		s->op.done = blk_op_done;
		s->op.slot = b->slot;
	}
	b->n_flying++;
	return s;
}

void blk_slot_free(struct blk *b, struct blk_slot *s)
{
	s->next = b->free;
	b->free = s;
	b->n_flying--;
}

/* A driver that gave up (FAILED) is served no more: its kick and what it left
 * in the ring are nothing to wait for. */
static bool is_given_up(const struct blk *b)
{
	return b->dev.status & VIRTIO_FAILED;
}

static bool is_idle(const struct blk *b)
{
	return b->n_flying == 0 &&
	       (is_given_up(b) || (!b->is_stalled && !(b->dev.kicked & 1)));
}

static void idle_tell(struct blk *b)
{
	if (is_idle(b))
		pthread_cond_broadcast(&b->idle);
}

static void list_drop(struct blk *b, struct blk_slot **list)
{
	while (*list) {
		struct blk_slot *s = *list;

		*list = s->next;
		blk_slot_free(b, s);
	}
}

static void waiting_drop(struct blk *b)
{
	list_drop(b, &b->waiting);
	list_drop(b, &b->sync_waiting);
}

/* ---- the queue ---- */

/* true = all that waited for room in io has been started. */
static bool waiting_retry(struct blk *b)
{
	struct blk_slot *s = b->waiting;

	b->waiting = NULL;
	while (s) {
		struct blk_slot *next = s->next;

		blk_req_retry(b, s); /* may put it back */
		s = next;
	}
	return !b->waiting;
}

/* One chain; false = stop for now. */
static bool chain_serve(struct blk *b, struct vq *q)
{
	int r;

	if (!b->free && b->n_used == BLK_SLOTS) {
		b->is_stalled = true;
		return false;
	}
	r = vq_pop(q, &b->chain);
	if (r == 0)
		return vq_has_work(q);
	if (r < 0) {
		virtio_dev_needs_reset(&b->dev, "bad descriptor chain");
		return false;
	}
	if (b->chain.n_out == 0) {
		virtio_dev_needs_reset(&b->dev, "request without status byte");
		return false;
	}
	blk_req_start(b, slot_take(b), &b->chain);
	return !b->waiting;
}

static void blk_serve(struct virtio_dev *d, uint16_t qi)
{
	struct blk *b = blk_of(d);
	struct vq *q = &d->vq[qi];
	uint16_t n = 0;

	b->is_stalled = false;
	if (waiting_retry(b))
		while (n < q->size && chain_serve(b, q))
			n++;
	/* More in the ring, or waiting for room: come again. */
	if (q->is_ready && (n == q->size || b->waiting))
		d->kicked |= 1;
	virtio_dev_irq_used(d, q);
	idle_tell(b);
}

static void blk_op_done(struct io_op *op, int res)
{
	struct blk_slot *s = (struct blk_slot *)op;
	struct blk *b = s->b;
	struct virtio_dev *d = &b->dev;

	pthread_mutex_lock(&d->lock);
	if (!d->vq[0].is_ready) { /* reset or broken meanwhile */
		if (s->type == BLK_T_FLUSH)
			b->is_syncing = false;
		waiting_drop(b);
		blk_slot_free(b, s);
		b->is_stalled = false;
	} else {
		blk_req_advance(b, s, res);
		if (b->is_stalled)
			blk_serve(d, 0);
		else
			virtio_dev_irq_used(d, &d->vq[0]);
	}
	idle_tell(b);
	pthread_mutex_unlock(&d->lock);
}

static void blk_reset(struct virtio_dev *d)
{
	struct blk *b = blk_of(d);

	waiting_drop(b);
	while (b->n_flying > 0)
		pthread_cond_wait(&b->idle, &d->lock);
	b->is_stalled = false;
	b->bytes_flying = 0;
}

void blk_drain(struct blk *b)
{
	pthread_mutex_lock(&b->dev.lock);
	if (b->dev.kicked)
		io_wake(b->io);
	if (is_given_up(b))
		list_drop(b, &b->waiting);
	while (!is_idle(b))
		pthread_cond_wait(&b->idle, &b->dev.lock);
	pthread_mutex_unlock(&b->dev.lock);
}

void blk_stats(struct blk *b, struct blk_stats *ret)
{
	pthread_mutex_lock(&b->dev.lock);
	*ret = b->stats;
	pthread_mutex_unlock(&b->dev.lock);
}

/* ---- life ---- */

static const struct virtio_dev_ops blk_ops = {
	.name = "blk",
	.id = VIRTIO_ID_BLK,
	.n_queues = 1,
	.queue_max = {BLK_QUEUE_SIZE_MAX},
	.cfg_size = BLK_CFG_BYTES,
	.cfg_read = blk_cfg_read,
	.activate = blk_activate,
	.serve = blk_serve,
	.reset = blk_reset,
};

/* A hole behind the end of the file changes nothing, but shows whether holes
 * can be made at all. */
static bool can_punch(int fd, uint64_t end)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)end, BLK_SECTOR_BYTES) == 0;
}

static uint64_t features_of(const struct blk_config *cfg, uint64_t file_end)
{
	uint64_t f = BLK_F_SIZE_MAX | BLK_F_SEG_MAX | BLK_F_BLK_SIZE;

	if (cfg->is_read_only)
		return f | BLK_F_RO;
	f |= BLK_F_FLUSH;
	if (can_punch(cfg->fd, file_end))
		f |= BLK_F_DISCARD | BLK_F_WRITE_ZEROES;
	return f;
}

static void blk_fill(struct blk *b, struct io *io, const struct blk_config *cfg)
{
	b->io = io;
	b->fd = cfg->fd;
	b->is_read_only = cfg->is_read_only;
	b->is_sync_lazy = cfg->is_sync_lazy;
	b->bytes_max = cfg->bytes_written_max;
	if (cfg->id)
		memcpy(b->id, cfg->id, strnlen(cfg->id, sizeof(b->id)));
}

/* Behind the capacity and behind the file, whichever is longer. */
static uint64_t file_end_of(const struct stat *st, uint64_t bytes)
{
	uint64_t size = st->st_size > 0 ? (uint64_t)st->st_size : 0;

	return size > bytes ? size : bytes;
}

int blk_create(struct blk **ret, struct mem *mem, struct io *io,
	       const struct blk_config *cfg)
{
	uint64_t bytes = cfg->bytes - cfg->bytes % BLK_SECTOR_BYTES;
	struct stat st;
	struct blk *b;
	int slot;

	if (bytes == 0 || bytes > INT64_MAX)
		return -EINVAL;
	if (fstat(cfg->fd, &st) < 0)
		return -errno;
	slot = io_file_add(io, cfg->fd);
	if (slot < 0)
		return slot;
	b = calloc(1, sizeof(*b));
	if (b)
		b->slots = calloc(BLK_SLOTS, sizeof(*b->slots));
	if (!b || !b->slots) {
		free(b);
		io_file_remove(io, slot);
		return -ENOMEM;
	}
	virtio_dev_init(&b->dev, &blk_ops, mem,
			features_of(cfg, file_end_of(&st, bytes)));
	pthread_cond_init(&b->idle, NULL);
	b->slot = slot;
	b->bytes = bytes;
	b->bytes_used = (uint64_t)st.st_blocks * BLK_SECTOR_BYTES;
	blk_fill(b, io, cfg);
	*ret = b;
	return 0;
}

/* After io_run has ended (it waits for all disk operations). */
void blk_destroy(struct blk *b)
{
	if (!b)
		return;
	waiting_drop(b);
	assert(b->n_flying == 0);
	io_device_remove(b->io, &b->dev);
	io_file_remove(b->io, b->slot);
	pthread_cond_destroy(&b->idle);
	virtio_dev_finish(&b->dev);
	free(b->slots);
	free(b);
}

struct virtio_dev *blk_dev(struct blk *b)
{
	return &b->dev;
}
