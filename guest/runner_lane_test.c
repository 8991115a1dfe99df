/*
 * ARM and ADOPT: what a runner on its lane may do before, between and after.
 * The test is host, runner and monitor at once; no process is started.
 */
#include "runner_lane.c"
#include "session_fixture.h"

/* A waiting runner with a page and a channel; the runner's end is returned. */
static int waiting_runner(struct fixture *f, struct command **ret)
{
	struct command *c = command_new(&f->g, CMD_RUNNER, 0);
	int pair[2];

	assert_non_null(c);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	c->channel.watch.fd = pair[0];
	assert_int_equal(pipes_open(c, f->user), 0);
	c->state = CMD_WARM;
	f->g.phase = PHASE_BOUND;
	f->g.prepare.runner = RUNNER_PYTHON;
	f->g.lane.fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
	f->g.lane.head = (struct lane_head *)(void *)f->page;
	take_frame(f);
	*ret = c;
	return pair[1];
}

static void lane_off(struct fixture *f, int runner)
{
	close(runner);
	f->g.lane.head = NULL;
	fd_close(&f->g.lane.fd);
}

static void arm(struct fixture *f, int runner)
{
	struct runner_request h;

	send_frame(f, GP_ARM, 0, NULL, 0);
	assert_int_equal(fd_read_all(runner, &h, sizeof(h)), 0);
	assert_int_equal(h.kind, RUNNER_REQUEST_ARM);
	assert_int_equal(h.code_len + h.input_len + h.config_len + h.env_len,
			 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(write(f->user[i], i ? "err" : "out", 3), 3);
		fd_close(&f->user[i]);
	}
}

static const uint8_t adopt_payload[] = {0xa1, GP_RUN_TIMEOUT_MS, 0x18, 50};

static void armed_then_adopted(void **state)
{
	struct fixture *f = *state;
	struct command *c;
	int runner = waiting_runner(f, &c);

	arm(f, runner);
	assert_int_equal(c->state, CMD_ARMED);
	assert_int_equal(c->watch[0].events, 0);
	/* Output stays in the pipes until then. */
	assert_int_equal(c->out[0].total, 0);
	f->g.lane.head->state = LANE_ADOPTED;
	send_frame(f, GP_ADOPT, 3, adopt_payload, sizeof(adopt_payload));
	assert_int_equal(c->state, CMD_RUNNING);
	assert_int_equal(c->number, 3);
	assert_int_equal(c->timeout_ms, 50);
	assert_true(c->deadline.is_set);
	assert_int_equal(take_frame(f).head.type, GP_STARTED);
	put_message(c, RUNNER_RESULT, 0, "7", 1);
	assert_int_equal(runner_message_take(c), 1);
	c->done = NULL;
	command_event(c, EV_ANSWER);
	assert_int_equal(take_output(f, false), 6);
	lane_off(f, runner);
}

/* What comes before ADOPT is told after it: an answer, the process's end. */
static void ends_before_adoption(void **state)
{
	struct fixture *f = *state;

	for (int is_exit = 0; is_exit < 2; is_exit++) {
		struct command *c;
		int runner = waiting_runner(f, &c);
		struct frame fr;

		arm(f, runner);
		f->g.lane.head->state = LANE_REQUEST;
		c->done = NULL;
		put_message(c, RUNNER_RESULT, 0, "7", 1);
		if (is_exit) {
			bytes_finish(&c->channel.in);
			c->has_exited = true;
			c->status = 5 << 8;
			command_event(c, EV_EXIT);
		} else {
			assert_int_equal(runner_message_take(c), 1);
		}
		assert_int_equal(c->state, CMD_ARMED);
		assert_int_equal(take_frame(f).head.type, 0);
		send_frame(f, GP_ADOPT, (uint64_t)is_exit + 1, NULL, 0);
		fr = take_frame(f);
		assert_int_equal(fr.head.type, GP_STARTED);
		for (fr = take_frame(f); fr.head.type != GP_ENDED;
		     fr = take_frame(f)) {
			assert_true(fr.head.type == GP_OUTPUT || !fr.head.type);
			if (!fr.head.type)
				loop_turn(&f->g.loop);
			link_flush(&f->g.link);
		}
		assert_int_equal(ended_how(&fr), GP_END_EXITED);
		assert_int_equal(fr.payload[4], is_exit ? 5 : 0);
		lane_off(f, runner);
	}
}

