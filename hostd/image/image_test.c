/* Disks, sparse copies, and remembered hashes, in a folder of their own. */
#include "bytes.h"
#include "disk.h"
#include "fd.h"
#include "filehash.h"
#include "images.h"
#include "sparse.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

static char folder[64];
static int folder_fd;

static int setup(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/hutch-image-test-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return folder_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	char cmd[128];

	(void)state;
	close(folder_fd);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", folder);
	return system(cmd);
}

static int file_new(const char *name)
{
	int fd = openat(folder_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
			0600);

	assert_true(fd >= 0);
	return fd;
}

static void skip_without_mke2fs(void)
{
	if (access("/usr/sbin/mke2fs", X_OK) && access("/sbin/mke2fs", X_OK))
		skip();
}

static void test_disk(void **state)
{
	uint64_t copied = 0;
	uint8_t a[32], b[32];
	struct err e = {0};
	struct stat st;
	int fd, copy;

	(void)state;
	skip_without_mke2fs();
	assert_int_equal(disk_template_open(folder, &fd, &e), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_size == DISK_VIRTUAL_BYTES);
	printf("empty disk: %llu KiB allocated\n",
	       (unsigned long long)sparse_allocated(fd) >> 10);
	assert_true(sparse_allocated(fd) <= 4u << 20);
	assert_int_equal(disk_copy(fd, folder_fd, &copy, &copied), 0);
	assert_true(copied <= 4u << 20);
	assert_true(sparse_allocated(copy) <= 4u << 20);
	assert_int_equal(sparse_hash(fd, a), 0);
	assert_int_equal(sparse_hash(copy, b), 0);
	assert_memory_equal(a, b, 32);
	/* The copy has no name and is its own. */
	assert_int_equal(fstat(copy, &st), 0);
	assert_int_equal(st.st_nlink, 0);
	assert_int_equal(fd_pwrite_all(copy, "x", 1, 4096), 0);
	assert_int_equal(sparse_hash(fd, b), 0);
	assert_memory_equal(a, b, 32);
	close(fd);
	close(copy);
}

/* The same bytes each time: keys and hashes may depend on them. */
static void test_disk_is_reproducible(void **state)
{
	char path[128];
	uint8_t a[32], b[32];
	struct err e = {0};
	int fd;

	(void)state;
	skip_without_mke2fs();
	snprintf(path, sizeof(path), "%s/disks/" DISK_FORMAT, folder);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(disk_template_open(folder, &fd, &e), 0);
		assert_int_equal(sparse_hash(fd, i ? b : a), 0);
		close(fd);
		assert_int_equal(unlink(path), 0);
	}
	assert_memory_equal(a, b, 32);
	/* One that is not whole is replaced. */
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	close(fd);
	assert_int_equal(disk_template_open(folder, &fd, &e), 0);
	assert_int_equal(sparse_hash(fd, b), 0);
	assert_memory_equal(a, b, 32);
	close(fd);
}

struct opener {
	pthread_t thread;
	int rc, fd;
};

static void *opener_run(void *arg)
{
	struct opener *o = arg;
	struct err e = {0};

	o->rc = disk_template_open(folder, &o->fd, &e);
	return NULL;
}

/* A daemon prepares several templates at once on an empty cache: all get the
 * one whole disk. */
static void test_disk_of_many(void **state)
{
	struct opener all[4];
	char path[128];
	uint8_t a[32], b[32];
	struct err e = {0};
	int fd;

	(void)state;
	skip_without_mke2fs();
	assert_int_equal(disk_template_open(folder, &fd, &e), 0);
	assert_int_equal(sparse_hash(fd, a), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/disks/" DISK_FORMAT, folder);
	for (int turn = 0; turn < 5; turn++) {
		assert_int_equal(unlink(path), 0);
		for (int i = 0; i < 4; i++)
			assert_int_equal(pthread_create(&all[i].thread, NULL,
							opener_run, &all[i]),
					 0);
		for (int i = 0; i < 4; i++)
			pthread_join(all[i].thread, NULL);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(all[i].rc, 0);
			assert_int_equal(sparse_hash(all[i].fd, b), 0);
			assert_memory_equal(a, b, 32);
			close(all[i].fd);
		}
	}
}

