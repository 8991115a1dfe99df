/*
 * Held sandboxes and the commands in them, until they end (LBB-20 to LBB-27,
 * LBB-50, LBB-61, LBB-68, LBB-120, LBB-121, LBB-130, LBB-131, LBB-137).
 */
#include "engine_held_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define RUN_MAX	 ENGINE_COMMANDS_RUNNING_MAX
#define WAIT_MAX ENGINE_COMMANDS_WAITING_MAX

static const char *const echo[] = {"echo", "hello", NULL};

/* ---- sandboxes --------------------------------------------------------- */

static void one_is_made_and_held(void **state)
{
	struct create_spec spec = held_spec("k", 0);
	struct call c, again, waits, other;
	struct engine_stats stats;

	(void)state;
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_STARTING);
	assert_int_equal(c.sbx.kind, SBX_KIND_HELD);
	assert_string_equal(c.sbx.command, "");
	assert_int_equal(c.sbx.idle_seconds, 300);
	assert_int_equal(c.sbx.expires_in_seconds, 3600);
	assert_int_equal(c.sbx.expires_ms - c.sbx.created_ms, 3600000);
	spec.wait_ms = 30000;
	call_create(&waits, &spec);
	env_settle();
	assert_int_equal(waits.n_answers, 0);
	assert_int_equal(fake.n_vms, 1);
	fake_bound(0);
	call_wait(&waits);
	assert_int_equal(waits.sbx.status, SBX_RUNNING);
	assert_string_equal(waits.sbx.id, c.sbx.id);
	assert_true(waits.sbx.started_ms > 0);
	/* The key's request was another: also a run with it conflicts. */
	spec.request_hash[0] = 8;
	call_create(&other, &spec);
	call_wait(&other);
	assert_int_equal(other.err.code, ERR_KEY_CONFLICT);
	call_run(&other, "k", NULL, 0);
	call_wait(&other);
	assert_int_equal(other.err.code, ERR_KEY_CONFLICT);
	engine_stats(env.e, &stats);
	assert_int_equal(stats.sandboxes_live, 1);
	assert_int_equal(stats.commands_live, 0);
	/* When it is over, the key finds its record. */
	call_delete(&other, c.sbx.id);
	call_wait(&other);
	env_settle();
	assert_true(list_is_empty(&env.e->boxes));
	spec = held_spec("k", 0);
	call_create(&again, &spec);
	call_wait(&again);
	assert_string_equal(again.sbx.id, c.sbx.id);
	assert_int_equal(again.sbx.status, SBX_DESTROYED);
	assert_int_equal(fake.n_vms, 1);
	env_settle();
	assert_true(list_is_empty(&env.e->boxes));
}

static void limits_are_checked(void **state)
{
	struct create_spec spec = held_spec("k", 0);
	struct call c;
	static const struct {
		uint32_t idle, expires, vcpus, wait_ms;
		const char *param;
	} bad[] = {
		{29, 0, 0, 0, "idle_seconds"},
		{3601, 0, 0, 0, "idle_seconds"},
		{0, 59, 0, 0, "expires_in_seconds"},
		{0, 604801, 0, 0, "expires_in_seconds"},
		{0, 0, 5, 0, "limits.vcpus"},
		{0, 0, 0, 30001, "wait_ms"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		spec.idle_seconds = bad[i].idle;
		spec.expires_in_seconds = bad[i].expires;
		spec.limits.vcpus = bad[i].vcpus;
		spec.wait_ms = bad[i].wait_ms;
		call_create(&c, &spec);
		call_wait(&c);
		assert_string_equal(c.err.param, bad[i].param);
	}
	spec = held_spec("k", 0);
	spec.template_name = "lbb/cobol";
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_TEMPLATE_NOT_FOUND);
	assert_int_equal(fake.n_vms, 0);
	assert_true(list_is_empty(&env.e->boxes));
}

static void places_are_counted(void **state)
{
	struct create_spec spec;
	struct call c[6];
	char key[8];

	(void)state;
	for (int i = 0; i < 5; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		begin_held(&c[i], key);
	}
	spec = held_spec("full", 0);
	call_create(&c[5], &spec);
	call_wait(&c[5]);
	assert_int_equal(c[5].err.code, ERR_LIMIT_REACHED);
	/* A key that is known is answered however full it is. */
	spec = held_spec("k3", 0);
	call_create(&c[5], &spec);
	call_wait(&c[5]);
	assert_string_equal(c[5].sbx.id, c[3].sbx.id);
	/* The refused key is not burnt. */
	call_delete(&c[5], c[0].sbx.id);
	call_wait(&c[5]);
	env_settle();
	begin_held(&c[5], "full");
}

