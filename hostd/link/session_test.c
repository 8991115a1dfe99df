/*
 * A hostile guest against the session: frames made by hand, each case of the
 * channel's bug classes by its id (H1 ... H16).
 */
#include "session.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* after the headers it needs */
#include <cmocka.h>

struct seen {
	unsigned hello, progress, ready, bound, started, output, ended, pong;
	char text[GP_TEXT_BYTES_MAX + 1];
	bool has_error;
	uint64_t bytes;
	struct vm_end end;
	char result[64], error[GP_TEXT_BYTES_MAX + 1];
	struct session *close_in_event;
};

static void on_hello_ev(void *ctx, const char *kernel, const char *init)
{
	struct seen *s = ctx;

	s->hello++;
	snprintf(s->text, sizeof(s->text), "%.200s|%.200s", kernel, init);
}

static void on_progress_ev(void *ctx, const char *text)
{
	struct seen *s = ctx;

	s->progress++;
	snprintf(s->text, sizeof(s->text), "%s", text);
}

static void on_ready_ev(void *ctx, const char *error)
{
	struct seen *s = ctx;

	s->ready++;
	s->has_error = error != NULL;
	snprintf(s->text, sizeof(s->text), "%s", error ? error : "");
}

static void on_bound_ev(void *ctx, const char *error)
{
	struct seen *s = ctx;

	s->bound++;
	s->has_error = error != NULL;
}

static void on_started_ev(void *ctx, uint64_t cmd)
{
	struct seen *s = ctx;

	(void)cmd;
	s->started++;
	if (s->close_in_event)
		session_close(s->close_in_event);
}

static void on_output_ev(void *ctx, uint64_t cmd, int stream, uint64_t offset,
			 uint64_t total, const uint8_t *data, size_t len)
{
	struct seen *s = ctx;
	volatile uint8_t last;

	(void)cmd;
	(void)offset;
	(void)total;
	assert_in_range(stream, 0, 1);
	last = len ? data[len - 1] : 0; /* ASan: all of it is there */
	(void)last;
	s->output++;
	s->bytes += len;
}

static void on_ended_ev(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	struct seen *s = ctx;

	(void)cmd;
	s->ended++;
	s->end = *end;
	snprintf(s->result, sizeof(s->result), "%.*s", (int)end->result_len,
		 end->result ? (const char *)end->result : "");
	snprintf(s->error, sizeof(s->error), "%s", end->error);
}

static void on_pong_ev(void *ctx)
{
	struct seen *s = ctx;

	s->pong++;
}

static const struct session_ops seen_ops = {
	on_hello_ev,   on_progress_ev, on_ready_ev, on_bound_ev,
	on_started_ev, on_output_ev,   on_ended_ev, on_pong_ev,
	NULL,	       NULL,	       NULL,	    NULL};

struct fixture {
	struct session s;
	struct seen seen;
};

static void begin(struct fixture *f, enum session_state state)
{
	memset(f, 0, sizeof(*f));
	session_init(&f->s, state, &seen_ops, &f->seen);
}

/* A bound session with command 1, a RUN. */
static void begin_bound(struct fixture *f)
{
	begin(f, SES_BOUND);
	assert_int_equal(session_cmd_add(&f->s, 1, true, 1000), 0);
}

static int send_raw(struct fixture *f, uint16_t type, uint64_t cmd,
		    const void *p, size_t len)
{
	struct bytes b = {0};
	int rc;

	assert_int_equal(frame_append(&b, type, cmd, p, len), 0);
	rc = session_feed(&f->s, b.data, b.len);
	bytes_finish(&b);
	return rc;
}

#define SEND(f, type, cmd, str) send_raw(f, type, cmd, str, sizeof(str) - 1)

