/*
 * Snapshots of held sandboxes: who asks for one, and under which key.
 *
 * Calls with one key meet in memory, as those that start something do; older
 * keys are looked up in the store before anything is taken.
 */
#include "engine_priv.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define OPERATION_SNAPSHOT "snapshot"

/* One call that waits for it. */
struct asker {
	struct list node;
	engine_snapshot_fn fn;
	void *ctx;
};

/* ---- answers ------------------------------------------------------------ */

/* All who asked; a function may ask again. */
static void answer(struct snap *s, const struct err *err,
		   const struct snapshot_rec *rec)
{
	while (!list_is_empty(&s->askers)) {
		struct asker *a =
			container_of(s->askers.next, struct asker, node);
		struct asker copy = *a;

		list_remove(&a->node);
		free(a);
		copy.fn(copy.ctx, err, rec);
	}
}

static int asker_add(struct snap *s, engine_snapshot_fn fn, void *ctx)
{
	struct asker *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->fn = fn;
	a->ctx = ctx;
	list_append(&s->askers, &a->node);
	return 0;
}

void snap_free(struct snap *s)
{
	list_remove(&s->node);
	free(s);
}

/* It is out of the list first: a call from within begins anew. */
void snap_end(struct snap *s, const struct err *err,
	      const struct snapshot_rec *rec)
{
	list_remove(&s->node);
	list_init(&s->node);
	answer(s, err, rec);
	snap_free(s);
}

void snap_store_failed(struct snap *s, int rc)
{
	struct err err = {0};

	if (rc == -ENOSPC) {
		err_set(&err, ERR_CAPACITY, NULL,
			"The daemon's disk is full; no snapshot was taken.");
		err.retry_after_s = ENGINE_RETRY_DISK_S;
	} else {
		store_error(&err, ERR_SNAPSHOT_NOT_FOUND, "snapshot", s->rec.id,
			    rc);
	}
	snap_end(s, &err, NULL);
}

void snaps_end(struct engine *e)
{
	struct list *n, *tmp;
	struct err err = {0};

	err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	list_for_each_safe(n, tmp, &e->snaps)
	{
		struct snap *s = container_of(n, struct snap, node);

		answer(s, &err, NULL);
		if (s->box) {
			s->box->snap = NULL;
			s->box->n_pending--;
			s->box = NULL;
		}
		/* The store's answer finds is_ending. */
		if (s->step == SNAP_WAITING || s->step == SNAP_TAKING)
			snap_free(s);
	}
}

struct store_begin snap_key(const struct snap *s)
{
	struct store_begin b = {
		.environment = s->rec.environment,
		.graph = s->rec.graph,
		.operation = OPERATION_SNAPSHOT,
		.key = s->key,
	};

	memcpy(b.request_hash, s->request_hash, HASH_BYTES);
	return b;
}

/* ---- asked -------------------------------------------------------------- */

static void on_made_before(void *ctx, int rc, struct snapshot_rec *r)
{
	struct snap *s = ctx;
	struct engine *e = s->e;
	struct err err = {0};

	if (e->is_ending) {
		snap_free(s);
	} else if (rc == -ENOENT) {
		err_set(&err, ERR_SNAPSHOT_NOT_FOUND, NULL,
			"The snapshot that was taken with this key was "
			"deleted.");
		snap_end(s, &err, NULL);
	} else if (rc) {
		snap_store_failed(s, rc);
	} else {
		snap_end(s, NULL, r);
	}
	engine_op_end(e);
}

/* The sandbox is not in memory: it has ended, or there is none. */
static void on_over(void *ctx, int rc, struct sandbox_rec *sbx)
{
	struct snap *s = ctx;
	struct engine *e = s->e;
	struct err err = {0};

	if (e->is_ending) {
		snap_free(s);
	} else {
		if (rc)
			store_error(&err, ERR_SANDBOX_NOT_FOUND, "sandbox",
				    s->rec.sandbox, rc);
		else
			err_not_running(&err, sbx);
		snap_end(s, &err, NULL);
	}
	engine_op_end(e);
}

static void key_is_known(struct snap *s, const struct store_found *f)
{
	const struct snapshot_rec *r = &s->rec;
	struct err err = {0};
	int rc;

	if (!f->is_same_request) {
		key_conflict(&err, s->key, r->graph);
		snap_end(s, &err, NULL);
		return;
	}
	rc = store_snapshot_get(s->e->store, r->environment, r->graph,
				f->command, on_made_before, s);
	if (rc)
		snap_store_failed(s, rc);
	else
		engine_op_begin(s->e);
}

