/*
 * What the store finds when it opens: locks, damage, other schemas (hardening
 * L4 to L8), and records that cannot be read.
 */
#include "store_test_util.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct fixture f;

static int setup(void **state)
{
	(void)state;
	fixture_init(&f);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_finish(&f);
	return 0;
}

static void path_of(const char *name, char path[256])
{
	snprintf(path, 256, "%s/%s", f.dir, name);
}

static void put_file(const char *name, const void *data, size_t len)
{
	char path[256];
	FILE *file;

	path_of(name, path);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, len, file), len);
	assert_int_equal(fclose(file), 0);
}

static void put_database(int n_runs)
{
	struct store_found found;
	char key[16];

	fixture_open(&f);
	for (int n = 1; n <= n_runs; n++) {
		snprintf(key, sizeof(key), "k%d", n);
		assert_int_equal(begin_now(&f, n, key, &found), 0);
	}
	fixture_close(&f);
}

/* The store must refuse, say `words`, and leave `name` as it was. */
static void assert_refused(const char *name, const char *words)
{
	struct stat before = {0}, after = {0};
	struct store *s = NULL;
	struct err e = {0};
	char path[256];

	path_of(name, path);
	stat(path, &before);
	assert_int_equal(store_open(&s, f.loop, f.dir, &e), -1);
	if (!strstr(e.text, words))
		fail_msg("\"%s\" does not say \"%s\"", e.text, words);
	stat(path, &after);
	assert_int_equal(before.st_size, after.st_size);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

static void second_daemon_is_refused(void **state)
{
	char pid[32];

	(void)state;
	fixture_open(&f);
	snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
	assert_refused(DB_FILE, "another hutchd");
	assert_refused(DB_FILE, pid);
	fixture_close(&f);
	fixture_open(&f);
}

static void everything_is_private(void **state)
{
	static const char *const names[] = {"", DB_FILE, DB_FILE "-wal",
					    DB_FILE "-open"};
	struct stat st;
	char path[256];

	(void)state;
	fixture_open(&f);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		path_of(names[i], path);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 077, 0);
	}
}

static void damaged_files_are_refused(void **state)
{
	static char garbage[8192];
	char path[256];

	(void)state;
	put_file(DB_FILE, "", 0);
	assert_refused(DB_FILE, "is empty");
	memset(garbage, 'x', sizeof(garbage));
	put_file(DB_FILE, garbage, sizeof(garbage));
	assert_refused(DB_FILE, "not a database");
	path_of(DB_FILE, path);
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_refused(DB_FILE, "not a regular file");
	rmdir(path);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_refused("x", "not a regular file");
	unlink(path);
	put_file(DB_FILE "-wal", garbage, 100);
	assert_refused(DB_FILE "-wal", "is gone");
	path_of(DB_FILE "-wal", path);
	unlink(path);
	put_database(1); /* all is well without them */
}

/* A page of the table is overwritten: quick_check finds it. */
static void damaged_pages_are_refused(void **state)
{
	char path[256], junk[600];
	struct stat st;
	int fd;

	(void)state;
	put_database(50);
	path_of(DB_FILE, path);
	assert_int_equal(stat(path, &st), 0);
	memset(junk, 0xee, sizeof(junk));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	for (off_t at = 4096; at < st.st_size; at += 4096)
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at),
				 sizeof(junk));
	close(fd);
	assert_refused(DB_FILE, "nothing was changed");
	assert_refused(DB_FILE, "put a backup in its place");
}

/* The folder of a daemon that was killed: as it lay there. */
static void copy_while_open(const char *name, const char *as)
{
	static char buf[1 << 20];
	char path[256];
	FILE *in;
	size_t n;

	path_of(name, path);
	in = fopen(path, "re");
	assert_non_null(in);
	n = fread(buf, 1, sizeof(buf), in);
	fclose(in);
	put_file(as, buf, n);
}

