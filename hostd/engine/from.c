/*
 * Calls that begin from a record which is read first: a saved template, or a
 * snapshot.
 *
 * A template is given to the call by name or by id, and what has a name is
 * read as it is now: the newest version.  So the call's key is looked for in
 * the same look at the store, and comes first: a call that is sent again finds
 * its record, whatever was saved since.  A held sandbox keeps the id of its
 * version, and code in it is read by that.  A snapshot has one id, so the key
 * is looked for only when there is no such snapshot any more.
 *
 * What was asked is borrowed from the call, which stays until its waiter is
 * answered or given up (is_cancelled); after that nobody looks at it.
 */
#include "engine_priv.h"
#include "log.h"
#include <errno.h>
#include <stdlib.h>

struct ask {
	struct engine *e;
	struct waiter *w;
	struct caller who;
	struct from from;
	char template_id[ID_BYTES_MAX]; /* COMMAND: its sandbox may go */
	struct err refusal;		/* SNAPSHOT: unless the key is known */
};

bool template_is_saved(const char *name)
{
	return name && strncmp(name, "lbb/", 4);
}

static bool is_joined(struct ask *a)
{
	const struct from *f = &a->from;

	switch (f->kind) {
	case FROM_TEMPLATE_RUN:
		return call_is_joined(a->e, &a->who, OPERATION_SANDBOX,
				      f->run.key, f->run.request_hash, a->w,
				      WAIT_COMMAND_END, f->run.wait_ms);
	case FROM_TEMPLATE_COMMAND:
		return call_is_joined(a->e, &a->who, OPERATION_COMMAND,
				      f->command.key, f->command.request_hash,
				      a->w, WAIT_COMMAND_END,
				      f->command.wait_ms);
	case FROM_TEMPLATE_CREATE:
	case FROM_SNAPSHOT:
		return call_is_joined(a->e, &a->who, OPERATION_SANDBOX,
				      f->create.key, f->create.request_hash,
				      a->w, WAIT_SANDBOX_STARTED,
				      f->create.wait_ms);
	}
	return false;
}

/* ---- a template --------------------------------------------------------- */

static void go(struct ask *a, const struct template_rec *t)
{
	const struct from *f = &a->from;

	switch (f->kind) {
	case FROM_TEMPLATE_RUN:
		run_go(a->e, &a->who, &f->run, t, a->w);
		return;
	case FROM_TEMPLATE_CREATE:
		create_go(a->e, &a->who, &f->create, t, a->w);
		return;
	case FROM_TEMPLATE_COMMAND:
		command_go(a->e, &a->who, &f->command, t, a->w);
		return;
	case FROM_SNAPSHOT:
		return;
	}
}

static struct store_begin key_of(const struct ask *a)
{
	const struct from *f = &a->from;
	struct store_begin b = {
		.environment = a->who.environment,
		.graph = a->who.graph,
		.operation = f->kind == FROM_TEMPLATE_COMMAND
				     ? OPERATION_COMMAND
				     : OPERATION_SANDBOX,
	};
	const uint8_t *hash = f->kind == FROM_TEMPLATE_RUN ? f->run.request_hash
			      : f->kind == FROM_TEMPLATE_COMMAND
				      ? f->command.request_hash
				      : f->create.request_hash;

	b.key = f->kind == FROM_TEMPLATE_RUN	   ? f->run.key
		: f->kind == FROM_TEMPLATE_COMMAND ? f->command.key
						   : f->create.key;
	memcpy(b.request_hash, hash, HASH_BYTES);
	return b;
}

/* Made before, and not in memory any more. */
static void found(struct ask *a, const struct store_found *f)
{
	const struct store_begin key = key_of(a);
	struct err err = {0};

	if (!f->is_same_request) {
		key_conflict(&err, key.key, key.graph);
		waiter_refuse(a->w, &err);
	} else if (*f->command) {
		waiter_read_command(a->w, key.environment, key.graph,
				    f->command);
	} else {
		waiter_read_sandbox(a->w, key.environment, key.graph,
				    f->sandbox);
	}
}

void template_error(struct err *err, const struct caller *who,
		    const char *which, int rc)
{
	const struct log_text shown = log_text(which, strlen(which));

	if (rc == -ENOENT)
		err_set(err, ERR_TEMPLATE_NOT_FOUND, "template",
			"There is no template %.100s in graph %s of "
			"environment %s.",
			shown.s, who->graph, who->environment);
	else
		store_error(err, ERR_TEMPLATE_NOT_FOUND, "template", shown.s,
			    rc);
}

static void on_template(void *ctx, int rc, const struct store_found *f,
			struct template_rec *t)
{
	struct ask *a = ctx;
	struct engine *e = a->e;
	struct waiter *w = a->w;
	struct err err = {0};

