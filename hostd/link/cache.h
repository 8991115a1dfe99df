/*
 * The cache of template snapshots on disk.
 *
 *   <cache>/snapshots/<key>/state     the VMM's state file
 *                           mem       guest RAM, sparse
 *                           disk      the sandbox disk mounted in it, sparse
 *                           touched   pages that its first run touched; may
 *                                     be missing (first_run.h)
 *                           meta.json sizes, hashes, and what went in
 *   <cache>/snapshots/.new-<key>      being made, by who holds the lock
 *   <cache>/locks/<key>               flock: one maker at a time; its mtime
 *                                     says when the entry was last opened
 *
 * An entry appears by rename and is never written again: VMs map its files.
 * Removing it is safe for them, too, because they hold it open.
 *
 * Worker threads call these; 0 or a negative errno with `e` filled.
 */
#ifndef HUTCHD_CACHE_H
#define HUTCHD_CACHE_H

#include "../image/filehash.h"
#include "err.h"
#include <stdbool.h>
#include <stdint.h>

struct snapshot_files {
	int state_fd, mem_fd, disk_fd; /* owned, read-only */
	int touched_fd;		       /* the same; -1 = there is none */
};
#define SNAPSHOT_FILES_NONE                                                    \
	{                                                                      \
		-1, -1, -1, -1                                                 \
	}
void snapshot_files_close(struct snapshot_files *f);

struct cache {
	int dir_fd; /* borrowed: the cache folder */
	const struct file_hashes *hashes;
};

/*
 * -ENOENT: there is none.  -EBADMSG: it is damaged, `e` says how.  Files are
 * hashed when their stamp is not known, or always with is_verify.  Damage of
 * `touched` is logged, and it is left out.
 */
int cache_open(const struct cache *c, const char *key, bool is_verify,
	       struct snapshot_files *ret, struct err *e);

/* -EAGAIN: another process makes it now.  *ret_fd is held while making. */
int cache_lock(const struct cache *c, const char *key, int *ret_fd,
	       struct err *e);

struct cache_making {
	int dir_fd;		       /* owned: the folder .new-<key> */
	int state_fd, mem_fd, disk_fd; /* owned, read-write, empty */
	int touched_fd;		       /* the same; may stay empty */
};
#define CACHE_MAKING_NONE                                                      \
	{                                                                      \
		-1, -1, -1, -1, -1                                             \
	}
/* With the lock held.  What an earlier maker left is removed. */
int cache_making_begin(const struct cache *c, const char *key,
		       struct cache_making *ret, struct err *e);
/*
 * Make the files durable and give the entry its name, in place of a damaged
 * one.  `inputs`: lines for meta.json.  seconds: how long it took.
 */
int cache_making_commit(const struct cache *c, const char *key,
			struct cache_making *m, const char *inputs,
			int64_t seconds, struct err *e);
/* Remove what there is; also after a commit (then it only closes). */
void cache_making_end(const struct cache *c, const char *key,
		      struct cache_making *m);

/*
 * Before making one: forget what makers left that are no more, entries that
 * nobody opened for two weeks, and, while less than `need_bytes` are free, the
 * longest unused that nobody opened for an hour.  Returns how many were
 * removed.  cache_prune.c
 */
unsigned cache_prune(const struct cache *c, uint64_t need_bytes);
/* At the daemon's start: only what makers left that are no more. */
void cache_sweep(const struct cache *c);
/* Removes a folder of ours by the names that we put there; no recursion. */
void cache_folder_remove(int at, const char *name);

/* Free bytes of the cache's file system. */
uint64_t cache_free_bytes(const struct cache *c);

#endif
