/* Head and tail of an output stream; see output.h. */
#include "output.h"

void output_finish(struct output *o)
{
	bytes_finish(&o->head);
	bytes_finish(&o->tail);
	o->tail_at = o->total = 0;
}

static uint64_t end_of(const struct output *o)
{
	return o->tail.len ? o->tail_at + o->tail.len : o->head.len;
}

static int tail_add(struct output *o, uint64_t offset, const uint8_t *data,
		    size_t len)
{
	if (len > OUTPUT_TAIL_BYTES) {
		offset += len - OUTPUT_TAIL_BYTES;
		data += len - OUTPUT_TAIL_BYTES;
		len = OUTPUT_TAIL_BYTES;
	}
	if (!o->tail.len || offset != o->tail_at + o->tail.len) {
		o->tail.len = 0;
		o->tail_at = offset;
	}
	if (o->tail.len + len > 2 * OUTPUT_TAIL_BYTES) {
		size_t drop = o->tail.len + len - OUTPUT_TAIL_BYTES;

		bytes_consume(&o->tail, drop);
		o->tail_at += drop;
	}
	return bytes_append(&o->tail, data, len);
}

int output_add(struct output *o, uint64_t offset, uint64_t total,
	       const uint8_t *data, size_t len)
{
	uint64_t end, known = end_of(o);
	size_t n;
	int rc;

	if (__builtin_add_overflow(offset, (uint64_t)len, &end))
		return 0; /* no stream is that long: a lie, nothing to keep */
	if (total > o->total)
		o->total = total;
	if (end > o->total)
		o->total = end;
	if (end <= known)
		return 0;
	if (offset < known) {
		data += known - offset;
		len -= (size_t)(known - offset);
		offset = known;
	}
	if (offset == o->head.len && !o->tail.len &&
	    o->head.len < OUTPUT_HEAD_BYTES) {
		n = OUTPUT_HEAD_BYTES - o->head.len;
		if (n > len)
			n = len;
		rc = bytes_append(&o->head, data, n);
		if (rc || n == len)
			return rc;
		offset += n;
		data += n;
		len -= n;
	}
	return tail_add(o, offset, data, len);
}

struct output_rec output_view(const struct output *o)
{
	struct output_rec r = {
		.total = o->total,
		.head = o->head,
		.tail = o->tail,
		.tail_at = o->tail_at,
	};

	if (r.tail.len > OUTPUT_TAIL_BYTES) {
		size_t drop = r.tail.len - OUTPUT_TAIL_BYTES;

		r.tail.data += drop;
		r.tail.len -= drop;
		r.tail_at += drop;
	}
	if (!r.tail.len)
		r.tail_at = r.head.len;
	return r;
}

bool output_is_whole(const struct output *o)
{
	return !o->tail.len && o->total == o->head.len;
}

struct log_slice log_slice_of(const struct output_rec *o, bool is_over,
			      uint64_t offset, size_t limit)
{
	const uint64_t head_end = o->head.len;
	const uint64_t tail_at = o->tail.len ? o->tail_at : head_end;
	const uint64_t end = tail_at + o->tail.len;
	struct log_slice s = {
		.total = o->total,
		.is_truncated = tail_at > head_end || end < o->total,
	};
	const struct bytes *from = &o->tail;
	uint64_t begin = tail_at;

	if (offset < head_end) {
		from = &o->head;
		begin = 0;
	} else if (offset < tail_at) {
		offset = tail_at; /* what was in between is not kept */
	}
	if (offset > end)
		offset = end;
	s.offset = offset;
	s.len = (size_t)(begin + from->len - offset);
	if (s.len > limit)
		s.len = limit;
	s.data = from->data ? from->data + (offset - begin) : NULL;
	s.next_offset = offset + s.len;
	/* After the head, the next bytes that are there. */
	if (s.next_offset == head_end && o->tail.len)
		s.next_offset = tail_at;
	s.is_eof = is_over && s.next_offset >= end;
	return s;
}
