/*
 * POST /v1/sandboxes with `run`: one call in a fresh sandbox.
 *
 * The body's input and config stay where they are, in the bytes of the body;
 * the spec given to the engine points at them.  So the request keeps its body
 * until it is answered.
 */
#include "../../http/canon.h"
#include "../../http/json_str.h"
#include "decode.h"
#include "lbb.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ENV_NAME_BYTES_MAX 256

struct run_op {
	struct run_spec spec;
	struct bytes code, template_name; /* owned; NUL terminated */
	struct bytes env_text;		  /* owned: "A=b\0C=d\0" */
	const char **env;		  /* owned: into env_text */
	size_t n_env;
	struct json_span run; /* none = the body had no run */
	struct waiter *waiter;
};

static void op_free(struct run_op *op)
{
	bytes_finish_secret(&op->code);
	bytes_finish(&op->template_name);
	bytes_finish_secret(&op->env_text);
	free(op->env);
	free(op);
}

/* ---- fields of run ---------------------------------------------------- */

static int run_code(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	struct run_op *op = ctx;

	if (decode_string(path, v, &op->code, e))
		return -1;
	if (op->code.len > ENGINE_CODE_BYTES_MAX)
		return err_set(e, ERR_CODE_TOO_LARGE, path,
			       "%s has %zu bytes; at most %u", path,
			       op->code.len, ENGINE_CODE_BYTES_MAX);
	if (!op->code.len)
		return err_set(e, ERR_INVALID_REQUEST, path, "%s is empty",
			       path);
	op->spec.code = op->code.data;
	op->spec.code_len = op->code.len;
	return 0;
}

static int user_json(const char *path, struct json_span v, const void **ret,
		     size_t *ret_len, struct err *e)
{
	if (v.len > ENGINE_JSON_BYTES_MAX)
		return err_set(e, ERR_INPUT_TOO_LARGE, path,
			       "%s has %zu bytes as JSON text; at most %u",
			       path, v.len, ENGINE_JSON_BYTES_MAX);
	if (json_depth(v) > JSON_USER_DEPTH_MAX)
		return err_set(e, ERR_INVALID_JSON, path,
			       "%s is nested deeper than %d", path,
			       JSON_USER_DEPTH_MAX);
	*ret = v.at;
	*ret_len = v.len;
	return 0;
}

static int run_input(void *ctx, const char *path, struct json_span v,
		     struct err *e)
{
	struct run_op *op = ctx;

	return user_json(path, v, &op->spec.input, &op->spec.input_len, e);
}

static int run_config(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct run_op *op = ctx;

	return user_json(path, v, &op->spec.config, &op->spec.config_len, e);
}

static int run_template(void *ctx, const char *path, struct json_span v,
			struct err *e)
{
	struct run_op *op = ctx;

	if (decode_string(path, v, &op->template_name, e))
		return -1;
	/* The engine copies a name into a record: longer names no template
	 * has. */
	if (!op->template_name.len ||
	    op->template_name.len > TEMPLATE_NAME_BYTES_MAX)
		return err_set(e, ERR_TEMPLATE_NOT_FOUND, path,
			       "there is no template with a name of %zu bytes",
			       op->template_name.len);
	op->spec.template_name = (const char *)op->template_name.data;
	return 0;
}

static int limit_vcpus(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct limits *l = ctx;

	return decode_u32(path, v, LBB_VCPUS_MIN, LBB_VCPUS_MAX,
			  ERR_LIMITS_INVALID, &l->vcpus, e);
}

static int limit_memory(void *ctx, const char *path, struct json_span v,
			struct err *e)
{
	struct limits *l = ctx;

	return decode_u32(path, v, LBB_MEMORY_MIB_MIN, LBB_MEMORY_MIB_MAX,
			  ERR_LIMITS_INVALID, &l->memory_mib, e);
}

