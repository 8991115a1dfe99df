/*
 * Saved templates: saved, read, listed.
 *
 * A version is written once and never changes, so nothing of it is kept in
 * memory: saves with one key, or of one name, meet in the store, which does one
 * after the other.
 *
 * One with Files has them looked up first, and its record says what was found.
 * They are not held by it: a File may be deleted, and then what begins from the
 * version is refused (fill.c).  A save that names one which is not there is
 * refused, unless its key says that it was done before.
 */
#include "../clock.h"
#include "engine_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OPERATION_TEMPLATE "template"
/* Nothing that is saved goes away: trying again soon is of no use. */
#define RETRY_FULL_S 3600

/* One call, while the store is asked. */
struct ask {
	struct engine *e;
	engine_template_fn fn;
	engine_templates_fn list_fn;
	void *ctx;
	char environment[ID_BYTES_MAX], graph[GRAPH_NAME_BYTES_MAX + 1];
	char key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t request_hash[HASH_BYTES];
	char which[TEMPLATE_NAME_BYTES_MAX + 1];
	struct template_rec rec; /* owned: what is saved; */
	struct file_ref *refs;	 /* owned: as its Files were named */
	struct err refusal;
};

static struct ask *ask_new(struct engine *e, const struct caller *who,
			   void *ctx)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->e = e;
	a->ctx = ctx;
	snprintf(a->environment, sizeof(a->environment), "%s",
		 who->environment);
	snprintf(a->graph, sizeof(a->graph), "%s", who->graph);
	return a;
}

static void ask_free(struct ask *a)
{
	template_rec_finish(&a->rec);
	free(a->refs);
	free(a);
}

/* rc: of the store's function, which will call back if it is 0. */
static int asked(struct ask *a, int rc)
{
	if (rc)
		ask_free(a);
	else
		engine_op_begin(a->e);
	return rc;
}

static void answer(struct ask *a, const struct err *err,
		   const struct template_rec *r)
{
	struct engine *e = a->e;

	a->fn(a->ctx, err->code ? err : NULL, err->code ? NULL : r);
	ask_free(a);
	engine_op_end(e);
}

/* ---- save --------------------------------------------------------------- */

static void on_saved(void *ctx, int rc, const struct store_found *f,
		     struct template_rec *r)
{
	struct ask *a = ctx;
	struct err err = {0};

	if (rc == -EDQUOT) {
		err_set(&err, ERR_LIMIT_REACHED, NULL,
			"The graph %s has as many versions of templates as it "
			"may; use another graph.",
			a->graph);
		err.retry_after_s = RETRY_FULL_S;
	} else if (rc == -ENOSPC) {
		err_set(&err, ERR_CAPACITY, NULL,
			"The daemon's disk is full; nothing was saved.");
		err.retry_after_s = ENGINE_RETRY_DISK_S;
	} else if (rc) {
		store_error(&err, ERR_INTERNAL, "template", "", rc);
	} else if (!r) {
		key_conflict(&err, a->key, a->graph);
	}
	(void)f;
	answer(a, &err, r);
}

static void rec_fill(struct template_rec *r, const struct caller *who,
		     const struct template_spec *s)
{
	snprintf(r->environment, sizeof(r->environment), "%s",
		 who->environment);
	snprintf(r->graph, sizeof(r->graph), "%s", who->graph);
	snprintf(r->name, sizeof(r->name), "%s", s->name);
	snprintf(r->base, sizeof(r->base), "%s", s->base);
	r->limits = s->limits;
	r->timeout_ms = s->timeout_ms;
	r->created_ms = clock_wall_ms();
	r->has_code = s->code != NULL;
	r->has_config = s->config != NULL;
	r->code_bytes = s->code ? s->code_len : 0;
	r->config_bytes = s->config ? s->config_len : 0;
	sha256_of(r->code_sha256, s->code, s->code_len);
	sha256_of(r->config_sha256, s->config, s->config_len);
}

/* All but what the look-up of its Files tells of them. */
static int rec_make(struct ask *a, const struct caller *who,
		    const struct template_spec *s)
{
	struct template_rec *r = &a->rec;
	struct template_files *f = &r->files;
	int rc = id_make(r->id, "sbt_", a->e->node);

	rec_fill(r, who, s);
	if (!rc && s->code)
		rc = bytes_append(&r->code, s->code, s->code_len);
	if (!rc && s->config)
		rc = bytes_append(&r->config, s->config, s->config_len);
	if (rc || !s->n_seeds)
		return rc;
	f->at = calloc(s->n_seeds, sizeof(*f->at));
	a->refs = calloc(s->n_seeds, sizeof(*a->refs));
	if (!f->at || !a->refs)
		return -ENOMEM;
	for (; !rc && f->n < s->n_seeds; f->n++) {
		const struct seed *seed = &s->seeds[f->n];

		a->refs[f->n] = seed->file;
		rc = bytes_append(&f->at[f->n].path, seed->path.text,
				  seed->path.len);
	}
	return rc;
}

static struct store_begin key_of(const struct ask *a)
{
	struct store_begin key = {
		.environment = a->environment,
		.graph = a->graph,
		.operation = OPERATION_TEMPLATE,
		.key = a->key,
	};

	memcpy(key.request_hash, a->request_hash, HASH_BYTES);
	return key;
}

