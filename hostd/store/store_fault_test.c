/*
 * The store on a failing disk (hardening L2, L3): every write, sync and
 * truncate fails once and for good; the power is cut at any moment.
 */
#include "store_test_util.h"
#include "test_vfs.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define RUNS_MAX 200

static unsigned seed;

static void in_dir(const struct fixture *f, const char *name, char path[256])
{
	snprintf(path, 256, "%s/%s", f->dir, name);
}

/* Begin a run, then end it with output: what the engine writes. */
static int full_run(struct fixture *f, int n, bool *ret_is_begun)
{
	struct sandbox_rec s = sandbox_of(n);
	struct command_rec c = command_of(n);
	struct store_found found;
	char key[16], out[3000];
	int rc;

	snprintf(key, sizeof(key), "k%d", n);
	*ret_is_begun = false;
	rc = begin_now(f, n, key, &found);
	if (!rc) {
		*ret_is_begun = true;
		s.status = SBX_DESTROYING;
		c.status = CMD_SUCCEEDED;
		c.ended_ms = 1;
		c.out[0].total = sizeof(out);
		memset(out, 'a' + n % 26, sizeof(out));
		bytes_append(&c.out[0].head, out, sizeof(out));
		rc = update_now(f, &s, &c, true);
	}
	command_rec_finish(&c);
	return rc;
}

/* Run n is there whole: both records, the key, and output when ended. */
static void assert_whole(struct fixture *f, int n, bool is_ended)
{
	struct store_begin b = {"env_a", "main", "run", NULL, {1, 2, 3}};
	struct answer a;
	char key[16];

	snprintf(key, sizeof(key), "k%d", n);
	b.key = key;
	answer_init(&a, f);
	store_key_find(f->store, &b, on_found, &a);
	answer_wait(&a, 1);
	assert_true(a.found.is_found && a.found.is_same_request);
	assert_string_equal(a.found.command, sandbox_of(n).command);
	store_run_get(f->store, "env_a", "main", a.found.command, true, on_run,
		      &a);
	answer_wait(&a, 2);
	assert_int_equal(a.rc, 0);
	if (is_ended) {
		assert_int_equal(a.cmd.status, CMD_SUCCEEDED);
		assert_int_equal(a.sbx.status, SBX_DESTROYING);
		assert_int_equal(a.cmd.out[0].head.len, 3000);
		assert_int_equal(a.cmd.out[0].head.data[2999], 'a' + n % 26);
	}
	answer_finish(&a);
}

static void fault_at(struct fixture *f, long nth, int code, bool is_lasting)
{
	bool is_begun, was_told[4] = {0}, was_begun[4] = {0};
	int expect = code == SQLITE_FULL ? -ENOSPC : -EIO;
	int rc;

	atomic_store(&test_vfs.code, code);
	atomic_store(&test_vfs.is_lasting, is_lasting);
	atomic_store(&test_vfs.fail_in, nth);
	for (int n = 1; n <= 3; n++) {
		rc = full_run(f, n, &is_begun);
		was_told[n] = !rc;
		was_begun[n] = is_begun;
		if (rc && rc != expect)
			fail_msg("nth=%ld code=%d run %d: rc %d, not %d", nth,
				 code, n, rc, expect);
	}
	test_vfs_calm();
	/* The disk is well again: so is the store, without a restart. */
	rc = full_run(f, 9, &is_begun);
	if (rc)
		fail_msg("nth=%ld code=%d: after the fault rc %d", nth, code,
			 rc);
	assert_whole(f, 9, true);
	for (int round = 0; round < 2; round++) {
		for (int n = 1; n <= 3; n++)
			if (was_begun[n])
				assert_whole(f, n, was_told[n]);
		if (!round) {
			fixture_close(f);
			fixture_open(f);
		}
	}
}

static void every_call_fails_once(void **state)
{
	static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE};
	bool is_past = false;
	long nth = 0;

	(void)state;
	/* Until the fault lies behind all calls of the three runs.  The short
	 * run leaves out two of three places after the first. */
	while (!is_past && nth < 500) {
		nth += is_long_run() || nth < 10 ? 1 : 3;

		for (int k = 0; k < 4; k++) {
			struct fixture f;
			long before;

			fixture_init(&f);
			fixture_open(&f);
			before = atomic_load(&test_vfs.n_failed);
			fault_at(&f, nth, codes[k % 2], k / 2);
			is_past = atomic_load(&test_vfs.n_failed) == before;
			fixture_finish(&f);
		}
	}
	print_message("# count=%ld places of a fault\n", nth);
	assert_true(nth > 10 && nth < 500);
}

/* Opening on a broken disk is refused, and works when it is well again. */
static void open_fails_clean(void **state)
{
	struct fixture f;
	struct store *s;
	struct err e;
	int n_refused = 0;

	(void)state;
	fixture_init(&f);
	for (long nth = 1; nth <= 60; nth++) {
		atomic_store(&test_vfs.code, SQLITE_FULL);
		atomic_store(&test_vfs.is_lasting, true);
		atomic_store(&test_vfs.fail_in, nth);
		memset(&e, 0, sizeof(e));
		if (store_open(&s, f.loop, f.dir, &e)) {
			n_refused++;
			assert_true(strlen(e.text) > 20);
		} else {
			test_vfs_calm();
			store_close(s);
		}
		test_vfs_calm();
		if (nth % 7 == 0) {
			fixture_open(&f);
			fixture_close(&f);
		}
	}
	assert_true(n_refused > 3);
	fixture_finish(&f);
}

