/*
 * Sandboxes and commands in memory: made, found, freed.
 *
 * A box is there from the request until the sandbox's last state is durable
 * and told, a command of it until its end is; everything older is read from
 * the store.  Whoever works on one through a callback holds it (n_pending).
 */
#include "../clock.h"
#include "engine_priv.h"
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- secrets ----------------------------------------------------------- */

void secrets_finish(struct secrets *s)
{
	struct bytes *all[] = {&s->code, &s->input, &s->config,	   &s->env,
			       &s->argv, &s->cwd,   &s->stdin_data};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		bytes_finish_secret(all[i]);
	free(s->env_list);
	free(s->argv_list);
	s->env_list = s->argv_list = NULL;
}

size_t secrets_bytes(const struct secrets *s)
{
	return s->code.len + s->input.len + s->config.len + s->env.len +
	       s->argv.len + s->stdin_data.len;
}

/* Exact size at once: a growing buffer would leave copies on the heap. */
static int copy(struct bytes *dst, const void *src, size_t len)
{
	int rc = src ? bytes_reserve(dst, len + 1) : 0;

	return rc || !src ? rc : bytes_append(dst, src, len);
}

struct words {
	const char *const *list[2]; /* NULL terminated, or NULL */
	/* Left out of the first: a name that the second has, too. */
	bool is_env;
};

static bool is_named_in(const char *const *list, const char *pair)
{
	size_t len = strcspn(pair, "=");

	for (size_t i = 0; list && list[i]; i++)
		if (strcspn(list[i], "=") == len && !memcmp(list[i], pair, len))
			return true;
	return false;
}

static int words_take(struct bytes *dst, const char ***ret_list,
		      const struct words *w)
{
	size_t n = 0, bytes = 0, at = 0;
	const char **list;

	for (int k = 0; k < 2; k++)
		for (size_t i = 0; w->list[k] && w->list[k][i]; i++, n++)
			bytes += strlen(w->list[k][i]) + 1;
	if (!n)
		return 0;
	list = calloc(n + 1, sizeof(*list));
	*ret_list = list;
	if (!list || bytes_reserve(dst, bytes))
		return -ENOMEM;
	for (int k = 0; k < 2; k++)
		for (size_t i = 0; w->list[k] && w->list[k][i]; i++) {
			const char *word = w->list[k][i];

			if (w->is_env && !k && is_named_in(w->list[1], word))
				continue;
			list[at++] = (const char *)dst->data + dst->len;
			bytes_append(dst, word, strlen(word) + 1);
		}
	return 0;
}

int secrets_take(struct secrets *s, const struct command_spec *spec,
		 const char *const *common)
{
	const struct words env = {{common, spec->env}, true};
	const struct words argv = {{spec->argv, NULL}, false};
	int rc;

	memset(s, 0, sizeof(*s));
	s->has_input = spec->input != NULL;
	s->has_config = spec->config != NULL;
	rc = copy(&s->code, spec->code, spec->code_len);
	if (!rc)
		rc = copy(&s->input, spec->input, spec->input_len);
	if (!rc)
		rc = copy(&s->config, spec->config, spec->config_len);
	if (!rc)
		rc = copy(&s->stdin_data, spec->stdin_data, spec->stdin_len);
	if (!rc && spec->cwd)
		rc = copy(&s->cwd, spec->cwd, strlen(spec->cwd) + 1);
	if (!rc)
		rc = words_take(&s->env, &s->env_list, &env);
	if (!rc)
		rc = words_take(&s->argv, &s->argv_list, &argv);
	if (rc)
		secrets_finish(s);
	return rc;
}

/* ---- found ------------------------------------------------------------- */

static bool is_of(const struct box *b, const struct caller *who)
{
	return !strcmp(b->rec.environment, who->environment) &&
	       !strcmp(b->rec.graph, who->graph);
}

static bool is_key(const struct begin *g, const char *operation,
		   const char *key)
{
	return *g->key && !strcmp(g->operation, operation) &&
	       !strcmp(g->key, key);
}

struct begin *begin_by_key(struct engine *e, const struct caller *who,
			   const char *operation, const char *key)
{
	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		struct box *b = container_of(n, struct box, node);

		if (!is_of(b, who))
			continue;
		if (is_key(&b->begin, operation, key))
			return &b->begin;
		for (struct list *m = b->cmds.next; m != &b->cmds;
		     m = m->next) {
			struct cmd *c = container_of(m, struct cmd, node);

			if (is_key(&c->begin, operation, key))
				return &c->begin;
		}
	}
	return NULL;
}

