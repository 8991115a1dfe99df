/*
 * Table `file`: Files of graphs are read, listed, deleted.
 *
 * Each is of one graph; the bytes of a hash are of all graphs that have a row
 * with it, and free when the last one is deleted.  A record that cannot be read
 * is left out of lists and told in the log; it may be deleted.
 */
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- read --------------------------------------------------------------- */

/* The caller finishes r; -ENOENT, -EBADMSG. */
static int row_read(struct db *db, const struct scope *at,
		    const struct file_ref *ref, struct file_rec *r)
{
	bool by_id = *ref->id;
	struct query q =
		by_id ? query(db, "SELECT seq, rec FROM file WHERE"
				  " environment = ?1 AND graph = ?2 AND"
				  " id = ?3")
		      : query(db, "SELECT seq, rec FROM file WHERE"
				  " environment = ?1 AND graph = ?2 AND"
				  " sha256 = ?3");
	const void *cbor;
	size_t len;
	int rc;

	q_text(&q, at->environment);
	q_text(&q, at->graph);
	if (by_id)
		q_text(&q, ref->id);
	else
		q_blob(&q, ref->sha256, HASH_BYTES);
	rc = q_row(&q);
	if (rc <= 0)
		return rc ? rc : -ENOENT;
	cbor = q_blob_at(&q, 1, &len);
	rc = file_rec_decode(r, cbor, len);
	r->seq = (uint64_t)q_int_at(&q, 0);
	q_end(&q);
	return rc && rc != -ENOMEM ? -EBADMSG : rc;
}

/* One, or some: `n_recs` of them were read. */
struct find_op {
	struct store_op op;
	struct scope at;
	struct file_ref *refs; /* owned */
	struct file_rec *recs; /* owned */
	size_t n, n_recs;
	store_file_fn fn; /* one of the two */
	store_files_fn all_fn;
	void *ctx;
};

static int find_exec(struct db *db, struct store_op *op)
{
	struct find_op *f = (struct find_op *)op;
	int rc = 0;

	while (!rc && f->n_recs < f->n) {
		rc = row_read(db, &f->at, &f->refs[f->n_recs],
			      &f->recs[f->n_recs]);
		f->n_recs += !rc;
	}
	return rc;
}

static void find_free(struct find_op *f)
{
	for (size_t i = 0; f->recs && i < f->n_recs; i++)
		file_rec_finish(&f->recs[i]);
	free(f->recs);
	free(f->refs);
	free(f);
}

static void find_done(struct store_op *op)
{
	struct find_op *f = (struct find_op *)op;

	if (f->fn)
		f->fn(f->ctx, op->rc, op->rc ? NULL : f->recs);
	else
		f->all_fn(f->ctx, op->rc, op->rc ? NULL : f->recs, f->n_recs,
			  false);
	find_free(f);
}

static int find(struct store *s, const char *environment, const char *graph,
		const struct file_ref *refs, const struct find_op *what)
{
	struct find_op *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	*f = *what;
	f->refs = calloc(f->n, sizeof(*f->refs));
	f->recs = calloc(f->n, sizeof(*f->recs));
	if (!f->refs || !f->recs) {
		find_free(f);
		return -ENOMEM;
	}
	memcpy(f->refs, refs, f->n * sizeof(*refs));
	scope_set(&f->at, environment, graph, "");
	f->op.exec = find_exec;
	f->op.done = find_done;
	f->op.is_read = true;
	store_submit(s, &f->op);
	return 0;
}

int store_file_get(struct store *s, const char *environment, const char *graph,
		   const struct file_ref *ref, store_file_fn fn, void *ctx)
{
	const struct find_op one = {.n = 1, .fn = fn, .ctx = ctx};

	return find(s, environment, graph, ref, &one);
}

int store_file_find(struct store *s, const char *environment, const char *graph,
		    const struct file_ref *refs, size_t n, store_files_fn fn,
		    void *ctx)
{
	const struct find_op all = {.n = n, .all_fn = fn, .ctx = ctx};

	return find(s, environment, graph, refs, &all);
}

/* ---- deleted ------------------------------------------------------------ */

struct gone_op {
	struct store_op op;
	struct scope at;
	uint8_t sha256[HASH_BYTES];
	bool is_last;
	store_file_gone_fn fn;
	void *ctx;
};

static int unused_exec(struct db *db, struct store_op *op)
{
	struct gone_op *g = (struct gone_op *)op;
	struct query q =
		query(db, "SELECT 1 FROM file WHERE sha256 = ?1 LIMIT 1");
	int rc;

	q_blob(&q, g->sha256, HASH_BYTES);
	rc = q_row(&q);
	q_end(&q);
	g->is_last = !rc;
	return rc < 0 ? rc : 0;
}