static void one_that_cannot_start(void **state)
{
	struct create_spec spec = held_spec("k", 30000);
	struct call c, cmd;

	(void)state;
	call_create(&c, &spec);
	env_settle();
	call_echo(&cmd, fake.vms[0].spec.sandbox, "c", 30000);
	env_settle();
	assert_int_equal(fake.vms[0].n_execs, 0); /* it waits for the start */
	fake_gone(0, END_PREPARE_FAILED, "no image");
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_FAILED);
	assert_string_equal(c.sbx.reason_text, "no image");
	call_wait(&cmd);
	assert_int_equal(cmd.cmd.status, CMD_FAILED);
	call_finish(&cmd);
	env_settle();
	assert_true(list_is_empty(&env.e->boxes));
	fake.create_error = "no memory for it";
	spec.key = "k2";
	call_create(&c, &spec);
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_FAILED);
}

static void an_expired_one_is_destroyed(void **state)
{
	struct call c, cmd;

	(void)state;
	begin_held(&c, "k");
	call_echo(&cmd, c.sbx.id, "c", 30000);
	env_settle();
	fake_started(0, 1);
	env_pass(3600 * 1000 + 1000);
	call_wait(&cmd); /* its wait is over, too: whichever was first */
	env_settle();
	assert_int_equal(command_now(cmd.cmd.id), CMD_CANCELLED);
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_DESTROYED);
	assert_int_equal(sandbox_now(c.sbx.id).reason, END_TIMEOUT);
	call_finish(&cmd);
}

/* ---- commands ---------------------------------------------------------- */

static void a_command_runs(void **state)
{
	static const char *const common[] = {"A=box", "B=box", NULL};
	static const char *const own[] = {"B=own", "C=own", NULL};
	struct create_spec spec = held_spec("k", 0);
	struct command_spec cmd = {.key = "c",
				   .request_hash = {9},
				   .argv = echo,
				   .env = own,
				   .stdin_data = "abc",
				   .stdin_len = 3,
				   .wait_ms = 30000};
	char id[ID_BYTES_MAX];
	struct call c, x, y;

	(void)state;
	spec.env = common;
	call_create(&c, &spec);
	call_wait(&c);
	cmd.sandbox = c.sbx.id;
	call_command(&x, &cmd);
	call_command(&y, &cmd); /* the same key: the same command */
	env_settle();
	assert_int_equal(fake.vms[0].n_execs, 0);
	fake_bound(0);
	assert_int_equal(fake.vms[0].n_execs, 1);
	assert_memory_equal(fake.vms[0].argv.data, "echo\0hello", 11);
	assert_memory_equal(fake.vms[0].env.data, "A=box\0B=own\0C=own", 18);
	assert_int_equal(fake.vms[0].timeout_ms, 60000);
	env_settle();
	assert_int_equal(x.n_answers, 0);
	fake_started(0, 1);
	fake_output(0, 0, "hello\n");
	fake_end(0, GP_END_EXITED, 0, NULL);
	call_wait(&x);
	call_wait(&y);
	assert_string_equal(x.cmd.id, y.cmd.id);
	assert_int_equal(x.cmd.status, CMD_SUCCEEDED);
	assert_int_equal(x.cmd.kind, CMD_KIND_EXEC);
	assert_int_equal(x.cmd.exit_code, 0);
	assert_int_equal(x.cmd.stdin_bytes, 3);
	assert_memory_equal(x.cmd.argv.data, "echo\0hello", 11);
	assert_memory_equal(x.cmd.env_names.data, "A\0B\0C", 6);
	assert_memory_equal(x.cmd.out[0].head.data, "hello\n", 6);
	/* The output of a program is no result, though it may look like one. */
	assert_false(x.cmd.has_result);
	memcpy(id, x.cmd.id, sizeof(id));
	call_finish(&x);
	call_finish(&y);
	env_settle();
	/* It is held on, and a command that is over is not kept in memory. */
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_RUNNING);
	assert_int_equal(fake.vms[0].n_acks, 1);
	assert_true(list_is_empty(
		&container_of(env.e->boxes.next, struct box, node)->cmds));
	call_command(&x, &cmd);
	call_wait(&x);
	assert_string_equal(x.cmd.id, id);
	assert_int_equal(fake.vms[0].n_execs, 1);
	call_finish(&x);
	cmd.request_hash[0] = 10;
	call_command(&x, &cmd);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_KEY_CONFLICT);
}

