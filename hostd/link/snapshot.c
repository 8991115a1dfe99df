/*
 * Files of snapshots: made, copied from a stopped sandbox, sealed, removed; see
 * snapshot.h.
 *
 * Everything that reads or writes much is a worker's.  A snapshot that fails is
 * removed before anybody is told, so that its room is free for what comes next.
 */
#include "snapshot.h"
#include "../image/filehash.h"
#include "../image/sparse.h"
#include "cache.h"
#include "fault.h"
#include "fd.h"
#include "log.h"
#include "snapshot_priv.h"
#include "vm_priv.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW	   ".new-"
#define NAME_BYTES SNAPSHOT_FOLDER_BYTES_MAX

/* ---- folders ------------------------------------------------------------ */

static void folder_remove(const struct link *l, const char *name)
{
	_cleanup_fd_ int all = -1;

	if (snapshots_open(l, false, &all))
		return;
	snapshot_forget(l, name);
	cache_folder_remove(all, name);
}

static void new_name(const struct snapping *s, char ret[NAME_BYTES])
{
	snprintf(ret, NAME_BYTES, NEW "%s", s->id);
}

/* ---- one that is being taken -------------------------------------------- */

static void fds_close(struct snapping *s)
{
	fd_close(&s->folder);
	fd_close(&s->init);
	for (int i = 0; i < SNAP_FILES; i++) {
		fd_close(&s->file[i]);
		fd_close(&s->from[i]);
	}
}

void snapping_free(struct snapping *s)
{
	fds_close(s);
	free(s);
}

