/* Unit tests of records as JSON, above all of output. */
#include "encode.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

/* Of paths.c: no request is answered here. */
void reply_err(struct request *r, const struct err *e)
{
	(void)r;
	(void)e;
	abort();
}

static struct json_out out;
static struct json_span root;

/* The stream as the engine keeps it: head, then the last bytes. */
static void keep(struct output_rec *o, const char *data, size_t len)
{
	size_t head = len < OUTPUT_HEAD_BYTES ? len : OUTPUT_HEAD_BYTES;
	size_t tail = len - head;

	if (tail > OUTPUT_TAIL_BYTES)
		tail = OUTPUT_TAIL_BYTES;
	memset(o, 0, sizeof(*o));
	bytes_append(&o->head, data, head);
	bytes_append(&o->tail, data + len - tail, tail);
	o->tail_at = len - tail;
	o->total = len;
}

static void put(const char *data, size_t len)
{
	struct output_rec o;
	struct err e;

	json_out_finish(&out);
	memset(&out, 0, sizeof(out));
	keep(&o, data, len);
	json_out_begin(&out, NULL, '{');
	put_output(&out, "o", &o);
	json_out_end(&out, '}');
	bytes_finish(&o.head);
	bytes_finish(&o.tail);
	assert_int_equal(out.rc, 0);
	assert_int_equal(json_check(out.buf.data, out.buf.len, 8, &root, &e),
			 0);
}

static void is(const char *path, const char *want)
{
	struct json_span v;

	assert_true(json_at(root, path, &v));
	if (v.len != strlen(want) || memcmp(v.at, want, v.len))
		fail_msg("%s is %.*s, wanted %s", path, (int)v.len, v.at, want);
}

static size_t text_is(const char *path, const char *data, size_t len)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct json_span v;

	assert_true(json_at(root, path, &v));
	assert_int_equal(json_text(v, &b), 0);
	assert_true(b.len <= len);
	if (b.len)
		assert_memory_equal(b.data, data, b.len);
	return b.len;
}

static void test_short(void **state)
{
	(void)state;
	put("", 0);
	is("o.head", "\"\"");
	is("o.tail", "\"\"");
	is("o.bytes", "0");
	is("o.truncated", "false");
	put("hi\n", 3);
	is("o.head", "\"hi\\n\"");
	is("o.tail", "\"hi\\n\"");
	is("o.invalid_utf8", "false");
	put("a\xff\xc3", 3);
	is("o.tail", "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
	is("o.invalid_utf8", "true");
}

/* Every length around the caps: the head is the first bytes, the tail the
 * last, and nothing is said to be missing while all is kept. */
static void test_lengths(void **state)
{
	const size_t cap = OUTPUT_HEAD_BYTES;
	const size_t lengths[] = {cap - 1, cap,		cap + 1,    cap + 7000,
				  2 * cap, 2 * cap + 1, 3 * cap + 5};
	char *data = malloc(4 * cap);

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < 4 * cap; i++)
		data[i] = (char)('a' + i * 7 % 26);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		size_t len = lengths[i], part = len < cap ? len : cap;

		put(data, len);
		assert_int_equal(text_is("o.head", data, part), part);
		assert_int_equal(text_is("o.tail", data + len - part, part),
				 part);
		is("o.truncated", len > 2 * cap ? "true" : "false");
	}
	free(data);
}

/* Cuts inside a character move to its edge instead of breaking it. */
static void test_characters(void **state)
{
	const size_t cap = OUTPUT_HEAD_BYTES, len = 3 * cap / 3 * 3 + 3;
	char *data = malloc(len + 2);

	(void)state;
	assert_non_null(data);
	for (size_t shift = 0; shift < 3; shift++) {
		memset(data, 'x', shift);
		for (size_t i = shift; i + 3 <= len; i += 3)
			memcpy(data + i, "\xe2\x82\xac", 3);
		put(data, shift + (len - shift) / 3 * 3);
		is("o.invalid_utf8", "false");
	}
	free(data);
}

