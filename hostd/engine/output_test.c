/* Head and tail of streams against a model, and slices of logs by offset. */
#include "output.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define HEAD OUTPUT_HEAD_BYTES
#define TAIL OUTPUT_TAIL_BYTES

/* Byte of the stream at an offset. */
static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at * 2654435761u >> 13);
}

static void add(struct output *o, uint64_t offset, size_t len, uint64_t total)
{
	uint8_t *p = malloc(len ? len : 1);

	for (size_t i = 0; i < len; i++)
		p[i] = byte_at(offset + i);
	assert_int_equal(output_add(o, offset, total, p, len), 0);
	free(p);
}

static void assert_bytes(const struct bytes *b, uint64_t at)
{
	for (size_t i = 0; i < b->len; i++)
		assert_int_equal(b->data[i], byte_at(at + i));
}

static void assert_view(const struct output *o, size_t head, uint64_t tail_at,
			size_t tail, uint64_t total)
{
	struct output_rec r = output_view(o);

	assert_int_equal(r.head.len, head);
	assert_int_equal(r.tail.len, tail);
	assert_int_equal(r.total, total);
	if (tail)
		assert_int_equal(r.tail_at, tail_at);
	assert_bytes(&r.head, 0);
	assert_bytes(&r.tail, r.tail_at);
}

static void small_output_is_whole(void **state)
{
	struct output o = {0};

	(void)state;
	assert_true(output_is_whole(&o));
	add(&o, 0, 10, 10);
	add(&o, 10, 5, 15);
	assert_view(&o, 15, 0, 0, 15);
	assert_true(output_is_whole(&o));
	add(&o, 0, 15, 15); /* again */
	add(&o, 5, 20, 25); /* overlaps */
	assert_view(&o, 25, 0, 0, 25);
	add(&o, 25, 0, 30); /* five bytes that never came */
	assert_false(output_is_whole(&o));
	output_finish(&o);
}

static void a_gapless_stream(void **state)
{
	struct output o = {0};
	uint64_t at = 0;
	unsigned seed = 3;

	(void)state;
	while (at < 5 * HEAD) {
		size_t n = 1 + (size_t)rand_r(&seed) % 5000;

		add(&o, at, n, at + n);
		at += n;
		assert_true(o.head.cap + o.tail.cap <= 512u << 10);
	}
	assert_view(&o, HEAD, at - TAIL, TAIL, at);
	assert_false(output_is_whole(&o));
	output_finish(&o);
}

/* The guest keeps the last bytes and sends them once a second. */
static void the_tail_jumps(void **state)
{
	struct output o = {0};

	(void)state;
	add(&o, 0, HEAD, 10 * HEAD);
	add(&o, 9 * HEAD, TAIL, 10 * HEAD);
	assert_view(&o, HEAD, 9 * HEAD, TAIL, 10 * HEAD);
	add(&o, 9 * HEAD + 100, TAIL, 10 * HEAD + 100); /* overlaps */
	assert_view(&o, HEAD, 9 * HEAD + 100, TAIL, 10 * HEAD + 100);
	add(&o, 40 * HEAD, 7, 40 * HEAD + 7); /* after a gap */
	assert_view(&o, HEAD, 40 * HEAD, 7, 40 * HEAD + 7);
	add(&o, 20 * HEAD, TAIL, 40 * HEAD + 7); /* old news */
	assert_view(&o, HEAD, 40 * HEAD, 7, 40 * HEAD + 7);
	output_finish(&o);
}

static void lies_are_bounded(void **state)
{
	struct output o = {0};

	(void)state;
	add(&o, 100, 10, 110); /* the head's beginning is missing */
	assert_view(&o, 0, 100, 10, 110);
	add(&o, 0, 50, 110);
	assert_view(&o, 0, 100, 10, 110);
	assert_int_equal(
		output_add(&o, UINT64_MAX - 3, 0, (const uint8_t *)"abcdef", 6),
		0);
	assert_int_equal(output_add(&o, UINT64_MAX - 10, UINT64_MAX,
				    (const uint8_t *)"abcdef", 6),
			 0);
	assert_int_equal(o.total, UINT64_MAX);
	output_finish(&o);
}

