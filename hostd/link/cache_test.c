/* Keys, and the cache of snapshots: made, found, damaged, locked. */
#include "bytes.h"
#include "cache.h"
#include "fd.h"
#include "key.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char folder[64];
static struct file_hashes hashes;
static struct cache cache;

static int setup(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/hutch-cache-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	cache.dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cache.hashes = &hashes;
	return file_hashes_open(&hashes, cache.dir_fd);
}

static int teardown(void **state)
{
	char cmd[128];

	(void)state;
	file_hashes_close(&hashes);
	close(cache.dir_fd);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", folder);
	return system(cmd);
}

static bool is_there(const char *name)
{
	return faccessat(cache.dir_fd, name, F_OK, 0) == 0;
}

static void entry_make(const char *content)
{
	struct cache_making m;
	struct err e = {0};

	assert_int_equal(cache_making_begin(&cache, KEY, &m, &e), 0);
	assert_int_equal(fd_write_all(m.state_fd, content, strlen(content)), 0);
	assert_int_equal(ftruncate(m.mem_fd, 1 << 20), 0);
	assert_int_equal(
		fd_pwrite_all(m.mem_fd, content, strlen(content), 123456), 0);
	assert_int_equal(ftruncate(m.disk_fd, 1 << 20), 0);
	assert_int_equal(cache_making_commit(&cache, KEY, &m, "a=1\n", 7, &e),
			 0);
	cache_making_end(&cache, KEY, &m);
	assert_false(is_there("snapshots/.new-" KEY));
	assert_false(is_there("snapshots/.old-" KEY));
}

static void test_made_and_found(void **state)
{
	struct snapshot_files f;
	struct err e = {0};
	char buf[8] = {0};

	(void)state;
	assert_int_equal(cache_open(&cache, KEY, false, &f, &e), -ENOENT);
	entry_make("one");
	assert_int_equal(cache_open(&cache, KEY, false, &f, &e), 0);
	assert_int_equal(fd_pread_all(f.state_fd, buf, 3, 0), 0);
	assert_string_equal(buf, "one");
	/* Read-only: nobody writes into what VMs map. */
	assert_int_equal(pwrite(f.mem_fd, "x", 1, 0), -1);
	/* A new one takes its place; who has the old one keeps it. */
	entry_make("two");
	assert_int_equal(fd_pread_all(f.state_fd, buf, 3, 0), 0);
	assert_string_equal(buf, "one");
	snapshot_files_close(&f);
	assert_int_equal(cache_open(&cache, KEY, true, &f, &e), 0);
	assert_int_equal(fd_pread_all(f.state_fd, buf, 3, 0), 0);
	assert_string_equal(buf, "two");
	snapshot_files_close(&f);
}

static void overwrite(const char *file, off_t at, const char *text)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "snapshots/" KEY "/%s", file);
	assert_int_equal(fchmodat(cache.dir_fd, path, 0600, 0), 0);
	fd = openat(cache.dir_fd, path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fd_pwrite_all(fd, text, strlen(text), at), 0);
	close(fd);
}

/* A hint: an entry is whole without it, and with a damaged one. */
static void test_touched(void **state)
{
	static const char file[] = "snapshots/" KEY "/touched";
	struct snapshot_files f;
	struct cache_making m;
	struct err e = {0};

	(void)state;
	entry_make("none");
	assert_false(is_there(file));
	assert_int_equal(cache_open(&cache, KEY, false, &f, &e), 0);
	assert_int_equal(f.touched_fd, -1);
	snapshot_files_close(&f);

	for (int i = 0; i < 3; i++) {
		assert_int_equal(cache_making_begin(&cache, KEY, &m, &e), 0);
		assert_int_equal(fd_write_all(m.touched_fd, "pages", 5), 0);
		assert_int_equal(
			cache_making_commit(&cache, KEY, &m, "", 7, &e), 0);
		cache_making_end(&cache, KEY, &m);
		assert_true(is_there(file));
		if (i == 1)
			overwrite("touched", 0, "q");
		if (i == 2)
			unlinkat(cache.dir_fd, file, 0);
		assert_int_equal(cache_open(&cache, KEY, false, &f, &e), 0);
		assert_int_equal(f.touched_fd >= 0, i == 0);
		snapshot_files_close(&f);
	}
	/* Removed with the rest. */
	entry_make("none");
	assert_false(is_there("snapshots/.old-" KEY));
}

static void test_damaged(void **state)
{
	static const char *const files[] = {"state", "mem", "disk"};
	struct snapshot_files f;
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		entry_make("whole");
		overwrite(files[i], 2, "X");
		assert_int_equal(cache_open(&cache, KEY, false, &f, &e),
				 -EBADMSG);
		assert_non_null(strstr(e.text, files[i]));
		assert_non_null(strstr(e.text, "damaged"));
		/* Cut short. */
		entry_make("whole");
		overwrite(files[i], 1 << 20, "longer");
		assert_int_equal(cache_open(&cache, KEY, false, &f, &e),
				 -EBADMSG);
		assert_non_null(strstr(e.text, "bytes in place of"));
	}
	entry_make("whole");
	overwrite("meta.json", 0, "]");
	assert_int_equal(cache_open(&cache, KEY, false, &f, &e), -EBADMSG);
	entry_make("whole");
	assert_int_equal(unlinkat(cache.dir_fd, "snapshots/" KEY "/mem", 0), 0);
	assert_int_equal(cache_open(&cache, KEY, false, &f, &e), -EBADMSG);
	/* A link in place of a file is not followed. */
	assert_int_equal(
		symlinkat("state", cache.dir_fd, "snapshots/" KEY "/mem"), 0);
	assert_int_equal(cache_open(&cache, KEY, false, &f, &e), -EBADMSG);
	entry_make("whole");
	assert_int_equal(cache_open(&cache, KEY, true, &f, &e), 0);
	snapshot_files_close(&f);
}

