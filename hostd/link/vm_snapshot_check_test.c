/*
 * Snapshots whose files are not what was taken any more (snapshot_check.c):
 * altered, cut short, or lost by the disk.
 */
#include "../image/filehash.h"
#include "vm_snapshot_test_util.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void begins(const struct snapshot_from *f)
{
	struct err e = {0};
	struct seen s;

	assert_int_equal(begin_from(&s, f, &e), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.why, END_NONE);
	assert_int_equal(s.bound + s.ended, 2);
}

/* What verifying says of it: "" = nothing. */
static void on_verified(void *ctx, const struct err *e)
{
	snprintf(ctx, ERR_TEXT_BYTES_MAX, "%s", e ? e->text : "");
	loop_stop(loop);
}

static void verifies(const struct snapshot_from *f, const char *want)
{
	char text[ERR_TEXT_BYTES_MAX] = "nobody was told";
	struct err e = {0};

	assert_int_equal(snapshot_verify(lnk, f, on_verified, text, &e), 0);
	assert_int_equal(loop_run(loop), 0);
	if (*want ? !strstr(text, want) : *text)
		fail_msg("'%s', not '%s'", text, want);
}

static int file_of(const char *name)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "snapshots/" ID "/%s", name);
	assert_int_equal(fchmodat(lnk->state_fd, path, 0600, 0), 0);
	fd = openat(lnk->state_fd, path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

/* One bit of its first byte of data. */
static void flip(const char *name)
{
	int fd = file_of(name);
	off_t at = lseek(fd, 0, SEEK_DATA);
	uint8_t byte;

	assert_true(at >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* As if nobody had written to it, which is how a disk loses bytes: what is
 * remembered of it is what it was. */
static void forge(const char *name, const uint8_t was[HASH_BYTES])
{
	char bad[65], good[65], hex[65] = "";
	uint8_t is[HASH_BYTES];
	int fd = file_of(name), n = 0, dup;
	struct dirent *d;
	DIR *dir;

	assert_int_equal(
		file_hash(&lnk->hashes, FILE_HASH_SPARSE, fd, true, is), 0);
	close(fd);
	hash_to_hex(is, bad);
	hash_to_hex(was, good);
	dup = fcntl(lnk->hashes.dir_fd, F_DUPFD_CLOEXEC, 0);
	dir = fdopendir(dup);
	assert_non_null(dir);
	rewinddir(dir);
	while ((d = readdir(dir))) {
		fd = openat(lnk->hashes.dir_fd, d->d_name, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (pread(fd, hex, 64, 0) == 64 && !strcmp(hex, bad)) {
			assert_int_equal(pwrite(fd, good, 64, 0), 64);
			n++;
		}
		close(fd);
	}
	closedir(dir);
	assert_true(n > 0);
}

static unsigned n_remembered(void)
{
	int dup = fcntl(lnk->hashes.dir_fd, F_DUPFD_CLOEXEC, 0);
	DIR *dir = fdopendir(dup);
	unsigned n = 0;

	assert_non_null(dir);
	rewinddir(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void test_altered(void **state)
{
	static const char *const names[] = {"state", "mem", "disk"};
	struct snapshot_from f, old;
	unsigned n;
	char why[80];
	int fd;

	(void)state;
	take_good();
	/* Hashed when it was taken, and not again when one begins from it. */
	n = n_remembered();
	f = from_taken();
	begins(&f);
	assert_int_equal(n_remembered(), n);
	verifies(&f, "");
	for (int i = 0; i < 3; i++) {
		snprintf(why, sizeof(why), "file %s of the snapshot " ID,
			 names[i]);
		flip(names[i]);
		begins_not(&f, why);
		begins_not(&f, "SHA-256");
		verifies(&f, why);
		flip(names[i]);
		begins(&f);
		verifies(&f, "");
	}
	/* Of a record that has no sums of memory and disk. */
	old = f;
	memset(old.sums.mem, 0, HASH_BYTES);
	memset(old.sums.disk, 0, HASH_BYTES);
	flip("disk");
	begins(&old);
	verifies(&old, "");
	/* Nobody wrote, and it is another one: only reading all of it tells. */
	begins_not(&f, "file disk");
	forge("disk", f.sums.disk);
	begins(&f);
	verifies(&f, "file disk");
	/* Cut short. */
	flip("disk");
	verifies(&f, "");
	fd = file_of("mem");
	assert_int_equal(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
	close(fd);
	begins_not(&f, "file mem");
	n = n_remembered();
	remove_all();
	/* What was there last is forgotten. */
	assert_int_equal(n_remembered(), n - 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_altered),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests(tests, setup_patient, link_remove);
}