static int limit_disk(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct limits *l = ctx;

	return decode_u32(path, v, LBB_DISK_MIB_MIN, LBB_DISK_MIB_MAX,
			  ERR_LIMITS_INVALID, &l->disk_mib, e);
}

static const struct decode_field limit_fields[] = {
	{"vcpus", limit_vcpus},
	{"memory_mib", limit_memory},
	{"disk_mib", limit_disk},
};

int lbb_decode_limits(struct limits *l, const char *path, struct json_span v,
		      struct err *e)
{
	return decode_object(l, path, v, limit_fields,
			     sizeof(limit_fields) / sizeof(*limit_fields), e);
}

static int run_limits(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct run_op *op = ctx;

	return lbb_decode_limits(&op->spec.limits, path, v, e);
}

static int run_timeout(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct run_op *op = ctx;

	return decode_u32(path, v, 1, ENGINE_TIMEOUT_MS_MAX,
			  ERR_TIMEOUT_INVALID, &op->spec.timeout_ms, e);
}

/* ---- env -------------------------------------------------------------- */

static int env_name(const char *path, const char *name, size_t len,
		    struct err *e)
{
	static const char letters[] =
		"_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	static const char more[] = "0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				   "abcdefghijklmnopqrstuvwxyz";

	if (!len || len > ENV_NAME_BYTES_MAX || !strchr(letters, *name) ||
	    strspn(name, more) != len)
		return err_set(e, ERR_ENV_INVALID, path,
			       "%s: the name \"%.64s\" is not [A-Za-z_]"
			       "[A-Za-z0-9_]* of 1 to %d characters",
			       path, name, ENV_NAME_BYTES_MAX);
	if (!strncmp(name, "LBB_", 4))
		return err_set(e, ERR_ENV_INVALID, path,
			       "%s: names that start with LBB_ are refused: "
			       "%.64s",
			       path, name);
	return 0;
}

static int env_add(struct run_op *op, const char *path,
		   const struct json_member *m, struct err *e)
{
	_cleanup_secret_ struct bytes name = {0}, value = {0};
	char shown[ENV_NAME_BYTES_MAX + 8], one[sizeof(shown) + 16];

	json_str_print(shown, sizeof(shown), (const uint8_t *)m->name.at);
	snprintf(one, sizeof(one), "%s.%.*s", path, (int)strlen(shown) - 2,
		 shown + 1);
	if (decode_string(one, m->name, &name, e) ||
	    env_name(path, (const char *)name.data, name.len, e) ||
	    decode_string(one, m->value, &value, e)) {
		e->code = e->code == ERR_INTERNAL ? ERR_INTERNAL
						  : ERR_ENV_INVALID;
		return -1;
	}
	if (op->n_env == ENGINE_ENV_NAMES_MAX)
		return err_set(e, ERR_ENV_INVALID, path,
			       "%s has more than %d names", path,
			       ENGINE_ENV_NAMES_MAX);
	if (op->env_text.len + name.len + value.len + 2 > ENGINE_ENV_BYTES_MAX)
		return err_set(e, ERR_ENV_INVALID, path,
			       "%s has more than %u bytes in all", path,
			       ENGINE_ENV_BYTES_MAX);
	if (bytes_append_secret(&op->env_text, name.data, name.len) ||
	    bytes_append_secret(&op->env_text, "=", 1) ||
	    bytes_append_secret(&op->env_text, value.data, value.len + 1))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	op->n_env++;
	return 0;
}

static int run_env(void *ctx, const char *path, struct json_span v,
		   struct err *e)
{
	struct run_op *op = ctx;
	struct json_member m;
	struct json_iter it;
	const char *p;