struct box *box_by_id(struct engine *e, const struct caller *who,
		      const char *id)
{
	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		struct box *b = container_of(n, struct box, node);

		if (b->is_durable && is_of(b, who) && !strcmp(b->rec.id, id))
			return b;
	}
	return NULL;
}

struct cmd *cmd_by_id(struct engine *e, const struct caller *who,
		      const char *id)
{
	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		struct box *b = container_of(n, struct box, node);

		if (!is_of(b, who))
			continue;
		for (struct list *m = b->cmds.next; m != &b->cmds;
		     m = m->next) {
			struct cmd *c = container_of(m, struct cmd, node);

			if (c->is_durable && !strcmp(c->rec.id, id))
				return c;
		}
	}
	return NULL;
}

struct cmd *cmd_by_number(struct box *b, uint64_t number)
{
	for (struct list *n = b->cmds.next; number && n != &b->cmds;
	     n = n->next) {
		struct cmd *c = container_of(n, struct cmd, node);

		if (c->number == number)
			return c;
	}
	return NULL;
}

struct cmd *box_only_cmd(const struct box *b)
{
	return b->rec.kind == SBX_KIND_ONE_CALL && !list_is_empty(&b->cmds)
		       ? container_of(b->cmds.next, struct cmd, node)
		       : NULL;
}

/* ---- freed ------------------------------------------------------------- */

void cmd_discard(struct cmd *c)
{
	list_remove(&c->node);
	secrets_finish(&c->secrets);
	output_finish(&c->out[0]);
	output_finish(&c->out[1]);
	command_rec_finish(&c->rec);
	free(c);
}

void box_discard(struct box *b)
{
	struct list *n, *tmp;

	pool_release(b, false);
	loop_timer_stop(b->e->loop, &b->expiry);
	loop_timer_stop(b->e->loop, &b->retry);
	loop_timer_stop(b->e->loop, &b->note);
	loop_timer_stop(b->e->loop, &b->idle);
	list_for_each_safe(n, tmp, &b->cmds)
		cmd_discard(container_of(n, struct cmd, node));
	secrets_finish(&b->common);
	fill_free(b->fill);
	list_remove(&b->node);
	free(b);
}

/* Commands of a held sandbox that are over and told, or were never begun. */
static void cmds_sweep(struct box *b)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &b->cmds)
	{
		struct cmd *c = container_of(n, struct cmd, node);

		if (c->n_pending || c->n_waiters || box_only_cmd(b))
			continue;
		if (c->is_end_durable || !c->is_durable)
			cmd_discard(c);
	}
}

/* Over and written: the last told state is the last state.  What never became
 * durable is over when it holds nothing. */
static bool is_over(const struct box *b)
{
	if (!b->is_durable)
		return !b->holds_place;
	if (!sandbox_status_is_final(b->told.status))
		return false;
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next)
		if (!container_of(n, struct cmd, node)->is_end_durable)
			return false;
	return true;
}

void box_maybe_free(struct box *b)
{
	cmds_sweep(b);
	if (b->n_pending || !list_is_empty(&b->waiters) || b->has_vm ||
	    !list_is_empty(&b->files))
		return;
	if (is_over(b) || b->e->is_ending)
		box_discard(b);
}

/* ---- made -------------------------------------------------------------- */

void sha256_of(uint8_t ret[HASH_BYTES], const void *p, size_t len)
{
	if (p)
		EVP_Digest(p, len, ret, NULL, EVP_sha256(), NULL);
}

static int names_put(struct bytes *dst, const char *const *env)
{
	int rc = 0;

	for (size_t i = 0; !rc && env && env[i]; i++) {
		rc = bytes_append(dst, env[i], strcspn(env[i], "="));
		if (!rc)
			rc = bytes_append(dst, "", 1);
	}
	return rc;
}

/* In no list yet, without a record. */
static struct box *box_empty(struct engine *e)
{
	struct box *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->e = e;
	list_init(&b->node);
	list_init(&b->cmds);
	list_init(&b->files);
	list_init(&b->waiters);
	box_timers_init(b);
	b->begin = (struct begin){
		.box = b, .makes_box = true, .operation = OPERATION_SANDBOX};
	return b;
}

static void spec_fill(struct box *b)
{
	snprintf(b->spec.base, sizeof(b->spec.base), "%s",
		 b->rec.template_base);
	b->spec.limits = b->rec.limits;
	memcpy(b->spec.sandbox, b->rec.id, sizeof(b->spec.sandbox));
}

