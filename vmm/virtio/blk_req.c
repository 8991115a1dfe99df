/*
 * One virtio-blk request: header, data, status byte.
 *
 *	readable   type le32, reserved le32, sector le64, then data of OUT
 *	writable   data of IN, then one status byte: the very last
 *
 * The header is copied once and everything is checked before any I/O starts.
 * A request that has a place for a status byte always gets one; one that has
 * none breaks the rules (NEEDS_RESET).  Anything of the guest's that is wrong
 * but answerable is IOERR or UNSUPP with used.len 1.
 *
 * Short transfers are continued, interrupted ones repeated; a read that meets
 * the end of the file is an error, never zeroes.
 */
#include "blk_priv.h"
#include <assert.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRIES_MAX 16
#define WZ_F_UNMAP  1u

struct blk_hdr {
	uint32_t type, reserved;
	uint64_t sector;
};
static_assert(sizeof(struct blk_hdr) == 16, "wire");

struct blk_seg {
	uint64_t sector;
	uint32_t n_sectors, flags;
};
static_assert(sizeof(struct blk_seg) == 16, "wire");

#define HDR_BYTES sizeof(struct blk_hdr)

static void finish(struct blk *b, struct blk_slot *s, enum blk_status status,
		   uint32_t written)
{
	uint8_t byte = (uint8_t)status;

	if (status != BLK_S_OK)
		b->stats.errors++;
	mem_copy_out(s->status, &byte, 1);
	vq_push(&b->dev.vq[0], s->head, written + 1);
	blk_slot_free(b, s);
}

/* Start the operation that the slot stands at; on -EAGAIN it waits. */
static void op_go(struct blk *b, struct blk_slot *s)
{
	const struct blk_range *g = &s->range[s->range_at];
	int r = -EINVAL;

	switch (s->type) {
	case BLK_T_IN:
		r = io_readv(b->io, &s->op, s->iov + s->iov_at,
			     s->iov_n - s->iov_at, s->off);
		break;
	case BLK_T_OUT:
		r = io_writev(b->io, &s->op, s->iov + s->iov_at,
			      s->iov_n - s->iov_at, s->off);
		break;
	case BLK_T_FLUSH:
		if (b->is_syncing) {
			s->next = b->sync_waiting;
			b->sync_waiting = s;
			return;
		}
		r = io_fsync(b->io, &s->op);
		b->is_syncing = r == 0;
		break;
	case BLK_T_DISCARD:
	case BLK_T_WRITE_ZEROES:
		r = io_punch(b->io, &s->op, g->off, g->len);
		break;
	case BLK_T_GET_ID:
		break;
	}
	if (r == -EAGAIN) {
		s->next = b->waiting;
		b->waiting = s;
		b->dev.kicked |= 1; /* served again when there is room */
	} else if (r < 0) {
		blk_req_advance(b, s, r);
	}
}

void blk_req_retry(struct blk *b, struct blk_slot *s)
{
	op_go(b, s);
}

/* [sector, sector + len) inside the disk? */
static bool range_get(const struct blk *b, uint64_t sector, uint64_t len,
		      struct blk_range *ret)
{
	uint64_t off, end;

	if (__builtin_mul_overflow(sector, BLK_SECTOR_BYTES, &off) ||
	    __builtin_add_overflow(off, len, &end) || end > b->bytes)
		return false;
	*ret = (struct blk_range){off, len};
	return true;
}

bool blk_cap_refuses(struct blk *b, uint64_t off, uint32_t len)
{
	struct stat st;
	off_t hole;

	if (b->bytes_max == 0 ||
	    b->bytes_used + b->bytes_since + len <= b->bytes_max)
		return false;
	/* Near the cap: look at what is really allocated. */
	if (fstat(b->fd, &st) == 0) {
		b->bytes_used = (uint64_t)st.st_blocks * BLK_SECTOR_BYTES;
		b->bytes_since = b->bytes_flying;
		if (b->bytes_used + b->bytes_since + len <= b->bytes_max)
			return false;
	}
	/* Overwriting what is there takes no space. */
	hole = lseek(b->fd, (off_t)off, SEEK_HOLE);
	if (hole >= 0 && (uint64_t)hole >= off + len)
		return false;
	b->stats.cap_refused++;
	return true;
}

