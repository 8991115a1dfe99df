/*
 * Unit tests of what a one-call run may say: every limit of the guide at its
 * edges and one past them (K12, LBB-88, LBB-89, LBB-104, LBB-124, LBB-128).
 *
 * run.c is included; engine_run keeps the spec it was given, and the reply
 * functions keep the error.
 */
#include "run.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static struct services services = {.request_key = "key"};
static const struct route route = {
	HTTP_POST, "/v1/sandboxes", "createSandbox", 0, ACCESS_RUN, 0, NULL,
	NULL};
static char path[] = "/v1/sandboxes", key[] = "k";

/* What came of the last call. */
static struct err got;
static bool is_started;
static struct run_spec spec;
static char *code, *input, *config, *env;

static char *copy(const void *p, size_t len)
{
	return p ? strndup(p, len) : NULL;
}

int engine_run(struct engine *e, const struct caller *who,
	       const struct run_spec *s, engine_run_fn fn, void *ctx,
	       struct waiter **ret_waiter)
{
	struct request *r = ctx;

	(void)e;
	(void)who;
	(void)fn;
	(void)ret_waiter;
	is_started = true;
	spec = *s;
	code = copy(s->code, s->code_len);
	input = copy(s->input, s->input_len);
	config = copy(s->config, s->config_len);
	env = s->env && *s->env ? strdup(*s->env) : NULL;
	work_end(r);
	return 0;
}

/* Without `run` it is another call: held_test.c. */
static int n_held;

void lbb_create_held(struct request *r, struct json_span body)
{
	(void)r;
	(void)body;
	n_held++;
}

void reply_err(struct request *r, const struct err *e)
{
	(void)r;
	got = *e;
}

/* As in reply.c, without a server. */
int request_object(struct request *r, struct json_span *ret)
{
	return json_check(r->body.data, r->body.len, JSON_DEPTH_MAX, ret, &got)
		       ? -1
		       : 0;
}

void engine_cancel_wait(struct engine *e, struct waiter *w)
{
	(void)e;
	(void)w;
	abort();
}

void request_drop(struct request *r)
{
	(void)r;
	abort();
}

void reply_json(struct request *r, int status, struct json_out *j)
{
	(void)r;
	(void)status;
	(void)j;
	abort();
}

void lbb_engine_failed(struct request *r, int rc)
{
	(void)r;
	assert_int_equal(rc, -ENOMEM);
	err_set(&got, ERR_UNAVAILABLE, NULL, "out of memory");
}

void lbb_put_run(struct json_out *j, const struct sandbox_rec *s,
		 const struct command_rec *c)
{
	(void)j;
	(void)s;
	(void)c;
	abort();
}

bool command_status_is_final(enum command_status s)
{
	(void)s;
	abort();
}

static void post(const char *body)
{
	struct request r = {
		.services = &services,
		.route = &route,
		.method = HTTP_POST,
		.path = path,
		.idempotency_key = key,
		.graph = "main",
	};

	free(code);
	free(input);
	free(config);
	free(env);
	code = input = config = env = NULL;
	is_started = false;
	memset(&got, 0, sizeof(got));
	bytes_append(&r.body, body, strlen(body));
	lbb_create(&r);
	bytes_finish(&r.body);
}

static void accepts(const char *body)
{
	post(body);
	if (!is_started)
		fail_msg("refused: %.200s\n%s", body, got.text);
}

static void refuses(const char *body, enum err_code code_want,
		    const char *param)
{
	post(body);
	if (is_started)
		fail_msg("accepted: %.200s", body);
	if (got.code != code_want || strcmp(got.param, param))
		fail_msg("%.200s\ncode %d param \"%s\": %s", body, got.code,
			 got.param, got.text);
}

/* {"run":{"code":"x",MORE}} */
static const char *with(const char *more)
{
	static char body[4096];

	snprintf(body, sizeof(body), "{\"run\":{\"code\":\"x\",%s}}", more);
	return body;
}

