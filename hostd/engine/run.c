/*
 * A run from the request to the VM: idempotency and the first record.
 *
 * Calls with one key meet in memory first: from the moment a run is taken up
 * until its last state is written it is found by its key, and a second call
 * joins it with a wait of its own.  So of eight calls at once one starts.
 * Older keys are in the database, and store_run_begin looks for the key in the
 * same transaction that writes it.
 *
 *   admitted      store_run_begin: key, sandbox, command are durable, or the
 *                 key was there and the call is answered from its records
 *   not admitted  store_key_find first: a key that is known answers with its
 *                 record however full the host is.  Unknown: admission is
 *                 asked once more (runs before this one in the store's queue
 *                 may have given their places back), then the call is refused
 *                 and the key is not burnt.
 */
#include "../clock.h"
#include "../link/template.h"
#include "engine_priv.h"
#include "log.h"
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define OPERATION_RUN "run"

/* ---- secrets
 * ------------------------------------------------------------------------ */

void secrets_finish(struct secrets *s)
{
	bytes_finish_secret(&s->code);
	bytes_finish_secret(&s->input);
	bytes_finish_secret(&s->config);
	bytes_finish_secret(&s->env);
	free(s->env_list);
	s->env_list = NULL;
}

/* Exact size at once: a growing buffer would leave copies on the heap. */
static int copy(struct bytes *dst, const void *src, size_t len)
{
	int rc = bytes_reserve(dst, len + 1);

	return rc ? rc : bytes_append(dst, src, len);
}

int secrets_take(struct secrets *s, const struct run_spec *spec)
{
	size_t n = 0, bytes = 0;
	int rc;

	memset(s, 0, sizeof(*s));
	s->has_input = spec->input != NULL;
	s->has_config = spec->config != NULL;
	rc = copy(&s->code, spec->code, spec->code_len);
	if (!rc && spec->input)
		rc = copy(&s->input, spec->input, spec->input_len);
	if (!rc && spec->config)
		rc = copy(&s->config, spec->config, spec->config_len);
	for (; spec->env && spec->env[n]; n++)
		bytes += strlen(spec->env[n]) + 1;
	if (!rc && n) {
		rc = bytes_reserve(&s->env, bytes);
		s->env_list = calloc(n + 1, sizeof(*s->env_list));
		if (!s->env_list)
			rc = -ENOMEM;
	}
	for (size_t i = 0; !rc && i < n; i++) {
		s->env_list[i] = (const char *)s->env.data + s->env.len;
		rc = bytes_append(&s->env, spec->env[i],
				  strlen(spec->env[i]) + 1);
	}
	if (rc)
		secrets_finish(s);
	return rc;
}

/* ---- the run in memory
 * ---------------------------------------------------------------- */

static bool is_of(const struct run *r, const struct caller *who)
{
	return !strcmp(r->sbx.environment, who->environment) &&
	       !strcmp(r->sbx.graph, who->graph);
}

struct run *run_by_key(struct engine *e, const struct caller *who,
		       const char *key)
{
	for (struct list *n = e->runs.next; n != &e->runs; n = n->next) {
		struct run *r = container_of(n, struct run, node);

		if (is_of(r, who) && !strcmp(r->key, key))
			return r;
	}
	return NULL;
}

/* Only durable ones: before, nobody has been told the ids. */
struct run *run_by_sandbox(struct engine *e, const struct caller *who,
			   const char *id)
{
	for (struct list *n = e->runs.next; n != &e->runs; n = n->next) {
		struct run *r = container_of(n, struct run, node);

		if (r->is_durable && is_of(r, who) && !strcmp(r->sbx.id, id))
			return r;
	}
	return NULL;
}

struct run *run_by_command(struct engine *e, const struct caller *who,
			   const char *id)
{
	for (struct list *n = e->runs.next; n != &e->runs; n = n->next) {
		struct run *r = container_of(n, struct run, node);

		if (r->is_durable && is_of(r, who) && !strcmp(r->cmd.id, id))
			return r;
	}
	return NULL;
}

