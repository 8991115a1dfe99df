/*
 * See guest_db.h.  Two tables: `row` (id, stamp, filler of the stamp's low
 * byte) and `total` (transactions, sum of all stamps).  A transaction stamps
 * some rows with its number and corrects the sum, so a part of one shows.
 */
#include "guest_db.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS	      (DB_BLOCKS + DB_JOURNAL_BLOCKS)
#define BLOCK_SECTORS (DB_BLOCK_BYTES / UINT64_C(512))
#define FLIGHT_MAX    16u /* requests at once; 3 descriptors each */
#define READ_BLOCKS   16u
#define ROWS_A_STEP   8
#define FILLER_BYTES  1500

static_assert(BLOCKS * BLOCK_SECTORS <= DISK_SECTORS, "both parts fit");
static_assert(BLOCKS % READ_BLOCKS == 0, "read in whole pieces");

/* The guest's page cache over its disk. */
static struct {
	struct disk *k;
	uint8_t block[BLOCKS][DB_BLOCK_BYTES];
	bool is_dirty[BLOCKS];
} cache;

static uint64_t seed;
static unsigned n_db_blocks; /* as made: updates do not grow it */

struct part {
	sqlite3_file base; /* first */
	unsigned first, n;
};

void guest_db_seed(uint64_t value)
{
	seed = value;
}

static uint32_t roll(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

/* ---- blocks and requests ---- */

static void blocks_read(void)
{
	struct guest *g = &cache.k->g;
	gpa_t at;

	for (unsigned i = 0; i < BLOCKS; i += READ_BLOCKS) {
		struct blk_req r = {.type = 0,
				    .sector = BLOCK_SECTORS * i,
				    .len = READ_BLOCKS * DB_BLOCK_BYTES,
				    .is_out = true};

		guest_free_all(g);
		at = r.data = guest_alloc(g, r.len);
		assert_int_equal(disk_do(cache.k, &r, NULL), 0);
		guest_get(g, at, cache.block[i], r.len);
	}
	memset(cache.is_dirty, 0, sizeof(cache.is_dirty));
}

/* Write the dirty blocks, at most `n_max`, from a random one on. */
static void blocks_write(unsigned n_max)
{
	struct guest *g = &cache.k->g;
	unsigned from = roll(BLOCKS), n = 0;
	gpa_t at;

	guest_free_all(g);
	for (unsigned i = 0; i < BLOCKS && n < n_max; i++) {
		unsigned b = (from + i * 7) % BLOCKS; /* 7: no divisor */

		if (!cache.is_dirty[b])
			continue;
		cache.is_dirty[b] = false;
		at = guest_alloc(g, DB_BLOCK_BYTES);
		guest_put(g, at, cache.block[b], DB_BLOCK_BYTES);
		disk_put(cache.k, &(struct blk_req){.type = 1,
						    .sector = BLOCK_SECTORS * b,
						    .data = at,
						    .len = DB_BLOCK_BYTES});
		n++;
	}
	guest_kick(g, 0);
	while (n-- > 0)
		assert_true(guest_used(g, 0, NULL, NULL));
}

static void blocks_sync(void)
{
	bool is_clean = false;

	while (!is_clean) {
		blocks_write(FLIGHT_MAX);
		is_clean = true;
		for (unsigned i = 0; i < BLOCKS; i++)
			is_clean &= !cache.is_dirty[i];
	}
	guest_free_all(&cache.k->g);
	assert_int_equal(disk_do(cache.k, &(struct blk_req){.type = 4}, NULL),
			 0);
}

/* ---- SQLite's file system ---- */

static int part_close(sqlite3_file *f)
{
	(void)f;
	return SQLITE_OK;
}

static int part_read(sqlite3_file *f, void *dst, int len, sqlite3_int64 at)
{
	struct part *p = (struct part *)f;
	sqlite3_int64 end = (sqlite3_int64)p->n * DB_BLOCK_BYTES;
	int n = len;

	memset(dst, 0, (size_t)len);
	if (at >= end)
		return SQLITE_IOERR_SHORT_READ;
	if (at + n > end)
		n = (int)(end - at);
	memcpy(dst, cache.block[p->first] + at, (size_t)n);
	return n < len ? SQLITE_IOERR_SHORT_READ : SQLITE_OK;
}

static int part_write(sqlite3_file *f, const void *src, int len,
		      sqlite3_int64 at)
{
	struct part *p = (struct part *)f;

	if (at + len > (sqlite3_int64)p->n * DB_BLOCK_BYTES)
		return SQLITE_FULL;
	memcpy(cache.block[p->first] + at, src, (size_t)len);
	for (sqlite3_int64 b = at / DB_BLOCK_BYTES;
	     b <= (at + len - 1) / DB_BLOCK_BYTES; b++)
		cache.is_dirty[p->first + b] = true;
	if (roll(8) == 0)
		blocks_write(1);
	return SQLITE_OK;
}

static int part_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	(void)f;
	(void)size;
	return SQLITE_OK; /* both are of fixed size */
}