static void lost_log_is_refused(void **state)
{
	struct store_found found;
	char path[256], byte;
	int fd;

	(void)state;
	fixture_open(&f);
	assert_int_equal(begin_now(&f, 1, "k", &found), 0);
	copy_while_open(DB_FILE "-wal", "wal");
	copy_while_open(DB_FILE, "db");
	fixture_close(&f);
	/* Killed, log and mark there: recovered. */
	copy_while_open("db", DB_FILE);
	copy_while_open("wal", DB_FILE "-wal");
	put_file(DB_FILE "-open", "", 0);
	fixture_open(&f);
	assert_int_equal(begin_now(&f, 2, "k", &found), 0);
	assert_true(found.is_found);
	fixture_close(&f);
	/* Killed, the log removed. */
	copy_while_open("db", DB_FILE);
	put_file(DB_FILE "-open", "", 0);
	assert_refused(DB_FILE, "missing");
	/* Its header flipped, cut. */
	copy_while_open("wal", DB_FILE "-wal");
	path_of(DB_FILE "-wal", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pread(fd, &byte, 1, 17), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, 17), 1);
	assert_refused(DB_FILE "-wal", "damaged");
	assert_int_equal(ftruncate(fd, 31), 0);
	assert_refused(DB_FILE "-wal", "damaged");
	close(fd);
	/* The loss accepted, as the message says. */
	path_of(DB_FILE "-open", path);
	unlink(path);
	fixture_open(&f);
	fixture_close(&f);
	path_of("wal", path);
	unlink(path);
	path_of("db", path);
	unlink(path);
}

static void other_schemas_are_refused(void **state)
{
	char sql[64];

	(void)state;
	put_database(1);
	snprintf(sql, sizeof(sql), "PRAGMA user_version = %d",
		 db_schema_version() + 1);
	raw_exec(&f, sql);
	assert_refused(DB_FILE, "use a newer hutchd");
	snprintf(sql, sizeof(sql), "PRAGMA user_version = %d",
		 db_schema_version());
	raw_exec(&f, sql);
	raw_exec(&f, "PRAGMA application_id = 42");
	assert_refused(DB_FILE, "another program");
	raw_exec(&f, "PRAGMA application_id = 0");
	assert_refused(DB_FILE, "another program");
}

/* What was not known then is zero. */
static void on_old_snapshot(void *ctx, int rc, struct snapshot_rec *r)
{
	static const uint8_t unknown[HASH_BYTES];

	if (!rc) {
		assert_int_equal(r->sums.state[0], 0xab);
		assert_memory_equal(r->sums.mem, unknown, HASH_BYTES);
		assert_memory_equal(r->sums.disk, unknown, HASH_BYTES);
		assert_int_equal(r->expires_ms, 0);
		assert_int_equal(r->incarnation, 3);
	}
	on_rc(ctx, rc);
}

/* A database as an earlier version wrote it: it must open for ever. */
static void opens(const char *path)
{
	struct answer a;

	saved_schema_load(&f, path);
	answer_init(&a, &f);
	store_run_get(f.store, "env_a", "main", sandbox_of(1).command, true,
		      on_run, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	assert_int_equal(a.sbx.status, SBX_DESTROYED);
	assert_int_equal(a.cmd.status, CMD_SUCCEEDED);
	assert_memory_equal(a.cmd.result.data, "[1,2]", 5);
	assert_memory_equal(a.cmd.out[0].head.data, "hello\n", 6);
	answer_finish(&a);
	answer_init(&a, &f);
	store_snapshot_get(f.store, "env_a", "main", "snp_a1b2",
			   on_old_snapshot, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "PRAGMA user_version"),
			 db_schema_version());
	/* Schema 6: each key and each snapshot has its event. */
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM event WHERE"
					" kind = 6 AND sandbox = 'env_a' AND"
					" command = 'ci'"),
			 1);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM event, snapshot"
					" WHERE kind = 5 AND event.sandbox ="
					" id"),
			 raw_number(&f, "SELECT count(*) FROM snapshot"));
}

static void saved_schema_1_opens(void **state)
{
	(void)state;
	opens("hostd/store/fixtures/schema1.sql");
}

static void on_old_snapshot_2(void *ctx, int rc, struct snapshot_rec *r)
{
	if (!rc) {
		assert_int_equal(r->sums.disk[0], 0xef);
		assert_int_equal(r->expires_ms, 1900000060000);
		assert_string_equal(r->snapshot, "");
	}
	on_rc(ctx, rc);
}

