/* Names, labels and times of a held sandbox, and their update (LBB-43, LBB-49,
 * LBB-50, LBB-64, LBB-69). */
#include "../clock.h"
#include "../store/test_vfs.h"
#include "engine_held_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void call_update(struct call *c, const struct update_spec *spec)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(engine_sandbox_update(env.e, &env.who, spec,
					       on_call_sandbox, c),
			 0);
	c->is_inside = false;
}

static enum err_code updated(struct call *c, const struct update_spec *spec)
{
	call_update(c, spec);
	call_wait(c);
	return c->err.code;
}

static void stop_now(const char *sandbox, int vm)
{
	struct call x = {0};

	assert_int_equal(engine_sandbox_stop(env.e, &env.who, sandbox,
					     on_call_sandbox, &x),
			 0);
	env_settle();
	fake_stopped(vm, NULL);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_STOPPED);
}

static void each_field_by_itself(void **state)
{
	struct create_spec spec = held_spec("k", 30000);
	struct update_spec u;
	struct call c, x;

	(void)state;
	spec.name = "first";
	spec.labels = "{\"a\":\"b\"}";
	call_create(&c, &spec);
	env_settle();
	fake_bound(0);
	call_wait(&c);
	assert_string_equal(c.sbx.name, "first");
	assert_string_equal(c.sbx.labels, "{\"a\":\"b\"}");
	/* Nothing is asked: nothing changes. */
	u = (struct update_spec){.sandbox = c.sbx.id};
	assert_int_equal(updated(&x, &u), ERR_NONE);
	assert_string_equal(x.sbx.name, "first");
	assert_int_equal(x.sbx.expires_ms, c.sbx.expires_ms);
	u.has_name = true;
	u.name = "second";
	assert_int_equal(updated(&x, &u), ERR_NONE);
	assert_string_equal(x.sbx.name, "second");
	assert_string_equal(x.sbx.labels, "{\"a\":\"b\"}");
	assert_int_equal(x.sbx.status, SBX_RUNNING);
	u = (struct update_spec){.sandbox = c.sbx.id,
				 .has_name = true,
				 .has_labels = true,
				 .idle_seconds = 30,
				 .expires_in_seconds = 604800};
	assert_int_equal(updated(&x, &u), ERR_NONE);
	assert_string_equal(x.sbx.name, "");
	assert_string_equal(x.sbx.labels, "");
	assert_int_equal(x.sbx.idle_seconds, 30);
	assert_int_equal(x.sbx.expires_in_seconds, 604800);
	assert_true(x.sbx.expires_ms >= c.sbx.created_ms + 604800000);
	assert_true(x.sbx.expires_ms <= clock_wall_ms() + 604800000);
	/* All of it is on disk. */
	env_stop();
	env_start();
	x.sbx = sandbox_now(c.sbx.id);
	assert_int_equal(x.sbx.idle_seconds, 30);
	assert_int_equal(x.sbx.expires_in_seconds, 604800);
	assert_string_equal(x.sbx.name, "");
}

static void what_is_refused_changes_nothing(void **state)
{
	char long_name[66], labels[SANDBOX_LABELS_BYTES_MAX + 2];
	struct update_spec bad[6];
	const char *const params[] = {"name",
				      "name",
				      "labels",
				      "idle_seconds",
				      "expires_in_seconds",
				      "sandbox"};
	struct update_spec u;
	struct call c, x, run;

	(void)state;
	memset(long_name, 'x', 65);
	long_name[65] = 0;
	memset(labels, 'x', sizeof(labels) - 1);
	labels[sizeof(labels) - 1] = 0;
	begin_held(&c, "k");
	for (int i = 0; i < 6; i++)
		bad[i] = (struct update_spec){.sandbox = c.sbx.id,
					      .has_labels = true,
					      .labels = "{\"z\":\"z\"}"};
	bad[0].has_name = bad[1].has_name = true;
	bad[0].name = "";
	bad[1].name = long_name;
	bad[2].labels = labels;
	bad[3].idle_seconds = 29;
	bad[4].expires_in_seconds = 604801;
	bad[5].sandbox = "sbx_none";
	for (int i = 0; i < 6; i++) {
		assert_int_not_equal(updated(&x, &bad[i]), ERR_NONE);
		assert_string_equal(x.err.param, params[i]);
	}
	assert_string_equal(sandbox_now(c.sbx.id).labels, "");
	/* A free plan may; another graph may not. */
	u = (struct update_spec){
		.sandbox = c.sbx.id, .has_name = true, .name = "free"};
	env.who.plan = PLAN_FREE;
	assert_int_equal(updated(&x, &u), ERR_NONE);
	env.who.plan = PLAN_FULL;
	env.who.graph = "other";
	assert_int_equal(updated(&x, &u), ERR_SANDBOX_NOT_FOUND);
	env.who.graph = "main";
	/* Of a one-call run, and what has ended. */
	call_run(&run, "run", NULL, 0);
	call_wait(&run);
	u.sandbox = run.sbx.id;
	call_finish(&run);
	assert_int_equal(updated(&x, &u), ERR_NOT_RUNNING);
	call_delete(&run, c.sbx.id);
	u.sandbox = c.sbx.id;
	assert_int_equal(updated(&x, &u), ERR_NOT_RUNNING);
	call_wait(&run);
	env_settle();
	assert_int_equal(updated(&x, &u), ERR_NOT_RUNNING);
	assert_string_equal(sandbox_now(c.sbx.id).name, "free");
}