static int part_sync(sqlite3_file *f, int flags)
{
	(void)f;
	(void)flags;
	blocks_sync();
	return SQLITE_OK;
}

static int part_size(sqlite3_file *f, sqlite3_int64 *ret)
{
	*ret = (sqlite3_int64)((struct part *)f)->n * DB_BLOCK_BYTES;
	return SQLITE_OK;
}

static int part_lock(sqlite3_file *f, int level)
{
	(void)f;
	(void)level;
	return SQLITE_OK; /* one process */
}

static int part_reserved(sqlite3_file *f, int *ret)
{
	(void)f;
	*ret = 0;
	return SQLITE_OK;
}

static int part_control(sqlite3_file *f, int op, void *arg)
{
	(void)f;
	(void)op;
	(void)arg;
	return SQLITE_NOTFOUND;
}

static int part_sector(sqlite3_file *f)
{
	(void)f;
	return 512;
}

static int part_traits(sqlite3_file *f)
{
	(void)f;
	return 0; /* nothing is atomic or in order */
}

static const sqlite3_io_methods methods = {
	.iVersion = 1,
	.xClose = part_close,
	.xRead = part_read,
	.xWrite = part_write,
	.xTruncate = part_truncate,
	.xSync = part_sync,
	.xFileSize = part_size,
	.xLock = part_lock,
	.xUnlock = part_lock,
	.xCheckReservedLock = part_reserved,
	.xFileControl = part_control,
	.xSectorSize = part_sector,
	.xDeviceCharacteristics = part_traits,
};

static int vfs_open(sqlite3_vfs *v, const char *name, sqlite3_file *f,
		    int flags, int *ret_flags)
{
	struct part *p = (struct part *)f;

	(void)v;
	if (!name ||
	    !(flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL)))
		return SQLITE_CANTOPEN;
	*p = (struct part){.base.pMethods = &methods, .n = n_db_blocks};
	if (flags & SQLITE_OPEN_MAIN_JOURNAL) {
		p->first = DB_JOURNAL_BLOCK;
		p->n = DB_JOURNAL_BLOCKS;
	}
	if (ret_flags)
		*ret_flags = flags;
	return SQLITE_OK;
}

/* Only a journal is ever deleted: one whose head is zero is none. */
static int vfs_delete(sqlite3_vfs *v, const char *name, int do_sync)
{
	(void)v;
	(void)name;
	memset(cache.block[DB_JOURNAL_BLOCK], 0, 512);
	cache.is_dirty[DB_JOURNAL_BLOCK] = true;
	if (do_sync)
		blocks_sync();
	return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *v, const char *name, int flags, int *ret)
{
	(void)v;
	(void)flags;
	*ret = strstr(name, "-wal") == NULL;
	return SQLITE_OK;
}

static int vfs_path(sqlite3_vfs *v, const char *name, int n, char *out)
{
	(void)v;
	snprintf(out, (size_t)n, "%s", name);
	return SQLITE_OK;
}

static int vfs_random(sqlite3_vfs *v, int n, char *out)
{
	(void)v;
	for (int i = 0; i < n; i++)
		out[i] = (char)roll(256);
	return n;
}

static sqlite3_vfs vfs = {
	.iVersion = 1,
	.szOsFile = sizeof(struct part),
	.mxPathname = 64,
	.zName = "guest",
	.xOpen = vfs_open,
	.xDelete = vfs_delete,
	.xAccess = vfs_access,
	.xFullPathname = vfs_path,
	.xRandomness = vfs_random,
};

/* ---- the database ---- */

static void sql(sqlite3 *db, const char *text)
{
	char *what = NULL;

	if (sqlite3_exec(db, text, NULL, NULL, &what) != SQLITE_OK)
		fail_msg("%s: %s", text, what);
}

