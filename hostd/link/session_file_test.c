/*
 * A hostile guest that answers calls on files (H1 ... H6, I5): every promise of
 * session.h, broken once.
 */
#include "session.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
/* after the headers it needs */
#include <cmocka.h>

static struct {
	unsigned entries, data, more, done;
	uint64_t bytes;
	size_t max;
	char names[256];
	struct vm_file_end end;
	char error[GP_TEXT_BYTES_MAX + 1];
} seen;

static void on_entry(void *ctx, uint64_t number, const struct vm_file_entry *e)
{
	size_t at = strlen(seen.names);

	(void)ctx;
	assert_int_equal(number, 7);
	seen.entries++;
	snprintf(seen.names + at, sizeof(seen.names) - at, "%.*s:%d ",
		 (int)e->name_len, e->name ? (const char *)e->name : "",
		 (int)e->type);
}

static void on_data(void *ctx, uint64_t number, const uint8_t *data, size_t len)
{
	volatile uint8_t last = data[len - 1]; /* ASan: all of it is there */

	(void)ctx;
	(void)last;
	assert_int_equal(number, 7);
	seen.data++;
	seen.bytes += len;
}

static void on_more(void *ctx, uint64_t number, size_t max)
{
	(void)ctx;
	assert_int_equal(number, 7);
	seen.more++;
	seen.max = max;
}

static void on_done(void *ctx, uint64_t number, const struct vm_file_end *end)
{
	(void)ctx;
	assert_int_equal(number, 7);
	seen.done++;
	seen.end = *end;
	snprintf(seen.error, sizeof(seen.error), "%s", end->error);
}

static const struct session_ops ops = {
	.file_entry = on_entry,
	.file_data = on_data,
	.file_more = on_more,
	.file_done = on_done,
};

/* Call 7 is under way. */
static void begin(struct session *s, struct vm_file f, size_t given)
{
	memset(&seen, 0, sizeof(seen));
	session_init(s, SES_BOUND, &ops, NULL);
	assert_int_equal(session_file_begin(s, 7, &f, given), 0);
}

static int feed(struct session *s, uint16_t type, uint64_t number,
		const void *payload, size_t len)
{
	struct bytes b = {0};
	int rc;

	assert_int_equal(frame_append(&b, type, number, payload, len), 0);
	rc = session_feed(s, b.data, b.len);
	bytes_finish(&b);
	return rc;
}

#define FEED(s, type, str) feed(s, type, 7, str, sizeof(str) - 1)

/* {1: name, 2: 1, 3: 0, 4: 0, 5: 0} */
static int feed_name(struct session *s, const char *name, size_t len)
{
	uint8_t p[300] = {0xa5, 1, 0x58, (uint8_t)len};

	memcpy(p + 4, name, len);
	memcpy(p + 4 + len, "\2\1\3\0\4\0\5\0", 8);
	return feed(s, GP_FILE_ENTRY, 7, p, len + 12);
}

static int feed_data(struct session *s, uint64_t offset, size_t len)
{
	static uint8_t p[8 + GP_FILE_DATA_BYTES_MAX + 1];

	le64_store(p, offset);
	return feed(s, GP_FILE_DATA, 7, p, 8 + len);
}

