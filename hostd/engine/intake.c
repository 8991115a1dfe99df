/*
 * A File on its way into a graph: bytes to the disk, then its record.
 *
 *   taking    bytes come: of an upload, of a workspace
 *   sealing   (blob) all of them are on the disk, and have their name
 *   writing   (store) the record makes them a File
 *
 * What is given up before the record leaves nothing: bytes without a record are
 * removed, at once or by the next start.
 */
#include "../clock.h"
#include "engine_priv.h"
#include "fault.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Of unknown size: room is asked for in such steps. */
#define STEP_BYTES (64ull << 20)

/* ---- errors ------------------------------------------------------------- */

void file_disk_error(struct err *err, int rc)
{
	if (rc == -ENOSPC || rc == -EDQUOT) {
		err_set(err, ERR_CAPACITY, NULL,
			"The daemon's disk is full; nothing was kept.");
		err->retry_after_s = ENGINE_RETRY_DISK_S;
		return;
	}
	err_set(err, rc == -ENOMEM ? ERR_UNAVAILABLE : ERR_INTERNAL, NULL,
		"The File cannot be written: %s; nothing was kept.",
		strerror(-rc));
}

static int too_large(const struct engine *e, uint64_t bytes, struct err *err)
{
	return err_set(err, ERR_GRAPH_FILE_TOO_LARGE, NULL,
		       "The File has %s%llu bytes; at most %llu are taken "
		       "(file_max_mib).",
		       bytes > e->file_max_bytes + 1 ? "" : "more than ",
		       (unsigned long long)(bytes > e->file_max_bytes + 1
						    ? bytes
						    : e->file_max_bytes),
		       (unsigned long long)e->file_max_bytes);
}

/* ---- taking ------------------------------------------------------------- */

static void on_room(void *ctx)
{
	struct intake *in = ctx;

	in->room(in->ctx);
}

/* There is room for so many in all; 0, or -1 with `err`. */
static int promise(struct intake *in, uint64_t bytes, struct err *err)
{
	if (bytes <= in->promised_bytes)
		return 0;
	if (space_for_file(in->e, bytes - in->promised_bytes, err))
		return -1;
	in->promised_bytes = bytes;
	return 0;
}

int intake_begin(struct intake *in, struct engine *e, uint64_t bytes,
		 struct err *err)
{
	int rc;

	in->e = e;
	list_init(&in->node);
	if (bytes != UINT64_MAX && bytes > e->file_max_bytes)
		return too_large(e, bytes, err);
	if (promise(in, bytes == UINT64_MAX ? 0 : bytes, err))
		return -1;
	rc = blob_writer_new(&in->w, e->blobs, on_room, in);
	if (rc) {
		in->w = NULL;
		file_disk_error(err, rc);
		return -1;
	}
	list_append(&e->intakes, &in->node);
	return 0;
}

uint64_t intakes_left(const struct engine *e)
{
	uint64_t sum = 0;

	for (struct list *n = e->intakes.next; n != &e->intakes; n = n->next) {
		const struct intake *in = container_of(n, struct intake, node);
		uint64_t has = in->w ? blob_written(in->w) : 0;

		sum += in->promised_bytes > has ? in->promised_bytes - has : 0;
	}
	return sum;
}

int intake_write(struct intake *in, const void *data, size_t len,
		 struct err *err)
{
	uint64_t bytes = blob_written(in->w) + len;
	int rc;

	if (bytes > in->e->file_max_bytes)
		return too_large(in->e, bytes, err);
	if (bytes > in->promised_bytes &&
	    promise(in, bytes + STEP_BYTES, err) && promise(in, bytes, err))
		return -1;
	memset(err, 0, sizeof(*err));
	rc = blob_write(in->w, data, len);
	if (!rc)
		return 0;
	file_disk_error(err, rc);
	return -1;
}

void intake_drop(struct intake *in, bool is_kept)
{
	list_remove(&in->node);
	blob_writer_free(in->w, is_kept);
	in->w = NULL;
	in->promised_bytes = 0;
}

/* ---- the record --------------------------------------------------------- */

static void on_put(void *ctx, int rc, const struct store_found *f, bool is_new,
		   struct file_rec *r)
{
	struct intake *in = ctx;
	struct engine *e = in->e;
	struct err err = {0};

	fault_point(FAULT_FILE_WRITTEN);
	if (rc == -ENOSPC)
		file_disk_error(&err, rc);
	else if (rc)
		store_error(&err, ERR_GRAPH_FILE_NOT_FOUND, "file", in->rec.id,
			    rc);
	/* With the key of another call that was quicker: that one's. */
	intake_drop(in, !rc && !f->is_found);
	in->done(in->ctx, rc ? &err : NULL, f, is_new, r);
	engine_op_end(e);
}

static void on_named(void *ctx, int rc, const uint8_t sha256[HASH_BYTES],
		     uint64_t bytes)
{
	struct intake *in = ctx;
	struct engine *e = in->e;
	struct store_found none = {0};
	struct err err = {0};

	/* The store may be closed; the next start sweeps. */
	if (!rc && e->is_ending)
		rc = -ESHUTDOWN;
	if (!rc)
		rc = id_make(in->rec.id, "fil_", e->node);
	if (!rc) {
		memcpy(in->rec.sha256, sha256, HASH_BYTES);
		in->rec.bytes = bytes;
		in->rec.uploaded_ms = clock_wall_ms();
		fault_point(FAULT_FILE_WRITE);
		rc = store_file_put(e->store, in->has_key ? &in->key : NULL,
				    &in->rec, on_put, in);
	}
	if (!rc)
		return; /* on_put, with the same hold of the engine */
	file_disk_error(&err, rc);
	intake_drop(in, false);
	in->done(in->ctx, &err, &none, false, NULL);
	engine_op_end(e);
}

int intake_end(struct intake *in, struct err *err)
{
	int rc = blob_finish(in->w, on_named, in);

	if (!rc) {
		engine_op_begin(in->e);
		return 0;
	}
	file_disk_error(err, rc);
	return -1;
}