/* One as the program before saved templates, names and labels wrote it. */
static void saved_schema_2_opens(void **state)
{
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 10};
	struct sandbox_rec s;
	struct answer a;

	(void)state;
	saved_schema_load(&f, "hostd/store/fixtures/schema2.sql");
	answer_init(&a, &f);
	store_run_get(f.store, "env_a", "main", sandbox_of(1).command, true,
		      on_run, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	assert_memory_equal(a.cmd.out[0].head.data, "hello\n", 6);
	assert_string_equal(a.cmd.template_name, "");
	assert_string_equal(a.sbx.template_name, "lbb/python");
	answer_finish(&a);
	answer_init(&a, &f);
	store_snapshot_get(f.store, "env_a", "main", "snp_a1b2",
			   on_old_snapshot_2, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	/* One that began from it; it gets a name, and is found by that. */
	store_sandbox_get(f.store, "env_a", "main", sandbox_of(4).id,
			  on_sandbox, &a);
	answer_wait(&a, 2);
	assert_int_equal(a.rc, 0);
	assert_string_equal(a.sbx.snapshot, "snp_a1b2");
	assert_string_equal(a.sbx.template_id, "");
	s = a.sbx;
	snprintf(s.name, sizeof(s.name), "old one");
	assert_int_equal(update_now(&f, &s, NULL, false), 0);
	p.name = "old one";
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 3);
	assert_int_equal(a.n_ids, 1);
	assert_string_equal(a.ids[0], s.id);
	p.name = NULL;
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 4);
	assert_int_equal(a.n_ids, 4);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "PRAGMA user_version"),
			 db_schema_version());
}

/* ---- records that cannot be read (L7) --------------------------------------
 */

static void damaged_records_are_set_aside(void **state)
{
	/* unknown version, missing key, extra key, wrong type, too long */
	static const char *const recs[] = {
		"x'a10002'",	     "x'a10001'",	 "x'a2000118633f00'",
		"x'a20001016161ff'", "zeroblob(100000)", "x''",
		"randomblob(500)",
	};
	const int n = sizeof(recs) / sizeof(*recs);
	struct store_page p = {
		.environment = "env_a", .graph = "main", .limit = 100};
	unsigned n_lost;
	struct answer a;
	char sql[256];
	struct err e;

	(void)state;
	put_database(2 * n + 1);
	for (int i = 0; i < n; i++) {
		snprintf(sql, sizeof(sql),
			 "UPDATE sandbox SET rec = %s WHERE seq = %d", recs[i],
			 2 * i + 1);
		raw_exec(&f, sql);
		snprintf(sql, sizeof(sql),
			 "UPDATE command SET rec = %s WHERE seq = %d", recs[i],
			 2 * i + 2);
		raw_exec(&f, sql);
	}
	fixture_open(&f);
	answer_init(&a, &f);
	store_sandbox_list(f.store, &p, on_sandboxes, &a);
	answer_wait(&a, 1);
	assert_int_equal(a.rc, 0);
	assert_int_equal(a.n_ids, n + 1); /* the others load */
	store_command_list(f.store, &p, on_commands, &a);
	answer_wait(&a, 2);
	assert_int_equal(a.n_ids, n + 1);
	for (int i = 1; i <= 2; i++) {
		store_sandbox_get(f.store, "env_a", "main", sandbox_of(1).id,
				  on_sandbox, &a);
		answer_wait(&a, 2 + i);
		assert_int_equal(a.rc, -EBADMSG);
	}
	/* What ran is lost, also where the record says nothing. */
	assert_int_equal(store_recover(f.store, "boot-1", 5, &n_lost, &e), 0);
	fixture_close(&f);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM sandbox WHERE"
					" status <> 8"),
			 0);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM command WHERE"
					" status <> 7"),
			 0);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM sandbox WHERE"
					" is_quarantined"),
			 n);
	assert_int_equal(raw_number(&f, "SELECT count(*) FROM event WHERE"
					" kind = 4"),
			 2 * n);
	/* The bytes are kept for a person. */
	assert_int_equal(raw_number(&f, "SELECT length(rec) FROM sandbox"
					" WHERE seq = 9"),
			 100000);
	fixture_open(&f);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(second_daemon_is_refused),
		TEST(everything_is_private),
		TEST(damaged_files_are_refused),
		TEST(damaged_pages_are_refused),
		TEST(lost_log_is_refused),
		TEST(other_schemas_are_refused),
		TEST(saved_schema_1_opens),
		TEST(saved_schema_2_opens),
		TEST(damaged_records_are_set_aside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
