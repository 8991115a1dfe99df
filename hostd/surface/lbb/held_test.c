/*
 * Unit tests of what a held sandbox and a command on one may say: every field
 * at its edges and one past them (LBB-48 to LBB-50, LBB-61, LBB-120, LBB-121,
 * LBB-123, LBB-124, LBB-128, LBB-129).
 *
 * held.c is included; the engine's functions keep the spec they were given, and
 * the reply functions keep the error.
 */
#include "held.c"
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
static const char *sandbox = "sbx_a";

/* What came of the last call. */
static struct err got;
static bool is_started;
static struct create_spec create;
static struct command_spec spec;
/* template or code, input or snapshot, cwd or name, first env, stdin or labels
 */
static char *kept[5];
static char words[3][64];
static size_t n_words;

static char *copy(const void *p, size_t len)
{
	return p ? strndup(p, len) : NULL;
}

int engine_sandbox_create(struct engine *e, const struct caller *who,
			  const struct create_spec *s, engine_sandbox_fn fn,
			  void *ctx, struct waiter **ret_waiter)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ret_waiter;
	is_started = true;
	create = *s;
	kept[0] = s->template_name ? strdup(s->template_name) : NULL;
	kept[1] = s->snapshot ? strdup(s->snapshot) : NULL;
	kept[2] = s->name ? strdup(s->name) : NULL;
	kept[4] = s->labels ? strdup(s->labels) : NULL;
	kept[3] = s->env && *s->env ? strdup(*s->env) : NULL;
	work_end(ctx);
	return 0;
}

int engine_command_create(struct engine *e, const struct caller *who,
			  const struct command_spec *s, engine_run_fn fn,
			  void *ctx, struct waiter **ret_waiter)
{
	(void)e;
	(void)who;
	(void)fn;
	(void)ret_waiter;
	is_started = true;
	spec = *s;
	kept[0] = copy(s->code, s->code_len);
	kept[1] = copy(s->input, s->input_len);
	kept[2] = s->cwd ? strdup(s->cwd) : NULL;
	kept[3] = s->env && *s->env ? strdup(*s->env) : NULL;
	kept[4] = copy(s->stdin_data, s->stdin_len);
	for (n_words = 0; s->argv && s->argv[n_words]; n_words++)
		if (n_words < 3)
			snprintf(words[n_words], sizeof(words[0]), "%.63s",
				 s->argv[n_words]);
	work_end(ctx);
	return 0;
}

void reply_err(struct request *r, const struct err *e)
{
	(void)r;
	got = *e;
}

void lbb_reply_err(struct request *r, const struct err *e)
{
	reply_err(r, e);
}

int lbb_id(struct request *r, const char *param, const char *prefix,
	   enum err_code missing, const char **ret)
{
	(void)r;
	(void)missing;
	assert_string_equal(param, "sandbox");
	assert_string_equal(prefix, "sbx_");
	*ret = sandbox;
	return 0;
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
	(void)rc;
	abort();
}

void lbb_put_sandbox(struct json_out *j, const struct sandbox_rec *s)
{
	(void)j;
	(void)s;
	abort();
}

void lbb_put_command(struct json_out *j, const struct command_rec *c,
		     bool with_output)
{
	(void)j;
	(void)c;
	(void)with_output;
	abort();
}

bool command_status_is_final(enum command_status s)
{
	(void)s;
	abort();
}

/* ---- calls ------------------------------------------------------------ */

static void forget(void)
{
	for (size_t i = 0; i < N_OF(kept); i++)
		free(kept[i]);
	memset(kept, 0, sizeof(kept));
	memset(&got, 0, sizeof(got));
	is_started = false;
}

static void post(const char *body, bool is_command)
{
	struct request r = {
		.services = &services,
		.route = &route,
		.method = HTTP_POST,
		.path = path,
		.idempotency_key = key,
		.graph = "main",
	};
	struct json_span v;

	forget();
	bytes_append(&r.body, body, strlen(body));
	if (is_command)
		lbb_command_create(&r);
	else if (!request_object(&r, &v))
		lbb_create_held(&r, v);
	bytes_finish(&r.body);
}

static void accepts(const char *body, bool is_command)
{
	post(body, is_command);
	if (!is_started)
		fail_msg("refused: %.200s\n%s", body, got.text);
}

