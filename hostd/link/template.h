/*
 * Template snapshots: made once per base and shape, restored ever after.
 *
 * Key of a snapshot: kind of KVM, the host's raw CPUID and XCR0, the VMM's
 * state version and binary, kernel, init image, root image, command line,
 * vCPUs and RAM class.  Kept in <cache>/snapshots/<key>/{state,mem,disk,
 * meta.json} with sizes and hashes; written aside, fsynced, renamed; a damaged
 * one is noticed, said, and made anew.  One maker at a time per key (flock),
 * also between daemons and checkouts.
 */
#ifndef HUTCHD_TEMPLATE_H
#define HUTCHD_TEMPLATE_H

#include "../store/record.h"
#include "err.h"
#include <stdbool.h>
#include <stdint.h>

struct link;
struct loop;

struct link_config {
	const char *state_dir;	/* running VMs' disks */
	const char *cache_dir;	/* snapshots */
	const char *images_dir; /* images.json, vmlinux, *.erofs */
	const char *vmm_path;	/* hutch-vmm */
	const char *init_image; /* init.erofs */
	uint32_t uid_base;	/* first of LINK_UIDS uids for VMMs */
	bool is_confined;
	bool has_lane;	  /* VMs that wait are given runs by the express lane */
	int64_t renew_ms; /* age at which snapshots are made anew; 0 = never */
	const char *vmm_die_at; /* NULL, or for every VMM (api/base/fault.h) */
};
#define LINK_UIDS 1000

int link_create(struct link **ret, struct loop *loop,
		const struct link_config *cfg, struct err *e);
void link_destroy(struct link *l); /* kills what still runs */

struct link_stats {
	/* Runs that went by the express lane; adopted: those that took long. */
	uint64_t lane_runs, lane_adopted;
	uint64_t renewed; /* snapshots of templates, by their age */
};
void link_stats(const struct link *l, struct link_stats *ret);

struct shape {
	char base[TEMPLATE_NAME_BYTES_MAX + 1];
	uint32_t vcpus;	  /* 1, 2 or 4 */
	uint32_t ram_mib; /* class: 256 512 1024 2048 4096 8192 */
};
/* The shape that serves these limits; -1 with e for an unknown base. */
int shape_for(const char *base, const struct limits *limits, struct shape *ret,
	      struct err *e);

/* Is its snapshot there and whole? */
bool template_is_ready(struct link *l, const struct shape *s);
/* Make it if it is not; callbacks on the loop thread; done exactly once, unless
 * the link ends before. */
int template_prepare(struct link *l, const struct shape *s,
		     void (*progress)(void *ctx, const char *text),
		     void (*done)(void *ctx, const struct err *e), void *ctx);
/* SHA-256 of root image and kernel, for records. */
int template_hashes(struct link *l, const char *base, uint8_t image[HASH_BYTES],
		    uint8_t kernel[HASH_BYTES]);
/*
 * Read every byte of the images and of the snapshot, and hold them against
 * their hashes: seconds.  ERR_NOT_FOUND: no snapshot yet.  0 or -1 with `e`.
 */
int template_verify(struct link *l, const struct shape *s, struct err *e);

#endif
