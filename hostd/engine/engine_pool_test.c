/* VMs that wait: who gets one, who gives way, how many there are. */
#include "../clock.h"
#include "engine_test_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB (1ull << 30)

static char clock_path[256], proc_dir[256];
static int64_t passed_ms;
static const struct pool_want two = {
	.base = "lbb/python", .limits = {1, 1024, 4096}, .count = 2};

static void put(const char *name, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", proc_dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void put_memory(unsigned available_mib)
{
	char text[128];

	snprintf(text, sizeof(text),
		 "MemTotal: 16777216 kB\nMemFree: 1 kB\n"
		 "MemAvailable: %u kB\n",
		 available_mib * 1024);
	put("meminfo", text);
}

static void put_pressure(const char *avg10)
{
	char text[128];

	snprintf(text, sizeof(text),
		 "some avg10=%s avg60=0.00 avg300=0.00 total=1\n", avg10);
	put("pressure/memory", text);
}

/* Time passes, and the pool has had its turn. */
static void pass(int64_t ms)
{
	char next[300];
	FILE *f;

	passed_ms += ms;
	snprintf(next, sizeof(next), "%s.next", clock_path);
	f = fopen(next, "we");
	fprintf(f, "%lld\n", (long long)passed_ms);
	fclose(f);
	assert_int_equal(rename(next, clock_path), 0);
	env_settle();
}

static void settle(void)
{
	pass(POOL_REFILL_DELAY_MS + 1);
}

/* A pool with these wants and at most so many; the store begins anew. */
static void restart(const struct pool_want *wants, size_t n, uint32_t max)
{
	env_stop();
	env.cfg.pool_max = max;
	env.cfg.pool_idle_seconds = 60;
	env.cfg.pool_wants = wants;
	env.cfg.n_pool_wants = n;
	env.cfg.proc_dir = proc_dir;
	env_start();
	pass(2);
	settle();
}

static int setup(void **state)
{
	char path[300];

	(void)state;
	env_init();
	passed_ms = 0;
	snprintf(clock_path, sizeof(clock_path), "%s/clock", env.f.dir);
	snprintf(proc_dir, sizeof(proc_dir), "%s/proc", env.f.dir);
	snprintf(path, sizeof(path), "%s/pressure", proc_dir);
	assert_int_equal(mkdir(proc_dir, 0700), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	put_memory(12000);
	put_pressure("0.00");
	setenv("HUTCH_TEST_CLOCK", clock_path, 1);
	return 0;
}

static int teardown(void **state)
{
	char path[300];

	(void)state;
	unsetenv("HUTCH_TEST_CLOCK");
	if (env.e)
		env_stop();
	snprintf(path, sizeof(path), "%s/pressure/memory", proc_dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/pressure", proc_dir);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/meminfo", proc_dir);
	unlink(path);
	rmdir(proc_dir);
	unlink(clock_path);
	env_finish();
	return 0;
}

static struct engine_stats stats(void)
{
	struct engine_stats s;

	engine_stats(env.e, &s);
	return s;
}

/* Two VMs wait: the first of the double, and the second. */
static void fill_two(void)
{
	restart(&two, 1, 4);
	assert_int_equal(fake.n_vms, 1); /* one at a time */
	assert_int_equal(stats().pool_starting, 1);
	fake_waiting(0);
	settle();
	assert_int_equal(fake.n_vms, 2);
	fake_waiting(1);
	settle();
	assert_int_equal(fake.n_vms, 2);
	assert_int_equal(stats().pool_ready, 2);
	assert_int_equal(stats().pool_ram_bytes, 2 * GIB);
}

/* ---- claiming ---------------------------------------------------------- */

static void a_run_takes_the_vm_and_its_name(void **state)
{
	struct call c;

	(void)state;
	fill_two();
	assert_memory_equal(fake.vms[0].spec.sandbox, "sbx_n001", 8);
	assert_string_not_equal(fake.vms[0].spec.sandbox,
				fake.vms[1].spec.sandbox);
	call_run(&c, "k", NULL, 30000);
	assert_int_equal(stats().pool_ram_bytes, 1 * GIB); /* counted once */
	assert_int_equal(stats().ram_committed_bytes, 1 * GIB);
	assert_false(fake.vms[0].is_claimed); /* the record comes first */
	env_settle();
	assert_true(fake.vms[0].is_claimed);
	assert_int_equal(fake.vms[0].n_runs, 1);
	assert_int_equal(fake.n_vms, 2);
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "6");
	call_wait(&c);
	assert_int_equal(c.cmd.status, CMD_SUCCEEDED);
	assert_string_equal(c.sbx.id, fake.vms[0].spec.sandbox);
	assert_string_equal(c.cmd.sandbox, c.sbx.id);
	env_settle();
	assert_int_equal(fake.vms[0].n_acks, 1);
	assert_true(fake.vms[0].is_destroyed);
	settle();
	assert_int_equal(fake.n_vms, 3); /* refilled */
	assert_int_equal(stats().pool_hits, 1);
	assert_int_equal(stats().pool_misses, 0);
	call_finish(&c);
}

/* Told to be started and ended in one go, as an express lane does it; and the
 * end of its sandbox goes with the begin of the next. */
static void a_short_run_is_two_commits(void **state)
{
	uint64_t before;

	(void)state;
	fill_two();
	before = store_commits(env.f.store);
	for (int i = 0; i < 2; i++) {
		struct call c;
		char key[2] = {(char)('a' + i), 0};

		call_run(&c, key, NULL, 30000);
		while (!fake.vms[i].n_runs)
			env_loop_for(1);
		assert_int_equal(store_commits(env.f.store), before + 1);
		fake_bound(i);
		fake_output(i, 0, "printed\n");
		fake_end(i, GP_END_EXITED, 0, "6");
		call_wait(&c);
		while (!fake.vms[i].is_gone)
			env_loop_for(1);
		before += 2;
		assert_int_equal(store_commits(env.f.store), before);
		assert_int_equal(c.cmd.status, CMD_SUCCEEDED);
		assert_true(c.cmd.started_ms >= c.cmd.created_ms);
		call_finish(&c);
	}
	assert_false(list_is_empty(&env.e->boxes));
	pass(1000); /* nobody comes: alone */
	while (!list_is_empty(&env.e->boxes))
		env_loop_for(1);
	assert_int_equal(store_commits(env.f.store), before + 1);
}

static void other_limits_are_a_miss_and_then_demand(void **state)
{
	struct run_spec spec = sum_spec("k", 0);
	struct call c;

	(void)state;
	fill_two();
	spec.limits.disk_mib = 512;
	call_run(&c, "k", &spec, 0);
	env_settle();
	assert_int_equal(fake.n_vms, 3);
	assert_null(fake.vms[2].pool_ops);
	assert_int_equal(stats().pool_misses, 1);
	pass(POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 3); /* a run waits to start */
	fake_bound(2);
	settle();
	assert_int_equal(fake.n_vms, 4);
	assert_int_equal(fake.vms[3].spec.limits.disk_mib, 512);
	call_finish(&c);
	fake_waiting(3);
	/* Nobody asks for it again: gone after the idle time, the rest stays */
	for (int s = 0; s < 63; s++)
		pass(POOL_TICK_MS);
	assert_true(fake.vms[3].is_destroyed);
	assert_false(fake.vms[0].is_destroyed || fake.vms[1].is_destroyed);
}

static void one_known_key_costs_no_vm(void **state)
{
	struct call c, again;

	(void)state;
	fill_two();
	call_run(&c, "k", NULL, 30000);
	env_settle();
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "6");
	call_wait(&c);
	env_settle();
	call_run(&again, "k", NULL, 30000);
	call_wait(&again);
	assert_string_equal(again.sbx.id, c.sbx.id);
	assert_false(fake.vms[1].is_claimed || fake.vms[1].is_destroyed);
	env_settle();
	call_finish(&again);
	/* And the next run gets it. */
	call_run(&again, "k2", NULL, 0);
	env_settle();
	assert_true(fake.vms[1].is_claimed);
	call_finish(&again);
	call_finish(&c);
}

