/*
 * A guest that sends frames without end, each of them allowed (H4, J2): what
 * says nothing is counted and ends the session, what says something is bounded
 * by what there is to say.
 */
#include "session.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static unsigned n_events;

static void on_progress(void *ctx, const char *text)
{
	(void)ctx;
	(void)text;
	n_events++;
}

static void on_started(void *ctx, uint64_t cmd)
{
	(void)ctx;
	(void)cmd;
}

static void on_ended(void *ctx, uint64_t cmd, const struct vm_end *end)
{
	(void)ctx;
	(void)cmd;
	(void)end;
}

static void on_output(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		      uint64_t total, const uint8_t *data, size_t len)
{
	(void)ctx;
	(void)cmd;
	(void)stream;
	(void)offset;
	(void)total;
	(void)data;
	(void)len;
	n_events++;
}

static const struct session_ops ops = {
	.progress = on_progress,
	.started = on_started,
	.output = on_output,
	.ended = on_ended,
};

/* How many frames of this kind are taken before the session ends. */
static unsigned taken(struct session *s, uint16_t type, uint64_t cmd,
		      const void *payload, size_t len, unsigned max)
{
	struct bytes b = {0};
	unsigned n = 0;

	assert_int_equal(frame_append(&b, type, cmd, payload, len), 0);
	while (n < max && !session_feed(s, b.data, b.len))
		n++;
	bytes_finish(&b);
	return n;
}

static void test_pong(void **state)
{
	struct session s;

	(void)state;
	session_init(&s, SES_BOUND, &ops, NULL);
	assert_int_equal(taken(&s, GP_PONG, 0, "\xa0", 1, 100000),
			 SESSION_STRAYS_MAX);
	assert_non_null(strstr(s.why, "say nothing"));
	session_finish(&s);
}

static void test_empty_output(void **state)
{
	struct gp_output_head h = {.stream = GP_STDOUT};
	struct session s;

	(void)state;
	n_events = 0;
	session_init(&s, SES_BOUND, &ops, NULL);
	assert_int_equal(session_cmd_add(&s, 1, true, 1000), 0);
	assert_int_equal(taken(&s, GP_STARTED, 1, "\xa0", 1, 1), 1);
	assert_int_equal(taken(&s, GP_OUTPUT, 1, &h, sizeof(h), 100000),
			 SESSION_STRAYS_MAX);
	assert_int_equal(n_events, 0);
	session_finish(&s);

	/* A total that grows without bytes says something each time. */
	session_init(&s, SES_BOUND, &ops, NULL);
	assert_int_equal(session_cmd_add(&s, 1, true, 1000), 0);
	assert_int_equal(taken(&s, GP_STARTED, 1, "\xa0", 1, 1), 1);
	for (h.total = 1; h.total <= 5000; h.total++)
		assert_int_equal(taken(&s, GP_OUTPUT, 1, &h, sizeof(h), 1), 1);
	assert_int_equal(n_events, 5000);
	session_finish(&s);
}

static void test_progress(void **state)
{
	struct session s;

	(void)state;
	n_events = 0;
	session_init(&s, SES_PREPARING, &ops, NULL);
	assert_int_equal(taken(&s, GP_PROGRESS, 0, "x", 1, 1000000),
			 SESSION_PROGRESS_MAX);
	assert_int_equal(n_events, SESSION_PROGRESS_MAX);
	assert_non_null(strstr(s.why, "progress"));
	session_finish(&s);
}

/* A bound guest that makes a runner says what that does: nobody is told, it
 * does no harm, and there is an end to it, anew after each command. */
static void test_progress_when_bound(void **state)
{
	struct session s;

	(void)state;
	n_events = 0;
	session_init(&s, SES_BOUND, &ops, NULL);
	assert_int_equal(session_cmd_add(&s, 1, true, 1000), 0);
	assert_int_equal(
		taken(&s, GP_PROGRESS, 0, "x", 1, SESSION_PROGRESS_MAX),
		SESSION_PROGRESS_MAX);
	assert_int_equal(s.n_strays, 0);
	assert_int_equal(taken(&s, GP_STARTED, 1, "\xa0", 1, 1), 1);
	assert_int_equal(taken(&s, GP_ENDED, 1, "\xa2\1\1\2\0", 5, 1), 1);
	assert_int_equal(taken(&s, GP_PROGRESS, 0, "x", 1, 1000000),
			 SESSION_PROGRESS_MAX);
	assert_int_equal(n_events, 0);
	assert_non_null(strstr(s.why, "progress"));
	session_finish(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pong),
		cmocka_unit_test(test_empty_output),
		cmocka_unit_test(test_progress),
		cmocka_unit_test(test_progress_when_bound),
	};

	return cmocka_run_group_tests_name("session_flood", tests, NULL, NULL);
}
