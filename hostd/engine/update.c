/*
 * What a client changes of a held sandbox: name, labels, and when it stops and
 * ends by itself.
 *
 * It is in memory at once, and answered when a write that has it is on disk:
 * the writes of a sandbox are its whole record, in their order, so a later one
 * has it, too (write.c).  One that cannot be written is tried again with the
 * state; who waited too long is told so, and may send the same again.
 *
 * Limits do not change: memory and disk of a sandbox, also of a stopped one,
 * were made for them.
 */
#include "../clock.h"
#include "engine_priv.h"
#include <errno.h>
#include <stdio.h>

/* How long until it is told that it is not on disk yet. */
#define UPDATE_WAIT_MS 20000

static void text_set(char *dst, size_t cap, bool is_given, const char *text)
{
	if (!is_given)
		return;
	memset(dst, 0, cap);
	snprintf(dst, cap, "%s", text ? text : "");
}

static void apply(struct box *b, const struct update_spec *s)
{
	struct sandbox_rec *r = &b->rec;

	text_set(r->name, sizeof(r->name), s->has_name, s->name);
	text_set(r->labels, sizeof(r->labels), s->has_labels, s->labels);
	if (s->idle_seconds) {
		r->idle_seconds = s->idle_seconds;
		box_idle_arm(b);
	}
	if (s->expires_in_seconds) {
		r->expires_in_seconds = s->expires_in_seconds;
		r->expires_ms = record_time(clock_wall_ms(), r->created_ms) +
				(int64_t)s->expires_in_seconds * 1000;
		box_expiry_arm(b);
	}
}

int engine_sandbox_update(struct engine *e, const struct caller *who,
			  const struct update_spec *spec, engine_sandbox_fn fn,
			  void *ctx)
{
	struct waiter *w = waiter_new(e, NULL, fn, ctx);
	struct box *b = box_by_id(e, who, spec->sandbox);
	struct err err = {0};

	if (!w)
		return -ENOMEM;
	if (e->is_ending) {
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	} else if (update_spec_check(spec, &err)) {
		;
	} else if (!b) {
		waiter_refuse_over(w, who->environment, who->graph,
				   spec->sandbox);
		return 0;
	} else if (b->rec.kind != SBX_KIND_HELD ||
		   b->rec.status >= SBX_DESTROYING) {
		err_not_running(&err, &b->rec);
	}
	if (err.code) {
		waiter_refuse(w, &err);
		return 0;
	}
	apply(b, spec);
	w->update = ++b->n_updates;
	waiter_join(w, b, NULL, WAIT_SANDBOX_UPDATED, UPDATE_WAIT_MS);
	box_write(b, NULL);
	return 0;
}