static void any_pieces_within_bounds(void **state)
{
	unsigned seed = 11;

	(void)state;
	for (int round = 0; round < 200; round++) {
		struct output o = {0};
		struct output_rec r;

		for (int i = 0; i < 40; i++) {
			uint64_t at = (uint64_t)rand_r(&seed) % (4 * HEAD);
			size_t n = (size_t)rand_r(&seed) % 60000;

			add(&o, at, n, at + n);
		}
		r = output_view(&o);
		assert_true(r.head.len <= HEAD && r.tail.len <= TAIL);
		assert_true(!r.tail.len || r.tail_at >= r.head.len);
		assert_bytes(&r.head, 0);
		assert_bytes(&r.tail, r.tail_at);
		output_finish(&o);
	}
}

/* ---- slices
 * ------------------------------------------------------------------ */

/* Read a log to its end, as a client does; returns the bytes seen. */
static uint64_t read_all(const struct output_rec *o, size_t limit)
{
	uint64_t at = 0, n = 0;

	for (int i = 0; i < 1000000; i++) {
		struct log_slice s = log_slice_of(o, true, at, limit);

		assert_true(s.offset >= at && s.len <= limit);
		for (size_t k = 0; k < s.len; k++)
			assert_int_equal(s.data[k], byte_at(s.offset + k));
		n += s.len;
		assert_true(s.next_offset > at || s.is_eof);
		at = s.next_offset;
		if (s.is_eof)
			return n;
	}
	fail_msg("no end");
	return 0;
}

static void slices_cover_what_is_kept(void **state)
{
	struct output o = {0};
	struct output_rec r;
	struct log_slice s;

	(void)state;
	r = output_view(&o);
	s = log_slice_of(&r, false, 0, 100);
	assert_int_equal(s.len, 0);
	assert_false(s.is_eof);
	assert_true(log_slice_of(&r, true, 55, 100).is_eof);
	assert_int_equal(log_slice_of(&r, true, 55, 100).next_offset, 0);

	add(&o, 0, 1000, 1000);
	r = output_view(&o);
	assert_int_equal(read_all(&r, 7), 1000);
	s = log_slice_of(&r, false, 1000, 10);
	assert_int_equal(s.len, 0);
	assert_int_equal(s.next_offset, 1000);
	assert_false(s.is_truncated);

	add(&o, 1000, HEAD, 1000 + HEAD); /* tail follows the head */
	r = output_view(&o);
	assert_int_equal(read_all(&r, 4096), 1000 + HEAD);
	assert_false(log_slice_of(&r, true, 0, 1).is_truncated);

	add(&o, 10 * HEAD, TAIL, 11 * HEAD);
	r = output_view(&o);
	assert_int_equal(read_all(&r, 1 << 20), HEAD + TAIL);
	s = log_slice_of(&r, true, 2 * HEAD, 10);
	assert_int_equal(s.offset, 10 * HEAD); /* the middle was dropped */
	assert_true(s.is_truncated);
	assert_int_equal(s.total, 11 * HEAD);
	s = log_slice_of(&r, true, UINT64_MAX, 10);
	assert_int_equal(s.len, 0);
	assert_true(s.is_eof);
	s = log_slice_of(&r, true, HEAD - 1, 100);
	assert_int_equal(s.len, 1);
	assert_int_equal(s.next_offset, 10 * HEAD);
	assert_false(s.is_eof);
	output_finish(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_output_is_whole),
		cmocka_unit_test(a_gapless_stream),
		cmocka_unit_test(the_tail_jumps),
		cmocka_unit_test(lies_are_bounded),
		cmocka_unit_test(any_pieces_within_bounds),
		cmocka_unit_test(slices_cover_what_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
