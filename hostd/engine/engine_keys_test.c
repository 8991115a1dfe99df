/* Idempotency (LBB-20 to 30), places, memory, disk, and who waits. */
#include "engine_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- one key
 * ------------------------------------------------------------------------ */

/* K9, LBB-23. */
static void eight_at_once_start_one(void **state)
{
	struct call c[8];

	(void)state;
	for (int i = 0; i < 8; i++)
		call_run(&c[i], "k", NULL, i < 4 ? 30000 : 0);
	env_settle();
	assert_int_equal(fake.n_vms, 1);
	for (int i = 4; i < 8; i++) {
		assert_int_equal(c[i].n_answers, 1); /* its own wait */
		assert_int_equal(c[i].cmd.status, CMD_QUEUED);
	}
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "6");
	for (int i = 0; i < 4; i++) {
		call_wait(&c[i]);
		assert_int_equal(c[i].cmd.status, CMD_SUCCEEDED);
	}
	for (int i = 7; i >= 0; i--) {
		assert_string_equal(c[i].sbx.id, c[0].sbx.id);
		assert_string_equal(c[i].cmd.id, c[0].cmd.id);
		call_finish(&c[i]);
	}
	env_settle();
	fixture_close(&env.f); /* before the engine: nothing is on its way */
	assert_int_equal(raw_number(&env.f, "SELECT count(*) FROM sandbox"), 1);
	fixture_open(&env.f);
	env.e->store = env.f.store;
}

/* K9, LBB-25. */
static void a_key_is_kept_over_restarts(void **state)
{
	struct call first, again;

	(void)state;
	run_through(&first, "k");
	for (int i = 0; i < 3; i++) {
		env_settle();
		call_run(&again, "k", NULL, 30000);
		call_wait(&again);
		assert_string_equal(again.cmd.id, first.cmd.id);
		assert_int_equal(again.cmd.status, CMD_SUCCEEDED);
		assert_memory_equal(again.cmd.result.data, "6", 1);
		call_finish(&again);
		env_stop();
		env_start();
	}
	assert_int_equal(fake.n_vms, 1);
	call_finish(&first);
}

/* Killed while it ran: the key names the lost run, and nothing runs again. */
static void a_lost_run_keeps_its_key(void **state)
{
	struct call first, again;

	(void)state;
	call_run(&first, "k", NULL, 0);
	call_wait(&first);
	fake_bound(0);
	env_settle();
	env_stop();
	env_start();
	call_run(&again, "k", NULL, 30000);
	call_wait(&again);
	assert_string_equal(again.cmd.id, first.cmd.id);
	assert_int_equal(again.cmd.status, CMD_LOST);
	assert_int_equal(again.cmd.reason, END_DAEMON_RESTART);
	assert_int_equal(again.sbx.status, SBX_LOST);
	assert_int_equal(fake.n_vms, 1);
	call_finish(&again);
	/* The client's next key is a new run. */
	call_run(&again, "k.2", NULL, 0);
	call_wait(&again);
	assert_string_not_equal(again.cmd.id, first.cmd.id);
	call_finish(&again);
	call_finish(&first);
}

/* K9, LBB-24. */
static void another_request_conflicts(void **state)
{
	struct run_spec other = sum_spec("k", 0);
	struct call c, bad;

	(void)state;
	other.request_hash[5] = 99;
	call_run(&c, "k", NULL, 30000);
	for (int i = 0; i < 4; i++) {
		/* before it is durable; running; ended; after a restart */
		call_run(&bad, "k", &other, 0);
		call_wait(&bad);
		assert_int_equal(bad.err.code, ERR_KEY_CONFLICT);
		assert_non_null(strstr(bad.err.text, "The key \"k\" was used"));
		assert_non_null(strstr(bad.err.text, "use another key"));
		call_finish(&bad);
		env_settle();
		if (i == 0) {
			fake_bound(0);
		} else if (i == 1) {
			fake_end(0, GP_END_EXITED, 0, "6");
			call_wait(&c);
		} else if (i == 2) {
			env_stop();
			env_start();
		}
		env_settle();
	}
	assert_int_equal(fake.n_vms, 1);
	call_finish(&c);
}

/* LBB-26 */
static void scopes_are_apart(void **state)
{
	struct call c[3];

	(void)state;
	call_run(&c[0], "k", NULL, 0);
	env.who.graph = "other";
	call_run(&c[1], "k", NULL, 0);
	env.who.graph = "main";
	env.who.environment = "env_b";
	call_run(&c[2], "k", NULL, 0);
	for (int i = 0; i < 3; i++) {
		call_wait(&c[i]);
		assert_int_equal(c[i].err.code, ERR_NONE);
		call_finish(&c[i]);
	}
	assert_int_equal(fake.n_vms, 3);
}

