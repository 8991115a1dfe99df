/*
 * Held sandboxes that stop and go on (LBB-42, LBB-49, LBB-50, LBB-51, LBB-55,
 * LBB-65, LBB-66, LBB-68, LBB-69).
 */
#include "../store/test_vfs.h"
#include "engine_held_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void call_stop(struct call *c, const char *id)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(
		engine_sandbox_stop(env.e, &env.who, id, on_call_sandbox, c),
		0);
	c->is_inside = false;
}

static void call_resume(struct call *c, const char *id)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(
		engine_sandbox_resume(env.e, &env.who, id, on_call_sandbox, c),
		0);
	c->is_inside = false;
}

/* Made, running, stopped. */
static void begin_stopped(struct call *c, const char *key)
{
	int vm = fake.n_vms;
	struct call x;

	begin_held(c, key);
	call_stop(&x, c->sbx.id);
	env_settle();
	fake_stopped(vm, NULL);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_STOPPED);
}

static void one_stops_and_goes_on(void **state)
{
	struct engine_stats stats;
	struct call c, x, y, cmd;

	(void)state;
	begin_held(&c, "k");
	call_stop(&x, c.sbx.id);
	call_stop(&y, c.sbx.id);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 1);
	assert_int_equal(x.n_answers, 0);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPING);
	fake_stopped(0, NULL);
	assert_true(fake.vms[0].is_destroyed);
	call_wait(&x);
	call_wait(&y);
	assert_int_equal(x.sbx.status, SBX_STOPPED);
	assert_true(x.sbx.stopped_ms > 0);
	assert_int_equal(x.sbx.reason, END_NONE);
	engine_stats(env.e, &stats);
	assert_int_equal(stats.sandboxes_live, 0);
	/* As it is; and no command, which would have to resume it. */
	call_stop(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_STOPPED);
	call_echo(&cmd, c.sbx.id, "c", 0);
	call_wait(&cmd);
	assert_int_equal(cmd.err.code, ERR_NOT_RUNNING);
	assert_non_null(strstr(cmd.err.text, "resume"));
	call_resume(&x, c.sbx.id);
	call_resume(&y, c.sbx.id);
	env_settle();
	assert_int_equal(fake.n_vms, 2);
	assert_true(fake.vms[1].is_resumed);
	assert_string_equal(fake.vms[1].spec.sandbox, c.sbx.id);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STARTING);
	call_echo(&cmd, c.sbx.id, "c", 30000);
	env_settle();
	fake_bound(1);
	call_wait(&x);
	call_wait(&y);
	assert_int_equal(x.sbx.status, SBX_RUNNING);
	assert_int_equal(x.sbx.started_ms, c.sbx.started_ms);
	assert_int_equal(x.sbx.incarnation, 2);
	assert_int_equal(fake.vms[1].n_execs, 1);
	/* The guest knows the numbers of before. */
	assert_true(fake.vms[1].cmd > UINT32_MAX);
	fake_started(1, fake.vms[1].cmd);
	fake_end(1, GP_END_EXITED, 0, NULL);
	call_wait(&cmd);
	assert_int_equal(cmd.cmd.status, CMD_SUCCEEDED);
	call_finish(&cmd);
	call_resume(&x, c.sbx.id); /* it runs: as it is */
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_RUNNING);
	assert_int_equal(fake.n_vms, 2);
	call_delete(&x, c.sbx.id);
	call_wait(&x);
	env_settle();
	assert_string_equal(fake.removed, c.sbx.id);
	assert_true(list_is_empty(&env.e->boxes));
}

