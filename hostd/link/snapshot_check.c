/*
 * Are the files of a snapshot what was taken?  See snapshot.h.
 *
 * Their SHA-256 is in the record.  Reading gigabytes at every start would cost
 * more than the start, so the hashes of memory and disk are remembered by the
 * files' stamps (image/filehash.h), from the moment that they are written: a
 * start of a sandbox reads again what has another stamp, because somebody wrote
 * to it or put it back from elsewhere.  What a disk lost without being written
 * to is found by reading all of it, which is what snapshot_verify does.
 *
 * It is asked on the way to a VM's start, too: nothing is mapped before.
 */
#include "../image/filehash.h"
#include "fd.h"
#include "snapshot_priv.h"
#include "vm_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

const char *const snapshot_names[SNAP_FILES] = {"state", "mem", "disk"};

/* ---- opened ---------------------------------------------------------------
 */

int snapshots_open(const struct link *l, bool is_made, int *ret_fd)
{
	if (is_made && mkdirat(l->state_fd, SNAPSHOTS_FOLDER, 0700) &&
	    errno != EEXIST)
		return -errno;
	*ret_fd = openat(l->state_fd, SNAPSHOTS_FOLDER,
			 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

int snapshot_open(const struct link *l, const char *id, int ret[SNAP_FILES],
		  struct err *e)
{
	_cleanup_fd_ int all = -1, folder = -1;
	const char *name = "";
	int rc = snapshots_open(l, false, &all);

	if (!rc) {
		folder =
			openat(all, id,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		rc = folder < 0 ? -errno : 0;
	}
	for (int i = 0; !rc && i < SNAP_FILES; i++) {
		name = snapshot_names[i];
		ret[i] =
			openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		rc = ret[i] < 0 ? -errno : 0;
	}
	if (!rc)
		return 0;
	return err_set(e, ERR_UNAVAILABLE, "snapshot",
		       "The files of the snapshot %s cannot be opened: %s%s%s.",
		       id, name, *name ? ": " : "", strerror(-rc));
}

/* ---- hashed ---------------------------------------------------------------
 */

static const struct file_hashes nothing = {-1};

static uint8_t *sum_of(struct snapshot_sums *s, int which)
{
	return which == SNAP_STATE ? s->state
	       : which == SNAP_MEM ? s->mem
				   : s->disk;
}

/* The state file is small: it is read each time. */
int snapshot_hash(const struct link *l, int which, int fd, bool is_verify,
		  struct snapshot_sums *ret)
{
	return which == SNAP_STATE ? file_hash(&nothing, FILE_HASH_PLAIN, fd,
					       true, ret->state)
				   : file_hash(&l->hashes, FILE_HASH_SPARSE, fd,
					       is_verify, sum_of(ret, which));
}

void snapshot_forget(const struct link *l, const char *name)
{
	int file[SNAP_FILES] = {-1, -1, -1};
	struct err e;

	(void)snapshot_open(l, name, file, &e);
	for (int i = 0; i < SNAP_FILES; i++) {
		if (file[i] >= 0 && i != SNAP_STATE)
			file_hash_forget(&l->hashes, FILE_HASH_SPARSE, file[i]);
		fd_close(&file[i]);
	}
}

int snapshot_check(const struct link *l, const struct snapshot_from *from,
		   const int file[SNAP_FILES], bool is_verify, struct err *e)
{
	static const uint8_t unknown[HASH_BYTES];
	struct snapshot_sums want = from->sums, is;

	for (int i = 0; i < SNAP_FILES; i++) {
		int rc;

		if (!memcmp(sum_of(&want, i), unknown, HASH_BYTES))
			continue;
		rc = snapshot_hash(l, i, file[i], is_verify, &is);
		if (rc)
			return err_set(e, ERR_UNAVAILABLE, "snapshot",
				       "The file %s of the snapshot %s cannot "
				       "be read: %s.",
				       snapshot_names[i], from->id,
				       strerror(-rc));
		if (memcmp(sum_of(&want, i), sum_of(&is, i), HASH_BYTES))
			return err_set(e, ERR_SNAPSHOT_DAMAGED, "snapshot",
				       "The file %s of the snapshot %s is not "
				       "what was taken: its SHA-256 is not the "
				       "one in the record.",
				       snapshot_names[i], from->id);
	}
	return 0;
}

/* ---- verified -------------------------------------------------------------
 */

struct verifying {
	struct job job;
	struct snapshot_from what;
	int file[SNAP_FILES]; /* owned */
	struct err e;
	int rc;
	snapshot_verify_fn fn;
	void *ctx;
};

static void verifying_free(struct verifying *v)
{
	for (int i = 0; i < SNAP_FILES; i++)
		fd_close(&v->file[i]);
	free(v);
}

static void verify_run(struct job *j)
{
	struct verifying *v = container_of(j, struct verifying, job);

	v->rc = snapshot_check(j->link, &v->what, v->file, true, &v->e);
}

static void verify_done(struct job *j)
{
	struct verifying *v = container_of(j, struct verifying, job);

	if (j->link)
		v->fn(v->ctx, v->rc ? &v->e : NULL);
	verifying_free(v);
}

int snapshot_verify(struct link *l, const struct snapshot_from *from,
		    snapshot_verify_fn fn, void *ctx, struct err *e)
{
	struct verifying *v = calloc(1, sizeof(*v));

	if (!v)
		return err_set(e, ERR_UNAVAILABLE, NULL, "out of memory");
	v->what = *from;
	v->fn = fn;
	v->ctx = ctx;
	for (int i = 0; i < SNAP_FILES; i++)
		v->file[i] = -1;
	if (snapshot_open(l, from->id, v->file, e)) {
		verifying_free(v);
		return -1;
	}
	if (job_start(l, &v->job, verify_run, verify_done)) {
		verifying_free(v);
		return err_set(e, ERR_UNAVAILABLE, NULL, "out of memory");
	}
	return 0;
}
