/* The decoder of the guest's payloads by itself: depth, sizes, text. */
#include "gp_up.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

#define LEN (96u << 10)

static const struct gp_rule rules[] = {
	{1, GP_KIND_UINT, true, 2, 10},
	{2, GP_KIND_TEXT, false, 1, 4},
	{15, GP_KIND_BYTES, false, 0, 2},
};

static int decode(const void *p, size_t len, struct gp_map *m)
{
	const char *why = "untouched";
	int rc = gp_map_decode(p, len, rules, 3, m, &why);

	assert_true(rc ? rc == -EPROTO && why : !why);
	return rc;
}

static void test_good(void **state)
{
	struct gp_map m;

	(void)state;
	assert_int_equal(decode("\xa1\1\2", 3, &m), 0);
	assert_int_equal(m.v[1].u, 2);
	assert_false(m.v[2].is_set);
	/* Any order, numbers in any width. */
	assert_int_equal(decode("\xa3\x0f\x40\2\x64\xf0\x9f\x90\x87"
				"\x18\1\x1b\0\0\0\0\0\0\0\x0a",
				20, &m),
			 0);
	assert_int_equal(m.v[1].u, 10);
	assert_int_equal(m.v[2].len, 4);
	assert_true(m.v[15].is_set);
	assert_int_equal(m.v[15].len, 0);
}

/* Each length of a good payload but the whole is refused, in memory that ends
 * there. */
static void test_cut_short(void **state)
{
	static const char whole[] = "\xa3\1\2\2\x63"
				    "abc\x0f\x42xy";
	struct gp_map m;

	(void)state;
	assert_int_equal(decode(whole, sizeof(whole) - 1, &m), 0);
	for (size_t n = 0; n < sizeof(whole) - 1; n++) {
		char *p = malloc(n ? n : 1);

		memcpy(p, whole, n);
		assert_int_equal(decode(p, n, &m), -EPROTO);
		free(p);
	}
}

static void test_ranges(void **state)
{
	struct gp_map m;

	(void)state;
	assert_int_equal(decode("\xa1\1\1", 3, &m), -EPROTO);
	assert_int_equal(decode("\xa1\1\x0b", 3, &m), -EPROTO);
	assert_int_equal(decode("\xa2\1\2\2\x60", 5, &m), -EPROTO);
	assert_int_equal(decode("\xa2\1\2\2\x65"
				"abcde",
				10, &m),
			 -EPROTO);
	assert_int_equal(decode("\xa2\1\2\x0f\x43xyz", 8, &m), -EPROTO);
	/* A known key of another kind; more pairs than keys. */
	assert_int_equal(decode("\xa2\1\2\2\2", 5, &m), -EPROTO);
	assert_int_equal(decode("\xa4\1\2\1\2\1\2\1\2", 9, &m), -EPROTO);
}

/* H7: as many nested items as a frame holds: refused at the first. */
static void test_deep(void **state)
{
	static const uint8_t openers[] = {0x81, 0x9f, 0xa1, 0xbf, 0xc1,
					  0x5f, 0x7f, 0xd8, 0xff};
	uint8_t *p = malloc(LEN);
	struct gp_map m;

	(void)state;
	for (size_t i = 0; i < sizeof(openers); i++) {
		memset(p, openers[i], LEN);
		assert_int_equal(decode(p, LEN, &m), -EPROTO);
		p[0] = 0xa1;
		p[1] = 1;
		assert_int_equal(decode(p, LEN, &m), -EPROTO);
	}
	free(p);
}

/* H8: NUL, ESC, bidirectional marks, bytes that are not UTF-8. */
static void test_text_clean(void **state)
{
	static const char in[] = "a\0b\x1b[31m\r\n\xe2\x80\xae\xff\xc3\xa4\x9b";
	char out[64], small[4];

	(void)state;
	gp_text_clean(out, sizeof(out), in, sizeof(in) - 1, true);
	assert_string_equal(out, "a?b?[31m?\n??\xc3\xa4?");
	gp_text_clean(small, sizeof(small), "ab\xc3\xa4", 4, false);
	assert_string_equal(small, "ab"); /* cut at a character's edge */
}

static void test_utf8(void **state)
{
	static const struct {
		const char *s;
		bool is_valid;
	} t[] = {
		{"", true},
		{"\x7f", true},
		{"\xc2\x80", true},
		{"\xe0\xa0\x80", true},
		{"\xf4\x8f\xbf\xbf", true},
		{"\x80", false},
		{"\xc0\xaf", false}, /* overlong */
		{"\xe0\x9f\xbf", false},
		{"\xf0\x8f\xbf\xbf", false},
		{"\xed\xa0\x80", false},     /* a surrogate */
		{"\xf4\x90\x80\x80", false}, /* over U+10FFFF */
		{"\xf8\x88\x80\x80\x80", false},
		{"a\xc2", false},
		{"\xe2\x82"
		 "a",
		 false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (gp_utf8_is_valid(t[i].s, strlen(t[i].s)) != t[i].is_valid)
			fail_msg("case %zu", i);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_cut_short),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_deep),
		cmocka_unit_test(test_text_clean),
		cmocka_unit_test(test_utf8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
