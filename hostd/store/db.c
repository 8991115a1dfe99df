/*
 * The SQLite connection; see db.h.
 *
 * Every setting that durability or safety hangs on is read back: a database
 * that will not go into WAL mode or will not lock is refused, not used with
 * less.  SQLite 3.40 can corrupt a log that two connections checkpoint at
 * once, so there is one connection in one process, which holds the lock.
 */
#include "db.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_OF(a)	 (sizeof(a) / sizeof((a)[0]))
#define NEW_FILE DB_FILE ".new"

int db_error(struct db *db, int rc)
{
	int sys = db->h ? sqlite3_system_errno(db->h) : 0;

	switch (rc & 0xff) { /* primary code */
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_IOERR:
		return sys == ENOSPC || sys == EDQUOT ? -ENOSPC : -EIO;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EUCLEAN;
	case SQLITE_CONSTRAINT:
		return -EEXIST;
	case SQLITE_TOOBIG:
		return -E2BIG;
	default:
		return -EIO;
	}
}

int db_exec(struct db *db, const char *sql)
{
	return db_error(db, sqlite3_exec(db->h, sql, NULL, NULL, NULL));
}

/* ---- queries ---------------------------------------------------------------
 */

static int cache_grow(struct db *db)
{
	size_t cap = db->cached_cap ? db->cached_cap * 2 : 64;
	void *more;

	if (db->n_cached < db->cached_cap)
		return 0;
	more = realloc(db->cached, cap * sizeof(*db->cached));
	if (!more)
		return -ENOMEM;
	db->cached = more;
	db->cached_cap = cap;
	return 0;
}

struct query query(struct db *db, const char *sql)
{
	struct query q = {.db = db};
	size_t i;
	int rc;

	for (i = 0; i < db->n_cached; i++)
		if (db->cached[i].sql == sql) {
			q.st = db->cached[i].st;
			return q;
		}
	q.rc = cache_grow(db);
	if (q.rc)
		return q;
	rc = sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT,
				&q.st, NULL);
	if (rc) {
		log_error("store: cannot prepare \"%s\": %s", sql,
			  sqlite3_errmsg(db->h));
		q.rc = db_error(db, rc);
		return q;
	}
	db->cached[i].sql = sql;
	db->cached[i].st = q.st;
	db->n_cached++;
	return q;
}

static void bound(struct query *q, int rc)
{
	if (rc && !q->rc)
		q->rc = db_error(q->db, rc);
}

void q_text(struct query *q, const char *text)
{
	if (!q->rc)
		bound(q, sqlite3_bind_text(q->st, ++q->n, text, -1,
					   SQLITE_STATIC));
}

void q_int(struct query *q, int64_t v)
{
	if (!q->rc)
		bound(q, sqlite3_bind_int64(q->st, ++q->n, v));
}

void q_blob(struct query *q, const void *p, size_t len)
{
	/* A NULL pointer would bind NULL; an empty blob is meant. */
	if (!q->rc)
		bound(q, sqlite3_bind_blob64(q->st, ++q->n, len ? p : "", len,
					     SQLITE_STATIC));
}

void q_end(struct query *q)
{
	if (!q->st)
		return;
	sqlite3_reset(q->st);
	sqlite3_clear_bindings(q->st);
}

int q_row(struct query *q)
{
	int rc = q->rc;

	if (!rc) {
		rc = sqlite3_step(q->st);
		if (rc == SQLITE_ROW)
			return 1;
		rc = db_error(q->db, rc);
		if (rc && rc != -EEXIST) /* that one is the owner's to tell */
			log_warn("store: %s (%s)", sqlite3_errmsg(q->db->h),
				 strerror(-rc));
	}
	q_end(q);
	return rc;
}

int q_run(struct query *q)
{
	int rc;

	while ((rc = q_row(q)) > 0)
		;
	return rc;
}

int64_t q_int_at(const struct query *q, int col)
{
	return sqlite3_column_int64(q->st, col);
}

const char *q_text_at(const struct query *q, int col)
{
	const unsigned char *t = sqlite3_column_text(q->st, col);

	return t ? (const char *)t : "";
}

