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

static int env_check(const char *const *env, struct err *err)
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

static int sizes_check(const struct run_spec *s, struct err *err)
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

static int caller_check(const struct caller *who, struct err *err)
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

int run_spec_check(const struct caller *who, const struct run_spec *spec,
		   struct limits *ret_limits, uint32_t *ret_timeout_ms,
		   struct err *err)
{
	const char *base =
		spec->template_name ? spec->template_name : TEMPLATE_DEFAULT;
	uint32_t timeout_ms =
		spec->timeout_ms ? spec->timeout_ms : ENGINE_TIMEOUT_MS_DEFAULT;
	struct shape shape;

	if (caller_check(who, err) || sizes_check(spec, err) ||
	    env_check(spec->env, err) ||
	    limits_check(&spec->limits, ret_limits, err))
		return -1;
	if (timeout_ms > ENGINE_TIMEOUT_MS_MAX)
		return err_set(err, ERR_TIMEOUT_INVALID, "timeout_ms",
			       "timeout_ms is %u; it must be 1 to %d.",
			       timeout_ms, ENGINE_TIMEOUT_MS_MAX);
	if (spec->wait_ms > ENGINE_WAIT_MS_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "wait_ms",
			       "wait_ms is %u; it must be 0 to %d.",
			       spec->wait_ms, ENGINE_WAIT_MS_MAX);
	if (strlen(base) > TEMPLATE_NAME_BYTES_MAX)
		return err_set(err, ERR_TEMPLATE_NOT_FOUND, "template", NULL);
	if (shape_for(base, ret_limits, &shape, err))
		return -1;
	*ret_timeout_ms = timeout_ms;
	return 0;
}
