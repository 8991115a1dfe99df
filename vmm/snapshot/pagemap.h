/* What the kernel says of each page of guest memory in this process: entries
 * of /proc/self/pagemap (admin-guide/mm/pagemap.rst). */
#ifndef HUTCH_PAGEMAP_H
#define HUTCH_PAGEMAP_H

#include "../mem.h"
#include "fd.h"
#include <stdbool.h>

#define PAGEMAP_PAGE_BYTES 4096ull
/* Pages that are asked for at once: 2 MiB of them. */
#define PAGEMAP_BATCH 512

#define PAGEMAP_PRESENT (1ull << 63)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_FILE	(1ull << 61)
#define PAGEMAP_ONLY	(1ull << 56) /* mapped once: not the page of zeros */

/* Entries of `n` pages from byte `off` of RAM.  0 or -errno. */
static inline int pagemap_read(int pagemap, const struct mem *m, uint64_t off,
			       uint64_t *ret, size_t n)
{
	uint64_t page =
		(uint64_t)(uintptr_t)(m->host + off) / PAGEMAP_PAGE_BYTES;

	return fd_pread_all(pagemap, ret, n * sizeof(*ret),
			    (off_t)(page * sizeof(*ret)));
}

/* In memory or swapped out; never touched otherwise. */
static inline bool pagemap_is_there(uint64_t entry)
{
	return entry & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED);
}

/* A page of the file below, or one that this process has for itself. */
static inline bool pagemap_is_touched(uint64_t entry)
{
	return entry & PAGEMAP_SWAPPED ||
	       (entry & PAGEMAP_PRESENT &&
		entry & (PAGEMAP_FILE | PAGEMAP_ONLY));
}

static inline bool pagemap_is_own(uint64_t entry)
{
	return pagemap_is_touched(entry) && !(entry & PAGEMAP_FILE);
}

#endif
