/*
 * Snapshots of held sandboxes: read, verified, listed, deleted, swept.
 *
 * Deleting is taking the other way round: first the record, then the files.
 * So files without a record are of no use to anybody, and are removed at the
 * start.
 */
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- read, verified, deleted --------------------------------------------- */

struct read_ask {
	struct engine *e;
	engine_snapshot_fn fn;
	engine_snapshots_fn list_fn;
	void *ctx;
	enum { READ_GET, READ_DELETE, READ_VERIFY } what;
	struct snapshot_rec rec; /* VERIFY: whose files are read */
};

static struct read_ask *read_ask_new(struct engine *e, void *ctx)
{
	struct read_ask *a = calloc(1, sizeof(*a));

	if (a) {
		a->e = e;
		a->ctx = ctx;
	}
	return a;
}

/* rc: of the store's function, which will call back if it is 0. */
static int asked(struct read_ask *a, int rc)
{
	if (rc)
		free(a);
	else
		engine_op_begin(a->e);
	return rc;
}

static void answer(struct read_ask *a, const struct err *err)
{
	a->fn(a->ctx, err, err ? NULL : &a->rec);
	free(a);
}

struct snapshot_from snapshot_from_of(const struct snapshot_rec *r)
{
	struct snapshot_from f = {.sums = r->sums};

	memcpy(f.id, r->id, sizeof(f.id));
	return f;
}

static void on_verified(void *ctx, const struct err *err)
{
	struct read_ask *a = ctx;

	a->e->verifying = NULL;
	if (err)
		log_error("%s snapshot=damaged: %s", a->rec.id, err->text);
	answer(a, err);
}

/* 0: on_verified comes. */
static int verify(struct read_ask *a, struct err *err)
{
	struct engine *e = a->e;
	const struct snapshot_from from = snapshot_from_of(&a->rec);

	if (e->is_ending)
		return err_set(err, ERR_UNAVAILABLE, NULL, NULL);
	if (e->verifying) {
		err_set(err, ERR_LIMIT_REACHED, NULL,
			"One snapshot is verified at a time, and %s is now.",
			e->verifying->rec.id);
		err->retry_after_s = ENGINE_RETRY_PLACES_S;
		return -1;
	}
	if (snapshot_verify(e->link, &from, on_verified, a, err))
		return -1;
	e->verifying = a;
	return 0;
}

void snap_verify_end(struct engine *e)
{
	struct read_ask *a = e->verifying;
	struct err err = {0};

	e->verifying = NULL;
	if (!a)
		return;
	err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	answer(a, &err);
}

static void on_one(void *ctx, int rc, struct snapshot_rec *r)
{
	struct read_ask *a = ctx;
	struct engine *e = a->e;
	struct err err = {0};
	bool is_over = true;

	if (rc)
		store_error(&err, ERR_SNAPSHOT_NOT_FOUND, "snapshot", "", rc);
	else
		a->rec = *r;
	if (!rc && a->what == READ_VERIFY) {
		is_over = verify(a, &err);
	} else if (!rc && a->what == READ_DELETE && !e->is_ending) {
		fault_point(FAULT_SNAP_DELETED);
		snapshot_remove(e->link, r->id);
	}
	if (is_over)
		answer(a, err.code ? &err : NULL);
	engine_op_end(e);
}

int engine_snapshot_get(struct engine *e, const struct caller *who,
			const char *id, engine_snapshot_fn fn, void *ctx)
{
	struct read_ask *a = read_ask_new(e, ctx);

	if (!a)
		return -ENOMEM;
	a->fn = fn;
	return asked(a, store_snapshot_get(e->store, who->environment,
					   who->graph, id, on_one, a));
}

int engine_snapshot_verify(struct engine *e, const struct caller *who,
			   const char *id, engine_snapshot_fn fn, void *ctx)
{
	struct read_ask *a = read_ask_new(e, ctx);

	if (!a)
		return -ENOMEM;
	a->fn = fn;
	a->what = READ_VERIFY;
	return asked(a, store_snapshot_get(e->store, who->environment,
					   who->graph, id, on_one, a));
}

