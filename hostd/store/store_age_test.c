/* What time does to the store: records are erased, the log does not grow. */
#include "store_test_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

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

static void bytes_of(struct bytes *b, char c, size_t n)
{
	b->len = 0;
	assert_int_equal(bytes_reserve(b, n), 0);
	memset(b->data, c, n);
	b->len = n;
}

static void run_to_end(int n, enum sandbox_kind kind, int64_t ended_ms)
{
	struct sandbox_rec s = sandbox_of(n);
	struct command_rec c = command_of(n);
	struct store_found found;
	char key[16];

	snprintf(key, sizeof(key), "k%d", n);
	assert_int_equal(begin_now(&f, n, key, &found), 0);
	s.kind = kind;
	fixture_close(&f);
	if (kind == SBX_KIND_HELD)
		raw_exec(&f, "UPDATE sandbox SET kind = 2 WHERE status = 1");
	fixture_open(&f);
	s.status = SBX_DESTROYED;
	s.ended_ms = c.ended_ms = ended_ms;
	c.status = CMD_SUCCEEDED;
	c.out[1].total = 5;
	bytes_append(&c.out[1].head, "hello", 5);
	assert_int_equal(update_now(&f, &s, &c, true), 0);
	command_rec_finish(&c);
}

static void erase(int64_t now_ms)
{
	struct answer a;

	answer_init(&a, &f);
	assert_int_equal(store_retention(f.store, now_ms, on_rc, &a), 0);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
}

static void retention_erases_in_time(void **state)
{
	const int64_t end = 1700000000000, day = 86400000;
	struct answer a;

	(void)state;
	run_to_end(1, SBX_KIND_ONE_CALL, end);
	run_to_end(2, SBX_KIND_HELD, end);
	answer_init(&a, &f);
	erase(end + 7 * day - 1);
	store_command_get(f.store, "env_a", "main", sandbox_of(1).command, true,
			  on_command, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.cmd.out[1].head.len, 5);
	assert_false(a.cmd.out[1].is_expired);
	erase(end + 7 * day);
	store_command_get(f.store, "env_a", "main", sandbox_of(1).command, true,
			  on_command, &a);
	answer_wait(&a, 2);
	assert_int_equal(a.cmd.out[1].head.len, 0);
	assert_int_equal(a.cmd.out[1].total, 5);
	assert_true(a.cmd.out[1].is_expired);
	store_command_get(f.store, "env_a", "main", sandbox_of(2).command, true,
			  on_command, &a);
	answer_wait(&a, 3);
	assert_int_equal(a.cmd.out[1].head.len, 5); /* held: with the record */
	erase(end + 30 * day - 1);
	store_sandbox_get(f.store, "env_a", "main", sandbox_of(1).id,
			  on_sandbox, &a);
	answer_wait(&a, 4);
	assert_int_equal(a.rc, 0);
	erase(end + 30 * day);
	answer_finish(&a);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT (SELECT count(*) FROM sandbox)"
					" + (SELECT count(*) FROM command)"
					" + (SELECT count(*) FROM blob)"
					" + (SELECT count(*) FROM idempotency)"
					" + (SELECT count(*) FROM event WHERE"
					" kind <> 3)"),
			 0);
	fixture_open(&f);
}

static void retention_in_many_bites(void **state)
{
	struct answer a;

	(void)state;
	answer_init(&a, &f);
	for (int n = 1; n <= 250; n++) {
		struct sandbox_rec s = sandbox_of(n);

		s.status = SBX_LOST;
		s.ended_ms = 1000;
		store_update(f.store, &s, NULL, false, on_rc, &a);
	}
	answer_wait(&a, 250);
	erase(STORE_RECORDS_KEPT_MS + 1000);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM sandbox"), 0);
	fixture_open(&f);
}

/* One sandbox with more of everything than one bite takes. */
static void one_with_many_commands_is_erased_in_bites(void **state)
{
	const int n_commands = 3 * STORE_ERASE_MAX + 7;
	struct sandbox_rec s = sandbox_of(1);
	struct answer a;

	(void)state;
	s.kind = SBX_KIND_HELD;
	answer_init(&a, &f);
	for (int n = 1; n <= n_commands; n++) {
		struct command_rec c = command_of(1);
		struct store_begin b = {"env_a", "main", "command", "", {1}};
		char key[32];

		snprintf(key, sizeof(key), "wf/%d/step", n);
		snprintf(c.id, sizeof(c.id), "cmd_%026d", n);
		b.key = key;
		bytes_of(&c.out[0].head, 'x', 10);
		assert_int_equal(
			store_run_begin(f.store, &b, &s, &c, on_found, &a), 0);
		c.status = CMD_FAILED;
		c.ended_ms = 999;
		store_update(f.store, NULL, &c, true, on_rc, &a);
		command_rec_finish(&c);
	}
	answer_wait(&a, 2 * n_commands);
	s.status = SBX_LOST;
	s.ended_ms = 1000;
	assert_int_equal(update_now(&f, &s, NULL, false), 0);
	erase(STORE_RECORDS_KEPT_MS + 1000);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT (SELECT count(*) FROM sandbox)"
					" + (SELECT count(*) FROM command)"
					" + (SELECT count(*) FROM blob)"
					" + (SELECT count(*) FROM idempotency)"
					" + (SELECT count(*) FROM event WHERE"
					" kind <> 3)"),
			 0);
	fixture_open(&f);
}

/* Nothing holds up the checkpoints: the log does not grow with the work. */
static void the_log_stays_small(void **state)
{
	struct store_found found;
	struct stat st;
	char path[128];

	(void)state;
	assert_int_equal(begin_now(&f, 1, "k", &found), 0);
	for (int i = 0; i < 400; i++) {
		struct command_rec c = command_of(1);

		c.status = CMD_RUNNING;
		bytes_of(&c.out[0].head, 'x', OUTPUT_HEAD_BYTES);
		bytes_of(&c.out[0].tail, 'y', OUTPUT_TAIL_BYTES);
		assert_int_equal(update_now(&f, NULL, &c, true), 0);
		command_rec_finish(&c);
	}
	snprintf(path, sizeof(path), "%s/" DB_FILE "-wal", f.dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 24 << 20);
	snprintf(path, sizeof(path), "%s/" DB_FILE, f.dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 2 << 20);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(retention_erases_in_time),
		TEST(retention_in_many_bites),
		TEST(one_with_many_commands_is_erased_in_bites),
		TEST(the_log_stays_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
