/* Tables `environment` and `key`: API keys by their hash. */
#include "../clock.h"
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- add
 * --------------------------------------------------------------------- */

struct add_op {
	struct store_op op;
	struct key_info k;
	uint8_t hash[HASH_BYTES];
	store_rc_fn fn;
	void *ctx;
};

static int environment_put(struct db *db, const struct key_info *k,
			   const struct bytes *cbor)
{
	struct query q = query(
		db, "INSERT INTO environment(id, plan, is_enabled, created_ms,"
		    " rec) VALUES(?1, ?2, ?3, ?4, ?5) ON CONFLICT(id) DO"
		    " UPDATE SET plan = ?2, is_enabled = ?3 WHERE ?6");

	q_text(&q, k->environment);
	q_int(&q, k->plan);
	q_int(&q, k->is_enabled);
	q_int(&q, clock_wall_ms());
	q_blob(&q, cbor->data, cbor->len);
	q_int(&q, k->changes_environment);
	return q_run(&q);
}

static int changed(struct db *db, const char *environment, const char *name)
{
	const struct event_at at = {environment, "", environment, name,
				    EVENT_KEY};

	return event_add_bare(db, &at);
}

static int add_exec(struct db *db, struct store_op *op)
{
	struct add_op *a = (struct add_op *)op;
	_cleanup_bytes_ struct bytes cbor = {0};
	struct query q;
	int rc = key_rec_encode(&a->k, &cbor);

	if (!rc)
		rc = environment_put(db, &a->k, &cbor);
	if (rc)
		return rc;
	/* A name whose key was revoked may be used again. */
	q = query(db, "DELETE FROM \"key\" WHERE environment = ?1 AND name = ?2"
		      " AND revoked_ms > 0");
	q_text(&q, a->k.environment);
	q_text(&q, a->k.name);
	rc = q_run(&q);
	if (rc)
		return rc;
	q = query(db, "INSERT INTO \"key\"(hash, environment, name, created_ms,"
		      " rec, is_test) VALUES(?1, ?2, ?3, ?4, ?5, ?6)");
	q_blob(&q, a->hash, HASH_BYTES);
	q_text(&q, a->k.environment);
	q_text(&q, a->k.name);
	q_int(&q, clock_wall_ms());
	q_blob(&q, cbor.data, cbor.len);
	q_int(&q, a->k.is_test);
	rc = q_run(&q);
	return rc ? rc : changed(db, a->k.environment, a->k.name);
}

static void add_done(struct store_op *op)
{
	struct add_op *a = (struct add_op *)op;

	a->fn(a->ctx, op->rc);
	free(a);
}

int store_key_add(struct store *s, const struct key_info *k,
		  const uint8_t hash[HASH_BYTES], store_rc_fn fn, void *ctx)
{
	struct add_op *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->op.exec = add_exec;
	a->op.done = add_done;
	a->k = *k;
	memcpy(a->hash, hash, HASH_BYTES);
	a->fn = fn;
	a->ctx = ctx;
	store_submit(s, &a->op);
	return 0;
}

/* ---- revoke
 * -------------------------------------------------------------------- */

struct revoke_op {
	struct store_op op;
	char environment[ID_BYTES_MAX], name[64];
	store_rc_fn fn;
	void *ctx;
};

static int revoke_exec(struct db *db, struct store_op *op)
{
	struct revoke_op *r = (struct revoke_op *)op;
	struct query q = query(db, "UPDATE \"key\" SET revoked_ms = ?3 WHERE"
				   " environment = ?1 AND name = ?2 AND"
				   " revoked_ms = 0");
	int rc;

	q_text(&q, r->environment);
	q_text(&q, r->name);
	q_int(&q, clock_wall_ms());
	rc = q_run(&q);
	if (!rc && !sqlite3_changes(db->h))
		rc = -ENOENT;
	return rc ? rc : changed(db, r->environment, r->name);
}

static void revoke_done(struct store_op *op)
{
	struct revoke_op *r = (struct revoke_op *)op;

	r->fn(r->ctx, op->rc);
	free(r);
}

int store_key_revoke(struct store *s, const char *environment, const char *name,
		     store_rc_fn fn, void *ctx)
{
	struct revoke_op *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->op.exec = revoke_exec;
	r->op.done = revoke_done;
	if (strlen(environment) < sizeof(r->environment) &&
	    strlen(name) < sizeof(r->name)) {
		snprintf(r->environment, sizeof(r->environment), "%s",
			 environment);
		snprintf(r->name, sizeof(r->name), "%s", name);
	}
	r->fn = fn;
	r->ctx = ctx;
	store_submit(s, &r->op);
	return 0;
}

/* ---- list
 * -------------------------------------------------------------------- */

struct listed_key {
	struct key_info k;
	uint8_t hash[HASH_BYTES];
};

struct keys_op {
	struct store_op op;
	struct listed_key *keys;
	size_t n, cap;
	store_key_fn fn;
	void *ctx;
};

static int keys_exec(struct db *db, struct store_op *op)
{
	struct keys_op *l = (struct keys_op *)op;
	/* Plan and enabled are the environment's, as of its newest key. */
	struct query q = query(
		db, "SELECT k.rec, k.hash, k.revoked_ms, e.plan, e.is_enabled,"
		    " k.name, k.is_test FROM \"key\" k JOIN environment e"
		    " ON e.id = k.environment ORDER BY k.seq");
	const void *p, *hash;
	size_t len, hash_len;
	int rc;

	while ((rc = q_row(&q)) > 0) {
		struct listed_key *k;

		if (l->n == l->cap) {
			size_t cap = l->cap ? l->cap * 2 : 16;

			k = realloc(l->keys, cap * sizeof(*k));
			if (!k) {
				q_end(&q);
				return -ENOMEM;
			}
			l->keys = k;
			l->cap = cap;
		}
		k = &l->keys[l->n];
		p = q_blob_at(&q, 0, &len);
		hash = q_blob_at(&q, 1, &hash_len);
		if (hash_len != HASH_BYTES || key_rec_decode(&k->k, p, len)) {
			/* Left out: a key that cannot be read opens nothing. */
			log_error("store: the record of key \"%s\" cannot be "
				  "read; it is left out",
				  log_quoted(q_text_at(&q, 5),
					     strlen(q_text_at(&q, 5)))
					  .s);
			continue;
		}
		memcpy(k->hash, hash, HASH_BYTES);
		k->k.is_revoked = q_int_at(&q, 2) > 0;
		k->k.plan =
			q_int_at(&q, 3) == PLAN_FULL ? PLAN_FULL : PLAN_FREE;
		k->k.is_enabled = q_int_at(&q, 4);
		k->k.is_test = q_int_at(&q, 6);
		l->n++;
	}
	return rc;
}

static void keys_done(struct store_op *op)
{
	struct keys_op *l = (struct keys_op *)op;

	for (size_t i = 0; !op->rc && i < l->n; i++)
		l->fn(l->ctx, 0, &l->keys[i].k, l->keys[i].hash);
	l->fn(l->ctx, op->rc, NULL, NULL);
	free(l->keys);
	free(l);
}

int store_key_list(struct store *s, store_key_fn fn, void *ctx)
{
	struct keys_op *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->op.exec = keys_exec;
	l->op.done = keys_done;
	l->op.is_read = true;
	l->fn = fn;
	l->ctx = ctx;
	store_submit(s, &l->op);
	return 0;
}
