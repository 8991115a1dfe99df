/* Head and tail of a stream: exact bytes at every size and split. */
#include "stream.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static uint8_t byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 31 + (offset >> 8) * 7);
}

static void push(struct stream *s, size_t len)
{
	uint8_t buf[512];

	assert_true(len <= sizeof(buf));
	for (size_t i = 0; i < len; i++)
		buf[i] = byte_at(s->total + i);
	assert_int_equal(stream_push(s, buf, len), 0);
}

/* Takes all there is; pieces rise, hold the right bytes; how many bytes. */
static uint64_t drain(struct stream *s, size_t cap, uint64_t *ret_first_gap)
{
	uint64_t n = 0, expect = s->sent, offset;
	const uint8_t *p;
	size_t len;

	*ret_first_gap = 0;
	while ((p = stream_next(s, cap, &offset, &len))) {
		assert_true(len > 0 && len <= cap);
		assert_true(offset >= expect);
		if (offset > expect && !*ret_first_gap)
			*ret_first_gap = offset - expect;
		for (size_t i = 0; i < len; i++)
			assert_int_equal(p[i], byte_at(offset + i));
		stream_sent(s, offset, len);
		expect = offset + len;
		n += len;
	}
	assert_int_equal(stream_unsent(s), 0);
	return n;
}

static void all_fits(void **state)
{
	struct stream s;
	uint64_t gap;

	(void)state;
	stream_init(&s, -1, 100, 50);
	push(&s, 60);
	push(&s, 40);
	assert_int_equal(stream_unsent(&s), 100);
	assert_int_equal(drain(&s, 7, &gap), 100);
	assert_int_equal(gap, 0);
	push(&s, 50); /* the tail, still without a gap */
	assert_int_equal(drain(&s, 7, &gap), 50);
	assert_int_equal(gap, 0);
	stream_finish(&s);
}

static void the_middle_is_lost(void **state)
{
	struct stream s;
	uint64_t gap;

	(void)state;
	stream_init(&s, -1, 100, 50);
	for (int i = 0; i < 10; i++)
		push(&s, 77);
	assert_int_equal(s.total, 770);
	assert_int_equal(stream_unsent(&s), 150);
	assert_int_equal(drain(&s, 1000, &gap), 150);
	assert_int_equal(gap, 770 - 50 - 100);
	/* Told again after a lost connection. */
	stream_rewind(&s);
	assert_int_equal(drain(&s, 13, &gap), 150);
	stream_finish(&s);
}

static void every_size(void **state)
{
	(void)state;
	for (uint64_t head = 0; head < 6; head++) {
		for (uint64_t tail = 0; tail < 6; tail++) {
			for (size_t step = 1; step < 9; step++) {
				struct stream s;
				uint64_t gap, kept;

				stream_init(&s, -1, head, tail);
				for (int i = 0; i < 5; i++)
					push(&s, step);
				kept = s.total < head + tail ? s.total
							     : head + tail;
				assert_int_equal(stream_unsent(&s), kept);
				assert_int_equal(drain(&s, 3, &gap), kept);
				stream_finish(&s);
			}
		}
	}
}

static void caps_are_capped(void **state)
{
	struct stream s;

	(void)state;
	stream_init(&s, -1, UINT64_MAX, UINT64_MAX);
	assert_int_equal(s.head_max, OUTPUT_HEAD_BYTES_MAX);
	assert_int_equal(s.tail_max, OUTPUT_TAIL_BYTES_MAX);
	stream_finish(&s);
}

/* A flood through a real pipe: what is beyond the tail is never read. */
static void flood(void **state)
{
	_cleanup_fd_ int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	static uint8_t block[256u << 10];
	struct stream s;
	uint64_t sent = 0, gap;
	int p[2], rc = 0;

	(void)state;
	assert_int_equal(pipe2(p, O_NONBLOCK | O_CLOEXEC), 0);
	assert_true(fcntl(p[1], F_SETPIPE_SZ, 1 << 20) > 0);
	stream_init(&s, p[0], 1000, 5000);
	while (sent < 20u << 20) {
		ssize_t n;

		for (size_t i = 0; i < sizeof(block); i++)
			block[i] = byte_at(sent + i);
		n = write(p[1], block, sizeof(block));
		if (n > 0)
			sent += (uint64_t)n;
		if (n <= 0 || sent % 3 == 0)
			rc = stream_pull(&s, null_fd);
		assert_true(rc >= 0);
	}
	close(p[1]);
	while (rc != -EPIPE)
		rc = stream_pull(&s, null_fd);
	assert_int_equal(s.fd, -1);
	assert_int_equal(s.total, sent);
	assert_int_equal(drain(&s, 777, &gap), 6000);
	assert_int_equal(gap, sent - 6000);
	stream_finish(&s);
}

static void pull_says_what_it_found(void **state)
{
	struct stream s;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_NONBLOCK | O_CLOEXEC), 0);
	stream_init(&s, p[0], 10, 10);
	assert_int_equal(stream_pull(&s, -1), 0);
	assert_int_equal(write(p[1], "abc", 3), 3);
	assert_int_equal(stream_pull(&s, -1), 1);
	assert_int_equal(stream_pull(&s, -1), 0);
	close(p[1]);
	assert_int_equal(stream_pull(&s, -1), -EPIPE);
	assert_int_equal(stream_pull(&s, -1), -EPIPE);
	assert_int_equal(s.total, 3);
	stream_finish(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_fits),
		cmocka_unit_test(the_middle_is_lost),
		cmocka_unit_test(every_size),
		cmocka_unit_test(caps_are_capped),
		cmocka_unit_test(flood),
		cmocka_unit_test(pull_says_what_it_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
