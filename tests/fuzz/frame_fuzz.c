/*
 * Fuzz: the frame reader, fed in pieces whose sizes the input chooses.
 *
 * Input: one byte of piece size, then the stream.  Held against a model: what
 * comes out must be the same whatever the pieces, and the reader never holds
 * more than its cap and one header.
 */
#include "frame.h"
#include "fuzz.h"
#include <errno.h>
#include <stdlib.h>

#define CAP 512u

struct digest {
	uint64_t sum;
	unsigned n_frames;
	int end;
};

static void add(struct digest *d, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		d->sum = (d->sum ^ p[i]) * 0x100000001b3ull;
}

static struct digest read_all(const uint8_t *data, size_t len, size_t piece)
{
	struct digest d = {0};
	struct frame_reader r;
	struct frame f;

	frame_reader_init(&r, CAP);
	while (len && !d.end) {
		size_t n = len < piece ? len : piece;

		if (frame_feed(&r, data, n))
			abort();
		data += n;
		len -= n;
		while ((d.end = frame_next(&r, &f)) == 1) {
			if (f.head.len > CAP || f.head.reserved)
				abort();
			add(&d, &f.head, sizeof(f.head));
			add(&d, f.payload, f.head.len);
			d.n_frames++;
		}
		if (r.buf.len - r.taken > CAP + sizeof(f.head) + piece)
			abort();
	}
	if (d.end == -EPROTO && frame_feed(&r, "", 0) != -EPROTO)
		abort();
	frame_reader_finish(&r);
	return d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct digest whole, pieces;

	fuzz_begin();
	if (len < 1)
		return 0;
	whole = read_all(data + 1, len - 1, len);
	pieces = read_all(data + 1, len - 1, 1u + data[0] % 61u);
	if (whole.sum != pieces.sum || whole.n_frames != pieces.n_frames ||
	    whole.end != pieces.end)
		abort();
	if (whole.n_frames)
		fuzz_reach();
	return 0;
}