static int send_output(struct fixture *f, uint64_t cmd, uint8_t stream,
		       uint64_t offset, uint64_t total, size_t len)
{
	struct gp_output_head h = {
		.offset = offset, .total = total, .stream = stream};
	uint8_t *p = calloc(1, sizeof(h) + len);
	int rc;

	memcpy(p, &h, sizeof(h));
	rc = send_raw(f, GP_OUTPUT, cmd, p, sizeof(h) + len);
	free(p);
	return rc;
}

/* ---- good ways -------------------------------------------------------- */

static void test_prepare(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, SES_BOOTING);
	assert_int_equal(SEND(&f, GP_HELLO, 0, "\xa3\1\1\2\x64six.\3\x61i"), 0);
	assert_int_equal(f.seen.hello, 1);
	assert_string_equal(f.seen.text, "six.|i");
	assert_int_equal(f.s.state, SES_PREPARING);
	assert_int_equal(SEND(&f, GP_PROGRESS, 0, "importing\x1b[2J numpy"), 0);
	assert_string_equal(f.seen.text, "importing?[2J numpy"); /* H8 */
	assert_int_equal(SEND(&f, GP_READY, 0, "\xa1\1\xf5"), 0);
	assert_false(f.seen.has_error);
	assert_int_equal(f.s.state, SES_PREPARED);
	session_finish(&f.s);
}

static void test_run(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, SES_BINDING);
	session_cmd_add(&f.s, 1, true, 1000);
	assert_int_equal(SEND(&f, GP_BOUND, 0, "\xa1\1\xf5"), 0);
	assert_int_equal(SEND(&f, GP_STARTED, 1, "\xa0"), 0);
	assert_int_equal(send_output(&f, 1, GP_STDOUT, 0, 10, 10), 0);
	assert_int_equal(send_output(&f, 1, GP_STDERR, 0, 3, 3), 0);
	assert_int_equal(send_output(&f, 1, GP_STDOUT, 10, 12, 2), 0);
	assert_int_equal(SEND(&f, GP_ENDED, 1,
			      "\xa5\1\1\2\0\4\x41"
			      "6\6\x0c\7\3"),
			 0);
	assert_int_equal(f.seen.bound, 1);
	assert_int_equal(f.seen.started, 1);
	assert_int_equal(f.seen.bytes, 15);
	assert_int_equal(f.seen.end.how, GP_END_EXITED);
	assert_string_equal(f.seen.result, "6");
	assert_int_equal(f.seen.end.stdout_bytes, 12);
	session_finish(&f.s);
}

/* One byte at a time gives the same events (H3, H14). */
static void test_split(void **state)
{
	static const uint8_t bytes[] = {
		3,    0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa1, 1,
		0xf5, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,	 0xa0,
	};
	struct fixture f;

	(void)state;
	begin(&f, SES_BINDING);
	session_cmd_add(&f.s, 1, true, 1000);
	for (size_t i = 0; i < sizeof(bytes); i++)
		assert_int_equal(session_feed(&f.s, &bytes[i], 1), 0);
	assert_int_equal(f.seen.bound, 1);
	assert_int_equal(f.seen.started, 1);
	session_finish(&f.s);
}

/* H14: 10 MiB in full frames; memory stays at the frame's cap. */
static void test_burst(void **state)
{
	struct fixture f;
	uint64_t at = 0, total = 10u << 20;

	(void)state;
	begin_bound(&f);
	SEND(&f, GP_STARTED, 1, "\xa0");
	while (at < total) {
		size_t n = total - at < GP_OUTPUT_BYTES_MAX
				   ? (size_t)(total - at)
				   : GP_OUTPUT_BYTES_MAX;

		assert_int_equal(send_output(&f, 1, GP_STDOUT, at, at + n, n),
				 0);
		at += n;
	}
	assert_int_equal(f.seen.bytes, total);
	assert_true(f.s.reader.buf.cap < 4 * GP_UP_BYTES_MAX);
	session_finish(&f.s);
}