static void refuses(const char *body, bool is_command, enum err_code code,
		    const char *param)
{
	post(body, is_command);
	if (is_started)
		fail_msg("accepted: %.200s", body);
	if (got.code != code || strcmp(got.param, param))
		fail_msg("%.200s\ncode %d param \"%s\": %s", body, got.code,
			 got.param, got.text);
}

static void creates(void **state)
{
	(void)state;
	accepts("{}", false);
	assert_null(create.template_name);
	assert_int_equal(create.wait_ms, 0);
	assert_int_equal(create.idle_seconds, 0);
	accepts("{\"template\":\"lbb/shell\",\"limits\":{\"vcpus\":2},"
		"\"idle_seconds\":30,\"expires_in_seconds\":604800,"
		"\"env\":{\"A\":\"b\"},\"wait_ms\":30000}",
		false);
	assert_string_equal(kept[0], "lbb/shell");
	assert_string_equal(kept[3], "A=b");
	assert_int_equal(create.limits.vcpus, 2);
	assert_int_equal(create.idle_seconds, 30);
	assert_int_equal(create.expires_in_seconds, 604800);
	assert_int_equal(create.wait_ms, 30000);
	assert_null(create.snapshot);
	accepts("{\"snapshot\":\"snp_a1\",\"limits\":{}}", false);
	assert_string_equal(kept[1], "snp_a1");
	accepts("{\"template\":\"normalize\"}", false);
	assert_string_equal(kept[0], "normalize");
	assert_null(create.name);
	assert_null(create.labels);
}

/* What a name and labels may be, and how they are kept. */
static void names_and_labels(void **state)
{
	static const struct {
		const char *labels, *kept;
	} good[] = {
		{"{}", NULL},
		{"null", NULL},
		{" { \"a\" : \"b\" } ", "{\"a\":\"b\"}"},
		{"{\"A.b_c-d/9\":\"\",\"b\":\" x \"}",
		 "{\"A.b_c-d/9\":\"\",\"b\":\" x \"}"},
		{"{\"\\u0061\":\"\\\"\\\\\\/\"}", "{\"a\":\"\\\"\\\\/\"}"},
		{"{\"a\":\"\xc3\xbc\\u00fc\xf0\x9f\x98\x80\"}",
		 "{\"a\":\"\\u00fc\\u00fc\\ud83d\\ude00\"}"},
	};
	char body[300];

	(void)state;
	for (size_t i = 0; i < N_OF(good); i++) {
		snprintf(body, sizeof(body), "{\"name\":\"%s\",\"labels\":%s}",
			 i % 2 ? "x" : "My box #1 \\u007e~", good[i].labels);
		accepts(body, false);
		assert_string_equal(kept[2], i % 2 ? "x" : "My box #1 ~~");
		if (good[i].kept)
			assert_string_equal(kept[4], good[i].kept);
		else
			assert_null(kept[4]);
	}
	accepts("{\"name\":null}", false);
	assert_null(kept[2]);
}

/* A name of 64 and one of 65; 16 labels and 17 ... */
static void sizes_of_names_and_labels(void **state)
{
	char body[300];

	(void)state;
	for (int more = 0; more < 2; more++) {
		static const char many[] =
			"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz"
			"abcdefghijkl";
		struct bytes b = {0};

		snprintf(body, sizeof(body), "{\"name\":\"%s%s\"}", many,
			 more ? "x" : "");
		if (more)
			refuses(body, false, ERR_INVALID_REQUEST, "name");
		else
			accepts(body, false);
		snprintf(body, sizeof(body), "{\"labels\":{\"%s%s\":\"\"}}",
			 many, more ? "x" : "");
		if (more)
			refuses(body, false, ERR_INVALID_REQUEST, "labels");
		else
			accepts(body, false);
		bytes_printf(&b, "{\"labels\":{");
		for (int i = 0; i < 16 + more; i++)
			bytes_printf(&b, "%s\"l%d\":\"v\"", i ? "," : "", i);
		bytes_append(&b, "}}", 3);
		if (more)
			refuses((char *)b.data, false, ERR_INVALID_REQUEST,
				"labels");
		else
			accepts((char *)b.data, false);
		b.len = 0;
		bytes_printf(&b, "{\"labels\":{\"a\":\"%*s\"}}", 256 + more,
			     "");
		bytes_append(&b, "", 1);
		if (more)
			refuses((char *)b.data, false, ERR_INVALID_REQUEST,
				"labels.a");
		else
			accepts((char *)b.data, false);
		/* In all: two such of six bytes a character, not three. */
		b.len = 0;
		bytes_printf(&b, "{\"labels\":{\"a\":\"\"");
		for (int i = 0; i < 2 + more; i++) {
			bytes_printf(&b, ",\"b%d\":\"", i);
			for (int k = 0; k < 256; k++)
				bytes_printf(&b, "\xe2\x82\xac");
			bytes_printf(&b, "\"");
		}
		bytes_append(&b, "}}", 3);
		if (more)
			refuses((char *)b.data, false, ERR_INVALID_REQUEST,
				"labels");
		else
			accepts((char *)b.data, false);
		bytes_finish(&b);
	}
}

