/*
 * The pages that a run needs, so that the next restore has them before it asks:
 * the working set.
 *
 * Recorded in a VM that was restored and gave its first result.  Its page table
 * says which pages of the memory file it came to (with those that the kernel
 * maps beside each, up to 64 KiB) and which became its own by a write.
 * mincore(2) would tell of the page cache, which all VMs share, and KVM's dirty
 * log of writes only.
 *
 * Used while the next VM is put together, by a thread that ends before the
 * first instruction: what is not in the page cache is asked for in large reads,
 * and what was written is copied ahead.  What was only read is not mapped
 * ahead: the kernel's own mapping around each fault is cheaper (README.md).
 *
 * The file is sealed (sealed.h) and names the memory file that it belongs to.
 * It is input like any other, and only ever a hint: a bad one is said, and not
 * used.
 */
#ifndef HUTCH_TOUCHED_H
#define HUTCH_TOUCHED_H

#include "../mem.h"
#include "err.h"
#include "state.h"
#include <pthread.h>
#include <stdbool.h>

#define TOUCHED_VERSION	 1
#define TOUCHED_RUNS_MAX 2048
/* What is copied ahead is memory that a VM has even when it stays idle. */
#define TOUCHED_OWN_BYTES_MAX (16ull << 20)

struct touched_run { /* bytes of RAM, whole pages */
	uint64_t off, len;
};

struct touched {
	uint8_t mem_sum[SHA256_BYTES]; /* of the snapshot's memory */
	uint32_t n_all, n_own;
	struct touched_run all[TOUCHED_RUNS_MAX]; /* read or written */
	struct touched_run own[TOUCHED_RUNS_MAX]; /* written */
};

/* over, mem_sum: of the snapshot that the VM came from.  0 or -errno with `e`.
 */
int touched_write(const struct mem *m, int pagemap, const struct extent *over,
		  uint32_t n_over, const uint8_t mem_sum[SHA256_BYTES], int fd,
		  struct err *e);
/* 0 or -1 with `e`: the file, or one of its runs, cannot be. */
int touched_read(int fd, const struct mem *m,
		 const uint8_t mem_sum[SHA256_BYTES], struct touched *ret,
		 struct err *e);

/* Getting the pages: all pointers and descriptors are borrowed until the end of
 * touched_wait. */
struct touched_work {
	int fd, mem_fd; /* -1 = there is no file: nothing is done */
	const struct mem *mem;
	const uint8_t *mem_sum;
	pthread_t thread;
	bool is_running;
};
void touched_start(struct touched_work *w);
void touched_wait(struct touched_work *w);

#endif
