/*
 * lane.node: the functions of lane_call.h for node, by Node-API.
 *
 *   open()                     0 or a negative errno
 *   rehearse(code, input)      [code, input, config, env], or a number
 *   wait()                     the same; a number is LANE_END_*
 *   finish(kind, code, text)   LANE_END_*
 *
 * Node-API is a stable binary interface without a library: node itself has the
 * functions.  The dozen that are used here are declared here, so that a build
 * needs no headers of node.
 */
#include "../ended.h"
#include "../limits.h"
#include "lane_call.h"
#include <string.h>

typedef struct napi_env_s *napi_env;
typedef struct napi_value_s *napi_value;
typedef struct napi_info_s *napi_info;
typedef napi_value (*napi_fn)(napi_env env, napi_info info);

int napi_create_function(napi_env env, const char *name, size_t len, napi_fn fn,
			 void *data, napi_value *ret);
int napi_set_named_property(napi_env env, napi_value object, const char *name,
			    napi_value v);
int napi_get_cb_info(napi_env env, napi_info info, size_t *argc,
		     napi_value *argv, napi_value *ret_this, void **ret_data);
int napi_create_string_utf8(napi_env env, const char *s, size_t len,
			    napi_value *ret);
int napi_create_int32(napi_env env, int32_t v, napi_value *ret);
int napi_create_array_with_length(napi_env env, size_t len, napi_value *ret);
int napi_set_element(napi_env env, napi_value object, uint32_t idx,
		     napi_value v);
int napi_get_value_uint32(napi_env env, napi_value v, uint32_t *ret);
int napi_get_value_string_utf8(napi_env env, napi_value v, char *buf,
			       size_t cap, size_t *ret_len);

#define NAPI_VERSION_USED 8
#define ARGS_MAX	  3
#define TEXT_BYTES_MAX	  (GP_RESULT_BYTES_MAX + 16)

LANE_API int32_t node_api_module_get_api_version_v1(void);
LANE_API napi_value napi_register_module_v1(napi_env env, napi_value exports);

/* A call whose arguments are not as above gets `undefined`: NULL. */
static bool args_take(napi_env env, napi_info info, size_t want,
		      napi_value argv[ARGS_MAX])
{
	size_t n = want;

	return !napi_get_cb_info(env, info, &n, argv, NULL, NULL) && n == want;
}

static napi_value number(napi_env env, int v)
{
	napi_value ret;

	return napi_create_int32(env, v, &ret) ? NULL : ret;
}

static napi_value run_value(napi_env env, int end, const struct lane_run *r)
{
	const struct lane_part *part[] = {&r->code, &r->input, &r->config,
					  &r->env};
	napi_value list, s;

	if (end != LANE_END_RUN)
		return number(env, end);
	if (napi_create_array_with_length(env, ARRAY_LEN(part) + 1, &list))
		return NULL;
	for (uint32_t i = 0; i < ARRAY_LEN(part); i++)
		if (napi_create_string_utf8(env, part[i]->data, part[i]->len,
					    &s) ||
		    napi_set_element(env, list, i, s))
			return NULL;
	s = number(env, (int)r->was_unbound);
	if (!s || napi_set_element(env, list, ARRAY_LEN(part), s))
		return NULL;
	return list;
}

static napi_value on_open(napi_env env, napi_info info)
{
	(void)info;
	return number(env, lane_open(0, LANE_PAGE_FD, LANE_STREAMS_FD,
				     LANE_STREAMS_FD + 1));
}

static napi_value on_rehearse(napi_env env, napi_info info)
{
	static char text[2][4096];
	napi_value argv[ARGS_MAX];
	struct lane_run r;
	size_t len[2];

	if (!args_take(env, info, 2, argv))
		return NULL;
	for (int i = 0; i < 2; i++)
		if (napi_get_value_string_utf8(env, argv[i], text[i],
					       sizeof(text[i]), &len[i]))
			return NULL;
	return run_value(
		env, lane_rehearse(text[0], len[0], text[1], len[1], &r), &r);
}

static napi_value on_wait(napi_env env, napi_info info)
{
	struct lane_run r;

	(void)info;
	return run_value(env, lane_wait(&r), &r);
}

static napi_value on_finish(napi_env env, napi_info info)
{
	static char text[TEXT_BYTES_MAX];
	napi_value argv[ARGS_MAX];
	uint32_t kind, code;
	size_t len;

	if (!args_take(env, info, 3, argv) ||
	    napi_get_value_uint32(env, argv[0], &kind) ||
	    napi_get_value_uint32(env, argv[1], &code) ||
	    napi_get_value_string_utf8(env, argv[2], text, sizeof(text), &len))
		return number(env, lane_finish(RUNNER_FAILED, 1, "", 0));
	return number(env, lane_finish(kind, code, text, len));
}

int32_t node_api_module_get_api_version_v1(void)
{
	return NAPI_VERSION_USED;
}

napi_value napi_register_module_v1(napi_env env, napi_value exports)
{
	static const struct {
		const char *name;
		napi_fn fn;
	} functions[] = {
		{"open", on_open},
		{"rehearse", on_rehearse},
		{"wait", on_wait},
		{"finish", on_finish},
	};

	for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
		napi_value fn;

		if (napi_create_function(env, functions[i].name,
					 strlen(functions[i].name),
					 functions[i].fn, NULL, &fn) ||
		    napi_set_named_property(env, exports, functions[i].name,
					    fn))
			return NULL;
	}
	return exports;
}
