/* Unit tests of the state folder: which ones are taken, which are refused. */
#include "fd.h"
#include "state_dir.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/state_dir_test.XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	char cmd[96];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd); // NOLINT(cert-env33-c): our own folder
}

static void put(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static unsigned mode(void)
{
	struct stat st;

	assert_int_equal(stat(dir, &st), 0);
	return st.st_mode & 07777;
}

static bool has(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !access(path, F_OK);
}

static void an_empty_folder_is_taken(void **state)
{
	struct err e;
	int fd;

	(void)state;
	assert_int_equal(chmod(dir, 0755), 0);
	fd = state_dir_open(dir, &e);
	assert_true(fd >= 0);
	assert_int_equal(mode(), 0700);
	close(fd);
}

static void a_missing_folder_is_made(void **state)
{
	char path[128], parent[96];
	struct stat st;
	struct err e;
	int fd;

	(void)state;
	snprintf(parent, sizeof(parent), "%s/a", dir);
	snprintf(path, sizeof(path), "%s/b", parent);
	fd = state_dir_open(path, &e);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(parent, &st), 0);
	assert_true((st.st_mode & 0700) == 0700);
}

/* What `hutch run` and a service's log leave before the first start. */
static void a_folder_with_our_files_is_taken(void **state)
{
	struct err e;
	int fd;

	(void)state;
	put("start.lock");
	put("users.lock");
	put("hutchd.log");
	put("node.new");
	put("stopped");
	assert_int_equal(chmod(dir, 0750), 0);
	fd = state_dir_open(dir, &e);
	assert_true(fd >= 0);
	assert_int_equal(mode(), 0700);
	close(fd);
}

static void a_foreign_folder_stays_as_it_is(void **state)
{
	struct err e;

	(void)state;
	put("letter.txt");
	assert_int_equal(chmod(dir, 01777), 0);
	assert_int_equal(state_dir_open(dir, &e), -1);
	assert_int_equal(e.code, ERR_INVALID_REQUEST);
	assert_non_null(strstr(e.text, dir));
	assert_non_null(strstr(e.text, "\"letter.txt\" and no hutch.db"));
	assert_non_null(strstr(e.text, "empty or a new folder"));
	assert_int_equal(mode(), 01777);
	assert_false(has("lock"));
	/* Closed already, but still not ours. */
	assert_int_equal(chmod(dir, 0700), 0);
	assert_int_equal(state_dir_open(dir, &e), -1);
}

static void a_state_with_a_foreign_file(void **state)
{
	struct err e;
	int fd;

	(void)state;
	put("hutch.db");
	put("notes");
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(state_dir_open(dir, &e), -1);
	assert_non_null(strstr(e.text, "mode 0755"));
	assert_non_null(strstr(e.text, "\"notes\""));
	assert_int_equal(mode(), 0755);
	assert_int_equal(chmod(dir, 0700), 0);
	fd = state_dir_open(dir, &e);
	assert_true(fd >= 0);
	close(fd);
}

static void a_second_daemon_is_told_the_first(void **state)
{
	char pid[32];
	struct err e;
	int fd;

	(void)state;
	fd = state_dir_open(dir, &e);
	assert_true(fd >= 0);
	assert_int_equal(state_dir_open(dir, &e), -1);
	snprintf(pid, sizeof(pid), "(pid %d)", (int)getpid());
	assert_non_null(strstr(e.text, pid));
	assert_non_null(strstr(e.text, "--state"));
	close(fd);
	/* The next one's pid takes the place of the last one's. */
	fd = state_dir_open(dir, &e);
	assert_true(fd >= 0);
	close(fd);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_folder_is_taken),
		TEST(a_missing_folder_is_made),
		TEST(a_folder_with_our_files_is_taken),
		TEST(a_foreign_folder_stays_as_it_is),
		TEST(a_state_with_a_foreign_file),
		TEST(a_second_daemon_is_told_the_first),
	};

	return cmocka_run_group_tests_name("state_dir", tests, NULL, NULL);
}
