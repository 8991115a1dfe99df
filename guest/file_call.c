/* Calls on the workspace; see file_call.h. */
#include "fd.h"
#include "file_call_priv.h"
#include "limits.h"
#include "loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORKSPACE	  FILE_WORKSPACE
#define TIMEOUT_MS	  60000
#define NAME_TRIES	  8
#define PROC_PATH_BYTES	  40
#define FILE_MODE_DEFAULT 0644
/* Of memory and of disks, for direct writes; less than that is not worth one.
 */
#define BLOCK_BYTES	 4096
#define DIRECT_BYTES_MIN (4 * BLOCK_BYTES)

/* ---- the end ------------------------------------------------------------ */

static const struct {
	int error;
	enum gp_file_how how;
	const char *text; /* NULL = the system's */
} ends[] = {
	{ENOENT, GP_FILE_NOT_FOUND, "there is no such file or folder"},
	{EXDEV, GP_FILE_OUTSIDE, "a link leads out of /workspace"},
	{ENOTDIR, GP_FILE_WRONG_TYPE,
	 "something on the way to it is not a folder"},
	{EISDIR, GP_FILE_WRONG_TYPE, "it is a folder"},
	{ENXIO, GP_FILE_WRONG_TYPE, "it is neither a file nor a folder"},
	{ENOTEMPTY, GP_FILE_NOT_EMPTY, "the folder is not empty"},
	{EEXIST, GP_FILE_NOT_EMPTY, "the folder is not empty"},
	{EACCES, GP_FILE_DENIED, "its mode keeps the sandbox's user out"},
	{EPERM, GP_FILE_DENIED, NULL},
	{ENOSPC, GP_FILE_FULL, "the sandbox's disk is full"},
	{EDQUOT, GP_FILE_FULL, "the sandbox's disk is full"},
	{EFBIG, GP_FILE_TOO_LARGE, "the file is too large"},
	{ENAMETOOLONG, GP_FILE_BAD_NAME, "the name is too long"},
	{ELOOP, GP_FILE_BAD_NAME, "too many links"},
	{EINVAL, GP_FILE_BAD_NAME, NULL},
	{ETIME, GP_FILE_TIMED_OUT, "it takes too long"},
	{ECANCELED, GP_FILE_GIVEN_UP, "it was given up"},
};

void file_call_done(struct file_call *c, int rc)
{
	const char *text = strerror(-rc);

	fd_close(&c->fd);
	fd_close(&c->folder);
	c->is_done = true;
	c->how = rc ? GP_FILE_FAILED : GP_FILE_OK;
	if (!rc)
		return;
	c->piece_len = 0;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		if (ends[i].error != -rc)
			continue;
		c->how = ends[i].how;
		text = ends[i].text ? ends[i].text : text;
	}
	snprintf(c->error, sizeof(c->error), "%s", text);
}

void file_call_give_up(struct file_call *c)
{
	c->n_entries = 0;
	file_call_done(c, -ECANCELED);
}

/* ---- read --------------------------------------------------------------- */

/* An O_PATH descriptor whose type is known, opened. */
static int open_again(int fd, int flags)
{
	char proc[PROC_PATH_BYTES];
	int ret;

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	ret = open(proc, flags | O_CLOEXEC);
	return ret < 0 ? -errno : ret;
}

/*
 * The clock that times come from moves with the kernel's tick.  While it shows
 * the moment of the last change, another one could have the same time: then
 * nothing can be told.
 */
static bool stamp_take(int fd, struct file_stamp *ret)
{
	struct timespec now;
	struct stat st;

	if (fstat(fd, &st) || clock_gettime(CLOCK_REALTIME_COARSE, &now))
		return false;
	*ret = (struct file_stamp){
		.inode = st.st_ino,
		.size = (uint64_t)st.st_size,
		.ctime_ns = st.st_ctim.tv_sec * (int64_t)NS_PER_S +
			    st.st_ctim.tv_nsec,
		.mtime_ns = st.st_mtim.tv_sec * (int64_t)NS_PER_S +
			    st.st_mtim.tv_nsec,
	};
	return st.st_ctim.tv_sec != now.tv_sec ||
	       st.st_ctim.tv_nsec != now.tv_nsec;
}

