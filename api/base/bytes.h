/*
 * Growable byte string, and little-endian loads and stores.
 *
 * struct bytes owns its memory; zero-initialised is empty and valid.  Growth
 * that cannot be had is -ENOMEM and leaves the contents as they were.
 */
#ifndef HUTCH_BYTES_H
#define HUTCH_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
	uint8_t *data; /* owned */
	size_t len, cap;
};

void bytes_finish(struct bytes *b); /* frees; leaves it empty */
#define _cleanup_bytes_ __attribute__((cleanup(bytes_finish)))

int bytes_reserve(struct bytes *b, size_t more);
int bytes_append(struct bytes *b, const void *src, size_t len);
int bytes_printf(struct bytes *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/*
 * The same for what must not stay in memory: growth and the end leave no copy
 * of it on the heap.
 */
int bytes_append_secret(struct bytes *b, const void *src, size_t len);
void bytes_finish_secret(struct bytes *b);
#define _cleanup_secret_ __attribute__((cleanup(bytes_finish_secret)))

/* Drop the first `n` bytes. */
void bytes_consume(struct bytes *b, size_t n);

static inline uint16_t le16_load(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v; /* x86-64 only: little endian */
}

static inline uint32_t le32_load(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t le64_load(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline void le32_store(void *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
}

static inline void le64_store(void *p, uint64_t v)
{
	memcpy(p, &v, sizeof(v));
}

#endif