static sqlite3_int64 sql_int(sqlite3 *db, const char *text)
{
	sqlite3_stmt *s;
	sqlite3_int64 v;

	assert_int_equal(sqlite3_prepare_v2(db, text, -1, &s, NULL), SQLITE_OK);
	if (sqlite3_step(s) != SQLITE_ROW)
		fail_msg("%s: %s", text, sqlite3_errmsg(db));
	v = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return v;
}

void guest_db_make(int fd, unsigned n_rows)
{
	char text[400];
	sqlite3_int64 len;
	unsigned char *image;
	sqlite3 *db;

	assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
	snprintf(text, sizeof(text),
		 "PRAGMA page_size = %u;"
		 "CREATE TABLE total (n INTEGER, sum INTEGER);"
		 "INSERT INTO total VALUES (0, 0);"
		 "CREATE TABLE row (id INTEGER PRIMARY KEY, stamp INTEGER,"
		 " filler BLOB);"
		 "WITH RECURSIVE i (x) AS (SELECT 1 UNION ALL"
		 " SELECT x + 1 FROM i WHERE x < %u)"
		 " INSERT INTO row SELECT x, 0, zeroblob(%d) FROM i;"
		 "UPDATE row SET stamp = 1 << 40;" /* room for large stamps */
		 "UPDATE total SET sum = (SELECT sum(stamp) FROM row),"
		 " n = 1 << 40;",
		 DB_BLOCK_BYTES, n_rows, FILLER_BYTES);
	sql(db, text);
	image = sqlite3_serialize(db, "main", &len, 0);
	assert_non_null(image);
	assert_true(len > 0 &&
		    len <= (sqlite3_int64)DB_BLOCKS * DB_BLOCK_BYTES);
	assert_int_equal(pwrite(fd, image, (size_t)len, 0), len);
	n_db_blocks = (unsigned)(len / DB_BLOCK_BYTES);
	memset(cache.block, 0, sizeof(cache.block));
	assert_int_equal(
		pwrite(fd, cache.block, sizeof(cache.block) - (size_t)len, len),
		sizeof(cache.block) - (size_t)len);
	sqlite3_free(image);
	sqlite3_close(db);
}

sqlite3 *guest_db_open(struct disk *k)
{
	sqlite3 *db;

	cache.k = k;
	blocks_read();
	sqlite3_vfs_register(&vfs, 0);
	assert_int_equal(
		sqlite3_open_v2("db", &db, SQLITE_OPEN_READWRITE, "guest"),
		SQLITE_OK);
	sql(db, "PRAGMA locking_mode = EXCLUSIVE;"
		"PRAGMA journal_mode = PERSIST;"
		"PRAGMA synchronous = FULL;"
		"PRAGMA temp_store = MEMORY;");
	return db;
}

void guest_db_step(sqlite3 *db)
{
	char text[200];

	sql(db, "BEGIN; UPDATE total SET n = n + 1");
	for (int i = 0; i < ROWS_A_STEP; i++) {
		snprintf(text, sizeof(text),
			 "UPDATE row SET stamp = (SELECT n FROM total),"
			 " filler = zeroblob(%d) WHERE id = %u",
			 FILLER_BYTES, 1 + roll(64));
		sql(db, text);
	}
	sql(db, "UPDATE total SET sum = (SELECT sum(stamp) FROM row); COMMIT");
}

static int checker_says(void *ok, int n, char **value, char **name)
{
	(void)name;
	*(bool *)ok = n == 1 && strcmp(value[0], "ok") == 0;
	return 0;
}

unsigned guest_db_check(sqlite3 *db)
{
	bool is_ok = false;

	assert_int_equal(sqlite3_exec(db, "PRAGMA integrity_check",
				      checker_says, &is_ok, NULL),
			 SQLITE_OK);
	assert_true(is_ok);
	assert_int_equal(sql_int(db, "SELECT sum(stamp) FROM row"),
			 sql_int(db, "SELECT sum FROM total"));
	assert_true(sql_int(db, "SELECT max(stamp) FROM row") <=
		    sql_int(db, "SELECT n FROM total"));
	return (unsigned)sql_int(db, "SELECT n - (1 << 40) FROM total");
}

void guest_db_close(sqlite3 *db)
{
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	sqlite3_vfs_unregister(&vfs);
}
