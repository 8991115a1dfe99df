/*
 * The calls that start something: a one-call run, a held sandbox, a command on
 * one.  Each checks its limits, finds or makes what it is about, joins it with
 * a waiter, and leaves the rest to begin.c.
 */
#include "../link/template.h"
#include "engine_priv.h"
#include <errno.h>
#include <stdio.h>

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

/* The images that it will run; false = they cannot be read, and the waiter is
 * refused. */
static bool has_images(struct box *b, struct waiter *w)
{
	struct err err = {0};

	if (!template_hashes(b->e->link, b->spec.base, b->rec.image_sha256,
			     b->rec.kernel_sha256))
		return true;
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
	b->rec.idle_seconds = spec->idle_seconds;
	expires_in(b, spec->expires_in_seconds);
	key_take(&b->begin, spec->key, spec->request_hash);
	return b;
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
