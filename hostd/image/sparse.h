/*
 * Sparse files: memory images and disks are mostly holes, and stay so.
 *
 * Worker or loop thread; nothing here keeps state.  0 or a negative errno.
 */
#ifndef HUTCHD_SPARSE_H
#define HUTCHD_SPARSE_H

#include <stdint.h>

#define SPARSE_BLOCK_BYTES 4096u

/*
 * Make the empty file `dst` a copy of `src`: by reflink where the file system
 * can, else extent by extent in the kernel, holes left holes.
 * *ret_copied (may be NULL): bytes that were really copied.
 */
int sparse_copy(int src, int dst, uint64_t *ret_copied);

/* Give blocks of zeroes back to the file system. *ret_freed may be NULL. */
int sparse_dig(int fd, uint64_t *ret_freed);

/*
 * SHA-256 over the size and every block that is not all zero, each with its
 * offset: the same for the same contents wherever the holes are.
 */
int sparse_hash(int fd, uint8_t ret[32]);

/* Bytes that the file really takes. */
uint64_t sparse_allocated(int fd);

#endif
