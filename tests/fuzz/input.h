/*
 * Taking an input apart: little numbers from the front, 0 when it has ended.
 *
 * Structure-aware targets read choices from it, so that most inputs get past
 * the first checks; in_rarely() gives the odd one that does not.
 */
#ifndef HUTCH_FUZZ_INPUT_H
#define HUTCH_FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct in {
	const uint8_t *p;
	size_t len;
};

static inline uint8_t in_u8(struct in *in)
{
	if (in->len == 0)
		return 0;
	in->len--;
	return *in->p++;
}

static inline uint16_t in_u16(struct in *in)
{
	uint16_t lo = in_u8(in);

	return (uint16_t)(lo | in_u8(in) << 8);
}

static inline uint32_t in_u32(struct in *in)
{
	uint32_t lo = in_u16(in);

	return lo | (uint32_t)in_u16(in) << 16;
}

static inline uint64_t in_u64(struct in *in)
{
	uint64_t lo = in_u32(in);

	return lo | (uint64_t)in_u32(in) << 32;
}

/* One in 32. */
static inline bool in_rarely(struct in *in)
{
	return in_u8(in) % 32 == 31;
}

/* A number that is at home near the edges. */
static inline uint64_t in_edge(struct in *in)
{
	static const uint64_t edges[] = {
		0,	    1,		2,	    511,	512,
		0xffff,	    0x10000,	0x7fffffff, 0x80000000, 0xffffffff,
		0xd0000000, 1ull << 55, 1ull << 63, UINT64_MAX, UINT64_MAX - 15,
	};

	return edges[in_u8(in) % (sizeof(edges) / sizeof(edges[0]))];
}

#endif
