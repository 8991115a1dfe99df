/*
 * Is a request inside its limits?  Every refusal names the field, the value
 * and the range, and is given before any record exists.
 */
#include "../link/template.h"
#include "engine_priv.h"
#include "log.h"
#include <stdio.h>
#include <stdlib.h>

#define TEMPLATE_DEFAULT "lbb/python"

static const struct {
	const char *param;
	size_t offset;
	uint32_t min, max, dflt;
} ranges[] = {
	{"limits.vcpus", offsetof(struct limits, vcpus), 1, 4, 1},
	{"limits.memory_mib", offsetof(struct limits, memory_mib), 128, 8192,
	 1024},
	{"limits.disk_mib", offsetof(struct limits, disk_mib), 256, 10240,
	 4096},
};

static int limits_check(const struct limits *asked, struct limits *ret,
			struct err *err)
{
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		uint32_t v;

		memcpy(&v, (const char *)asked + ranges[i].offset, sizeof(v));
		if (!v)
			v = ranges[i].dflt;
		if (v < ranges[i].min || v > ranges[i].max)
			return err_set(err, ERR_LIMITS_INVALID, ranges[i].param,
				       "%s is %u; it must be %u to %u.",
				       ranges[i].param, v, ranges[i].min,
				       ranges[i].max);
		memcpy((char *)ret + ranges[i].offset, &v, sizeof(v));
	}
	return 0;
}

int env_check(const char *const *env, struct err *err)
{
	size_t n = 0, bytes = 0;

	for (; env && env[n]; n++) {
		const char *eq = strchr(env[n], '=');
		int name_len = eq ? (int)(eq - env[n]) : 0;

		bytes += strlen(env[n]) + 1;
		if (name_len <= 0 || name_len > 255)
			return err_set(err, ERR_ENV_INVALID, "env",
				       "env has a name of %d bytes; it must "
				       "be 1 to 255 without \"=\".",
				       name_len);
		if (!strncmp(env[n], "LBB_", 4))
			return err_set(err, ERR_ENV_INVALID, "env",
				       "env has the name \"%.*s\"; names that "
				       "begin with LBB_ are reserved.",
				       name_len > 64 ? 64 : name_len, env[n]);
	}
	if (n > ENGINE_ENV_NAMES_MAX)
		return err_set(err, ERR_ENV_INVALID, "env",
			       "env has %zu names; at most %d are taken.", n,
			       ENGINE_ENV_NAMES_MAX);
	if (bytes > ENGINE_ENV_BYTES_MAX)
		return err_set(err, ERR_ENV_INVALID, "env",
			       "env has %zu bytes; at most %u are taken.",
			       bytes, ENGINE_ENV_BYTES_MAX);
	return 0;
}

static int code_size_check(size_t len, struct err *err)
{
	if (len <= ENGINE_CODE_BYTES_MAX)
		return 0;
	return err_set(err, ERR_CODE_TOO_LARGE, "code",
		       "code has %zu bytes; at most %u are taken.", len,
		       ENGINE_CODE_BYTES_MAX);
}

static int config_size_check(size_t len, struct err *err)
{
	if (len <= ENGINE_JSON_BYTES_MAX)
		return 0;
	return err_set(err, ERR_INPUT_TOO_LARGE, "config",
		       "config has %zu bytes; at most %u are taken.", len,
		       ENGINE_JSON_BYTES_MAX);
}

static int code_check(const struct command_spec *s, bool is_needed,
		      struct err *err)
{
	if (is_needed && (!s->code || !s->code_len))
		return err_set(err, ERR_INVALID_REQUEST, "code",
			       "code is missing: neither the call nor its "
			       "template has any.");
	if (s->code && code_size_check(s->code_len, err))
		return -1;
	if (s->input && s->input_len > ENGINE_JSON_BYTES_MAX)
		return err_set(err, ERR_INPUT_TOO_LARGE, "input",
			       "input has %zu bytes; at most %u are taken.",
			       s->input_len, ENGINE_JSON_BYTES_MAX);
	return s->config ? config_size_check(s->config_len, err) : 0;
}