/* ---- the requests: each returns the status to end with, or -1 = started */

static int rw_start(struct blk *b, struct blk_slot *s, const struct vq_chain *c,
		    const struct blk_hdr *h)
{
	bool is_out = s->type == BLK_T_OUT;
	uint32_t len = is_out ? c->in_len - HDR_BYTES : c->out_len - 1;
	struct blk_range g;
	int n;

	if (is_out ? c->out_len != 1 : c->in_len != HDR_BYTES)
		return BLK_S_IOERR;
	if (is_out && b->is_read_only)
		return BLK_S_IOERR;
	if (len == 0 || len % BLK_SECTOR_BYTES || len > BLK_REQ_BYTES_MAX ||
	    !range_get(b, h->sector, len, &g))
		return BLK_S_IOERR;
	n = is_out ? vq_in_iov(c, HDR_BYTES, len, s->iov, BLK_SEG_MAX)
		   : vq_out_iov(c, 0, len, s->iov, BLK_SEG_MAX);
	if (n < 0)
		return BLK_S_IOERR;
	for (int i = 0; i < n; i++)
		if (s->iov[i].iov_len > BLK_SIZE_MAX)
			return BLK_S_IOERR;
	if (is_out && blk_cap_refuses(b, g.off, len))
		return BLK_S_IOERR;

	s->iov_at = 0;
	s->iov_n = (uint16_t)n;
	s->off = g.off;
	s->len = s->left = len;
	if (is_out) {
		b->bytes_since += len;
		b->bytes_flying += len;
	}
	return -1;
}

static int flush_start(struct blk *b, const struct vq_chain *c)
{
	if (c->in_len != HDR_BYTES || c->out_len != 1)
		return BLK_S_IOERR;
	b->stats.flushes++;
	if (b->has_sync_failed) {
		b->stats.sync_failed++;
		return BLK_S_IOERR;
	}
	return b->is_sync_lazy || b->is_read_only ? BLK_S_OK : -1;
}

static int ranges_start(struct blk *b, struct blk_slot *s,
			const struct vq_chain *c)
{
	bool is_discard = s->type == BLK_T_DISCARD;
	uint64_t bit = is_discard ? BLK_F_DISCARD : BLK_F_WRITE_ZEROES;
	uint32_t known = is_discard ? 0 : WZ_F_UNMAP;
	uint32_t len = c->in_len - HDR_BYTES;
	struct blk_seg seg[BLK_DISCARD_SEGS_MAX];
	size_t n = len / sizeof(seg[0]);

	if (!(b->dev.acked & bit))
		return BLK_S_UNSUPP;
	if (c->out_len != 1 || len % sizeof(seg[0]) || n == 0 ||
	    n > BLK_DISCARD_SEGS_MAX)
		return BLK_S_IOERR;
	if (vq_in(c, HDR_BYTES, seg, len) != len)
		return BLK_S_IOERR;
	for (size_t i = 0; i < n; i++) {
		if (seg[i].flags & ~known)
			return BLK_S_UNSUPP;
		if (seg[i].n_sectors == 0 ||
		    seg[i].n_sectors > BLK_DISCARD_SECTORS_MAX ||
		    !range_get(b, seg[i].sector,
			       (uint64_t)seg[i].n_sectors * BLK_SECTOR_BYTES,
			       &s->range[i]))
			return BLK_S_IOERR;
	}
	b->stats.discards++;
	s->range_at = 0;
	s->range_n = (uint16_t)n;
	return -1;
}

static void id_answer(struct blk *b, struct blk_slot *s,
		      const struct vq_chain *c)
{
	uint32_t len = c->out_len - 1;

	if (c->in_len != HDR_BYTES) {
		finish(b, s, BLK_S_IOERR, 0);
		return;
	}
	if (len > BLK_ID_BYTES)
		len = BLK_ID_BYTES;
	vq_out(c, 0, b->id, len);
	finish(b, s, BLK_S_OK, len);
}