/* ---- places
 * ---------------------------------------------------------------------------
 */

static struct call held[16];

static int hold(int n, const char *graph)
{
	char key[16];

	env.who.graph = graph;
	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%d", graph, i);
		call_run(&held[i], key, NULL, 0);
		call_wait(&held[i]);
		if (held[i].err.code)
			return i;
		call_finish(&held[i]);
	}
	return n;
}

static void places_of_a_graph(void **state)
{
	struct call c, again;

	(void)state;
	fake.is_slow_to_go = true;
	assert_int_equal(hold(6, "main"), 5);
	assert_int_equal(held[5].err.code, ERR_LIMIT_REACHED);
	assert_int_equal(held[5].err.retry_after_s, ENGINE_RETRY_PLACES_S);
	assert_non_null(strstr(held[5].err.text, "graph main holds 5 "));
	/* A key that is known answers although all is full. */
	call_run(&again, "main0", NULL, 0);
	call_wait(&again);
	assert_int_equal(again.err.code, ERR_NONE);
	call_finish(&again);
	/* Destroying still holds its place; destroyed does not. */
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "6");
	env_settle();
	call_run(&c, "new", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_LIMIT_REACHED);
	call_finish(&c);
	fake_gone(0, END_NONE, "destroyed");
	call_run(&c, "new", NULL, 0); /* the refusal burnt nothing */
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	call_finish(&c);
	/* Its run is over and out of memory: from the database, still full. */
	env_settle();
	call_run(&again, "main0", NULL, 30000);
	call_wait(&again);
	assert_int_equal(again.cmd.status, CMD_SUCCEEDED);
	call_finish(&again);
	assert_int_equal(fake.n_vms, 6);
}