static void test_whole(void **state)
{
	(void)state;
	accepts("{\"run\": {\"code\": \"a\\n\\u00e9\", \"input\": [1.0, 1e400 "
		", \"\\ud800\\u0000\"], \"config\" :{\"k\": "
		"36893488147419103232"
		"}, \"template\": \"lbb/shell\", \"timeout_ms\": 5,"
		"\"limits\":{\"vcpus\":2,\"memory_mib\":256,\"disk_mib\":512},"
		"\"env\":{\"A_1\":\"b=c\"}}, \"wait_ms\": 7}");
	assert_string_equal(code, "a\n\xc3\xa9");
	assert_string_equal(input, "[1.0, 1e400 , \"\\ud800\\u0000\"]");
	assert_string_equal(config, "{\"k\": 36893488147419103232}");
	assert_string_equal(env, "A_1=b=c");
	assert_int_equal(spec.timeout_ms, 5);
	assert_int_equal(spec.wait_ms, 7);
	assert_int_equal(spec.limits.vcpus, 2);
	assert_int_equal(spec.limits.memory_mib, 256);
	assert_int_equal(spec.limits.disk_mib, 512);
	accepts("{\"run\":{\"code\":\"x\"}}");
	assert_null(input);
	assert_null(spec.template_name);
	assert_int_equal(spec.wait_ms, ENGINE_WAIT_MS_MAX);
	assert_int_equal(spec.timeout_ms, 0);
	accepts(with("\"input\":null"));
	assert_string_equal(input, "null");
}

static void test_shape(void **state)
{
	(void)state;
	post("{}");
	post("{\"wait_ms\":1,\"code\":\"x\"}");
	assert_int_equal(n_held, 2);
	assert_false(is_started);
	refuses("{\"run\":null}", ERR_INVALID_REQUEST, "run");
	refuses("{\"run\":[]}", ERR_INVALID_REQUEST, "run");
	refuses("{\"run\":{}}", ERR_INVALID_REQUEST, "run.code");
	refuses("{\"run\":{\"template\":\"a\",\"code\":\"\"}}",
		ERR_INVALID_REQUEST, "run.code");
	refuses("{\"run\":{\"code\":\"\"}}", ERR_INVALID_REQUEST, "run.code");
	refuses("{\"run\":{\"code\":5}}", ERR_INVALID_REQUEST, "run.code");
	refuses("{\"run\":{\"code\":\"\\u0000\"}}", ERR_INVALID_REQUEST,
		"run.code");
	refuses("{\"run\":{\"code\":\"\\ud800\"}}", ERR_INVALID_REQUEST,
		"run.code");
	refuses(with("\"cpu\":1"), ERR_INVALID_REQUEST, "run.cpu");
	refuses("{\"run\":{\"code\":\"x\"},\"x\":1}", ERR_INVALID_REQUEST, "x");
	refuses(with("\"limits\":{\"cpus\":1}"), ERR_INVALID_REQUEST,
		"run.limits.cpus");
	refuses(with("\"limits\":1"), ERR_INVALID_REQUEST, "run.limits");
	refuses(with("\"template\":1"), ERR_INVALID_REQUEST, "run.template");
	refuses(with("\"template\":\"\""), ERR_TEMPLATE_NOT_FOUND,
		"run.template");
	refuses("{\"run\":{\"code\":\"x\",\"code\":\"y\"}}", ERR_INVALID_JSON,
		"");
	refuses(with("\"input\":{\"a\":1,\"a\":1}"), ERR_INVALID_JSON, "");
	refuses("{\"run\"", ERR_INVALID_JSON, "");
	refuses("", ERR_INVALID_JSON, "");
}

