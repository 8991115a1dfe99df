/*
 * Each allocation of a run fails once (hardening K17): in the engine, the
 * store's calls and its thread, SQLite.  The call is answered or refused, no
 * run is half, and the next one works.
 */
#include "engine_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- allocations that fail (linked with --wrap) ------------------------- */

static atomic_long fail_in; /* 0 = never */
static atomic_long n_failed;

static bool fails(void)
{
	if (atomic_load(&fail_in) <= 0 || atomic_fetch_sub(&fail_in, 1) != 1)
		return false;
	atomic_fetch_add(&n_failed, 1);
	return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	return fails() ? NULL : __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

/* SQLite's own are in its library, out of reach of --wrap. */
static sqlite3_mem_methods real_mem;

static void *sql_malloc(int n)
{
	return fails() ? NULL : real_mem.xMalloc(n);
}

static void *sql_realloc(void *p, int n)
{
	return fails() ? NULL : real_mem.xRealloc(p, n);
}

/* ---- the test ----------------------------------------------------------- */

static bool is_of_template; /* the runs: what they run is saved */

static void on_saved(void *ctx, const struct err *e,
		     const struct template_rec *r)
{
	(void)r;
	assert_null(e);
	*(bool *)ctx = true;
}

static void save_template(void)
{
	const struct run_spec sum = sum_spec("", 0);
	const struct template_spec spec = {.key = "save",
					   .name = "sum",
					   .base = "lbb/python",
					   .code = sum.code,
					   .code_len = sum.code_len,
					   .config = "{}",
					   .config_len = 2};
	bool is_saved = false;

	assert_int_equal(engine_template_save(env.e, &env.who, &spec, on_saved,
					      &is_saved),
			 0);
	env_settle();
	assert_true(is_saved);
}

/* A run with a failing allocation somewhere; true when it was answered. */
static void one_run(const char *key, struct call *c)
{
	struct run_spec spec = sum_spec(key, 30000);
	int vm = fake.n_vms;
	int rc;

	if (is_of_template) {
		spec.template_name = "sum";
		spec.code = NULL;
		spec.code_len = 0;
	}
	memset(c, 0, sizeof(*c));
	rc = engine_run(env.e, &env.who, &spec, on_call_run, c, &c->w);
	if (rc) {
		assert_int_equal(rc, -ENOMEM);
		c->err.code = ERR_INTERNAL;
		c->n_answers = 1;
		return;
	}
	while (!c->n_answers && fake.n_vms == vm)
		loop_run(env.f.loop);
	if (c->n_answers)
		return;
	fake_bound(vm);
	fake_output(vm, 0, "some text\n");
	fake_end(vm, GP_END_EXITED, 0, "6");
	call_wait(c);
}

/* Wakes loop_run so that the waits above look again. */
static void on_tick(struct loop_timer *t)
{
	loop_stop(env.f.loop);
	loop_timer_set(env.f.loop, t, 2);
}

static void each_fails_once(void)
{
	int n_refused = 0, n_late = 0;
	bool is_past = false;
	long nth = 0;

	while (!is_past && nth < 3000) {
		struct loop_timer tick = {.fn = on_tick};
		long before = atomic_load(&n_failed);
		struct call c, good;

		nth += is_long_run() || nth < 40 ? 1 : 13;
		env_init();
		if (is_of_template)
			save_template();
		loop_timer_set(env.f.loop, &tick, 2);
		atomic_store(&fail_in, nth);
		one_run("k", &c);
		is_past = atomic_load(&n_failed) == before;
		atomic_store(&fail_in, 0);
		if (c.err.code) {
			assert_true(c.err.code == ERR_INTERNAL ||
				    c.err.code == ERR_CAPACITY);
			n_refused++;
		} else if (c.cmd.status == CMD_SUCCEEDED) {
			assert_true(c.cmd.has_result);
		} else {
			assert_int_equal(c.cmd.status, CMD_LOST);
		}
		call_finish(&c);
		one_run("good", &good);
		assert_int_equal(good.err.code, ERR_NONE);
		assert_memory_equal(good.cmd.result.data, "6", 1);
		call_finish(&good);
		env_settle();
		/* A write that failed is tried again in a second. */
		n_late += !list_is_empty(&env.e->boxes);
		loop_timer_stop(env.f.loop, &tick);
		env_finish();
	}
	print_message("# count=%ld places, %d refused, %d written late\n", nth,
		      n_refused, n_late);
	assert_true(nth > 40 && nth < 3000 && n_refused > 5);
}

static void every_allocation_fails_once(void **state)
{
	(void)state;
	is_of_template = false;
	each_fails_once();
}

static void also_where_a_template_is_read(void **state)
{
	(void)state;
	is_of_template = true;
	each_fails_once();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_fails_once),
		cmocka_unit_test(also_where_a_template_is_read),
	};
	sqlite3_mem_methods mine;

	sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real_mem);
	mine = real_mem;
	mine.xMalloc = sql_malloc;
	mine.xRealloc = sql_realloc;
	sqlite3_config(SQLITE_CONFIG_MALLOC, &mine);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
