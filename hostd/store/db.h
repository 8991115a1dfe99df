/*
 * The one SQLite connection: opening, statements, errors.
 *
 * SQL is written beside the code that uses it, as string constants; a
 * statement is prepared once and found again by the constant's address.
 * Values are always bound.  A query is used like this:
 *
 *	struct query q = query(db, "SELECT rec FROM t WHERE id = ?1");
 *	q_text(&q, id);
 *	while ((rc = q_row(&q)) > 0)
 *		... q_blob_at(&q, 0) ...
 *	return rc;
 *
 * Errors of binding are kept and come out of q_row/q_run; both reset the
 * statement when they do not return a row.  Leaving a loop early needs
 * q_end().  Used by one thread at a time.
 */
#ifndef HUTCHD_DB_H
#define HUTCHD_DB_H

#include "err.h"
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DB_FILE		     "hutch.db"
#define DB_APPLICATION_ID    0x68757463 /* "hutc" */
#define DB_PATH_BYTES_MAX    512
#define DB_VALUE_BYTES_MAX   (8 << 20)
#define DB_BUSY_MS	     1000
#define DB_CHECKED_BYTES_MAX (256 << 20)

struct db {
	sqlite3 *h;
	/* Owned; as many as the program has statements, since each stays. */
	struct {
		const char *sql;
		sqlite3_stmt *st;
	} * cached;
	size_t n_cached, cached_cap;
	int lock_fd; /* flock'd while open */
	int dir_fd;
	char path[DB_PATH_BYTES_MAX];
	bool is_marked; /* DB_FILE "-open" is there */
};

/*
 * Lock the folder, make or open the database, bring it to this program's
 * schema.  -1 with `e`; nothing was changed then.
 */
int db_open(struct db *db, const char *dir, struct err *e);
void db_close(struct db *db);

/* Negative errno for the last error of the connection. */
int db_error(struct db *db, int sqlite_rc);
/* Run SQL without values, also several statements. */
int db_exec(struct db *db, const char *sql);

struct query {
	struct db *db;
	sqlite3_stmt *st;
	int rc; /* first error, 0 = none */
	int n;	/* values bound */
};
struct query query(struct db *db, const char *sql);
/* Bind the next value; the memory must stay until the query ended. */
void q_text(struct query *q, const char *text); /* NULL = NULL */
void q_int(struct query *q, int64_t v);
void q_blob(struct query *q, const void *p, size_t len);
int q_row(struct query *q); /* 1 = a row, 0 = no more, or -errno */
int q_run(struct query *q); /* to the end: 0 or -errno */
void q_end(struct query *q);
int64_t q_int_at(const struct query *q, int col);
const char *q_text_at(const struct query *q, int col); /* never NULL */
const void *q_blob_at(const struct query *q, int col, size_t *ret_len);

/* migrate.c: is it ours, and not newer than this program?  Then bring it to
 * this program's schema.  0, or -1 with e. */
int db_identify(struct db *db, struct err *e);
int db_migrate(struct db *db, struct err *e);
int db_schema_version(void);

/* db_files.c: what lies in the folder before SQLite may look at it. */
int db_files_lock(struct db *db, const char *dir, struct err *e);
/* *ret_is_new: there is no database and nothing of one. */
int db_files_check(struct db *db, bool *ret_is_new, struct err *e);
int db_files_mark(struct db *db, struct err *e);
/* What to do about the last error, for the end of a message; may be "". */
const char *db_advice(const struct db *db);
void db_files_finish(struct db *db, bool is_clean);

#endif
