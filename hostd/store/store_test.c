/* Tests of the store's operations on one healthy database. */
#include "store_test_util.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static struct fixture f;

static int setup(void **state)
{
	(void)state;
	fixture_init(&f);
	fixture_open(&f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_finish(&f);
	return 0;
}

static void begin_is_found_again(void **state)
{
	struct store_found found;
	struct answer a;
	struct store_begin b = {"env_a", "main", "run", "k1", {9}};

	(void)state;
	assert_int_equal(begin_now(&f, 1, "k1", &found), 0);
	assert_false(found.is_found);
	/* The same key and request: the first ids, and nothing new. */
	assert_int_equal(begin_now(&f, 2, "k1", &found), 0);
	assert_true(found.is_found);
	assert_true(found.is_same_request);
	assert_string_equal(found.sandbox, sandbox_of(1).id);
	assert_string_equal(found.command, sandbox_of(1).command);
	/* Another request under it. */
	answer_init(&a, &f);
	assert_int_equal(store_key_find(f.store, &b, on_found, &a), 0);
	answer_wait(&a, 1);
	assert_true(a.found.is_found);
	assert_false(a.found.is_same_request);
	/* Other scopes. */
	b.graph = "other";
	assert_int_equal(store_key_find(f.store, &b, on_found, &a), 0);
	answer_wait(&a, 2);
	assert_false(a.found.is_found);
	/* All of it is there after a restart. */
	fixture_close(&f);
	fixture_open(&f);
	assert_int_equal(begin_now(&f, 3, "k1", &found), 0);
	assert_string_equal(found.sandbox, sandbox_of(1).id);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM sandbox"), 1);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM command"), 1);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM graph"), 1);
	fixture_open(&f);
}

static void bytes_of(struct bytes *b, char c, size_t n)
{
	b->len = 0;
	assert_int_equal(bytes_reserve(b, n), 0);
	memset(b->data, c, n);
	b->len = n;
}

static void update_and_read_back(void **state)
{
	struct sandbox_rec s = sandbox_of(1);
	struct command_rec c = command_of(1);
	struct store_found found;
	struct answer a;

	(void)state;
	assert_int_equal(begin_now(&f, 1, "k", &found), 0);
	s.status = SBX_RUNNING;
	c.status = CMD_RUNNING;
	assert_int_equal(update_now(&f, &s, &c, false), 0);
	c.status = CMD_SUCCEEDED;
	c.exit_code = 0;
	c.ended_ms = 1700000009000;
	c.has_result = true;
	bytes_append(&c.result, "6", 1);
	c.out[0].total = 1000000;
	c.out[0].tail_at = 1000000 - 4096;
	bytes_of(&c.out[0].head, 'h', OUTPUT_HEAD_BYTES);
	bytes_of(&c.out[0].tail, 't', 4096);
	assert_int_equal(update_now(&f, NULL, &c, true), 0);

	answer_init(&a, &f);
	store_run_get(f.store, "env_a", "main", c.id, true, on_run, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	assert_int_equal(a.sbx.status, SBX_RUNNING);
	assert_int_equal(a.sbx.limits.disk_mib, 4096);
	assert_int_equal(a.cmd.status, CMD_SUCCEEDED);
	assert_int_equal(a.cmd.exit_code, 0);
	assert_int_equal(a.cmd.result.len, 1);
	assert_memory_equal(a.cmd.env_names.data, "A\0BC\0", 5);
	assert_int_equal(a.cmd.out[0].head.len, OUTPUT_HEAD_BYTES);
	assert_int_equal(a.cmd.out[0].tail.len, 4096);
	assert_int_equal(a.cmd.out[0].tail.data[0], 't');
	assert_int_equal(a.cmd.out[0].total, 1000000);
	assert_int_equal(a.cmd.out[1].head.len, 0);
	/* Without output; of another graph. */
	store_command_get(f.store, "env_a", "main", c.id, false, on_command,
			  &a);
	answer_wait(&a, 2);
	assert_int_equal(a.cmd.out[0].head.len, 0);
	assert_int_equal(a.cmd.out[0].total, 1000000);
	store_command_get(f.store, "env_a", "x", c.id, false, on_command, &a);
	answer_wait(&a, 3);
	assert_int_equal(a.rc, -ENOENT);
	store_sandbox_get(f.store, "env_b", "main", s.id, on_sandbox, &a);
	answer_wait(&a, 4);
	assert_int_equal(a.rc, -ENOENT);
	/* What is final stays so. */
	c.status = CMD_LOST;
	assert_int_equal(update_now(&f, NULL, &c, false), -EPERM);
	answer_finish(&a);
	command_rec_finish(&c);
	/* starting, running; queued, running, succeeded; daemon start */
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM event"), 6);
	fixture_open(&f);
}

/* By name, and by the name or the id of a saved template. */
static void filters_of_sandboxes(void)
{
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 100};
	struct sandbox_rec s = sandbox_of(20);
	struct store_begin b = {"env_a", "main", "run", "k20", {1}};
	struct answer a;

	snprintf(s.name, sizeof(s.name), "nightly");
	snprintf(s.template_name, sizeof(s.template_name), "sum");
	snprintf(s.template_id, sizeof(s.template_id), "sbt_2");
	answer_init(&a, &f);
	store_run_begin(f.store, &b, &s, NULL, on_found, &a);
	answer_wait(&a, 1);
	for (int i = 0; i < 6; i++) {
		p.name = i == 0 ? "nightly" : i == 1 ? "none" : NULL;
		p.template_name = i == 2   ? "sum"
				  : i == 3 ? "sbt_2"
				  : i == 4 ? "sbt_1"
				  : i == 5 ? ""
					   : NULL;
		store_sandbox_list(f.store, &p, on_sandboxes, &a);
		answer_wait(&a, 2 + i);
		assert_int_equal(a.n_ids, i == 0 || i == 2 || i == 3);
		if (a.n_ids)
			assert_string_equal(a.ids[0], s.id);
	}
	/* The name is what was written last. */
	s.name[0] = 0;
	assert_int_equal(update_now(&f, &s, NULL, false), 0);
	p.template_name = NULL;
	p.name = "nightly";
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 8);
	assert_int_equal(a.n_ids, 0);
}