struct box *box_of_record(struct engine *e, const struct sandbox_rec *rec)
{
	struct box *b = box_empty(e);

	if (!b)
		return NULL;
	b->rec = b->told = *rec;
	b->sent = rec->status;
	b->is_durable = true;
	spec_fill(b);
	list_append(&e->boxes, &b->node);
	return b;
}

struct box *box_new(struct engine *e, const struct caller *who,
		    enum sandbox_kind kind, const char *template_name,
		    const struct limits *limits)
{
	const char *base = template_name ? template_name : "lbb/python";
	struct box *b = box_empty(e);
	struct sandbox_rec *s;

	if (!b)
		return NULL;
	s = &b->rec;
	if (id_make(s->id, "sbx_", e->node)) {
		box_discard(b);
		return NULL;
	}
	snprintf(s->environment, sizeof(s->environment), "%s",
		 who->environment);
	snprintf(s->graph, sizeof(s->graph), "%s", who->graph);
	s->status = b->sent = SBX_STARTING;
	s->kind = kind;
	snprintf(s->template_name, sizeof(s->template_name), "%s", base);
	snprintf(s->template_base, sizeof(s->template_base), "%s", base);
	s->limits = *limits;
	s->idle_seconds = ENGINE_IDLE_SECONDS_DEFAULT;
	s->expires_in_seconds = ENGINE_EXPIRES_IN_SECONDS_DEFAULT;
	s->created_ms = s->last_active_ms = clock_wall_ms();
	s->incarnation = 1;
	memcpy(s->host_boot_id, e->boot_id, sizeof(s->host_boot_id));
	box_places(b, who);
	spec_fill(b);
	list_append(&e->boxes, &b->node);
	return b;
}

static int record_fill(struct cmd *c, const struct command_spec *spec)
{
	const struct sandbox_rec *s = &c->box->rec;
	struct command_rec *r = &c->rec;
	int rc;

	memcpy(r->sandbox, s->id, sizeof(r->sandbox));
	memcpy(r->environment, s->environment, sizeof(r->environment));
	memcpy(r->graph, s->graph, sizeof(r->graph));
	memcpy(r->template_name, s->template_name, sizeof(r->template_name));
	memcpy(r->template_id, s->template_id, sizeof(r->template_id));
	r->template_version = s->template_version;
	memcpy(r->template_base, s->template_base, sizeof(r->template_base));
	r->kind = spec->argv ? CMD_KIND_EXEC : CMD_KIND_RUN;
	r->status = c->sent = CMD_QUEUED;
	r->exit_code = -1;
	r->timeout_ms = spec->timeout_ms;
	r->created_ms = clock_wall_ms();
	sha256_of(r->code_sha256, spec->code, spec->code_len);
	sha256_of(r->input_sha256, spec->input, spec->input_len);
	sha256_of(r->config_sha256, spec->config, spec->config_len);
	r->code_bytes = spec->code_len;
	r->input_bytes = spec->input ? spec->input_len : 0;
	r->config_bytes = spec->config ? spec->config_len : 0;
	r->stdin_bytes = spec->stdin_len;
	if (spec->origin)
		r->origin = *spec->origin;
	rc = names_put(&r->env_names, c->secrets.env_list);
	return rc || !c->secrets.argv.len
		       ? rc
		       : bytes_append(&r->argv, c->secrets.argv.data,
				      c->secrets.argv.len);
}

struct cmd *cmd_new(struct box *b, const struct command_spec *spec)
{
	struct cmd *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->box = b;
	c->times.taken_up = clock_mono_us();
	c->begin = (struct begin){
		.box = b, .cmd = c, .operation = OPERATION_COMMAND};
	list_append(&b->cmds, &c->node);
	if (id_make(c->rec.id, "cmd_", b->e->node) ||
	    secrets_take(&c->secrets, spec, b->common.env_list) ||
	    record_fill(c, spec)) {
		cmd_discard(c);
		return NULL;
	}
	return c;
}

void box_rename(struct box *b, const char *sandbox)
{
	snprintf(b->rec.id, sizeof(b->rec.id), "%s", sandbox);
	memcpy(b->spec.sandbox, b->rec.id, sizeof(b->spec.sandbox));
	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next)
		memcpy(container_of(n, struct cmd, node)->rec.sandbox,
		       b->rec.id, sizeof(b->rec.id));
}
