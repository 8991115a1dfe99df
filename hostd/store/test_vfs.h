/*
 * A VFS for tests, in front of the real one: fails calls on demand, and knows
 * what of each file is on the platter, so that the power can be cut.
 *
 * A write reaches the shadow copy only when its file is synced.  A cut takes
 * the shadows and adds a random choice of the writes that were not synced, in
 * random order: what a disk with a cache may leave.
 */
#ifndef HUTCHD_TEST_VFS_H
#define HUTCHD_TEST_VFS_H

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct test_vfs {
	/* Faults: the n-th write, sync or truncate from now fails with `code`;
	 * 0 = never.  is_lasting: all after it, too. */
	atomic_long fail_in;
	atomic_int code;
	atomic_bool is_lasting;
	atomic_long n_calls; /* writes, syncs, truncates so far */
	atomic_long n_failed;

	/* Power: before the n-th of them `cut` runs, on the store's thread. */
	atomic_long cut_in;
	void (*cut)(void *ctx);
	void *ctx;
	atomic_bool is_lying; /* syncs are said to be done and are not */
};
extern struct test_vfs test_vfs;

/* Becomes SQLite's default; once per process. */
void test_vfs_install(void);
/* All quiet again. */
void test_vfs_calm(void);
/* What a power cut now would leave of the files, into folder `dir`. */
void test_vfs_dump(const char *dir, unsigned *seed);

#endif
