/*
 * Sandboxes that are held: POST /v1/sandboxes without `run`, and
 * POST /v1/sandboxes/commands (LBB-61, LBB-120, LBB-121).
 */
#include "work.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

/* ---- create ----------------------------------------------------------- */

static const struct decode_field create_fields[] = {
	{"template", work_template},
	{"limits", work_limits},
	{"snapshot", work_snapshot},
	{"idle_seconds", work_idle},
	{"expires_in_seconds", work_expires},
	{"env", work_env},
	{"wait_ms", work_wait},
	{"name", work_name},
	{"labels", work_labels},
	{"files", work_files},
	{"workflow", work_workflow},
};

static void on_created(void *ctx, const struct err *e,
		       const struct sandbox_rec *s)
{
	struct request *r = ctx;
	struct json_out j = {0};

	work_end(r);
	if (e) {
		reply_err(r, e);
		return;
	}
	lbb_put_sandbox(&j, s);
	reply_json(r, 201, &j);
}

/* They are the snapshot's. */
static int snapshot_alone(const struct work *w, struct err *e)
{
	bool has_limits =
		w->limits.vcpus || w->limits.memory_mib || w->limits.disk_mib;

	if (!w->snapshot.len || (!w->template_name.len && !has_limits))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST,
		       has_limits ? "limits" : "template",
		       "%s cannot be given with snapshot: a sandbox has those "
		       "of its snapshot",
		       has_limits ? "limits" : "template");
}

void lbb_create_held(struct request *r, struct json_span body)
{
	struct work *w = work_begin(r);
	struct create_spec spec = {.key = r->idempotency_key};
	struct err e;

	if (!w)
		return;
	if (decode_object(w, "", body, create_fields, N_OF(create_fields),
			  &e) ||
	    snapshot_alone(w, &e) ||
	    work_origin(r, w, ACCESS_CREATE, &spec.origin, &e) ||
	    work_hash(r, body, NULL, spec.request_hash, &e)) {
		work_refuse(r, &e);
		return;
	}
	spec.template_name = (const char *)w->template_name.data;
	spec.snapshot = (const char *)w->snapshot.data;
	spec.limits = w->limits;
	spec.idle_seconds = w->idle_seconds;
	spec.expires_in_seconds = w->expires_in_seconds;
	spec.env = w->env;
	spec.name = (const char *)w->name.data;
	spec.labels = (const char *)w->labels.data;
	spec.seeds = w->seeds;
	spec.n_seeds = w->n_seeds;
	spec.wait_ms = w->wait_ms;
	work_asked(r, engine_sandbox_create(r->services->engine, &r->caller,
					    &spec, on_created, r, &w->waiter));
}

/* ---- a command -------------------------------------------------------- */

static const struct decode_field run_fields[] = {
	{"code", work_code},	 {"input", work_input},
	{"config", work_config}, {"timeout_ms", work_timeout},
	{"env", work_env},
};

static int command_run(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct work *w = ctx;

	w->has_run = true;
	return decode_object(w, path, v, run_fields, N_OF(run_fields), e);
}

static const struct decode_field command_fields[] = {
	{"argv", work_argv},	{"cwd", work_cwd},
	{"stdin", work_stdin},	{"run", command_run},
	{"env", work_env},	{"timeout_ms", work_timeout},
	{"wait_ms", work_wait}, {"workflow", work_workflow},
};

static int command_decode(struct request *r, struct work *w,
			  struct command_spec *spec, struct json_span body,
			  struct err *e)
{
	if (decode_object(w, "", body, command_fields, N_OF(command_fields), e))
		return -1;
	if (!w->has_run == !w->argv)
		return err_set(e, ERR_INVALID_REQUEST, "argv",
			       "a command has either argv or run");
	if (w->has_run && (w->cwd.len || w->has_stdin))
		return err_set(e, ERR_INVALID_REQUEST,
			       w->cwd.len ? "cwd" : "stdin",
			       "%s goes with argv, not with run",
			       w->cwd.len ? "cwd" : "stdin");
	spec->argv = w->argv;
	spec->cwd = (const char *)w->cwd.data;
	spec->stdin_data = w->stdin_data.data;
	spec->stdin_len = w->stdin_data.len;
	spec->code = w->code.data;
	spec->code_len = w->code.len;
	spec->input = w->input;
	spec->input_len = w->input_len;
	spec->config = w->config;
	spec->config_len = w->config_len;
	spec->timeout_ms = w->timeout_ms;
	spec->env = w->env;
	spec->wait_ms = w->wait_ms;
	if (work_origin(r, w, ACCESS_COMMAND, &spec->origin, e))
		return -1;
	return work_hash(r, body, spec->sandbox, spec->request_hash, e);
}

static void on_command(void *ctx, const struct err *e,
		       const struct sandbox_rec *s, const struct command_rec *c)
{
	struct request *r = ctx;
	struct json_out j = {0};
	struct err named;

	(void)s;
	work_end(r);
	if (e) {
		/* The engine names its spec's field. */
		named = *e;
		if (!strcmp(e->param, "code"))
			snprintf(named.param, sizeof(named.param), "run.code");
		lbb_reply_err(r, &named);
		return;
	}
	lbb_put_command(&j, c, true);
	reply_json(r, command_status_is_final(c->status) ? 200 : 202, &j);
}

void lbb_command_create(struct request *r)
{
	struct command_spec spec = {.key = r->idempotency_key};
	struct json_span body;
	struct work *w;
	struct err e;

	if (lbb_id(r, "sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND,
		   &spec.sandbox) ||
	    request_object(r, &body))
		return;
	w = work_begin(r);
	if (!w)
		return;
	if (command_decode(r, w, &spec, body, &e))
		work_refuse(r, &e);
	else
		work_asked(r, engine_command_create(r->services->engine,
						    &r->caller, &spec,
						    on_command, r, &w->waiter));
}
