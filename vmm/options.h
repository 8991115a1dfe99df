/*
 * The command line of hutch-vmm, and opening what it names.
 *
 * Parsing touches nothing.  options_open() then opens every path and takes
 * over every inherited descriptor; after it nothing is opened by path again.
 */
#ifndef HUTCH_VMM_OPTIONS_H
#define HUTCH_VMM_OPTIONS_H

#include "err.h"
#include "kvm.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define DISKS_MAX	  3
#define CMDLINE_BYTES_MAX 2047 /* COMMAND_LINE_SIZE of x86, without the NUL */

/* Something to open: an inherited descriptor or a path. */
struct source {
	const char *path; /* borrowed from argv; NULL = none or fd */
	int fd;		  /* owned; -1 = none or not yet open */
	bool is_given;
};

struct disk_options {
	struct source src;
	bool is_read_only;
	bool is_lazy;
	uint64_t cap_bytes; /* 0 = none */
	uint64_t bytes;	    /* set by options_open */
};

struct options {
	struct source kernel, trace, state, memory, touched;
	const char *cmdline; /* borrowed from argv; NULL = none */
	uint32_t mem_mib, n_vcpus, n_disks;
	struct disk_options disk[DISKS_MAX];
	int control, channel, log; /* -1 = none */
	int kvm, pagemap;	   /* set by options_open */
	enum kvm_kind kind;
	bool use_ring, is_confined, is_restore, is_verified, is_probe;
	bool has_ids;
	uid_t uid;
	gid_t gid;
};

/* 0, 1 = --help was printed, -1 = error in `e`. */
int options_parse(struct options *o, int argc, char **argv, struct err *e);
int options_open(struct options *o, struct err *e);

#endif
