/*
 * The calls that start something: a one-call run, a held sandbox, a command on
 * one.  Each checks its limits, finds or makes what it is about, joins it with
 * a waiter, and leaves the rest to begin.c.
 */
#include "../link/template.h"
#include "engine_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void refuse_no_memory(struct waiter *w)
{
	struct err err = {0};

	err_set(&err, ERR_INTERNAL, NULL, "The daemon has no memory.");
	waiter_refuse(w, &err);
}

static void key_take(struct begin *g, const char *key,
		     const uint8_t request_hash[HASH_BYTES])
{
	snprintf(g->key, sizeof(g->key), "%s", key);
	memcpy(g->request_hash, request_hash, HASH_BYTES);
}

/* Is the daemon ending?  Then the waiter is refused. */
static bool is_ending(struct engine *e, struct waiter *w)
{
	struct err err = {0};

	if (e->is_ending) {
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
		waiter_refuse(w, &err);
	}
	return e->is_ending;
}

/* A call with this key is in memory: joined, or refused as another one. */
static bool is_joined(struct engine *e, const struct caller *who,
		      const char *operation, const char *key,
		      const uint8_t request_hash[HASH_BYTES], struct waiter *w,
		      enum wait_for what, uint32_t wait_ms)
{
	struct begin *g = begin_by_key(e, who, operation, key);
	struct err err = {0};

	if (!g)
		return false;
	if (memcmp(g->request_hash, request_hash, HASH_BYTES)) {
		key_conflict(&err, key, who->graph);
		waiter_refuse(w, &err);
	} else {
		waiter_join(w, g->box, g->cmd, what, wait_ms);
	}
	return true;
}

/* The images that it will run; false = they cannot be read, or are not those of
 * its snapshot, and the waiter is refused. */
static bool has_images(struct box *b, struct waiter *w)
{
	uint8_t image[HASH_BYTES], kernel[HASH_BYTES];
	struct err err = {0};

	if (!template_hashes(b->e->link, b->spec.base, image, kernel)) {
		if (!*b->from.id) {
			memcpy(b->rec.image_sha256, image, HASH_BYTES);
			memcpy(b->rec.kernel_sha256, kernel, HASH_BYTES);
		}
		if (!memcmp(image, b->rec.image_sha256, HASH_BYTES) &&
		    !memcmp(kernel, b->rec.kernel_sha256, HASH_BYTES))
			return true;
		err_set(&err, ERR_UNAVAILABLE, "snapshot",
			"The images that the snapshot %s was taken with are "
			"not there any more.",
			b->from.id);
		waiter_refuse(w, &err);
		return false;
	}
	err_set(&err, ERR_UNAVAILABLE, NULL,
		"The images of %s cannot be read on this host; its operator "
		"finds out why with hutch doctor.",
		b->spec.base);
	waiter_refuse(w, &err);
	return false;
}

static void expires_in(struct box *b, uint32_t seconds)
{
	b->rec.expires_in_seconds = seconds;
	b->rec.expires_ms = b->rec.created_ms + (int64_t)seconds * 1000;
}

/* b: NULL = there was no memory for it. */
static void box_begin(struct box *b, struct waiter *w, enum wait_for what,
		      uint32_t wait_ms)
{
	if (!b) {
		refuse_no_memory(w);
	} else if (!has_images(b, w)) {
		box_discard(b);
	} else {
		waiter_join(w, b, b->begin.cmd, what, wait_ms);
		begin_start(&b->begin);
	}
}

/* ---- one call ----------------------------------------------------------- */

static struct box *run_new(struct engine *e, const struct caller *who,
			   const struct run_spec *spec,
			   const struct limits *limits,
			   const struct command_spec *work)
{
	struct box *b =
		box_new(e, who, SBX_KIND_ONE_CALL, spec->template_name, limits);
	struct cmd *c = b ? cmd_new(b, work) : NULL;

	if (!c) {
		if (b)
			box_discard(b);
		return NULL;
	}
	b->begin.cmd = c;
	b->rec.origin = c->rec.origin;
	memcpy(b->rec.command, c->rec.id, sizeof(b->rec.command));
	key_take(&b->begin, spec->key, spec->request_hash);
	/* Room for preparing the template beside the run itself. */
	expires_in(b, ENGINE_EXPIRES_IN_SECONDS_DEFAULT +
			      (work->timeout_ms + 999) / 1000);
	return b;
}

