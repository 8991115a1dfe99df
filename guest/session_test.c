/*
 * Frames in, frames out, over a socket pair: phases, commands that cannot
 * start, messages of a runner, output and its repetition after a lost
 * connection.  No process is started here (tests/guest does).
 */
#include "session.c"
#include "session_fixture.h"

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
		{RUNNER_DIED + 1, 0, 0},
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

static struct bytes identity_frame(void)
{
	static const uint8_t entropy[GP_ENTROPY_BYTES] = {1};
	struct bytes b = {0};
	struct writer w = {.out = &b};

	wire_put_map(&w, 1);
	wire_put_bytes(&w, GP_BIND_ENTROPY, entropy, sizeof(entropy));
	assert_int_equal(w.rc, 0);
	return b;
}

/* HOLD: nothing follows PONG, whatever happens; GO: all of it comes. */
static void held_and_going_on(void **state)
{
	struct fixture *f = *state;
	struct command *c = running(f, 9), *other = running(f, 10);

	take_frame(f);
	f->g.phase = PHASE_BOUND;
	stream_reset(&c->out[0], 100, 100);
	send_frame(f, GP_HOLD, 0, NULL, 0);
	assert_int_equal(take_frame(f).head.type, GP_PONG);
	assert_int_equal(take_frame(f).head.type, 0);
	stream_push(&c->out[0], (const uint8_t *)"abc", 3);
	report_output(c);
	report_started(other);
	c->has_exited = true;
	command_event(c, EV_EXIT);
	link_flush(&f->g.link);
	send_frame(f, GP_PING, 0, NULL, 0);
	assert_int_equal(take_frame(f).head.type, 0);
	send_frame(f, GP_HOLD, 0, NULL, 0); /* it is held already */
	assert_int_equal(take_frame(f).head.type, 0);
	send_frame(f, GP_GO, 0, NULL, 0);
	assert_int_equal(take_frame(f).head.cmd, 10);
	assert_int_equal(take_output(f, false), 3);
	assert_int_equal(take_frame(f).head.type, GP_PONG);
	assert_int_equal(take_frame(f).head.type, GP_PONG);
	send_frame(f, GP_GO, 0, NULL, 0);
	assert_int_equal(take_frame(f).head.type, 0);
	send_frame(f, GP_ACK, 9, NULL, 0);
	assert_null(command_by_number(&f->g, 9));
}

/* Held and bound anew: a copy.  Nobody hears of what the first one ran. */
static void held_and_bound_anew(void **state)
{
	struct fixture *f = *state;
	struct command *runs = running(f, 9), *ends = running(f, 10);
	struct command *waits = command_new(&f->g, CMD_EXEC, 11);
	struct bytes bind = identity_frame();
	struct frame fr = take_frame(f);

	f->g.phase = PHASE_BOUND;
	f->g.commands.last_number = 11;
	runs->timeout_ms = 1000;
	timer_set_in(&f->g.loop, &runs->deadline, 1000);
	ends->has_exited = true;
	command_event(ends, EV_EXIT);
	send_frame(f, GP_HOLD, 0, NULL, 0);
	do
		fr = take_frame(f);
	while (fr.head.type != GP_PONG);
	report_started(runs);
	assert_non_null(waits);
	/* It says why it cannot be bound here; the rest holds all the same. */
	send_frame(f, GP_BIND, 0, bind.data, bind.len);
	bytes_finish(&bind);
	fr = take_frame(f);
	assert_int_equal(fr.head.type, GP_BOUND);
	assert_int_equal(take_frame(f).head.type, 0);
	assert_int_equal(f->g.commands.n, 1);
	assert_null(command_by_number(&f->g, 9));
	assert_false(runs->deadline.is_set);
	assert_int_equal(runs->state, CMD_RUNNING);
	/* Its number is not one of ours: refused as too low. */
	send_frame(f, GP_EXEC, 9, NULL, 0);
	fr = take_frame(f);
	assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	runs->has_exited = true;
	command_event(runs, EV_EXIT);
	commands_sweep(&f->g);
	link_flush(&f->g.link);
	assert_int_equal(take_frame(f).head.type, 0);
	assert_int_equal(f->g.commands.n, 0);
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
		cmocka_unit_test_setup_teardown(held_and_going_on, setup,
						teardown),
		cmocka_unit_test_setup_teardown(held_and_bound_anew, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