static void armed_and_not_used(void **state)
{
	static const uint8_t run[] = {0xa1, 0x01, 0x41, 'x'};
	struct fixture *f = *state;
	struct runner_request h;
	struct command *c;
	int runner = waiting_runner(f, &c);

	/* It closed its lane. */
	arm(f, runner);
	put_message(c, RUNNER_WAITING, 0, "", 0);
	assert_int_equal(runner_message_take(c), 1);
	assert_int_equal(c->state, CMD_WARM);
	assert_int_not_equal(c->watch[0].events, 0);
	/* A run by the channel before it has said so. */
	send_frame(f, GP_ARM, 0, NULL, 0);
	assert_int_equal(fd_read_all(runner, &h, sizeof(h)), 0);
	f->g.lane.head->state = LANE_READY;
	send_frame(f, GP_RUN, 4, run, sizeof(run));
	assert_int_equal(c->state, CMD_RUNNING);
	assert_int_equal(c->number, 4);
	assert_int_equal(fd_read_all(runner, &h, sizeof(h)), 0);
	assert_int_equal(h.kind, RUNNER_REQUEST_RUN);
	lane_off(f, runner);
}

/* One that answered by the lane, or ended, gets no run. */
static void armed_and_used_up(void **state)
{
	static const uint8_t run[] = {0xa1, 0x01, 0x41, 'x'};
	struct fixture *f = *state;
	struct command *c;

	for (uint64_t i = 1; i <= 3; i++) {
		int runner = waiting_runner(f, &c);

		/* No new one can be started here. */
		f->g.nest.is_busy = true;
		arm(f, runner);
		c->done = NULL;
		f->g.lane.head->state = LANE_ANSWERED;
		if (i > 1) {
			c->has_exited = true;
			f->g.lane.head->state =
				i == 2 ? LANE_ANSWERED : LANE_REQUEST;
			command_event(c, EV_EXIT);
			assert_int_equal(c->state,
					 i == 2 ? CMD_ENDED : CMD_ARMED);
		}
		send_frame(f, GP_RUN, i, run, sizeof(run));
		assert_null(command_by_tag(&f->g, 2 * i - 1));
		c = command_by_number(&f->g, i);
		assert_int_equal(c->state, CMD_QUEUED);
		assert_int_equal(take_frame(f).head.type, 0);
		timer_clear(&f->g.refill);
		lane_off(f, runner);
	}
}

static void adopt_refused(void **state)
{
	static const uint8_t bad[] = {0xa1, 0x01, 0x00};
	struct fixture *f = *state;
	struct command *c;
	int runner = waiting_runner(f, &c);
	struct frame fr;

	/* Nobody is armed; then a payload of another build. */
	send_frame(f, GP_ADOPT, 1, NULL, 0);
	fr = take_frame(f);
	assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	assert_int_equal(c->state, CMD_WARM);
	arm(f, runner);
	send_frame(f, GP_ADOPT, 2, bad, sizeof(bad));
	fr = take_frame(f);
	assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	assert_int_equal(c->state, CMD_ARMED);
	/* By its own word it waits: ADOPT finds it all the same. */
	put_message(c, RUNNER_WAITING, 0, "", 0);
	assert_int_equal(runner_message_take(c), 1);
	send_frame(f, GP_ADOPT, 3, NULL, 0);
	assert_int_equal(c->state, CMD_RUNNING);
	lane_off(f, runner);
	/* Without a lane ARM does nothing. */
	runner = waiting_runner(f, &c);
	fd_close(&f->g.lane.fd);
	send_frame(f, GP_ARM, 0, NULL, 0);
	assert_int_equal(c->state, CMD_WARM);
	lane_off(f, runner);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(armed_then_adopted, setup,
						teardown),
		cmocka_unit_test_setup_teardown(ends_before_adoption, setup,
						teardown),
		cmocka_unit_test_setup_teardown(armed_and_not_used, setup,
						teardown),
		cmocka_unit_test_setup_teardown(armed_and_used_up, setup,
						teardown),
		cmocka_unit_test_setup_teardown(adopt_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