const void *q_blob_at(const struct query *q, int col, size_t *ret_len)
{
	const void *p = sqlite3_column_blob(q->st, col);

	*ret_len = p ? (size_t)sqlite3_column_bytes(q->st, col) : 0;
	return p;
}

/* ---- opening ----------------------------------------------------------- */

#define DAMAGED                                                                \
	"; put a backup in its place, or move all hutch.db* files away to "    \
	"begin without records"

const char *db_advice(const struct db *db)
{
	int rc = db->h ? sqlite3_errcode(db->h) & 0xff : SQLITE_NOMEM;

	return rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? DAMAGED : "";
}

static int tell(struct db *db, struct err *e, const char *what)
{
	return err_set(e, ERR_INTERNAL, NULL,
		       "the database %s: %s: %s; nothing was changed%s",
		       db->path, what,
		       db->h ? sqlite3_errmsg(db->h) : "no memory",
		       db_advice(db));
}

/* Run a pragma that answers one value and compare it. */
static int set_and_check(struct db *db, const char *sql, const char *want,
			 struct err *e)
{
	char got[64] = "";
	sqlite3_stmt *st;
	int rc = sqlite3_prepare_v2(db->h, sql, -1, &st, NULL);

	if (rc)
		return tell(db, e, sql);
	rc = sqlite3_step(st);
	if (rc == SQLITE_ROW && sqlite3_column_text(st, 0))
		snprintf(got, sizeof(got), "%s",
			 (const char *)sqlite3_column_text(st, 0));
	sqlite3_finalize(st);
	if (rc != SQLITE_ROW)
		return tell(db, e, sql);
	if (strcmp(got, want))
		return err_set(e, ERR_INTERNAL, NULL,
			       "the database %s: \"%s\" gave \"%s\", not "
			       "\"%s\"%s",
			       db->path, sql, got, want,
			       strcmp(want, "ok") ? "" : DAMAGED);
	return 0;
}

/* A check of all pages takes a second for this many bytes; the start of a
 * daemon must not take minutes.  Damage in a larger one is met at use. */
static bool is_small(const struct db *db)
{
	struct stat st;

	return !fstatat(db->dir_fd, DB_FILE, &st, AT_SYMLINK_NOFOLLOW) &&
	       st.st_size <= DB_CHECKED_BYTES_MAX;
}

