/*
 * Is a request inside its limits?  Every refusal names the field, the value
 * and the range, and is given before any record exists.
 */
#include "../link/template.h"
#include "engine_priv.h"
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

static int code_check(const struct command_spec *s, struct err *err)
{
	if (!s->code || !s->code_len)
		return err_set(err, ERR_INVALID_REQUEST, "code",
			       "code is missing or empty.");
	if (s->code_len > ENGINE_CODE_BYTES_MAX)
		return err_set(err, ERR_CODE_TOO_LARGE, "code",
			       "code has %zu bytes; at most %u are taken.",
			       s->code_len, ENGINE_CODE_BYTES_MAX);
	if (s->input && s->input_len > ENGINE_JSON_BYTES_MAX)
		return err_set(err, ERR_INPUT_TOO_LARGE, "input",
			       "input has %zu bytes; at most %u are taken.",
			       s->input_len, ENGINE_JSON_BYTES_MAX);
	if (s->config && s->config_len > ENGINE_JSON_BYTES_MAX)
		return err_set(err, ERR_INPUT_TOO_LARGE, "config",
			       "config has %zu bytes; at most %u are taken.",
			       s->config_len, ENGINE_JSON_BYTES_MAX);
	return 0;
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

/* What every command has; fills in the default of the time-out. */
static int work_check(struct command_spec *s, struct err *err)
{
	if (!s->timeout_ms)
		s->timeout_ms = ENGINE_TIMEOUT_MS_DEFAULT;
	if ((s->argv ? argv_check(s, err) : code_check(s, err)) ||
	    env_check(s->env, err))
		return -1;
	if (s->timeout_ms > ENGINE_TIMEOUT_MS_MAX)
		return err_set(err, ERR_TIMEOUT_INVALID, "timeout_ms",
			       "timeout_ms is %u; it must be 1 to %d.",
			       s->timeout_ms, ENGINE_TIMEOUT_MS_MAX);
	return 0;
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

int run_spec_check(const struct caller *who, const struct run_spec *spec,
		   struct limits *ret_limits, struct command_spec *ret_work,
		   struct err *err)
{
	*ret_work = (struct command_spec){
		.code = spec->code,
		.input = spec->input,
		.config = spec->config,
		.code_len = spec->code_len,
		.input_len = spec->input_len,
		.config_len = spec->config_len,
		.timeout_ms = spec->timeout_ms,
		.env = spec->env,
		.origin = spec->origin,
	};
	if (caller_check(who, err) || work_check(ret_work, err) ||
	    limits_check(&spec->limits, ret_limits, err) ||
	    wait_check(spec->wait_ms, err) ||
	    base_check(spec->template_name, ret_limits, err))
		return -1;
	return 0;
}

static int seconds_check(const char *param, uint32_t *v, uint32_t dflt,
			 uint32_t min, uint32_t max, struct err *err)
{
	if (!*v)
		*v = dflt;
	if (*v >= min && *v <= max)
		return 0;
	return err_set(err, ERR_INVALID_REQUEST, param,
		       "%s is %u; it must be %u to %u.", param, *v, min, max);
}

int create_spec_check(const struct caller *who, struct create_spec *spec,
		      struct err *err)
{
	struct limits limits = {0};

	if (caller_check(who, err) || env_check(spec->env, err) ||
	    limits_check(&spec->limits, &limits, err) ||
	    seconds_check("idle_seconds", &spec->idle_seconds,
			  ENGINE_IDLE_SECONDS_DEFAULT, ENGINE_IDLE_SECONDS_MIN,
			  ENGINE_IDLE_SECONDS_MAX, err) ||
	    seconds_check("expires_in_seconds", &spec->expires_in_seconds,
			  ENGINE_EXPIRES_IN_SECONDS_DEFAULT,
			  ENGINE_EXPIRES_IN_SECONDS_MIN,
			  ENGINE_EXPIRES_IN_SECONDS_MAX, err) ||
	    wait_check(spec->wait_ms, err) ||
	    base_check(spec->template_name, &limits, err))
		return -1;
	spec->limits = limits;
	return 0;
}

int command_spec_check(const struct caller *who, struct command_spec *spec,
		       struct err *err)
{
	if (caller_check(who, err) || work_check(spec, err) ||
	    wait_check(spec->wait_ms, err))
		return -1;
	return 0;
}
