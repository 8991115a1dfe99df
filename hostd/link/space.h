/*
 * What takes space: by kind, as the file systems count it.
 */
#ifndef HUTCHD_SPACE_H
#define HUTCHD_SPACE_H

#include <stdint.h>

struct link;

enum space_kind {
	SPACE_TEMPLATES, /* CACHE/snapshots, CACHE/disks */
	SPACE_SNAPSHOTS, /* STATE/snapshots */
	SPACE_FILES,	 /* STATE/files: of graphs, each hash once */
	SPACE_STOPPED,	 /* STATE/stopped, without disks of those that run */
	SPACE_DISKS,	 /* of VMs */
	SPACE_DATABASE,	 /* STATE/hutch.db... */
	SPACE_LOGS,	 /* STATE/....log */
	SPACE_OTHER,	 /* all else in STATE */
	SPACE_KINDS
};
const char *space_kind_name(enum space_kind k);

struct space_use {
	uint64_t count; /* of folders in a kind that has one each, else files */
	uint64_t bytes; /* allocated, folders included */
};
struct space {
	struct space_use of[SPACE_KINDS];
	/* Of the file systems of STATE and CACHE, for who is not root. */
	uint64_t state_free_bytes, state_total_bytes;
	uint64_t cache_free_bytes, cache_total_bytes;
};

/* SPACE_SNAPSHOTS or SPACE_STOPPED, now: some hundred calls of stat. */
struct space_use space_of(const struct link *l, enum space_kind k);
/* All, by a worker; `fn` once, on the loop's thread, unless the link ends
 * before.  -ENOMEM. */
struct measuring;
int space_measure(struct link *l, void (*fn)(void *ctx, const struct space *s),
		  void *ctx, struct measuring **ret);
/* Before `fn` was called: it is not. */
void space_forget(struct measuring *m);

#endif