static void run_free(struct run *r)
{
	pool_release(r, false);
	loop_timer_stop(r->e->loop, &r->expiry);
	loop_timer_stop(r->e->loop, &r->retry);
	loop_timer_stop(r->e->loop, &r->note);
	list_remove(&r->node);
	secrets_finish(&r->secrets);
	output_finish(&r->out[0]);
	output_finish(&r->out[1]);
	command_rec_finish(&r->cmd);
	free(r);
}

/* Over and written: the last told state is the last state.  A run that never
 * became durable is over when it holds nothing. */
static bool is_over(const struct run *r)
{
	if (!r->is_durable)
		return !r->holds_place;
	return sandbox_status_is_final(r->told_sbx.status) && r->is_end_durable;
}

void run_maybe_free(struct run *r)
{
	if (r->n_pending || !list_is_empty(&r->waiters) || r->has_vm)
		return;
	if (is_over(r) || r->e->is_ending)
		run_free(r);
}

static void hash(uint8_t ret[HASH_BYTES], const void *p, size_t len)
{
	if (p)
		EVP_Digest(p, len, ret, NULL, EVP_sha256(), NULL);
}

static int env_names_put(struct command_rec *c, const char *const *env)
{
	int rc = 0;

	for (size_t i = 0; !rc && env && env[i]; i++) {
		rc = bytes_append(&c->env_names, env[i], strcspn(env[i], "="));
		if (!rc)
			rc = bytes_append(&c->env_names, "", 1);
	}
	return rc;
}

static int records_fill(struct run *r, const struct caller *who,
			const struct run_spec *spec,
			const struct limits *limits, uint32_t timeout_ms)
{
	const char *base =
		spec->template_name ? spec->template_name : "lbb/python";
	int64_t now = clock_wall_ms();
	struct sandbox_rec *s = &r->sbx;
	struct command_rec *c = &r->cmd;

	if (id_make(s->id, "sbx_", r->e->node) ||
	    id_make(c->id, "cmd_", r->e->node))
		return -EIO;
	snprintf(s->environment, sizeof(s->environment), "%s",
		 who->environment);
	snprintf(s->graph, sizeof(s->graph), "%s", who->graph);
	s->status = SBX_STARTING;
	s->kind = SBX_KIND_ONE_CALL;
	snprintf(s->template_name, sizeof(s->template_name), "%s", base);
	snprintf(s->template_base, sizeof(s->template_base), "%s", base);
	s->limits = *limits;
	s->idle_seconds = ENGINE_IDLE_SECONDS_DEFAULT;
	/* Room for preparing the template beside the run itself. */
	s->expires_in_seconds =
		ENGINE_EXPIRES_IN_SECONDS_DEFAULT + (timeout_ms + 999) / 1000;
	s->created_ms = s->last_active_ms = now;
	s->expires_ms = now + (int64_t)s->expires_in_seconds * 1000;
	s->incarnation = 1;
	memcpy(s->host_boot_id, r->e->boot_id, sizeof(s->host_boot_id));
	memcpy(s->command, c->id, sizeof(s->command));

	memcpy(c->sandbox, s->id, sizeof(c->sandbox));
	memcpy(c->environment, s->environment, sizeof(c->environment));
	memcpy(c->graph, s->graph, sizeof(c->graph));
	c->kind = CMD_KIND_RUN;
	c->status = CMD_QUEUED;
	c->exit_code = -1;
	c->timeout_ms = timeout_ms;
	c->created_ms = now;
	hash(c->code_sha256, spec->code, spec->code_len);
	hash(c->input_sha256, spec->input, spec->input_len);
	hash(c->config_sha256, spec->config, spec->config_len);
	c->code_bytes = spec->code_len;
	c->input_bytes = spec->input ? spec->input_len : 0;
	c->config_bytes = spec->config ? spec->config_len : 0;
	return env_names_put(c, spec->env);
}