static void test_run(void **state)
{
	struct sandbox_rec s = {.id = "sbx_1", .status = SBX_RUNNING};
	struct command_rec c = {
		.id = "cmd_1",
		.status = CMD_SUCCEEDED,
		.kind = CMD_KIND_RUN,
		.has_result = true,
		.started_ms = 1000,
		.ended_ms = 1250,
	};
	struct err e;

	(void)state;
	bytes_append(&c.result, "[1.0 , 1e400]", 13);
	json_out_finish(&out);
	memset(&out, 0, sizeof(out));
	lbb_put_run(&out, &s, &c);
	assert_int_equal(json_check(out.buf.data, out.buf.len, 8, &root, &e),
			 0);
	is("ok", "true");
	is("result", "[1.0 , 1e400]");
	is("exit_code", "0");
	is("reason", "null");
	is("duration_ms", "250");
	is("started_at", "\"1970-01-01T00:00:01.000Z\"");
	is("created_at", "null");
	json_out_finish(&out);
	memset(&out, 0, sizeof(out));
	c.has_result = false;
	c.status = CMD_FAILED;
	c.reason = END_OOM;
	c.exit_code = -1;
	c.signal = 9;
	snprintf(c.reason_text, sizeof(c.reason_text), "a \"b\"\n");
	lbb_put_run(&out, &s, &c);
	assert_int_equal(json_check(out.buf.data, out.buf.len, 8, &root, &e),
			 0);
	is("ok", "false");
	is("result", "null");
	is("exit_code", "null");
	is("signal", "9");
	is("message", "\"a \\\"b\\\"\\n\"");
	bytes_finish(&c.result);
	json_out_finish(&out);
}

static void test_snapshot(void **state)
{
	struct sandbox_rec s = {.id = "sbx_1",
				.status = SBX_RUNNING,
				.snapshot = "snp_1",
				.template_name = "lbb/shell"};
	struct snapshot_rec n = {.id = "snp_2",
				 .snapshot = "snp_1",
				 .template_id = "sbt_1",
				 .template_version = 3,
				 .sandbox = "sbx_1",
				 .state_bytes = 1,
				 .mem_bytes = 20,
				 .disk_bytes = 300,
				 .limits = {1, 256, 512}};
	struct err e;

	(void)state;
	json_out_finish(&out);
	memset(&out, 0, sizeof(out));
	lbb_put_sandbox(&out, &s);
	assert_int_equal(json_check(out.buf.data, out.buf.len, 8, &root, &e),
			 0);
	is("snapshot", "\"snp_1\"");
	is("template_id", "null");
	is("template", "\"lbb/shell\"");
	is("template_version", "null");
	is("name", "null");
	is("labels", "{}");
	json_out_finish(&out);
	memset(&out, 0, sizeof(out));
	lbb_put_snapshot(&out, &n);
	assert_int_equal(json_check(out.buf.data, out.buf.len, 8, &root, &e),
			 0);
	is("id", "\"snp_2\"");
	is("name", "null");
	is("snapshot", "\"snp_1\"");
	is("template_id", "\"sbt_1\"");
	is("template_version", "3");
	is("bytes", "321");
	is("memory_bytes", "21");
	is("disk_bytes", "300");
	is("limits.disk_mib", "512");
	is("state_sha256", "null");
	json_out_finish(&out);
}

