/*
 * The database's files: who may use them, and are they all there?
 *
 * The database is locked by flock on hutch.db-lock: a second daemon is refused.
 * SQLite takes an empty or missing file for a new database and a missing or
 * torn log for the end of history.  Both would lose what was acknowledged
 * without a word, so they are looked for here, before SQLite opens anything:
 *
 *   hutch.db        made under another name and renamed when complete, so
 *                   an empty one is damage
 *   hutch.db-wal    the log; there must be one, with a sound header, when
 *   hutch.db-open   exists: the mark of a daemon that was not stopped
 *
 * A log cut in the middle cannot be told from a crash in the middle of a
 * write; that is what its checksums are for.
 */
#include "db.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_FILE      DB_FILE "-lock"
#define MARK_FILE      DB_FILE "-open"
#define WAL_FILE       DB_FILE "-wal"
#define WAL_HEAD_BYTES 32
#define WAL_MAGIC      0x377f0682u /* lowest bit: checksums big endian */

int db_files_lock(struct db *db, const char *dir, struct err *e)
{
	char pid[24] = "";
	ssize_t n;

	if (mkdir(dir, 0700) && errno != EEXIST)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot make the state folder %s: %s", dir,
			       strerror(errno));
	db->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (db->dir_fd < 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot open the state folder %s: %s", dir,
			       strerror(errno));
	db->lock_fd = openat(db->dir_fd, LOCK_FILE,
			     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (db->lock_fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "cannot open %s/%s: %s",
			       dir, LOCK_FILE, strerror(errno));
	if (flock(db->lock_fd, LOCK_EX | LOCK_NB)) {
		n = pread(db->lock_fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? n : 0] = 0;
		pid[strcspn(pid, "\n")] = 0;
		return err_set(e, ERR_INTERNAL, NULL,
			       "another hutchd (pid %s) uses the state folder "
			       "%s; stop it or give this one its own",
			       *pid ? pid : "unknown", dir);
	}
	n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
	if (ftruncate(db->lock_fd, 0) ||
	    pwrite(db->lock_fd, pid, (size_t)n, 0) != n)
		return err_set(e, ERR_INTERNAL, NULL, "cannot write %s/%s: %s",
			       dir, LOCK_FILE, strerror(errno));
	return 0;
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 |
	       (uint32_t)p[2] << 8 | p[3];
}

/* SQLite's checksum over the first 24 bytes of the log's header. */
static bool wal_head_is_sound(const uint8_t h[WAL_HEAD_BYTES])
{
	uint32_t magic = be32(h), s0 = 0, s1 = 0;
	bool is_big = magic & 1;

	if ((magic & ~1u) != WAL_MAGIC)
		return false;
	for (size_t i = 0; i < 24; i += 8) {
		uint32_t a = be32(h + i), b = be32(h + i + 4);

		if (!is_big) {
			a = __builtin_bswap32(a);
			b = __builtin_bswap32(b);
		}
		s0 += a + s1;
		s1 += b + s0;
	}
	return s0 == be32(h + 24) && s1 == be32(h + 28);
}

static int wal_check(struct db *db, struct err *e)
{
	_cleanup_fd_ int fd =
		openat(db->dir_fd, WAL_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint8_t head[WAL_HEAD_BYTES];

	if (fd >= 0 && !fd_pread_all(fd, head, sizeof(head), 0) &&
	    wal_head_is_sound(head))
		return 0;
	return err_set(e, ERR_INTERNAL, NULL,
		       "the daemon was not stopped cleanly and the log %s-wal "
		       "is %s: records would be lost. Put it back, or accept "
		       "the loss by removing %s-open",
		       db->path, fd < 0 ? "missing" : "damaged", db->path);
}

int db_files_check(struct db *db, bool *ret_is_new, struct err *e)
{
	bool is_marked = !faccessat(db->dir_fd, MARK_FILE, F_OK, 0);
	bool has_wal = !faccessat(db->dir_fd, WAL_FILE, F_OK, 0);
	struct stat st;

	db->is_marked = is_marked;
	if (fstatat(db->dir_fd, DB_FILE, &st, AT_SYMLINK_NOFOLLOW)) {
		if (errno != ENOENT)
			return err_set(e, ERR_INTERNAL, NULL,
				       "cannot look at %s: %s", db->path,
				       strerror(errno));
		if (is_marked || has_wal)
			return err_set(e, ERR_INTERNAL, NULL,
				       "the database %s is gone but its %s is "
				       "there; put it back, or remove that too "
				       "to begin anew",
				       db->path, has_wal ? "-wal" : "-open");
		*ret_is_new = true;
		return 0;
	}
	*ret_is_new = false;
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INTERNAL, NULL,
			       "%s is not a regular file", db->path);
	if (!st.st_size)
		return err_set(e, ERR_INTERNAL, NULL,
			       "the database %s is empty; put it back, or "
			       "remove the file to begin anew",
			       db->path);
	return is_marked ? wal_check(db, e) : 0;
}

int db_files_mark(struct db *db, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (db->is_marked)
		return 0;
	fd = openat(db->dir_fd, MARK_FILE,
		    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || fsync(fd) || fsync(db->dir_fd))
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot write %s-open: %s", db->path,
			       strerror(errno));
	db->is_marked = true;
	return 0;
}

void db_files_finish(struct db *db, bool is_clean)
{
	if (is_clean && db->is_marked) {
		unlinkat(db->dir_fd, MARK_FILE, 0);
		db->is_marked = false;
	}
	fd_close(&db->dir_fd);
	fd_close(&db->lock_fd);
}
