/* Loading an uncompressed ELF64 kernel (vmlinux) into guest memory. */
#ifndef HUTCH_ELF_H
#define HUTCH_ELF_H

#include "../mem.h"
#include "err.h"

/* Programs load at this address or above; what is below belongs to boot.c. */
#define ELF_LOAD_GPA_MIN 0x100000ull
#define ELF_SEGMENTS_MAX 32

/* Checks everything before the first byte is copied.  fd: borrowed.
 * *ret_entry: physical address of the first instruction. */
int elf_load(struct mem *m, int fd, gpa_t *ret_entry, struct err *e);

#endif