static void test_numbers(void **state)
{
	static const struct {
		const char *field, *path;
		long min, max;
		enum err_code code;
	} cases[] = {
		{"\"limits\":{\"vcpus\":%s}", "run.limits.vcpus", 1, 4,
		 ERR_LIMITS_INVALID},
		{"\"limits\":{\"memory_mib\":%s}", "run.limits.memory_mib", 128,
		 8192, ERR_LIMITS_INVALID},
		{"\"limits\":{\"disk_mib\":%s}", "run.limits.disk_mib", 256,
		 10240, ERR_LIMITS_INVALID},
		{"\"timeout_ms\":%s", "run.timeout_ms", 1, 3600000,
		 ERR_TIMEOUT_INVALID},
	};
	static const char *const never[] = {
		"1.0",	"1e2", "\"200\"", "null", "[]", "9223372036854775808",
		"true", "-1"};
	char field[128], number[32];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (int past = -1; past <= 1; past += 2) {
			long edge = past < 0 ? cases[i].min : cases[i].max;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
			snprintf(number, sizeof(number), "%ld", edge);
			snprintf(field, sizeof(field), cases[i].field, number);
			accepts(with(field));
			snprintf(number, sizeof(number), "%ld", edge + past);
			snprintf(field, sizeof(field), cases[i].field, number);
			refuses(with(field), cases[i].code, cases[i].path);
		}
		for (size_t k = 0; k < sizeof(never) / sizeof(*never); k++) {
			snprintf(field, sizeof(field), cases[i].field,
				 never[k]);
			refuses(with(field), cases[i].code, cases[i].path);
		}
#pragma GCC diagnostic pop
	}
	accepts("{\"run\":{\"code\":\"x\"},\"wait_ms\":0}");
	assert_int_equal(spec.wait_ms, 0);
	accepts("{\"run\":{\"code\":\"x\"},\"wait_ms\":30000}");
	refuses("{\"run\":{\"code\":\"x\"},\"wait_ms\":30001}",
		ERR_INVALID_REQUEST, "wait_ms");
	refuses("{\"run\":{\"code\":\"x\"},\"wait_ms\":-1}",
		ERR_INVALID_REQUEST, "wait_ms");
}

/* One field of `len` bytes: PRE, `len` times `fill`, POST. */
static char *sized(const char *pre, char fill, size_t len, const char *post_)
{
	size_t a = strlen(pre), b = strlen(post_);
	char *body = malloc(a + len + b + 1);

	assert_non_null(body);
	memcpy(body, pre, a);
	memset(body + a, fill, len);
	memcpy(body + a + len, post_, b + 1);
	return body;
}

static void test_sizes(void **state)
{
	char *body;

	(void)state;
	body = sized("{\"run\":{\"code\":\"", 'x', 65536, "\"}}");
	accepts(body);
	free(body);
	body = sized("{\"run\":{\"code\":\"", 'x', 65537, "\"}}");
	refuses(body, ERR_CODE_TOO_LARGE, "run.code");
	free(body);
	/* Measured as UTF-8, not as spelled. */
	body = sized("{\"run\":{\"code\":\"\\u0061", 'x', 65535, "\"}}");
	accepts(body);
	free(body);
	/* With its quotes a string of 1048574 characters is 1 MiB of text. */
	body = sized("{\"run\":{\"code\":\"x\",\"input\":\"", 'x', 1048574,
		     "\"}}");
	accepts(body);
	assert_int_equal(spec.input_len, 1048576);
	free(body);
	body = sized("{\"run\":{\"code\":\"x\",\"input\":\"", 'x', 1048575,
		     "\"}}");
	refuses(body, ERR_INPUT_TOO_LARGE, "run.input");
	free(body);
	body = sized("{\"run\":{\"code\":\"x\",\"config\":\"", 'x', 1048575,
		     "\"}}");
	refuses(body, ERR_INPUT_TOO_LARGE, "run.config");
	free(body);
	body = sized("{\"run\":{\"code\":\"x\",\"template\":\"", 'x', 65,
		     "\"}}");
	refuses(body, ERR_TEMPLATE_NOT_FOUND, "run.template");
	free(body);
}

static void nested(size_t depth, char ret[2048])
{
	memset(ret, 0, 2048);
	strcat(ret, "\"input\":");
	for (size_t i = 0; i < depth; i++)
		strcat(ret, "[");
	for (size_t i = 0; i < depth; i++)
		strcat(ret, "]");
}

static void test_depth(void **state)
{
	char field[2048];

	(void)state;
	nested(512, field);
	accepts(with(field));
	nested(513, field);
	refuses(with(field), ERR_INVALID_JSON, "run.input");
	nested(519, field);
	refuses(with(field), ERR_INVALID_JSON, "");
}