static void code_runs_and_has_a_result(void **state)
{
	struct command_spec cmd = {.key = "c",
				   .code = "echo 1",
				   .code_len = 6,
				   .input = "[1]",
				   .input_len = 3,
				   .wait_ms = 30000};
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	cmd.sandbox = c.sbx.id;
	for (int i = 0; i < 2; i++) { /* one after the other, in one sandbox */
		cmd.key = i ? "c1" : "c0";
		call_command(&x, &cmd);
		env_settle();
		assert_int_equal(fake.vms[0].n_runs, i + 1);
		fake_started(0, fake.vms[0].cmd);
		fake_output(0, 0, "[2, 3]\n");
		fake_end(0, GP_END_EXITED, 0, NULL);
		call_wait(&x);
		assert_int_equal(x.cmd.kind, CMD_KIND_RUN);
		assert_int_equal(x.cmd.status, CMD_SUCCEEDED);
		assert_memory_equal(x.cmd.result.data, "[2, 3]", 6);
		call_finish(&x);
	}
}

/* LBB-138: as of a one-call run; the sandbox goes on. */
static void a_large_result_is_refused(void **state)
{
	char *big = malloc(GP_RESULT_BYTES_MAX + 2);
	struct command_spec cmd = {
		.code = "echo 1", .code_len = 6, .wait_ms = 30000};
	struct call c, x;

	(void)state;
	assert_non_null(big);
	memset(big, '1', GP_RESULT_BYTES_MAX + 1);
	begin_held(&c, "k");
	cmd.sandbox = c.sbx.id;
	for (int over = 0; over < 2; over++) {
		big[GP_RESULT_BYTES_MAX + over] = 0;
		cmd.key = over ? "c1" : "c0";
		call_command(&x, &cmd);
		env_settle();
		fake_started(0, fake.vms[0].cmd);
		fake_end(0, GP_END_EXITED, 0, big);
		call_wait(&x);
		assert_int_equal(x.cmd.status,
				 over ? CMD_FAILED : CMD_SUCCEEDED);
		assert_int_equal(x.cmd.has_result, !over);
		assert_int_equal(x.cmd.result.len,
				 over ? 0 : GP_RESULT_BYTES_MAX);
		big[GP_RESULT_BYTES_MAX] = '1';
		call_finish(&x);
	}
	assert_int_equal(sandbox_now(c.sbx.id).status, SBX_RUNNING);
	free(big);
}

/* Eight run, 32 wait in their order, the 41st is refused (LBB-130, 131). */
static void the_queue_is_in_order_and_bounded(void **state)
{
	static struct call cmds[RUN_MAX + WAIT_MAX];
	struct call c, x;
	char key[16];

	(void)state;
	begin_held(&c, "k");
	for (int i = 0; i < RUN_MAX + WAIT_MAX; i++) {
		snprintf(key, sizeof(key), "c%d", i);
		call_echo(&cmds[i], c.sbx.id, key, 0);
		call_wait(&cmds[i]);
		assert_int_equal(cmds[i].cmd.status, CMD_QUEUED);
	}
	assert_int_equal(fake.vms[0].n_execs, RUN_MAX);
	call_echo(&x, c.sbx.id, "more", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_LIMIT_REACHED);
	assert_true(x.err.retry_after_s > 0);
	call_echo(&x, c.sbx.id, "c39", 0); /* but not one that is known */
	call_wait(&x);
	assert_string_equal(x.cmd.id, cmds[39].cmd.id);
	call_finish(&x);
	/* One that waits is cancelled without a word to the guest. */
	call_cancel(&x, cmds[RUN_MAX].cmd.id);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_CANCELLED);
	assert_int_equal(fake.vms[0].n_kills, 0);
	call_finish(&x);
	/* Waiting is not running: no time-out ends what waits (LBB-131). */
	env_pass(120000);
	env_settle();
	assert_int_equal(command_now(cmds[RUN_MAX + 1].cmd.id), CMD_QUEUED);
	/* The third ends: the tenth is next, with the whole of its time. */
	fake_started(0, 3);
	fake_end_of(0, 3, GP_END_EXITED, 1, NULL);
	assert_int_equal(fake.vms[0].n_execs, RUN_MAX + 1);
	assert_int_equal(fake.vms[0].timeout_ms, 60000);
	fake_started(0, RUN_MAX + 1);
	env_settle();
	assert_int_equal(command_now(cmds[2].cmd.id), CMD_FAILED);
	assert_int_equal(command_now(cmds[RUN_MAX + 1].cmd.id), CMD_RUNNING);
	assert_int_equal(command_now(cmds[RUN_MAX + 2].cmd.id), CMD_QUEUED);
	/* Two places in the queue are free again, no more. */
	call_echo(&x, c.sbx.id, "more", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NONE);
	call_finish(&x);
	call_echo(&x, c.sbx.id, "more2", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NONE);
	call_finish(&x);
	call_echo(&x, c.sbx.id, "more3", 0);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_LIMIT_REACHED);
	for (int i = 0; i < RUN_MAX + WAIT_MAX; i++)
		call_finish(&cmds[i]);
}