static void lists_page_newest_first(void **state)
{
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 4};
	struct store_found found;
	struct answer a;
	struct sandbox_rec s;
	char key[16], sandbox[ID_BYTES_MAX];

	(void)state;
	for (int n = 1; n <= 10; n++) {
		snprintf(key, sizeof(key), "k%d", n);
		assert_int_equal(begin_now(&f, n, key, &found), 0);
	}
	s = sandbox_of(5);
	s.status = SBX_RUNNING;
	assert_int_equal(update_now(&f, &s, NULL, false), 0);
	answer_init(&a, &f);
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.n_ids, 4);
	assert_true(a.has_more);
	assert_string_equal(a.ids[0], sandbox_of(10).id);
	assert_string_equal(a.ids[3], sandbox_of(7).id);
	p.cursor = sandbox_of(7).id;
	p.limit = 100;
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 2);
	assert_int_equal(a.n_ids, 6);
	assert_false(a.has_more);
	assert_string_equal(a.ids[5], sandbox_of(1).id);
	p.cursor = "sbx_none";
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 3);
	assert_int_equal(a.rc, -EINVAL);
	p.cursor = NULL;
	p.status = SBX_RUNNING;
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 4);
	assert_int_equal(a.n_ids, 1);
	assert_string_equal(a.ids[0], s.id);
	p.template_name = "lbb/node";
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 5);
	assert_int_equal(a.n_ids, 0);
	filters_of_sandboxes();
	p = (struct store_page){.limit = 100}; /* all, for the administrator */
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 6);
	assert_int_equal(a.n_ids, 11);
	/* Commands: of a sandbox, of a graph. */
	snprintf(sandbox, sizeof(sandbox), "%s", sandbox_of(3).id);
	p = (struct store_page){.environment = "env_a",
				.graph = "main",
				.limit = 100,
				.sandbox = sandbox};
	store_command_list(f.store, &p, on_commands, &a);
	answer_wait(&a, 7);
	assert_int_equal(a.n_ids, 1);
	assert_string_equal(a.ids[0], sandbox_of(3).command);
	p.sandbox = NULL;
	p.limit = 3;
	store_command_list(f.store, &p, on_commands, &a);
	answer_wait(&a, 8);
	assert_int_equal(a.n_ids, 3);
	assert_true(a.has_more);
}

/* Ops that wait while a commit runs share the next one. */
static void commits_are_grouped(void **state)
{
	uint64_t before;
	struct answer a;

	(void)state;
	answer_init(&a, &f);
	before = store_commits(f.store);
	for (int n = 1; n <= 500; n++) {
		struct sandbox_rec s = sandbox_of(n);

		assert_int_equal(
			store_update(f.store, &s, NULL, false, on_rc, &a), 0);
	}
	answer_wait(&a, 500);
	assert_int_equal(a.rc, 0);
	assert_true(store_commits(f.store) - before < 100);
	print_message("500 ops in %d commits\n",
		      (int)(store_commits(f.store) - before));
}

