/*
 * Snapshots of held sandboxes: how one is taken.
 *
 *   ASKING   is the key known already?  (snapshot_ask.c)
 *   WAITING  another snapshot of the sandbox is being taken
 *   TAKING   (link) of a VM that runs, or of files of a stopped one
 *   WRITING  the files are whole; the record makes them a snapshot (store)
 *
 * There is no record of one that is being taken: after a crash it is whole or
 * gone.
 */
#include "../link/snapshot.h"
#include "../clock.h"
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- written ------------------------------------------------------------ */

static void is_kept(struct snap *s)
{
	struct engine *e = s->e;

	e->snap_stats.n_taken++;
	e->snap_stats.us += (uint64_t)(clock_mono_us() - s->began_us);
	log_info("%s snapshot=%s bytes=%llu", s->rec.sandbox, s->rec.id,
		 (unsigned long long)(s->rec.state_bytes + s->rec.mem_bytes +
				      s->rec.disk_bytes));
	if (s->rec.expires_ms)
		snaps_expire(e);
	snap_end(s, NULL, &s->rec);
}

static void on_written(void *ctx, int rc, const struct store_found *f)
{
	struct snap *s = ctx;
	struct engine *e = s->e;

	fault_point(FAULT_SNAP_WRITTEN);
	if (e->is_ending) {
		snap_free(s); /* without a record, the next start sweeps it */
	} else if (rc || f->is_found) {
		e->snap_stats.n_failed++;
		snapshot_remove(e->link, s->rec.id);
		snap_store_failed(s, rc ? rc : -EEXIST);
	} else {
		is_kept(s);
	}
	engine_op_end(e);
}

static void write_record(struct snap *s)
{
	struct store_begin key = snap_key(s);
	int rc;

	s->step = SNAP_WRITING;
	fault_point(FAULT_SNAP_WRITE);
	rc = store_snapshot_add(s->e->store, &key, &s->rec, on_written, s);
	if (!rc) {
		engine_op_begin(s->e);
		return;
	}
	s->e->snap_stats.n_failed++;
	snapshot_remove(s->e->link, s->rec.id);
	snap_store_failed(s, rc);
}

/* ---- taken -------------------------------------------------------------- */

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
		s->e->snap_stats.n_failed++;
		s->step = SNAP_WRITING; /* not to be taken by let_go */
		not_taken(&err, s, rc, error);
		let_go(s);
		snap_end(s, &err, NULL);
		return;
	}
	s->rec.state_bytes = r->state_bytes;
	s->rec.mem_bytes = r->mem_bytes;
	s->rec.disk_bytes = r->disk_bytes;
	s->rec.sums = r->sums;
	s->e->snap_stats.paused_us += (uint64_t)r->paused_us;
	s->step = SNAP_WRITING;
	let_go(s);
	write_record(s);
}

static void rec_fill(struct snap *s, const struct sandbox_rec *b)
{
	struct snapshot_rec *r = &s->rec;

	memcpy(r->template_name, b->template_name, sizeof(r->template_name));
	memcpy(r->template_id, b->template_id, sizeof(r->template_id));
	r->template_version = b->template_version;
	memcpy(r->template_base, b->template_base, sizeof(r->template_base));
	memcpy(r->snapshot, b->snapshot, sizeof(r->snapshot));
	memcpy(r->image_sha256, b->image_sha256, HASH_BYTES);
	memcpy(r->kernel_sha256, b->kernel_sha256, HASH_BYTES);
	r->limits = b->limits;
	r->incarnation = b->incarnation;
	r->created_ms = clock_wall_ms();
	if (s->expires_in_seconds)
		r->expires_ms =
			r->created_ms + (int64_t)s->expires_in_seconds * 1000;
}

/* Is it in a state of which one can be taken?  0 or -1 with `err`. */
static int may_take(const struct box *b, struct err *err)
{
	if (b->rec.kind == SBX_KIND_HELD &&
	    ((b->rec.status == SBX_RUNNING && b->vm) ||
	     (b->rec.status == SBX_STOPPED && b->has_files)))
		return 0;
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
void snap_take(struct snap *s)
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
	s->began_us = clock_mono_us();
	s->bytes = bytes_of(b);
	if (space_for_snapshot(s, &err)) {
		snap_end(s, &err, NULL);
		return;
	}
	rec_fill(s, &b->rec);
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