	w->is_reading = false;
	if (w->is_cancelled || e->is_ending) {
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
		waiter_refuse(w, &err);
	} else if (is_joined(a)) {
		;
	} else if (rc) {
		template_error(&err, &a->who, a->from.which, rc);
		waiter_refuse(w, &err);
	} else if (f->is_found) {
		found(a, f);
	} else {
		go(a, t);
	}
	free(a);
	engine_op_end(e);
}

static int template_read(struct ask *a)
{
	const struct store_begin key = key_of(a);

	return store_template_use(a->e->store, &key, a->from.which, on_template,
				  a);
}

/* ---- a snapshot --------------------------------------------------------- */

/* Its processes go on in the box; numbers of commands lie above theirs. */
static struct box *snapshot_new(struct ask *a, const struct snapshot_rec *r)
{
	struct create_spec spec = a->from.create;
	struct box *b;

	spec.template_name = r->template_base;
	spec.limits = r->limits;
	b = held_new(a->e, &a->who, &spec, NULL);
	if (!b)
		return NULL;
	memcpy(b->rec.template_name, r->template_name,
	       sizeof(b->rec.template_name));
	memcpy(b->rec.template_id, r->template_id, sizeof(b->rec.template_id));
	b->rec.template_version = r->template_version;
	memcpy(b->rec.snapshot, r->id, sizeof(b->rec.snapshot));
	memcpy(b->rec.image_sha256, r->image_sha256, HASH_BYTES);
	memcpy(b->rec.kernel_sha256, r->kernel_sha256, HASH_BYTES);
	b->from = snapshot_from_of(r);
	b->rec.incarnation = r->incarnation + 1;
	b->last_number = b->rec.incarnation << ENGINE_NUMBERS_BITS;
	return b;
}

static void on_key(void *ctx, int rc, const struct store_found *f)
{
	struct ask *a = ctx;
	struct engine *e = a->e;
	struct waiter *w = a->w;

	w->is_reading = false;
	if (w->is_cancelled || e->is_ending) {
		err_set(&a->refusal, ERR_UNAVAILABLE, NULL, NULL);
		waiter_refuse(w, &a->refusal);
	} else if (is_joined(a)) {
		;
	} else if (!rc && f->is_found) {
		found(a, f);
	} else {
		waiter_refuse(w, &a->refusal);
	}
	free(a);
	engine_op_end(e);
}

/* It cannot begin; was it made before, with the same key? */
static void refuse_unless_known(struct ask *a, int rc)
{
	const struct store_begin key = key_of(a);

	if (rc == -ENOENT)
		err_set(&a->refusal, ERR_SNAPSHOT_NOT_FOUND, "snapshot",
			"There is no snapshot %s in graph %s of environment "
			"%s.",
			a->from.which, a->who.graph, a->who.environment);
	else
		store_error(&a->refusal, ERR_SNAPSHOT_NOT_FOUND, "snapshot",
			    a->from.which, rc);
	rc = store_key_find(a->e->store, &key, on_key, a);
	if (!rc) {
		a->w->is_reading = true;
		engine_op_begin(a->e);
		return;
	}
	waiter_refuse(a->w, &a->refusal);
	free(a);
}

static void on_snapshot(void *ctx, int rc, struct snapshot_rec *r)
{
	struct ask *a = ctx;
	struct engine *e = a->e;
	struct waiter *w = a->w;
	uint32_t wait_ms = a->from.create.wait_ms;
	struct err err = {0};

	w->is_reading = false;
	if (w->is_cancelled || e->is_ending) {
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
		waiter_refuse(w, &err);
		free(a);
	} else if (is_joined(a)) {
		free(a);
	} else if (rc) {
		refuse_unless_known(a, rc);
	} else {
		box_begin(snapshot_new(a, r), w, WAIT_SANDBOX_STARTED, wait_ms);
		free(a);
	}
	engine_op_end(e);
}

/* ---- the call ----------------------------------------------------------- */

void from_read(struct engine *e, const struct caller *who,
	       const struct from *what, struct waiter *w)
{
	struct ask *a;
	struct err err = {0};
	int rc;

	if (caller_check(who, &err)) {
		waiter_refuse(w, &err);
		return;
	}
	a = calloc(1, sizeof(*a));
	if (!a) {
		refuse_no_memory(w);
		return;
	}
	*a = (struct ask){.e = e, .w = w, .who = *who, .from = *what};
	if (what->kind == FROM_TEMPLATE_COMMAND) {
		memcpy(a->template_id, what->which, sizeof(a->template_id));
		a->from.which = a->template_id;
	}
	if (is_joined(a)) {
		free(a);
		return;
	}
	rc = what->kind == FROM_SNAPSHOT
		     ? store_snapshot_get(e->store, who->environment,
					  who->graph, what->which, on_snapshot,
					  a)
		     : template_read(a);
	if (rc) {
		store_error(&err, ERR_INTERNAL, "template", "", rc);
		waiter_refuse(w, &err);
		free(a);
		return;
	}
	w->is_reading = true;
	engine_op_begin(e);
}
