/*
 * Table `snapshot`: add, get, list, delete, expire.
 *
 * The row is what makes a snapshot be there: its files are complete before it
 * is written, and are removed after it is.  A record that cannot be read is
 * left out of lists and told in the log; its files stay.
 */
#include "../clock.h"
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- add ---------------------------------------------------------------- */

struct add_op {
	struct store_op op;
	char operation[32], key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t hash[HASH_BYTES];
	struct snapshot_rec rec;
	struct store_found found;
	store_begin_fn fn;
	void *ctx;
};

static int row_add(struct db *db, const struct snapshot_rec *r)
{
	_cleanup_bytes_ struct bytes cbor = {0};
	struct query q;
	int rc = snapshot_rec_encode(r, &cbor);

	if (rc)
		return rc;
	q = query(db, "INSERT INTO snapshot(id, environment, graph, sandbox,"
		      " created_ms, rec, expires_ms)"
		      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)");
	q_text(&q, r->id);
	q_text(&q, r->environment);
	q_text(&q, r->graph);
	q_text(&q, r->sandbox);
	q_int(&q, r->created_ms);
	q_blob(&q, cbor.data, cbor.len);
	q_int(&q, r->expires_ms);
	return q_run(&q);
}

static int add_exec(struct db *db, struct store_op *op)
{
	struct add_op *a = (struct add_op *)op;
	const struct key_row key = {
		.environment = a->rec.environment,
		.graph = a->rec.graph,
		.operation = a->operation,
		.key = a->key,
		.hash = a->hash,
		.sandbox = a->rec.sandbox,
		.command = a->rec.id,
		.created_ms = a->rec.created_ms,
	};
	const struct event_at at = {a->rec.environment, a->rec.graph, a->rec.id,
				    "", EVENT_SNAPSHOT};
	int rc = key_find_row(db, &key, &a->found);

	if (rc || a->found.is_found)
		return rc;
	rc = row_add(db, &a->rec);
	if (!rc)
		rc = event_add_bare(db, &at);
	return rc ? rc : key_add_row(db, &key);
}

static void add_done(struct store_op *op)
{
	struct add_op *a = (struct add_op *)op;

	a->fn(a->ctx, op->rc, &a->found);
	free(a);
}

int store_snapshot_add(struct store *s, const struct store_begin *b,
		       const struct snapshot_rec *r, store_begin_fn fn,
		       void *ctx)
{
	struct add_op *a;

	if (!begin_fits(b))
		return -EINVAL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->op.exec = add_exec;
	a->op.done = add_done;
	snprintf(a->operation, sizeof(a->operation), "%s", b->operation);
	snprintf(a->key, sizeof(a->key), "%s", b->key);
	memcpy(a->hash, b->request_hash, HASH_BYTES);
	a->rec = *r;
	a->fn = fn;
	a->ctx = ctx;
	store_submit(s, &a->op);
	return 0;
}

/* ---- get, delete -------------------------------------------------------- */

struct one_op {
	struct store_op op;
	struct scope at;
	struct snapshot_rec rec;
	store_snapshot_fn fn;
	void *ctx;
};

static int get_exec(struct db *db, struct store_op *op)
{
	struct one_op *o = (struct one_op *)op;
	struct query q = query(db, "SELECT rec FROM snapshot WHERE id = ?1 AND"
				   " environment = ?2 AND graph = ?3");
	const void *p;
	size_t len;
	int rc;

	q_text(&q, o->at.id);
	q_text(&q, o->at.environment);
	q_text(&q, o->at.graph);
	rc = q_row(&q);
	if (rc <= 0)
		return rc ? rc : -ENOENT;
	p = q_blob_at(&q, 0, &len);
	rc = snapshot_rec_decode(&o->rec, p, len);
	q_end(&q);
	return rc && rc != -ENOMEM ? -EBADMSG : rc;
}

static int row_delete(struct db *db, const char *id)
{
	struct query q = query(db, "DELETE FROM snapshot WHERE id = ?1");

	int rc;

	q_text(&q, id);
	rc = q_run(&q);
	return rc ? rc : event_erase(db, id);
}

/* One that cannot be read may be deleted, too: its id is known. */
static int delete_exec(struct db *db, struct store_op *op)
{
	struct one_op *o = (struct one_op *)op;
	int rc = get_exec(db, op);

	if (rc && rc != -EBADMSG)
		return rc;
	memcpy(o->rec.id, o->at.id, sizeof(o->rec.id));
	return row_delete(db, o->at.id);
}

static void one_done(struct store_op *op)
{
	struct one_op *o = (struct one_op *)op;

	o->fn(o->ctx, op->rc, op->rc ? NULL : &o->rec);
	free(o);
}

