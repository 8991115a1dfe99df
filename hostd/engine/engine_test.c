/* A run from the call to the record, its ends, and what is refused. */
#include "engine_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void the_sum(void **state)
{
	struct call c;

	(void)state;
	call_run(&c, "sum-a", NULL, 30000);
	assert_int_equal(fake.n_vms, 0); /* records first */
	env_settle();
	assert_int_equal(c.n_answers, 0);
	assert_int_equal(fake.n_vms, 1);
	assert_int_equal(fake.vms[0].n_runs, 1);
	assert_memory_equal(fake.vms[0].input.data, "[1, 2, 3]", 9);
	assert_int_equal(fake.vms[0].timeout_ms, 60000);
	assert_int_equal(fake.vms[0].spec.limits.memory_mib, 1024);
	fake_bound(0);
	fake_output(0, 0, "printed\n");
	env_settle();
	assert_int_equal(c.n_answers, 0);
	fake_end(0, GP_END_EXITED, 0, "6");
	assert_int_equal(c.n_answers, 0); /* not before it is on disk */
	assert_int_equal(fake.vms[0].n_acks, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	assert_memory_equal(c.cmd.result.data, "6", 1);
	assert_int_equal(c.cmd.status, CMD_SUCCEEDED);
	assert_int_equal(c.cmd.exit_code, 0);
	assert_int_equal(c.sbx.status, SBX_DESTROYING);
	assert_memory_equal(c.cmd.out[0].head.data, "printed\n", 8);
	assert_int_equal(strncmp(c.sbx.id, "sbx_n001", 8), 0);
	assert_int_equal(strlen(c.cmd.id), 30);
	assert_int_equal(c.sbx.image_sha256[0], 0x11);
	env_settle();
	assert_int_equal(fake.vms[0].n_acks, 1);
	assert_true(fake.vms[0].is_destroyed);
	assert_true(list_is_empty(&env.e->boxes)); /* nothing stays behind */
	call_finish(&c);
}

static void the_record_stays(void **state)
{
	struct call c, again = {0};
	char id[ID_BYTES_MAX];

	(void)state;
	run_through(&c, "k");
	memcpy(id, c.cmd.id, sizeof(id));
	env_settle();
	call_get(&again, id, 30000);
	call_wait(&again);
	assert_int_equal(again.sbx.status, SBX_DESTROYED);
	assert_int_equal(again.cmd.status, CMD_SUCCEEDED);
	assert_memory_equal(again.cmd.result.data, "6", 1);
	assert_true(again.sbx.created_ms <= again.sbx.started_ms);
	assert_true(again.sbx.started_ms <= again.sbx.ended_ms);
	call_finish(&again);
	/* Another graph does not see it. */
	env.who.graph = "other";
	call_get(&again, id, 0);
	call_wait(&again);
	assert_int_equal(again.err.code, ERR_COMMAND_NOT_FOUND);
	env.who.graph = "main";
	call_finish(&again);
	call_finish(&c);
}

static void not_waiting_answers_at_once(void **state)
{
	struct call c, poll, poll2;

	(void)state;
	call_run(&c, "k", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.cmd.status, CMD_QUEUED);
	assert_int_equal(c.sbx.status, SBX_STARTING);
	/* Two long polls, one that is over before. */
	call_get(&poll, c.cmd.id, 30000);
	env_settle();
	fake_bound(0);
	env_settle();
	call_get(&poll2, c.cmd.id, 20);
	call_wait(&poll2);
	assert_int_equal(poll2.cmd.status, CMD_RUNNING);
	assert_int_equal(poll.n_answers, 0);
	fake_end(0, GP_END_EXITED, 3, NULL);
	call_wait(&poll);
	assert_int_equal(poll.cmd.status, CMD_FAILED);
	assert_int_equal(poll.cmd.exit_code, 3);
	assert_int_equal(poll.cmd.reason, END_EXIT_CODE);
	call_finish(&c);
	call_finish(&poll);
	call_finish(&poll2);
}

static void progress_is_shown(void **state)
{
	struct call c, get;

	(void)state;
	call_run(&c, "k", NULL, 0);
	call_wait(&c);
	fake.vms[0].ops->progress(fake.vms[0].ctx, "booting lbb/python\n");
	call_get(&get, c.cmd.id, 0);
	call_wait(&get);
	assert_string_equal(get.sbx.progress, "booting lbb/python\\x0a");
	call_finish(&get);
	call_finish(&c);
}

/* ---- ends
 * ------------------------------------------------------------------------ */

static void every_end_has_its_words(void **state)
{
	static const struct {
		enum gp_end how;
		int code;
		enum command_status status;
		enum end_reason reason;
		int exit_code, signal;
	} rows[] = {
		{GP_END_EXITED, 0, CMD_SUCCEEDED, END_NONE, 0, 0},
		{GP_END_EXITED, 1, CMD_FAILED, END_EXIT_CODE, 1, 0},
		{GP_END_SIGNALED, 11, CMD_FAILED, END_SIGNAL, -1, 11},
		{GP_END_TIMED_OUT, 0, CMD_TIMED_OUT, END_TIMEOUT, -1, 0},
		{GP_END_CANCELLED, 0, CMD_CANCELLED, END_CANCELLED, -1, 0},
		{GP_END_OOM, 0, CMD_FAILED, END_OOM, -1, 0},
		{GP_END_NOT_STARTED, 0, CMD_FAILED, END_NOT_STARTED, -1, 0},
		{GP_END_RESULT_TOO_LARGE, 0, CMD_FAILED, END_RESULT_TOO_LARGE,
		 1, 0},
		{GP_END_RESULT_NOT_JSON, 0, CMD_FAILED, END_RESULT_NOT_JSON, 1,
		 0},
		{0, 0, CMD_LOST, END_GUEST_PROTOCOL, -1, 0},
		{99, 0, CMD_LOST, END_GUEST_PROTOCOL, -1, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct call c;
		char key[8];

		snprintf(key, sizeof(key), "k%zu", i);
		call_run(&c, key, NULL, 30000);
		env_settle();
		fake_bound((int)i);
		fake_end((int)i, rows[i].how, rows[i].code, NULL);
		call_wait(&c);
		assert_int_equal(c.cmd.status, rows[i].status);
		assert_int_equal(c.cmd.reason, rows[i].reason);
		assert_int_equal(c.cmd.exit_code, rows[i].exit_code);
		assert_int_equal(c.cmd.signal, rows[i].signal);
		assert_false(c.cmd.has_result);
		call_finish(&c);
		env_settle();
		assert_true(list_is_empty(&env.e->boxes));
	}
}

static void the_first_end_counts(void **state)
{
	struct call c;

	(void)state;
	fake.is_slow_to_go = true;
	call_run(&c, "k", NULL, 30000);
	env_settle();
	fake_end(0, GP_END_EXITED, 0, "1"); /* before it is bound */
	env_settle();
	assert_int_equal(c.n_answers, 0);
	fake_bound(0);
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 1, NULL);
	fake_end(0, GP_END_EXITED, 0, "2");
	fake_output(0, 0, "late");
	call_wait(&c);
	assert_int_equal(c.cmd.exit_code, 1);
	assert_int_equal(c.cmd.out[0].total, 0);
	fake_gone(0, END_VM_LOST, "whatever it says now");
	env_settle();
	call_finish(&c);
	assert_true(list_is_empty(&env.e->boxes));
}

static void a_large_result_is_refused(void **state)
{
	char *big = malloc(GP_RESULT_BYTES_MAX + 2);
	struct call c;

	(void)state;
	memset(big, '1', GP_RESULT_BYTES_MAX + 1);
	for (int over = 0; over < 2; over++) {
		big[GP_RESULT_BYTES_MAX + over] = 0;
		call_run(&c, over ? "k1" : "k0", NULL, 30000);
		env_settle();
		fake_bound(over);
		fake_end(over, GP_END_EXITED, 0, big);
		call_wait(&c);
		assert_int_equal(c.cmd.status,
				 over ? CMD_FAILED : CMD_SUCCEEDED);
		assert_int_equal(c.cmd.has_result, !over);
		assert_int_equal(c.cmd.result.len,
				 over ? 0 : GP_RESULT_BYTES_MAX);
		big[GP_RESULT_BYTES_MAX] = '1';
		call_finish(&c);
		env_settle();
	}
	free(big);
}

static void a_lost_vm_is_never_success(void **state)
{
	static const struct {
		bool is_bound;
		enum end_reason why;
		enum sandbox_status sbx;
		enum command_status cmd;
	} rows[] = {
		{false, END_PREPARE_FAILED, SBX_FAILED, CMD_FAILED},
		{false, END_NOT_STARTED, SBX_FAILED, CMD_FAILED},
		{false, END_VM_LOST, SBX_LOST, CMD_LOST},
		{true, END_VM_LOST, SBX_LOST, CMD_LOST},
		{true, END_GUEST_PROTOCOL, SBX_LOST, CMD_LOST},
		{true, END_NONE, SBX_LOST, CMD_LOST},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct call c;
		char key[8];

		snprintf(key, sizeof(key), "k%zu", i);
		call_run(&c, key, NULL, 30000);
		env_settle();
		if (rows[i].is_bound) {
			fake_bound((int)i);
			fake_output((int)i, 1, "half a line");
		}
		fake_gone((int)i, rows[i].why, "killed by signal 9");
		call_wait(&c);
		assert_int_equal(c.sbx.status, rows[i].sbx);
		assert_int_equal(c.cmd.status, rows[i].cmd);
		assert_int_equal(c.cmd.reason,
				 rows[i].why ? rows[i].why : END_VM_LOST);
		assert_string_equal(c.cmd.reason_text, "killed by signal 9");
		assert_int_equal(c.cmd.exit_code, -1);
		if (rows[i].is_bound)
			assert_int_equal(c.cmd.out[1].head.len, 11);
		call_finish(&c);
		env_settle();
		assert_true(list_is_empty(&env.e->boxes));
	}
}

static void what_cannot_start_fails(void **state)
{
	struct call c;

	(void)state;
	fake.create_error = "no room on the disk";
	call_run(&c, "k1", NULL, 30000);
	call_wait(&c);
	assert_int_equal(c.sbx.status, SBX_FAILED);
	assert_int_equal(c.cmd.status, CMD_FAILED);
	assert_string_equal(c.sbx.reason_text, "no room on the disk");
	call_finish(&c);
	fake.create_error = NULL;
	fake.run_rc = -ENOMEM;
	call_run(&c, "k2", NULL, 30000);
	call_wait(&c);
	assert_int_equal(c.cmd.status, CMD_FAILED);
	assert_int_equal(c.cmd.reason, END_NOT_STARTED);
	call_finish(&c);
	env_settle();
	assert_true(list_is_empty(&env.e->boxes));
}

static void a_shell_result_is_its_output(void **state)
{
	static const struct {
		const char *out;
		int code;
		const char *result;
	} rows[] = {
		{"{\"a\": 18446744073709551616}\n", 0,
		 "{\"a\": 18446744073709551616}"},
		{"  6  \n", 0, "6"},
		{"hello\n", 0, NULL},
		{"1 2\n", 0, NULL},
		{"", 0, NULL},
		{"6\n", 1, NULL},
	};
	struct run_spec spec;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct call c;
		char key[8];

		snprintf(key, sizeof(key), "k%zu", i);
		spec = sum_spec(key, 30000);
		spec.template_name = "lbb/shell";
		call_run(&c, key, &spec, 0);
		env_settle();
		fake_bound((int)i);
		fake_output((int)i, 0, rows[i].out);
		fake_end((int)i, GP_END_EXITED, rows[i].code, NULL);
		call_wait(&c);
		assert_int_equal(c.cmd.has_result, rows[i].result != NULL);
		if (rows[i].result) {
			assert_int_equal(c.cmd.result.len,
					 strlen(rows[i].result));
			assert_memory_equal(c.cmd.result.data, rows[i].result,
					    c.cmd.result.len);
		}
		assert_int_equal(c.cmd.status,
				 rows[i].code ? CMD_FAILED : CMD_SUCCEEDED);
		call_finish(&c);
		env_settle();
	}
}

