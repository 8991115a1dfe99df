/* Cancel, delete, logs, lists, expiry, a full disk, the daemon's end. */
#include "../store/test_vfs.h"
#include "engine_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void call_sandbox(struct call *c, const char *id)
{
	memset(c, 0, sizeof(*c));
	c->is_inside = true;
	assert_int_equal(
		engine_sandbox_get(env.e, &env.who, id, on_call_sandbox, c), 0);
	c->is_inside = false;
	call_wait(c);
}

/* A run that is told and, if so, running. */
static void begin_run(struct call *c, const char *key, bool is_bound)
{
	call_run(c, key, NULL, 0);
	call_wait(c);
	if (is_bound)
		fake_bound(fake.n_vms - 1);
	env_settle();
}

/* ---- cancel, delete ---------------------------------------------------- */

static void a_queued_command_is_cancelled(void **state)
{
	struct call c, x;

	(void)state;
	begin_run(&c, "k", false);
	call_cancel(&x, c.cmd.id);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_CANCELLED);
	assert_true(fake.vms[0].is_destroyed);
	assert_int_equal(fake.vms[0].n_kills, 0);
	call_finish(&x);
	env_settle();
	call_cancel(&x, c.cmd.id); /* again: the same record */
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_CANCELLED);
	call_finish(&x);
	call_sandbox(&x, c.sbx.id);
	assert_int_equal(x.sbx.status, SBX_DESTROYED);
	call_cancel(&x, "cmd_none");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_COMMAND_NOT_FOUND);
	call_finish(&c);
}

static void a_running_command_is_killed_by_the_guest(void **state)
{
	struct call c, x, y;

	(void)state;
	begin_run(&c, "k", true);
	call_cancel(&x, c.cmd.id);
	call_cancel(&y, c.cmd.id);
	env_settle();
	assert_int_equal(x.n_answers, 0); /* it is not over yet */
	assert_int_equal(fake.vms[0].n_kills, 1);
	fake_output(0, 1, "Terminated\n");
	fake_end(0, GP_END_CANCELLED, 0, NULL);
	call_wait(&x);
	call_wait(&y);
	assert_int_equal(x.cmd.status, CMD_CANCELLED);
	assert_int_equal(y.cmd.out[1].head.len, 11);
	call_finish(&x);
	call_finish(&y);
	call_finish(&c);
}

static void a_sandbox_is_deleted(void **state)
{
	struct call c, waiting, x;

	(void)state;
	begin_run(&c, "k", true);
	call_get(&waiting, c.cmd.id, 30000);
	call_delete(&x, c.sbx.id);
	call_wait(&x);
	assert_true(x.sbx.status == SBX_DESTROYING ||
		    x.sbx.status == SBX_DESTROYED);
	call_wait(&waiting);
	assert_int_equal(waiting.cmd.status, CMD_CANCELLED);
	assert_string_equal(waiting.cmd.reason_text, "the sandbox was deleted");
	assert_true(fake.vms[0].is_destroyed);
	env_settle();
	call_delete(&x, c.sbx.id); /* repeat is fine */
	call_wait(&x);
	assert_int_equal(x.sbx.status, SBX_DESTROYED);
	call_delete(&x, "sbx_none");
	call_wait(&x);
	assert_int_equal(x.err.code, ERR_SANDBOX_NOT_FOUND);
	call_finish(&waiting);
	call_finish(&c);
}

static void an_expired_sandbox_ends(void **state)
{
	struct call c, x;

	(void)state;
	begin_run(&c, "k", true);
	env_pass((3600 + 60) * 1000 + 1000);
	call_get(&x, c.cmd.id, 30000);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_CANCELLED);
	assert_int_equal(x.cmd.reason, END_TIMEOUT);
	env_settle();
	assert_true(fake.vms[0].is_destroyed);
	call_finish(&x);
	call_finish(&c);
}

/* ---- logs -------------------------------------------------------------- */

struct logged {
	int n;
	struct err err;
	char text[200];
	struct log_slice s;
};

static void on_log(void *ctx, const struct err *e, const struct log_slice *s)
{
	struct logged *l = ctx;

	l->n++;
	if (e) {
		l->err = *e;
	} else {
		l->s = *s;
		snprintf(l->text, sizeof(l->text), "%.*s", (int)s->len,
			 (const char *)s->data);
	}
	loop_stop(env.f.loop);
}

static struct logged read_log(const char *id, int stream, uint64_t offset,
			      size_t limit)
{
	struct logged l = {0};

	assert_int_equal(engine_log_read(env.e, &env.who, id, stream, offset,
					 limit, on_log, &l),
			 0);
	assert_int_equal(l.n, 0);
	while (!l.n)
		assert_int_equal(loop_run(env.f.loop), 0);
	return l;
}