void blk_req_start(struct blk *b, struct blk_slot *s, const struct vq_chain *c)
{
	const struct vq_span *last = &c->span[c->n_in + c->n_out - 1];
	struct blk_hdr h;
	int status;

	s->head = c->head;
	s->status = last->host + last->len - 1;
	s->n_retries = 0;
	s->left = s->len = 0;
	s->iov_at = s->range_at = 0;
	if (vq_in(c, 0, &h, sizeof(h)) != sizeof(h)) {
		finish(b, s, BLK_S_IOERR, 0);
		return;
	}
	switch (h.type) {
	case BLK_T_IN:
	case BLK_T_OUT:
		s->type = h.type;
		status = rw_start(b, s, c, &h);
		break;
	case BLK_T_FLUSH:
		s->type = BLK_T_FLUSH;
		status = flush_start(b, c);
		break;
	case BLK_T_DISCARD:
	case BLK_T_WRITE_ZEROES:
		s->type = h.type;
		status = ranges_start(b, s, c);
		break;
	case BLK_T_GET_ID:
		s->type = BLK_T_GET_ID;
		id_answer(b, s, c);
		return;
	default:
		status = BLK_S_UNSUPP;
		break;
	}
	if (status >= 0)
		finish(b, s, (enum blk_status)status, 0);
	else
		op_go(b, s);
}

/* ---- completions ---- */

static void iov_advance(struct blk_slot *s, size_t n)
{
	s->left -= (uint32_t)n;
	s->off += n;
	while (n > 0) {
		struct iovec *v = &s->iov[s->iov_at];
		size_t part = v->iov_len < n ? v->iov_len : n;

		v->iov_base = (uint8_t *)v->iov_base + part;
		v->iov_len -= part;
		n -= part;
		if (v->iov_len == 0)
			s->iov_at++;
	}
}

static void rw_end(struct blk *b, struct blk_slot *s, bool is_good)
{
	bool is_out = s->type == BLK_T_OUT;

	if (is_out)
		b->bytes_flying -= s->len;
	if (!is_good) {
		finish(b, s, BLK_S_IOERR, 0);
		return;
	}
	if (is_out) {
		b->stats.writes++;
		b->stats.write_bytes += s->len;
	} else {
		b->stats.reads++;
		b->stats.read_bytes += s->len;
	}
	finish(b, s, BLK_S_OK, is_out ? 0 : s->len);
}

static void rw_advance(struct blk *b, struct blk_slot *s, int res)
{
	/* 0 is the end of the file, or a write that cannot go on. */
	if (res <= 0 || (uint32_t)res > s->left) {
		rw_end(b, s, false);
		return;
	}
	iov_advance(s, (size_t)res);
	if (s->left == 0)
		rw_end(b, s, true);
	else
		op_go(b, s);
}

static void flush_finish(struct blk *b, struct blk_slot *s)
{
	if (b->has_sync_failed)
		b->stats.sync_failed++;
	finish(b, s, b->has_sync_failed ? BLK_S_IOERR : BLK_S_OK, 0);
}

/*
 * After a failed sync the kernel may have dropped the dirty pages: a later
 * success would be a lie.  It also reports one failed write-back to one sync
 * only, and one that ran beside it would succeed: so they run one by one.
 */
static void flush_end(struct blk *b, struct blk_slot *s, int res)
{
	struct blk_slot *next = b->sync_waiting;

	b->is_syncing = false;
	b->sync_waiting = NULL;
	if (res < 0)
		b->has_sync_failed = true;
	flush_finish(b, s);
	while ((s = next)) {
		next = s->next;
		if (b->has_sync_failed)
			flush_finish(b, s);
		else
			op_go(b, s); /* all but the first wait again */
	}
}

void blk_req_advance(struct blk *b, struct blk_slot *s, int res)
{
	if ((res == -EINTR || res == -EAGAIN) && s->type != BLK_T_FLUSH &&
	    s->n_retries++ < RETRIES_MAX) {
		op_go(b, s);
		return;
	}
	switch (s->type) {
	case BLK_T_IN:
	case BLK_T_OUT:
		rw_advance(b, s, res);
		break;
	case BLK_T_FLUSH:
		flush_end(b, s, res);
		break;
	case BLK_T_DISCARD:
	case BLK_T_WRITE_ZEROES:
		if (res < 0)
			finish(b, s, BLK_S_IOERR, 0);
		else if (++s->range_at == s->range_n)
			finish(b, s, BLK_S_OK, 0);
		else
			op_go(b, s);
		break;
	case BLK_T_GET_ID:
		break; /* never in flight */
	}
}
