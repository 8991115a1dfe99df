/* Intel MultiProcessor tables (version 1.4): processors, one I/O APIC, its
 * first 16 pins as ISA interrupts 0-15.  Written at BOOT_MPTABLE_GPA. */
#ifndef HUTCH_MPTABLE_H
#define HUTCH_MPTABLE_H

#include "../mem.h"

int mptable_write(struct mem *m, unsigned n_vcpus); /* 0 or -errno */

#endif
