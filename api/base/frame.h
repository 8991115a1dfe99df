/*
 * Frames of the guest protocol on a byte stream (api/guest_proto.h).
 *
 * The reader is fed whatever bytes arrived and gives back whole frames.  A
 * length over the cap is refused before any of the body is kept, so a hostile
 * peer can make it hold at most cap + 16 bytes.
 */
#ifndef HUTCH_FRAME_H
#define HUTCH_FRAME_H

#include "../guest_proto.h"
#include "bytes.h"
#include <stdbool.h>

struct frame_reader {
	struct bytes buf; /* owned: bytes not yet taken */
	size_t taken;	  /* of buf: given out by the last frame_next */
	uint32_t payload_max;
	bool is_broken;
};

struct frame {
	struct gp_head head;
	const uint8_t
		*payload; /* borrowed: until the next call on the reader */
};

void frame_reader_init(struct frame_reader *r, uint32_t payload_max);
void frame_reader_finish(struct frame_reader *r);

/* 0, -ENOMEM, or -EPROTO after a broken frame. */
int frame_feed(struct frame_reader *r, const void *data, size_t len);

/* 1 = *ret_frame holds a frame, 0 = more bytes needed, -EPROTO = a header
 * with a length over the cap or reserved bits set; the stream is dead. */
int frame_next(struct frame_reader *r, struct frame *ret_frame);

/* Append a whole frame to `out`; 0 or -ENOMEM. */
int frame_append(struct bytes *out, uint16_t type, uint64_t cmd,
		 const void *payload, size_t len);

#endif