/* Between admission and the record the VM dies, or its snapshot is replaced:
 * a VM is restored, under the same name. */
static void a_run_outlives_its_vm(void **state)
{
	struct call c, d;

	(void)state;
	fill_two();
	call_run(&c, "k", NULL, 0);
	fake_gone(0, END_VM_LOST, "killed by signal 9");
	fake.vms[1].is_stale = true;
	call_run(&d, "k2", NULL, 0);
	env_settle();
	assert_int_equal(fake.n_vms, 4);
	assert_true(fake.vms[1].is_destroyed);
	assert_int_equal(stats().pool_failures, 1);
	assert_int_equal(stats().pool_misses, 2);
	assert_int_equal(fake.vms[2].n_runs + fake.vms[3].n_runs, 2);
	assert_string_equal(fake.vms[2].spec.sandbox, fake.vms[0].spec.sandbox);
	fake_bound(2);
	fake_bound(3);
	env_settle();
	call_finish(&c);
	call_finish(&d);
	call_get(&c, "cmd_none", 0); /* the engine is well */
	call_wait(&c);
	call_finish(&c);
}

/* ---- room -------------------------------------------------------------- */

static void who_waits_gives_way(void **state)
{
	struct run_spec spec = sum_spec("k", 0);
	struct call c;

	(void)state;
	env.cfg.ram_budget_bytes = 2 * GIB;
	fill_two();
	spec.limits.memory_mib = 512; /* the double takes 1 GiB for all */
	call_run(&c, "k", &spec, 0);
	assert_int_equal(stats().pool_evictions, 1);
	env_settle();
	assert_int_equal(fake.n_vms, 3);
	assert_int_equal(stats().pool_ready, 1);
	fake_bound(2);
	settle();
	pass(POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 3); /* no room for a refill */
	call_finish(&c);
}