static int argv_check(const struct command_spec *s, struct err *err)
{
	size_t n = 0, bytes = 0;

	for (; s->argv[n]; n++)
		bytes += strlen(s->argv[n]) + 1;
	if (!n || !*s->argv[0])
		return err_set(err, ERR_INVALID_REQUEST, "argv",
			       "argv has no program: its first word is missing "
			       "or empty.");
	if (n > ENGINE_ARGV_WORDS_MAX || bytes > ENGINE_ARGV_BYTES_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "argv",
			       "argv has %zu words and %zu bytes; at most %d "
			       "and %u are taken.",
			       n, bytes, ENGINE_ARGV_WORDS_MAX,
			       ENGINE_ARGV_BYTES_MAX);
	if (s->cwd && (*s->cwd != '/' || strlen(s->cwd) > ENGINE_CWD_BYTES_MAX))
		return err_set(err, ERR_INVALID_REQUEST, "cwd",
			       "cwd has %zu bytes; it must be an absolute path "
			       "of at most %d.",
			       strlen(s->cwd), ENGINE_CWD_BYTES_MAX);
	if (s->stdin_len > ENGINE_STDIN_BYTES_MAX)
		return err_set(err, ERR_STDIN_TOO_LARGE, "stdin",
			       "stdin has %zu bytes; at most %u are taken.",
			       s->stdin_len, ENGINE_STDIN_BYTES_MAX);
	return 0;
}

int caller_check(const struct caller *who, struct err *err)
{
	size_t len = strlen(who->graph);

	if (!who->is_enabled)
		return err_set(err, ERR_NOT_ENABLED, NULL, NULL);
	if (who->plan != PLAN_FULL)
		return err_set(err, ERR_PLAN_UNAVAILABLE, NULL, NULL);
	if (!len || len > GRAPH_NAME_BYTES_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "graph",
			       "graph is a name of %zu bytes; it must be 1 to "
			       "%d.",
			       len, GRAPH_NAME_BYTES_MAX);
	for (const char *p = who->graph; *p; p++)
		if (*p < 0x20 || *p > 0x7e)
			return err_set(err, ERR_INVALID_REQUEST, "graph",
				       "graph must be printable ASCII.");
	return 0;
}

static int timeout_check(uint32_t *timeout_ms, struct err *err)
{
	if (!*timeout_ms)
		*timeout_ms = ENGINE_TIMEOUT_MS_DEFAULT;
	if (*timeout_ms <= ENGINE_TIMEOUT_MS_MAX)
		return 0;
	return err_set(err, ERR_TIMEOUT_INVALID, "timeout_ms",
		       "timeout_ms is %u; it must be 1 to %d.", *timeout_ms,
		       ENGINE_TIMEOUT_MS_MAX);
}

/* What every command has; fills in the default of the time-out. */
static int work_check(struct command_spec *s, bool needs_code, struct err *err)
{
	if ((s->argv ? argv_check(s, err) : code_check(s, needs_code, err)) ||
	    env_check(s->env, err))
		return -1;
	return timeout_check(&s->timeout_ms, err);
}

static int wait_check(uint32_t wait_ms, struct err *err)
{
	if (wait_ms > ENGINE_WAIT_MS_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "wait_ms",
			       "wait_ms is %u; it must be 0 to %d.", wait_ms,
			       ENGINE_WAIT_MS_MAX);
	return 0;
}

static int base_check(const char *name, const struct limits *limits,
		      struct err *err)
{
	const char *base = name ? name : TEMPLATE_DEFAULT;
	struct shape shape;

	if (strlen(base) > TEMPLATE_NAME_BYTES_MAX)
		return err_set(err, ERR_TEMPLATE_NOT_FOUND, "template", NULL);
	return shape_for(base, limits, &shape, err);
}

int run_spec_check(const struct caller *who, struct run_spec *spec,
		   struct command_spec *work, struct err *err)
{
	struct limits limits = {0};

	if (caller_check(who, err) || work_check(work, true, err) ||
	    limits_check(&spec->limits, &limits, err) ||
	    wait_check(spec->wait_ms, err) ||
	    base_check(spec->template_name, &limits, err))
		return -1;
	spec->limits = limits;
	return 0;
}

static int seconds_check(const char *param, uint32_t v, uint32_t min,
			 uint32_t max, struct err *err)
{
	if (v >= min && v <= max)
		return 0;
	return err_set(err, ERR_INVALID_REQUEST, param,
		       "%s is %u; it must be %u to %u.", param, v, min, max);
}

static int idle_check(uint32_t v, struct err *err)
{
	return seconds_check("idle_seconds", v, ENGINE_IDLE_SECONDS_MIN,
			     ENGINE_IDLE_SECONDS_MAX, err);
}

