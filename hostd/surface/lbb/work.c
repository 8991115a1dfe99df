/* Fields of the calls that start something; see work.h. */
#include "work.h"
#include "../../http/canon.h"
#include "../../http/json_str.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ENV_NAME_BYTES_MAX 256
#define WORKSPACE	   "/workspace"

/* ---- life ------------------------------------------------------------- */

void work_free(struct work *w)
{
	bytes_finish_secret(&w->code);
	bytes_finish(&w->template_name);
	bytes_finish(&w->snapshot);
	bytes_finish(&w->cwd);
	bytes_finish(&w->name);
	bytes_finish(&w->labels);
	bytes_finish_secret(&w->stdin_data);
	bytes_finish_secret(&w->env_text);
	bytes_finish_secret(&w->argv_text);
	free(w->env);
	free(w->seeds);
	free(w->argv);
	free(w);
}

struct work *work_begin(struct request *r)
{
	r->op = calloc(1, sizeof(struct work));
	if (!r->op)
		lbb_engine_failed(r, -ENOMEM);
	return r->op;
}

void work_end(struct request *r)
{
	work_free(r->op);
	r->op = NULL;
	r->abandon = NULL;
}

struct work *work_take(struct request *r)
{
	struct work *w = r->op;

	r->op = NULL;
	return w;
}

void work_refuse(struct request *r, const struct err *e)
{
	work_end(r);
	reply_err(r, e);
}

static void on_abandon(struct request *r)
{
	struct work *w = r->op;

	engine_cancel_wait(r->services->engine, w->waiter);
	work_free(w);
	r->op = NULL;
	request_drop(r);
}

void work_asked(struct request *r, int rc)
{
	if (!rc) {
		r->abandon = on_abandon;
		return;
	}
	work_end(r);
	lbb_engine_failed(r, rc);
}

/* ---- rows ------------------------------------------------------------- */

/* Inside `run` and beside it. */
static int given_twice(const char *path, const char *name, struct err *e)
{
	return err_set(e, ERR_INVALID_REQUEST, path,
		       "%s: %s is given twice, beside run and in it", path,
		       name);
}

/* ---- code and what it gets -------------------------------------------- */

int work_code(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	if (decode_string(path, v, &w->code, e))
		return -1;
	if (w->code.len > ENGINE_CODE_BYTES_MAX)
		return err_set(e, ERR_CODE_TOO_LARGE, path,
			       "%s has %zu bytes; at most %u", path,
			       w->code.len, ENGINE_CODE_BYTES_MAX);
	if (!w->code.len)
		return err_set(e, ERR_INVALID_REQUEST, path, "%s is empty",
			       path);
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

int work_input(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	return user_json(path, v, &w->input, &w->input_len, e);
}

int work_config(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	return user_json(path, v, &w->config, &w->config_len, e);
}

int work_template(void *ctx, const char *path, struct json_span v,
		  struct err *e)
{
	struct work *w = ctx;

	if (decode_string(path, v, &w->template_name, e))
		return -1;
	/* The engine copies a name into a record: longer names no template
	 * has. */
	if (!w->template_name.len ||
	    w->template_name.len > TEMPLATE_NAME_BYTES_MAX)
		return err_set(e, ERR_TEMPLATE_NOT_FOUND, path,
			       "there is no template with a name of %zu bytes",
			       w->template_name.len);
	return 0;
}

int work_snapshot(void *ctx, const char *path, struct json_span v,
		  struct err *e)
{
	struct work *w = ctx;
	const char *id;

	if (decode_string(path, v, &w->snapshot, e))
		return -1;
	id = (const char *)w->snapshot.data;
	if (w->snapshot.len >= ID_BYTES_MAX || strncmp(id, "snp_", 4) ||
	    strspn(id + 4, "0123456789abcdefghijklmnopqrstuvwxyz") !=
		    w->snapshot.len - 4)
		return err_set(e, ERR_SNAPSHOT_NOT_FOUND, path,
			       "%s is no id of a snapshot: snp_...", path);
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

int work_limits(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	return lbb_decode_limits(&w->limits, path, v, e);
}

int work_timeout(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	if (w->timeout_ms)
		return given_twice(path, "timeout_ms", e);
	return decode_u32(path, v, 1, ENGINE_TIMEOUT_MS_MAX,
			  ERR_TIMEOUT_INVALID, &w->timeout_ms, e);
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

static int env_add(struct work *w, const char *path,
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
	if (w->n_env == ENGINE_ENV_NAMES_MAX)
		return err_set(e, ERR_ENV_INVALID, path,
			       "%s has more than %d names", path,
			       ENGINE_ENV_NAMES_MAX);
	if (w->env_text.len + name.len + value.len + 2 > ENGINE_ENV_BYTES_MAX)
		return err_set(e, ERR_ENV_INVALID, path,
			       "%s has more than %u bytes in all", path,
			       ENGINE_ENV_BYTES_MAX);
	if (bytes_append_secret(&w->env_text, name.data, name.len) ||
	    bytes_append_secret(&w->env_text, "=", 1) ||
	    bytes_append_secret(&w->env_text, value.data, value.len + 1))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	w->n_env++;
	return 0;
}

int work_env(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;
	struct json_member m;
	struct json_iter it;
	const char *p;

	if (w->env)
		return given_twice(path, "env", e);
	if (decode_type(path, v, JSON_KIND_OBJECT, e)) {
		e->code = ERR_ENV_INVALID;
		return -1;
	}
	/* No text of it is longer than how it is written; one allocation. */
	if (bytes_reserve(&w->env_text, v.len < ENGINE_ENV_BYTES_MAX
						? v.len
						: ENGINE_ENV_BYTES_MAX))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m))
		if (env_add(w, path, &m, e))
			return -1;
	w->env = calloc(w->n_env + 1, sizeof(*w->env));
	if (!w->env)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	p = (const char *)w->env_text.data;
	for (size_t i = 0; i < w->n_env; i++, p += strlen(p) + 1)
		w->env[i] = p;
	return 0;
}

/* ---- argv ------------------------------------------------------------- */

static int argv_add(struct work *w, const char *path, struct json_span v,
		    struct err *e)
{
	_cleanup_secret_ struct bytes word = {0};

	if (decode_string(path, v, &word, e))
		return -1;
	if (w->n_argv == ENGINE_ARGV_WORDS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "argv has more than %d words",
			       ENGINE_ARGV_WORDS_MAX);
	if (w->argv_text.len + word.len + 1 > ENGINE_ARGV_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "argv has more than %u bytes in all",
			       ENGINE_ARGV_BYTES_MAX);
	if (bytes_append_secret(&w->argv_text, word.data, word.len + 1))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	w->n_argv++;
	return 0;
}

int work_argv(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;
	struct json_member m;
	struct json_iter it;
	char one[32];
	const char *p;

	if (decode_type(path, v, JSON_KIND_ARRAY, e))
		return -1;
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m)) {
		snprintf(one, sizeof(one), "%.20s[%zu]", path, w->n_argv);
		if (argv_add(w, one, m.value, e))
			return -1;
	}
	if (!w->n_argv || !*w->argv_text.data)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s names no program: its first word is missing "
			       "or empty",
			       path);
	w->argv = calloc(w->n_argv + 1, sizeof(*w->argv));
	if (!w->argv)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	p = (const char *)w->argv_text.data;
	for (size_t i = 0; i < w->n_argv; i++, p += strlen(p) + 1)
		w->argv[i] = p;
	return 0;
}

