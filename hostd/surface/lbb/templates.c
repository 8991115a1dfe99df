/*
 * Templates: the bases, which this host has images for, and saved ones
 * (LBB-100 to LBB-109).
 *
 * A list has the saved ones first, the newest version of each name, and the
 * bases behind them, as if they had been saved before all others; a cursor is
 * the id of a saved one, or the name of a base.
 */
#include "../../link/template.h"
#include "work.h"
#include <stdio.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

/* ---- bases ------------------------------------------------------------ */

static const char *const bases[] = {"lbb/python", "lbb/node", "lbb/shell"};

/* -1: none has this name. */
static int base_by_name(const char *name)
{
	for (size_t i = 0; i < N_OF(bases); i++)
		if (!strcmp(name, bases[i]))
			return (int)i;
	return -1;
}

static bool put_base(struct json_out *j, struct link *link, const char *name)
{
	uint8_t image[HASH_BYTES], kernel[HASH_BYTES];

	if (template_hashes(link, name, image, kernel))
		return false;
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "template");
	json_out_null(j, "id");
	json_out_null(j, "graph");
	json_out_str(j, "name", name);
	json_out_bool(j, "is_base", true);
	json_out_null(j, "version");
	json_out_str(j, "base", name);
	json_out_hex(j, "image_sha256", image, HASH_BYTES);
	json_out_hex(j, "kernel_sha256", kernel, HASH_BYTES);
	json_out_begin(j, "limits", '{');
	json_out_u64(j, "vcpus", LBB_VCPUS_DEFAULT);
	json_out_u64(j, "memory_mib", LBB_MEMORY_DEFAULT);
	json_out_u64(j, "disk_mib", LBB_DISK_DEFAULT);
	json_out_end(j, '}');
	json_out_u64(j, "timeout_ms", ENGINE_TIMEOUT_MS_DEFAULT);
	json_out_null(j, "created_at");
	json_out_end(j, '}');
	return true;
}

/* The end of a page that has `n` of `limit` items, the last one `last`: bases
 * from number `first` on. */
static void end_with_bases(struct request *r, struct json_out *j, size_t n,
			   size_t limit, size_t first, const char *last)
{
	size_t i;

	for (i = first; i < N_OF(bases) && n < limit; i++) {
		n += put_base(j, r->services->link, bases[i]);
		last = bases[i];
	}
	lbb_list_end(j, i < N_OF(bases), last);
	reply_json(r, 200, j);
}

/* ---- save ------------------------------------------------------------- */

static int save_name(void *ctx, const char *path, struct json_span v,
		     struct err *e)
{
	struct work *w = ctx;

	return decode_string(path, v, &w->name, e);
}

static const struct decode_field fields[] = {
	{"name", save_name},	 {"base", work_template},
	{"code", work_code},	 {"limits", work_limits},
	{"config", work_config}, {"timeout_ms", work_timeout},
	{"files", work_files},
};

static void on_template(void *ctx, const struct err *e,
			const struct template_rec *t, int status)
{
	struct request *r = ctx;
	struct json_out j = {0};
	struct err named;

	if (e) {
		named = *e;
		if (e->code == ERR_TEMPLATE_NOT_FOUND &&
		    query_get(&r->query, "name"))
			snprintf(named.param, sizeof(named.param), "name");
		lbb_reply_err(r, &named);
		return;
	}
	lbb_put_template(&j, t, true);
	reply_json(r, status, &j);
}

static void on_saved(void *ctx, const struct err *e,
		     const struct template_rec *t)
{
	on_template(ctx, e, t, 201);
}

static int save_decode(struct request *r, const struct work *w,
		       struct template_spec *spec, struct json_span body,
		       struct err *e)
{
	if (!w->name.data)
		return err_set(e, ERR_INVALID_REQUEST, "name",
			       "name is missing");
	if (!w->template_name.len)
		return err_set(e, ERR_INVALID_REQUEST, "base",
			       "base is missing: lbb/python, lbb/node or "
			       "lbb/shell");
	*spec = (struct template_spec){
		.key = r->idempotency_key,
		.name = (const char *)w->name.data,
		.base = (const char *)w->template_name.data,
		.code = w->code.data,
		.code_len = w->code.len,
		.config = w->config,
		.config_len = w->config_len,
		.limits = w->limits,
		.timeout_ms = w->timeout_ms,
		.seeds = w->seeds,
		.n_seeds = w->n_seeds,
	};
	return work_hash(r, body, NULL, spec->request_hash, e);
}

void lbb_template_save(struct request *r)
{
	struct template_spec spec;
	struct json_span body;
	struct work *w;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	w = work_begin(r);
	if (!w)
		return;
	if (decode_object(w, "", body, fields, N_OF(fields), &e) ||
	    save_decode(r, w, &spec, body, &e)) {
		work_refuse(r, &e);
		return;
	}
	w = work_take(r);
	rc = engine_template_save(r->services->engine, &r->caller, &spec,
				  on_saved, r);
	work_free(w);
	if (rc)
		lbb_engine_failed(r, rc);
}

