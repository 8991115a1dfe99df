/*
 * The memory file of a snapshot: sparse, as long as guest memory, byte n of
 * it is byte n of RAM (low part first, then what lies above the gap).
 *
 * Only pages that hold a byte other than zero are written; the rest are holes.
 * Restore lays parts of the file over fresh anonymous memory, copy on write.
 * A part is a run of 2 MiB blocks with data, so that memory without data stays
 * anonymous (reading holes of a file mapping would fill the page cache, and
 * would rule out huge pages), and so that there are few of them.
 *
 * The sum of a memory file is SHA-256 over (offset, length, bytes) of every
 * run of data pages.  Checking it reads the whole file, so a restore does it
 * only on request; whoever keeps the file in a cache checks it there once.
 */
#ifndef HUTCH_MEMFILE_H
#define HUTCH_MEMFILE_H

#include "../mem.h"
#include "state.h"

/* pagemap: /proc/self/pagemap of this process.  Fills extents, sum and data
 * count of `s`.  Parts that lie over a file already (`s->extent` of the
 * restore this VM came from) are in `over`.  0 or -errno. */
int memfile_write(const struct mem *m, int pagemap, int fd,
		  const struct extent *over, uint32_t n_over,
		  struct vm_state *s, struct err *e);

/* Does byte `off` of RAM lie over the file? */
bool extents_hold(const struct extent *over, uint32_t n, uint64_t off);

/* Check the file against `s`, then lay it over `m`. */
int memfile_map(struct mem *m, int fd, const struct vm_state *s,
		bool is_verified, struct err *e);

#endif
