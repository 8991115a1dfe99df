/*
 * Table `template`: save, get, list.
 *
 * A row is one version of a name, and never changes; code and config lie in
 * `blob`, so that a list reads neither.  The version is the next of its name
 * when the row is written: saves come one after the other on the store's
 * thread, and each gets a number of its own.  Nothing here is ever deleted, and
 * the keys of saves stay as long as what they saved.
 */
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* In `blob`; 1 to 4 are output of commands. */
enum part { PART_CODE = 5, PART_CONFIG = 6 };

/* ---- rows --------------------------------------------------------------- */

static int blob_put(struct db *db, const char *owner, enum part part,
		    const struct bytes *b)
{
	struct query q = query(db, "INSERT INTO blob(owner, part, expires_ms,"
				   " data) VALUES(?1, ?2, 0, ?3)");

	q_text(&q, owner);
	q_int(&q, part);
	q_blob(&q, b->data, b->len);
	return q_run(&q);
}

static int row_add(struct db *db, const struct template_rec *r)
{
	_cleanup_bytes_ struct bytes cbor = {0};
	struct query q;
	int rc = template_rec_encode(r, &cbor);

	if (rc)
		return rc;
	q = query(db, "INSERT INTO template(id, environment, graph, name,"
		      " version, created_ms, rec)"
		      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)");
	q_text(&q, r->id);
	q_text(&q, r->environment);
	q_text(&q, r->graph);
	q_text(&q, r->name);
	q_int(&q, r->version);
	q_int(&q, r->created_ms);
	q_blob(&q, cbor.data, cbor.len);
	rc = q_run(&q);
	if (!rc && r->has_code)
		rc = blob_put(db, r->id, PART_CODE, &r->code);
	if (!rc && r->has_config)
		rc = blob_put(db, r->id, PART_CONFIG, &r->config);
	return rc;
}

/* The next version of the name.  -EDQUOT: no more in this graph. */
static int next_version(struct db *db, struct template_rec *r)
{
	struct query q = query(db, "SELECT count(*) FROM template WHERE"
				   " environment = ?1 AND graph = ?2");
	int64_t n = 0;
	int rc;

	q_text(&q, r->environment);
	q_text(&q, r->graph);
	while ((rc = q_row(&q)) > 0)
		n = q_int_at(&q, 0);
	if (rc)
		return rc;
	if (n >= STORE_TEMPLATES_MAX)
		return -EDQUOT;
	q = query(db, "SELECT max(version) FROM template WHERE environment ="
		      " ?1 AND graph = ?2 AND name = ?3");
	q_text(&q, r->environment);
	q_text(&q, r->graph);
	q_text(&q, r->name);
	while ((rc = q_row(&q)) > 0)
		r->version = (uint32_t)q_int_at(&q, 0) + 1;
	return rc;
}

static int blobs_read(struct db *db, struct template_rec *r)
{
	struct query q = query(db, "SELECT part, data FROM blob WHERE"
				   " owner = ?1");
	const void *p;
	size_t len;
	int rc;

	q_text(&q, r->id);
	while ((rc = q_row(&q)) > 0) {
		bool is_code = q_int_at(&q, 0) == PART_CODE;

		p = q_blob_at(&q, 1, &len);
		rc = bytes_append(is_code ? &r->code : &r->config, p, len);
		if (rc) {
			q_end(&q);
			return rc;
		}
	}
	if (!rc &&
	    (r->code.len != r->code_bytes || r->config.len != r->config_bytes))
		rc = -EBADMSG;
	return rc;
}

/* `q` is at its row, whose column 0 is the record. */
static int row_read(struct db *db, struct query *q, struct template_rec *r)
{
	size_t len;
	const void *p = q_blob_at(q, 0, &len);
	int rc = template_rec_decode(r, p, len);

	q_end(q);
	if (!rc)
		rc = blobs_read(db, r);
	if (!rc)
		return 0;
	template_rec_finish(r);
	return rc == -ENOTSUP ? -EBADMSG : rc;
}

