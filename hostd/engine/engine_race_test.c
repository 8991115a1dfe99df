/*
 * K11: delete, cancel, get and logs at every moment of a run's life, also
 * several at once, with the VM's own events in between.  Each call is answered
 * once, what was told stays true, and nothing is used after it was freed (the
 * sanitized build shows that).
 */
#include "engine_test_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define RUNS  120
#define CALLS 12

struct log_call {
	int n_answers;
};

static void on_log(void *ctx, const struct err *e, const struct log_slice *s)
{
	struct log_call *l = ctx;

	assert_true((e != NULL) != (s != NULL));
	l->n_answers++;
}

/* One run: its calls, and the last state that a client saw. */
struct story {
	struct call run, calls[CALLS];
	struct log_call log;
	int n_calls, vm;
	bool asked_log;
};

static struct story stories[RUNS];

static void client_acts(struct story *t, unsigned *seed)
{
	struct call *c = &t->calls[t->n_calls];

	if (!t->run.n_answers || t->n_calls == CALLS)
		return;
	switch (rand_r(seed) % 8) {
	case 0:
	case 1: /* twice at once, as impatient clients do */
		for (int i = 0; i < 2 && t->n_calls < CALLS; i++) {
			t->n_calls++;
			assert_int_equal(engine_sandbox_delete(
						 env.e, &env.who, t->run.sbx.id,
						 on_call_sandbox, c++),
					 0);
		}
		break;
	case 2:
		t->n_calls++;
		assert_int_equal(engine_command_cancel(env.e, &env.who,
						       t->run.cmd.id,
						       on_call_run, c),
				 0);
		break;
	case 3:
	case 4:
		t->n_calls++;
		assert_int_equal(engine_sandbox_get(env.e, &env.who,
						    t->run.sbx.id,
						    on_call_sandbox, c),
				 0);
		break;
	case 5:
		t->n_calls++;
		call_get(c, t->run.cmd.id, rand_r(seed) % 2 ? 30000 : 0);
		break;
	default:
		if (t->asked_log)
			break;
		t->asked_log = true;
		assert_int_equal(engine_log_read(env.e, &env.who, t->run.cmd.id,
						 0, 0, 1000, on_log, &t->log),
				 0);
	}
}

static void vm_acts(struct story *t, unsigned *seed)
{
	if (t->vm >= fake.n_vms || fake.vms[t->vm].is_gone)
		return;
	/* Also after it was told to end: its frames may be on their way. */
	switch (rand_r(seed) % 6) {
	case 0:
		fake_bound(t->vm);
		break;
	case 1:
		fake_output(t->vm, 0, "some output\n");
		break;
	case 2:
		fake_end(t->vm, GP_END_EXITED, rand_r(seed) % 2, NULL);
		break;
	case 3:
		fake_end(t->vm, GP_END_CANCELLED, 0, NULL);
		break;
	case 4:
		if (rand_r(seed) % 3 == 0)
			fake_gone(t->vm, END_VM_LOST, "killed");
		break;
	default:
		break;
	}
}

static void finish(struct story *t)
{
	struct call last = {0};

	call_wait(&t->run);
	for (int i = 0; i < t->n_calls; i++) {
		call_wait(&t->calls[i]);
		assert_int_equal(t->calls[i].err.code, ERR_NONE);
		call_finish(&t->calls[i]);
	}
	assert_int_equal(t->log.n_answers, t->asked_log);
	call_get(&last, t->run.cmd.id, 0);
	call_wait(&last);
	assert_true(command_status_is_final(last.cmd.status));
	assert_true(sandbox_status_is_final(last.sbx.status));
	/* What somebody was told as final is what is so. */
	for (int i = 0; i < t->n_calls; i++) {
		if (sandbox_status_is_final(t->calls[i].sbx.status))
			assert_int_equal(t->calls[i].sbx.status,
					 last.sbx.status);
	}
	call_finish(&last);
	call_finish(&t->run);
}

static void test_k11(void **state)
{
	const char *given = getenv("HUTCH_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 11;

	(void)state;
	print_message("# seed=%u (HUTCH_SEED)\n", seed);
	env_stop();
	env.cfg.graph_places = env.cfg.environment_places = 1000;
	env.cfg.ram_budget_bytes = UINT64_MAX;
	env_start();
	for (int i = 0; i < RUNS; i++) {
		struct story *t = &stories[i];
		char key[16];

		snprintf(key, sizeof(key), "k%d", i);
		fake.is_slow_to_go = rand_r(&seed) % 2;
		t->vm = fake.n_vms;
		call_run(&t->run, key, NULL, 0);
		call_wait(&t->run);
		assert_int_equal(fake.n_vms, t->vm + 1);
		for (int step = 0; step < 24; step++) {
			struct story *any =
				&stories[rand_r(&seed) % (unsigned)(i + 1)];

			client_acts(rand_r(&seed) % 2 ? t : any, &seed);
			vm_acts(rand_r(&seed) % 2 ? t : any, &seed);
			if (rand_r(&seed) % 8 == 0)
				env_settle();
		}
	}
	fake.is_slow_to_go = false;
	for (int v = 0; v < fake.n_vms; v++)
		if (!fake.vms[v].is_gone)
			fake_gone(v, END_VM_LOST, "killed");
	env_settle();
	for (int i = 0; i < RUNS; i++)
		finish(&stories[i]);
	env_settle();
	assert_int_equal(fake.n_vms, RUNS);
	assert_true(list_is_empty(&env.e->boxes));
	assert_true(list_is_empty(&env.e->waiters));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_k11, env_setup,
						env_teardown),
	};

	return cmocka_run_group_tests_name("engine_race", tests, NULL, NULL);
}