static void key_is_new(struct snap *s)
{
	const struct snapshot_rec *r = &s->rec;
	const struct caller who = {.environment = r->environment,
				   .graph = r->graph};
	int rc;

	if (box_by_id(s->e, &who, r->sandbox)) {
		snap_take(s);
		return;
	}
	rc = store_sandbox_get(s->e->store, r->environment, r->graph,
			       r->sandbox, on_over, s);
	if (rc)
		snap_store_failed(s, rc);
	else
		engine_op_begin(s->e);
}

static void on_looked_up(void *ctx, int rc, const struct store_found *f)
{
	struct snap *s = ctx;
	struct engine *e = s->e;

	if (e->is_ending)
		snap_free(s);
	else if (rc)
		snap_store_failed(s, rc);
	else if (f->is_found)
		key_is_known(s, f);
	else
		key_is_new(s);
	engine_op_end(e);
}

static struct snap *snap_by_key(struct engine *e, const struct caller *who,
				const char *key)
{
	for (struct list *n = e->snaps.next; n != &e->snaps; n = n->next) {
		struct snap *s = container_of(n, struct snap, node);

		if (!strcmp(s->rec.environment, who->environment) &&
		    !strcmp(s->rec.graph, who->graph) && !strcmp(s->key, key))
			return s;
	}
	return NULL;
}

static struct snap *snap_new(struct engine *e, const struct caller *who,
			     const struct snapshot_spec *spec)
{
	struct snap *s = calloc(1, sizeof(*s));
	struct snapshot_rec *r;

	if (!s)
		return NULL;
	r = &s->rec;
	s->e = e;
	s->step = SNAP_ASKING;
	list_init(&s->askers);
	list_append(&e->snaps, &s->node);
	s->expires_in_seconds = spec->expires_in_seconds;
	snprintf(s->key, sizeof(s->key), "%s", spec->key);
	memcpy(s->request_hash, spec->request_hash, HASH_BYTES);
	snprintf(r->environment, sizeof(r->environment), "%s",
		 who->environment);
	snprintf(r->graph, sizeof(r->graph), "%s", who->graph);
	snprintf(r->sandbox, sizeof(r->sandbox), "%s", spec->sandbox);
	snprintf(r->name, sizeof(r->name), "%s", spec->name ? spec->name : "");
	return s;
}

static int spec_check(const struct caller *who,
		      const struct snapshot_spec *spec, struct err *err)
{
	static const char chars[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = spec->name ? strlen(spec->name) : 1;

	if (caller_check(who, err))
		return -1;
	if (!len || len > SNAPSHOT_NAME_BYTES_MAX ||
	    (spec->name && strspn(spec->name, chars) != len))
		return err_set(err, ERR_INVALID_REQUEST, "name",
			       "name is \"%.*s\", of %zu bytes; it must be 1 "
			       "to %d of a-z 0-9 . _ -.",
			       SNAPSHOT_NAME_BYTES_MAX,
			       log_text(spec->name, len).s, len,
			       SNAPSHOT_NAME_BYTES_MAX);
	if (spec->expires_in_seconds &&
	    (spec->expires_in_seconds < ENGINE_SNAPSHOT_SECONDS_MIN ||
	     spec->expires_in_seconds > ENGINE_SNAPSHOT_SECONDS_MAX))
		return err_set(err, ERR_INVALID_REQUEST, "expires_in_seconds",
			       "expires_in_seconds is %u; it must be %d to %d.",
			       spec->expires_in_seconds,
			       ENGINE_SNAPSHOT_SECONDS_MIN,
			       ENGINE_SNAPSHOT_SECONDS_MAX);
	return 0;
}

int engine_snapshot_create(struct engine *e, const struct caller *who,
			   const struct snapshot_spec *spec,
			   engine_snapshot_fn fn, void *ctx)
{
	struct snap *s = snap_by_key(e, who, spec->key);
	struct store_begin key;
	struct err err = {0};
	int rc;

	if (e->is_ending)
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	else if (!spec_check(who, spec, &err) && s &&
		 memcmp(s->request_hash, spec->request_hash, HASH_BYTES))
		key_conflict(&err, spec->key, who->graph);
	if (err.code) {
		fn(ctx, &err, NULL);
		return 0;
	}
	if (s)
		return asker_add(s, fn, ctx);
	s = snap_new(e, who, spec);
	rc = s ? asker_add(s, fn, ctx) : -ENOMEM;
	if (!rc) {
		key = snap_key(s);
		rc = store_key_find(e->store, &key, on_looked_up, s);
	}
	if (!rc) {
		engine_op_begin(e);
		return 0;
	}
	if (s) {
		while (!list_is_empty(&s->askers)) {
			struct asker *a = container_of(s->askers.next,
						       struct asker, node);

			list_remove(&a->node);
			free(a);
		}
		snap_free(s);
	}
	return rc;
}
