/* Every (state, event) pair of both tables. */
#include "state.c"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* What must come of each pair, written apart from the table; 0 = refused. */
static const enum sandbox_status sandbox_want[SBX_LOST + 1][SBX_EV_N] = {
	/* bound, cannot start, destroy, gone, stop, stopped, go on, resume,
	 * cannot resume */
	[SBX_STARTING] = {SBX_RUNNING, SBX_FAILED, SBX_DESTROYING, SBX_LOST, 0,
			  0, 0, 0, SBX_STOPPED},
	[SBX_RUNNING] = {0, 0, SBX_DESTROYING, SBX_LOST, SBX_STOPPING},
	[SBX_STOPPING] = {0, 0, SBX_DESTROYING, SBX_LOST, 0, SBX_STOPPED,
			  SBX_RUNNING},
	[SBX_STOPPED] = {0, 0, SBX_DESTROYING, SBX_LOST, 0, 0, 0, SBX_STARTING},
	[SBX_DESTROYING] = {0, 0, 0, SBX_DESTROYED},
};

static const enum command_status command_want[CMD_LOST + 1][CMD_EV_N] = {
	/* start, succeed, fail, time out, cancel, lose */
	[CMD_QUEUED] = {CMD_RUNNING, 0, CMD_FAILED, 0, CMD_CANCELLED, CMD_LOST},
	[CMD_RUNNING] = {0, CMD_SUCCEEDED, CMD_FAILED, CMD_TIMED_OUT,
			 CMD_CANCELLED, CMD_LOST},
};

/* LBB-41, LBB-42: what leads where; nothing out of an end. */
static void every_sandbox_pair(void **state)
{
	(void)state;
	for (unsigned s = SBX_STARTING; s <= SBX_LOST; s++)
		for (unsigned ev = 0; ev < SBX_EV_N; ev++) {
			struct sandbox_rec r = {.status = s}, before = r;
			int rc = sandbox_set(&r, ev, END_VM_LOST, "why", 77);

			if (!sandbox_want[s][ev]) {
				assert_int_equal(rc, -EINVAL);
				assert_memory_equal(&r, &before, sizeof(r));
				continue;
			}
			assert_int_equal(rc, 0);
			assert_int_equal(r.status, sandbox_want[s][ev]);
			assert_int_equal(r.ended_ms != 0,
					 sandbox_status_is_final(r.status));
			assert_int_equal(r.started_ms != 0, ev == SBX_EV_BOUND);
			assert_int_equal(r.stopped_ms != 0,
					 ev == SBX_EV_STOPPED);
			assert_string_equal(r.reason_text, "why");
			/* Nothing leads out of an end. */
			assert_false(sandbox_status_is_final(s));
		}
}

/* LBB-125 */
static void every_command_pair(void **state)
{
	(void)state;
	for (unsigned s = CMD_QUEUED; s <= CMD_LOST; s++)
		for (unsigned ev = 0; ev < CMD_EV_N; ev++) {
			struct command_rec r = {.status = s}, before = r;
			int rc = command_set(&r, ev, END_OOM, "why", 77);

			if (!command_want[s][ev]) {
				assert_int_equal(rc, -EINVAL);
				assert_memory_equal(&r, &before, sizeof(r));
				continue;
			}
			assert_int_equal(rc, 0);
			assert_int_equal(r.status, command_want[s][ev]);
			assert_int_equal(r.ended_ms != 0,
					 command_status_is_final(r.status));
			assert_false(command_status_is_final(s));
		}
}

static void reasons_are_kept_and_printable(void **state)
{
	struct sandbox_rec r = {.status = SBX_RUNNING};
	char evil[1000];

	(void)state;
	memset(evil, '\n', sizeof(evil) - 1);
	evil[sizeof(evil) - 1] = 0;
	assert_int_equal(
		sandbox_set(&r, SBX_EV_DESTROY, END_CANCELLED, evil, 1), 0);
	assert_true(strlen(r.reason_text) < REASON_BYTES_MAX);
	assert_null(strchr(r.reason_text, '\n'));
	/* The first reason stays. */
	assert_int_equal(sandbox_set(&r, SBX_EV_GONE, END_VM_LOST, "late", 2),
			 0);
	assert_int_equal(r.reason, END_CANCELLED);
	assert_int_equal(r.ended_ms, 2);
}

/* K18: the clock is set back an hour in the middle of a run. */
static void times_do_not_go_back(void **state)
{
	struct sandbox_rec s = {.status = SBX_STARTING, .created_ms = 7200000};
	struct command_rec c = {.status = CMD_QUEUED, .created_ms = 7200000};

	(void)state;
	sandbox_set(&s, SBX_EV_BOUND, END_NONE, NULL, 7200500);
	command_set(&c, CMD_EV_START, END_NONE, NULL, 7200500);
	command_set(&c, CMD_EV_SUCCEED, END_NONE, NULL, 3600600);
	sandbox_set(&s, SBX_EV_GONE, END_NONE, NULL, 3600700);
	assert_int_equal(c.ended_ms - c.started_ms, 0);
	assert_true(s.ended_ms >= s.started_ms);
	c = (struct command_rec){.status = CMD_QUEUED, .created_ms = 7200000};
	command_set(&c, CMD_EV_START, END_NONE, NULL, 3600000);
	assert_true(c.started_ms >= c.created_ms);
	command_set(&c, CMD_EV_LOSE, END_NONE, NULL, 3600100);
	assert_true(c.ended_ms >= c.started_ms);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_sandbox_pair),
		cmocka_unit_test(every_command_pair),
		cmocka_unit_test(reasons_are_kept_and_printable),
		cmocka_unit_test(times_do_not_go_back),
	};

	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
