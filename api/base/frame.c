/* Frames of the guest protocol; see frame.h. */
#include "frame.h"
#include <errno.h>

void frame_reader_init(struct frame_reader *r, uint32_t payload_max)
{
	memset(r, 0, sizeof(*r));
	r->payload_max = payload_max;
}

void frame_reader_finish(struct frame_reader *r)
{
	bytes_finish(&r->buf);
}

static void drop_taken(struct frame_reader *r)
{
	bytes_consume(&r->buf, r->taken);
	r->taken = 0;
}

int frame_feed(struct frame_reader *r, const void *data, size_t len)
{
	if (r->is_broken)
		return -EPROTO;
	drop_taken(r);
	return bytes_append(&r->buf, data, len);
}

int frame_next(struct frame_reader *r, struct frame *ret_frame)
{
	const uint8_t *p = r->buf.data + r->taken;
	size_t have = r->buf.len - r->taken;
	struct gp_head h;

	if (r->is_broken)
		return -EPROTO;
	if (have < sizeof(h))
		return 0;
	memcpy(&h, p, sizeof(h));
	if (h.len > r->payload_max || h.reserved) {
		r->is_broken = true;
		return -EPROTO;
	}
	if (have - sizeof(h) < h.len)
		return 0;
	ret_frame->head = h;
	ret_frame->payload = p + sizeof(h);
	r->taken += sizeof(h) + h.len;
	return 1;
}

int frame_append(struct bytes *out, uint16_t type, uint64_t cmd,
		 const void *payload, size_t len)
{
	struct gp_head h = {.len = (uint32_t)len, .type = type, .cmd = cmd};
	int rc;

	if (len > GP_DOWN_BYTES_MAX)
		return -EMSGSIZE;
	rc = bytes_reserve(out, sizeof(h) + len);
	if (rc)
		return rc;
	bytes_append(out, &h, sizeof(h));
	return bytes_append(out, payload, len);
}
