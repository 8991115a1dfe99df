/*
 * Restored VMs that wait at the bell of their snapshot, with a process that
 * plays a hostile VMM: "N" has a lane, "y" says READY, "4" takes BIND and RUN
 * by the lane, "5" answers both; "1" is BIND alone; "z" goes on when told to.
 */
#include "vm_test_util.h"
#include <stdio.h>

static struct link_stats stats(void)
{
	struct link_stats s;

	link_stats(lnk, &s);
	return s;
}

static void assert_good(const struct seen *s, const char *script)
{
	if (strcmp(s->result, "6") != 0)
		fail_msg("script %s: '%s'", script, s->text);
	assert_int_equal(s->bound, 1);
	assert_int_equal(s->started, 1);
	assert_int_equal(s->output, 1);
	assert_int_equal(s->ended, 1);
	assert_int_equal(s->why, END_NONE);
}

static void test_good(void **state)
{
	static const struct {
		const char *script;
		unsigned by_lane, adopted;
		bool is_off;
		size_t code_len;
	} t[] = {
		{"Ny45", 1, 0, false, 1},
		{"Ny45", 1, 0, false, 3 << 20}, /* in parts */
		{"NWyW4W5", 1, 0, false, 1},
		/* It takes long: BOUND comes by the channel. */
		{"Ny4vA0soE", 1, 1, false, 1},
		{"Ny4V5", 1, 0, false, 1},
		{"NyzbrsoE", 0, 0, true, 1},
		{"brsoE", 0, 0, false, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct link_stats before = stats();
		struct seen s = {.destroy_on_end = 1};

		lnk->has_lane = !t[i].is_off;
		run_code_len = t[i].code_len;
		play(t[i].script, &s);
		assert_good(&s, t[i].script);
		assert_int_equal(stats().lane_runs - before.lane_runs,
				 t[i].by_lane);
		assert_int_equal(stats().lane_adopted - before.lane_adopted,
				 t[i].adopted);
	}
	run_code_len = 1;
}

/* Nothing is restored in its place: it is what would be restored. */
static void test_lost(void **state)
{
	static const struct {
		const char *script, *text;
		unsigned bound, started;
		enum end_reason why;
	} t[] = {
		{"Nh", "did not answer within", 0, 0, END_VM_LOST},
		{"NYh", "spoke of lane 4 of 1", 0, 0, END_VM_LOST},
		{"NB", "may not come now", 0, 0, END_GUEST_PROTOCOL},
		{"NWs", "may not come now", 0, 0, END_GUEST_PROTOCOL},
		{"Nm", "out of turn: an answer", 0, 0, END_VM_LOST},
		{"Nx", "killed by signal 9", 0, 0, END_VM_LOST},
		{"NS", "has another size", 0, 0, END_NOT_STARTED},
		{"NyWx", "killed by signal 9", 0, 0, END_VM_LOST},
		{"NyI", "did not take the run", 0, 0, END_VM_LOST},
		{"NyC5", "out of turn: an answer", 0, 0, END_VM_LOST},
		{"Ny4h", "did not start command 1", 1, 0, END_VM_LOST},
		{"Ny4yh", "out of turn: a runner waits", 1, 0, END_VM_LOST},
		{"Ny4g", "triple fault", 1, 0, END_VM_LOST},
		{"Ny4WB", "may not come now", 1, 0, END_GUEST_PROTOCOL},
		/* An answer without BOUND, with a bad one, without an end. */
		{"Ny4m", "may not come now", 1, 0, END_GUEST_PROTOCOL},
		{"Ny48", "take its identity: bad", 1, 0, END_VM_LOST},
		{"Ny49", "has no end", 1, 0, END_GUEST_PROTOCOL},
		{"Ny4vAh", "did not start command 1", 1, 0, END_VM_LOST},
		{"Ny4vAs", "may not come now", 1, 0, END_GUEST_PROTOCOL},
		{"Ny4vAB", "take its identity: bad", 1, 0, END_VM_LOST},
		{"Ny4vA0h", "did not start command 1", 1, 0, END_VM_LOST},
		{"NyhW", "did not answer within", 0, 0, END_VM_LOST},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct seen s = {0};

		play(t[i].script, &s);
		if (!strstr(s.text, t[i].text))
			fail_msg("script %s: '%s'", t[i].script, s.text);
		assert_int_equal(s.why, t[i].why);
		assert_int_equal(s.bound, t[i].bound);
		assert_int_equal(s.started, t[i].started);
		assert_int_equal(s.ended, 0);
		assert_int_equal(s.gone, 1);
	}
}

/* LBB-127, as for runs of claimed VMs. */
static void test_env_is_wiped(void **state)
{
	static const char *const scripts[] = {"Ny45", "Ny4x", "Nyx", "NyI",
					      "NyzbrsoE"};
	static char text[SECRET_TEXT_BYTES];
	const char *env[] = {"A=x", text, NULL};
	uint8_t masked[SECRET_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
		struct seen s = {.destroy_on_end = 1};

		lnk->has_lane = i < 4;
		secret_put(text, i % 2 ? SECRET_PAD_BYTES_MAX : 0, masked);
		run_env = env;
		play(scripts[i], &s);
		assert_int_equal(s.gone, 1);
		run_env = NULL;
		explicit_bzero(text, SECRET_TEXT_BYTES);
		assert_int_equal(memory_count(masked), 0);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, link_remove)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),
		TEST(test_lost),
		TEST(test_env_is_wiped),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests_name("vm_bell", tests, NULL, NULL);
}