static void logs_while_it_runs_and_after(void **state)
{
	struct logged l;
	struct call c;

	(void)state;
	begin_run(&c, "k", true);
	l = read_log(c.cmd.id, 0, 0, 100);
	assert_int_equal(l.s.len, 0);
	assert_false(l.s.is_eof);
	fake_output(0, 0, "one two three");
	l = read_log(c.cmd.id, 0, 4, 3);
	assert_string_equal(l.text, "two");
	assert_int_equal(l.s.next_offset, 7);
	assert_false(l.s.is_eof);
	fake_end(0, GP_END_EXITED, 0, "1");
	env_settle();
	l = read_log(c.cmd.id, 0, 8, 100); /* from the database */
	assert_string_equal(l.text, "three");
	assert_true(l.s.is_eof);
	l = read_log(c.cmd.id, 1, 0, 100);
	assert_int_equal(l.s.total, 0);
	assert_true(l.s.is_eof);
	l = read_log("cmd_none", 0, 0, 1);
	assert_int_equal(l.err.code, ERR_COMMAND_NOT_FOUND);
	assert_int_equal(
		engine_log_read(env.e, &env.who, c.cmd.id, 2, 0, 1, on_log, &l),
		-EINVAL);
	/* Erased by retention. */
	{
		struct answer a;

		answer_init(&a, &env.f);
		store_retention(env.f.store, INT64_MAX / 2, on_rc, &a);
		answer_wait(&a, 1);
	}
	l = read_log(c.cmd.id, 0, 0, 1);
	assert_int_equal(l.err.code, ERR_COMMAND_NOT_FOUND);
	call_finish(&c);
}

static void expired_output_is_told(void **state)
{
	struct logged l;
	struct answer a;
	struct call c;

	(void)state;
	begin_run(&c, "k", true);
	fake_output(0, 0, "text");
	fake_end(0, GP_END_EXITED, 0, "1");
	env_settle();
	answer_init(&a, &env.f);
	store_retention(env.f.store,
			c.cmd.created_ms + STORE_OUTPUT_KEPT_MS + 3600000,
			on_rc, &a);
	answer_wait(&a, 1);
	l = read_log(c.cmd.id, 0, 0, 1);
	assert_int_equal(l.err.code, ERR_OUTPUT_EXPIRED);
	l = read_log(c.cmd.id, 1, 0, 1); /* it never had any */
	assert_int_equal(l.err.code, ERR_NONE);
	call_finish(&c);
}

/* ---- lists ------------------------------------------------------------- */

static size_t n_listed;
static enum err_code list_code;

static void on_list(void *ctx, const struct err *e, const struct sandbox_rec *r,
		    size_t n, bool has_more)
{
	(void)ctx;
	(void)r;
	(void)has_more;
	list_code = e ? e->code : ERR_NONE;
	n_listed = n;
	loop_stop(env.f.loop);
}

static void lists_are_of_the_caller_s_graph(void **state)
{
	struct store_page p = {.graph = "other", .limit = 10};
	struct call c[2];

	(void)state;
	begin_run(&c[0], "k", true);
	env.who.graph = "other";
	begin_run(&c[1], "k", true);
	env.who.graph = "main";
	assert_int_equal(
		engine_sandbox_list(env.e, &env.who, &p, on_list, NULL), 0);
	loop_run(env.f.loop);
	assert_int_equal(n_listed, 1);
	p.cursor = c[1].sbx.id; /* of the other graph */
	assert_int_equal(
		engine_sandbox_list(env.e, &env.who, &p, on_list, NULL), 0);
	loop_run(env.f.loop);
	assert_int_equal(list_code, ERR_INVALID_REQUEST);
	call_finish(&c[0]);
	call_finish(&c[1]);
}

/* ---- a full disk ------------------------------------------------------- */

static void disk_is_full(bool is_full)
{
	atomic_store(&test_vfs.code, SQLITE_FULL);
	atomic_store(&test_vfs.is_lasting, is_full);
	atomic_store(&test_vfs.fail_in, is_full ? 1 : 0);
}

static void nothing_starts_on_a_full_disk(void **state)
{
	struct call c;

	(void)state;
	disk_is_full(true);
	call_run(&c, "k", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_CAPACITY);
	assert_int_equal(fake.n_vms, 0);
	disk_is_full(false);
	call_run(&c, "k", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_NONE);
	call_finish(&c);
}