/* One op that cannot be stored does not take its group with it. */
static void a_bad_op_fails_alone(void **state)
{
	struct sandbox_rec s[3] = {sandbox_of(1), sandbox_of(2), sandbox_of(3)};
	struct answer a[3];

	(void)state;
	s[1].status = 99;
	for (int i = 0; i < 3; i++) {
		answer_init(&a[i], &f);
		store_update(f.store, &s[i], NULL, false, on_rc, &a[i]);
	}
	for (int i = 0; i < 3; i++)
		answer_wait(&a[i], 1);
	assert_int_equal(a[0].rc, 0);
	assert_int_equal(a[1].rc, -EINVAL);
	assert_int_equal(a[2].rc, 0);
	/* A command of no sandbox is refused by its reference. */
	{
		struct command_rec c = command_of(77);

		assert_int_equal(update_now(&f, NULL, &c, false), -EEXIST);
		command_rec_finish(&c);
	}
}

struct keys {
	struct answer a;
	struct key_info k[8];
	uint8_t hash[8][HASH_BYTES];
	int n;
};

static void on_key(void *ctx, int rc, const struct key_info *k,
		   const uint8_t hash[HASH_BYTES])
{
	struct keys *all = ctx;

	if (!k) {
		on_rc(&all->a, rc);
		return;
	}
	all->k[all->n] = *k;
	memcpy(all->hash[all->n++], hash, HASH_BYTES);
}

static int add_key(const char *env, const char *name, enum plan plan, int h)
{
	struct key_info k = {
		.plan = plan, .is_enabled = true, .changes_environment = true};
	uint8_t hash[HASH_BYTES];
	struct answer a;

	snprintf(k.environment, sizeof(k.environment), "%s", env);
	snprintf(k.name, sizeof(k.name), "%s", name);
	memset(hash, h, sizeof(hash));
	answer_init(&a, &f);
	store_key_add(f.store, &k, hash, on_rc, &a);
	answer_wait(&a, 1);
	return a.rc;
}