/* What the guest has is killed there, the rest is cancelled; VM last. */
static void commands_end_first(void **state)
{
	struct call c, x, cmds[3];

	(void)state;
	begin_held(&c, "k");
	for (int i = 0; i < 2; i++)
		call_echo(&cmds[i], c.sbx.id, i ? "b" : "a", 30000);
	env_settle();
	fake_started(0, 1);
	fake.run_rc = -ENOBUFS; /* the third waits */
	call_echo(&cmds[2], c.sbx.id, "c", 30000);
	env_settle();
	call_stop(&x, c.sbx.id);
	env_settle();
	assert_int_equal(fake.vms[0].n_kills, 2);
	assert_int_equal(fake.vms[0].n_stops, 0);
	call_wait(&cmds[2]);
	assert_int_equal(cmds[2].cmd.status, CMD_CANCELLED);
	assert_string_equal(cmds[2].cmd.reason_text, "the sandbox was stopped");
	fake_end_of(0, 1, GP_END_CANCELLED, 0, NULL);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 0);
	fake_end_of(0, 2, GP_END_CANCELLED, 0, NULL);
	env_settle();
	assert_int_equal(fake.vms[0].n_acks, 2);
	assert_int_equal(fake.vms[0].n_stops, 1);
	fake_stopped(0, NULL);
	call_wait(&x);
	for (int i = 0; i < 3; i++) {
		call_wait(&cmds[i]);
		assert_int_equal(cmds[i].cmd.status, CMD_CANCELLED);
		call_finish(&cmds[i]);
	}
}

static void a_command_and_a_stop_at_once(void **state)
{
	struct call c, x, cmd;

	(void)state;
	begin_held(&c, "k");
	call_echo(&cmd, c.sbx.id, "a", 30000);
	call_stop(&x, c.sbx.id); /* its record is on its way */
	call_wait(&cmd);
	assert_int_equal(cmd.cmd.status, CMD_CANCELLED);
	call_finish(&cmd);
	env_settle();
	assert_int_equal(fake.vms[0].n_execs, 0);
	fake_stopped(0, NULL);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_STOPPED);
}

static void what_cannot_stop_goes_on(void **state)
{
	struct call c, x, cmd;

	(void)state;
	begin_held(&c, "k");
	fake.stop_rc = -EAGAIN;
	call_stop(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_CAPACITY);
	fake.stop_rc = 0;
	call_stop(&x, c.sbx.id);
	env_settle();
	fake_stopped(0, "No space left on device");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_CAPACITY);
	assert_non_null(strstr(x.err.text, "No space"));
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_RUNNING);
	assert_int_equal(sandbox_now(c.sbx.id).reason, END_NONE);
	call_echo(&cmd, c.sbx.id, "a", 0);
	call_wait(&cmd);
	assert_int_equal(fake.vms[0].n_execs, 1);
	call_finish(&cmd);
}

static void what_cannot_go_on_stays_stopped(void **state)
{
	struct call c, x;

	(void)state;
	begin_stopped(&c, "k");
	fake.create_error = "no room";
	call_resume(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_UNAVAILABLE);
	fake.create_error = NULL;
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPED);
	call_resume(&x, c.sbx.id);
	env_settle();
	fake_gone(1, END_NOT_STARTED, "another host");
	call_wait(&x);
	assert_non_null(strstr(x.err.text, "another host"));
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPED);
	assert_string_equal(fake.removed, "");
	/* But one that may have run is lost. */
	call_resume(&x, c.sbx.id);
	env_settle();
	fake_gone(2, END_VM_LOST, "killed");
	env_settle();
	assert_int_equal(x.n_answers, 1); /* at once */
	assert_int_equal(x.sbx.status, SBX_LOST);
	env_settle();
	assert_string_equal(fake.removed, c.sbx.id);
}

static void a_stopped_one_holds_no_place(void **state)
{
	struct call c, x, more[5];
	char key[8];

	(void)state;
	begin_stopped(&c, "k");
	for (int i = 0; i < 5; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		begin_held(&more[i], key);
	}
	call_resume(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_LIMIT_REACHED);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPED);
	env.who.plan = PLAN_FREE; /* may stop, may not resume */
	call_resume(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_PLAN_UNAVAILABLE);
	call_stop(&x, more[0].sbx.id);
	env_settle();
	fake_stopped(1, NULL);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_STOPPED);
	env.who.plan = PLAN_FULL;
	call_resume(&x, c.sbx.id);
	env_settle();
	fake_bound(fake.n_vms - 1);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_RUNNING);
}

