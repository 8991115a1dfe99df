/* A snapshot that is being taken, for snapshot.c and vm_snapshot.c. */
#ifndef HUTCHD_SNAPSHOT_PRIV_H
#define HUTCHD_SNAPSHOT_PRIV_H

#include "snapshot.h"
#include "work.h"

#define SNAPSHOTS_FOLDER "snapshots"

enum { SNAP_STATE, SNAP_MEM, SNAP_DISK, SNAP_FILES };

/* snapshot_check.c: names in its folder; its hash, any thread, 0 or -errno.
 * is_verify: read it, whatever is remembered. */
extern const char *const snapshot_names[SNAP_FILES];
int snapshot_hash(const struct link *l, int which, int fd, bool is_verify,
		  struct snapshot_sums *ret);
/* Of the files in the folder `name` no hash is remembered any more. */
void snapshot_forget(const struct link *l, const char *name);
/* Its files, read-only; 0 or -1 with `e`.  What was opened is in `ret`, also
 * then. */
int snapshot_open(const struct link *l, const char *id, int ret[SNAP_FILES],
		  struct err *e);
/* Worker: are they what was taken?  0 or -1 with `e`. */
int snapshot_check(const struct link *l, const struct snapshot_from *from,
		   const int file[SNAP_FILES], bool is_verify, struct err *e);
/* The folder of all of them; 0 or -errno. */
int snapshots_open(const struct link *l, bool is_made, int *ret_fd);

struct snapping {
	struct job job;
	struct link *link;
	struct vm *vm; /* NULL: there is none, or it ended */
	char id[ID_BYTES_MAX];
	int folder;	      /* .new-<id>; owned, as all of these */
	int file[SNAP_FILES]; /* in it, read-write */
	int from[SNAP_FILES]; /* what is copied into them; -1 = nothing */
	int init;	      /* the image with init */
	bool is_with_worker;  /* whose `done` goes on */
	int rc;
	char error[REASON_BYTES_MAX];
	int64_t paused_us; /* when the VM was parked; then for how long */
	struct snapshot_result result;
	snapshot_fn fn;
	void *ctx;
};

/* Folder and empty files; 0 or -errno. */
int snapping_begin(struct link *l, const char *id, snapshot_fn fn, void *ctx,
		   struct snapping **ret);
/* Worker: copies what `from` has, into s->rc. */
void snapping_copy(struct snapping *s);
/* A worker makes it durable and names it; then `fn` is called and s is gone,
 * also when that fails. */
void snapping_seal(struct snapping *s);
/* What there is of it is removed, then `fn` is told and s is gone. */
void snapping_fail(struct snapping *s, const char *what, int rc);
/* The same and nobody is told: it never began, or the link ends. */
void snapping_drop(struct snapping *s);
/* Frees it, and nothing else. */
void snapping_free(struct snapping *s);

#endif
