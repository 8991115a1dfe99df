/*
 * Frames in, frames out, over a socket pair: phases, commands that cannot
 * start, messages of a runner, output and its repetition after a lost
 * connection.  No process is started here (tests/guest does).
 */
#include "fd.h"
#include "runner.h"
#include "session.c"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
// clang-format off
#include <cmocka.h>
// clang-format on

struct fixture {
	struct guest g;
	struct frame_reader r;
	int host;
};

static void connect_host(struct fixture *f)
{
	int pair[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	f->host = pair[1];
	frame_reader_init(&f->r, GP_UP_BYTES_MAX);
	assert_int_equal(link_adopt(&f->g.link, pair[0]), 0);
	link_flush(&f->g.link);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_int_equal(loop_init(&f->g.loop), 0);
	list_init(&f->g.commands.all);
	prepare_init(&f->g);
	f->g.null_fd = -1;
	f->g.link.up = session_up;
	f->g.link.room = session_room;
	f->g.link.frame = session_frame;
	f->g.link.ctx = &f->g;
	assert_int_equal(link_init(&f->g.link, &f->g.loop), 0);
	connect_host(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &f->g.commands.all)
		container_of(n, struct command, node)
			->is_over = true;
	commands_sweep(&f->g);
	loop_unwatch(&f->g.loop, &f->g.link.watch);
	fd_close(&f->g.link.watch.fd);
	fd_close(&f->host);
	frame_reader_finish(&f->r);
	frame_reader_finish(&f->g.link.in);
	bytes_finish(&f->g.link.out);
	loop_finish(&f->g.loop);
	free(f);
	return 0;
}

static void send_frame(struct fixture *f, uint16_t type, uint64_t cmd,
		       const void *payload, size_t len)
{
	_cleanup_bytes_ struct bytes b = {0};

	assert_int_equal(frame_append(&b, type, cmd, payload, len), 0);
	assert_int_equal(fd_write_all(f->host, b.data, b.len), 0);
	assert_int_equal(loop_turn(&f->g.loop), 0);
	link_flush(&f->g.link);
	commands_sweep(&f->g);
}

/* Next frame that init sent; type 0 = none. */
static struct frame take_frame(struct fixture *f)
{
	struct frame got = {0};
	uint8_t buf[65536];

	while (frame_next(&f->r, &got) == 0) {
		ssize_t n = recv(f->host, buf, sizeof(buf), MSG_DONTWAIT);

		if (n <= 0)
			return (struct frame){0};
		assert_int_equal(frame_feed(&f->r, buf, (size_t)n), 0);
	}
	return got;
}

static uint64_t ended_how(const struct frame *fr)
{
	/* The map begins with key 1 and a small number. */
	assert_int_equal(fr->head.type, GP_ENDED);
	assert_int_equal(fr->payload[1], GP_ENDED_HOW);
	return fr->payload[2];
}

static void hello_then_ping(void **state)
{
	struct fixture *f = *state;
	struct frame fr = take_frame(f);

	assert_int_equal(fr.head.type, GP_HELLO);
	assert_int_equal(fr.payload[0], 0xa3);
	send_frame(f, GP_PING, 0, NULL, 0);
	fr = take_frame(f);
	assert_int_equal(fr.head.type, GP_PONG);
	assert_int_equal(fr.head.len, 1);
	assert_int_equal(take_frame(f).head.type, 0);
}

static void no_command_before_bound(void **state)
{
	static const uint8_t run[] = {0xa1, 0x01, 0x41, 'x'};
	struct fixture *f = *state;
	enum phase phases[] = {PHASE_NEW, PHASE_PREPARING, PHASE_READY,
			       PHASE_BROKEN};
	struct frame fr = take_frame(f);

	for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
		f->g.phase = phases[i];
		send_frame(f, GP_RUN, i + 1, run, sizeof(run));
		fr = take_frame(f);
		assert_int_equal(fr.head.cmd, i + 1);
		assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	}
	assert_int_equal(f->g.commands.n, 0);
}

