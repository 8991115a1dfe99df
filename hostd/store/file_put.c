/*
 * Table `file`: a File comes to a graph.
 *
 * One row for each hash in a graph.  The same bytes again are the same File:
 * what is said of them (name, type, origin) is taken over, its id and its time
 * stay.  Keys are rows of `idempotency`, written in the same transaction.
 */
#include "../clock.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct put_op {
	struct store_op op;
	bool has_key, is_new;
	char operation[32], key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t hash[HASH_BYTES];
	struct file_rec rec; /* owned */
	struct store_found found;
	store_file_put_fn fn;
	void *ctx;
};

static struct key_row row_of(const struct put_op *p)
{
	return (struct key_row){
		.environment = p->rec.environment,
		.graph = p->rec.graph,
		.operation = p->operation,
		.key = p->key,
		.hash = p->hash,
		.sandbox = p->rec.origin_sandbox,
		.command = p->rec.id,
		.created_ms = clock_wall_ms(),
	};
}

static int take_bytes(struct bytes *dst, const struct bytes *src)
{
	dst->len = 0;
	return bytes_append(dst, src->data, src->len);
}

/* What is not given is as it was. */
static int merge(struct file_rec *r, const struct file_rec *old)
{
	int rc = 0;

	memcpy(r->id, old->id, sizeof(r->id));
	r->uploaded_ms = old->uploaded_ms;
	if (!*r->content_type)
		memcpy(r->content_type, old->content_type,
		       sizeof(r->content_type));
	if (!r->name.len)
		rc = take_bytes(&r->name, &old->name);
	if (!rc && !*r->origin_sandbox) {
		memcpy(r->origin_sandbox, old->origin_sandbox,
		       sizeof(r->origin_sandbox));
		rc = take_bytes(&r->origin_path, &old->origin_path);
	}
	return rc;
}

/* The row with these bytes: 1 there is one, merged into the record, 0 none, or
 * -errno.  One that cannot be read is written anew. */
static int old_take(struct db *db, struct file_rec *r)
{
	struct query q =
		query(db, "SELECT seq, id, uploaded_ms, rec FROM file WHERE"
			  " environment = ?1 AND graph = ?2 AND sha256 = ?3");
	struct file_rec old = {0};
	const void *cbor;
	size_t len;
	int rc;

	q_text(&q, r->environment);
	q_text(&q, r->graph);
	q_blob(&q, r->sha256, HASH_BYTES);
	rc = q_row(&q);
	if (rc <= 0)
		return rc;
	r->seq = (uint64_t)q_int_at(&q, 0);
	cbor = q_blob_at(&q, 3, &len);
	rc = file_rec_decode(&old, cbor, len);
	if (rc && rc != -ENOMEM) {
		snprintf(old.id, sizeof(old.id), "%s", q_text_at(&q, 1));
		old.uploaded_ms = q_int_at(&q, 2);
		rc = 0;
	}
	if (!rc)
		rc = merge(r, &old);
	q_end(&q);
	file_rec_finish(&old);
	return rc ? rc : 1;
}

