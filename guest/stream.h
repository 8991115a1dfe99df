/*
 * One output stream of a command: the first bytes and the last ones.
 *
 * Bytes up to head_max are kept from the start; after that a ring keeps the
 * last tail_max bytes and the rest is counted only.  Nothing here ever makes
 * the writer wait, so a host that does not read costs no more memory than the
 * two caps.  Bytes stay until the host has acked the command's end: after a
 * lost connection everything kept is offered again, and the host drops what
 * it knows by the offset.
 *
 * A flood costs little: past the head, what is in the pipe beyond tail_max is
 * thrown away inside the kernel (splice to /dev/null) and never copied.
 */
#ifndef HUTCH_GUEST_STREAM_H
#define HUTCH_GUEST_STREAM_H

#include "bytes.h"
#include "guest_proto.h"
#include <stdbool.h>

struct stream {
	int fd; /* owned: read end of the pipe, non-blocking; -1 = at its end */
	uint64_t head_max, tail_max;
	struct bytes head; /* bytes [0, head.len) */
	uint8_t *ring;	   /* owned: byte at offset o is ring[o % tail_max] */
	uint64_t total, sent; /* bytes seen; bytes offered to the host */
};

void stream_init(struct stream *s, int fd, uint64_t head_max,
		 uint64_t tail_max);
void stream_finish(struct stream *s);
/* Forget all bytes, take new caps, keep the pipe. */
void stream_reset(struct stream *s, uint64_t head_max, uint64_t tail_max);

/* New bytes of the stream.  -ENOMEM loses bytes but counts them. */
int stream_push(struct stream *s, const void *data, size_t len);

/*
 * Read what the pipe holds.  Returns 1 when bytes came and the pipe is empty
 * now, 0 when there was nothing, -EPIPE at the end of the stream (fd closed).
 * `null_fd`: /dev/null, open for writing.
 */
int stream_pull(struct stream *s, int null_fd);

/*
 * Next piece to send: its offset and up to `cap` contiguous bytes, NULL when
 * there is none.  stream_sent() moves on past it.
 */
const uint8_t *stream_next(const struct stream *s, size_t cap,
			   uint64_t *ret_offset, size_t *ret_len);
void stream_sent(struct stream *s, uint64_t offset, size_t len);
/* Bytes that stream_next would still give. */
uint64_t stream_unsent(const struct stream *s);
/* The host lost the connection: offer everything kept again. */
void stream_rewind(struct stream *s);

static inline bool stream_is_past_head(const struct stream *s)
{
	return s->total > s->head_max;
}

#endif