static void refused_commands(void **state)
{
	static const uint8_t bad_run[] = {0xa0};
	static const uint8_t no_argv[] = {0xa1, 0x08, 0x80};
	struct fixture *f = *state;
	struct frame fr = take_frame(f);

	f->g.phase = PHASE_BOUND;
	f->g.prepare.runner = RUNNER_PYTHON;
	send_frame(f, GP_RUN, 5, bad_run, sizeof(bad_run));
	fr = take_frame(f);
	assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	send_frame(f, GP_EXEC, 6, no_argv, sizeof(no_argv));
	fr = take_frame(f);
	assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	/* A number that is not new starts nothing. */
	send_frame(f, GP_EXEC, 4, no_argv, sizeof(no_argv));
	fr = take_frame(f);
	assert_int_equal(fr.head.cmd, 4);
	assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	/* One that is known is not answered again. */
	send_frame(f, GP_EXEC, 6, no_argv, sizeof(no_argv));
	assert_int_equal(take_frame(f).head.type, 0);
	send_frame(f, GP_ACK, 5, NULL, 0);
	send_frame(f, GP_ACK, 6, NULL, 0);
	assert_int_equal(f->g.commands.n, 0);
}

static struct command *running(struct fixture *f, uint64_t number)
{
	struct command *c = command_new(&f->g, CMD_RUNNER, number);

	assert_non_null(c);
	c->state = CMD_RUNNING;
	return c;
}

static void put_message(struct command *c, uint32_t kind, uint32_t code,
			const char *text, size_t len)
{
	struct runner_message m = {kind, code, (uint32_t)len};

	bytes_append(&c->channel.in, &m, sizeof(m));
	bytes_append(&c->channel.in, text, len);
}

static void runner_messages(void **state)
{
	struct fixture *f = *state;
	static char large[GP_RESULT_BYTES_MAX + 1];
	static const struct {
		uint32_t kind, code;
		const char *text;
		enum gp_end how;
		int want_code;
	} cases[] = {
		{RUNNER_RESULT, 0, "[1]", GP_END_EXITED, 0},
		{RUNNER_RESULT, 7, "[1]", GP_END_EXITED, 0},
		{RUNNER_RESULT, 0, "[1", GP_END_RESULT_NOT_JSON, 1},
		{RUNNER_FAILED, 3, "", GP_END_EXITED, 3},
		{RUNNER_FAILED, 0x1ff, "", GP_END_EXITED, 255},
		{RUNNER_NOT_JSON, 0, "why", GP_END_RESULT_NOT_JSON, 1},
		{RUNNER_TOO_LARGE, 0, "why", GP_END_RESULT_TOO_LARGE, 1},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct command *c = running(f, i + 1);

		put_message(c, cases[i].kind, cases[i].code, cases[i].text,
			    strlen(cases[i].text));
		assert_int_equal(runner_message_take(c), 1);
		assert_true(c->answer.is_set);
		assert_int_equal(c->answer.how, cases[i].how);
		assert_int_equal(c->answer.code, cases[i].want_code);
		/* The first answer counts. */
		put_message(c, RUNNER_FAILED, 9, "", 0);
		assert_int_equal(runner_message_take(c), 1);
		assert_int_equal(c->answer.how, cases[i].how);
	}
	struct command *c = running(f, 100);

	put_message(c, RUNNER_RESULT, 0, large, sizeof(large));
	assert_int_equal(runner_message_take(c), 1);
	assert_int_equal(c->answer.how, GP_END_RESULT_TOO_LARGE);
}

static void hostile_messages(void **state)
{
	static const struct runner_message bad[] = {
		{0, 0, 0},
		{RUNNER_TOO_LARGE + 1, 0, 0},
		{RUNNER_RESULT, 0, GP_RESULT_BYTES_MAX + 2},
		{RUNNER_RESULT, 0, UINT32_MAX},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct command *c = running(f, i + 1);

		bytes_append(&c->channel.in, &bad[i], sizeof(bad[i]));
		assert_int_equal(runner_message_take(c), -EPROTO);
		assert_false(c->answer.is_set);
	}
	/* "I wait" from a run does not make it a waiting runner. */
	struct command *c = running(f, 50);

	put_message(c, RUNNER_WAITING, 0, "", 0);
	assert_int_equal(runner_message_take(c), 1);
	assert_int_equal(c->state, CMD_RUNNING);
}