/* A relative one is of the workspace. */
int work_cwd(void *ctx, const char *path, struct json_span v, struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct work *w = ctx;

	if (decode_string(path, v, &text, e))
		return -1;
	if (!text.len || text.len > ENGINE_CWD_BYTES_MAX - sizeof(WORKSPACE))
		return err_set(
			e, ERR_INVALID_REQUEST, path,
			"%s has %zu bytes; it must be a path of 1 to %zu", path,
			text.len, ENGINE_CWD_BYTES_MAX - sizeof(WORKSPACE));
	if (*text.data != '/' &&
	    bytes_append(&w->cwd, WORKSPACE "/", sizeof(WORKSPACE)))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	if (bytes_append(&w->cwd, text.data, text.len + 1))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	return 0;
}

/* Text of any characters, NUL too. */
int work_stdin(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;
	int rc;

	if (decode_type(path, v, JSON_KIND_STRING, e))
		return -1;
	w->has_stdin = true;
	rc = json_text(v, &w->stdin_data);
	if (rc == -EILSEQ)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has a lone surrogate, which no UTF-8 text "
			       "can hold",
			       path);
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	if (w->stdin_data.len > ENGINE_STDIN_BYTES_MAX)
		return err_set(e, ERR_STDIN_TOO_LARGE, path,
			       "%s has %zu bytes; at most %u", path,
			       w->stdin_data.len, ENGINE_STDIN_BYTES_MAX);
	return 0;
}

/* ---- times ------------------------------------------------------------ */

int work_wait(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	return decode_u32(path, v, 0, ENGINE_WAIT_MS_MAX, ERR_INVALID_REQUEST,
			  &w->wait_ms, e);
}

int work_idle(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	return decode_u32(path, v, ENGINE_IDLE_SECONDS_MIN,
			  ENGINE_IDLE_SECONDS_MAX, ERR_INVALID_REQUEST,
			  &w->idle_seconds, e);
}

int work_expires(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;

	return decode_u32(path, v, ENGINE_EXPIRES_IN_SECONDS_MIN,
			  ENGINE_EXPIRES_IN_SECONDS_MAX, ERR_INVALID_REQUEST,
			  &w->expires_in_seconds, e);
}

/* ---- the request ------------------------------------------------------ */

int work_hash(struct request *r, struct json_span body, const char *record,
	      uint8_t ret[HASH_BYTES], struct err *e)
{
	struct canon_request canon = {
		.method = http_method_name(r->method),
		.path = r->path,
		.operation = r->route->operation,
		.graph = r->graph,
		.record = record,
		.body = body,
	};
	int rc = canon_hash(r->services->request_key, &canon, ret);

	if (rc)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot hash the request: %s", strerror(-rc));
	return 0;
}
