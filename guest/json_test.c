/* JSON syntax: good and bad texts, each at every cut. */
#include "json.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// clang-format off
#include <cmocka.h>
// clang-format on

/* From memory that ends where the text ends (ASan). */
static bool check(const char *text, size_t len)
{
	char *p = malloc(len ? len : 1);
	bool ok;

	memcpy(p, text, len);
	ok = json_is_valid(p, len);
	free(p);
	return ok;
}

static void good(void **state)
{
	static const char *const texts[] = {
		"0",
		"-0",
		"1.5e-7",
		"10",
		"true",
		"null",
		"\"\"",
		"\"a\\u00e9\\n\"",
		"\"\\ud800\"",
		"\"\xc3\xbc\"",
		"[]",
		"{}",
		"[1,2]",
		"[[],[{}]]",
		" [ 1 , { \"a\" : null } ] \n",
		"{\"a\":1,\"a\":2}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (!check(texts[i], strlen(texts[i])))
			fail_msg("refused: %s", texts[i]);
}

static void bad(void **state)
{
	static const char *const texts[] = {
		"",	     "01",
		"-",	     "1.",
		"1e",	     ".5",
		"+1",	     "NaN",
		"Infinity",  "tru",
		"truex",     "'a'",
		"\"a",	     "\"\t\"",
		"\"\\x\"",   "\"\\u12g4\"",
		"\"\xff\"",  "\"\xed\xa0\x80\"",
		"[",	     "]",
		"[1,]",	     "[,1]",
		"[1 2]",     "{",
		"{1:2}",     "{\"a\"}",
		"{\"a\":}",  "{\"a\":1,}",
		"{\"a\":1]", "1 2",
		"[1]]",	     "{\"a\" 1}",
		"[}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (check(texts[i], strlen(texts[i])))
			fail_msg("taken: %s", texts[i]);
	assert_false(check("\"a\0b\"", 5));
	assert_false(check("1\0", 2));
}

static void cuts(void **state)
{
	static const char text[] =
		"{\"a\":[1,2.5e3,{\"b\":null}],\"c\\u0001\":\"\xe2\x82\xac\"}";

	(void)state;
	assert_true(check(text, sizeof(text) - 1));
	for (size_t n = 0; n < sizeof(text) - 1; n++)
		assert_false(check(text, n));
}

static void depth(void **state)
{
	static char text[2 * (JSON_DEPTH_MAX + 1)];

	(void)state;
	memset(text, '[', JSON_DEPTH_MAX);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	assert_true(check(text, 2 * JSON_DEPTH_MAX));
	memset(text, '[', JSON_DEPTH_MAX + 1);
	memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	assert_false(check(text, 2 * (JSON_DEPTH_MAX + 1)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good),
		cmocka_unit_test(bad),
		cmocka_unit_test(cuts),
		cmocka_unit_test(depth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