/* Sum of the bytes of OUTPUT frames up to ENDED. */
static size_t take_output(struct fixture *f, bool want_started)
{
	struct frame fr;
	size_t n = 0;

	if (want_started) {
		fr = take_frame(f);
		assert_int_equal(fr.head.type, GP_STARTED);
	}
	for (fr = take_frame(f); fr.head.type == GP_OUTPUT;
	     fr = take_frame(f)) {
		assert_true(fr.head.len <= GP_UP_BYTES_MAX);
		n += fr.head.len - sizeof(struct gp_output_head);
	}
	assert_int_equal(ended_how(&fr), GP_END_EXITED);
	return n;
}

static void all_is_told_again(void **state)
{
	static uint8_t text[100000];
	struct fixture *f = *state;
	struct command *c = running(f, 9);

	take_frame(f);
	f->g.phase = PHASE_BOUND;
	stream_push(&c->out[0], text, sizeof(text));
	stream_push(&c->out[0], text, sizeof(text));
	c->has_exited = true;
	command_event(c, EV_EXIT);
	link_flush(&f->g.link);
	assert_int_equal(c->state, CMD_ENDED);
	assert_int_equal(take_output(f, false), 2 * (48 << 10));
	/* The host goes away and comes back: HELLO, READY, then the rest. */
	fd_close(&f->host);
	assert_int_equal(loop_turn(&f->g.loop), 0);
	assert_false(f->g.link.is_up);
	timer_clear(&f->g.link.retry);
	frame_reader_finish(&f->r);
	connect_host(f);
	assert_int_equal(take_frame(f).head.type, GP_HELLO);
	assert_int_equal(take_frame(f).head.type, GP_READY);
	assert_int_equal(take_output(f, true), 2 * (48 << 10));
	send_frame(f, GP_ACK, 9, NULL, 0);
	assert_int_equal(f->g.commands.n, 0);
}

/* A host that does not read: memory stays, other frames are answered. */
static void host_does_not_read(void **state)
{
	static uint8_t text[64 << 10];
	struct fixture *f = *state;
	struct command *c = running(f, 9);
	int small = 4096;

	take_frame(f);
	stream_reset(&c->out[0], OUTPUT_HEAD_BYTES_MAX, 1000);
	setsockopt(f->g.link.watch.fd, SOL_SOCKET, SO_SNDBUF, &small,
		   sizeof(small));
	for (int i = 0; i < 200; i++) {
		stream_push(&c->out[0], text, sizeof(text));
		report_output_later(c);
		link_flush(&f->g.link);
	}
	assert_int_equal(c->out[0].total, 200 * sizeof(text));
	assert_true(f->g.link.out.len <
		    LINK_QUEUE_BYTES_HIGH + 2 * GP_UP_BYTES_MAX);
	assert_true(c->out[0].sent < 2 * LINK_QUEUE_BYTES_HIGH);
	send_frame(f, GP_PING, 0, NULL, 0);
	for (;;) {
		struct frame fr = take_frame(f);

		link_flush(&f->g.link);
		if (fr.head.type == GP_PONG)
			break;
		assert_true(fr.head.type == GP_OUTPUT || !fr.head.type);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(hello_then_ping, setup,
						teardown),
		cmocka_unit_test_setup_teardown(no_command_before_bound, setup,
						teardown),
		cmocka_unit_test_setup_teardown(refused_commands, setup,
						teardown),
		cmocka_unit_test_setup_teardown(runner_messages, setup,
						teardown),
		cmocka_unit_test_setup_teardown(hostile_messages, setup,
						teardown),
		cmocka_unit_test_setup_teardown(all_is_told_again, setup,
						teardown),
		cmocka_unit_test_setup_teardown(host_does_not_read, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