/* A type and a name that nobody gave. */
static int fill(struct file_rec *r)
{
	char hex[2 * HASH_BYTES + 1];

	if (!*r->content_type)
		snprintf(r->content_type, sizeof(r->content_type),
			 "application/octet-stream");
	if (r->name.len)
		return 0;
	for (size_t i = 0; i < HASH_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", r->sha256[i]);
	return bytes_append(&r->name, hex, sizeof(hex) - 1);
}

static int row_put(struct db *db, struct file_rec *r, bool is_new)
{
	_cleanup_bytes_ struct bytes cbor = {0}, name = {0};
	struct query q;
	int rc = fill(r);

	if (!rc)
		rc = file_rec_encode(r, &cbor);
	if (!rc)
		rc = bytes_append(&name, r->name.data, r->name.len);
	if (!rc)
		rc = bytes_append(&name, "", 1);
	if (rc)
		return rc;
	if (is_new)
		q = query(db, "INSERT INTO file(sha256, environment, graph,"
			      " name, rec, id, uploaded_ms)"
			      " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)");
	else
		q = query(db, "UPDATE file SET name = ?4, rec = ?5 WHERE"
			      " sha256 = ?1 AND environment = ?2 AND"
			      " graph = ?3");
	q_blob(&q, r->sha256, HASH_BYTES);
	q_text(&q, r->environment);
	q_text(&q, r->graph);
	q_text(&q, (const char *)name.data);
	q_blob(&q, cbor.data, cbor.len);
	if (is_new) {
		q_text(&q, r->id);
		q_int(&q, r->uploaded_ms);
	}
	rc = q_run(&q);
	if (!rc && is_new)
		r->seq = (uint64_t)sqlite3_last_insert_rowid(db->h);
	return rc;
}

static int put_exec(struct db *db, struct store_op *op)
{
	struct put_op *p = (struct put_op *)op;
	struct key_row key = row_of(p);
	int rc = p->has_key ? key_find_row(db, &key, &p->found) : 0;

	if (rc || p->found.is_found)
		return rc;
	rc = old_take(db, &p->rec);
	p->is_new = !rc;
	if (rc < 0)
		return rc;
	rc = graph_put(db, p->rec.environment, p->rec.graph);
	if (!rc)
		rc = row_put(db, &p->rec, p->is_new);
	if (!rc && p->has_key)
		rc = key_add_row(db, &key);
	return rc;
}

static void put_done(struct store_op *op)
{
	struct put_op *p = (struct put_op *)op;

	p->fn(p->ctx, op->rc, &p->found, p->is_new,
	      op->rc || p->found.is_found ? NULL : &p->rec);
	file_rec_finish(&p->rec);
	free(p);
}

int store_file_put(struct store *s, const struct store_begin *b,
		   const struct file_rec *r, store_file_put_fn fn, void *ctx)
{
	struct put_op *p;

	if (b && !begin_fits(b))
		return -EINVAL;
	p = calloc(1, sizeof(*p));
	if (!p || file_rec_copy(&p->rec, r)) {
		free(p);
		return -ENOMEM;
	}
	p->op.exec = put_exec;
	p->op.done = put_done;
	p->fn = fn;
	p->ctx = ctx;
	if (b) {
		p->has_key = true;
		snprintf(p->operation, sizeof(p->operation), "%s",
			 b->operation);
		snprintf(p->key, sizeof(p->key), "%s", b->key);
		memcpy(p->hash, b->request_hash, HASH_BYTES);
	}
	store_submit(s, &p->op);
	return 0;
}

/* ---- the key alone ------------------------------------------------------ */

struct key_op {
	struct store_op op;
	struct scope at; /* environment, graph; id: of the sandbox */
	char operation[32], key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	char value[ID_BYTES_MAX];
	uint8_t hash[HASH_BYTES];
	struct store_found found;
	store_begin_fn fn;
	void *ctx;
};

static int key_exec(struct db *db, struct store_op *op)
{
	struct key_op *k = (struct key_op *)op;
	const struct key_row row = {
		.environment = k->at.environment,
		.graph = k->at.graph,
		.operation = k->operation,
		.key = k->key,
		.hash = k->hash,
		.sandbox = k->at.id,
		.command = k->value,
		.created_ms = clock_wall_ms(),
	};
	int rc = key_find_row(db, &row, &k->found);

	return rc || k->found.is_found ? rc : key_add_row(db, &row);
}

static void key_done(struct store_op *op)
{
	struct key_op *k = (struct key_op *)op;

	k->fn(k->ctx, op->rc, &k->found);
	free(k);
}

int store_key_put(struct store *s, const struct store_begin *b,
		  const char *sandbox, const char *value, store_begin_fn fn,
		  void *ctx)
{
	struct key_op *k;

	if (!begin_fits(b) || strlen(value) >= sizeof(k->value))
		return -EINVAL;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->op.exec = key_exec;
	k->op.done = key_done;
	scope_set(&k->at, b->environment, b->graph, sandbox);
	snprintf(k->operation, sizeof(k->operation), "%s", b->operation);
	snprintf(k->key, sizeof(k->key), "%s", b->key);
	snprintf(k->value, sizeof(k->value), "%s", value);
	memcpy(k->hash, b->request_hash, HASH_BYTES);
	k->fn = fn;
	k->ctx = ctx;
	store_submit(s, &k->op);
	return 0;
}
