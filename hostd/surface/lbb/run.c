/*
 * POST /v1/sandboxes: with `run` one call in a fresh sandbox, without it a
 * sandbox that is held (held.c).
 */
#include "work.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct decode_field run_fields[] = {
	{"code", work_code},	 {"input", work_input},
	{"config", work_config}, {"template", work_template},
	{"limits", work_limits}, {"timeout_ms", work_timeout},
	{"env", work_env},	 {"files", work_files},
};

static int body_run(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	return decode_object(ctx, path, v, run_fields,
			     sizeof(run_fields) / sizeof(*run_fields), e);
}

static const struct decode_field body_fields[] = {
	{"run", body_run},
	{"workflow", work_workflow},
	{"wait_ms", work_wait},
};

static int decode_body(struct request *r, struct work *w, struct run_spec *spec,
		       struct json_span body, struct err *e)
{
	w->wait_ms = ENGINE_WAIT_MS_MAX;
	if (decode_object(w, "", body, body_fields,
			  sizeof(body_fields) / sizeof(*body_fields), e))
		return -1;
	if (!w->code.len && !w->template_name.len)
		return err_set(e, ERR_INVALID_REQUEST, "run.code",
			       "run.code is missing, and there is no "
			       "run.template that could have it");
	*spec = (struct run_spec){
		.key = r->idempotency_key,
		.template_name = (const char *)w->template_name.data,
		.code = w->code.data,
		.input = w->input,
		.config = w->config,
		.code_len = w->code.len,
		.input_len = w->input_len,
		.config_len = w->config_len,
		.limits = w->limits,
		.timeout_ms = w->timeout_ms,
		.env = w->env,
		.seeds = w->seeds,
		.n_seeds = w->n_seeds,
		.wait_ms = w->wait_ms,
	};
	if (work_origin(r, w, ACCESS_RUN, &spec->origin, e))
		return -1;
	return work_hash(r, body, NULL, spec->request_hash, e);
}

/* ---- the call --------------------------------------------------------- */

/* The engine names its spec's fields; the body has them inside `run`. */
static void name_param(struct err *e)
{
	static const char *const inside[] = {
		"code",	    "input",   "config",     "env",
		"template", "limits.", "timeout_ms", "files"};
	char old[ERR_PARAM_BYTES_MAX];

	memcpy(old, e->param, sizeof(old));
	for (size_t i = 0; i < sizeof(inside) / sizeof(*inside); i++)
		if (!strncmp(old, inside[i], strlen(inside[i])))
			snprintf(e->param, sizeof(e->param), "run.%.59s", old);
}

static void on_run(void *ctx, const struct err *e,
		   const struct sandbox_rec *sbx, const struct command_rec *cmd)
{
	struct request *r = ctx;
	struct json_out j = {0};
	struct err named;

	work_end(r);
	if (e) {
		named = *e;
		name_param(&named);
		reply_err(r, &named);
		return;
	}
	lbb_put_run(&j, sbx, cmd);
	reply_json(r, command_status_is_final(cmd->status) ? 200 : 202, &j);
}

void lbb_create(struct request *r)
{
	struct json_span body, run;
	struct run_spec spec;
	struct work *w;
	struct err e;

	if (request_object(r, &body))
		return;
	if (!json_at(body, "run", &run)) {
		lbb_create_held(r, body);
		return;
	}
	w = work_begin(r);
	if (!w)
		return;
	if (decode_body(r, w, &spec, body, &e))
		work_refuse(r, &e);
	else
		work_asked(r, engine_run(r->services->engine, &r->caller, &spec,
					 on_run, r, &w->waiter));
}
