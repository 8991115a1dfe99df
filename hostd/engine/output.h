/*
 * One output stream of a command, as much of it as is kept: the first
 * OUTPUT_HEAD_BYTES and the last OUTPUT_TAIL_BYTES.
 *
 * Memory is bounded whatever the guest sends: the tail may grow to twice its
 * size before its front is dropped in one move.
 */
#ifndef HUTCHD_OUTPUT_H
#define HUTCHD_OUTPUT_H

#include "engine.h"

struct output {
	struct bytes head;
	struct bytes tail; /* bytes [tail_at, tail_at + tail.len) */
	uint64_t tail_at;
	uint64_t total; /* bytes the stream has had */
};

void output_finish(struct output *o);

/*
 * Bytes [offset, offset + len) of the stream, which has had `total` so far.
 * What is known already is skipped; a gap drops the tail kept so far (the
 * guest keeps the last bytes only).  0 or -ENOMEM.
 */
int output_add(struct output *o, uint64_t offset, uint64_t total,
	       const uint8_t *data, size_t len);

/* As a record's output; borrows from `o` until its next change. */
struct output_rec output_view(const struct output *o);

/* What is kept of [offset, offset + limit); where the middle was dropped, the
 * bytes that come next.  is_over: nothing will be added. */
struct log_slice log_slice_of(const struct output_rec *o, bool is_over,
			      uint64_t offset, size_t limit);

/* The whole stream, when nothing of it was dropped and it fits the head. */
bool output_is_whole(const struct output *o);

#endif