/* The version that ran, in each record (LBB-44). */
static void test_template(void **state)
{
	struct sandbox_rec s = {.id = "sbx_1",
				.status = SBX_RUNNING,
				.name = "a \"b\"",
				.labels = "{\"a\":\"\\u00fc\"}",
				.template_name = "sum",
				.template_id = "sbt_1",
				.template_version = 2,
				.template_base = "lbb/node"};
	struct command_rec c = {.id = "cmd_1",
				.status = CMD_RUNNING,
				.kind = CMD_KIND_RUN,
				.template_name = "sum",
				.template_id = "sbt_1",
				.template_version = 2,
				.template_base = "lbb/node"};
	struct err e;

	(void)state;
	for (int i = 0; i < 3; i++) {
		json_out_finish(&out);
		memset(&out, 0, sizeof(out));
		if (i == 0)
			lbb_put_sandbox(&out, &s);
		else if (i == 1)
			lbb_put_command(&out, &c, true);
		else
			lbb_put_run(&out, &s, &c);
		assert_int_equal(
			json_check(out.buf.data, out.buf.len, 8, &root, &e), 0);
		is("template", "\"sum\"");
		is("template_id", "\"sbt_1\"");
		is("template_version", "2");
		is("template_base", "\"lbb/node\"");
		if (i)
			continue;
		is("name", "\"a \\\"b\\\"\"");
		is("labels.a", "\"\\u00fc\"");
	}
	/* Written before commands had it: not known. */
	memset(&c, 0, sizeof(c));
	c.status = CMD_SUCCEEDED;
	json_out_finish(&out);
	memset(&out, 0, sizeof(out));
	lbb_put_command(&out, &c, false);
	assert_int_equal(json_check(out.buf.data, out.buf.len, 8, &root, &e),
			 0);
	is("template", "null");
	is("template_base", "null");
	json_out_finish(&out);
}

#define AB "abababababababababababababababab"

static void test_saved(void **state)
{
	struct template_rec t = {.id = "sbt_1",
				 .name = "sum",
				 .version = 2,
				 .base = "lbb/node",
				 .limits = {1, 256, 512},
				 .timeout_ms = 5,
				 .has_code = true,
				 .has_config = true,
				 .code_bytes = 3,
				 .config_bytes = 12};
	struct err e;

	(void)state;
	bytes_append(&t.code, "a\"\xc3\xbc", 4);
	bytes_append(&t.config, "{\"a\": 1.00}", 11);
	t.files.at = calloc(1, sizeof(*t.files.at));
	assert_non_null(t.files.at);
	t.files.n = 1;
	snprintf(t.files.at[0].id, ID_BYTES_MAX, "fil_1");
	memset(t.files.at[0].sha256, 0xab, HASH_BYTES);
	t.files.at[0].bytes = UINT64_C(1) << 40;
	bytes_append(&t.files.at[0].path, "in/\"a\"", 6);
	for (int with = 0; with < 2; with++) {
		struct json_span v;

		json_out_finish(&out);
		memset(&out, 0, sizeof(out));
		lbb_put_template(&out, &t, with);
		assert_int_equal(
			json_check(out.buf.data, out.buf.len, 8, &root, &e), 0);
		is("object", "\"template\"");
		is("is_base", "false");
		is("version", "2");
		is("code_bytes", "3");
		is("files", "[{\"path\":\"in/\\\"a\\\"\",\"sha256\":\"" AB AB
			    "\",\"id\":\"fil_1\",\"bytes\":1099511627776}]");
		assert_int_equal(json_at(root, "code", &v), with);
		assert_int_equal(json_at(root, "config", &v), with);
	}
	is("code", "\"a\\\"\xc3\xbc\"");
	is("config", "{\"a\": 1.00}");
	template_rec_finish(&t);
	json_out_finish(&out);
	memset(&out, 0, sizeof(out));
	lbb_put_template(&out, &t, true);
	assert_int_equal(json_check(out.buf.data, out.buf.len, 8, &root, &e),
			 0);
	is("code", "null");
	is("config", "null");
	is("code_sha256", "null");
	is("files", "[]");
	json_out_finish(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_short),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_characters),
		cmocka_unit_test(test_run),
		cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_template),
		cmocka_unit_test(test_saved),
	};

	return cmocka_run_group_tests_name("encode", tests, NULL, NULL);
}
