/*
 * Files of the graph that a sandbox begins with (LBB-71): there before anything
 * runs, or the sandbox does not come to be.
 */
#include "engine_graph_file_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static struct seed seeds[2];

/* Two Files, to be found by hash and by id. */
static void prepare(void)
{
	struct err e;

	memset(seeds, 0, sizeof(seeds));
	memcpy(seeds[0].file.sha256, uploaded("a", "abc"), HASH_BYTES);
	memcpy(seeds[1].file.sha256, uploaded("b", "defg"), HASH_BYTES);
	assert_int_equal(file_path_clean("in/a", 4, &seeds[0].path, &e), 0);
	assert_int_equal(file_path_clean("b", 1, &seeds[1].path, &e), 0);
}

static struct create_spec spec_of(const char *key)
{
	struct create_spec s = held_spec(key, 30000);

	s.seeds = seeds;
	s.n_seeds = 2;
	return s;
}

static struct run_spec run_of(const char *key)
{
	struct run_spec s = sum_spec(key, 30000);

	s.seeds = seeds;
	s.n_seeds = 2;
	return s;
}

/* What the guest of VM i gets. */
static void both(int i)
{
	struct vm *vm = &fake.vms[i];

	assert_string_equal(vm->file_path, "in/a");
	assert_int_equal(vm->file.more, 3);
	guest_wants(i, 3);
	guest_done(i, GP_FILE_OK);
	assert_string_equal(vm->file_path, "b");
	guest_wants(i, 4);
	guest_done(i, GP_FILE_OK);
	assert_int_equal(vm->file_bytes.len, 7);
	assert_memory_equal(vm->file_bytes.data, "abcdefg", 7);
}

static void held(void **state)
{
	struct create_spec spec;
	struct call c, cmd;

	(void)state;
	prepare();
	spec = spec_of("k");
	call_create(&c, &spec);
	env_settle();
	assert_int_equal(fake.n_vms, 1);
	/* Deleted from now on: it was opened. */
	graph_delete(seeds[1].file.sha256, ERR_NONE);
	fake_bound(0);
	env_settle();
	assert_int_equal(c.n_answers, 0);
	/* A command waits for it, too. */
	call_echo(&cmd, fake.vms[0].spec.sandbox, "c", 0);
	call_wait(&cmd);
	assert_int_equal(cmd.cmd.status, CMD_QUEUED);
	call_finish(&cmd);
	assert_int_equal(fake.vms[0].n_execs, 0);
	assert_int_equal(sandbox_now(fake.vms[0].spec.sandbox).status,
			 SBX_STARTING);
	both(0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(c.sbx.status, SBX_RUNNING);
	env_settle();
	assert_int_equal(fake.vms[0].n_execs, 1);
	/* The same key, though a File is gone. */
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	env_stop();
	env_start();
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(c.sbx.status, SBX_LOST);
}

static void one_call(void **state)
{
	struct run_spec spec;
	struct call c;

	(void)state;
	prepare();
	spec = run_of("k");
	call_run(&c, "k", &spec, 30000);
	env_settle();
	assert_int_equal(fake.vms[0].n_runs, 0);
	fake.vms[0].ops->bound(fake.vms[0].ctx);
	assert_int_equal(fake.vms[0].n_runs, 0);
	both(0);
	assert_int_equal(fake.vms[0].n_runs, 1);
	fake_started(0, 1);
	fake_end(0, GP_END_EXITED, 0, "6");
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_int_equal(c.cmd.status, CMD_SUCCEEDED);
	call_finish(&c);
}

static void not_there(void **state)
{
	struct create_spec spec;
	struct call c;

	(void)state;
	prepare();
	seeds[1].file.sha256[0] ^= 1;
	spec = spec_of("k");
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_GRAPH_FILE_NOT_FOUND);
	assert_string_equal(c.err.param, "files[1].sha256");
	snprintf(seeds[0].file.id, sizeof(seeds[0].file.id), "fil_none");
	call_create(&c, &spec);
	call_wait(&c);
	assert_string_equal(c.err.param, "files[0].id");
	assert_non_null(strstr(c.err.text, "fil_none"));
	assert_int_equal(fake.n_vms, 0);
	/* The key was not burnt, and no place is held. */
	seeds[0].file.id[0] = 0;
	seeds[1].file.sha256[0] ^= 1;
	call_create(&c, &spec);
	env_settle();
	fake_bound(0);
	both(0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
}

static void cannot(void **state)
{
	struct create_spec spec;
	struct run_spec run;
	struct call c, gone, last;

	(void)state;
	prepare();
	spec = spec_of("k");
	call_create(&c, &spec);
	env_settle();
	fake_bound(0);
	guest_wants(0, 3);
	guest_done(0, GP_FILE_OK);
	guest_done(0, GP_FILE_FULL);
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_FAILED);
	assert_non_null(strstr(c.sbx.reason_text, "files[1]"));
	assert_non_null(strstr(c.sbx.reason_text, "/workspace/b"));
	env_settle();
	assert_true(fake.vms[0].is_destroyed);
	/* A run fails with it, and no code ran. */
	run = run_of("r");
	call_run(&c, "r", &run, 30000);
	env_settle();
	fake.vms[1].ops->bound(fake.vms[1].ctx);
	guest_done(1, GP_FILE_OUTSIDE);
	call_wait(&c);
	assert_int_equal(c.cmd.status, CMD_FAILED);
	assert_int_equal(c.sbx.status, SBX_FAILED);
	assert_int_equal(fake.vms[1].n_runs, 0);
	call_finish(&c);
	/* Its VM dies; it is deleted; the daemon ends: in the middle. */
	spec.key = "k2";
	call_create(&c, &spec);
	env_settle();
	fake_bound(2);
	fake_gone(2, END_VM_LOST, "killed");
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_LOST);
	spec.key = "k3";
	call_create(&c, &spec);
	env_settle();
	fake_bound(3);
	fake.vms[3].awaited = 3;
	fake.vms[3].ops->file_more(fake.vms[3].ctx, fake.vms[3].file_number, 3);
	call_delete(&gone, fake.vms[3].spec.sandbox);
	call_wait(&gone);
	call_wait(&c);
	assert_true(c.sbx.status >= SBX_DESTROYING);
	env_settle();
	spec.key = "k4";
	call_create(&last, &spec);
	env_settle();
	fake_bound(4);
	fake.vms[4].awaited = 3;
	fake.vms[4].ops->file_more(fake.vms[4].ctx, fake.vms[4].file_number, 3);
	env_stop();
	assert_int_equal(last.err.code, ERR_UNAVAILABLE);
	env_start();
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)
	const struct CMUnitTest tests[] = {
		TEST(held),
		TEST(one_call),
		TEST(not_there),
		TEST(cannot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
