/*
 * Snapshots of held sandboxes: how one is taken.
 *
 *   ASKING   is the key known already?  (store)
 *   WAITING  another snapshot of the sandbox is being taken
 *   TAKING   (link) of a VM that runs, or of files of a stopped one
 *   WRITING  the files are whole; the record makes them a snapshot (store)
 *
 * Calls with one key meet in memory, as those that start something do.  There
 * is no record of one that is being taken: after a crash it is whole or gone.
 */
#include "../link/snapshot.h"
#include "../clock.h"
#include "engine_priv.h"
#include "fault.h"
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

static void snap_free(struct snap *s)
{
	list_remove(&s->node);
	free(s);
}

/* It is out of the list first: a call from within begins anew. */
static void snap_end(struct snap *s, const struct err *err,
		     const struct snapshot_rec *rec)
{
	list_remove(&s->node);
	list_init(&s->node);
	answer(s, err, rec);
	snap_free(s);
}

static void store_failed(struct snap *s, int rc)
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

/* ---- written ------------------------------------------------------------ */

static void on_written(void *ctx, int rc, const struct store_found *f)
{
	struct snap *s = ctx;
	struct engine *e = s->e;

	fault_point(FAULT_SNAP_WRITTEN);
	if (e->is_ending) {
		snap_free(s); /* without a record, the next start sweeps it */
	} else if (rc || f->is_found) {
		snapshot_remove(e->link, s->rec.id);
		store_failed(s, rc ? rc : -EEXIST);
	} else {
		log_info("%s snapshot=%s bytes=%llu", s->rec.sandbox, s->rec.id,
			 (unsigned long long)(s->rec.state_bytes +
					      s->rec.mem_bytes +
					      s->rec.disk_bytes));
		snap_end(s, NULL, &s->rec);
	}
	engine_op_end(e);
}

static struct store_begin key_of(const struct snap *s)
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

static void write_record(struct snap *s)
{
	struct store_begin key = key_of(s);
	int rc;

	s->step = SNAP_WRITING;
	fault_point(FAULT_SNAP_WRITE);
	rc = store_snapshot_add(s->e->store, &key, &s->rec, on_written, s);
	if (!rc) {
		engine_op_begin(s->e);
		return;
	}
	snapshot_remove(s->e->link, s->rec.id);
	store_failed(s, rc);
}

/* ---- taken -------------------------------------------------------------- */

static void snap_take(struct snap *s);

/* The oldest; NULL = none. */
static struct snap *waiting_for(const struct box *b)
{
	struct engine *e = b->e;

	for (struct list *n = e->snaps.next; n != &e->snaps; n = n->next) {
		struct snap *s = container_of(n, struct snap, node);

		if (s->step == SNAP_WAITING &&
		    !strcmp(s->rec.sandbox, b->rec.id))
			return s;
	}
	return NULL;
}

/* The sandbox is free of it: what waited for that goes on. */
static void let_go(struct snap *s)
{
	struct box *b = s->box;
	struct snap *next;

	s->box = NULL;
	b->snap = NULL;
	box_stop_on(b);
	box_resume_vm(b);
	while (!b->snap && (next = waiting_for(b)))
		snap_take(next);
	b->n_pending--;
	box_maybe_free(b);
}

static void not_taken(struct err *err, const struct snap *s, int rc,
		      const char *why)
{
	enum err_code code = rc == -ENOSPC	? ERR_CAPACITY
			     : rc == -ESHUTDOWN ? ERR_NOT_RUNNING
			     : rc == -EAGAIN || rc == -ETIMEDOUT
				     ? ERR_UNAVAILABLE
				     : ERR_INTERNAL;

	err_set(err, code, code == ERR_NOT_RUNNING ? "sandbox" : NULL,
		"No snapshot of the sandbox %s was taken, and nothing else is "
		"changed: %.180s.",
		s->rec.sandbox, why);
	if (code == ERR_CAPACITY || code == ERR_UNAVAILABLE)
		err->retry_after_s = ENGINE_RETRY_DISK_S;
}

