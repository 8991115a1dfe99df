/*
 * How held sandboxes end, and what becomes of their commands (LBB-25, LBB-29,
 * LBB-67, LBB-132, LBB-139); a full disk; one of the pool.
 */
#include "../store/test_vfs.h"
#include "engine_held_util.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- ends of the sandbox ------------------------------------------------ */

static void a_deleted_one_cancels_its_commands(void **state)
{
	struct call c, x, waits[3];
	struct engine_stats stats;

	(void)state;
	begin_held(&c, "k");
	for (int i = 0; i < 3; i++)
		call_echo(&waits[i], c.sbx.id, (char[]){(char)('a' + i), 0},
			  30000);
	env_settle();
	fake_started(0, 1);
	fake_started(0, 2);
	env_settle();
	fake.is_slow_to_go = true;
	call_delete(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_DESTROYING);
	for (int i = 0; i < 3; i++) {
		call_wait(&waits[i]);
		assert_int_equal(waits[i].cmd.status, CMD_CANCELLED);
		assert_string_equal(waits[i].cmd.reason_text,
				    "the sandbox was deleted");
	}
	/* It ends: no command, whatever the key; a known one is answered. */
	call_echo(&x, c.sbx.id, "late", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NOT_RUNNING);
	assert_string_equal(x.err.status, "destroying");
	fake_gone(0, END_NONE, "destroyed");
	env_settle();
	engine_stats(env.e, &stats);
	assert_int_equal(stats.sandboxes_live, 0);
	assert_true(list_is_empty(&env.e->boxes));
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_DESTROYED);
	call_echo(&x, c.sbx.id, "late", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NOT_RUNNING);
	assert_string_equal(x.err.status, "destroyed");
	call_echo(&x, c.sbx.id, "b", 0);
	call_wait(&x);
	assert_string_equal(x.cmd.id, waits[1].cmd.id);
	call_finish(&x);
	call_echo(&x, "sbx_none", "late", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_SANDBOX_NOT_FOUND);
	for (int i = 0; i < 3; i++)
		call_finish(&waits[i]);
}

/* The command's first record is on its way when the sandbox ends. */
static void a_command_and_a_delete_at_once(void **state)
{
	struct call c, x, y;

	(void)state;
	begin_held(&c, "k");
	call_echo(&x, c.sbx.id, "c", 30000);
	call_delete(&y, c.sbx.id);
	call_wait(&x);
	call_wait(&y);
	assert_int_equal(x.cmd.status, CMD_CANCELLED);
	call_finish(&x);
	env_settle();
	assert_true(list_is_empty(&env.e->boxes));
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_DESTROYED);
}

static void a_lost_vm_loses_all(void **state)
{
	struct call c, x, y;

	(void)state;
	begin_held(&c, "k");
	call_echo(&x, c.sbx.id, "c", 30000);
	call_echo(&y, c.sbx.id, "d", 30000);
	env_settle();
	fake_started(0, 1);
	fake_gone(0, END_VM_LOST, "it was killed");
	call_wait(&x);
	call_wait(&y);
	assert_int_equal(x.cmd.status, CMD_LOST);
	assert_int_equal(y.cmd.status, CMD_LOST);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_LOST);
	assert_string_equal(sandbox_now(c.sbx.id).reason_text, "it was killed");
	call_finish(&x);
	call_finish(&y);
	env_settle();
	assert_true(list_is_empty(&env.e->boxes));
}

/* The daemon ends, or was killed: lost, with the reason, and told so. */
static void the_daemon_s_end_loses_it(void **state)
{
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	call_echo(&x, c.sbx.id, "c", 30000);
	env_settle();
	fake_started(0, 1);
	env_stop();
	assert_int_equal(x.err.code, ERR_UNAVAILABLE);
	env_start();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_LOST);
	assert_int_equal(sandbox_now(c.sbx.id).reason, END_DAEMON_RESTART);
	call_echo(&x, c.sbx.id, "c", 0); /* never run again (LBB-29) */
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_LOST);
	assert_int_equal(x.cmd.reason, END_DAEMON_RESTART);
	call_finish(&x);
}

static void a_one_call_sandbox_takes_no_command(void **state)
{
	struct call c, x;

	(void)state;
	call_run(&c, "k", NULL, 0);
	call_wait(&c);
	call_echo(&x, c.sbx.id, "c", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NOT_RUNNING);
	assert_non_null(strstr(x.err.text, "one-call"));
	call_finish(&c);
}

/* ---- a full disk -------------------------------------------------------- */

static void disk_is_full(bool is_full)
{
	atomic_store(&test_vfs.code, SQLITE_FULL);
	atomic_store(&test_vfs.is_lasting, is_full);
	atomic_store(&test_vfs.fail_in, is_full ? 1 : 0);
}

static void a_full_disk(void **state)
{
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	disk_is_full(true);
	call_echo(&x, c.sbx.id, "c", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_CAPACITY);
	assert_int_equal(fake.vms[0].n_execs, 0);
	disk_is_full(false);
	call_echo(&x, c.sbx.id, "c", 30000); /* the key was not burnt */
	env_settle();
	assert_int_equal(fake.vms[0].n_execs, 1);
	fake_started(0, 1);
	env_settle();
	disk_is_full(true);
	fake_end(0, GP_END_EXITED, 0, NULL);
	env_settle();
	assert_int_equal(x.n_answers, 0);
	disk_is_full(false);
	call_wait(&x); /* written a little later */
	assert_int_equal(x.cmd.status, CMD_SUCCEEDED);
	call_finish(&x);
}

/* ---- the pool ----------------------------------------------------------- */

static void one_that_waits_is_taken(void **state)
{
	const struct pool_want want = {"lbb/shell", {1, 1024, 4096}, 1};
	struct create_spec spec = held_spec("k", 30000);
	struct call c;

	(void)state;
	env_stop();
	env.cfg.pool_max = 1;
	env.cfg.pool_wants = &want;
	env.cfg.n_pool_wants = 1;
	env_start();
	while (!fake.n_vms)
		env_loop_for(POOL_REFILL_DELAY_MS);
	fake_waiting(0);
	call_create(&c, &spec);
	env_settle();
	assert_true(fake.vms[0].is_claimed);
	fake_bound(0);
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_RUNNING);
	assert_string_equal(c.sbx.id, fake.vms[0].spec.sandbox);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_deleted_one_cancels_its_commands),
		TEST(a_command_and_a_delete_at_once),
		TEST(a_lost_vm_loses_all),
		TEST(the_daemon_s_end_loses_it),
		TEST(a_one_call_sandbox_takes_no_command),
		TEST(a_full_disk),
		TEST(one_that_waits_is_taken),
	};

	test_vfs_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
