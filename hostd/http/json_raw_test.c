/* Unit tests of the JSON checker and its readers. */
#include "json_out.h"
#include "json_raw.h"
#include "utf8.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the four above first. */
#include <cmocka.h>

#define DEEP 10000

static struct json_span good(const char *text)
{
	struct json_span v;
	struct err e;

	if (json_check(text, strlen(text), JSON_DEPTH_MAX, &v, &e))
		fail_msg("refused: %s: %s", text, e.text);
	return v;
}

static void bad(const char *text, size_t len, const char *part)
{
	struct json_span v;
	struct err e = {0};

	assert_int_equal(json_check(text, len, JSON_DEPTH_MAX, &v, &e), -1);
	assert_int_equal(e.code, ERR_INVALID_JSON);
	if (!strstr(e.text, part))
		fail_msg("%s: message is \"%s\", wanted \"%s\"", text, e.text,
			 part);
}

static void test_accepts(void **state)
{
	static const char *const texts[] = {
		"0",
		"-0",
		"10",
		"0.5",
		"-1.5e+10",
		"1E400",
		"36893488147419103232",
		"true",
		"false",
		"null",
		"\"\"",
		"[]",
		"{}",
		" [ ] ",
		"[[],{}]",
		"{\"a\":1,\"b\":[1,2,{\"a\":null}]}",
		"\t\r\n 1 \n",
		"\"\\ud800\"",
		"\"\\udc00\\ud800\"",
		"\"\\u0000\"",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
		"\"\xc3\xa9\xf0\x9f\x98\x80\"",
		"{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}",
		"\"\x7f\"",
		"{\"\":0}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		good(texts[i]);
}

static void test_refuses(void **state)
{
	static const struct {
		const char *text, *part;
	} cases[] = {
		{"", "ends before its value"},
		{"   ", "ends before its value"},
		{"01", "text after"},
		{"+1", "expected a value"},
		{".5", "expected a value"},
		{"1.", "malformed number"},
		{"-", "malformed number"},
		{"1e", "malformed number"},
		{"1e+", "malformed number"},
		{"0x10", "text after"},
		{"NaN", "expected a value"},
		{"Infinity", "expected a value"},
		{"-Infinity", "malformed number"},
		{"nul", "expected a value"},
		{"True", "expected a value"},
		{"'a'", "expected a value"},
		{"[1,]", "expected a value"},
		{"[,1]", "expected a value"},
		{"[1 2]", "expected ',' or ']'"},
		{"[1}", "expected ',' or ']'"},
		{"{\"a\":1]", "expected ',' or '}'"},
		{"{\"a\"}", "expected ':'"},
		{"{a:1}", "member name"},
		{"{\"a\":1,}", "member name"},
		{"{,}", "member name"},
		{"{\"a\":}", "expected a value"},
		{"[", "ends before"},
		{"{", "member name"},
		{"{\"a\":1", "expected ',' or '}'"},
		{"\"a", "does not end"},
		{"\"\\", "does not end"},
		{"\"\\x\"", "unknown escape"},
		{"\"\\u12\"", "four hex digits"},
		{"\"\\u12G4\"", "four hex digits"},
		{"\"a\nb\"", "control character"},
		{"\"\x1f\"", "control character"},
		{"\"\xff\"", "not UTF-8"},
		{"\"\xc0\xaf\"", "not UTF-8"},
		{"\"\xed\xa0\x80\"", "not UTF-8"},
		{"\"\xf4\x90\x80\x80\"", "not UTF-8"},
		{"\"\xe2\x82\"", "not UTF-8"},
		{"\xef\xbb\xbf{}", "expected a value"},
		{"1 2", "text after"},
		{"{} {}", "text after"},
		{"/* */ 1", "expected a value"},
		{"{\"a\":1,\"a\":2}", "byte 7: duplicate key \"a\""},
		{"{\"a\":1,\"b\":2,\"\\u0061\":3}", "duplicate key"},
		{"[{\"x\":{\"k\":1,\"l\":2,\"k\":3}}]", "duplicate key \"k\""},
		{"{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00\":2}",
		 "duplicate key"},
		{"{\"\":1,\"\":2}", "duplicate key \"\""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		bad(cases[i].text, strlen(cases[i].text), cases[i].part);
	bad("\0", 1, "expected a value");
	bad("\"a\0b\"", 5, "control character");
	bad("1\0", 2, "text after");
}

/* K4: nesting far over the limit ends early and uses no stack. */
static void test_depth(void **state)
{
	char *text = malloc(2 * DEEP + 1);
	struct json_span v;

	(void)state;
	assert_non_null(text);
	memset(text, '[', DEEP);
	memset(text + DEEP, ']', DEEP);
	bad(text, 2 * DEEP, "nested deeper than 520");
	bad(text, DEEP, "nested deeper than 520");
	v = good("[[1,{\"a\":[]}],\"[[[[[[[\"]");
	assert_int_equal(json_depth(v), 4);
	assert_int_equal(json_depth(good("\"]]\"")), 0);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	text[2 * JSON_DEPTH_MAX] = 0;
	assert_int_equal(json_depth(good(text)), JSON_DEPTH_MAX);
	free(text);
}

/* An object of many members is n log n, whatever their names. */
static void test_many_names(void **state)
{
	struct bytes b = {0};
	struct json_span v;
	struct err e;

	(void)state;
	bytes_append(&b, "{", 1);
	for (int i = 0; i < 100000; i++)
		bytes_printf(&b, "\"%d\":0,", i);
	bytes_printf(&b, "\"x\":0}");
	assert_int_equal(json_check(b.data, b.len, 8, &v, &e), 0);
	b.len -= 6;
	bytes_printf(&b, "\"77777\":0}");
	assert_int_equal(json_check(b.data, b.len, 8, &v, &e), -1);
	assert_non_null(strstr(e.text, "duplicate key \"77777\""));
	bytes_finish(&b);
}

static void test_spans(void **state)
{
	struct json_span v = good(" {\"run\" : {\"input\": [0.1, 1e400 ] , "
				  "\"c\\u006fde\":\"x\"}, \"wait_ms\":5 } ");
	struct json_span at;
	int64_t n;

	(void)state;
	assert_true(json_at(v, "run.input", &at));
	assert_int_equal(at.len, strlen("[0.1, 1e400 ]"));
	assert_memory_equal(at.at, "[0.1, 1e400 ]", at.len);
	assert_true(json_at(v, "run.code", &at));
	assert_int_equal(json_kind_of(at), JSON_KIND_STRING);
	assert_true(json_at(v, "wait_ms", &at));
	assert_int_equal(json_int(at, &n), 0);
	assert_int_equal(n, 5);
	assert_false(json_at(v, "run.no", &at));
	assert_false(json_at(v, "wait_ms.no", &at));
	assert_true(json_at(v, "", &at));
	assert_ptr_equal(at.at, v.at);
}

static void test_iter(void **state)
{
	static const char *const values[] = {"1", "\"a,]\"", "[2,[3]]",
					     "{\"k\":\"}\"}", "null"};
	struct json_member m;
	struct json_iter it;
	size_t n = 0;

	(void)state;
	json_iter_begin(&it, good("[1, \"a,]\",[2,[3]] ,{\"k\":\"}\"},null]"));
	while (json_iter_next(&it, &m)) {
		assert_null(m.name.at);
		assert_int_equal(m.value.len, strlen(values[n]));
		assert_memory_equal(m.value.at, values[n], m.value.len);
		n++;
	}
	assert_int_equal(n, 5);
	json_iter_begin(&it, good("{ }"));
	assert_false(json_iter_next(&it, &m));
	json_iter_begin(&it, good("[]"));
	assert_false(json_iter_next(&it, &m));
}

static void test_int(void **state)
{
	static const struct {
		const char *text;
		int rc;
		int64_t n;
	} cases[] = {
		{"0", 0, 0},
		{"-0", 0, 0},
		{"9223372036854775807", 0, INT64_MAX},
		{"-9223372036854775808", 0, INT64_MIN},
		{"9223372036854775808", -ERANGE, 0},
		{"-9223372036854775809", -ERANGE, 0},
		{"99999999999999999999", -ERANGE, 0},
		{"1.0", -EINVAL, 0},
		{"1e3", -EINVAL, 0},
		{"\"1\"", -EINVAL, 0},
		{"true", -EINVAL, 0},
		{"null", -EINVAL, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int64_t n = 0;

		assert_int_equal(json_int(good(cases[i].text), &n),
				 cases[i].rc);
		assert_true(n == cases[i].n);
	}
}

static void test_string(void **state)
{
	_cleanup_bytes_ struct bytes b = {0};

	(void)state;
	assert_int_equal(json_text(good("\"a\\u00e9\\ud83d\\ude00\\n\""), &b),
			 0);
	assert_int_equal(b.len, 8);
	assert_memory_equal(b.data, "a\xc3\xa9\xf0\x9f\x98\x80\n", 8);
	b.len = 0;
	assert_int_equal(json_text(good("\"\\u0000x\""), &b), 0);
	assert_int_equal(b.len, 2);
	assert_int_equal(json_text(good("\"\\ud800\""), &b), -EILSEQ);
	assert_int_equal(json_text(good("\"\\udc00\\ud800\""), &b), -EILSEQ);
	assert_int_equal(json_text(good("5"), &b), -EINVAL);
}

static void test_utf8(void **state)
{
	(void)state;
	assert_int_equal(utf8_cut_bytes("abc", 3), 0);
	assert_int_equal(utf8_cut_bytes("ab\xc3", 3), 1);
	assert_int_equal(utf8_cut_bytes("a\xe2\x82", 3), 2);
	assert_int_equal(utf8_cut_bytes("\xf0\x9f\x98", 3), 3);
	assert_int_equal(utf8_cut_bytes("\xf0\x9f\x98\x80", 4), 0);
	assert_int_equal(utf8_cut_bytes("\x80\x80\x80\x80", 4), 0);
	assert_int_equal(utf8_cut_bytes("a\xff", 2), 0);
	assert_int_equal(utf8_cut_bytes("", 0), 0);
}

static void test_out(void **state)
{
	static const char want[] =
		"{\"a\":\"x\\n\\u0001\\\"\\\\\xc3\xa9\",\"b\":[1,-2,true,null],"
		"\"c\":0.10,\"t\":\"2001-09-09T01:46:40.007Z\",\"z\":null,"
		"\"h\":\"00ff\",\"e\":\"\",\"f\":\"AA==\",\"g\":\"AAEC\"}";
	struct json_out j = {0};
	struct json_span v;
	struct err e;

	(void)state;
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "a", "x\n\x01\"\\\xc3\xa9");
	json_out_begin(&j, "b", '[');
	json_out_u64(&j, NULL, 1);
	json_out_i64(&j, NULL, -2);
	json_out_bool(&j, NULL, true);
	json_out_null(&j, NULL);
	json_out_end(&j, ']');
	json_out_raw(&j, "c", "0.10", 4);
	json_out_time(&j, "t", 1000000000007);
	json_out_time(&j, "z", 0);
	json_out_hex(&j, "h", (const uint8_t *)"\x00\xff", 2);
	json_out_base64(&j, "e", "", 0);
	json_out_base64(&j, "f", "\0", 1);
	json_out_base64(&j, "g", "\0\1\2", 3);
	json_out_end(&j, '}');
	assert_int_equal(j.rc, 0);
	assert_int_equal(j.buf.len, strlen(want));
	assert_memory_equal(j.buf.data, want, j.buf.len);
	assert_int_equal(json_check(j.buf.data, j.buf.len, 8, &v, &e), 0);
	j.buf.len = 0;
	j.needs_comma = false;
	assert_true(json_out_text(&j, NULL, "a\xff\xe2\x82", 4));
	assert_memory_equal(j.buf.data, "\"a\xef\xbf\xbd\xef\xbf\xbd", 8);
	assert_int_equal(json_check(j.buf.data, j.buf.len, 8, &v, &e), 0);
	json_out_finish(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepts),
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_many_names),
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_iter),
		cmocka_unit_test(test_int),
		cmocka_unit_test(test_string),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_out),
	};

	return cmocka_run_group_tests_name("json_raw", tests, NULL, NULL);
}