/* ---- refusals
 * --------------------------------------------------------------------- */

static void assert_refused(const struct run_spec *spec, enum err_code code,
			   const char *param)
{
	struct call c;

	call_run(&c, "refused", spec, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, code);
	assert_string_equal(c.err.param, param);
	call_finish(&c);
}

static void limits_are_checked_at_their_edges(void **state)
{
	static const struct {
		struct limits l;
		const char *param; /* NULL = taken */
	} rows[] = {
		{{1, 128, 256}, NULL},
		{{4, 8192, 10240}, NULL},
		{{5, 0, 0}, "limits.vcpus"},
		{{0, 127, 0}, "limits.memory_mib"},
		{{0, 8193, 0}, "limits.memory_mib"},
		{{0, 0, 255}, "limits.disk_mib"},
		{{0, 0, 10241}, "limits.disk_mib"},
		{{UINT32_MAX, 0, 0}, "limits.vcpus"},
	};
	char *big = malloc(ENGINE_JSON_BYTES_MAX + 2);
	struct run_spec s = sum_spec("refused", 0);
	struct call c;
	int n = 0;

	(void)state;
	memset(big, ' ', ENGINE_JSON_BYTES_MAX + 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct run_spec spec = sum_spec("refused", 0);

		spec.limits = rows[i].l;
		if (rows[i].param) {
			assert_refused(&spec, ERR_LIMITS_INVALID,
				       rows[i].param);
			continue;
		}
		spec.key = n++ ? "good1" : "good2";
		call_run(&c, "", &spec, 0);
		call_wait(&c);
		assert_int_equal(c.err.code, ERR_NONE);
		assert_int_equal(c.sbx.limits.disk_mib, rows[i].l.disk_mib);
		call_finish(&c);
	}
	s.timeout_ms = ENGINE_TIMEOUT_MS_MAX + 1;
	assert_refused(&s, ERR_TIMEOUT_INVALID, "timeout_ms");
	s = sum_spec("refused", ENGINE_WAIT_MS_MAX + 1);
	assert_refused(&s, ERR_INVALID_REQUEST, "wait_ms");
	s = sum_spec("refused", 0);
	s.code_len = 0;
	assert_refused(&s, ERR_INVALID_REQUEST, "code");
	s.code = big;
	s.code_len = ENGINE_CODE_BYTES_MAX + 1;
	assert_refused(&s, ERR_CODE_TOO_LARGE, "code");
	s = sum_spec("refused", 0);
	s.input = big;
	s.input_len = ENGINE_JSON_BYTES_MAX + 1;
	assert_refused(&s, ERR_INPUT_TOO_LARGE, "input");
	s.input = NULL;
	s.config = big;
	s.config_len = ENGINE_JSON_BYTES_MAX + 1;
	assert_refused(&s, ERR_INPUT_TOO_LARGE, "config");
	s = sum_spec("refused", 0);
	s.template_name = "lbb/ruby";
	assert_refused(&s, ERR_TEMPLATE_NOT_FOUND, "template");
	/* None of it burnt the key. */
	call_run(&c, "refused", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	call_finish(&c);
	free(big);
}

static void env_is_checked(void **state)
{
	static const char *const reserved[] = {"A=1", "LBB_KEY=x", NULL};
	static const char *const nameless[] = {"=x", NULL};
	static const char *const no_sign[] = {"PATH", NULL};
	static const char *many[ENGINE_ENV_NAMES_MAX + 2];
	struct run_spec s = sum_spec("refused", 0);

	(void)state;
	s.env = reserved;
	assert_refused(&s, ERR_ENV_INVALID, "env");
	s.env = nameless;
	assert_refused(&s, ERR_ENV_INVALID, "env");
	s.env = no_sign;
	assert_refused(&s, ERR_ENV_INVALID, "env");
	for (int i = 0; i <= ENGINE_ENV_NAMES_MAX; i++)
		many[i] = "A=1";
	s.env = many;
	assert_refused(&s, ERR_ENV_INVALID, "env");
}

static void plans_are_checked(void **state)
{
	(void)state;
	env.who.is_enabled = false;
	assert_refused(NULL, ERR_NOT_ENABLED, "");
	env.who.is_enabled = true;
	env.who.plan = PLAN_FREE;
	assert_refused(NULL, ERR_PLAN_UNAVAILABLE, "");
	env.who.plan = PLAN_FULL;
	env.who.graph = "a\nb";
	assert_refused(NULL, ERR_INVALID_REQUEST, "graph");
	env.who.graph = "main";
}

/* ---- secrets
 * --------------------------------------------------------------------- */

static void secrets_reach_the_guest_only(void **state)
{
	static const char *const vars[] = {"TOKEN=hunter2-secret", "B=", NULL};
	struct run_spec s = sum_spec("k", 30000);
	char cmd[300];
	struct call c;

	(void)state;
	s.env = vars;
	s.input = "\"input-is-not-stored\"";
	s.input_len = strlen("\"input-is-not-stored\"");
	call_run(&c, "k", &s, 0);
	env_settle();
	assert_memory_equal(fake.vms[0].env.data,
			    "TOKEN=hunter2-secret\0B=", 24);
	fake_bound(0);
	fake_end(0, GP_END_EXITED, 0, "1");
	call_wait(&c);
	assert_memory_equal(c.cmd.env_names.data, "TOKEN\0B\0", 8);
	assert_int_equal(c.cmd.input_bytes, 21);
	call_finish(&c);
	env_settle();
	snprintf(cmd, sizeof(cmd), "grep -rqF hunter2-secret %s", env.f.dir);
	assert_int_not_equal(system(cmd), 0);
	snprintf(cmd, sizeof(cmd), "grep -rqF input-is-not-stored %s",
		 env.f.dir);
	assert_int_not_equal(system(cmd), 0);
	snprintf(cmd, sizeof(cmd), "grep -rqF TOKEN %s", env.f.dir);
	assert_int_equal(system(cmd), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_sum),
		TEST(the_record_stays),
		TEST(not_waiting_answers_at_once),
		TEST(progress_is_shown),
		TEST(every_end_has_its_words),
		TEST(the_first_end_counts),
		TEST(a_large_result_is_refused),
		TEST(a_lost_vm_is_never_success),
		TEST(what_cannot_start_fails),
		TEST(a_shell_result_is_its_output),
		TEST(limits_are_checked_at_their_edges),
		TEST(env_is_checked),
		TEST(plans_are_checked),
		TEST(secrets_reach_the_guest_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