static void test_sparse(void **state)
{
	const off_t at[] = {0, 1 << 20, (1 << 30) - 5, (1 << 30) + 12345};
	int src = file_new("src"), dst = file_new("dst");
	uint8_t page[4096], zero[4096] = {0}, a[32], b[32];
	uint64_t freed = 0, before;

	(void)state;
	memset(page, 0x5a, sizeof(page));
	assert_int_equal(ftruncate(src, 2ll << 30), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(fd_pwrite_all(src, page, sizeof(page), at[i]),
				 0);
	assert_int_equal(sparse_hash(src, a), 0);
	/* Zeroes that were written are data until they are dug out. */
	for (int i = 0; i < 64; i++)
		assert_int_equal(fd_pwrite_all(src, zero, sizeof(zero),
					       (1 << 28) + i * 4096),
				 0);
	assert_int_equal(sparse_hash(src, b), 0);
	assert_memory_equal(a, b, 32);
	assert_int_equal(fsync(src), 0);
	before = sparse_allocated(src);
	assert_int_equal(sparse_dig(src, &freed), 0);
	assert_true(freed >= 64 * 4096);
	assert_true(sparse_allocated(src) < before);
	assert_int_equal(sparse_copy(src, dst, NULL), 0);
	assert_int_equal(sparse_hash(dst, b), 0);
	assert_memory_equal(a, b, 32);
	assert_true(sparse_allocated(dst) < 1u << 20);
	/* Size and place of the data count. */
	assert_int_equal(ftruncate(dst, (2ll << 30) + 1), 0);
	assert_int_equal(sparse_hash(dst, b), 0);
	assert_memory_not_equal(a, b, 32);
	close(src);
	close(dst);
}

static void test_hashes(void **state)
{
	/* SHA-256 of "abc" */
	static const char abc[] = "ba7816bf8f01cfea414140de5dae2223"
				  "b00361a396177a9cb410ff61f20015ad";
	int fd = file_new("abc");
	struct file_hashes h;
	uint8_t sha[32], want[32];
	char hex[65], name[200], path[300];
	struct stat st;
	FILE *f;

	(void)state;
	assert_int_equal(file_hashes_open(&h, folder_fd), 0);
	assert_int_equal(fd_write_all(fd, "abc", 3), 0);
	assert_int_equal(file_hash(&h, FILE_HASH_PLAIN, fd, false, sha), 0);
	hash_to_hex(sha, hex);
	assert_string_equal(hex, abc);
	assert_int_equal(hash_from_hex(hex, want), 0);
	assert_memory_equal(sha, want, 32);
	/* It is remembered under its stamp: a forged memory is believed ... */
	assert_int_equal(fstat(fd, &st), 0);
	snprintf(name, sizeof(name), "p-%llx-%llx-%llx-%llx.%09lx-%llx.%09lx",
		 (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
		 (unsigned long long)st.st_size,
		 (unsigned long long)st.st_mtim.tv_sec,
		 (unsigned long)st.st_mtim.tv_nsec,
		 (unsigned long long)st.st_ctim.tv_sec,
		 (unsigned long)st.st_ctim.tv_nsec);
	snprintf(path, sizeof(path), "%s/hashes/%s", folder, name);
	f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "%064d", 0);
	fclose(f);
	assert_int_equal(file_hash(&h, FILE_HASH_PLAIN, fd, false, sha), 0);
	assert_memory_not_equal(sha, want, 32);
	/* ... but not when asked to verify, and half a memory never. */
	assert_int_equal(file_hash(&h, FILE_HASH_PLAIN, fd, true, sha), 0);
	assert_memory_equal(sha, want, 32);
	assert_int_equal(truncate(path, 10), 0);
	assert_int_equal(file_hash(&h, FILE_HASH_PLAIN, fd, false, sha), 0);
	assert_memory_equal(sha, want, 32);
	/* Another content, another stamp. */
	assert_int_equal(fd_write_all(fd, "d", 1), 0);
	assert_int_equal(file_hash(&h, FILE_HASH_PLAIN, fd, false, sha), 0);
	assert_memory_not_equal(sha, want, 32);
	assert_int_equal(hash_from_hex("xyz", sha), -EINVAL);
	hex[5] = 'G';
	assert_int_equal(hash_from_hex(hex, sha), -EINVAL);
	file_hashes_close(&h);
	close(fd);
}

static void list_write(const char *text)
{
	int fd = file_new("images.json");

	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static void test_images(void **state)
{
	static struct images im;
	struct file_hashes h = {.dir_fd = -1};
	struct err e = {0};
	int fd = file_new("root.erofs"), got = -1;
	char text[400];

	(void)state;
	assert_int_equal(fd_write_all(fd, "abc", 3), 0);
	close(fd);
	snprintf(text, sizeof(text),
		 "{\"python\": {\"path\": \"root.erofs\", \"bytes\": 3, "
		 "\"key\": \"k\", \"sha256\": \"ba7816bf8f01cfea414140de5dae222"
		 "3b00361a396177a9cb410ff61f20015ad\"}}");
	list_write(text);
	assert_int_equal(images_load(&im, folder, &e), 0);
	assert_null(images_find(&im, "node"));
	assert_non_null(images_find(&im, "python"));
	assert_int_equal(
		image_open(images_find(&im, "python"), &h, false, &got, &e), 0);
	close(got);
	/* Damaged, then cut short: each by its name. */
	fd = file_new("root.erofs");
	assert_int_equal(fd_write_all(fd, "abd", 3), 0);
	assert_int_equal(
		image_open(images_find(&im, "python"), &h, false, &got, &e),
		-1);
	assert_non_null(strstr(e.text, "damaged"));
	assert_int_equal(ftruncate(fd, 2), 0);
	assert_int_equal(
		image_open(images_find(&im, "python"), &h, false, &got, &e),
		-1);
	assert_non_null(strstr(e.text, "has 2 bytes"));
	close(fd);
	list_write("{\"python\": {\"path\": 1}}");
	assert_int_equal(images_load(&im, folder, &e), -1);
	list_write("[1]");
	assert_int_equal(images_load(&im, folder, &e), -1);
	list_write("{");
	assert_int_equal(images_load(&im, folder, &e), -1);
	assert_int_equal(images_load(&im, "/nonexistent", &e), -1);
	assert_non_null(strstr(e.text, "make images"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disk),
		cmocka_unit_test(test_disk_is_reproducible),
		cmocka_unit_test(test_disk_of_many),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_hashes),
		cmocka_unit_test(test_images),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