static void refuses_creates(void **state)
{
	static const struct {
		const char *body, *param;
		enum err_code code;
	} bad[] = {
		{"{\"idle_seconds\":29}", "idle_seconds", ERR_INVALID_REQUEST},
		{"{\"idle_seconds\":3601}", "idle_seconds",
		 ERR_INVALID_REQUEST},
		{"{\"expires_in_seconds\":59}", "expires_in_seconds",
		 ERR_INVALID_REQUEST},
		{"{\"expires_in_seconds\":604801}", "expires_in_seconds",
		 ERR_INVALID_REQUEST},
		{"{\"limits\":{\"vcpus\":5}}", "limits.vcpus",
		 ERR_LIMITS_INVALID},
		{"{\"env\":{\"LBB_A\":\"\"}}", "env", ERR_ENV_INVALID},
		{"{\"wait_ms\":30001}", "wait_ms", ERR_INVALID_REQUEST},
		{"{\"files\":{}}", "files", ERR_INVALID_REQUEST},
		{"{\"files\":[1]}", "files[0]", ERR_INVALID_REQUEST},
		{"{\"files\":[{}]}", "files[0]", ERR_INVALID_REQUEST},
		{"{\"files\":[{\"id\":\"fil_a\"}]}", "files[0]",
		 ERR_INVALID_REQUEST},
		{"{\"files\":[{\"path\":\"a\"}]}", "files[0]",
		 ERR_INVALID_REQUEST},
		{"{\"files\":[{\"id\":\"sbx_a\",\"path\":\"a\"}]}",
		 "files[0].id", ERR_INVALID_REQUEST},
		{"{\"files\":[{\"sha256\":\"AB\",\"path\":\"a\"}]}",
		 "files[0].sha256", ERR_INVALID_REQUEST},
		{"{\"files\":[{\"id\":\"fil_a\",\"path\":\"../a\"}]}",
		 "files[0].path", ERR_PATH_INVALID},
		{"{\"files\":[{\"id\":\"fil_a\",\"path\":\"\"}]}",
		 "files[0].path", ERR_PATH_INVALID},
		{"{\"files\":[{\"id\":\"fil_a\",\"path\":\"a\",\"x\":1}]}",
		 "files[0].x", ERR_INVALID_REQUEST},
		{"{\"files\":[{\"id\":\"fil_a\",\"path\":\"a\"},"
		 "{\"id\":\"fil_b\",\"path\":\"./a\"}]}",
		 "files[1]", ERR_INVALID_REQUEST},
		{"{\"name\":\"\"}", "name", ERR_INVALID_REQUEST},
		{"{\"name\":\" x\"}", "name", ERR_INVALID_REQUEST},
		{"{\"name\":\"x \"}", "name", ERR_INVALID_REQUEST},
		{"{\"name\":\"a\\nb\"}", "name", ERR_INVALID_REQUEST},
		{"{\"name\":\"\xc3\xbc\"}", "name", ERR_INVALID_REQUEST},
		{"{\"name\":7}", "name", ERR_INVALID_REQUEST},
		{"{\"labels\":[]}", "labels", ERR_INVALID_REQUEST},
		{"{\"labels\":{\"\":\"x\"}}", "labels", ERR_INVALID_REQUEST},
		{"{\"labels\":{\"a b\":\"x\"}}", "labels", ERR_INVALID_REQUEST},
		{"{\"labels\":{\"a\":1}}", "labels.a", ERR_INVALID_REQUEST},
		{"{\"labels\":{\"a\":null}}", "labels.a", ERR_INVALID_REQUEST},
		{"{\"labels\":{\"a\":\"\\n\"}}", "labels.a",
		 ERR_INVALID_REQUEST},
		{"{\"labels\":{\"a\":\"\\u0085\"}}", "labels.a",
		 ERR_INVALID_REQUEST},
		{"{\"labels\":{\"a\":\"\\ud800\"}}", "labels.a",
		 ERR_INVALID_REQUEST},
		{"{\"code\":\"x\"}", "code", ERR_INVALID_REQUEST},
		{"{\"template\":\"\"}", "template", ERR_TEMPLATE_NOT_FOUND},
		{"{\"snapshot\":\"\"}", "snapshot", ERR_SNAPSHOT_NOT_FOUND},
		{"{\"snapshot\":\"snp_../a\"}", "snapshot",
		 ERR_SNAPSHOT_NOT_FOUND},
		{"{\"snapshot\":\"snp_a\",\"template\":\"lbb/shell\"}",
		 "template", ERR_INVALID_REQUEST},
		{"{\"snapshot\":\"snp_a\",\"limits\":{\"disk_mib\":512}}",
		 "limits", ERR_INVALID_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < N_OF(bad); i++)
		refuses(bad[i].body, false, bad[i].code, bad[i].param);
}

/* LBB-120, LBB-121, LBB-123: fields and what they are without one. */
static void commands(void **state)
{
	(void)state;
	accepts("{\"argv\":[\"ls\",\"\",\"-l\"]}", true);
	assert_int_equal(n_words, 3);
	assert_string_equal(words[0], "ls");
	assert_string_equal(words[1], "");
	assert_string_equal(words[2], "-l");
	assert_null(spec.code);
	assert_null(spec.cwd);
	assert_int_equal(spec.wait_ms, 0);
	assert_string_equal(spec.sandbox, "sbx_a");
	accepts("{\"argv\":[\"x\"],\"cwd\":\"a/b\",\"stdin\":\"\\u0000y\","
		"\"env\":{\"A\":\"b\"},\"timeout_ms\":3600000,\"wait_ms\":1}",
		true);
	assert_string_equal(kept[2], "/workspace/a/b");
	assert_string_equal(kept[3], "A=b");
	assert_int_equal(spec.stdin_len, 2);
	assert_int_equal(spec.timeout_ms, 3600000);
	accepts("{\"argv\":[\"x\"],\"cwd\":\"/tmp\"}", true);
	assert_string_equal(kept[2], "/tmp");
	accepts("{\"run\":{\"code\":\"c\",\"input\":[1.0],\"timeout_ms\":5},"
		"\"env\":{\"B\":\"c\"}}",
		true);
	assert_null(spec.argv);
	assert_string_equal(kept[0], "c");
	assert_string_equal(kept[1], "[1.0]");
	assert_string_equal(kept[3], "B=c");
	assert_int_equal(spec.timeout_ms, 5);
	/* The engine knows whether the sandbox's template has code. */
	accepts("{\"run\":{\"input\":1}}", true);
	assert_null(spec.argv);
	assert_null(spec.code);
	assert_int_equal(spec.timeout_ms, 0);
}

/* LBB-123: wait_ms up to 30 s; LBB-124, LBB-128 and others. */
static void refuses_commands(void **state)
{
	static const struct {
		const char *body, *param;
		enum err_code code;
	} bad[] = {
		{"{}", "argv", ERR_INVALID_REQUEST},
		{"{\"argv\":\"ls\"}", "argv", ERR_INVALID_REQUEST},
		{"{\"argv\":[]}", "argv", ERR_INVALID_REQUEST},
		{"{\"argv\":[\"\"]}", "argv", ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\",1]}", "argv[1]", ERR_INVALID_REQUEST},
		{"{\"argv\":[\"\\u0000\"]}", "argv[0]", ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"run\":{\"code\":\"x\"}}", "argv",
		 ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"run\":{}}", "argv", ERR_INVALID_REQUEST},
		{"{\"run\":{\"code\":\"x\"},\"cwd\":\"a\"}", "cwd",
		 ERR_INVALID_REQUEST},
		{"{\"run\":{\"code\":\"x\"},\"stdin\":\"\"}", "stdin",
		 ERR_INVALID_REQUEST},
		{"{\"run\":{\"code\":\"x\",\"template\":\"lbb/node\"}}",
		 "run.template", ERR_INVALID_REQUEST},
		{"{\"run\":{\"code\":\"x\",\"timeout_ms\":1},"
		 "\"timeout_ms\":1}",
		 "timeout_ms", ERR_INVALID_REQUEST},
		{"{\"env\":{},\"run\":{\"code\":\"x\",\"env\":{}}}", "run.env",
		 ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"cwd\":\"\"}", "cwd", ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"cwd\":\"\\u0000\"}", "cwd",
		 ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"stdin\":1}", "stdin",
		 ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"stdin\":\"\\ud800\"}", "stdin",
		 ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"timeout_ms\":3600001}", "timeout_ms",
		 ERR_TIMEOUT_INVALID},
		{"{\"argv\":[\"a\"],\"timeout_ms\":0}", "timeout_ms",
		 ERR_TIMEOUT_INVALID},
		{"{\"argv\":[\"a\"],\"env\":{\"LBB_\":\"\"}}", "env",
		 ERR_ENV_INVALID},
		{"{\"argv\":[\"a\"],\"wait_ms\":30001}", "wait_ms",
		 ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"],\"shell\":true}", "shell",
		 ERR_INVALID_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < N_OF(bad); i++)
		refuses(bad[i].body, true, bad[i].code, bad[i].param);
}

/* One field of `n` times `fill` between two texts. */
static char *sized(const char *pre, const char *fill, size_t n, const char *end)
{
	struct bytes b = {0};

	bytes_append(&b, pre, strlen(pre));
	while (n--)
		bytes_append(&b, fill, strlen(fill));
	bytes_append(&b, end, strlen(end) + 1);
	return (char *)b.data;
}

/* LBB-129, LBB-179: the largest, and one more. */
static void sizes(void **state)
{
	static const struct {
		const char *pre, *fill, *end;
		size_t max;
		const char *param;
		enum err_code code;
	} cases[] = {
		{"{\"argv\":[\"a\"],\"stdin\":\"", "x", "\"}",
		 ENGINE_STDIN_BYTES_MAX, "stdin", ERR_STDIN_TOO_LARGE},
		/* Measured as bytes, not as spelled. */
		{"{\"argv\":[\"a\"],\"stdin\":\"", "\\u0000", "\"}",
		 ENGINE_STDIN_BYTES_MAX, "stdin", ERR_STDIN_TOO_LARGE},
		{"{\"argv\":[\"", "x", "\"]}", ENGINE_ARGV_BYTES_MAX - 1,
		 "argv[0]", ERR_INVALID_REQUEST},
		{"{\"argv\":[\"a\"", ",\"\"", "]}", ENGINE_ARGV_WORDS_MAX - 1,
		 "argv[1024]", ERR_INVALID_REQUEST},
		{"{\"run\":{\"code\":\"", "x", "\"}}", ENGINE_CODE_BYTES_MAX,
		 "run.code", ERR_CODE_TOO_LARGE},
	};

	(void)state;
	for (size_t i = 0; i < N_OF(cases); i++)
		for (size_t more = 0; more < 2; more++) {
			char *body = sized(cases[i].pre, cases[i].fill,
					   cases[i].max + more, cases[i].end);

			assert_true(strlen(body) < LBB_COMMAND_BODY_BYTES_MAX);
			if (more)
				refuses(body, true, cases[i].code,
					cases[i].param);
			else
				accepts(body, true);
			free(body);
		}
}

/* The same words for another sandbox are another request. */
static void hashes(void **state)
{
	uint8_t hash[HASH_BYTES];

	(void)state;
	accepts("{\"argv\":[\"a\"],\"wait_ms\":1}", true);
	memcpy(hash, spec.request_hash, HASH_BYTES);
	accepts("{\"wait_ms\":2,\"argv\":[\"a\"]}", true);
	assert_memory_equal(hash, spec.request_hash, HASH_BYTES);
	sandbox = "sbx_b";
	accepts("{\"argv\":[\"a\"],\"wait_ms\":1}", true);
	assert_memory_not_equal(hash, spec.request_hash, HASH_BYTES);
	sandbox = "sbx_a";
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(creates),
		cmocka_unit_test(names_and_labels),
		cmocka_unit_test(sizes_of_names_and_labels),
		cmocka_unit_test(refuses_creates),
		cmocka_unit_test(commands),
		cmocka_unit_test(refuses_commands),
		cmocka_unit_test(sizes),
		cmocka_unit_test(hashes),
	};
	int rc = cmocka_run_group_tests_name("held", tests, NULL, NULL);

	forget();
	return rc;
}