static int save(struct ask *a)
{
	const struct store_begin key = key_of(a);

	return store_template_save(a->e->store, &key, &a->rec, on_saved, a);
}

/* ---- its Files ---------------------------------------------------------- */

static void on_one(void *ctx, int rc, struct template_rec *r);

/* Refused, but for a key that is known. */
static void on_key(void *ctx, int rc, const struct store_found *f)
{
	struct ask *a = ctx;

	if (rc) {
		store_error(&a->refusal, ERR_INTERNAL, "template", "", rc);
	} else if (f->is_found && !f->is_same_request) {
		key_conflict(&a->refusal, a->key, a->graph);
	} else if (f->is_found) {
		snprintf(a->which, sizeof(a->which), "%s", f->command);
		rc = store_template_get(a->e->store, a->environment, a->graph,
					a->which, false, on_one, a);
		if (!rc)
			return;
		store_error(&a->refusal, ERR_INTERNAL, "template", a->which,
			    rc);
	}
	answer(a, &a->refusal, NULL);
}

/* As a start would have them: a record, and all of the bytes. */
static int take_file(struct ask *a, size_t i, const struct file_rec *r)
{
	struct template_file *f = &a->rec.files.at[i];
	struct file_ref ref = {.id = ""};
	int fd = graph_file_bytes(a->e, r);

	if (fd < 0) {
		memcpy(ref.sha256, r->sha256, HASH_BYTES);
		fill_error(&a->refusal, i, &ref, a->graph, fd);
		return -1;
	}
	close(fd);
	memcpy(f->id, r->id, sizeof(f->id));
	memcpy(f->sha256, r->sha256, HASH_BYTES);
	f->bytes = r->bytes;
	return 0;
}

static void on_files(void *ctx, int rc, struct file_rec *r, size_t n,
		     bool has_more)
{
	struct ask *a = ctx;
	const struct store_begin key = key_of(a);
	bool is_whole = !rc;

	(void)has_more;
	if (a->e->is_ending) {
		err_set(&a->refusal, ERR_UNAVAILABLE, NULL, NULL);
		answer(a, &a->refusal, NULL);
		return;
	}
	if (rc)
		fill_error(&a->refusal, n, &a->refs[n], a->graph, rc);
	for (size_t i = 0; is_whole && i < n; i++)
		is_whole = !take_file(a, i, &r[i]);
	rc = is_whole ? save(a) : store_key_find(a->e->store, &key, on_key, a);
	if (!rc)
		return;
	store_error(&a->refusal, ERR_INTERNAL, "template", "", rc);
	answer(a, &a->refusal, NULL);
}

static int find_files(struct ask *a)
{
	return store_file_find(a->e->store, a->environment, a->graph, a->refs,
			       a->rec.files.n, on_files, a);
}

/* ---- the call ----------------------------------------------------------- */

int engine_template_save(struct engine *e, const struct caller *who,
			 const struct template_spec *asked_for,
			 engine_template_fn fn, void *ctx)
{
	struct template_spec spec = *asked_for;
	struct err err = {0};
	struct ask *a;
	int rc;

	if (e->is_ending)
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	if (err.code || template_spec_check(who, &spec, &err)) {
		fn(ctx, &err, NULL);
		return 0;
	}
	a = ask_new(e, who, ctx);
	if (!a)
		return -ENOMEM;
	a->fn = fn;
	snprintf(a->key, sizeof(a->key), "%s", spec.key);
	memcpy(a->request_hash, spec.request_hash, HASH_BYTES);
	rc = rec_make(a, who, &spec);
	if (!rc)
		rc = spec.n_seeds ? find_files(a) : save(a);
	return asked(a, rc);
}

/* ---- get, list ---------------------------------------------------------- */

static void on_one(void *ctx, int rc, struct template_rec *r)
{
	struct ask *a = ctx;
	const struct caller who = {.environment = a->environment,
				   .graph = a->graph};
	struct err err = {0};

	if (rc)
		template_error(&err, &who, a->which, rc);
	answer(a, &err, r);
}

int engine_template_get(struct engine *e, const struct caller *who,
			const char *which, bool is_name, engine_template_fn fn,
			void *ctx)
{
	struct ask *a = ask_new(e, who, ctx);

	if (!a)
		return -ENOMEM;
	a->fn = fn;
	snprintf(a->which, sizeof(a->which), "%s", which);
	return asked(a, store_template_get(e->store, a->environment, a->graph,
					   which, is_name, on_one, a));
}

static void on_list(void *ctx, int rc, struct template_rec *r, size_t n,
		    bool has_more)
{
	struct ask a = *(struct ask *)ctx;
	struct err err = {0};

	ask_free(ctx);
	if (rc)
		list_error(&err, rc);
	a.list_fn(a.ctx, rc ? &err : NULL, r, n, has_more);
	engine_op_end(a.e);
}

int engine_template_list(struct engine *e, const struct caller *who,
			 const struct store_page *p, engine_templates_fn fn,
			 void *ctx)
{
	struct ask *a = ask_new(e, who, ctx);
	struct store_page mine = page_of(who, p);

	if (!a)
		return -ENOMEM;
	a->list_fn = fn;
	return asked(a, store_template_list(e->store, &mine, on_list, a));
}
