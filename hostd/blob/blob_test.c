/*
 * Bytes by hash: what is written is there, whole and once; what is given up, or
 * has no record, is not.
 */
#include "../loop.h"
#include "blob.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static struct loop *loop;
static struct blobs *blobs;
static char dir[64];
static uint8_t orphan[HASH_BYTES];
static int n_orphans, n_rooms;

static void on_orphan(void *ctx, const uint8_t sha256[HASH_BYTES])
{
	(void)ctx;
	memcpy(orphan, sha256, HASH_BYTES);
	n_orphans++;
}

static void folder_open(void)
{
	struct err e;

	assert_int_equal(blobs_open(&blobs, loop, dir, &e), 0);
	blobs_on_orphan(blobs, on_orphan, NULL);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/hutch-blob-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(loop_create(&loop), 0);
	n_orphans = n_rooms = 0;
	folder_open();
	return 0;
}

static const char *at(const char *name)
{
	static char path[400];

	snprintf(path, sizeof(path), "%s/files/%s", dir, name);
	return path;
}

static unsigned n_names(void)
{
	DIR *d = opendir(at(""));
	unsigned n = 0;
	struct dirent *e;

	while ((e = readdir(d)))
		n += *e->d_name != '.';
	closedir(d);
	return n;
}

static int teardown(void **state)
{
	DIR *d = opendir(at(""));
	struct dirent *e;

	(void)state;
	while ((e = readdir(d)))
		unlink(at(e->d_name));
	closedir(d);
	rmdir(at(""));
	blobs_close(blobs);
	loop_destroy(loop);
	return rmdir(dir);
}

/* ---- one that is written ------------------------------------------------ */

struct one {
	struct blob_writer *w;
	int n, rc;
	uint8_t sha256[HASH_BYTES];
	uint64_t bytes;
};

static void on_room(void *ctx)
{
	(void)ctx;
	n_rooms++;
	loop_stop(loop);
}

static void on_done(void *ctx, int rc, const uint8_t sha256[HASH_BYTES],
		    uint64_t bytes)
{
	struct one *o = ctx;

	o->n++;
	o->rc = rc;
	o->bytes = bytes;
	memcpy(o->sha256, sha256, HASH_BYTES);
	loop_stop(loop);
}

static struct one begun(const char *text)
{
	struct one o = {0};

	assert_int_equal(blob_writer_new(&o.w, blobs, on_room, NULL), 0);
	assert_int_equal(blob_write(o.w, text, strlen(text)), 0);
	return o;
}

static void finished(struct one *o)
{
	assert_int_equal(blob_finish(o->w, on_done, o), 0);
	while (!o->n)
		assert_int_equal(loop_run(loop), 0);
	assert_int_equal(o->n, 1);
}

static struct one written(const char *text)
{
	struct one o = begun(text);

	finished(&o);
	assert_int_equal(o.rc, 0);
	return o;
}

static void on_due(struct loop_timer *t)
{
	(void)t;
	loop_stop(loop);
}

static void loop_for(int64_t ms)
{
	struct loop_timer t = {.fn = on_due};

	loop_timer_set(loop, &t, ms);
	assert_int_equal(loop_run(loop), 0);
	loop_timer_stop(loop, &t);
}