static void who_cannot_fit_disturbs_nobody(void **state)
{
	struct run_spec spec = sum_spec("k2", 0);
	struct call c, d;

	(void)state;
	env.cfg.ram_budget_bytes = 3 * GIB;
	fill_two();
	call_run(&c, "k", NULL, 0);
	env_settle();
	fake_bound(0);
	fake.ram_bytes = 3 * GIB;
	spec.limits.memory_mib = 4096;
	call_run(&d, "k2", &spec, 0);
	call_wait(&d);
	assert_int_equal(d.err.code, ERR_CAPACITY);
	assert_true(d.err.retry_after_s > 0);
	assert_false(fake.vms[0].is_destroyed || fake.vms[1].is_destroyed);
	assert_int_equal(stats().pool_evictions, 0);
	call_finish(&c);
	call_finish(&d);
}

static void nothing_waits_when_memory_is_short(void **state)
{
	(void)state;
	fill_two();
	put_memory(2000); /* less than an eighth */
	pass(POOL_TICK_MS);
	pass(POOL_TICK_MS);
	pass(POOL_TICK_MS);
	assert_true(fake.vms[0].is_destroyed && fake.vms[1].is_destroyed);
	assert_true(stats().is_memory_short);
	put_memory(2500); /* not yet a sixth */
	pass(POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 2);
	put_memory(12000);
	pass(POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 3);
	put_pressure("10.00");
	pass(POOL_TICK_MS);
	assert_true(fake.vms[2].is_destroyed); /* also one that starts */
	put_pressure("4.99");
	pass(POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 4);
}

/* ---- how many ---------------------------------------------------------- */

static void the_maximum_holds(void **state)
{
	struct pool_want wants[2] = {two, two};
	struct call c[4];
	char key[8];

	(void)state;
	wants[1].limits.vcpus = 2;
	restart(wants, 2, 3);
	for (int i = 0; i < 5; i++) {
		if (i < fake.n_vms)
			fake_waiting(i);
		settle();
	}
	assert_int_equal(fake.n_vms, 3);
	/* A burst of four wants four, and three is all there is. */
	for (int i = 0; i < 4; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		call_run(&c[i], key, NULL, 0);
	}
	env_settle();
	for (int i = 0; i < fake.n_vms; i++)
		if (!fake.vms[i].pool_ops)
			fake_bound(i);
	for (int i = 0; i < 20; i++) {
		pass(POOL_TICK_MS);
		for (int v = 0; v < fake.n_vms; v++)
			if (fake.vms[v].pool_ops && !fake.vms[v].is_gone)
				fake_waiting(v);
		assert_true(stats().pool_ready + stats().pool_starting <= 3);
	}
	assert_int_equal(stats().pool_ready, 3);
	for (int i = 0; i < 4; i++)
		call_finish(&c[i]);
}

static void what_cannot_start_rests(void **state)
{
	(void)state;
	fake.pool_error = "no snapshot";
	fake.pool_error_code = ERR_UNAVAILABLE;
	restart(&two, 1, 4);
	assert_int_equal(stats().pool_failures, 0); /* it may come yet */
	fake.pool_error = NULL;
	settle();
	assert_int_equal(fake.n_vms, 0);
	pass(POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 1);
	fake_gone(0, END_VM_LOST, "killed by signal 9");
	settle();
	assert_int_equal(fake.n_vms, 1);
	pass(2 * POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 2);
	assert_int_equal(stats().pool_failures, 1);
}

static void the_old_and_the_stale_are_dropped(void **state)
{
	(void)state;
	fill_two();
	fake.vms[1].is_stale = true;
	pass(POOL_TICK_MS);
	assert_true(fake.vms[1].is_destroyed);
	assert_false(fake.vms[0].is_destroyed);
	pass(POOL_AGE_S_MAX * 1000ll);
	pass(POOL_TICK_MS);
	assert_true(fake.vms[0].is_destroyed);
}

static void no_pool_no_vm(void **state)
{
	struct call c;

	(void)state;
	restart(&two, 1, 0);
	pass(POOL_TICK_MS);
	assert_int_equal(fake.n_vms, 0);
	call_run(&c, "k", NULL, 0);
	env_settle();
	fake_bound(0);
	pass(POOL_TICK_MS);
	settle();
	assert_int_equal(fake.n_vms, 1);
	assert_int_equal(stats().pool_misses, 0);
	call_finish(&c);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_run_takes_the_vm_and_its_name),
		TEST(a_short_run_is_two_commits),
		TEST(other_limits_are_a_miss_and_then_demand),
		TEST(one_known_key_costs_no_vm),
		TEST(a_run_outlives_its_vm),
		TEST(who_waits_gives_way),
		TEST(who_cannot_fit_disturbs_nobody),
		TEST(nothing_waits_when_memory_is_short),
		TEST(the_maximum_holds),
		TEST(what_cannot_start_rests),
		TEST(the_old_and_the_stale_are_dropped),
		TEST(no_pool_no_vm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