static int one(struct store *s, const struct one_op *what,
	       const char *environment, const char *graph, const char *id)
{
	struct one_op *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	*o = *what;
	o->op.done = one_done;
	scope_set(&o->at, environment, graph, id);
	store_submit(s, &o->op);
	return 0;
}

int store_snapshot_get(struct store *s, const char *environment,
		       const char *graph, const char *id, store_snapshot_fn fn,
		       void *ctx)
{
	const struct one_op get = {.op = {.exec = get_exec, .is_read = true},
				   .fn = fn,
				   .ctx = ctx};

	return one(s, &get, environment, graph, id);
}

int store_snapshot_delete(struct store *s, const char *environment,
			  const char *graph, const char *id,
			  store_snapshot_fn fn, void *ctx)
{
	const struct one_op del = {
		.op.exec = delete_exec, .fn = fn, .ctx = ctx};

	return one(s, &del, environment, graph, id);
}

/* ---- expire -------------------------------------------------------------- */

struct expire_op {
	struct store_op op;
	int64_t now_ms, next_ms;
	char id[ID_BYTES_MAX];
	store_expired_fn fn;
	void *ctx;
};

static int expire_exec(struct db *db, struct store_op *op)
{
	struct expire_op *x = (struct expire_op *)op;
	struct query q = query(db, "SELECT id, expires_ms FROM snapshot WHERE"
				   " expires_ms > 0 ORDER BY expires_ms"
				   " LIMIT 1");
	int rc = q_row(&q);

	*x->id = 0;
	x->next_ms = 0;
	if (rc <= 0)
		return rc;
	x->next_ms = q_int_at(&q, 1);
	snprintf(x->id, sizeof(x->id), "%s", q_text_at(&q, 0));
	q_end(&q);
	if (x->next_ms <= x->now_ms)
		return row_delete(db, x->id);
	*x->id = 0;
	return 0;
}

static void expire_done(struct store_op *op)
{
	struct expire_op *x = (struct expire_op *)op;

	x->fn(x->ctx, op->rc, !op->rc && *x->id ? x->id : NULL,
	      op->rc ? 0 : x->next_ms);
	free(x);
}

int store_snapshot_expire(struct store *s, int64_t now_ms, store_expired_fn fn,
			  void *ctx)
{
	struct expire_op *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->op.exec = expire_exec;
	x->op.done = expire_done;
	x->now_ms = now_ms;
	x->fn = fn;
	x->ctx = ctx;
	store_submit(s, &x->op);
	return 0;
}

/* ---- list --------------------------------------------------------------- */

static struct query list_query(struct db *db, const struct store_page *p,
			       int64_t before)
{
	/* Without LIMIT: rows may be left out. */
	struct query q =
		query(db, "SELECT id, rec FROM snapshot WHERE"
			  " (?1 IS NULL OR environment = ?1) AND"
			  " (?2 IS NULL OR graph = ?2) AND rowid < ?3 AND"
			  " (?4 IS NULL OR sandbox = ?4) ORDER BY rowid DESC");

	q_text(&q, p->environment);
	q_text(&q, p->graph);
	q_int(&q, before);
	q_text(&q, p->sandbox);
	return q;
}

/* A record that cannot be read takes no place; for the administrator it is
 * there, with nothing but its id. */
static int list_row(const struct list_op *l, const struct query *q, void *rec)
{
	struct snapshot_rec *r = rec;
	size_t len;
	const void *cbor = q_blob_at(q, 1, &len);

	if (!snapshot_rec_decode(r, cbor, len))
		return 0;
	log_error("%s store: the snapshot's record cannot be read; it is left "
		  "out",
		  q_text_at(q, 0));
	memset(r, 0, sizeof(*r));
	snprintf(r->id, sizeof(r->id), "%s", q_text_at(q, 0));
	return l->page.environment ? 1 : 0;
}

static void list_tell(const struct list_op *l)
{
	l->fn.snapshots(l->ctx, l->op.rc, l->recs, l->n, l->has_more);
}

static const struct list_kind list_kind = {
	.rec_bytes = sizeof(struct snapshot_rec),
	.cursor_sql = "SELECT rowid FROM snapshot WHERE id = ?1 AND"
		      " (?2 IS NULL OR environment = ?2) AND"
		      " (?3 IS NULL OR graph = ?3)",
	.query = list_query,
	.row = list_row,
	.tell = list_tell,
};

int store_snapshot_list(struct store *s, const struct store_page *p,
			store_snapshots_fn fn, void *ctx)
{
	const struct list_op what = {
		.kind = &list_kind, .fn.snapshots = fn, .ctx = ctx};

	return list_start(s, p, &what);
}
