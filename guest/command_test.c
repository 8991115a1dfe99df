/* The table of command.c: every pair of state and event. */
#include "command.c"
#include <setjmp.h>
#include <stdarg.h>
// clang-format off
#include <cmocka.h>
// clang-format on

/* What must follow from what; pairs that are not named are ignored. */
static const struct {
	enum cmd_state from;
	enum cmd_event event;
	enum cmd_state to;
} expected[] = {
	{CMD_QUEUED, EV_START, CMD_STARTING},
	{CMD_QUEUED, EV_FAILED, CMD_ENDED},
	{CMD_QUEUED, EV_KILL, CMD_ENDED},
	{CMD_STARTING, EV_STARTED, CMD_RUNNING},
	{CMD_STARTING, EV_FAILED, CMD_ENDED},
	{CMD_STARTING, EV_KILL, CMD_STARTING},
	{CMD_RUNNING, EV_WARM, CMD_WARM},
	{CMD_WARM, EV_MOVED, CMD_WARM},
	{CMD_WARM, EV_RUN, CMD_RUNNING},
	{CMD_WARM, EV_START, CMD_STARTING},
	{CMD_WARM, EV_EXIT, CMD_DRAINING},
	{CMD_WARM, EV_KILL, CMD_STOPPING},
	{CMD_WARM, EV_ARM, CMD_ARMED},
	{CMD_WARM, EV_ADOPT, CMD_RUNNING},
	{CMD_ARMED, EV_WARM, CMD_WARM},
	{CMD_ARMED, EV_RUN, CMD_RUNNING},
	{CMD_ARMED, EV_ADOPT, CMD_RUNNING},
	{CMD_ARMED, EV_EXIT, CMD_ARMED},
	{CMD_ARMED, EV_SERVED, CMD_ENDED},
	{CMD_ARMED, EV_KILL, CMD_STOPPING},
	{CMD_RUNNING, EV_ANSWER, CMD_ENDED},
	{CMD_RUNNING, EV_EXIT, CMD_DRAINING},
	{CMD_RUNNING, EV_KILL, CMD_STOPPING},
	{CMD_RUNNING, EV_TIMEOUT, CMD_STOPPING},
	{CMD_STOPPING, EV_EXIT, CMD_DRAINING},
	{CMD_STOPPING, EV_KILL, CMD_STOPPING},
	{CMD_STOPPING, EV_TIMEOUT, CMD_STOPPING},
	{CMD_STOPPING, EV_GRACE, CMD_ENDED},
	{CMD_DRAINING, EV_CLOSED, CMD_ENDED},
	{CMD_DRAINING, EV_GRACE, CMD_ENDED},
	{CMD_DRAINING, EV_KILL, CMD_DRAINING},
};

static int expected_of(enum cmd_state s, enum cmd_event ev)
{
	for (size_t i = 0; i < ARRAY_LEN(expected); i++)
		if (expected[i].from == s && expected[i].event == ev)
			return (int)expected[i].to;
	return -1;
}

static void every_pair(void **state)
{
	size_t n = 0;

	(void)state;
	for (int s = 0; s < CMD_STATES_N; s++) {
		for (int ev = 0; ev < EV_N; ev++) {
			const struct rule *r = rule_find((enum cmd_state)s,
							 (enum cmd_event)ev);
			int want = expected_of((enum cmd_state)s,
					       (enum cmd_event)ev);

			if (want < 0)
				assert_null(r);
			else
				assert_int_equal(r->to, want);
			if (r) {
				assert_non_null(r->act);
				n++;
			}
		}
		assert_true(strlen(cmd_state_name((enum cmd_state)s)) > 3);
	}
	/* A second row for a pair would never be reached. */
	assert_int_equal(n, ARRAY_LEN(rules));
}

/* From every state but ENDED an end can be reached, from ENDED nothing. */
static void every_state_ends(void **state)
{
	(void)state;
	for (int s = 0; s < CMD_STATES_N; s++) {
		bool seen[CMD_STATES_N] = {false};

		seen[s] = true;
		for (int pass = 0; pass < CMD_STATES_N; pass++)
			for (size_t i = 0; i < ARRAY_LEN(rules); i++)
				if (seen[rules[i].from])
					seen[rules[i].to] = true;
		assert_true(seen[CMD_ENDED]);
	}
	for (int ev = 0; ev < EV_N; ev++)
		assert_null(rule_find(CMD_ENDED, (enum cmd_event)ev));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pair),
		cmocka_unit_test(every_state_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