static int read_by_id(struct db *db, const struct scope *at,
		      struct template_rec *r)
{
	struct query q = query(db, "SELECT rec FROM template WHERE id = ?1 AND"
				   " environment = ?2 AND graph = ?3");
	int rc;

	q_text(&q, at->id);
	q_text(&q, at->environment);
	q_text(&q, at->graph);
	rc = q_row(&q);
	return rc > 0 ? row_read(db, &q, r) : rc ? rc : -ENOENT;
}

static int read_by_name(struct db *db, const struct scope *at, const char *name,
			struct template_rec *r)
{
	struct query q =
		query(db, "SELECT rec FROM template WHERE environment = ?1 AND"
			  " graph = ?2 AND name = ?3 ORDER BY version DESC"
			  " LIMIT 1");
	int rc;

	q_text(&q, at->environment);
	q_text(&q, at->graph);
	q_text(&q, name);
	rc = q_row(&q);
	return rc > 0 ? row_read(db, &q, r) : rc ? rc : -ENOENT;
}

/* ---- save --------------------------------------------------------------- */

/* What a call is about, and its key. */
struct saved_op {
	struct store_op op;
	char operation[32], key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t hash[HASH_BYTES];
	struct scope at;
	char name[TEMPLATE_NAME_BYTES_MAX + 1];
	bool is_name;
	struct template_rec rec; /* owned */
	struct store_found found;
	store_saved_fn saved_fn; /* one of the two */
	store_template_fn fn;
	void *ctx;
};

static void saved_free(struct saved_op *o)
{
	template_rec_finish(&o->rec);
	free(o);
}

static void saved_done(struct store_op *op)
{
	struct saved_op *o = (struct saved_op *)op;
	bool is_there = !op->rc && *o->rec.id;

	if (o->saved_fn)
		o->saved_fn(o->ctx, op->rc, &o->found,
			    is_there ? &o->rec : NULL);
	else
		o->fn(o->ctx, op->rc, is_there ? &o->rec : NULL);
	saved_free(o);
}

static struct key_row key_of(const struct saved_op *o)
{
	return (struct key_row){
		.environment = o->at.environment,
		.graph = o->at.graph,
		.operation = o->operation,
		.key = o->key,
		.hash = o->hash,
		.sandbox = "",
		.command = o->rec.id,
		.created_ms = o->rec.created_ms,
	};
}

static int save_exec(struct db *db, struct store_op *op)
{
	struct saved_op *o = (struct saved_op *)op;
	struct key_row key = key_of(o);
	int rc = key_find_row(db, &key, &o->found);

	if (rc)
		return rc;
	if (o->found.is_found) {
		template_rec_finish(&o->rec);
		if (!o->found.is_same_request)
			return 0;
		memcpy(o->at.id, o->found.command, sizeof(o->at.id));
		return read_by_id(db, &o->at, &o->rec);
	}
	rc = next_version(db, &o->rec);
	if (!rc)
		rc = graph_put(db, o->rec.environment, o->rec.graph);
	if (!rc)
		rc = row_add(db, &o->rec);
	return rc ? rc : key_add_row(db, &key);
}

/* NULL: no memory. */
static struct saved_op *saved_new(const struct store_begin *b)
{
	struct saved_op *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->op.done = saved_done;
	scope_set(&o->at, b->environment, b->graph, "");
	snprintf(o->operation, sizeof(o->operation), "%s", b->operation);
	snprintf(o->key, sizeof(o->key), "%s", b->key);
	memcpy(o->hash, b->request_hash, HASH_BYTES);
	return o;
}

int store_template_save(struct store *s, const struct store_begin *b,
			const struct template_rec *r, store_saved_fn fn,
			void *ctx)
{
	struct saved_op *o;

	if (!begin_fits(b))
		return -EINVAL;
	o = saved_new(b);
	if (!o)
		return -ENOMEM;
	if (template_rec_copy(&o->rec, r)) {
		saved_free(o);
		return -ENOMEM;
	}
	o->op.exec = save_exec;
	o->saved_fn = fn;
	o->ctx = ctx;
	store_submit(s, &o->op);
	return 0;
}