/* The new times are those that count, for one that runs and one that stands. */
static void times_count_from_the_update(void **state)
{
	struct update_spec u;
	struct call c, d, x;

	(void)state;
	begin_held(&c, "k");
	u = (struct update_spec){.sandbox = c.sbx.id, .idle_seconds = 3600};
	assert_int_equal(updated(&x, &u), ERR_NONE);
	env_pass(3000 * 1000); /* past the 300 s that it had */
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 0);
	u = (struct update_spec){.sandbox = c.sbx.id,
				 .expires_in_seconds = 900};
	assert_int_equal(updated(&x, &u), ERR_NONE);
	env_pass(3700 * 1000); /* past its first hour: idle, not expired */
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 1);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPING);
	fake_stopped(0, NULL);
	env_settle();
	env_pass(3901 * 1000);
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_DESTROYED);
	/* A stopped one, and the next daemon keeps to it. */
	begin_held(&d, "k2");
	stop_now(d.sbx.id, 1);
	u = (struct update_spec){.sandbox = d.sbx.id,
				 .has_name = true,
				 .name = "kept",
				 .expires_in_seconds = 60};
	assert_int_equal(updated(&x, &u), ERR_NONE);
	assert_int_equal(x.sbx.status, SBX_STOPPED);
	env_stop();
	env_start();
	env_settle();
	assert_string_equal(sandbox_now(d.sbx.id).name, "kept");
	env_pass((3901 + 61) * 1000);
	env_settle();
	assert_int_equal(sandbox_now(d.sbx.id).status, SBX_DESTROYED);
}

/* It is answered when it is on disk, not before; and is written when that can
 * be. */
static void a_full_disk(void **state)
{
	struct update_spec u;
	struct call c, x, late;

	(void)state;
	begin_held(&c, "k");
	env_settle();
	u = (struct update_spec){
		.sandbox = c.sbx.id, .has_name = true, .name = "new"};
	atomic_store(&test_vfs.code, SQLITE_FULL);
	atomic_store(&test_vfs.is_lasting, true);
	atomic_store(&test_vfs.fail_in, 1);
	call_update(&late, &u);
	env_loop_for(50);
	assert_int_equal(late.n_answers, 0);
	assert_string_equal(sandbox_now(c.sbx.id).name, "");
	env_pass(21 * 1000);
	call_wait(&late);
	assert_int_equal(late.err.code, ERR_UNAVAILABLE);
	call_update(&x, &u);
	test_vfs_calm();
	env_pass(30 * 1000);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NONE);
	assert_string_equal(x.sbx.name, "new");
	assert_string_equal(sandbox_now(c.sbx.id).name, "new");
}

/* Many at once: each answer has its own and those before it. */
static void many_at_once(void **state)
{
	enum { N = 20 };
	static struct call x[N];
	struct update_spec u = {.has_name = true};
	char name[N][8];
	struct call c;

	(void)state;
	begin_held(&c, "k");
	u.sandbox = c.sbx.id;
	for (int i = 0; i < N; i++) {
		snprintf(name[i], sizeof(name[i]), "n%02d", i);
		u.name = name[i];
		u.idle_seconds = i == 7 ? 77 : 0;
		call_update(&x[i], &u);
	}
	for (int i = 0; i < N; i++) {
		call_wait(&x[i]);
		assert_int_equal(x[i].err.code, ERR_NONE);
		assert_true(strcmp(x[i].sbx.name, name[i]) >= 0);
		if (i >= 7)
			assert_int_equal(x[i].sbx.idle_seconds, 77);
	}
	assert_string_equal(x[N - 1].sbx.name, "n19");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_field_by_itself),
		TEST(what_is_refused_changes_nothing),
		TEST(times_count_from_the_update),
		TEST(a_full_disk),
		TEST(many_at_once),
	};

	test_vfs_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
