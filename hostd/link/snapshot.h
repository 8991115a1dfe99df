/*
 * Snapshots of sandboxes, that a user takes and starts sandboxes from.
 *
 *   STATE/snapshots/<id>/state   the VMM's state file
 *                        mem     guest RAM, sparse
 *                        disk    the sandbox's disk, sparse
 *   STATE/snapshots/.new-<id>    being taken
 *
 * A folder appears by rename when all of it is on the disk, and is never
 * written again: VMs map its memory.  Removing it is safe for them, too.  What
 * makes it be a snapshot is its record; folders without one are swept at the
 * start.  All functions and callbacks: loop thread.
 */
#ifndef HUTCHD_SNAPSHOT_H
#define HUTCHD_SNAPSHOT_H

#include "vm.h"

struct snapshot_result {
	uint64_t state_bytes, mem_bytes, disk_bytes; /* that the files take */
	struct snapshot_sums sums;
	int64_t paused_us; /* for so long the VM stood still */
};
/*
 * Once, later, never from within the call; not after the engine has ended.
 * rc 0, or -errno with `error`; then nothing of it is left, and a VM that is
 * not gone goes on.
 */
typedef void (*snapshot_fn)(void *ctx, int rc, const char *error,
			    const struct snapshot_result *r);

/*
 * Of a VM that runs (vm_snapshot.c): memory, devices and disk are taken in one
 * paused window, and it goes on.  Commands may be given meanwhile; they wait.
 * 0, or -EAGAIN (not now: one is being taken, it stops ...), another -errno.
 */
int vm_snapshot(struct vm *vm, const char *id, snapshot_fn fn, void *ctx);
/* Bytes that files of it would take at most, as far as can be said without
 * pausing; a disk that has a name already (it was stopped once): 0. */
struct vm_space {
	uint64_t mem_bytes, disk_bytes, named_disk_bytes;
};
struct vm_space vm_space_of(const struct vm *vm);

/* Of a sandbox that is stopped: its files are copied.  It must not go on until
 * `fn` was called. */
int stopped_snapshot(struct link *l, const char *sandbox, const char *id,
		     snapshot_fn fn, void *ctx);
uint64_t stopped_bytes(const struct link *l, const char *sandbox);

/* What a sandbox begins from. */
struct snapshot_from {
	char id[ID_BYTES_MAX];
	struct snapshot_sums sums;
};
/*
 * As vm_create, from a snapshot: it gets a disk of its own, maps the memory
 * copy on write, and confirms an identity of its own before any command is
 * given to it.  Numbers of commands must be above those of the sandbox that the
 * snapshot is of.  -1 with `e`: ERR_UNAVAILABLE when its files are not there.
 * When they are not what they were it ends, END_NOT_STARTED, before a VM is
 * there.
 */
int vm_create_from(struct vm **ret, struct link *link,
		   const struct vm_spec *spec, const struct snapshot_from *from,
		   const struct vm_ops *ops, void *ctx, struct err *e);

/*
 * Reads every byte of it, by a worker, and `fn` is called once, later: `e` NULL
 * = it is what was taken, else ERR_SNAPSHOT_DAMAGED or ERR_UNAVAILABLE.  Not
 * after the engine has ended.  -1 with `e`, ERR_UNAVAILABLE: it is not called.
 */
typedef void (*snapshot_verify_fn)(void *ctx, const struct err *e);
int snapshot_verify(struct link *l, const struct snapshot_from *from,
		    snapshot_verify_fn fn, void *ctx, struct err *e);

/* Names of folders: an id, or ".new-" and an id. */
#define SNAPSHOT_FOLDER_BYTES_MAX (ID_BYTES_MAX + 8)
/* All that there are now, also what was being taken when a daemon ended. */
void snapshots_each(struct link *l, void (*fn)(void *ctx, const char *name),
		    void *ctx);
/* Remove the files of a folder, if there are any. */
void snapshot_remove(struct link *l, const char *name);

#endif
