/*
 * The calls that start something: a one-call run, a held sandbox, a command on
 * one.  Each checks its limits, finds or makes what it is about, joins it with
 * a waiter, and leaves the rest to begin.c.  What begins from a record that is
 * read first, a saved template or a snapshot, comes back here from from.c.
 */
#include "../link/template.h"
#include "engine_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void refuse_no_memory(struct waiter *w)
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

bool call_is_joined(struct engine *e, const struct caller *who,
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

/* The images that it will run.  They cannot be read, or are not those of its
 * snapshot: it is refused, unless its key is known. */
static void images_find(struct box *b)
{
	uint8_t image[HASH_BYTES], kernel[HASH_BYTES];
	struct begin *g = &b->begin;

	if (!template_hashes(b->e->link, b->spec.base, image, kernel)) {
		if (!*b->from.id) {
			memcpy(b->rec.image_sha256, image, HASH_BYTES);
			memcpy(b->rec.kernel_sha256, kernel, HASH_BYTES);
		}
		if (!memcmp(image, b->rec.image_sha256, HASH_BYTES) &&
		    !memcmp(kernel, b->rec.kernel_sha256, HASH_BYTES))
			return;
		err_set(&g->refusal, ERR_UNAVAILABLE, "snapshot",
			"The images that the snapshot %s was taken with are "
			"not there any more.",
			b->from.id);
	} else {
		err_set(&g->refusal, ERR_UNAVAILABLE, NULL,
			"The images of %s cannot be read on this host; its "
			"operator finds out why with hutch doctor.",
			b->spec.base);
	}
	g->is_refused = true;
}

static void expires_in(struct box *b, uint32_t seconds)
{
	b->rec.expires_in_seconds = seconds;
	b->rec.expires_ms = b->rec.created_ms + (int64_t)seconds * 1000;
}

void box_begin(struct box *b, struct waiter *w, enum wait_for what,
	       uint32_t wait_ms)
{
	if (!b) {
		refuse_no_memory(w);
		return;
	}
	images_find(b);
	waiter_join(w, b, b->begin.cmd, what, wait_ms);
	if (b->fill)
		fill_open(b);
	else
		begin_start(&b->begin);
}

/* ---- one call ----------------------------------------------------------- */

/* What the record says of a saved template; b NULL = no memory. */
static void of_template(struct box *b, const struct template_rec *t)
{
	if (!b || !t)
		return;
	memcpy(b->rec.template_name, t->name, sizeof(b->rec.template_name));
	memcpy(b->rec.template_id, t->id, sizeof(b->rec.template_id));
	b->rec.template_version = t->version;
}

static void limits_fill(struct limits *l, const struct limits *from)
{
	if (!l->vcpus)
		l->vcpus = from->vcpus;
	if (!l->memory_mib)
		l->memory_mib = from->memory_mib;
	if (!l->disk_mib)
		l->disk_mib = from->disk_mib;
}

static struct box *run_new(struct engine *e, const struct caller *who,
			   const struct run_spec *spec,
			   const struct template_rec *t,
			   const struct command_spec *work)
{
	struct box *b = box_new(e, who, SBX_KIND_ONE_CALL, spec->template_name,
				&spec->limits);
	struct cmd *c;

	of_template(b, t);
	c = b ? cmd_new(b, work) : NULL;
	if (!c) {
		if (b)
			box_discard(b);
		return NULL;
	}
	if (fill_make(b, spec->seeds, spec->n_seeds, t)) {
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

/* The call's own come first. */
static void work_fill(struct command_spec *work, const struct template_rec *t)
{
	if (!work->code && t->has_code) {
		work->code = t->code.data;
		work->code_len = t->code.len;
	}
	if (!work->config && t->has_config) {
		work->config = t->config.data;
		work->config_len = t->config.len;
	}
	if (!work->timeout_ms)
		work->timeout_ms = t->timeout_ms;
}

void run_go(struct engine *e, const struct caller *who,
	    const struct run_spec *asked, const struct template_rec *t,
	    struct waiter *w)
{
	struct run_spec spec = *asked;
	struct command_spec work = {
		.code = spec.code,
		.input = spec.input,
		.config = spec.config,
		.code_len = spec.code_len,
		.input_len = spec.input_len,
		.config_len = spec.config_len,
		.timeout_ms = spec.timeout_ms,
		.env = spec.env,
		.wait_ms = spec.wait_ms,
		.origin = spec.origin,
	};
	struct err err = {0};

	if (t) {
		spec.template_name = t->base;
		limits_fill(&spec.limits, &t->limits);
		work_fill(&work, t);
	}
	if (run_spec_check(who, &spec, &work, &err) ||
	    fill_fits(spec.seeds, spec.n_seeds, t, &err)) {
		waiter_refuse(w, &err);
		return;
	}
	if (call_is_joined(e, who, OPERATION_SANDBOX, spec.key,
			   spec.request_hash, w, WAIT_COMMAND_END,
			   spec.wait_ms))
		return;
	box_begin(run_new(e, who, &spec, t, &work), w, WAIT_COMMAND_END,
		  spec.wait_ms);
}

int engine_run(struct engine *e, const struct caller *who,
	       const struct run_spec *spec, engine_run_fn fn, void *ctx,
	       struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, fn, NULL, ctx);
	const struct from what = {
		.kind = FROM_TEMPLATE_RUN,
		.which = spec->template_name,
		.run = *spec,
	};

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (is_ending(e, w))
		return 0;
	if (template_is_saved(spec->template_name))
		from_read(e, who, &what, w);
	else
		run_go(e, who, spec, NULL, w);
	return 0;
}

/* ---- a held sandbox ----------------------------------------------------- */

struct box *held_new(struct engine *e, const struct caller *who,
		     const struct create_spec *spec,
		     const struct template_rec *t)
{
	const struct command_spec common = {.env = spec->env};
	struct box *b = box_new(e, who, SBX_KIND_HELD, spec->template_name,
				&spec->limits);

	if (!b)
		return NULL;
	of_template(b, t);
	if (secrets_take(&b->common, &common, NULL) ||
	    fill_make(b, spec->seeds, spec->n_seeds, t)) {
		box_discard(b);
		return NULL;
	}
	snprintf(b->rec.name, sizeof(b->rec.name), "%s",
		 spec->name ? spec->name : "");
	snprintf(b->rec.labels, sizeof(b->rec.labels), "%s",
		 spec->labels ? spec->labels : "");
	if (spec->origin)
		b->rec.origin = *spec->origin;
	b->rec.idle_seconds = spec->idle_seconds;
	expires_in(b, spec->expires_in_seconds);
	key_take(&b->begin, spec->key, spec->request_hash);
	return b;
}

void create_go(struct engine *e, const struct caller *who,
	       const struct create_spec *asked, const struct template_rec *t,
	       struct waiter *w)
{
	struct create_spec spec = *asked;
	struct err err = {0};

	if (t) {
		spec.template_name = t->base;
		limits_fill(&spec.limits, &t->limits);
	}
	if (create_spec_check(who, &spec, &err) ||
	    fill_fits(spec.seeds, spec.n_seeds, t, &err)) {
		waiter_refuse(w, &err);
		return;
	}
	if (call_is_joined(e, who, OPERATION_SANDBOX, spec.key,
			   spec.request_hash, w, WAIT_SANDBOX_STARTED,
			   spec.wait_ms))
		return;
	box_begin(held_new(e, who, &spec, t), w, WAIT_SANDBOX_STARTED,
		  spec.wait_ms);
}

/* The defaults that the check fills in belong to the sandbox. */
static void from_snapshot(struct engine *e, const struct caller *who,
			  const struct create_spec *spec, struct waiter *w)
{
	struct from what = {
		.kind = FROM_SNAPSHOT,
		.which = spec->snapshot,
		.create = *spec,
	};
	struct err err = {0};

	if (create_spec_check(who, &what.create, &err))
		waiter_refuse(w, &err);
	else
		from_read(e, who, &what, w);
}

int engine_sandbox_create(struct engine *e, const struct caller *who,
			  const struct create_spec *spec, engine_sandbox_fn fn,
			  void *ctx, struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, NULL, fn, ctx);
	const struct from what = {
		.kind = FROM_TEMPLATE_CREATE,
		.which = spec->template_name,
		.create = *spec,
	};

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (is_ending(e, w))
		return 0;
	if (spec->snapshot)
		from_snapshot(e, who, spec, w);
	else if (template_is_saved(spec->template_name))
		from_read(e, who, &what, w);
	else
		create_go(e, who, spec, NULL, w);
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

void command_go(struct engine *e, const struct caller *who,
		const struct command_spec *asked, const struct template_rec *t,
		struct waiter *w)
{
	struct box *b = box_by_id(e, who, asked->sandbox);
	struct command_spec spec = *asked;
	struct store_begin key;
	struct err err = {0};

	if (t)
		work_fill(&spec, t);
	/* What has no sandbox any more finds its record without code, too. */
	if (command_spec_check(who, &spec, b != NULL, &err)) {
		waiter_refuse(w, &err);
		return;
	}
	if (call_is_joined(e, who, OPERATION_COMMAND, spec.key,
			   spec.request_hash, w, WAIT_COMMAND_END,
			   spec.wait_ms))
		return;
	if (b) {
		command_begin(b, &spec, w);
		return;
	}
	key = (struct store_begin){
		who->environment, who->graph, OPERATION_COMMAND, spec.key, {0}};
	memcpy(key.request_hash, spec.request_hash, HASH_BYTES);
	waiter_read_by_key(w, &key, spec.sandbox);
}

/* Code in a sandbox of a saved template, and something of that is needed. */
static bool needs_template(const struct box *b, const struct command_spec *s)
{
	return b && *b->rec.template_id && !s->argv &&
	       (!s->code || !s->config || !s->timeout_ms);
}

int engine_command_create(struct engine *e, const struct caller *who,
			  const struct command_spec *spec, engine_run_fn fn,
			  void *ctx, struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, fn, NULL, ctx);
	struct box *b = box_by_id(e, who, spec->sandbox);
	const struct from what = {
		.kind = FROM_TEMPLATE_COMMAND,
		.which = b ? b->rec.template_id : NULL,
		.command = *spec,
	};

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (is_ending(e, w))
		return 0;
	if (needs_template(b, spec))
		from_read(e, who, &what, w);
	else
		command_go(e, who, spec, NULL, w);
	return 0;
}