static void places_of_an_environment(void **state)
{
	struct call c;

	(void)state;
	assert_int_equal(hold(5, "a"), 5);
	assert_int_equal(hold(5, "b"), 5);
	assert_int_equal(hold(1, "c"), 0);
	assert_int_equal(held[0].err.code, ERR_LIMIT_REACHED);
	env.who.environment = "env_b"; /* another one has its own */
	call_run(&c, "k", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	call_finish(&c);
}

/* A lookup in flight when the place comes free: the run starts after all. */
static void a_place_freed_in_between(void **state)
{
	struct call c;

	(void)state;
	assert_int_equal(hold(5, "main"), 5);
	fake_bound(0);
	call_run(&c, "new", NULL, 0); /* full: looks its key up first */
	fake_gone(0, END_VM_LOST, "killed");
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(fake.n_vms, 6);
	call_finish(&c);
}

static void memory_and_disk(void **state)
{
	struct engine_stats stats;
	struct call c;

	(void)state;
	env_stop();
	env.cfg.ram_budget_bytes = 3ull << 30;
	env_start();
	assert_int_equal(hold(4, "main"), 3);
	assert_int_equal(held[3].err.code, ERR_CAPACITY);
	assert_true(held[3].err.retry_after_s > 0);
	engine_stats(env.e, &stats);
	assert_int_equal(stats.ram_committed_bytes, 3ull << 30);
	assert_int_equal(stats.sandboxes_live, 3);
	assert_int_equal(stats.commands_live, 3);
	/* Without memory it comes back. */
	fake_gone(1, END_VM_LOST, "killed");
	call_run(&c, "r", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	call_finish(&c);
	fake_gone(0, END_VM_LOST, "killed");
	fake_gone(2, END_VM_LOST, "killed");
	fake.disk_bytes = UINT64_MAX - 5; /* no sum may wrap */
	call_run(&c, "d", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_CAPACITY);
	assert_non_null(strstr(c.err.text, "disk"));
	call_finish(&c);
	fake.ram_bytes = UINT64_MAX;
	call_run(&c, "d", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_CAPACITY);
	call_finish(&c);
	fake.ram_bytes = 1 << 20;
	fake.disk_bytes = 1 << 20;
	call_run(&c, "d", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	call_finish(&c);
}

/* ---- waiters
 * ----------------------------------------------------------------------------
 */

static void who_went_away_is_not_called(void **state)
{
	struct call a, b, r;

	(void)state;
	call_run(&a, "k", NULL, 30000);
	engine_cancel_wait(env.e, a.w); /* before it is on disk */
	call_run(&b, "k", NULL, 30000);
	call_run(&r, "k", NULL, 30000);
	env_settle();
	assert_int_equal(fake.n_vms, 1); /* the run goes on */
	engine_cancel_wait(env.e, b.w);
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "6");
	call_wait(&r);
	assert_int_equal(a.n_answers + b.n_answers, 0);
	call_finish(&r);
	env_settle();
	/* A refusal and a reading that nobody waits for any more. */
	env.who.plan = PLAN_FREE;
	call_run(&a, "x", NULL, 0);
	engine_cancel_wait(env.e, a.w);
	env.who.plan = PLAN_FULL;
	call_get(&b, "cmd_x", 0);
	engine_cancel_wait(env.e, b.w);
	env_settle();
	assert_int_equal(a.n_answers + b.n_answers, 0);
	assert_true(list_is_empty(&env.e->waiters));
}

/* An answer that makes another waiter of the same run go away. */
static struct call other;

static void on_first(void *ctx, const struct err *e,
		     const struct sandbox_rec *s, const struct command_rec *c)
{
	(void)e;
	(void)s;
	(void)c;
	++*(int *)ctx;
	engine_cancel_wait(env.e, other.w);
}

static void answers_may_cancel_others(void **state)
{
	struct run_spec spec = sum_spec("k", 30000);
	int n = 0;

	(void)state;
	assert_int_equal(engine_run(env.e, &env.who, &spec, on_first, &n, NULL),
			 0);
	call_run(&other, "k", NULL, 30000);
	env_settle();
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "6");
	env_settle();
	assert_int_equal(n, 1);
	assert_int_equal(other.n_answers, 0);
	assert_true(list_is_empty(&env.e->boxes));
}

/* 200 runs with up to eight calls each, everything at random moments. */
static void a_storm(void **state)
{
	static struct call c[200][8];
	const char *given = getenv("HUTCH_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : 5;

	(void)state;
	print_message("# seed=%u (HUTCH_SEED)\n", seed);
	env_stop();
	env.cfg.graph_places = env.cfg.environment_places = 1000;
	env.cfg.ram_budget_bytes = UINT64_MAX;
	env_start();
	for (int i = 0; i < 200; i++) {
		char key[16];
		int n = 1 + rand_r(&seed) % 8;

		snprintf(key, sizeof(key), "k%d", i);
		for (int k = 0; k < n; k++)
			call_run(&c[i][k], key, NULL,
				 rand_r(&seed) % 3 ? 30000 : 0);
		if (rand_r(&seed) % 4 == 0)
			env_settle();
		for (int v = 0; v < fake.n_vms; v++) {
			struct vm *vm = &fake.vms[v];

			if (vm->is_gone || vm->is_destroyed ||
			    rand_r(&seed) % 2)
				continue;
			if (rand_r(&seed) % 8 == 0) {
				fake_gone(v, END_VM_LOST, "killed");
				continue;
			}
			fake_bound(v);
			if (rand_r(&seed) % 2)
				fake_end(v, GP_END_EXITED, 0, "6");
		}
	}
	env_settle();
	for (int v = 0; v < fake.n_vms; v++)
		if (!fake.vms[v].is_gone && !fake.vms[v].is_destroyed)
			fake_gone(v, END_VM_LOST, "killed");
	for (int i = 0; i < 200; i++)
		for (int k = 0; k < 8; k++) {
			if (!c[i][k].w)
				continue;
			call_wait(&c[i][k]);
			assert_int_equal(c[i][k].err.code, ERR_NONE);
			assert_string_equal(c[i][k].cmd.id, c[i][0].cmd.id);
			if (k)
				call_finish(&c[i][k]);
		}
	for (int i = 0; i < 200; i++)
		call_finish(&c[i][0]);
	env_settle();
	assert_int_equal(fake.n_vms, 200);
	assert_true(list_is_empty(&env.e->boxes));
	env_stop();
	assert_int_equal(raw_number(&env.f, "SELECT count(*) FROM command"),
			 200);
	assert_int_equal(raw_number(&env.f, "SELECT count(*) FROM sandbox WHERE"
					    " status NOT IN (6, 8)"),
			 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(eight_at_once_start_one),
		TEST(a_key_is_kept_over_restarts),
		TEST(a_lost_run_keeps_its_key),
		TEST(another_request_conflicts),
		TEST(scopes_are_apart),
		TEST(places_of_a_graph),
		TEST(places_of_an_environment),
		TEST(a_place_freed_in_between),
		TEST(memory_and_disk),
		TEST(who_went_away_is_not_called),
		TEST(answers_may_cancel_others),
		TEST(a_storm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
