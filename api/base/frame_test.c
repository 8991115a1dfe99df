/*
 * Unit tests of frame.c: a peer that sends bytes in any pieces and lies about
 * lengths.  Cases H1 and H14 of the list in tests/README.md.
 */
#include "frame.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define CAP 1000u

static void head_is_little_endian(void **state)
{
	struct bytes b = {0};
	static const uint8_t want[] = {3, 0, 0, 0, 0x12, 0x01, 0,   0,	 8,  7,
				       6, 5, 4, 3, 2,	 1,    'a', 'b', 'c'};

	(void)state;
	assert_int_equal(
		frame_append(&b, 0x112, 0x0102030405060708ull, "abc", 3), 0);
	assert_int_equal(b.len, sizeof(want));
	assert_memory_equal(b.data, want, sizeof(want));
	bytes_finish(&b);
}

/* The same stream in pieces of every size gives the same frames. */
static void any_pieces(void **state)
{
	struct bytes s = {0};
	uint8_t body[CAP];

	(void)state;
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (uint8_t)(i * 31);
	for (size_t len = 0; len <= CAP; len += 125)
		assert_int_equal(frame_append(&s, 5, len, body, len), 0);
	for (size_t piece = 1; piece <= s.len; piece = piece * 2 + 1) {
		struct frame_reader r;
		struct frame f;
		size_t n = 0;

		frame_reader_init(&r, CAP);
		for (size_t at = 0; at < s.len; at += piece) {
			size_t k = s.len - at < piece ? s.len - at : piece;

			assert_int_equal(frame_feed(&r, s.data + at, k), 0);
			while (frame_next(&r, &f) == 1) {
				assert_int_equal(f.head.len, n * 125);
				assert_int_equal(f.head.cmd, n * 125);
				assert_memory_equal(f.payload, body,
						    f.head.len);
				n++;
			}
		}
		assert_int_equal(n, 9);
		frame_reader_finish(&r);
	}
	bytes_finish(&s);
}

static int feed_head(struct frame_reader *r, uint32_t len, uint16_t reserved)
{
	struct gp_head h = {.len = len, .type = 1, .reserved = reserved};
	struct frame f;

	frame_reader_init(r, CAP);
	assert_int_equal(frame_feed(r, &h, sizeof(h)), 0);
	return frame_next(r, &f);
}

static void lengths_at_the_edges(void **state)
{
	static const struct {
		uint32_t len;
		int want;
	} cases[] = {
		{0, 1},
		{1, 0},
		{CAP, 0},
		{CAP + 1, -EPROTO},
		{1u << 31, -EPROTO},
		{UINT32_MAX, -EPROTO},
	};
	struct frame_reader r;
	struct frame f;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(feed_head(&r, cases[i].len, 0), cases[i].want);
		/* Refused before any of the body is kept. */
		assert_true(r.buf.cap <= 256);
		if (cases[i].want < 0) {
			assert_int_equal(frame_feed(&r, "x", 1), -EPROTO);
			assert_int_equal(frame_next(&r, &f), -EPROTO);
		}
		frame_reader_finish(&r);
	}
	assert_int_equal(feed_head(&r, 0, 1), -EPROTO);
	frame_reader_finish(&r);
}

/* Memory stays bounded over a long stream. */
static void a_long_stream_does_not_grow(void **state)
{
	struct frame_reader r;
	struct bytes one = {0};
	struct frame f;
	char body[CAP] = "";

	(void)state;
	frame_append(&one, 5, 1, body, sizeof(body));
	frame_reader_init(&r, CAP);
	for (int i = 0; i < 10000; i++) {
		assert_int_equal(frame_feed(&r, one.data, one.len), 0);
		assert_int_equal(frame_next(&r, &f), 1);
		assert_int_equal(frame_next(&r, &f), 0);
	}
	assert_true(r.buf.cap <= 4 * (CAP + 16));
	frame_reader_finish(&r);
	bytes_finish(&one);
}

static void too_large_to_send(void **state)
{
	struct bytes b = {0};

	(void)state;
	assert_int_equal(frame_append(&b, 1, 1, NULL, GP_DOWN_BYTES_MAX + 1),
			 -EMSGSIZE);
	assert_int_equal(b.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(head_is_little_endian),
		cmocka_unit_test(any_pieces),
		cmocka_unit_test(lengths_at_the_edges),
		cmocka_unit_test(a_long_stream_does_not_grow),
		cmocka_unit_test(too_large_to_send),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