static void keys_live_in_environments(void **state)
{
	struct keys all = {0};
	struct answer a;

	(void)state;
	assert_int_equal(add_key("env_a", "ci", PLAN_FREE, 1), 0);
	assert_int_equal(add_key("env_b", "ci", PLAN_FULL, 2), 0);
	assert_int_equal(add_key("env_a", "ci", PLAN_FULL, 3), -EEXIST);
	assert_int_equal(add_key("env_c", "x", PLAN_FULL, 1), -EEXIST);
	answer_init(&a, &f);
	store_key_revoke(f.store, "env_a", "ci", on_rc, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	store_key_revoke(f.store, "env_a", "ci", on_rc, &a);
	answer_wait(&a, 2);
	assert_int_equal(a.rc, -ENOENT);
	answer_init(&all.a, &f);
	store_key_list(f.store, on_key, &all);
	answer_wait(&all.a, 1);
	assert_int_equal(all.n, 2);
	assert_true(all.k[0].is_revoked);
	assert_int_equal(all.k[0].plan, PLAN_FREE);
	assert_false(all.k[1].is_revoked);
	assert_string_equal(all.k[1].environment, "env_b");
	assert_int_equal(all.hash[1][31], 2);
	/* The name is free again; the environment has its new plan. */
	assert_int_equal(add_key("env_a", "ci", PLAN_FULL, 4), 0);
	all.n = 0;
	store_key_list(f.store, on_key, &all);
	answer_wait(&all.a, 2);
	assert_int_equal(all.n, 2);
	assert_int_equal(all.k[1].plan, PLAN_FULL);
	assert_int_equal(all.hash[1][0], 4);
}

static void restart_settles_what_ran(void **state)
{
	/* status before, boot id, status after, reason */
	static const struct {
		enum sandbox_status was;
		const char *boot;
		enum sandbox_status is;
		enum end_reason why;
	} rows[] = {
		{SBX_STARTING, "boot-1", SBX_LOST, END_DAEMON_RESTART},
		{SBX_RUNNING, "boot-0", SBX_LOST, END_HOST_REBOOT},
		{SBX_STOPPING, "boot-1", SBX_LOST, END_DAEMON_RESTART},
		{SBX_STOPPED, "boot-1", SBX_STOPPED, END_NONE},
		{SBX_DESTROYING, "boot-1", SBX_DESTROYED, END_NONE},
		{SBX_DESTROYED, "boot-1", SBX_DESTROYED, END_NONE},
		{SBX_FAILED, "boot-0", SBX_FAILED, END_NONE},
	};
	const int n_rows = sizeof(rows) / sizeof(*rows);
	struct store_found found;
	struct answer a;
	struct err e;
	unsigned n_lost = 0;
	char key[16];

	(void)state;
	for (int i = 0; i < n_rows; i++) {
		struct sandbox_rec s = sandbox_of(i + 1);
		struct command_rec c = command_of(i + 1);

		snprintf(key, sizeof(key), "k%d", i);
		assert_int_equal(begin_now(&f, i + 1, key, &found), 0);
		s.status = rows[i].was;
		snprintf(s.host_boot_id, sizeof(s.host_boot_id), "%s",
			 rows[i].boot);
		c.status = i < 3 ? CMD_RUNNING : CMD_SUCCEEDED;
		c.exit_code = i < 3 ? -1 : 0;
		assert_int_equal(update_now(&f, &s, &c, false), 0);
		command_rec_finish(&c);
	}
	fixture_close(&f);
	fixture_open(&f);
	assert_int_equal(
		store_recover(f.store, "boot-1", 1700000100000, &n_lost, &e),
		0);
	assert_int_equal(n_lost, 3);
	answer_init(&a, &f);
	for (int i = 0; i < n_rows; i++) {
		store_run_get(f.store, "env_a", "main",
			      sandbox_of(i + 1).command, true, on_run, &a);
		answer_wait(&a, i + 1);
		assert_int_equal(a.rc, 0);
		assert_int_equal(a.sbx.status, rows[i].is);
		assert_int_equal(a.sbx.reason, rows[i].why);
		assert_int_equal(a.cmd.status,
				 i < 3 ? CMD_LOST : CMD_SUCCEEDED);
		if (i < 3) {
			assert_int_equal(a.cmd.reason, rows[i].why);
			assert_int_equal(a.cmd.ended_ms, 1700000100000);
			assert_int_equal(a.cmd.exit_code, -1);
		}
	}
	/* Once more finds nothing. */
	assert_int_equal(
		store_recover(f.store, "boot-1", 1700000200000, &n_lost, &e),
		0);
	assert_int_equal(n_lost, 0);
	/* The key still names the lost run. */
	assert_int_equal(begin_now(&f, 50, "k0", &found), 0);
	assert_string_equal(found.command, sandbox_of(1).command);
	answer_finish(&a);
}

/* An answer may ask for more while the store closes. */
static void on_rc_more(void *ctx, int rc)
{
	struct answer *a = ctx;
	struct sandbox_rec s = sandbox_of(++a->n);

	a->rc = rc;
	if (a->n < 5)
		store_update(f.store, &s, NULL, false, on_rc_more, a);
}

static void close_answers_everything(void **state)
{
	struct sandbox_rec s = sandbox_of(100);
	struct answer a;

	(void)state;
	answer_init(&a, &f);
	store_update(f.store, &s, NULL, false, on_rc_more, &a);
	fixture_close(&f);
	assert_int_equal(a.n, 5);
	assert_int_equal(a.rc, 0);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM sandbox"), 5);
	fixture_open(&f);
}

/* What may come later goes with the next op, before it; and not lost when the
 * store closes first. */
static void later_is_with_the_next(void **state)
{
	struct sandbox_rec s = sandbox_of(200);
	uint64_t before = store_commits(f.store);
	struct answer a;

	(void)state;
	answer_init(&a, &f);
	assert_int_equal(store_update_later(f.store, &s, NULL, on_rc, &a), 0);
	s = sandbox_of(201);
	assert_int_equal(store_update_later(f.store, &s, NULL, on_rc, &a), 0);
	assert_int_equal(a.n, 0);
	s = sandbox_of(202);
	assert_int_equal(store_update(f.store, &s, NULL, false, on_rc, &a), 0);
	answer_wait(&a, 3);
	assert_int_equal(store_commits(f.store), before + 1);
	s = sandbox_of(203);
	assert_int_equal(store_update_later(f.store, &s, NULL, on_rc, &a), 0);
	fixture_close(&f);
	assert_int_equal(a.n, 4);
	assert_int_equal(a.rc, 0);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM sandbox"), 4);
	fixture_open(&f);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(begin_is_found_again),	TEST(update_and_read_back),
		TEST(lists_page_newest_first),	TEST(commits_are_grouped),
		TEST(a_bad_op_fails_alone),	TEST(keys_live_in_environments),
		TEST(restart_settles_what_ran), TEST(close_answers_everything),
		TEST(later_is_with_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