/* An event may close the session: nothing of the same read follows. */
static void test_close_in_event(void **state)
{
	struct bytes b = {0};
	struct fixture f;

	(void)state;
	begin_bound(&f);
	f.seen.close_in_event = &f.s;
	frame_append(&b, GP_STARTED, 1, "\xa0", 1);
	frame_append(&b, GP_ENDED, 1, "\xa2\1\1\2\0", 5);
	assert_int_equal(session_feed(&f.s, b.data, b.len), 0);
	assert_int_equal(f.seen.started, 1);
	assert_int_equal(f.seen.ended, 0);
	bytes_finish(&b);
	session_finish(&f.s);
}

/* ---- every type in every state --------------------------------------------
 */

static void test_table(void **state)
{
	(void)state;
	for (int st = 0; st < SES_CLOSED; st++) {
		for (unsigned type = 0; type < 90; type++) {
			const struct frame_rule *r = NULL;
			struct fixture f;
			bool may;

			begin(&f, (enum session_state)st);
			session_cmd_add(&f.s, 1, true, 1000);
			for (size_t i = 0; i < N_OF(frame_rules); i++)
				if (frame_rules[i].type == type)
					r = &frame_rules[i];
			may = r && r->states & BIT(st);
			/* A payload that no type takes: only the place is
			 * tested, which is checked first. */
			send_raw(&f, (uint16_t)type,
				 r && r->of != OF_SESSION ? 77 : 0, "\xff", 1);
			if (!may)
				assert_non_null(
					strstr(f.s.why, r ? "may not come now"
							  : "may not send"));
			else
				assert_null(strstr(f.s.why, "may not"));
			session_finish(&f.s);
		}
	}
}

/* H13: what only the host may say. */
static void test_host_types(void **state)
{
	static const uint16_t types[] = {GP_WELCOME, GP_PREPARE,   GP_BIND,
					 GP_RUN,     GP_EXEC,	   GP_KILL,
					 GP_ACK,     GP_PING,	   GP_POWEROFF,
					 GP_FILE,    GP_FILE_PIECE};

	(void)state;
	for (size_t i = 0; i < N_OF(types); i++) {
		struct fixture f;

		begin_bound(&f);
		assert_int_equal(send_raw(&f, types[i], 1, "\xa0", 1), -EPROTO);
		assert_int_equal(f.s.state, SES_CLOSED);
		session_finish(&f.s);
	}
}

/* ---- frames ---------------------------------------------------------------
 */

static void test_header(void **state)
{
	static const struct gp_head bad[] = {
		{.len = GP_UP_BYTES_MAX + 1, .type = GP_PONG}, /* H1 */
		{.len = 1u << 31, .type = GP_PONG},
		{.len = UINT32_MAX, .type = GP_PONG},
		{.len = 0, .type = GP_PONG, .reserved = 1}, /* H16 */
		{.len = 0, .type = GP_PONG, .cmd = 1},
		{.len = 0, .type = 0},
		{.len = 0, .type = UINT16_MAX},
	};

	(void)state;
	for (size_t i = 0; i < N_OF(bad); i++) {
		struct fixture f;

		begin_bound(&f);
		assert_int_equal(session_feed(&f.s, &bad[i], sizeof(bad[i])),
				 -EPROTO);
		assert_true(f.s.why[0]);
		assert_true(f.s.reader.buf.cap < 4096);
		/* Dead for good, and silent. */
		assert_int_equal(SEND(&f, GP_STARTED, 1, "\xa0"), 0);
		assert_int_equal(f.seen.started, 0);
		session_finish(&f.s);
	}
}