static void test_given_up(void **state)
{
	struct cache_making m;
	struct err e = {0};

	(void)state;
	assert_int_equal(cache_making_begin(&cache, "abc", &m, &e), 0);
	assert_true(is_there("snapshots/.new-abc/mem"));
	/* Killed there: the next maker begins anew. */
	fd_close(&m.dir_fd);
	fd_close(&m.state_fd);
	fd_close(&m.mem_fd);
	fd_close(&m.disk_fd);
	assert_int_equal(cache_making_begin(&cache, "abc", &m, &e), 0);
	cache_making_end(&cache, "abc", &m);
	assert_false(is_there("snapshots/.new-abc"));
}

static void test_lock(void **state)
{
	int a = -1, b = -1;
	struct err e = {0};

	(void)state;
	assert_int_equal(cache_lock(&cache, KEY, &a, &e), 0);
	assert_int_equal(cache_lock(&cache, KEY, &b, &e), -EAGAIN);
	assert_int_equal(cache_lock(&cache, "other", &b, &e), 0);
	fd_close(&a);
	assert_int_equal(cache_lock(&cache, KEY, &a, &e), 0);
	fd_close(&a);
	fd_close(&b);
}

static void test_prune(void **state)
{
	struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	struct cache_making m;
	struct snapshot_files f;
	struct err e = {0};
	int lock = -1;

	(void)state;
	entry_make("fresh");
	assert_int_equal(cache_lock(&cache, KEY, &lock, &e), 0);
	fd_close(&lock);
	assert_int_equal(cache_open(&cache, KEY, false, &f, &e), 0);
	snapshot_files_close(&f);
	/* Opened now: it stays, even when room is short. */
	assert_int_equal(cache_prune(&cache, UINT64_MAX), 0);
	assert_true(is_there("snapshots/" KEY));
	/* A maker that is no more; one that is at work. */
	assert_int_equal(cache_making_begin(&cache, KEY, &m, &e), 0);
	assert_int_equal(cache_lock(&cache, KEY, &lock, &e), 0);
	assert_int_equal(cache_prune(&cache, 0), 0);
	assert_true(is_there("snapshots/.new-" KEY));
	fd_close(&lock);
	assert_int_equal(cache_prune(&cache, 0), 1);
	assert_false(is_there("snapshots/.new-" KEY));
	cache_making_end(&cache, KEY, &m);
	assert_true(is_there("snapshots/" KEY));
	/* Not opened for long. */
	assert_int_equal(utimensat(cache.dir_fd, "locks/" KEY, old, 0), 0);
	assert_int_equal(cache_prune(&cache, 0), 1);
	assert_false(is_there("snapshots/" KEY));
	/* Names that are not ours are left alone. */
	assert_int_equal(mkdirat(cache.dir_fd, "snapshots/other", 0755), 0);
	assert_int_equal(cache_prune(&cache, UINT64_MAX), 0);
	assert_true(is_there("snapshots/other"));
}

static void key_of(const struct key_inputs *in, char hex[KEY_HEX_BYTES])
{
	struct bytes b = {0};

	assert_int_equal(key_make(in, &b, hex), 0);
	assert_int_equal(strlen(hex), 64);
	bytes_finish(&b);
}

/* Every input changes the key, and the same inputs give the same. */
static void test_key(void **state)
{
	struct key_inputs base = {
		.cmdline = "quiet",
		.runner = "python",
		.shape = {.base = "lbb/python", .vcpus = 1, .ram_mib = 512},
	};
	struct key_inputs v[10];
	char keys[11][KEY_HEX_BYTES], again[KEY_HEX_BYTES];

	(void)state;
	for (int i = 0; i < 10; i++)
		v[i] = base;
	v[0].is_soft = true;
	v[1].vmm[31] ^= 1;
	v[2].kernel[0] ^= 1;
	v[3].init[7] ^= 1;
	v[4].root[7] ^= 1;
	v[5].cmdline = "quiet ";
	v[6].runner = "node";
	v[7].has_preload = true;
	v[8].shape.vcpus = 2;
	v[9].shape.ram_mib = 1024;
	key_of(&base, keys[10]);
	key_of(&base, again);
	assert_string_equal(keys[10], again);
	for (int i = 0; i < 10; i++) {
		key_of(&v[i], keys[i]);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(keys[i], keys[k]);
		assert_string_not_equal(keys[i], keys[10]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made_and_found),
		cmocka_unit_test(test_touched),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_prune),
		cmocka_unit_test(test_key),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