int engine_run(struct engine *e, const struct caller *who,
	       const struct run_spec *spec, engine_run_fn fn, void *ctx,
	       struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, fn, NULL, ctx);
	struct command_spec work;
	struct limits limits = {0};
	struct err err = {0};

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (is_ending(e, w))
		return 0;
	if (run_spec_check(who, spec, &limits, &work, &err)) {
		waiter_refuse(w, &err);
		return 0;
	}
	if (is_joined(e, who, OPERATION_SANDBOX, spec->key, spec->request_hash,
		      w, WAIT_COMMAND_END, spec->wait_ms))
		return 0;
	box_begin(run_new(e, who, spec, &limits, &work), w, WAIT_COMMAND_END,
		  spec->wait_ms);
	return 0;
}

/* ---- a held sandbox ----------------------------------------------------- */

static struct box *held_new(struct engine *e, const struct caller *who,
			    const struct create_spec *spec)
{
	const struct command_spec common = {.env = spec->env};
	struct box *b = box_new(e, who, SBX_KIND_HELD, spec->template_name,
				&spec->limits);

	if (!b)
		return NULL;
	if (secrets_take(&b->common, &common, NULL)) {
		box_discard(b);
		return NULL;
	}
	if (spec->origin)
		b->rec.origin = *spec->origin;
	b->rec.idle_seconds = spec->idle_seconds;
	expires_in(b, spec->expires_in_seconds);
	key_take(&b->begin, spec->key, spec->request_hash);
	return b;
}

/* ---- the same from a snapshot ------------------------------------------- */

/* While its record is read: what was asked. */
struct from_ask {
	struct engine *e;
	struct waiter *w;
	struct caller who;
	char environment[ID_BYTES_MAX], graph[GRAPH_NAME_BYTES_MAX + 1];
	char key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	char snapshot[ID_BYTES_MAX];
	struct create_spec spec;
	struct origin origin;
	struct secrets common; /* env */
};

static void from_ask_free(struct from_ask *a)
{
	secrets_finish(&a->common);
	free(a);
}

/* Its processes go on in the box; numbers of commands lie above theirs. */
static struct box *from_new(struct from_ask *a, const struct snapshot_rec *r)
{
	struct box *b;

	a->spec.template_name = r->template_base;
	a->spec.limits = r->limits;
	b = held_new(a->e, &a->who, &a->spec);
	if (!b)
		return NULL;
	memcpy(b->rec.template_name, r->template_name,
	       sizeof(b->rec.template_name));
	memcpy(b->rec.template_id, r->id, sizeof(b->rec.template_id));
	memcpy(b->rec.image_sha256, r->image_sha256, HASH_BYTES);
	memcpy(b->rec.kernel_sha256, r->kernel_sha256, HASH_BYTES);
	b->from = snapshot_from_of(r);
	b->rec.incarnation = r->incarnation + 1;
	b->last_number = b->rec.incarnation << ENGINE_NUMBERS_BITS;
	return b;
}

static void on_from(void *ctx, int rc, struct snapshot_rec *r)
{
	struct from_ask *a = ctx;
	struct engine *e = a->e;
	struct waiter *w = a->w;
	struct err err = {0};

	w->is_reading = false;
	if (rc == -ENOENT)
		err_set(&err, ERR_SNAPSHOT_NOT_FOUND, "snapshot",
			"There is no snapshot %s in graph %s of environment "
			"%s.",
			a->spec.snapshot, a->graph, a->environment);
	else if (rc)
		store_error(&err, ERR_SNAPSHOT_NOT_FOUND, "snapshot",
			    a->spec.snapshot, rc);
	else if (e->is_ending)
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	if (err.code || w->is_cancelled)
		waiter_refuse(w, &err);
	else if (!is_joined(e, &a->who, OPERATION_SANDBOX, a->key,
			    a->spec.request_hash, w, WAIT_SANDBOX_STARTED,
			    a->spec.wait_ms))
		box_begin(from_new(a, r), w, WAIT_SANDBOX_STARTED,
			  a->spec.wait_ms);
	from_ask_free(a);
	engine_op_end(e);
}