/* ---- power cuts -----------------------------------------------------------
 */

static struct {
	char dir[64];
	atomic_int n_told; /* full runs acknowledged so far */
	int n_told_at_cut;
	bool is_cut;
} power;

static void on_cut(void *ctx)
{
	(void)ctx;
	test_vfs_dump(power.dir, &seed);
	power.n_told_at_cut = atomic_load(&power.n_told);
	power.is_cut = true;
}

static void touch(const char *dir, const char *name)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	fclose(f);
}

/* Runs after a cut at write `at`; false when something told is not there. */
static bool survives(long at, bool is_lying)
{
	struct fixture f, after;
	bool is_begun, is_good = true;
	struct err e = {0};
	unsigned n_lost;

	fixture_init(&f);
	fixture_open(&f);
	fixture_init(&after);
	snprintf(power.dir, sizeof(power.dir), "%s", after.dir);
	power.is_cut = false;
	atomic_store(&power.n_told, 0);
	atomic_store(&test_vfs.is_lying, is_lying);
	test_vfs.cut = on_cut;
	atomic_store(&test_vfs.cut_in, at);
	for (int n = 1; n <= RUNS_MAX && !power.is_cut; n++) {
		assert_int_equal(full_run(&f, n, &is_begun), 0);
		atomic_fetch_add(&power.n_told, 1);
	}
	test_vfs_calm();
	fixture_finish(&f);
	if (!power.is_cut) {
		fixture_finish(&after);
		return true;
	}
	/* The mark of a daemon that was not stopped. */
	touch(after.dir, DB_FILE "-open");
	if (store_open(&after.store, after.loop, after.dir, &e)) {
		if (!is_lying)
			fail_msg("seed=%u cut=%ld: %s", seed, at, e.text);
		is_good = false;
	} else {
		assert_int_equal(
			store_recover(after.store, "boot-1", 1, &n_lost, &e),
			0);
		for (int n = 1; n <= power.n_told_at_cut && is_good; n++) {
			struct answer a;

			answer_init(&a, &after);
			store_run_get(after.store, "env_a", "main",
				      sandbox_of(n).command, true, on_run, &a);
			answer_wait(&a, 1);
			is_good = !a.rc && a.cmd.status == CMD_SUCCEEDED &&
				  a.cmd.out[0].head.len == 3000;
			answer_finish(&a);
		}
		fixture_close(&after);
		/* Whatever was not told is there whole or not at all. */
		if (!is_lying) {
			assert_int_equal(
				raw_number(&after,
					   "SELECT count(*) FROM command c"
					   " FULL JOIN idempotency i ON"
					   " i.command = c.id WHERE c.id IS"
					   " NULL OR i.command IS NULL"),
				0);
			assert_int_equal(raw_number(&after,
						    "SELECT integrity_check ="
						    " 'ok' FROM"
						    " pragma_integrity_check"),
					 1);
		}
	}
	fixture_finish(&after);
	return is_good;
}

static void power_cuts_lose_nothing_told(void **state)
{
	int n = is_long_run() ? 1000 : 40;

	(void)state;
	for (int i = 0; i < n; i++) {
		unsigned now = seed;
		/* Mostly early; each fourth also behind checkpoints. */
		long at = 1 + rand_r(&seed) % (i % 4 ? 400 : 4000);

		if (!survives(at, false))
			fail_msg("seed=%u cut=%ld: a told run is lost", now,
				 at);
	}
	print_message("# count=%d power cuts\n", n);
}

/* The test must see it when a sync is not one (as synchronous=NORMAL does). */
static void power_cuts_find_a_lying_disk(void **state)
{
	int n_found = 0;

	(void)state;
	for (int i = 0; i < 30 && !n_found; i++)
		n_found += !survives(60 + rand_r(&seed) % 200, true);
	assert_true(n_found > 0);
}

static void no_file_is_left_open(void **state)
{
	struct fixture f;
	char path[256];

	(void)state;
	fixture_init(&f);
	fixture_open(&f);
	in_dir(&f, DB_FILE "-open", path);
	assert_int_equal(access(path, F_OK), 0);
	fixture_close(&f);
	assert_int_equal(access(path, F_OK), -1);
	fixture_finish(&f);
}

int main(void)
{
	const char *given = getenv("HUTCH_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_fails_once),
		cmocka_unit_test(open_fails_clean),
		cmocka_unit_test(power_cuts_lose_nothing_told),
		cmocka_unit_test(power_cuts_find_a_lying_disk),
		cmocka_unit_test(no_file_is_left_open),
	};

	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	print_message("# seed=%u (HUTCH_SEED)\n", seed);
	test_vfs_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
