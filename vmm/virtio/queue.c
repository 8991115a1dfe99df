/*
 * Split virtqueues (virtio 1.2, section 2.7), the device's half.
 *
 *	desc[size]   16 bytes each: addr le64, len le32, flags le16, next le16
 *	avail        flags, idx, ring[size], used_event
 *	used         flags, idx, ring[size] of {id le32, len le32}, avail_event
 *
 * The guest owns desc and avail, and may change any byte at any time.  Each
 * field is loaded once into a local, checked, and used from there.  What we
 * need to know about our own progress is in struct vq and never read back
 * from the rings.  All rules are enforced in vq_pop: what it returns is safe.
 *
 * Every loop is bounded by q->size, which is frozen at activation.  A head
 * that is still with us (`in_flight`) cannot be taken again, so a chain is
 * pushed exactly once.
 *
 * Indirect descriptors are not offered: they save ring entries, but cost the
 * guest's driver an allocation, a second table and a free for each request,
 * which is what counts where guest kernel code is slow.
 */
#include "virtio.h"
#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define DESC_BYTES	     16
#define DESC_F_NEXT	     1u
#define DESC_F_WRITE	     2u
#define DESC_F_INDIRECT	     4u
#define AVAIL_F_NO_INTERRUPT 1u

#define RING_OFF_IDX	2
#define AVAIL_OFF_RING	4
#define USED_OFF_RING	4
#define USED_ELEM_BYTES 8

struct desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};
static_assert(sizeof(struct desc) == DESC_BYTES, "wire");

static gpa_t used_event_at(const struct vq *q)
{
	return q->avail + AVAIL_OFF_RING + 2ull * q->size;
}

static gpa_t avail_event_at(const struct vq *q)
{
	return q->used + USED_OFF_RING + (uint64_t)USED_ELEM_BYTES * q->size;
}

int vq_check(const struct vq *q)
{
	size_t n = q->size;

	if (n == 0 || n > VIRTIO_QUEUE_SIZE_MAX || (n & (n - 1)))
		return -EINVAL;
	if (q->desc % DESC_BYTES || q->avail % 2 || q->used % 4)
		return -EINVAL;
	if (!mem_span(q->mem, q->desc, n * DESC_BYTES) ||
	    !mem_span(q->mem, q->avail, AVAIL_OFF_RING + 2 * n + 2) ||
	    !mem_span(q->mem, q->used, USED_OFF_RING + USED_ELEM_BYTES * n + 2))
		return -EINVAL;
	return 0;
}

