/*
 * How much waits, and when more is made of it; what is made is the business of
 * zygote_test.c and spare_test.c.
 */
#include "refill.c"
#include "session_fixture.h"

#define MIB (1ull << 20)

static void decide(struct guest *g, enum runner_kind kind, bool has_preload,
		   uint64_t room_mib)
{
	g->prepare.runner = kind;
	g->prepare.has_preload = has_preload;
	refill_decide(g, room_mib * MIB);
}

static void small_sandboxes_keep_their_memory(void **state)
{
	struct guest *g = &((struct fixture *)*state)->g;
	uint64_t last = UINT64_MAX;
	bool had_preload = true;

	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		const struct set *s = &sets[i];

		/* Rows are in order: the first that fits is the richest. */
		if (s->has_preload == had_preload)
			assert_true(s->room_min < last);
		had_preload = s->has_preload;
		last = s->room_min;
		decide(g, RUNNER_PYTHON, s->has_preload, s->room_min / MIB);
		assert_int_equal(zygote_runners(g), s->runners);
		assert_int_equal(zygote_is_wanted(g), s->runners > 1);
		assert_int_equal(g->spares.wanted, s->spares);
		decide(g, RUNNER_PYTHON, s->has_preload, s->room_min / MIB - 1);
		assert_true(zygote_runners(g) + g->spares.wanted <
			    s->runners + s->spares);
	}
	for (int i = 0; i < 2; i++) {
		decide(g, RUNNER_PYTHON, i, 1);
		assert_int_equal(zygote_runners(g), 1);
		assert_false(spare_is_wanted(g));
	}
	decide(g, RUNNER_NODE, false, UINT64_MAX / MIB);
	assert_int_equal(zygote_runners(g), 1);
	assert_false(spare_is_wanted(g));
}

/* All groups are for commands but those that what waits may take. */
static void there_are_groups_for_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		assert_true(sets[i].runners + (sets[i].runners > 1) +
				    sets[i].spares <=
			    SLOTS_MAX - SLOTS_COMMANDS);
}

static void what_waits_is_counted(void **state)
{
	struct guest *g = &((struct fixture *)*state)->g;
	struct command *runner = command_new(g, CMD_RUNNER, 0);
	struct command *spare = command_new(g, CMD_EXEC, 0);

	spare->is_spare = true;
	spare->is_in_prep = runner->is_in_prep = true;
	runner->state = spare->state = CMD_RUNNING;
	assert_int_equal(refill_n_waiting(g), 0);
	assert_true(is_runner_coming(g) && spare_is_coming(g));
	spare->state = CMD_WARM;
	runner->state = CMD_ARMED;
	assert_int_equal(refill_n_waiting(g), 0);
	spare->is_in_prep = runner->is_in_prep = false;
	assert_int_equal(refill_n_waiting(g), 2);
	assert_false(is_runner_coming(g) || spare_is_coming(g));
	assert_int_equal(runner_count(g), 1);
	assert_int_equal(spare_count(g), 1);
	runner->number = 3;
	assert_int_equal(refill_n_waiting(g), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(small_sandboxes_keep_their_memory),
		TEST(there_are_groups_for_it),
		TEST(what_waits_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
