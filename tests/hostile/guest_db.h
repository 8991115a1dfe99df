/*
 * A guest that keeps an SQLite database on a virtio-blk disk, without a file
 * system: the database and its rollback journal are two fixed parts of the
 * disk.  Below SQLite lies what a guest's kernel has: a page cache, from which
 * dirty blocks are written when they like, and all of them, many at once and
 * in any order, before the FLUSH of a sync.
 */
#ifndef HUTCH_TEST_GUEST_DB_H
#define HUTCH_TEST_GUEST_DB_H

#include "disk.h"
#include <sqlite3.h>

#define DB_BLOCK_BYTES	  4096u
#define DB_BLOCKS	  96u /* of the database */
#define DB_JOURNAL_BLOCK  96u /* the journal's first */
#define DB_JOURNAL_BLOCKS 64u

/* Of all that is left to chance. */
void guest_db_seed(uint64_t value);
/* A new database in the file `fd`: `n_rows` rows of a known sum. */
void guest_db_make(int fd, unsigned n_rows);
/* Read it through the device; SQLite plays its journal back when it finds a
 * transaction that did not end. */
sqlite3 *guest_db_open(struct disk *k);
/* One transaction, committed when this returns. */
void guest_db_step(sqlite3 *db);
/* SQLite's checker and ours: transactions so far. */
unsigned guest_db_check(sqlite3 *db);
void guest_db_close(sqlite3 *db);

#endif