static void test_env(void **state)
{
	static const struct {
		const char *field, *param, *text;
	} bad[] = {
		{"{\"LBB_X\":\"\"}", "run.env", "LBB_X"},
		{"{\"1A\":\"\"}", "run.env", "\"1A\""},
		{"{\"\":\"\"}", "run.env", "\"\""},
		{"{\"A-B\":\"\"}", "run.env", "\"A-B\""},
		{"{\"A=B\":\"\"}", "run.env", "\"A=B\""},
		{"{\"\\u00e9\":\"\"}", "run.env", "is not [A-Za-z_]"},
		{"{\"A\":1}", "run.env.A", "run.env.A is a number"},
		{"{\"A\":null}", "run.env.A", "run.env.A is null"},
		{"{\"A\":\"\\u0000\"}", "run.env.A", "run.env.A has a NUL"},
		{"{\"A\\u0000\":\"\"}", "run.env.A\\u0000", "has a NUL"},
		{"[\"A=B\"]", "run.env", "must be an object"},
		{"{\"B\":\"\\udc00\"}", "run.env.B", "run.env.B has a lone"},
		{"\"A=B\"", "run.env", "must be an object"},
	};
	char field[128];
	struct bytes b = {0};
	char *body;

	(void)state;
	accepts(with("\"env\":{}"));
	accepts(with("\"env\":{\"_\":\"\",\"LBBX\":\"1\",\"lbb_\":\"2\"}"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(field, sizeof(field), "\"env\":%s", bad[i].field);
		refuses(with(field), ERR_ENV_INVALID, bad[i].param);
		if (!strstr(got.text, bad[i].text))
			fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].field,
				 got.text, bad[i].text);
	}
	bytes_printf(&b, "{\"run\":{\"code\":\"x\",\"env\":{\"A0\":\"\"");
	for (int i = 1; i < ENGINE_ENV_NAMES_MAX; i++)
		bytes_printf(&b, ",\"A%d\":\"\"", i);
	bytes_printf(&b, "}}}");
	bytes_append(&b, "", 1);
	accepts((const char *)b.data);
	b.len -= 4;
	bytes_printf(&b, ",\"B\":\"\"}}}");
	bytes_append(&b, "", 1);
	refuses((const char *)b.data, ERR_ENV_INVALID, "run.env");
	bytes_finish(&b);
	/* "A=...\0" of exactly the most, and one more. */
	body = sized("{\"run\":{\"code\":\"x\",\"env\":{\"A\":\"", 'v',
		     ENGINE_ENV_BYTES_MAX - 3, "\"}}}");
	accepts(body);
	free(body);
	body = sized("{\"run\":{\"code\":\"x\",\"env\":{\"A\":\"", 'v',
		     ENGINE_ENV_BYTES_MAX - 2, "\"}}}");
	refuses(body, ERR_ENV_INVALID, "run.env");
	free(body);
}

/* K17: each allocation fails once; the answer says so and nothing leaks (the
 * SAN=1 build looks).  The linker sends the three calls here (--wrap). */
static int allocations_left = -1;

void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool must_fail(void)
{
	return allocations_left >= 0 && allocations_left-- == 0;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return must_fail() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return must_fail() ? NULL : __real_realloc(p, size);
}

static void test_no_memory(void **state)
{
	static const char body[] =
		"{\"run\":{\"code\":\"x\",\"template\":\"lbb/node\","
		"\"env\":{\"A\":\"1\",\"B\":\"2\"},\"input\":[{}]}}";
	int n = 0;

	(void)state;
	do {
		/* The body itself is one allocation of the test. */
		allocations_left = 1 + n++;
		post(body);
		allocations_left = -1;
		if (!is_started && got.code != ERR_INTERNAL &&
		    got.code != ERR_UNAVAILABLE)
			fail_msg("allocation %d: %s", n, got.text);
	} while (!is_started);
	assert_true(n > 5);
}

/* Another wait is the same request; another spelling of input is not. */
static void test_hash(void **state)
{
	uint8_t hash[HASH_BYTES];

	(void)state;
	accepts("{\"run\":{\"code\":\"x\",\"input\":1},\"wait_ms\":1}");
	memcpy(hash, spec.request_hash, HASH_BYTES);
	accepts("{\"wait_ms\":2,\"run\":{\"code\":\"x\",\"input\":1}}");
	assert_memory_equal(hash, spec.request_hash, HASH_BYTES);
	accepts("{\"run\":{\"code\":\"x\",\"input\":1.0}}");
	assert_memory_not_equal(hash, spec.request_hash, HASH_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_shape),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_env),
		cmocka_unit_test(test_hash),
		cmocka_unit_test(test_no_memory),
	};
	int rc = cmocka_run_group_tests_name("run", tests, NULL, NULL);

	free(code);
	free(input);
	free(config);
	free(env);
	return rc;
}