/* ---- get, use ----------------------------------------------------------- */

static int get_exec(struct db *db, struct store_op *op)
{
	struct saved_op *o = (struct saved_op *)op;
	int rc = o->is_name ? -ENOENT : read_by_id(db, &o->at, &o->rec);

	return rc == -ENOENT ? read_by_name(db, &o->at, o->name, &o->rec) : rc;
}

static int use_exec(struct db *db, struct store_op *op)
{
	struct saved_op *o = (struct saved_op *)op;
	struct key_row key = key_of(o);
	int rc = key_find_row(db, &key, &o->found);

	return rc || o->found.is_found ? rc : get_exec(db, op);
}

/* A text that is too long is the name of nothing. */
static void look_for(struct saved_op *o, const char *which)
{
	if (strlen(which) < sizeof(o->at.id))
		snprintf(o->at.id, sizeof(o->at.id), "%s", which);
	if (strlen(which) < sizeof(o->name))
		snprintf(o->name, sizeof(o->name), "%s", which);
	o->op.is_read = true;
}

int store_template_get(struct store *s, const char *environment,
		       const char *graph, const char *which, bool is_name,
		       store_template_fn fn, void *ctx)
{
	const struct store_begin none = {
		.environment = environment,
		.graph = graph,
		.operation = "",
		.key = "",
	};
	struct saved_op *o = saved_new(&none);

	if (!o)
		return -ENOMEM;
	o->op.exec = get_exec;
	o->is_name = is_name;
	o->fn = fn;
	o->ctx = ctx;
	look_for(o, which);
	store_submit(s, &o->op);
	return 0;
}

int store_template_use(struct store *s, const struct store_begin *b,
		       const char *which, store_saved_fn fn, void *ctx)
{
	struct saved_op *o;

	if (!begin_fits(b))
		return -EINVAL;
	o = saved_new(b);
	if (!o)
		return -ENOMEM;
	o->op.exec = use_exec;
	o->saved_fn = fn;
	o->ctx = ctx;
	look_for(o, which);
	store_submit(s, &o->op);
	return 0;
}

/* ---- list --------------------------------------------------------------- */

static struct query list_query(struct db *db, const struct store_page *p,
			       int64_t before)
{
	/* Without LIMIT: rows may be left out. */
	struct query q =
		query(db, "SELECT id, rec FROM template AS t WHERE"
			  " environment = ?1 AND graph = ?2 AND rowid < ?3 AND"
			  " (name = ?4 OR (?4 IS NULL AND version = (SELECT"
			  " max(version) FROM template AS u WHERE"
			  " u.environment = t.environment AND"
			  " u.graph = t.graph AND u.name = t.name)))"
			  " ORDER BY rowid DESC");

	q_text(&q, p->environment);
	q_text(&q, p->graph);
	q_int(&q, before);
	q_text(&q, p->name);
	return q;
}

static int list_row(const struct list_op *l, const struct query *q, void *rec)
{
	size_t len;
	const void *cbor = q_blob_at(q, 1, &len);
	int rc = template_rec_decode(rec, cbor, len);

	(void)l;
	if (!rc || rc == -ENOMEM)
		return rc;
	log_error("%s store: the template's record cannot be read; it is left "
		  "out",
		  q_text_at(q, 0));
	return 1;
}

static void list_finish(void *rec)
{
	template_rec_finish(rec);
}

static void list_tell(const struct list_op *l)
{
	l->fn.templates(l->ctx, l->op.rc, l->recs, l->n, l->has_more);
}

static const struct list_kind list_kind = {
	.rec_bytes = sizeof(struct template_rec),
	.cursor_sql = "SELECT rowid FROM template WHERE id = ?1 AND"
		      " environment = ?2 AND graph = ?3",
	.query = list_query,
	.row = list_row,
	.finish = list_finish,
	.tell = list_tell,
};

int store_template_list(struct store *s, const struct store_page *p,
			store_templates_fn fn, void *ctx)
{
	const struct list_op what = {
		.kind = &list_kind, .fn.templates = fn, .ctx = ctx};

	return list_start(s, p, &what);
}