static void there(void **state)
{
	struct one o = written("abc"), empty;
	char text[8] = "";
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(o.bytes, 3);
	blob_writer_free(o.w, true);
	assert_int_equal(stat(at(ABC), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_nlink, 1);
	fd = blob_open(blobs, o.sha256);
	assert_int_equal(read(fd, text, sizeof(text)), 3);
	close(fd);
	assert_string_equal(text, "abc");
	assert_int_equal(blobs_count(blobs), 1);
	assert_int_equal(blobs_bytes(blobs), 3);
	/* Once more: the same one. */
	o = written("abc");
	blob_writer_free(o.w, true);
	empty = written("");
	blob_writer_free(empty.w, true);
	assert_int_equal(blobs_count(blobs), 2);
	assert_int_equal(blobs_bytes(blobs), 3);
	assert_int_equal(n_names(), 2);
	assert_int_equal(n_orphans, 0);
	blob_remove(blobs, o.sha256);
	assert_int_equal(blob_open(blobs, o.sha256), -ENOENT);
	assert_int_equal(blobs_bytes(blobs), 0);
	blob_remove(blobs, o.sha256);
	assert_int_equal(blobs_count(blobs), 1);
}

/* 3 MiB in odd pieces, as fast as there is room. */
static void large(void **state)
{
	static uint8_t piece[70001];
	struct one o = begun("");
	uint64_t left = 3 << 20;
	struct stat st;
	char name[65];

	(void)state;
	for (size_t i = 0; i < sizeof(piece); i++)
		piece[i] = (uint8_t)(i * 7);
	while (left) {
		size_t n = left < sizeof(piece) ? left : sizeof(piece);

		if (blob_is_full(o.w)) {
			assert_int_equal(loop_run(loop), 0);
			continue;
		}
		assert_int_equal(blob_write(o.w, piece, n), 0);
		left -= n;
	}
	assert_true(n_rooms > 0);
	assert_int_equal(blob_written(o.w), 3 << 20);
	finished(&o);
	assert_int_equal(o.rc, 0);
	for (size_t i = 0; i < HASH_BYTES; i++)
		snprintf(name + 2 * i, 3, "%02x", o.sha256[i]);
	assert_int_equal(stat(at(name), &st), 0);
	assert_int_equal(st.st_size, 3 << 20);
	blob_writer_free(o.w, true);
}

/* At each moment; what has a name is told of. */
static void given_up(void **state)
{
	static char much[BLOB_CHUNK_BYTES + 1];
	struct one o;

	(void)state;
	o = begun("abc");
	blob_writer_free(o.w, false);
	memset(much, 'x', sizeof(much) - 1);
	o = begun(much); /* a worker has it */
	blob_writer_free(o.w, false);
	loop_for(50);
	assert_int_equal(n_names(), 0);
	assert_int_equal(n_orphans, 0);
	o = begun("abc");
	assert_int_equal(blob_finish(o.w, on_done, &o), 0);
	blob_writer_free(o.w, false);
	loop_for(50);
	assert_int_equal(o.n, 0);
	/* Before or after its name: never one that nobody hears of. */
	assert_int_equal(n_names(), n_orphans);
	o = written("abc");
	n_orphans = 0;
	blob_writer_free(o.w, false);
	assert_int_equal(n_orphans, 1);
	assert_memory_equal(orphan, o.sha256, HASH_BYTES);
	blob_remove(blobs, orphan);
	assert_int_equal(n_names(), 0);
}

/* Who writes a record for a hash finds its bytes. */
static void pinned(void **state)
{
	struct one a = written("abc"), b = written("abc");

	(void)state;
	blob_writer_free(a.w, false);
	assert_int_equal(n_orphans, 1);
	blob_remove(blobs, a.sha256);
	assert_int_equal(n_names(), 1);
	blob_writer_free(b.w, true);
	blob_remove(blobs, a.sha256);
	assert_int_equal(n_names(), 0);
}

static void swept(void **state)
{
	struct one a = written("abc"), b = written("def");
	uint8_t none[HASH_BYTES] = {1};
	struct err e;
	int fd;

	(void)state;
	blob_writer_free(a.w, true);
	blob_writer_free(b.w, true);
	blobs_close(blobs);
	fd = open(at("README"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	folder_open();
	assert_int_equal(blobs_count(blobs), 2);
	assert_int_equal(blobs_bytes(blobs), 6);
	assert_int_equal(blobs_mark(blobs, b.sha256), 0);
	assert_int_equal(blobs_mark(blobs, none), -ENOENT);
	assert_int_equal(blobs_sweep(blobs), 1);
	assert_int_equal(blob_open(blobs, a.sha256), -ENOENT);
	assert_int_equal(blobs_count(blobs), 1);
	assert_int_equal(n_names(), 2); /* and what is not ours */
	blobs_close(blobs);
	assert_int_equal(blobs_open(&blobs, loop, "/nowhere", &e), -1);
	assert_non_null(strstr(e.text, "/nowhere/files"));
	folder_open();
}

/* A disk that takes no more: told, and nothing is left. */
static void full(void **state)
{
	static char much[2 * BLOB_CHUNK_BYTES];
	struct rlimit was, small = {BLOB_CHUNK_BYTES / 2, RLIM_INFINITY};
	struct one o = begun("");

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &was);
	small.rlim_max = was.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(blob_write(o.w, much, sizeof(much)), 0);
	loop_for(50);
	assert_int_equal(blob_error(o.w), -EFBIG);
	assert_int_equal(blob_write(o.w, much, 1), -EFBIG);
	assert_int_equal(blob_finish(o.w, on_done, &o), -EFBIG);
	assert_int_equal(n_rooms, 1);
	blob_writer_free(o.w, false);
	/* It fails after it was finished: `done` says so. */
	o = begun("");
	assert_int_equal(blob_write(o.w, much, BLOB_CHUNK_BYTES - 1), 0);
	finished(&o);
	assert_int_equal(o.rc, -EFBIG);
	blob_writer_free(o.w, false);
	setrlimit(RLIMIT_FSIZE, &was);
	assert_int_equal(n_names(), 0);
	assert_int_equal(n_orphans, 0);
}

/* ---- reading ------------------------------------------------------------ */

static char text[16];
static int read_rc, n_reads;

static void on_read(void *ctx, int rc, const uint8_t *data, size_t len)
{
	(void)ctx;
	n_reads++;
	read_rc = rc;
	snprintf(text + strlen(text), sizeof(text) - strlen(text), "%.*s",
		 (int)len, data ? (const char *)data : "");
	loop_stop(loop);
}

static void reads(const struct one *o, uint64_t bytes, int want,
		  const char *what)
{
	struct blob_reader *r;

	*text = 0;
	n_reads = 0;
	assert_int_equal(blob_reader_new(&r, loop, blob_open(blobs, o->sha256),
					 bytes, o->sha256, on_read, NULL),
			 0);
	assert_int_equal(blob_read(r, 2), 0);
	assert_int_equal(blob_read(r, 2), -EBUSY);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(read_rc, 0);
	assert_int_equal(blob_read(r, 2), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(read_rc, want);
	assert_string_equal(text, what);
	/* While a worker has it, too. */
	if (!want)
		assert_int_equal(blob_read(r, 1), 0);
	blob_reader_free(r);
	loop_for(30);
	assert_int_equal(n_reads, 2);
}

static void read_and_held_against_its_hash(void **state)
{
	struct one o = written("abc");
	int fd;

	(void)state;
	blob_writer_free(o.w, true);
	reads(&o, 3, 0, "abc");
	reads(&o, 4, -EBADMSG, "ab"); /* cut short */
	fd = open(at(ABC), O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	close(fd);
	reads(&o, 3, -EBADMSG, "xb");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(there),
		TEST(large),
		TEST(given_up),
		TEST(pinned),
		TEST(swept),
		TEST(full),
		TEST(read_and_held_against_its_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