int engine_snapshot_delete(struct engine *e, const struct caller *who,
			   const char *id, engine_snapshot_fn fn, void *ctx)
{
	struct read_ask *a = read_ask_new(e, ctx);

	if (!a)
		return -ENOMEM;
	a->fn = fn;
	a->what = READ_DELETE;
	fault_point(FAULT_SNAP_DELETE);
	return asked(a, store_snapshot_delete(e->store, who->environment,
					      who->graph, id, on_one, a));
}

static void on_list(void *ctx, int rc, struct snapshot_rec *r, size_t n,
		    bool has_more)
{
	struct read_ask a = *(struct read_ask *)ctx;
	struct err err = {0};

	free(ctx);
	if (rc)
		list_error(&err, rc);
	a.list_fn(a.ctx, rc ? &err : NULL, r, n, has_more);
	engine_op_end(a.e);
}

int engine_snapshot_list(struct engine *e, const struct caller *who,
			 const struct store_page *p, engine_snapshots_fn fn,
			 void *ctx)
{
	struct read_ask *a = read_ask_new(e, ctx);
	struct store_page mine = page_of(who, p);

	if (!a)
		return -ENOMEM;
	a->list_fn = fn;
	return asked(a, store_snapshot_list(e->store, &mine, on_list, a));
}

/* ---- at the start: files without a record are removed ---------------------
 */

/* Names of one size, NUL terminated each. */
struct names {
	struct bytes all;
};

static int name_add(struct names *n, const char *name)
{
	char padded[SNAPSHOT_FOLDER_BYTES_MAX] = "";

	snprintf(padded, sizeof(padded), "%s", name);
	return bytes_append(&n->all, padded, sizeof(padded));
}

static const char *name_at(const struct names *n, size_t i)
{
	size_t at = i * SNAPSHOT_FOLDER_BYTES_MAX;

	return at < n->all.len ? (const char *)n->all.data + at : NULL;
}

static bool has_name(const struct names *n, const char *name)
{
	const char *one;

	for (size_t i = 0; (one = name_at(n, i)); i++)
		if (!strcmp(one, name))
			return true;
	return false;
}

/* What was there when the engine began, against what has a record. */
struct sweep {
	struct engine *e;
	struct store_page page;
	char cursor[ID_BYTES_MAX];
	struct names folders, records;
	int rc;
};

static void sweep_free(struct sweep *s)
{
	bytes_finish(&s->folders.all);
	bytes_finish(&s->records.all);
	free(s);
}

static void sweep_run(struct sweep *s)
{
	const char *name;

	for (size_t i = 0; (name = name_at(&s->folders, i)); i++) {
		if (has_name(&s->records, name))
			continue;
		log_info("%s snapshot=swept: it has no record", name);
		snapshot_remove(s->e->link, name);
	}
}

static int sweep_page(struct sweep *s);

static void on_sweep_page(void *ctx, int rc, struct snapshot_rec *r, size_t n,
			  bool has_more)
{
	struct sweep *s = ctx;
	struct engine *e = s->e;

	for (size_t i = 0; !rc && i < n; i++)
		rc = name_add(&s->records, r[i].id);
	if (!rc && has_more && n && !e->is_ending) {
		memcpy(s->cursor, r[n - 1].id, sizeof(s->cursor));
		s->page.cursor = s->cursor;
		rc = sweep_page(s);
		if (!rc)
			s = NULL;
	} else if (!rc && !e->is_ending) {
		sweep_run(s);
	}
	if (rc)
		log_error("snapshots cannot be read: %s", strerror(-rc));
	if (s)
		sweep_free(s);
	engine_op_end(e);
}

static int sweep_page(struct sweep *s)
{
	int rc = store_snapshot_list(s->e->store, &s->page, on_sweep_page, s);

	if (!rc)
		engine_op_begin(s->e);
	return rc;
}

static void on_folder(void *ctx, const char *name)
{
	struct sweep *s = ctx;

	if (!s->rc)
		s->rc = name_add(&s->folders, name);
}

int snaps_load(struct engine *e)
{
	struct sweep *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->e = e;
	s->page.limit = 1000;
	snapshots_each(e->link, on_folder, s);
	rc = s->rc ? s->rc : sweep_page(s);
	if (rc)
		sweep_free(s);
	return rc;
}