static bool bit_get(const uint64_t *bits, uint16_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

static void bit_set(uint64_t *bits, uint16_t i, bool is)
{
	uint64_t bit = 1ull << (i % 64);

	if (is)
		bits[i / 64] |= bit;
	else
		bits[i / 64] &= ~bit;
}

/* Add a descriptor to the chain; -EPROTO if it may not stand there. */
static int chain_add(const struct vq *q, struct vq_chain *c,
		     const struct desc *d)
{
	bool is_out = d->flags & DESC_F_WRITE;
	uint32_t *sum = is_out ? &c->out_len : &c->in_len;
	struct vq_span *s;
	uint8_t *host;

	if (d->flags & DESC_F_INDIRECT)
		return -EPROTO;
	if (!is_out && c->n_out > 0)
		return -EPROTO; /* readable after writable */
	host = mem_span(q->mem, d->addr, d->len);
	if (!host)
		return -EPROTO;
	if (__builtin_add_overflow(*sum, d->len, sum))
		return -EPROTO;
	if (d->len == 0)
		return 0; /* no bytes: nothing for the device to see */
	s = &c->span[c->n_in + c->n_out];
	s->host = host;
	s->len = d->len;
	if (is_out)
		c->n_out++;
	else
		c->n_in++;
	return 0;
}

static int chain_load(const struct vq *q, struct vq_chain *c)
{
	uint64_t seen[VIRTIO_QUEUE_SIZE_MAX / 64] = {0};
	uint16_t idx = c->head;

	/* A descriptor met again is a loop: so each is read once, and the
	 * walk ends within q->size steps. */
	while (!bit_get(seen, idx)) {
		struct desc d;

		bit_set(seen, idx, true);
		if (mem_read(q->mem, q->desc + (uint64_t)DESC_BYTES * idx, &d,
			     sizeof(d)) < 0)
			return -EPROTO;
		if (chain_add(q, c, &d) < 0)
			return -EPROTO;
		if (!(d.flags & DESC_F_NEXT))
			return 0;
		if (d.next >= q->size)
			return -EPROTO;
		idx = d.next;
	}
	return -EPROTO;
}

int vq_pop(struct vq *q, struct vq_chain *c)
{
	uint16_t idx, n, head;

	if (!q->is_ready)
		return 0;
	/* Acquire: pairs with the driver's barrier before it moves idx. */
	if (mem_load16_acquire(q->mem, q->avail + RING_OFF_IDX, &idx) < 0)
		return -EPROTO;
	n = (uint16_t)(idx - q->last_avail);
	if (n == 0)
		return 0;
	/* The driver cannot have more chains out than the table has rows. */
	if (n > q->size - q->n_out)
		return -EPROTO;
	if (mem_load16_acquire(q->mem,
			       q->avail + AVAIL_OFF_RING +
				       2ull * (q->last_avail % q->size),
			       &head) < 0)
		return -EPROTO;
	if (head >= q->size || bit_get(q->in_flight, head))
		return -EPROTO;

	c->head = head;
	c->n_in = c->n_out = 0;
	c->in_len = c->out_len = 0;
	if (chain_load(q, c) < 0)
		return -EPROTO;

	bit_set(q->in_flight, head, true);
	q->n_out++;
	q->last_avail++;
	return 1;
}

void vq_unpop(struct vq *q, uint16_t head)
{
	assert(bit_get(q->in_flight, head) && q->n_out > 0);
	bit_set(q->in_flight, head, false);
	q->n_out--;
	q->last_avail--;
}

/* Copy `len` bytes at `off` of the spans; is_in: from the guest. */
static size_t spans_copy(const struct vq_span *s, uint16_t n, size_t off,
			 void *dst, const void *src, size_t len)
{
	size_t done = 0;

	for (uint16_t i = 0; i < n && done < len; i++) {
		size_t part;

		if (off >= s[i].len) {
			off -= s[i].len;
			continue;
		}
		part = s[i].len - off;
		if (part > len - done)
			part = len - done;
		if (dst)
			mem_copy_in((uint8_t *)dst + done, s[i].host + off,
				    part);
		else
			mem_copy_out(s[i].host + off,
				     (const uint8_t *)src + done, part);
		done += part;
		off = 0;
	}
	return done;
}

size_t vq_in(const struct vq_chain *c, size_t off, void *dst, size_t len)
{
	return spans_copy(c->span, c->n_in, off, dst, NULL, len);
}

size_t vq_out(const struct vq_chain *c, size_t off, const void *src, size_t len)
{
	return spans_copy(c->span + c->n_in, c->n_out, off, NULL, src, len);
}

static int spans_iov(const struct vq_span *s, uint16_t n, size_t off,
		     size_t len, struct iovec *iov, int max)
{
	int used = 0;

	for (uint16_t i = 0; i < n && len > 0; i++) {
		size_t part;

		if (off >= s[i].len) {
			off -= s[i].len;
			continue;
		}
		if (used == max)
			return -E2BIG;
		part = s[i].len - off;
		if (part > len)
			part = len;
		iov[used].iov_base = s[i].host + off;
		iov[used++].iov_len = part;
		len -= part;
		off = 0;
	}
	return len > 0 ? -EINVAL : used;
}

int vq_in_iov(const struct vq_chain *c, size_t off, size_t len,
	      struct iovec *iov, int max)
{
	return spans_iov(c->span, c->n_in, off, len, iov, max);
}

int vq_out_iov(const struct vq_chain *c, size_t off, size_t len,
	       struct iovec *iov, int max)
{
	return spans_iov(c->span + c->n_in, c->n_out, off, len, iov, max);
}

void vq_push(struct vq *q, uint16_t head, uint32_t written)
{
	uint32_t elem[2] = {head, written};
	int r;

	assert(head < q->size && bit_get(q->in_flight, head) && q->n_out > 0);
	bit_set(q->in_flight, head, false);
	q->n_out--;
	r = mem_write(q->mem,
		      q->used + USED_OFF_RING +
			      (uint64_t)USED_ELEM_BYTES *
				      (q->used_idx % q->size),
		      elem, sizeof(elem));
	q->used_idx++;
	/* Release: the element and the data are seen before the index. */
	if (r == 0)
		r = mem_store16_release(q->mem, q->used + RING_OFF_IDX,
					q->used_idx);
	assert(r == 0); /* vq_check has seen these addresses */
	(void)r;
}

bool vq_needs_irq(struct vq *q)
{
	uint16_t old = q->signalled, now = q->used_idx, word = 0;
	bool had = q->signalled_valid;

	if (!q->is_ready || old == now)
		return false;
	q->signalled = now;
	q->signalled_valid = true;

	/*
	 * Full fence between the store of used.idx and the load of the
	 * driver's wish: pairs with the driver's between its store of
	 * used_event (or flags) and its next look at used.idx.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (q->has_event_idx) {
		if (mem_load16_acquire(q->mem, used_event_at(q), &word) < 0)
			return true;
		/* Was used_event passed by this batch?  Wrapping u16. */
		return !had ||
		       (uint16_t)(now - word - 1) < (uint16_t)(now - old);
	}
	if (mem_load16_acquire(q->mem, q->avail, &word) < 0)
		return true;
	return !(word & AVAIL_F_NO_INTERRUPT);
}

bool vq_has_work(struct vq *q)
{
	uint16_t idx;

	if (!q->is_ready)
		return false;
	if (q->has_event_idx) {
		mem_store16_release(q->mem, avail_event_at(q), q->last_avail);
		/* Pairs with the driver's fence between its store of
		 * avail.idx and its load of avail_event. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	}
	if (mem_load16_acquire(q->mem, q->avail + RING_OFF_IDX, &idx) < 0)
		return false;
	return idx != q->last_avail;
}
