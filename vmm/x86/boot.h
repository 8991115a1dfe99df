/*
 * The state in which Linux's 64-bit boot protocol wants the first vCPU
 * (Documentation/arch/x86/boot.rst): long mode, identity-mapped, boot_params
 * in RSI.  Memory below 1 MiB:
 *
 *   0x00500  GDT         0x09000  page tables: PML4, PDPT, PD (1 GiB)
 *   0x00580  IDT (empty) 0x20000  command line
 *   0x07000  boot_params 0x9fc00  MP tables, 1 KiB, reserved in e820
 */
#ifndef HUTCH_BOOT_H
#define HUTCH_BOOT_H

#include "../mem.h"
#include "err.h"

#define BOOT_GDT_GPA	   0x500ull
#define BOOT_IDT_GPA	   0x580ull
#define BOOT_PARAMS_GPA	   0x7000ull
#define BOOT_STACK_GPA	   0x8ff0ull
#define BOOT_PML4_GPA	   0x9000ull
#define BOOT_PDPT_GPA	   0xa000ull
#define BOOT_PD_GPA	   0xb000ull
#define BOOT_CMDLINE_GPA   0x20000ull
#define BOOT_MPTABLE_GPA   0x9fc00ull
#define BOOT_MPTABLE_BYTES 0x400ull

/* Write boot_params, tables and command line; set the first vCPU's registers
 * to run from `entry`.  cmdline: at most CMDLINE_BYTES_MAX. */
int boot_setup(struct mem *m, int vcpu_fd, unsigned n_vcpus, gpa_t entry,
	       const char *cmdline, struct err *e);

#endif