static void on_taken(void *ctx, int rc, const char *error,
		     const struct snapshot_result *r)
{
	struct snap *s = ctx;
	struct err err = {0};

	if (rc) {
		s->step = SNAP_WRITING; /* not to be taken by let_go */
		not_taken(&err, s, rc, error);
		let_go(s);
		snap_end(s, &err, NULL);
		return;
	}
	s->rec.state_bytes = r->state_bytes;
	s->rec.mem_bytes = r->mem_bytes;
	s->rec.disk_bytes = r->disk_bytes;
	memcpy(s->rec.state_sha256, r->state_sha256, HASH_BYTES);
	memcpy(s->rec.init_sha256, r->init_sha256, HASH_BYTES);
	s->step = SNAP_WRITING;
	let_go(s);
	write_record(s);
}

static void rec_fill(struct snapshot_rec *r, const struct sandbox_rec *b)
{
	memcpy(r->template_name, b->template_name, sizeof(r->template_name));
	memcpy(r->template_id, b->template_id, sizeof(r->template_id));
	r->template_version = b->template_version;
	memcpy(r->template_base, b->template_base, sizeof(r->template_base));
	memcpy(r->image_sha256, b->image_sha256, HASH_BYTES);
	memcpy(r->kernel_sha256, b->kernel_sha256, HASH_BYTES);
	r->limits = b->limits;
	r->incarnation = b->incarnation;
	r->created_ms = clock_wall_ms();
}

/* Is it in a state of which one can be taken?  0 or -1 with `err`. */
static int may_take(const struct box *b, struct err *err)
{
	if (b->rec.kind == SBX_KIND_HELD &&
	    ((b->rec.status == SBX_RUNNING && b->vm) ||
	     (b->rec.status == SBX_STOPPED && b->has_files)))
		return 0;
	if (b->rec.kind != SBX_KIND_HELD)
		return err_set(err, ERR_NOT_RUNNING, "sandbox",
			       "The sandbox %s is of a one-call run; snapshots "
			       "are of sandboxes that are held.",
			       b->rec.id);
	err_not_running(err, &b->rec);
	return -1;
}

static uint64_t bytes_of(const struct box *b)
{
	struct vm_space vm;

	if (!b->vm)
		return stopped_bytes(b->e->link, b->rec.id);
	vm = vm_space_of(b->vm);
	return vm.mem_bytes + vm.disk_bytes + vm.named_disk_bytes;
}

/* Of the box with the id in its record. */
static void snap_take(struct snap *s)
{
	const struct caller who = {.environment = s->rec.environment,
				   .graph = s->rec.graph};
	struct box *b = box_by_id(s->e, &who, s->rec.sandbox);
	struct err err = {0};
	int rc;

	if (!b)
		err_set(&err, ERR_NOT_RUNNING, "sandbox",
			"The sandbox %s has ended.", s->rec.sandbox);
	if (!b || may_take(b, &err)) {
		snap_end(s, &err, NULL);
		return;
	}
	if (b->snap) {
		s->step = SNAP_WAITING;
		return;
	}
	s->step = SNAP_TAKING;
	s->bytes = bytes_of(b);
	if (space_for_snapshot(s, &err)) {
		snap_end(s, &err, NULL);
		return;
	}
	rec_fill(&s->rec, &b->rec);
	rc = id_make(s->rec.id, "snp_", s->e->node);
	if (!rc && b->vm)
		rc = vm_snapshot(b->vm, s->rec.id, on_taken, s);
	else if (!rc)
		rc = stopped_snapshot(s->e->link, b->rec.id, s->rec.id,
				      on_taken, s);
	if (rc) {
		not_taken(&err, s, rc, strerror(-rc));
		snap_end(s, &err, NULL);
		return;
	}
	s->box = b;
	b->snap = s;
	b->n_pending++;
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
		store_failed(s, rc);
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
		store_failed(s, rc);
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
		store_failed(s, rc);
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
		store_failed(s, rc);
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
			       "name has %zu characters; it must be 1 to %d of "
			       "a-z 0-9 . _ -.",
			       len, SNAPSHOT_NAME_BYTES_MAX);
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
		key = key_of(s);
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
