/*
 * Payloads against the samples in api/samples/guest: what the host sends is
 * decoded, what is bad is refused, and what init encodes equals the samples.
 */
#include "payload.h"
#include "wire.c"
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define SAMPLES "api/samples/guest/"

static int nibble(int c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The frame in a sample file: header and payload. */
static struct bytes sample(const char *path)
{
	struct bytes b = {0};
	char line[4096];
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '#')
			continue;
		for (char *p = line; nibble(p[0]) >= 0; p += 2) {
			uint8_t v = (uint8_t)(nibble(p[0]) << 4 | nibble(p[1]));

			assert_int_equal(bytes_append(&b, &v, 1), 0);
		}
	}
	fclose(f);
	assert_true(b.len >= sizeof(struct gp_head));
	assert_int_equal(le32_load(b.data), b.len - sizeof(struct gp_head));
	return b;
}

/* Frames of the host in `folder` decode or not, as `is_good` says. */
static void check_folder(const char *folder, int is_good, int at_least)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		_cleanup_bytes_ struct bytes b = {0};
		char path[512], why[160] = "";
		struct gp_head h;
		struct wire_map m;
		uint8_t *tight;
		int rc;

		if (!strstr(e->d_name, ".hex"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		b = sample(path);
		memcpy(&h, b.data, sizeof(h));
		if (h.type < GP_WELCOME || h.type == GP_FILE_PIECE)
			continue; /* the guest's own, and raw bytes */
		/* No byte behind the payload may be touched (ASan). */
		tight = malloc(h.len ? h.len : 1);
		assert_non_null(tight);
		memcpy(tight, b.data + sizeof(h), h.len);
		rc = payload_decode((enum gp_type)h.type, tight, h.len, &m, why,
				    sizeof(why));
		free(tight);
		if (!rc != !!is_good)
			fail_msg("%s: %d %s", path, rc, why);
		if (!is_good && !strlen(why))
			fail_msg("%s: refused without a reason", path);
		n++;
	}
	closedir(d);
	assert_true(n >= at_least);
}

static void samples_decode(void **state)
{
	(void)state;
	check_folder(SAMPLES "good", 1, 13);
	check_folder(SAMPLES "bad", 0, 14);
}

static void run_has_its_parts(void **state)
{
	_cleanup_bytes_ struct bytes b = sample(SAMPLES "good/run.hex");
	const uint8_t *p = b.data + sizeof(struct gp_head);
	struct wire_map m;
	struct span list, item;
	char why[96];

	(void)state;
	assert_int_equal(payload_decode(GP_RUN, p,
					b.len - sizeof(struct gp_head), &m, why,
					sizeof(why)),
			 0);
	assert_int_equal(m.v[GP_RUN_INPUT].s.len, 9);
	assert_memory_equal(m.v[GP_RUN_INPUT].s.data, "[1, 2, 3]", 9);
	assert_int_equal(m.v[GP_RUN_TIMEOUT_MS].u, 60000);
	list = m.v[GP_RUN_ENV].s;
	assert_int_equal(m.v[GP_RUN_ENV].u, 2);
	assert_true(wire_list_next(&list, &item));
	assert_memory_equal(item.data, "A=b", 3);
	assert_true(wire_list_next(&list, &item));
	assert_int_equal(item.len, 2);
	assert_false(wire_list_next(&list, &item));
}

/* Each cut of each good frame is refused or is an empty payload. */
static void every_cut_is_refused(void **state)
{
	_cleanup_bytes_ struct bytes b = sample(SAMPLES "good/bind.hex");
	const uint8_t *p = b.data + sizeof(struct gp_head);
	size_t len = b.len - sizeof(struct gp_head);
	struct wire_map m;
	char why[96];

	(void)state;
	for (size_t n = 0; n < len; n++)
		assert_int_equal(
			payload_decode(GP_BIND, p, n, &m, why, sizeof(why)),
			-EPROTO);
}

static void ended_equals_its_sample(void **state)
{
	_cleanup_bytes_ struct bytes b =
		sample(SAMPLES "good/ended-result.hex");
	_cleanup_bytes_ struct bytes out = {0};
	struct writer w = {.out = &out};

	(void)state;
	wire_put_map(&w, 9);
	wire_put_uint(&w, GP_ENDED_HOW, GP_END_EXITED);
	wire_put_uint(&w, GP_ENDED_CODE, 0);
	wire_put_uint(&w, GP_ENDED_SIGNAL, 0);
	wire_put_bytes(&w, GP_ENDED_RESULT, "6", 1);
	wire_put_uint(&w, GP_ENDED_STDOUT_BYTES, 0);
	wire_put_uint(&w, GP_ENDED_STDERR_BYTES, 0);
	wire_put_uint(&w, GP_ENDED_USER_US, 1200);
	wire_put_uint(&w, GP_ENDED_SYS_US, 800);
	wire_put_uint(&w, GP_ENDED_RSS_BYTES, 4096);
	assert_int_equal(w.rc, 0);
	assert_int_equal(out.len, b.len - sizeof(struct gp_head));
	assert_memory_equal(out.data, b.data + sizeof(struct gp_head), out.len);
}

/* Text of a process's error may hold anything; on the wire it is UTF-8. */
static void text_is_made_valid(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{"plain", "plain"},
		{"\xc3\xbc", "\xc3\xbc"},
		{"a\xff"
		 "b",
		 "a?b"},
		{"\xc3", "?"},
		{"\xed\xa0\x80", "???"},
		{"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
		{"\xc0\xaf", "??"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		_cleanup_bytes_ struct bytes out = {0};
		struct writer w = {.out = &out};
		size_t n = strlen(cases[i].out);

		wire_put_text(&w, 5, cases[i].in);
		assert_int_equal(out.len, n + 2);
		assert_int_equal(out.data[1], 0x60 | n);
		assert_memory_equal(out.data + 2, cases[i].out, n);
	}
}

static void text_is_cut(void **state)
{
	_cleanup_bytes_ struct bytes out = {0};
	struct writer w = {.out = &out};
	char text[2000];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	/* A character of 3 bytes across the edge is left out whole. */
	memcpy(text + GP_TEXT_BYTES_MAX - 1, "\xe2\x82\xac", 3);
	wire_put_text(&w, 5, text);
	assert_int_equal(out.len, 1 + 3 + GP_TEXT_BYTES_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(samples_decode),
		cmocka_unit_test(run_has_its_parts),
		cmocka_unit_test(every_cut_is_refused),
		cmocka_unit_test(ended_equals_its_sample),
		cmocka_unit_test(text_is_made_valid),
		cmocka_unit_test(text_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