static void test_list(void **state)
{
	static const struct {
		const char *name;
		size_t len;
	} bad[] = {
		{"", 0},     {".", 1},	 {"..", 2},  {"a/b", 3},
		{"a\0b", 3}, {"aaa", 3}, {"aab", 3}, {"aa", 2},
	};
	struct vm_file f = {.op = GP_FILE_LIST, .limit = 3};
	struct session s;

	(void)state;
	begin(&s, f, 0);
	assert_int_equal(feed_name(&s, "a", 1), 0);
	assert_int_equal(feed_name(&s, "a\xff", 2), 0);
	assert_int_equal(feed_name(&s, "b", 1), 0);
	assert_string_equal(seen.names, "a:1 a\xff:1 b:1 ");
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa2\1\1\4\xf5"), 0);
	assert_true(seen.end.has_more);
	session_finish(&s);
	/* One more than asked for. */
	f.limit = 1;
	begin(&s, f, 0);
	assert_int_equal(feed_name(&s, "a", 1), 0);
	assert_int_equal(feed_name(&s, "b", 1), -EPROTO);
	session_finish(&s);
	f.limit = 3;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		begin(&s, f, 0);
		assert_int_equal(feed_name(&s, "aab", 3), 0);
		assert_int_equal(feed_name(&s, bad[i].name, bad[i].len),
				 -EPROTO);
		assert_int_equal(seen.entries, 1);
		session_finish(&s);
	}
	/* Behind what was asked for. */
	f.after = "m";
	f.after_len = 1;
	begin(&s, f, 0);
	assert_int_equal(feed_name(&s, "l", 1), -EPROTO);
	session_finish(&s);
	f.after_len = 0;
	/* The path itself is alone. */
	begin(&s, f, 0);
	assert_int_equal(FEED(&s, GP_FILE_ENTRY, "\xa4\2\3\3\0\4\0\5\0"), 0);
	assert_int_equal(feed_name(&s, "a", 1), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_name(&s, "a", 1), 0);
	assert_int_equal(FEED(&s, GP_FILE_ENTRY, "\xa4\2\3\3\0\4\0\5\0"),
			 -EPROTO);
	session_finish(&s);
	/* No such type, no such mode. */
	begin(&s, f, 0);
	assert_int_equal(FEED(&s, GP_FILE_ENTRY, "\xa4\2\7\3\0\4\0\5\0"),
			 -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(
		FEED(&s, GP_FILE_ENTRY, "\xa4\2\1\3\0\4\0\5\x19\x10\0"),
		-EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 0, 1), -EPROTO);
	session_finish(&s);
}

static void test_read(void **state)
{
	struct vm_file f = {.op = GP_FILE_READ, .offset = 100, .limit = 10};
	struct session s;

	(void)state;
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 100, 4), 0);
	assert_int_equal(feed_data(&s, 104, 6), 0);
	assert_int_equal(seen.bytes, 10);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa2\1\1\3\x19\x10\0"), 0);
	assert_int_equal(seen.end.size, 4096);
	session_finish(&s);
	/* A gap, the same again, more than was asked for, nothing. */
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 101, 1), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 100, 2), 0);
	assert_int_equal(feed_data(&s, 100, 2), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 100, 11), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 100, 0), -EPROTO);
	session_finish(&s);
	f.limit = GP_FILE_BYTES_MAX;
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 100, GP_FILE_DATA_BYTES_MAX + 1),
			 -EPROTO);
	session_finish(&s);
	/* A file cannot be shorter than what came of it. */
	begin(&s, f, 0);
	assert_int_equal(feed_data(&s, 100, 2), 0);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa2\1\1\3\x18\x65"), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_name(&s, "a", 1), -EPROTO);
	session_finish(&s);
}

/* {1: 1, 3: 4, 5: 32 bytes}; len: of the stamp. */
static int feed_stamp(struct session *s, uint8_t len)
{
	uint8_t done[80] = {0xa3, 1, 1, 3, 4, 5, 0x58, len};

	for (uint8_t i = 0; i < len; i++)
		done[8 + i] = i;
	return feed(s, GP_FILE_DONE, 7, (const char *)done, 8u + len);
}

/* Of which state a file is, only what was read can say, and in full. */
static void test_stamp(void **state)
{
	struct vm_file f = {.op = GP_FILE_READ, .limit = 10};
	struct session s;

	(void)state;
	begin(&s, f, 0);
	assert_int_equal(feed_stamp(&s, GP_FILE_STAMP_BYTES), 0);
	assert_true(seen.end.has_stamp);
	assert_int_equal(seen.end.stamp[31], 31);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa2\1\1\3\4"), 0);
	assert_false(seen.end.has_stamp);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_stamp(&s, GP_FILE_STAMP_BYTES - 1), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(feed_stamp(&s, GP_FILE_STAMP_BYTES + 1), -EPROTO);
	session_finish(&s);
	f.op = GP_FILE_DELETE;
	begin(&s, f, 0);
	assert_int_equal(feed_stamp(&s, GP_FILE_STAMP_BYTES), -EPROTO);
	session_finish(&s);
}

