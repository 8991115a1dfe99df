/*
 * Import: a File of the graph goes into a workspace.
 *
 * One write of the guest, which asks for it piece by piece; each is read from
 * the disk by a worker meanwhile.  The guest gives the file its name when it
 * has all of it, so it is there whole or not at all; the last piece is given
 * only when all of them have the File's hash.  The key is written when it is
 * done.
 */
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void failed(struct move *m, const struct err *err)
{
	blob_reader_free(m->reader);
	m->reader = NULL;
	move_failed(m, err);
}

/* ---- the end ------------------------------------------------------------ */

static void on_key(void *ctx, int rc, const struct store_found *f)
{
	struct move *m = ctx;
	struct engine *e = m->e;
	struct err err = {0};

	(void)f;
	fault_point(FAULT_IMPORT_WRITTEN);
	if (rc) {
		store_error(&err, ERR_INTERNAL, "import", m->key, rc);
		move_failed(m, &err);
	} else {
		move_imported(m);
	}
	engine_op_end(e);
}

static void written(struct move *m)
{
	struct store_begin key = move_key(m);
	char bytes[ID_BYTES_MAX];
	struct err err = {0};
	int rc;

	fault_point(FAULT_IMPORT_DONE);
	m->step = MOVE_SEALING;
	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)m->bytes);
	rc = store_key_put(m->e->store, &key, m->sandbox, bytes, on_key, m);
	if (!rc) {
		engine_op_begin(m->e);
		return;
	}
	store_error(&err, ERR_INTERNAL, "import", m->key, rc);
	move_failed(m, &err);
}

static void on_written(void *ctx, const struct err *e,
		       const struct file_result *r)
{
	struct move *m = ctx;
	struct err err = m->in_err;

	(void)r;
	m->filing = NULL;
	blob_reader_free(m->reader);
	m->reader = NULL;
	/* What is wrong with the File is why the guest was told to give up. */
	if (e && !err.code)
		err = *e;
	if (err.code)
		move_failed(m, &err);
	else
		written(m);
}

/* ---- pieces ------------------------------------------------------------- */

static void on_read(void *ctx, int rc, const uint8_t *data, size_t len)
{
	struct move *m = ctx;

	if (!m->filing)
		return;
	if (rc) {
		graph_file_error(&m->in_err, NULL, m->sha256, m->graph, rc);
		log_error("%s import failed: %s", m->sandbox, m->in_err.text);
		engine_file_give_up(m->filing);
	} else {
		/* Else its end is told soon. */
		(void)engine_file_piece(m->filing, data, len);
	}
}

static void on_piece(void *ctx, size_t len)
{
	struct move *m = ctx;
	int rc = blob_read(m->reader, len);

	if (!rc)
		return;
	graph_file_error(&m->in_err, NULL, m->sha256, m->graph, rc);
	engine_file_give_up(m->filing);
}

static void write_it(struct move *m)
{
	const struct caller who = move_caller(m);
	const struct file_spec spec = {.sandbox = m->sandbox,
				       .op = GP_FILE_WRITE,
				       .path = &m->path,
				       .limit = 1,
				       .more = m->bytes,
				       .piece = on_piece};
	struct err err = {0};

	if (!engine_file(m->e, &who, &spec, on_written, m, &m->filing))
		return;
	m->filing = NULL;
	file_disk_error(&err, -ENOMEM);
	failed(m, &err);
}

static void on_file(void *ctx, int rc, struct file_rec *r)
{
	struct move *m = ctx;
	struct engine *e = m->e;
	struct err err = {0};
	int fd;

	if (!rc && e->is_ending)
		rc = -ESHUTDOWN;
	fd = rc ? rc : graph_file_bytes(e, r);
	rc = fd < 0 ? fd : 0;
	if (!rc) {
		m->bytes = r->bytes;
		m->step = MOVE_MOVING;
		rc = blob_reader_new(&m->reader, e->loop, fd, r->bytes,
				     r->sha256, on_read, m);
	}
	if (rc) {
		graph_file_error(&err, "source_sha256", m->sha256, m->graph,
				 rc);
		move_failed(m, &err);
	} else {
		write_it(m);
	}
	engine_op_end(e);
}

void import_start(struct move *m)
{
	struct file_ref ref = {.id = ""};
	struct err err = {0};

	memcpy(ref.sha256, m->sha256, HASH_BYTES);
	m->step = MOVE_ASKING; /* the store comes back to it */
	if (!store_file_get(m->e->store, m->environment, m->graph, &ref,
			    on_file, m)) {
		engine_op_begin(m->e);
		return;
	}
	file_disk_error(&err, -ENOMEM);
	move_failed(m, &err);
}

void import_forget(struct move *m)
{
	struct err err = {0};

	if (m->filing)
		engine_file_abandon(m->e, m->filing);
	m->filing = NULL;
	err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	failed(m, &err);
}