static int files_make(struct snapping *s)
{
	_cleanup_fd_ int all = -1;
	char name[NAME_BYTES];
	int rc = snapshots_open(s->link, true, &all);

	if (rc)
		return rc;
	new_name(s, name);
	if (mkdirat(all, name, 0700))
		return -errno;
	s->folder = openat(all, name,
			   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->folder < 0) {
		rc = -errno;
		unlinkat(all, name, AT_REMOVEDIR);
		return rc;
	}
	for (int i = 0; i < SNAP_FILES; i++) {
		s->file[i] =
			openat(s->folder, snapshot_names[i],
			       O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (s->file[i] < 0)
			return -errno;
	}
	return 0;
}

int snapping_begin(struct link *l, const char *id, snapshot_fn fn, void *ctx,
		   struct snapping **ret)
{
	struct snapping *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->link = l;
	s->fn = fn;
	s->ctx = ctx;
	s->folder = s->init = -1;
	for (int i = 0; i < SNAP_FILES; i++)
		s->file[i] = s->from[i] = -1;
	snprintf(s->id, sizeof(s->id), "%s", id);
	rc = files_make(s);
	if (rc && s->folder < 0)
		snapping_free(s); /* a folder of that name is not its own */
	else if (rc)
		snapping_drop(s);
	if (rc)
		return rc;
	*ret = s;
	return 0;
}

void snapping_drop(struct snapping *s)
{
	char name[NAME_BYTES];

	new_name(s, name);
	fds_close(s);
	folder_remove(s->link, name);
	free(s);
}

static void tell(struct snapping *s)
{
	if (s->rc)
		log_warn("%s snapshot=failed: %s", s->id, s->error);
	s->fn(s->ctx, s->rc, s->rc ? s->error : NULL,
	      s->rc ? NULL : &s->result);
	snapping_free(s);
}

static void removal_run(struct job *j)
{
	struct snapping *s = container_of(j, struct snapping, job);
	char name[NAME_BYTES];

	new_name(s, name);
	fds_close(s);
	folder_remove(s->link, name);
	/* It may have its name already. */
	folder_remove(s->link, s->id);
}

static void job_is_done(struct job *j)
{
	struct snapping *s = container_of(j, struct snapping, job);

	if (s->vm)
		s->vm->snapping = NULL;
	if (j->link)
		tell(s);
	else
		snapping_free(s); /* the next start sweeps */
}

void snapping_fail(struct snapping *s, const char *what, int rc)
{
	s->rc = rc;
	snprintf(s->error, sizeof(s->error), "%s%s%s", what,
		 rc == -ESHUTDOWN ? "" : ": ",
		 rc == -ESHUTDOWN ? "" : strerror(-rc));
	s->is_with_worker = true;
	if (!job_start(s->link, &s->job, removal_run, job_is_done))
		return;
	removal_run(&s->job);
	s->job.link = s->link;
	job_is_done(&s->job);
}

/* ---- worker ------------------------------------------------------------- */

void snapping_copy(struct snapping *s)
{
	for (int i = 0; !s->rc && i < SNAP_FILES; i++)
		if (s->from[i] >= 0)
			s->rc = sparse_copy(s->from[i], s->file[i], NULL);
	fault_point(FAULT_SNAP_COPIED);
}

static int sealed(struct snapping *s)
{
	struct snapshot_result *r = &s->result;
	_cleanup_fd_ int all = -1;
	char name[NAME_BYTES];
	int rc = 0;

	for (int i = 0; i < SNAP_FILES; i++)
		if (fchmod(s->file[i], 0400) || fsync(s->file[i]))
			return -errno;
	r->state_bytes = sparse_allocated(s->file[SNAP_STATE]);
	r->mem_bytes = sparse_allocated(s->file[SNAP_MEM]);
	r->disk_bytes = sparse_allocated(s->file[SNAP_DISK]);
	/* The page cache has them still; the VM goes on meanwhile. */
	for (int i = 0; !rc && i < SNAP_FILES; i++)
		rc = snapshot_hash(s->link, i, s->file[i], true, &r->sums);
	if (!rc)
		rc = file_hash(&s->link->hashes, FILE_HASH_PLAIN, s->init,
			       false, r->sums.init);
	if (!rc)
		rc = snapshots_open(s->link, false, &all);
	if (rc)
		return rc;
	new_name(s, name);
	if (fsync(s->folder))
		return -errno;
	fault_point(FAULT_SNAP_SYNCED);
	if (renameat(all, name, all, s->id))
		return -errno;
	fault_point(FAULT_SNAP_NAMED);
	return fsync(all) ? -errno : 0;
}

static void seal_run(struct job *j)
{
	struct snapping *s = container_of(j, struct snapping, job);

	s->rc = sealed(s);
}

static void seal_done(struct job *j)
{
	struct snapping *s = container_of(j, struct snapping, job);

	if (j->link && s->rc)
		snapping_fail(s, "its files cannot be written", s->rc);
	else
		job_is_done(j);
}

void snapping_seal(struct snapping *s)
{
	s->is_with_worker = true;
	if (job_start(s->link, &s->job, seal_run, seal_done))
		snapping_fail(s, "its files cannot be written", -ENOMEM);
}

/* ---- of a stopped sandbox ------------------------------------------------ */

static void copy_run(struct job *j)
{
	snapping_copy(container_of(j, struct snapping, job));
}

static void copy_done(struct job *j)
{
	struct snapping *s = container_of(j, struct snapping, job);

	if (!j->link)
		snapping_free(s);
	else if (s->rc)
		snapping_fail(s, "its files cannot be copied", s->rc);
	else
		snapping_seal(s);
}

int stopped_snapshot(struct link *l, const char *sandbox, const char *id,
		     snapshot_fn fn, void *ctx)
{
	struct snapping *s;
	int rc = snapping_begin(l, id, fn, ctx, &s);

	if (rc)
		return rc;
	rc = vm_stopped_open(l, sandbox, s->from);
	s->init = rc ? -1 : open(l->init_path, O_RDONLY | O_CLOEXEC);
	if (!rc && s->init < 0)
		rc = -errno;
	if (!rc)
		rc = job_start(l, &s->job, copy_run, copy_done);
	if (rc)
		snapping_drop(s);
	else
		s->is_with_worker = true;
	return rc;
}

uint64_t stopped_bytes(const struct link *l, const char *sandbox)
{
	int fds[SNAP_FILES] = {-1, -1, -1};
	uint64_t sum = 0;

	(void)vm_stopped_open(l, sandbox, fds);
	for (int i = 0; i < SNAP_FILES; i++) {
		sum += fds[i] < 0 ? 0 : sparse_allocated(fds[i]);
		fd_close(&fds[i]);
	}
	return sum;
}

/* ---- removed --------------------------------------------------------------
 */

struct removal {
	struct job job;
	const struct link *link;
	char name[SNAPSHOT_FOLDER_BYTES_MAX];
};

static void remove_run(struct job *j)
{
	const struct removal *r = container_of(j, struct removal, job);

	folder_remove(r->link, r->name);
	fault_point(FAULT_SNAP_REMOVED);
}

static void remove_done(struct job *j)
{
	free(container_of(j, struct removal, job));
}

/* Gigabytes may take a while. */
void snapshot_remove(struct link *l, const char *name)
{
	struct removal *r = calloc(1, sizeof(*r));

	if (r) {
		r->link = l;
		snprintf(r->name, sizeof(r->name), "%s", name);
	}
	if (r && !job_start(l, &r->job, remove_run, remove_done))
		return;
	free(r);
	folder_remove(l, name);
}

void snapshots_each(struct link *l, void (*fn)(void *ctx, const char *name),
		    void *ctx)
{
	int all = -1;
	DIR *dir = snapshots_open(l, false, &all) ? NULL : fdopendir(all);
	struct dirent *d;

	if (!dir) {
		fd_close(&all);
		return;
	}
	while ((d = readdir(dir)))
		if ((*d->d_name != '.' ||
		     !strncmp(d->d_name, NEW, sizeof(NEW) - 1)) &&
		    strlen(d->d_name) < SNAPSHOT_FOLDER_BYTES_MAX)
			fn(ctx, d->d_name);
	closedir(dir);
}