static void ends_of_all_kinds(void **state)
{
	struct create_spec spec = held_spec("s", 0);
	struct call c, x, y;

	(void)state;
	call_create(&c, &spec);
	call_wait(&c);
	call_stop(&x, c.sbx.id); /* it starts */
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NOT_RUNNING);
	fake_bound(0);
	env_settle();
	call_stop(&x, c.sbx.id);
	env_settle();
	call_resume(&y, c.sbx.id); /* it stops */
	call_wait(&y);
	assert_int_equal(y.err.code, ERR_NOT_RUNNING);
	call_delete(&y, c.sbx.id);
	call_wait(&y);
	call_wait(&x);
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_DESTROYED);
	call_stop(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NOT_RUNNING);
	call_resume(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NOT_RUNNING);
	call_stop(&x, "sbx_none");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_SANDBOX_NOT_FOUND);
	/* Deleted when it is stopped; its VM is lost while it stops. */
	begin_stopped(&c, "d");
	call_delete(&x, c.sbx.id);
	call_wait(&x);
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_DESTROYED);
	assert_string_equal(fake.removed, c.sbx.id);
	begin_held(&c, "l");
	call_stop(&x, c.sbx.id);
	env_settle();
	fake_gone(fake.n_vms - 1, END_VM_LOST, "killed");
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_LOST);
	/* A run in one call does not stop. */
	call_run(&c, "run", NULL, 0);
	call_wait(&c);
	call_stop(&x, c.sbx.id);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NOT_RUNNING);
	call_finish(&c);
}

/* LBB-49, LBB-51: a command that runs is activity, and so is its end. */
static void an_idle_one_is_stopped(void **state)
{
	struct call c, cmd;

	(void)state;
	begin_held(&c, "k");
	env_pass(299000);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 0);
	call_echo(&cmd, c.sbx.id, "a", 0);
	call_wait(&cmd);
	fake_started(0, 1);
	env_pass(1000000);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 0);
	fake_end(0, GP_END_EXITED, 0, NULL);
	env_pass(1000000 + 299000);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 0);
	env_pass(1000000 + 301000);
	env_settle();
	assert_int_equal(fake.vms[0].n_stops, 1);
	fake_stopped(0, NULL);
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPED);
	call_finish(&cmd);
	/* LBB-50: it expires as if it ran. */
	env_pass(3601000);
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_DESTROYED);
	assert_int_equal(sandbox_now(c.sbx.id).reason, END_TIMEOUT);
	assert_string_equal(fake.removed, c.sbx.id);
}

static void a_restart_finds_what_was_stopped(void **state)
{
	struct call c, other, x;

	(void)state;
	begin_stopped(&c, "k");
	begin_held(&other, "o"); /* runs: lost */
	env_stop();
	memcpy(fake.asked, c.sbx.id, sizeof(fake.asked));
	env_start();
	env_settle();
	assert_int_equal(fake.n_sweeps, 2);
	assert_true(fake.is_last_kept);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPED);
	assert_int_equal(sandbox_now(other.sbx.id).status, SBX_LOST);
	call_resume(&x, c.sbx.id);
	env_settle();
	fake_bound(fake.n_vms - 1);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_RUNNING);
	/* It runs now: the next restart loses it, and its files go. */
	env_stop();
	env_start();
	env_settle();
	assert_false(fake.is_last_kept);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_LOST);
	/* Without its files it is lost. */
	begin_stopped(&c, "k2");
	env_stop();
	fake.are_files_gone = true;
	env_start();
	env_settle();
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_LOST);
	assert_int_equal(sandbox_now(c.sbx.id).reason, END_VM_LOST);
}

/* Nothing runs on before that it does is on the disk. */
static void a_full_disk(void **state)
{
	struct call c, x;

	(void)state;
	begin_stopped(&c, "k");
	atomic_store(&test_vfs.code, SQLITE_FULL);
	atomic_store(&test_vfs.is_lasting, true);
	atomic_store(&test_vfs.fail_in, 1);
	call_resume(&x, c.sbx.id);
	env_settle();
	assert_int_equal(fake.n_vms, 1);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_STOPPED);
	atomic_store(&test_vfs.is_lasting, false);
	atomic_store(&test_vfs.fail_in, 0);
	while (fake.n_vms == 1)
		env_loop_for(100);
	fake_bound(1);
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_RUNNING);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_stops_and_goes_on),
		TEST(commands_end_first),
		TEST(a_command_and_a_stop_at_once),
		TEST(what_cannot_stop_goes_on),
		TEST(what_cannot_go_on_stays_stopped),
		TEST(a_stopped_one_holds_no_place),
		TEST(ends_of_all_kinds),
		TEST(an_idle_one_is_stopped),
		TEST(a_restart_finds_what_was_stopped),
		TEST(a_full_disk),
	};

	test_vfs_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
