/*
 * Guest memory: the only door to it.
 *
 * RAM is one host mapping of `size` bytes.  Guest physical addresses below
 * MEM_GAP_START map to its beginning; what does not fit there continues at
 * MEM_GAP_END.  The gap holds the devices.  A range must lie in one of the two
 * parts: contiguous in guest addresses over the gap is not contiguous here.
 *
 * gpa_t is a number that cannot be dereferenced.  Sums are checked.  Any
 * thread may call; the guest may change the bytes at any time, so copy once
 * (mem_read), then check the copy, then use the copy.
 */
#ifndef HUTCH_VMM_MEM_H
#define HUTCH_VMM_MEM_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t gpa_t;

#define MEM_GAP_START 0xc0000000ull  /* 3 GiB */
#define MEM_GAP_END   0x100000000ull /* 4 GiB */
#define MEM_MIB_MIN   16
#define MEM_MIB_MAX   8192

struct mem {
	uint8_t *host; /* owned by who mapped it; private to mem.c otherwise */
	uint64_t size; /* bytes of RAM */
};

/* Anonymous private memory with PROT_NONE guard pages on both sides, not
 * dumped, not inherited, 2 MiB aligned, no swap reservation.  -errno. */
int mem_init(struct mem *m, uint64_t size);
void mem_finish(struct mem *m);

/* 0 or -EFAULT; on error dst (guest memory) is untouched. */
int mem_read(const struct mem *m, gpa_t src, void *dst, size_t len);
int mem_write(struct mem *m, gpa_t dst, const void *src, size_t len);
/* Bulk data only; NULL if any byte is outside.  Never read fields by it. */
void *mem_span(struct mem *m, gpa_t at, size_t len);

/* Copies between a span and host memory.  The only loads and stores through
 * a span's pointer; a build with MEM_TRACE reports each load (E2). */
void mem_copy_in(void *dst, const void *span, size_t len);
void mem_copy_out(void *span, const void *src, size_t len);

/* Ring indexes: single aligned 16-bit accesses with the ordering virtqueues
 * need.  0 or -EFAULT (also when `at` is odd). */
int mem_load16_acquire(const struct mem *m, gpa_t at, uint16_t *ret);
int mem_store16_release(struct mem *m, gpa_t at, uint16_t v);

#ifdef MEM_TRACE
/* Test builds: called after each load of guest memory. */
extern void (*mem_trace_load)(const void *host, size_t len);
#endif

#endif