static struct run *run_new(struct engine *e, const struct caller *who,
			   const struct run_spec *spec,
			   const struct limits *limits, uint32_t timeout_ms)
{
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->e = e;
	r->times.taken_up = clock_mono_us();
	list_init(&r->node);
	list_init(&r->waiters);
	snprintf(r->key, sizeof(r->key), "%s", spec->key);
	memcpy(r->request_hash, spec->request_hash, HASH_BYTES);
	if (records_fill(r, who, spec, limits, timeout_ms) ||
	    secrets_take(&r->secrets, spec)) {
		run_free(r);
		return NULL;
	}
	snprintf(r->spec.base, sizeof(r->spec.base), "%s",
		 r->sbx.template_base);
	r->spec.limits = *limits;
	memcpy(r->spec.sandbox, r->sbx.id, sizeof(r->spec.sandbox));
	list_append(&e->runs, &r->node);
	return r;
}

void run_rename(struct run *r, const char *sandbox)
{
	snprintf(r->sbx.id, sizeof(r->sbx.id), "%s", sandbox);
	memcpy(r->cmd.sandbox, r->sbx.id, sizeof(r->cmd.sandbox));
	memcpy(r->spec.sandbox, r->sbx.id, sizeof(r->spec.sandbox));
}

/* ---- idempotency
 * ------------------------------------------------------------------------ */

static void give_up(struct run *r, const struct err *err)
{
	r->holds_place = false;
	pool_release(r, false);
	run_refuse_all(r, err);
	run_maybe_free(r);
}

static void give_up_store(struct run *r, int rc)
{
	struct err err = {0};

	if (rc == -ENOSPC) {
		err_set(&err, ERR_CAPACITY, NULL,
			"The daemon's disk is full; nothing was started.");
		err.retry_after_s = ENGINE_RETRY_DISK_S;
	} else {
		store_error(&err, ERR_INTERNAL, "run", r->cmd.id, rc);
	}
	give_up(r, &err);
}

static void on_found_read(void *ctx, int rc, struct sandbox_rec *sbx,
			  struct command_rec *cmd)
{
	struct run *r = ctx;
	struct engine *e = r->e;

	r->n_pending--;
	if (rc) {
		give_up_store(r, rc == -ENOENT ? -EIO : rc);
	} else {
		run_answer_all(r, sbx, cmd);
		run_maybe_free(r);
	}
	engine_op_end(e);
}

static void key_conflict(struct err *err, const char *key, const char *graph)
{
	err_set(err, ERR_KEY_CONFLICT, "Idempotency-Key",
		"The key \"%.128s\" was used with another request in graph %s: "
		"send the same request, or use another key.",
		key, graph);
}

/* The key is in the database: its records are the answer. */
static void answer_found(struct run *r, const struct store_found *f)
{
	struct err err = {0};
	int rc;

	r->holds_place = false;
	pool_release(r, true); /* nothing was written */
	if (!f->is_same_request) {
		key_conflict(&err, r->key, r->sbx.graph);
		give_up(r, &err);
		return;
	}
	rc = store_run_get(r->e->store, r->sbx.environment, r->sbx.graph,
			   f->command, true, on_found_read, r);
	if (rc) {
		give_up_store(r, rc);
		return;
	}
	r->n_pending++;
	engine_op_begin(r->e);
}

static void on_begun(void *ctx, int rc, const struct store_found *f)
{
	struct run *r = ctx;
	struct engine *e = r->e;

	r->n_pending--;
	if (rc) {
		give_up_store(r, rc);
	} else if (f->is_found) {
		answer_found(r, f);
	} else {
		e->n_started++;
		r->is_durable = true;
		r->times.durable = clock_mono_us();
		r->told_sbx = r->sbx;
		r->told_cmd = r->cmd;
		if (e->is_ending)
			run_end(r, END_DAEMON_RESTART, "hutchd was stopped",
				true);
		else
			run_start_vm(r);
		run_wake(r);
		run_maybe_free(r);
	}
	engine_op_end(e);
}