	if (decode_type(path, v, JSON_KIND_OBJECT, e)) {
		e->code = ERR_ENV_INVALID;
		return -1;
	}
	/* No text of it is longer than how it is written; one allocation. */
	if (bytes_reserve(&op->env_text, v.len < ENGINE_ENV_BYTES_MAX
						 ? v.len
						 : ENGINE_ENV_BYTES_MAX))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m))
		if (env_add(op, path, &m, e))
			return -1;
	op->env = calloc(op->n_env + 1, sizeof(*op->env));
	if (!op->env)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	p = (const char *)op->env_text.data;
	for (size_t i = 0; i < op->n_env; i++, p += strlen(p) + 1)
		op->env[i] = p;
	op->spec.env = op->env;
	return 0;
}

static const struct decode_field run_fields[] = {
	{"code", run_code},	{"input", run_input},
	{"config", run_config}, {"template", run_template},
	{"limits", run_limits}, {"timeout_ms", run_timeout},
	{"env", run_env},
};

/* ---- the body --------------------------------------------------------- */

static int body_run(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	struct run_op *op = ctx;

	op->run = v;
	return decode_object(op, path, v, run_fields,
			     sizeof(run_fields) / sizeof(*run_fields), e);
}

static int body_wait(void *ctx, const char *path, struct json_span v,
		     struct err *e)
{
	struct run_op *op = ctx;

	return decode_u32(path, v, 0, ENGINE_WAIT_MS_MAX, ERR_INVALID_REQUEST,
			  &op->spec.wait_ms, e);
}

static const struct decode_field body_fields[] = {
	{"run", body_run},
	{"wait_ms", body_wait},
};

static int decode_body(struct request *r, struct run_op *op,
		       struct json_span body, struct err *e)
{
	struct canon_request canon = {
		.method = http_method_name(r->method),
		.path = r->path,
		.operation = r->route->operation,
		.graph = r->graph,
		.body = body,
	};
	struct json_span run;
	int rc;

	if (!json_at(body, "run", &run))
		return err_set(e, ERR_INVALID_REQUEST, "run",
			       "the field run is missing: this version starts "
			       "sandboxes for one call only");
	op->spec.wait_ms = ENGINE_WAIT_MS_MAX;
	if (decode_object(op, "", body, body_fields,
			  sizeof(body_fields) / sizeof(*body_fields), e))
		return -1;
	if (!op->spec.code)
		return err_set(e, ERR_INVALID_REQUEST, "run.code",
			       "run.code is missing");
	op->spec.key = r->idempotency_key;
	rc = canon_hash(r->services->request_key, &canon,
			op->spec.request_hash);
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot hash the request: %s", strerror(-rc));
	return 0;
}

/* ---- the call --------------------------------------------------------- */

/* The engine names its spec's fields; the body has them inside `run`. */
static void name_param(struct err *e)
{
	static const char *const inside[] = {"code",	  "input",    "config",
					     "env",	  "template", "limits.",
					     "timeout_ms"};
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

	op_free(r->op);
	r->op = NULL;
	r->abandon = NULL;
	if (e) {
		named = *e;
		name_param(&named);
		reply_err(r, &named);
		return;
	}
	lbb_put_run(&j, sbx, cmd);
	reply_json(r, command_status_is_final(cmd->status) ? 200 : 202, &j);
}

static void on_abandon(struct request *r)
{
	struct run_op *op = r->op;

	engine_cancel_wait(r->services->engine, op->waiter);
	op_free(op);
	r->op = NULL;
	request_drop(r);
}

void lbb_create(struct request *r)
{
	struct json_span body;
	struct run_op *op;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	op = calloc(1, sizeof(*op));
	if (!op) {
		lbb_engine_failed(r, -ENOMEM);
		return;
	}
	if (decode_body(r, op, body, &e)) {
		op_free(op);
		reply_err(r, &e);
		return;
	}
	r->op = op;
	rc = engine_run(r->services->engine, &r->caller, &op->spec, on_run, r,
			&op->waiter);
	if (rc) {
		op_free(op);
		r->op = NULL;
		lbb_engine_failed(r, rc);
		return;
	}
	r->abandon = on_abandon;
}