static int delete_exec(struct db *db, struct store_op *op)
{
	struct gone_op *g = (struct gone_op *)op;
	struct query q = query(db, "DELETE FROM file WHERE environment = ?1 AND"
				   " graph = ?2 AND sha256 = ?3");
	int rc;

	q_text(&q, g->at.environment);
	q_text(&q, g->at.graph);
	q_blob(&q, g->sha256, HASH_BYTES);
	rc = q_run(&q);
	if (!rc && !sqlite3_changes64(db->h))
		return -ENOENT;
	return rc ? rc : unused_exec(db, op);
}

static void gone_done(struct store_op *op)
{
	struct gone_op *g = (struct gone_op *)op;

	g->fn(g->ctx, op->rc, !op->rc && g->is_last);
	free(g);
}

static int gone(struct store *s, const struct gone_op *what,
		const uint8_t sha256[HASH_BYTES])
{
	struct gone_op *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	*g = *what;
	memcpy(g->sha256, sha256, HASH_BYTES);
	g->op.done = gone_done;
	store_submit(s, &g->op);
	return 0;
}

int store_file_delete(struct store *s, const char *environment,
		      const char *graph, const uint8_t sha256[HASH_BYTES],
		      store_file_gone_fn fn, void *ctx)
{
	struct gone_op del = {.op.exec = delete_exec, .fn = fn, .ctx = ctx};

	scope_set(&del.at, environment, graph, "");
	return gone(s, &del, sha256);
}

int store_file_unused(struct store *s, const uint8_t sha256[HASH_BYTES],
		      store_file_gone_fn fn, void *ctx)
{
	const struct gone_op look = {
		.op = {.exec = unused_exec, .is_read = true},
		.fn = fn,
		.ctx = ctx};

	return gone(s, &look, sha256);
}

/* ---- list --------------------------------------------------------------- */

static struct query list_query(struct db *db, const struct store_page *p,
			       int64_t before)
{
	/* Without LIMIT: rows may be left out. */
	struct query q = query(db, "SELECT id, rec, seq FROM file WHERE"
				   " (?1 IS NULL OR environment = ?1) AND"
				   " (?2 IS NULL OR graph = ?2) AND seq < ?3"
				   " AND (?4 IS NULL OR name = ?4)"
				   " ORDER BY seq DESC");

	q_text(&q, p->environment);
	q_text(&q, p->graph);
	q_int(&q, before);
	q_text(&q, p->name);
	return q;
}

static int list_row(const struct list_op *l, const struct query *q, void *rec)
{
	struct file_rec *r = rec;
	size_t len;
	const void *cbor = q_blob_at(q, 1, &len);
	int rc = file_rec_decode(r, cbor, len);

	(void)l;
	r->seq = (uint64_t)q_int_at(q, 2);
	if (!rc || rc == -ENOMEM)
		return rc;
	log_error("%s store: the File's record cannot be read; it is left out",
		  q_text_at(q, 0));
	return 1;
}

static void list_finish(void *rec)
{
	file_rec_finish(rec);
}

static void list_tell(const struct list_op *l)
{
	l->fn.files(l->ctx, l->op.rc, l->recs, l->n, l->has_more);
}

static const struct list_kind list_kind = {
	.rec_bytes = sizeof(struct file_rec),
	/* One that was deleted meanwhile has its place all the same. */
	.cursor_sql = "SELECT CAST(?1 AS INTEGER) WHERE ?2 IS ?2 AND ?3 IS ?3",
	.query = list_query,
	.row = list_row,
	.finish = list_finish,
	.tell = list_tell,
};

int store_file_list(struct store *s, const struct store_page *p,
		    store_files_fn fn, void *ctx)
{
	const struct list_op what = {
		.kind = &list_kind, .fn.files = fn, .ctx = ctx};

	return list_start(s, p, &what);
}

/* ---- all hashes, at the start ------------------------------------------- */

struct hashes_op {
	struct store_op op;
	int (*fn)(void *ctx, const uint8_t sha256[HASH_BYTES]);
	void *ctx;
};

static int hashes_exec(struct db *db, struct store_op *op)
{
	struct hashes_op *h = (struct hashes_op *)op;
	struct query q = query(db, "SELECT DISTINCT sha256 FROM file ORDER BY"
				   " sha256");
	int rc;

	while ((rc = q_row(&q)) > 0) {
		size_t len;
		const void *hash = q_blob_at(&q, 0, &len);

		rc = len == HASH_BYTES ? h->fn(h->ctx, hash) : 0;
		if (rc < 0) {
			q_end(&q);
			return rc;
		}
	}
	return rc;
}

int store_file_hashes(struct store *s,
		      int (*fn)(void *ctx, const uint8_t sha256[HASH_BYTES]),
		      void *ctx)
{
	struct hashes_op h = {.op.exec = hashes_exec, .fn = fn, .ctx = ctx};

	store_run_now(s, &h.op);
	return h.op.rc;
}
