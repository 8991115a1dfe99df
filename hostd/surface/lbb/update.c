/* PATCH /v1/sandboxes: name, labels and times of a held sandbox (LBB-64). */
#include "work.h"

static int limits_stay(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	(void)ctx;
	(void)v;
	return err_set(e, ERR_LIMITS_INVALID, path,
		       "%s of a sandbox do not change, also while it is "
		       "stopped: make another sandbox",
		       path);
}

static const struct decode_field fields[] = {
	{"name", work_name},	     {"labels", work_labels},
	{"idle_seconds", work_idle}, {"expires_in_seconds", work_expires},
	{"limits", limits_stay},
};

static void on_updated(void *ctx, const struct err *e,
		       const struct sandbox_rec *s)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	lbb_put_sandbox(&j, s);
	reply_json(r, 200, &j);
}

void lbb_sandbox_update(struct request *r)
{
	struct update_spec spec = {0};
	struct json_span body;
	struct work *w;
	struct err e;
	int rc;

	if (lbb_id(r, "sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND,
		   &spec.sandbox) ||
	    request_object(r, &body))
		return;
	w = work_begin(r);
	if (!w)
		return;
	if (decode_object(w, "", body, fields, sizeof(fields) / sizeof(*fields),
			  &e)) {
		work_refuse(r, &e);
		return;
	}
	w = work_take(r);
	spec.has_name = w->has_name;
	spec.has_labels = w->has_labels;
	spec.name = (const char *)w->name.data;
	spec.labels = (const char *)w->labels.data;
	spec.idle_seconds = w->idle_seconds;
	spec.expires_in_seconds = w->expires_in_seconds;
	rc = engine_sandbox_update(r->services->engine, &r->caller, &spec,
				   on_updated, r);
	work_free(w);
	if (rc)
		lbb_engine_failed(r, rc);
}