/* Nothing is given with the call: all of it is asked for. */
static void test_more(void **state)
{
	struct vm_file f = {.op = GP_FILE_WRITE,
			    .more = GP_FILE_PIECE_BYTES_MAX + 7};
	struct session s;

	(void)state;
	begin(&s, f, 0);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), 0);
	assert_int_equal(seen.max, GP_FILE_PIECE_BYTES_MAX);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\1"), -EPROTO);
	session_finish(&s);
	begin(&s, f, 0);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), 0);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), 0);
	assert_int_equal(seen.max, 7);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\1"), 0);
	session_finish(&s);
}

static void test_write(void **state)
{
	struct vm_file f = {.op = GP_FILE_WRITE,
			    .data_len = 2 * GP_FILE_PIECE_BYTES_MAX + 5};
	struct session s;

	(void)state;
	begin(&s, f, GP_FILE_PIECE_BYTES_MAX);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), 0);
	assert_int_equal(seen.max, GP_FILE_PIECE_BYTES_MAX);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), 0);
	assert_int_equal(seen.max, 5);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\1"), 0);
	assert_int_equal(seen.done, 1);
	/* It is over: what follows says nothing, and very much of it is too
	 * much. */
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\1"), 0);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), 0);
	assert_int_equal(s.n_strays, 2);
	assert_int_equal(seen.done, 1);
	for (unsigned i = 0; i < SESSION_STRAYS_MAX - 2; i++)
		assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), 0);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), -EPROTO);
	session_finish(&s);
	/* More than there is. */
	begin(&s, f, f.data_len);
	assert_int_equal(FEED(&s, GP_FILE_MORE, "\xa0"), -EPROTO);
	session_finish(&s);
	/* Well written, before all of it was given. */
	begin(&s, f, GP_FILE_PIECE_BYTES_MAX);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\1"), -EPROTO);
	session_finish(&s);
	/* But it may fail at any time; its words are cleaned. */
	begin(&s, f, GP_FILE_PIECE_BYTES_MAX);
	assert_int_equal(FEED(&s, GP_FILE_DONE,
			      "\xa2\1\7\2\x65"
			      "a\x1b[1m"),
			 0);
	assert_int_equal(seen.end.how, GP_FILE_FULL);
	assert_string_equal(seen.error, "a?[1m");
	session_finish(&s);
	begin(&s, f, GP_FILE_PIECE_BYTES_MAX);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\x0d"), -EPROTO);
	session_finish(&s);
	begin(&s, f, GP_FILE_PIECE_BYTES_MAX);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa0"), -EPROTO);
	session_finish(&s);
	/* Names that follow those of a write. */
	f.data_len = 0;
	begin(&s, f, 0);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa2\1\1\4\xf5"), -EPROTO);
	session_finish(&s);
}

static void test_calls(void **state)
{
	struct vm_file f = {.op = GP_FILE_DELETE};
	struct session s;

	(void)state;
	begin(&s, f, 0);
	assert_int_equal(session_file_begin(&s, 8, &f, 0), -EBUSY);
	/* Of another call, or of none. */
	assert_int_equal(feed(&s, GP_FILE_DONE, 8, "\xa1\1\1", 3), 0);
	assert_int_equal(feed(&s, GP_FILE_DONE, 0, "\xa1\1\1", 3), 0);
	assert_int_equal(s.n_strays, 2);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\2"), 0);
	assert_int_equal(seen.end.how, GP_FILE_NOT_FOUND);
	assert_string_equal(seen.error, "the guest gave no reason");
	assert_int_equal(session_file_begin(&s, 0, &f, 0), -EINVAL);
	assert_int_equal(feed(&s, GP_FILE_DONE, 0, "\xa1\1\1", 3), 0);
	assert_int_equal(session_file_begin(&s, 8, &f, 0), 0);
	session_finish(&s);
	/* Only of one that is bound. */
	session_init(&s, SES_BINDING, &ops, NULL);
	assert_int_equal(session_file_begin(&s, 7, &f, 0), 0);
	assert_int_equal(FEED(&s, GP_FILE_DONE, "\xa1\1\1"), -EPROTO);
	session_finish(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_list),  cmocka_unit_test(test_read),
		cmocka_unit_test(test_write), cmocka_unit_test(test_stamp),
		cmocka_unit_test(test_more),  cmocka_unit_test(test_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