/* The result is told when it is on disk, be it later; never before. */
static void a_result_waits_for_the_disk(void **state)
{
	struct call c, poll;
	struct box *b;

	(void)state;
	call_run(&c, "k", NULL, 30000);
	env_settle();
	fake_bound(0);
	env_settle();
	disk_is_full(true);
	fake_end(0, GP_END_EXITED, 0, "6");
	env_settle();
	assert_int_equal(c.n_answers, 0);
	assert_true(fake.vms[0].is_destroyed); /* its disk is given back */
	assert_int_equal(fake.vms[0].n_acks, 0);
	b = container_of(env.e->boxes.next, struct box, node);
	assert_ptr_not_equal(env.e->boxes.next, &env.e->boxes);
	call_get(&poll, box_only_cmd(b)->rec.id, 0);
	call_wait(&poll);
	assert_int_equal(poll.cmd.status, CMD_RUNNING);
	assert_false(poll.cmd.has_result);
	call_finish(&poll);
	disk_is_full(false);
	call_wait(&c); /* within the first retry */
	assert_int_equal(c.cmd.status, CMD_SUCCEEDED);
	assert_memory_equal(c.cmd.result.data, "6", 1);
	call_finish(&c);
	env_settle();
	assert_true(list_is_empty(&env.e->boxes));
}

/* ---- the end of the daemon --------------------------------------------- */

static void the_end_settles_everything(void **state)
{
	struct call run, early, refused, c, x;

	(void)state;
	begin_run(&c, "k1", true);
	call_get(&run, c.cmd.id, 30000);
	call_run(&early, "k2", NULL, 30000); /* not durable yet */
	env.who.plan = PLAN_FREE;
	call_run(&refused, "k3", NULL, 0);
	env.who.plan = PLAN_FULL;
	env_stop();
	assert_int_equal(run.err.code, ERR_UNAVAILABLE);
	assert_int_equal(early.err.code, ERR_UNAVAILABLE);
	assert_int_equal(refused.err.code, ERR_PLAN_UNAVAILABLE);
	assert_int_equal(raw_number(&env.f, "SELECT count(*) FROM command WHERE"
					    " status <> 7"),
			 0);
	env_start();
	call_get(&x, c.cmd.id, 0);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_LOST);
	assert_int_equal(x.cmd.reason, END_DAEMON_RESTART);
	assert_string_equal(x.cmd.reason_text, "hutchd was stopped");
	call_finish(&x);
	call_finish(&c);
}

/* The run is over and told; only its VM is still there. */
static void the_end_of_a_run_that_ended(void **state)
{
	struct call c, x;

	(void)state;
	begin_run(&c, "k1", true);
	fake.is_slow_to_go = true;
	fake_end(fake.n_vms - 1, GP_END_EXITED, 0, "6");
	env_settle();
	call_sandbox(&x, c.sbx.id);
	assert_int_equal(x.sbx.status, SBX_DESTROYING);
	env_stop();
	env_start();
	call_sandbox(&x, c.sbx.id);
	assert_int_equal(x.sbx.status, SBX_DESTROYED);
	assert_int_equal(x.sbx.reason, END_NONE);
	assert_string_equal(x.sbx.reason_text, "");
	assert_true(x.sbx.ended_ms > 0);
	call_get(&x, c.cmd.id, 0);
	call_wait(&x);
	assert_int_equal(x.cmd.status, CMD_SUCCEEDED);
	call_finish(&x);
	call_finish(&c);
}

static void nothing_begins_at_the_end(void **state)
{
	struct engine_stats stats;
	struct call c;

	(void)state;
	env_settle(); /* what was stopped has been read */
	env.e->is_ending = true;
	call_run(&c, "k", NULL, 0);
	call_wait(&c);
	assert_int_equal(c.err.code, ERR_UNAVAILABLE);
	env.e->is_ending = false;
	engine_stats(env.e, &stats);
	assert_int_equal(stats.runs_started, 0);
}

static void nodes_are_checked(void **state)
{
	static const char *const bad[] = {"",	  "abc",  "abcde",
					  "ABCD", "a-b1", NULL};
	struct engine *e;
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct engine_config cfg = env.cfg;

		cfg.node = bad[i];
		assert_int_equal(engine_create(&e, env.f.loop, env.f.store,
					       NULL, &cfg, &err),
				 -1);
		assert_string_equal(err.param, "node");
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, env_setup, env_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_queued_command_is_cancelled),
		TEST(a_running_command_is_killed_by_the_guest),
		TEST(a_sandbox_is_deleted),
		TEST(an_expired_sandbox_ends),
		TEST(logs_while_it_runs_and_after),
		TEST(expired_output_is_told),
		TEST(lists_are_of_the_caller_s_graph),
		TEST(nothing_starts_on_a_full_disk),
		TEST(a_result_waits_for_the_disk),
		TEST(the_end_settles_everything),
		TEST(the_end_of_a_run_that_ended),
		TEST(nothing_begins_at_the_end),
		TEST(nodes_are_checked),
	};

	test_vfs_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