/* ---- retrieve --------------------------------------------------------- */

static void on_one(void *ctx, const struct err *e, const struct template_rec *t)
{
	on_template(ctx, e, t, 200);
}

static void retrieve_base(struct request *r, const char *name)
{
	struct json_out j = {0};
	struct err e;

	if (put_base(&j, r->services->link, name)) {
		reply_json(r, 200, &j);
		return;
	}
	err_set(&e, ERR_UNAVAILABLE, NULL,
		"the images of %s cannot be read on this host", name);
	reply_err(r, &e);
}

static void retrieve(struct request *r, const char *which, bool is_name)
{
	int at = base_by_name(which), rc;

	if (at >= 0) {
		retrieve_base(r, bases[at]);
		return;
	}
	rc = engine_template_get(r->services->engine, &r->caller, which,
				 is_name, on_one, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

/* name and template of the query: one of them, if `is_needed`. */
static int which(struct request *r, bool is_needed, const char **ret_name,
		 const char **ret_template)
{
	struct err e = {0};

	*ret_name = query_get(&r->query, "name");
	*ret_template = query_get(&r->query, "template");
	if (*ret_name && *ret_template)
		err_set(&e, ERR_INVALID_REQUEST, "template",
			"name and template together: give one of them");
	else if (is_needed && !*ret_name && !*ret_template)
		err_set(&e, ERR_INVALID_REQUEST, "template",
			"the query parameter template is missing");
	if (e.code)
		reply_err(r, &e);
	return e.code ? -1 : 0;
}

void lbb_template_get(struct request *r)
{
	const char *name, *template;

	if (!which(r, true, &name, &template))
		retrieve(r, name ? name : template, name != NULL);
}

/* ---- list ------------------------------------------------------------- */

static void put_list(struct json_out *j, const struct template_rec *t, size_t n)
{
	lbb_list_begin(j);
	for (size_t i = 0; i < n; i++)
		lbb_put_template(j, &t[i], false);
}

static void on_list(void *ctx, const struct err *e,
		    const struct template_rec *t, size_t n, bool has_more)
{
	struct request *r = ctx;
	const char *last = n ? t[n - 1].id : NULL;
	struct store_page page;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	if (lbb_page(r, &page))
		return;
	if (!last)
		last = page.cursor;
	put_list(&j, t, n);
	if (!has_more) {
		end_with_bases(r, &j, n, page.limit, 0, last);
		return;
	}
	lbb_list_end(&j, true, last);
	reply_json(r, 200, &j);
}

static void on_versions(void *ctx, const struct err *e,
			const struct template_rec *t, size_t n, bool has_more)
{
	struct request *r = ctx;
	struct json_out j = {0};
	struct err none;

	if (!e && !n && !query_get(&r->query, "cursor")) {
		err_set(&none, ERR_TEMPLATE_NOT_FOUND, "name",
			"There is no template of this name in graph %s of "
			"environment %s.",
			r->graph, r->environment);
		e = &none;
	}
	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	put_list(&j, t, n);
	lbb_list_end(&j, has_more, n ? t[n - 1].id : NULL);
	reply_json(r, 200, &j);
}

/* versions=true or false; 0, or the request was answered and -1. */
static int versions(struct request *r, bool *ret)
{
	const char *v = query_get(&r->query, "versions");
	struct err e;

	*ret = v && !strcmp(v, "true");
	if (!v || *ret || !strcmp(v, "false"))
		return 0;
	err_set(&e, ERR_INVALID_REQUEST, "versions",
		"versions is \"%.40s\"; it must be true or false", v);
	reply_err(r, &e);
	return -1;
}

static void list(struct request *r, struct store_page page, const char *name)
{
	struct json_out j = {0};
	int at, rc;

	at = page.cursor ? base_by_name(page.cursor) : -1;
	if (at >= 0 && !name) {
		lbb_list_begin(&j);
		end_with_bases(r, &j, 0, page.limit, (size_t)at + 1,
			       page.cursor);
		return;
	}
	page.name = name;
	rc = engine_template_list(r->services->engine, &r->caller, &page,
				  name ? on_versions : on_list, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

void lbb_templates(struct request *r)
{
	const char *name, *template;
	struct store_page page;
	bool all;
	struct err e;

	/* The page is checked, whichever of both it is. */
	if (which(r, false, &name, &template) || versions(r, &all) ||
	    lbb_page(r, &page))
		return;
	if (all && !name) {
		err_set(&e, ERR_INVALID_REQUEST, "versions",
			"versions=true needs a name");
		reply_err(r, &e);
	} else if (name && all && base_by_name(name) < 0) {
		list(r, page, name);
	} else if (name || template) {
		retrieve(r, name ? name : template, name != NULL);
	} else {
		list(r, page, NULL);
	}
}