static struct store_begin begin_of(const struct run *r)
{
	struct store_begin b = {
		.environment = r->sbx.environment,
		.graph = r->sbx.graph,
		.operation = OPERATION_RUN,
		.key = r->key,
	};

	memcpy(b.request_hash, r->request_hash, HASH_BYTES);
	return b;
}

static void begin(struct run *r)
{
	struct store_begin b = begin_of(r);
	int rc =
		store_run_begin(r->e->store, &b, &r->sbx, &r->cmd, on_begun, r);

	if (rc) {
		give_up_store(r, rc);
		return;
	}
	r->n_pending++;
	engine_op_begin(r->e);
}

static void on_looked_up(void *ctx, int rc, const struct store_found *f)
{
	struct run *r = ctx;
	struct engine *e = r->e;

	r->n_pending--;
	if (rc)
		give_up_store(r, rc);
	else if (f->is_found)
		answer_found(r, f);
	else if (!e->is_ending && !admit(e, r, &r->refusal))
		begin(r);
	else
		give_up(r, &r->refusal);
	engine_op_end(e);
}

static void look_up(struct run *r)
{
	struct store_begin b = begin_of(r);
	int rc = store_key_find(r->e->store, &b, on_looked_up, r);

	if (rc) {
		give_up_store(r, rc);
		return;
	}
	r->n_pending++;
	engine_op_begin(r->e);
}

/* ---- the call
 * ---------------------------------------------------------------------------
 */

static void take_up(struct engine *e, const struct caller *who,
		    const struct run_spec *spec, const struct limits *limits,
		    uint32_t timeout_ms, struct waiter *w)
{
	struct run *r = run_new(e, who, spec, limits, timeout_ms);
	struct err err = {0};

	if (!r) {
		err_set(&err, ERR_INTERNAL, NULL, "The daemon has no memory.");
		waiter_refuse(w, &err);
		return;
	}
	if (template_hashes(e->link, r->spec.base, r->sbx.image_sha256,
			    r->sbx.kernel_sha256)) {
		err_set(&err, ERR_UNAVAILABLE, NULL,
			"The images of %s cannot be read on this host; its "
			"operator finds out why with hutch doctor.",
			r->spec.base);
		waiter_refuse(w, &err);
		run_free(r);
		return;
	}
	waiter_join(w, r, WAIT_COMMAND_END, spec->wait_ms);
	/* The waiter must not be answered from in here. */
	if (admit(e, r, &r->refusal))
		look_up(r);
	else
		begin(r);
}

int engine_run(struct engine *e, const struct caller *who,
	       const struct run_spec *spec, engine_run_fn fn, void *ctx,
	       struct waiter **ret_waiter)
{
	struct waiter *w = waiter_new(e, fn, NULL, ctx);
	uint32_t timeout_ms = 0;
	struct limits limits = {0};
	struct err err = {0};
	struct run *r;

	if (!w)
		return -ENOMEM;
	if (ret_waiter)
		*ret_waiter = w;
	if (e->is_ending) {
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
		waiter_refuse(w, &err);
		return 0;
	}
	if (run_spec_check(who, spec, &limits, &timeout_ms, &err)) {
		waiter_refuse(w, &err);
		return 0;
	}
	r = run_by_key(e, who, spec->key);
	if (!r) {
		take_up(e, who, spec, &limits, timeout_ms, w);
	} else if (memcmp(r->request_hash, spec->request_hash, HASH_BYTES)) {
		key_conflict(&err, spec->key, who->graph);
		waiter_refuse(w, &err);
	} else {
		waiter_join(w, r, WAIT_COMMAND_END, spec->wait_ms);
	}
	return 0;
}
