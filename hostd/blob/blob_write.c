/*
 * Writing one: bytes are collected while a worker writes those before, so that
 * neither the loop nor the sender waits for the disk longer than it must; when
 * both are full the owner is told to pause (blob_is_full).
 *
 *   FILLING --finish--> SEALING --hashed, fsync--> NAMING --link, fsync-->
 * NAMED
 *
 * The hash is pinned before the worker links, on the loop's thread: nobody
 * removes a name that the worker finds there.
 */
#include "../image/filehash.h"
#include "blob_priv.h"
#include "fault.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PROC_PATH_BYTES 40

/* ---- on a worker -------------------------------------------------------- */

static int chunk_write(struct blob_writer *w)
{
	int rc = fd_pwrite_all(w->fd, w->busy.data, w->busy.len,
			       (off_t)w->written);

	if (!rc && !EVP_DigestUpdate(w->md, w->busy.data, w->busy.len))
		rc = -EIO;
	if (!rc)
		w->written += w->busy.len;
	return rc;
}

static int seal(struct blob_writer *w)
{
	if (!EVP_DigestFinal_ex(w->md, w->sha256, NULL))
		return -EIO;
	return fsync(w->fd) ? -errno : 0;
}

static int name_it(struct blob_writer *w)
{
	char name[2 * HASH_BYTES + 1], proc[PROC_PATH_BYTES];

	hash_to_hex(w->sha256, name);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", w->fd);
	if (!linkat(AT_FDCWD, proc, w->b->dir_fd, name, AT_SYMLINK_FOLLOW))
		w->is_new = true;
	else if (errno != EEXIST)
		return -errno;
	fault_point(FAULT_FILE_LINKED);
	return fsync(w->b->dir_fd) ? -errno : 0;
}

static void job_run(void *arg)
{
	struct blob_writer *w = arg;

	if (w->busy.len)
		w->job_rc = chunk_write(w);
	else if (w->step == BLOB_SEALING)
		w->job_rc = seal(w);
	else
		w->job_rc = name_it(w);
}

/* ---- on the loop -------------------------------------------------------- */

static void writer_drop(struct blob_writer *w, bool is_kept)
{
	struct blobs *b = w->b;

	list_remove(&w->node);
	if (w->step == BLOB_NAMED && !is_kept && b->orphan)
		b->orphan(b->orphan_ctx, w->sha256);
	fd_close(&w->fd);
	EVP_MD_CTX_free(w->md);
	bytes_finish(&w->fill);
	bytes_finish(&w->busy);
	free(w);
	blobs_unref(b);
}

static void job_done(void *arg);

static void job_start(struct blob_writer *w)
{
	w->has_job = !loop_work(w->b->loop, job_run, job_done, w);
	if (!w->has_job)
		w->rc = -ENOMEM;
}

/* What is to be done now is given to a worker, if it is free. */
static void go_on(struct blob_writer *w)
{
	if (w->has_job || w->rc)
		return;
	if (w->fill.len >= BLOB_CHUNK_BYTES ||
	    (w->is_finishing && w->fill.len)) {
		struct bytes t = w->busy;

		w->busy = w->fill;
		w->fill = t;
		job_start(w);
	} else if (w->is_finishing && w->step == BLOB_FILLING) {
		w->step = BLOB_SEALING;
		job_start(w);
	} else if (w->step == BLOB_NAMING) {
		job_start(w);
	}
}

static void tell_done(struct blob_writer *w)
{
	blob_done_fn fn = w->done;

	w->done = NULL;
	if (fn)
		fn(w->done_ctx, w->rc, w->sha256, w->written);
}

static void step_done(struct blob_writer *w)
{
	if (w->busy.len) {
		w->busy.len = 0;
	} else if (w->step == BLOB_SEALING) {
		w->is_pinned = true;
		w->step = BLOB_NAMING;
		fault_point(FAULT_FILE_SEALED);
	} else if (w->step == BLOB_NAMING) {
		w->step = BLOB_NAMED;
		w->b->bytes += w->is_new ? w->written : 0;
		w->b->count += w->is_new;
		fault_point(FAULT_FILE_NAMED);
	}
}

static void job_done(void *arg)
{
	struct blob_writer *w = arg;
	bool was_full = blob_is_full(w);

	w->has_job = false;
	if (w->job_rc && !w->rc)
		w->rc = w->job_rc;
	/* Linked, and not known to last: it is there all the same. */
	if (w->rc && w->step == BLOB_NAMING && w->is_new) {
		w->b->bytes += w->written;
		w->b->count++;
		w->step = BLOB_NAMED;
	}
	if (!w->rc)
		step_done(w);
	if (w->is_dead) {
		writer_drop(w, false);
		return;
	}
	go_on(w);
	if (w->done && (w->rc || w->step == BLOB_NAMED))
		tell_done(w);
	else if (was_full || w->rc)
		w->room(w->ctx);
}

/* ---- the calls ---------------------------------------------------------- */

int blob_writer_new(struct blob_writer **ret, struct blobs *b,
		    blob_room_fn room, void *ctx)
{
	struct blob_writer *w = calloc(1, sizeof(*w));
	int rc = 0;

	if (!w)
		return -ENOMEM;
	list_append(&b->writers, &w->node);
	b->n_refs++;
	w->b = b;
	w->room = room;
	w->ctx = ctx;
	w->fd = openat(b->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (w->fd < 0)
		rc = -errno;
	w->md = EVP_MD_CTX_new();
	if (!rc && (!w->md || !EVP_DigestInit_ex(w->md, EVP_sha256(), NULL)))
		rc = -ENOMEM;
	if (rc)
		writer_drop(w, false);
	else
		*ret = w;
	return rc;
}

void blob_writer_free(struct blob_writer *w, bool is_kept)
{
	if (!w)
		return;
	w->is_dead = true;
	if (!w->has_job)
		writer_drop(w, is_kept);
}

int blob_write(struct blob_writer *w, const void *data, size_t len)
{
	if (w->rc)
		return w->rc;
	if (bytes_append(&w->fill, data, len)) {
		w->rc = -ENOMEM;
		return w->rc;
	}
	w->taken += len;
	go_on(w);
	return w->rc;
}

bool blob_is_full(const struct blob_writer *w)
{
	return w->has_job && w->fill.len >= BLOB_CHUNK_BYTES;
}

int blob_error(const struct blob_writer *w)
{
	return w->rc;
}

uint64_t blob_written(const struct blob_writer *w)
{
	return w->taken;
}

int blob_finish(struct blob_writer *w, blob_done_fn done, void *ctx)
{
	w->is_finishing = true;
	go_on(w);
	if (w->rc)
		return w->rc;
	w->done = done;
	w->done_ctx = ctx;
	return 0;
}