static int from_read(struct engine *e, const struct caller *who,
		     const struct create_spec *spec, struct waiter *w)
{
	const struct command_spec common = {.env = spec->env};
	struct from_ask *a = calloc(1, sizeof(*a));
	int rc = a ? secrets_take(&a->common, &common, NULL) : -ENOMEM;

	if (!rc) {
		a->e = e;
		a->w = w;
		a->who = *who;
		a->spec = *spec;
		snprintf(a->environment, sizeof(a->environment), "%s",
			 who->environment);
		snprintf(a->graph, sizeof(a->graph), "%s", who->graph);
		snprintf(a->key, sizeof(a->key), "%s", spec->key);
		snprintf(a->snapshot, sizeof(a->snapshot), "%s",
			 spec->snapshot);
		a->who.environment = a->environment;
		a->who.graph = a->graph;
		a->spec.key = a->key;
		a->spec.snapshot = a->snapshot;
		a->spec.env = a->common.env_list;
		if (spec->origin) {
			a->origin = *spec->origin;
			a->spec.origin = &a->origin;
		}
		rc = store_snapshot_get(e->store, a->environment, a->graph,
					a->snapshot, on_from, a);
	}
	if (!rc) {
		w->is_reading = true;
		engine_op_begin(e);
		return 0;
	}
	if (a)
		from_ask_free(a);
	refuse_no_memory(w);
	return 0;
}

int engine_sandbox_create(struct engine *e, const struct caller *who,
			  const struct create_spec *asked, engine_sandbox_fn fn,
			  void *ctx, struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, NULL, fn, ctx);
	struct create_spec spec = *asked;
	struct err err = {0};

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (is_ending(e, w))
		return 0;
	if (create_spec_check(who, &spec, &err)) {
		waiter_refuse(w, &err);
		return 0;
	}
	if (is_joined(e, who, OPERATION_SANDBOX, spec.key, spec.request_hash, w,
		      WAIT_SANDBOX_STARTED, spec.wait_ms))
		return 0;
	if (spec.snapshot)
		return from_read(e, who, &spec, w);
	box_begin(held_new(e, who, &spec), w, WAIT_SANDBOX_STARTED,
		  spec.wait_ms);
	return 0;
}

/* ---- a command on one --------------------------------------------------- */

static void command_begin(struct box *b, const struct command_spec *spec,
			  struct waiter *w)
{
	struct cmd *c = cmd_new(b, spec);
	struct err err = {0};

	if (!c) {
		refuse_no_memory(w);
		return;
	}
	/* The sandbox's and the command's own together. */
	if (env_check(c->secrets.env_list, &err)) {
		waiter_refuse(w, &err);
		cmd_discard(c);
		return;
	}
	key_take(&c->begin, spec->key, spec->request_hash);
	b->rec.last_active_ms =
		record_time(c->rec.created_ms, b->rec.last_active_ms);
	box_idle_arm(b);
	waiter_join(w, b, c, WAIT_COMMAND_END, spec->wait_ms);
	begin_start(&c->begin);
}

int engine_command_create(struct engine *e, const struct caller *who,
			  const struct command_spec *asked, engine_run_fn fn,
			  void *ctx, struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, fn, NULL, ctx);
	struct command_spec spec = *asked;
	struct store_begin key;
	struct err err = {0};
	struct box *b;

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (is_ending(e, w))
		return 0;
	if (command_spec_check(who, &spec, &err)) {
		waiter_refuse(w, &err);
		return 0;
	}
	if (is_joined(e, who, OPERATION_COMMAND, spec.key, spec.request_hash, w,
		      WAIT_COMMAND_END, spec.wait_ms))
		return 0;
	b = box_by_id(e, who, spec.sandbox);
	if (b) {
		command_begin(b, &spec, w);
		return 0;
	}
	key = (struct store_begin){
		who->environment, who->graph, OPERATION_COMMAND, spec.key, {0}};
	memcpy(key.request_hash, spec.request_hash, HASH_BYTES);
	waiter_read_by_key(w, &key, spec.sandbox);
	return 0;
}