/* H4, H5: unknown and ended commands are dropped and counted. */
static void test_strays(void **state)
{
	struct fixture f;

	(void)state;
	begin_bound(&f);
	assert_int_equal(SEND(&f, GP_STARTED, 1, "\xa0"), 0);
	assert_int_equal(SEND(&f, GP_ENDED, 1, "\xa2\1\1\2\0"), 0);
	assert_int_equal(SEND(&f, GP_ENDED, 1, "\xa2\1\1\2\7"), 0);
	assert_int_equal(send_output(&f, 1, GP_STDOUT, 0, 1, 1), 0);
	assert_int_equal(SEND(&f, GP_STARTED, 2, "\xa0"), 0);
	assert_int_equal(SEND(&f, GP_ENDED, UINT64_MAX, "\xa2\1\1\2\0"), 0);
	assert_int_equal(f.seen.ended, 1);
	assert_int_equal(f.seen.end.code, 0);
	assert_int_equal(f.seen.output, 0);
	assert_int_equal(f.s.n_strays, 4);
	for (unsigned i = 4; i < SESSION_STRAYS_MAX; i++)
		assert_int_equal(SEND(&f, GP_STARTED, 2, "\xa0"), 0);
	assert_int_equal(SEND(&f, GP_STARTED, 2, "\xa0"), -EPROTO);
	session_finish(&f.s);
}

/* ---- one bad frame each: the session ends with a reason --------------------
 */

struct bad_frame {
	enum session_state state;
	uint16_t type;
	bool is_started;
	const char *payload;
	size_t len;
};
#define BAD(state, type, started, str)                                         \
	{                                                                      \
		state, type, started, str, sizeof(str) - 1                     \
	}