static int expires_check(uint32_t v, struct err *err)
{
	return seconds_check("expires_in_seconds", v,
			     ENGINE_EXPIRES_IN_SECONDS_MIN,
			     ENGINE_EXPIRES_IN_SECONDS_MAX, err);
}

/* As a record can hold them. */
static int naming_check(const char *name, const char *labels, struct err *err)
{
	size_t name_len = name ? strlen(name) : 1;
	size_t labels_len = labels ? strlen(labels) : 0;

	if (!name_len || name_len > SANDBOX_NAME_BYTES_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "name",
			       "name has %zu bytes; it must have 1 to %d.",
			       name_len, SANDBOX_NAME_BYTES_MAX);
	if (labels_len > SANDBOX_LABELS_BYTES_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "labels",
			       "labels have %zu bytes as JSON; at most %d are "
			       "taken.",
			       labels_len, SANDBOX_LABELS_BYTES_MAX);
	return 0;
}

int create_spec_check(const struct caller *who, struct create_spec *spec,
		      struct err *err)
{
	struct limits limits = {0};

	if (!spec->idle_seconds)
		spec->idle_seconds = ENGINE_IDLE_SECONDS_DEFAULT;
	if (!spec->expires_in_seconds)
		spec->expires_in_seconds = ENGINE_EXPIRES_IN_SECONDS_DEFAULT;
	if (caller_check(who, err) || env_check(spec->env, err) ||
	    limits_check(&spec->limits, &limits, err) ||
	    idle_check(spec->idle_seconds, err) ||
	    expires_check(spec->expires_in_seconds, err) ||
	    naming_check(spec->name, spec->labels, err) ||
	    wait_check(spec->wait_ms, err) ||
	    base_check(spec->template_name, &limits, err))
		return -1;
	spec->limits = limits;
	return 0;
}

int command_spec_check(const struct caller *who, struct command_spec *spec,
		       bool needs_code, struct err *err)
{
	if (caller_check(who, err) || work_check(spec, needs_code, err) ||
	    wait_check(spec->wait_ms, err))
		return -1;
	return 0;
}

/* A free plan may update. */
int update_spec_check(const struct update_spec *spec, struct err *err)
{
	if (naming_check(spec->name, spec->labels, err) ||
	    (spec->idle_seconds && idle_check(spec->idle_seconds, err)) ||
	    (spec->expires_in_seconds &&
	     expires_check(spec->expires_in_seconds, err)))
		return -1;
	return 0;
}

static int template_name_check(const char *name, struct err *err)
{
	static const char chars[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = name ? strlen(name) : 0;

	if (len && len <= TEMPLATE_NAME_BYTES_MAX && strspn(name, chars) == len)
		return 0;
	return err_set(err, ERR_TEMPLATE_NAME_INVALID, "name",
		       "name is \"%.*s\", of %zu bytes; it must be 1 to %d of "
		       "a-z 0-9 . _ -.",
		       TEMPLATE_NAME_BYTES_MAX, log_text(name, len).s, len,
		       TEMPLATE_NAME_BYTES_MAX);
}

/* What is in lists, too, is short. */
static int paths_check(const struct seed *seeds, size_t n, struct err *err)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += seeds[i].path.len;
	if (n > TEMPLATE_FILES_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "files",
			       "files has %zu Files; at most %d are taken.", n,
			       TEMPLATE_FILES_MAX);
	if (bytes > TEMPLATE_PATHS_BYTES_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "files",
			       "files has paths of %zu bytes in all; at most "
			       "%u are taken.",
			       bytes, TEMPLATE_PATHS_BYTES_MAX);
	return 0;
}

int template_spec_check(const struct caller *who, struct template_spec *spec,
			struct err *err)
{
	struct limits limits = {0};
	struct shape shape;

	if (caller_check(who, err) || template_name_check(spec->name, err) ||
	    limits_check(&spec->limits, &limits, err) ||
	    timeout_check(&spec->timeout_ms, err) ||
	    code_size_check(spec->code_len, err) ||
	    config_size_check(spec->config_len, err) ||
	    paths_check(spec->seeds, spec->n_seeds, err))
		return -1;
	if (shape_for(spec->base, &limits, &shape, err)) {
		snprintf(err->param, sizeof(err->param), "base");
		return -1;
	}
	spec->limits = limits;
	return 0;
}