static int read_begin(struct file_call *c)
{
	struct statx st;
	int rc = file_open_inside(c->root, c->path, O_PATH, &st);

	if (rc < 0)
		return rc;
	c->folder = rc;
	if (S_ISDIR(st.stx_mode))
		return -EISDIR;
	if (!S_ISREG(st.stx_mode))
		return -ENXIO;
	c->total = st.stx_size;
	if (c->is_whole && st.stx_size > c->limit)
		return -EFBIG;
	rc = open_again(c->folder, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (rc < 0)
		return rc;
	c->fd = rc;
	c->has_stamp = stamp_take(c->fd, &c->stamp_before);
	return 0;
}

/*
 * Whole blocks go past the page cache: to go through it page by page is most of
 * what a large file costs where the guest's kernel is slow.  What is only in
 * the cache the kernel writes first.  A file system that cannot do so says
 * EINVAL.  Is the next transfer such a one?
 */
static bool direct_set(struct file_call *c, uint64_t at, size_t len)
{
	bool is = !(at % BLOCK_BYTES) && !(len % BLOCK_BYTES) &&
		  len >= DIRECT_BYTES_MIN;

	if (is == c->is_direct)
		return is;
	if (!fcntl(c->fd, F_SETFL, is ? O_DIRECT : 0))
		c->is_direct = is;
	return is && c->is_direct;
}

/* Bytes, 0 at the end, or -1 with errno. */
static ssize_t read_some(struct file_call *c, size_t want)
{
	uint64_t at = c->offset + c->moved + c->piece_len;
	uint8_t *to = c->room->piece + c->piece_len;
	/* A small file is in the cache, or soon. */
	bool is_large = c->total > at && c->total - at >= DIRECT_BYTES_MIN;
	ssize_t n = -1;

	if (direct_set(c, at, is_large ? want : 0))
		n = pread(c->fd, to, want, (off_t)at);
	if (n >= 0 || (c->is_direct && errno != EINVAL))
		return n;
	direct_set(c, 0, 0);
	return pread(c->fd, to, want, (off_t)at);
}

static void step_read(struct file_call *c)
{
	uint64_t left = c->limit - c->moved;
	size_t want = left < GP_FILE_PIECE_BYTES_MAX ? (size_t)left
						     : GP_FILE_PIECE_BYTES_MAX;
	int rc = c->is_begun ? 0 : read_begin(c);
	ssize_t n = 0;

	c->is_begun = true;
	c->piece_len = 0;
	if (!rc && file_is_late(c))
		rc = -ETIME;
	while (!rc && c->piece_len < want) {
		n = read_some(c, want - c->piece_len);
		if (n <= 0)
			break;
		c->piece_len += (size_t)n;
	}
	if (!rc && n < 0)
		rc = -errno;
	c->moved += c->piece_len;
	if (!rc && c->moved < c->limit && c->piece_len == want)
		return; /* and another */
	/* As it is now; what was read is of it in any case. */
	if (!rc) {
		c->stamp.size = c->total;
		stamp_take(c->fd, &c->stamp);
		c->has_stamp &=
			!memcmp(&c->stamp, &c->stamp_before, sizeof(c->stamp));
		c->total = c->stamp.size;
	}
	if (c->moved && c->total < c->offset + c->moved)
		c->total = c->offset + c->moved;
	file_call_done(c, rc);
}

/* ---- write -------------------------------------------------------------- */

static int write_begin(struct file_call *c)
{
	const char *name;
	struct stat st;
	int rc = file_parent_open(c, true, &name);

	if (rc < 0)
		return rc;
	c->folder = rc;
	c->mode = FILE_MODE_DEFAULT;
	if (!fstatat(c->folder, name, &st, AT_SYMLINK_NOFOLLOW)) {
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
		if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
			return -ENXIO;
		if (S_ISREG(st.st_mode))
			c->mode = st.st_mode & 0777;
	} else if (errno != ENOENT) {
		return -errno;
	}
	c->fd = openat(c->folder, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	return c->fd < 0 ? -errno : 0;
}

static int piece_write(struct file_call *c)
{
	off_t at = (off_t)c->moved;
	size_t whole = c->piece_len / BLOCK_BYTES * BLOCK_BYTES;
	int rc = -EINVAL;

	if (direct_set(c, c->moved, whole))
		rc = fd_pwrite_all(c->fd, c->room->piece, whole, at);
	if (rc && rc != -EINVAL)
		return rc;
	whole = rc ? 0 : whole;
	direct_set(c, 0, 0);
	return fd_pwrite_all(c->fd, c->room->piece + whole,
			     c->piece_len - whole, at + (off_t)whole);
}

/* In the place of what has the name now. */
static int name_replace(struct file_call *c, const char *proc, const char *name)
{
	static uint64_t count;
	char temp[64];
	int rc = -EEXIST;

	for (int i = 0; i < NAME_TRIES && rc == -EEXIST; i++) {
		snprintf(temp, sizeof(temp), ".hutch-%llx-%llx",
			 (unsigned long long)loop_now_ns(),
			 (unsigned long long)count++);
		rc = linkat(AT_FDCWD, proc, c->folder, temp, AT_SYMLINK_FOLLOW)
			     ? -errno
			     : 0;
	}
	if (rc)
		return rc == -EEXIST ? -EAGAIN : rc;
	if (renameat(c->folder, temp, c->folder, name)) {
		rc = -errno;
		unlinkat(c->folder, temp, 0);
	}
	return rc;
}

static int write_end(struct file_call *c)
{
	const char *name = strrchr(c->path, '/') + 1;
	char proc[PROC_PATH_BYTES];

	if (fchmod(c->fd, c->mode))
		return -errno;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", c->fd);
	if (!linkat(AT_FDCWD, proc, c->folder, name, AT_SYMLINK_FOLLOW))
		return 0;
	return errno == EEXIST ? name_replace(c, proc, name) : -errno;
}

static void step_write(struct file_call *c)
{
	int rc = c->is_begun ? 0 : write_begin(c);

	c->is_begun = true;
	if (!rc && file_is_late(c))
		rc = -ETIME;
	if (!rc && c->piece_len > c->size - c->moved)
		rc = -EINVAL;
	if (!rc)
		rc = piece_write(c);
	c->moved += c->piece_len;
	c->piece_len = 0;
	if (!rc && c->moved < c->size)
		return; /* for the next piece */
	c->total = c->moved;
	file_call_done(c, rc ? rc : write_end(c));
}

/* ---- delete ------------------------------------------------------------- */

static void step_delete(struct file_call *c)
{
	const char *name;
	int rc = file_parent_open(c, false, &name);

	if (rc >= 0) {
		c->folder = rc;
		rc = unlinkat(c->folder, name, 0) ? -errno : 0;
		if (rc == -EISDIR && unlinkat(c->folder, name, AT_REMOVEDIR))
			rc = -errno;
		else if (rc == -EISDIR)
			rc = 0;
	}
	file_call_done(c, rc);
}

/* ---- calls -------------------------------------------------------------- */

static void (*const steps[])(struct file_call *c) = {
	[GP_FILE_LIST] = file_list_step,
	[GP_FILE_READ] = step_read,
	[GP_FILE_WRITE] = step_write,
	[GP_FILE_DELETE] = step_delete,
};

void file_call_step(struct file_call *c)
{
	steps[c->op](c);
}

static int refused(char *why, size_t why_cap, const char *what)
{
	snprintf(why, why_cap, "FILE: %s", what);
	return -EPROTO;
}

int file_call_init(struct file_call *c, const struct file_root *root,
		   union file_room *room, const struct wire_map *m, char *why,
		   size_t why_cap)
{
	const struct span *path = &m->v[GP_FILE_KEY_PATH].s;
	const struct span *after = &m->v[GP_FILE_KEY_AFTER].s;
	const struct span *data = &m->v[GP_FILE_KEY_DATA].s;
	const struct wire_value *timeout = &m->v[GP_FILE_KEY_TIMEOUT_MS];
	uint64_t op = m->v[GP_FILE_KEY_OP].u;
	uint64_t timeout_ms = timeout->is_set ? timeout->u : TIMEOUT_MS;
	uint64_t max;

	memset(c, 0, offsetof(struct file_call, entries));
	c->n_entries = 0;
	c->has_more = false;
	c->fd = c->folder = -1;
	if (op < GP_FILE_LIST || op > GP_FILE_DELETE)
		return refused(why, why_cap, "unknown op");
	if (path->len > GP_FILE_PATH_BYTES_MAX ||
	    (path->len && memchr(path->data, 0, path->len)))
		return refused(why, why_cap, "path is too long or has a NUL");
	if (after->len > GP_FILE_NAME_BYTES_MAX ||
	    data->len > GP_FILE_PIECE_BYTES_MAX)
		return refused(why, why_cap, "after or data is too long");
	c->root = root;
	c->room = room;
	c->op = (enum gp_file_op)op;
	snprintf(c->path, sizeof(c->path), WORKSPACE "%s%.*s",
		 path->len ? "/" : "", (int)path->len,
		 path->len ? (const char *)path->data : "");
	if (after->len)
		memcpy(c->after, after->data, after->len);
	max = c->op == GP_FILE_LIST ? GP_FILE_ENTRIES_MAX : GP_FILE_BYTES_MAX;
	c->offset = m->v[GP_FILE_KEY_OFFSET].u;
	c->limit = m->v[GP_FILE_KEY_LIMIT].u;
	c->limit = c->limit && c->limit < max ? c->limit : max;
	c->is_whole = m->v[GP_FILE_KEY_WHOLE].u;
	c->size = m->v[GP_FILE_KEY_SIZE].u;
	c->deadline_ns = loop_now_ns() + timeout_ms * NS_PER_MS;
	if (c->offset > INT64_MAX - GP_FILE_BYTES_MAX)
		return refused(why, why_cap, "offset is too large");
	c->piece_len = data->len;
	if (data->len)
		memcpy(room->piece, data->data, data->len);
	return 0;
}