static const struct bad_frame bad[] = {
	/* H12: another version; missing, empty, not text */
	BAD(SES_BOOTING, GP_HELLO, 0, "\xa3\1\2\2\x61k\3\x61i"),
	BAD(SES_BOOTING, GP_HELLO, 0, "\xa2\1\1\2\x61k"),
	BAD(SES_BOOTING, GP_HELLO, 0, "\xa3\1\1\2\x60\3\x61i"),
	BAD(SES_BOOTING, GP_HELLO, 0, "\xa3\1\1\2\x41k\3\x61i"),
	BAD(SES_BOOTING, GP_HELLO, 0, ""),
	/* H7: not UTF-8, repeated key, bytes after, indefinite */
	BAD(SES_BOOTING, GP_HELLO, 0, "\xa3\1\1\2\x62\xc0\x80\3\x61i"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa2\1\xf5\1\xf5"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\1\xf5\0"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xbf\1\xf5\xff"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa2\1\xf5\2\x7f\x61x\xff"),
	/* tag, null, float NaN, negative, array, map as a value */
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\1\xc1\1"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\1\xf6"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\1\xf9\x7e\0"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\1\x20"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\1\x80"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\1\xa0"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\x20\xf5"),
	/* unknown key; key over 64 bits of ours; no key */
	BAD(SES_BINDING, GP_BOUND, 0, "\xa1\x18\x40\xf5"),
	BAD(SES_BINDING, GP_BOUND, 0,
	    "\xa1\x1b\xff\xff\xff\xff\xff\xff\xff\xff\xf5"),
	BAD(SES_BINDING, GP_BOUND, 0, "\xa0"),
	/* H2: 2^32-1 pairs, 2^64-1 bytes, short bodies */
	BAD(SES_BINDING, GP_BOUND, 0, "\xba\xff\xff\xff\xff\1\xf5"),
	BAD(SES_BINDING, GP_BOUND, 0,
	    "\xbb\xff\xff\xff\xff\xff\xff\xff\xff\1\xf5"),
	BAD(SES_BOUND, GP_ENDED, 1,
	    "\xa2\1\1\4\x5b\xff\xff\xff\xff\xff\xff\xff\xff"
	    "1"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa2\1\1\2"),
	/* H9: how 0, 9; code 256; signal 0, 65; times over 2^53 */
	BAD(SES_BOUND, GP_ENDED, 1, "\xa2\1\0\2\0"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa2\1\x09\2\0"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa2\1\1\2\x19\1\0"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa1\1\1"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa2\1\2\3\0"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa2\1\2\3\x18\x41"),
	BAD(SES_BOUND, GP_ENDED, 1,
	    "\xa3\1\1\2\0\x08\x1b\xff\xff\xff\xff\xff\xff\xff\xff"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa3\1\1\2\0\x08\x20"),
	/* H5: an end before the start; not started after it */
	BAD(SES_BOUND, GP_ENDED, 0, "\xa2\1\1\2\0"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa1\1\6"),
	BAD(SES_BOUND, GP_STARTED, 1, "\xa0"),
	/* a result beside a failure; an empty one */
	BAD(SES_BOUND, GP_ENDED, 1,
	    "\xa3\1\1\2\1\4\x41"
	    "6"),
	BAD(SES_BOUND, GP_ENDED, 1,
	    "\xa2\1\3\4\x41"
	    "6"),
	BAD(SES_BOUND, GP_ENDED, 1, "\xa3\1\1\2\0\4\x40"),
	/* output without its header */
	BAD(SES_BOUND, GP_OUTPUT, 1, "123456789012345678901"),
};

static void test_bad_payloads(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_OF(bad); i++) {
		uint64_t cmd = bad[i].state == SES_BOUND ? 1 : 0;
		struct fixture f;

		begin(&f, bad[i].state);
		session_cmd_add(&f.s, 1, true, 1000);
		if (bad[i].is_started)
			f.s.cmds[0].state = CS_STARTED;
		if (send_raw(&f, bad[i].type, cmd, bad[i].payload,
			     bad[i].len) != -EPROTO)
			fail_msg("case %zu was taken", i);
		assert_true(f.s.why[0]);
		assert_int_equal(f.seen.ended + f.seen.hello + f.seen.bound, 0);
		session_finish(&f.s);
	}
}

/* H6 and the promise of the head. */
static void test_output_rules(void **state)
{
	static const struct {
		uint64_t offset, total;
		size_t len;
		uint8_t stream;
		bool is_good;
	} t[] = {
		{100, 200, 100, GP_STDOUT, true},
		{100, 100, 0, GP_STDOUT, true},
		{50, 200, 10, GP_STDOUT, false},	/* backwards */
		{101, 200, 10, GP_STDOUT, false},	/* a gap in the head */
		{100, 105, 10, GP_STDOUT, false},	/* behind its total */
		{100, 99, 0, GP_STDOUT, false},		/* total backwards */
		{UINT64_MAX, 200, 2, GP_STDOUT, false}, /* overflow */
		{UINT64_MAX - 1, UINT64_MAX, 1, GP_STDOUT, false},
		{100, 200, 1, 0, false},
		{100, 200, 1, 3, false},
		{0, 1, 1, GP_STDERR, true}, /* a stream of its own */
		{100, 100u + GP_OUTPUT_BYTES_MAX, GP_OUTPUT_BYTES_MAX,
		 GP_STDOUT, true},
		{100, 101u + GP_OUTPUT_BYTES_MAX, GP_OUTPUT_BYTES_MAX + 1,
		 GP_STDOUT, false},
	};

	(void)state;
	for (size_t i = 0; i < N_OF(t); i++) {
		struct fixture f;

		begin_bound(&f);
		SEND(&f, GP_STARTED, 1, "\xa0");
		assert_int_equal(send_output(&f, 1, GP_STDOUT, 0, 100, 100), 0);
		if (send_output(&f, 1, t[i].stream, t[i].offset, t[i].total,
				t[i].len) != (t[i].is_good ? 0 : -EPROTO))
			fail_msg("case %zu", i);
		session_finish(&f.s);
	}
}

/* Behind the head there may be gaps, forwards only. */
static void test_output_tail(void **state)
{
	const uint64_t head = OUTPUT_HEAD_BYTES;
	struct fixture f;

	(void)state;
	begin_bound(&f);
	SEND(&f, GP_STARTED, 1, "\xa0");
	assert_int_equal(send_output(&f, 1, GP_STDOUT, 0, 1u << 30, head), 0);
	assert_int_equal(send_output(&f, 1, GP_STDOUT, 1u << 29, 1u << 30, 100),
			 0);
	assert_int_equal(send_output(&f, 1, GP_STDOUT, 1u << 28, 1u << 30, 100),
			 -EPROTO);
	session_finish(&f.s);
	/* Fewer bytes in the end than were seen. */
	begin_bound(&f);
	SEND(&f, GP_STARTED, 1, "\xa0");
	send_output(&f, 1, GP_STDOUT, 0, 5, 5);
	assert_int_equal(SEND(&f, GP_ENDED, 1, "\xa3\1\1\2\0\6\4"), -EPROTO);
	session_finish(&f.s);
}

/* What is no JSON of ours fails the command, not the guest. */
static void test_result_json(void **state)
{
	struct fixture f;

	(void)state;
	begin_bound(&f);
	SEND(&f, GP_STARTED, 1, "\xa0");
	assert_int_equal(SEND(&f, GP_ENDED, 1, "\xa3\1\1\2\0\4\x43[1,"), 0);
	assert_int_equal(f.seen.end.how, GP_END_RESULT_NOT_JSON);
	assert_null(f.seen.end.result);
	assert_non_null(strstr(f.seen.error, "not valid JSON"));
	session_finish(&f.s);
	/* Of an EXEC there is none. */
	begin(&f, SES_BOUND);
	session_cmd_add(&f.s, 1, false, 1000);
	SEND(&f, GP_STARTED, 1, "\xa0");
	assert_int_equal(SEND(&f, GP_ENDED, 1,
			      "\xa3\1\1\2\0\4\x41"
			      "6"),
			 -EPROTO);
	session_finish(&f.s);
}

static void test_commands(void **state)
{
	struct fixture f;

	(void)state;
	begin(&f, SES_BOUND);
	assert_int_equal(session_cmd_add(&f.s, 0, true, 1), -EINVAL);
	for (uint64_t i = 1; i <= SESSION_CMDS_MAX; i++)
		assert_int_equal(session_cmd_add(&f.s, i, true, 1), 0);
	assert_int_equal(session_cmd_add(&f.s, 1, true, 1), -EEXIST);
	assert_int_equal(session_cmd_add(&f.s, 1000, true, 1), -ENOSPC);
	session_cmd_free(session_cmd_find(&f.s, 7));
	assert_null(session_cmd_find(&f.s, 7));
	assert_int_equal(session_cmd_add(&f.s, 1000, true, 1), 0);
	session_finish(&f.s);
}

/* One PONG is the answer to a PING, every other one says nothing. */
static void test_pong(void **state)
{
	struct fixture f;

	(void)state;
	begin_bound(&f);
	assert_int_equal(SEND(&f, GP_PONG, 0, ""), 0);
	assert_int_equal(f.seen.pong, 0);
	assert_int_equal(f.s.n_strays, 1);
	f.s.has_ping = true;
	assert_int_equal(SEND(&f, GP_PONG, 0, ""), 0);
	assert_int_equal(SEND(&f, GP_PONG, 0, ""), 0);
	assert_int_equal(f.seen.pong, 1);
	assert_int_equal(f.s.n_strays, 2);
	session_finish(&f.s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pong),
		cmocka_unit_test(test_prepare),
		cmocka_unit_test(test_run),
		cmocka_unit_test(test_split),
		cmocka_unit_test(test_burst),
		cmocka_unit_test(test_close_in_event),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_host_types),
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_strays),
		cmocka_unit_test(test_bad_payloads),
		cmocka_unit_test(test_output_rules),
		cmocka_unit_test(test_output_tail),
		cmocka_unit_test(test_result_json),
		cmocka_unit_test(test_commands),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