static void what_waits_is_bounded_in_bytes(void **state)
{
	static char stdin_data[ENGINE_STDIN_BYTES_MAX];
	struct command_spec cmd = {.argv = echo,
				   .stdin_data = stdin_data,
				   .stdin_len = sizeof(stdin_data)};
	struct create_spec spec = held_spec("k", 0);
	struct call c, x;
	char key[16];
	int n = 0;

	(void)state;
	call_create(&c, &spec);
	call_wait(&c);
	cmd.sandbox = c.sbx.id;
	cmd.key = key;
	do {
		snprintf(key, sizeof(key), "c%d", n++);
		call_command(&x, &cmd);
		call_wait(&x);
		call_finish(&x);
	} while (!x.err.code);
	assert_int_equal(x.err.code, ERR_LIMIT_REACHED);
	assert_int_equal(n, 16);
	fake_bound(0); /* the guest has them */
	call_command(&x, &cmd);
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_NONE);
	call_finish(&x);
}

/* A channel that is full is asked again, and nothing is lost meanwhile. */
static void a_busy_channel_is_asked_again(void **state)
{
	struct call c, x;

	(void)state;
	begin_held(&c, "k");
	fake.run_rc = -ENOBUFS;
	call_echo(&x, c.sbx.id, "c", 30000);
	env_settle();
	env_loop_for(ENGINE_GIVE_AGAIN_MS * 2);
	assert_int_equal(fake.vms[0].n_execs, 0);
	fake.run_rc = 0;
	env_loop_for(ENGINE_GIVE_AGAIN_MS * 2);
	assert_int_equal(fake.vms[0].n_execs, 1);
	fake_started(0, 1);
	fake_end(0, GP_END_EXITED, 0, NULL);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_SUCCEEDED);
	call_finish(&x);
	fake.run_rc = -EMSGSIZE;
	call_echo(&x, c.sbx.id, "c2", 30000);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_FAILED);
	assert_int_equal(x.cmd.reason, END_NOT_STARTED);
	call_finish(&x);
}

static void ends_before_the_start(void **state)
{
	struct call c, x, y;
	struct box *b;

	(void)state;
	begin_held(&c, "k");
	call_echo(&x, c.sbx.id, "c", 30000);
	env_settle();
	fake_end(0, GP_END_EXITED, 0, NULL); /* not without a start */
	env_settle();
	assert_int_equal(x.n_answers, 0);
	fake_end(0, GP_END_NOT_STARTED, 0, NULL);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_FAILED);
	assert_int_equal(x.cmd.reason, END_NOT_STARTED);
	assert_int_equal(x.cmd.exit_code, -1);
	call_finish(&x);
	call_echo(&x, c.sbx.id, "c2", 30000);
	env_settle();
	b = container_of(env.e->boxes.next, struct box, node);
	call_cancel(&y, cmd_by_number(b, 2)->rec.id);
	env_settle();
	assert_int_equal(fake.vms[0].killed, 2);
	fake_end(0, GP_END_CANCELLED, 0, NULL);
	call_wait(&x);
	call_wait(&y);
	assert_int_equal(x.cmd.status, CMD_CANCELLED);
	assert_int_equal(x.cmd.started_ms, 0);
	call_finish(&x);
	call_finish(&y);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_is_made_and_held),
		TEST(limits_are_checked),
		TEST(places_are_counted),
		TEST(one_that_cannot_start),
		TEST(an_expired_one_is_destroyed),
		TEST(a_command_runs),
		TEST(code_runs_and_has_a_result),
		TEST(a_large_result_is_refused),
		TEST(the_queue_is_in_order_and_bounded),
		TEST(what_waits_is_bounded_in_bytes),
		TEST(a_busy_channel_is_asked_again),
		TEST(ends_before_the_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