static int configure(struct db *db, struct err *e)
{
	static const struct {
		int op, on;
	} flags[] = {
		{SQLITE_DBCONFIG_DEFENSIVE, 1},
		{SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
		{SQLITE_DBCONFIG_ENABLE_FKEY, 1},
		{SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
		{SQLITE_DBCONFIG_ENABLE_VIEW, 0},
		{SQLITE_DBCONFIG_DQS_DML, 0},
		{SQLITE_DBCONFIG_DQS_DDL, 0},
	};
	static const struct {
		int id, v;
	} limits[] = {
		{SQLITE_LIMIT_LENGTH, DB_VALUE_BYTES_MAX},
		{SQLITE_LIMIT_SQL_LENGTH, 100000},
		{SQLITE_LIMIT_ATTACHED, 0},
		{SQLITE_LIMIT_VARIABLE_NUMBER, 64},
		{SQLITE_LIMIT_COLUMN, 100},
		{SQLITE_LIMIT_EXPR_DEPTH, 20},
		{SQLITE_LIMIT_COMPOUND_SELECT, 3},
		{SQLITE_LIMIT_TRIGGER_DEPTH, 1},
	};
	static const char *const checked[][2] = {
		{"PRAGMA journal_mode = WAL", "wal"},
		{"PRAGMA journal_size_limit = 16777216", "16777216"},
		{"PRAGMA wal_autocheckpoint = 1000", "1000"},
	};

	for (size_t i = 0; i < N_OF(flags); i++)
		if (sqlite3_db_config(db->h, flags[i].op, flags[i].on, NULL))
			return tell(db, e, "setting up");
	for (size_t i = 0; i < N_OF(limits); i++)
		sqlite3_limit(db->h, limits[i].id, limits[i].v);
	sqlite3_busy_timeout(db->h, DB_BUSY_MS);
	if (db_exec(db, "PRAGMA cell_size_check = ON;"
			"PRAGMA temp_store = MEMORY;"
			"PRAGMA mmap_size = 0"))
		return tell(db, e, "setting up");
	if (set_and_check(db, "PRAGMA locking_mode = EXCLUSIVE", "exclusive",
			  e) ||
	    db_identify(db, e))
		return -1;
	for (size_t i = 0; i < N_OF(checked); i++)
		if (set_and_check(db, checked[i][0], checked[i][1], e))
			return -1;
	if (is_small(db) && set_and_check(db, "PRAGMA quick_check(1)", "ok", e))
		return -1;
	/* 2 = FULL: each commit is on the platter before it is told. */
	if (db_exec(db, "PRAGMA synchronous = FULL"))
		return tell(db, e, "synchronous = FULL");
	return set_and_check(db, "PRAGMA synchronous", "2", e);
}

static void disconnect(struct db *db)
{
	for (size_t i = 0; i < db->n_cached; i++)
		sqlite3_finalize(db->cached[i].st);
	free(db->cached);
	db->cached = NULL;
	db->n_cached = db->cached_cap = 0;
	sqlite3_close(db->h);
	db->h = NULL;
}

static int connect_to(struct db *db, const char *path, struct err *e)
{
	int rc = sqlite3_open_v2(path, &db->h,
				 SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
					 SQLITE_OPEN_EXRESCODE,
				 NULL);

	if (rc)
		return tell(db, e, "cannot open it");
	if (configure(db, e))
		return -1;
	return db_migrate(db, e);
}

/* Made aside and renamed when complete: a database is whole or absent. */
static int make_new(struct db *db, struct err *e)
{
	char path[DB_PATH_BYTES_MAX + 8];
	int fd, rc;

	snprintf(path, sizeof(path), "%s.new", db->path);
	unlinkat(db->dir_fd, NEW_FILE, 0);
	unlinkat(db->dir_fd, NEW_FILE "-wal", 0);
	fd = openat(db->dir_fd, NEW_FILE,
		    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "cannot make %s: %s",
			       path, strerror(errno));
	close(fd);
	rc = connect_to(db, path, e);
	disconnect(db);
	if (rc)
		return rc;
	if (renameat(db->dir_fd, NEW_FILE, db->dir_fd, DB_FILE) ||
	    fsync(db->dir_fd))
		return err_set(e, ERR_INTERNAL, NULL, "cannot make %s: %s",
			       db->path, strerror(errno));
	return 0;
}

/* The folder's real name: SQLite is told not to follow links below it. */
static int set_path(struct db *db, const char *dir, struct err *e)
{
	char *real = realpath(dir, NULL);
	int n = real ? snprintf(db->path, sizeof(db->path), "%s/%s", real,
				DB_FILE)
		     : -1;

	free(real);
	if (n < 0 || (size_t)n >= sizeof(db->path))
		return err_set(e, ERR_INTERNAL, NULL,
			       "the state folder's name %s cannot be used "
			       "(at most %d bytes)",
			       dir, DB_PATH_BYTES_MAX - 16);
	return 0;
}

int db_open(struct db *db, const char *dir, struct err *e)
{
	bool is_new = false;
	int rc;

	memset(db, 0, sizeof(*db));
	db->lock_fd = db->dir_fd = -1;
	rc = db_files_lock(db, dir, e);
	if (!rc)
		rc = set_path(db, dir, e);
	if (!rc)
		rc = db_files_check(db, &is_new, e);
	if (!rc && is_new)
		rc = make_new(db, e);
	if (!rc)
		rc = connect_to(db, db->path, e);
	if (rc) {
		disconnect(db);
		db_files_finish(db, false);
	}
	return rc;
}

void db_close(struct db *db)
{
	char path[DB_PATH_BYTES_MAX + 8];

	disconnect(db);
	/* SQLite removed the log when it is wholly in the database. */
	snprintf(path, sizeof(path), "%s-wal", db->path);
	db_files_finish(db, access(path, F_OK) != 0);
}
