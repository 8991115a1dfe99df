/* See sha256.h.  Two block functions, chosen by CPUID at init. */
#include "sha256.h"
#include <immintrin.h>
#include <string.h>

static const uint32_t k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t ror(uint32_t v, unsigned n)
{
	return v >> n | v << (32 - n);
}

static void blocks_plain(uint32_t h[8], const uint8_t *p, size_t n)
{
	for (; n; n--, p += SHA256_BLOCK_BYTES) {
		uint32_t w[64], v[8];

		for (unsigned i = 0; i < 16; i++) {
			memcpy(&w[i], p + 4 * i, 4);
			w[i] = __builtin_bswap32(w[i]);
		}
		for (unsigned i = 16; i < 64; i++) {
			uint32_t a = w[i - 15], b = w[i - 2];

			w[i] = w[i - 16] + w[i - 7] +
			       (ror(a, 7) ^ ror(a, 18) ^ a >> 3) +
			       (ror(b, 17) ^ ror(b, 19) ^ b >> 10);
		}
		memcpy(v, h, sizeof(v));
		for (unsigned i = 0; i < 64; i++) {
			uint32_t e = v[4], a = v[0];
			uint32_t t1 = v[7] +
				      (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) +
				      ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
			uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) +
				      ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

			memmove(v + 1, v, 7 * sizeof(v[0]));
			v[4] += t1;
			v[0] = t1 + t2;
		}
		for (unsigned i = 0; i < 8; i++)
			h[i] += v[i];
	}
}

/* Four rounds; m0 is the schedule's current words, the others follow. */
#define ROUNDS(i, m0)                                                          \
	do {                                                                   \
		__m128i wk = _mm_add_epi32(                                    \
			m0, _mm_loadu_si128((const void *)(k + 4 * (i))));     \
		cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);                  \
		abef = _mm_sha256rnds2_epu32(abef, cdgh,                       \
					     _mm_shuffle_epi32(wk, 0x0e));     \
	} while (0)

/* The next four words from the last sixteen, into m0. */
#define SCHEDULE(m0, m1, m2, m3)                                               \
	(m0 = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(m0, m1), \
						 _mm_alignr_epi8(m3, m2, 4)),  \
				   m3))

__attribute__((target("sha,sse4.1"))) static void blocks_sha(uint32_t h[8],
							     const uint8_t *p,
							     size_t n)
{
	const __m128i swap =
		_mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
	__m128i a = _mm_loadu_si128((const void *)h);
	__m128i b = _mm_loadu_si128((const void *)(h + 4));
	__m128i abef, cdgh;

	a = _mm_shuffle_epi32(a, 0xb1);
	b = _mm_shuffle_epi32(b, 0x1b);
	abef = _mm_alignr_epi8(a, b, 8);
	cdgh = _mm_blend_epi16(b, a, 0xf0);
	for (; n; n--, p += SHA256_BLOCK_BYTES) {
		__m128i abef0 = abef, cdgh0 = cdgh, m[4];

		for (unsigned i = 0; i < 4; i++) {
			m[i] = _mm_loadu_si128((const void *)(p + 16 * i));
			m[i] = _mm_shuffle_epi8(m[i], swap);
			ROUNDS(i, m[i]);
		}
		for (unsigned i = 4; i < 16; i += 4) {
			SCHEDULE(m[0], m[1], m[2], m[3]);
			ROUNDS(i, m[0]);
			SCHEDULE(m[1], m[2], m[3], m[0]);
			ROUNDS(i + 1, m[1]);
			SCHEDULE(m[2], m[3], m[0], m[1]);
			ROUNDS(i + 2, m[2]);
			SCHEDULE(m[3], m[0], m[1], m[2]);
			ROUNDS(i + 3, m[3]);
		}
		abef = _mm_add_epi32(abef, abef0);
		cdgh = _mm_add_epi32(cdgh, cdgh0);
	}
	a = _mm_shuffle_epi32(abef, 0x1b);
	b = _mm_shuffle_epi32(cdgh, 0xb1);
	_mm_storeu_si128((void *)h, _mm_blend_epi16(a, b, 0xf0));
	_mm_storeu_si128((void *)(h + 4), _mm_alignr_epi8(b, a, 8));
}

static int has_sha(void)
{
	static int has = -1;
	unsigned a, b, c, d;

	if (has < 0) {
		__asm__ volatile("cpuid"
				 : "=a"(a), "=b"(b), "=c"(c), "=d"(d)
				 : "a"(7), "c"(0));
		has = (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
	}
	return has;
}

static void blocks(uint32_t h[8], const uint8_t *p, size_t n)
{
	if (has_sha())
		blocks_sha(h, p, n);
	else
		blocks_plain(h, p, n);
}

void sha256_init(struct sha256 *s)
{
	static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
					  0xa54ff53a, 0x510e527f, 0x9b05688c,
					  0x1f83d9ab, 0x5be0cd19};

	memcpy(s->h, first, sizeof(first));
	s->total = 0;
}

void sha256_add(struct sha256 *s, const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t at = s->total % SHA256_BLOCK_BYTES;

	s->total += len;
	if (at) {
		size_t n = SHA256_BLOCK_BYTES - at;

		if (n > len)
			n = len;
		memcpy(s->part + at, p, n);
		p += n;
		len -= n;
		if (at + n < SHA256_BLOCK_BYTES)
			return;
		blocks(s->h, s->part, 1);
	}
	blocks(s->h, p, len / SHA256_BLOCK_BYTES);
	p += len - len % SHA256_BLOCK_BYTES;
	memcpy(s->part, p, len % SHA256_BLOCK_BYTES);
}

void sha256_end(struct sha256 *s, uint8_t ret[SHA256_BYTES])
{
	uint8_t tail[2 * SHA256_BLOCK_BYTES] = {0x80};
	size_t at = s->total % SHA256_BLOCK_BYTES;
	size_t pad = (at < 56 ? 56 : 120) - at;
	uint64_t bits = __builtin_bswap64(s->total * 8);

	memcpy(tail + pad, &bits, sizeof(bits));
	sha256_add(s, tail, pad + sizeof(bits));
	for (unsigned i = 0; i < 8; i++) {
		uint32_t v = __builtin_bswap32(s->h[i]);

		memcpy(ret + 4 * i, &v, sizeof(v));
	}
}
