/*
 * A folder, page by page: see file_call.h.
 *
 * The kernel gives names in an order of its own, so each page reads the whole
 * folder and keeps the smallest names behind a given one, in a heap of bounded
 * size.  Names that come and go meanwhile move no page.
 */
#include "fd.h"
#include "file_call_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint8_t type_of(mode_t mode)
{
	return S_ISREG(mode)	? GP_TYPE_FILE
	       : S_ISDIR(mode)	? GP_TYPE_DIRECTORY
	       : S_ISLNK(mode)	? GP_TYPE_SYMLINK
	       : S_ISFIFO(mode) ? GP_TYPE_FIFO
	       : S_ISSOCK(mode) ? GP_TYPE_SOCKET
				: GP_TYPE_DEVICE;
}

static struct file_entry entry_of(const struct stat *st, size_t name_len)
{
	struct file_entry e = {
		.type = type_of(st->st_mode),
		.mode = st->st_mode & 07777,
		.name_len = (uint8_t)name_len,
		.size = (uint64_t)st->st_size,
	};

	if (st->st_mtim.tv_sec > 0)
		e.mtime_ms = (uint64_t)st->st_mtim.tv_sec * 1000 +
			     (uint64_t)st->st_mtim.tv_nsec / 1000000;
	return e;
}

static const char *name_at(const struct file_call *c, size_t i)
{
	return c->room->names[c->order[i]];
}

/* `order` is a heap with the greatest name on top, while names are read. */
static void sift_down(struct file_call *c, size_t i)
{
	for (;;) {
		size_t big = i, kid = 2 * i + 1;
		uint16_t was = c->order[i];

		if (kid < c->n_entries &&
		    strcmp(name_at(c, kid), name_at(c, big)) > 0)
			big = kid;
		kid++;
		if (kid < c->n_entries &&
		    strcmp(name_at(c, kid), name_at(c, big)) > 0)
			big = kid;
		if (big == i)
			return;
		c->order[i] = c->order[big];
		c->order[big] = was;
		i = big;
	}
}

static void sift_up(struct file_call *c, size_t i)
{
	while (i && strcmp(name_at(c, i), name_at(c, (i - 1) / 2)) > 0) {
		uint16_t was = c->order[i];

		c->order[i] = c->order[(i - 1) / 2];
		i = (i - 1) / 2;
		c->order[i] = was;
	}
}

/* Of all names behind `after` the smallest `limit` are kept. */
static void name_take(struct file_call *c, const char *name)
{
	size_t len = strlen(name);

	if (!strcmp(name, ".") || !strcmp(name, "..") ||
	    len > GP_FILE_NAME_BYTES_MAX || strcmp(name, c->after) <= 0)
		return;
	if (c->n_entries < c->limit) {
		c->order[c->n_entries] = (uint16_t)c->n_entries;
		memcpy(c->room->names[c->n_entries], name, len + 1);
		sift_up(c, c->n_entries++);
		return;
	}
	c->has_more = true;
	if (strcmp(name, name_at(c, 0)) >= 0)
		return;
	memcpy(c->room->names[c->order[0]], name, len + 1);
	sift_down(c, 0);
}

static void names_sort(struct file_call *c)
{
	size_t n = c->n_entries;

	while (c->n_entries > 1) {
		size_t last = --c->n_entries;
		uint16_t was = c->order[0];

		c->order[0] = c->order[last];
		c->order[last] = was;
		sift_down(c, 0);
	}
	c->n_entries = n;
}

struct linux_dirent64 {
	uint64_t d_ino;
	int64_t d_off;
	uint16_t d_reclen;
	uint8_t d_type;
	char d_name[];
};

static int names_read(struct file_call *c, int fd)
{
	static uint8_t buf[32768] __attribute__((aligned(8)));
	long n;

	while ((n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		if (file_is_late(c))
			return -ETIME;
		for (long at = 0; at < n;) {
			const struct linux_dirent64 *d =
				(const void *)(buf + at);

			name_take(c, d->d_name);
			at += d->d_reclen;
		}
	}
	return n < 0 ? -errno : 0;
}

/* Those that vanished meanwhile are left out. */
static int entries_look(struct file_call *c, int fd)
{
	size_t kept = 0;
	struct stat st;

	for (size_t i = 0; i < c->n_entries; i++) {
		const char *name = name_at(c, i);

		if (file_is_late(c))
			return -ETIME;
		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		c->entries[c->order[i]] = entry_of(&st, strlen(name));
		c->order[kept++] = c->order[i];
	}
	c->n_entries = kept;
	return 0;
}

/* The path itself, as it is listed in its folder: a link is a link. */
static int list_one(struct file_call *c)
{
	const char *name;
	struct stat st;
	int rc = file_parent_open(c, false, &name);

	if (rc < 0)
		return rc;
	c->folder = rc;
	if (fstatat(c->folder, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	c->entries[0] = entry_of(&st, 0);
	c->order[0] = 0;
	c->n_entries = 1;
	return 0;
}

void file_list_step(struct file_call *c)
{
	struct statx st;
	int rc = file_open_below(c->root, c->path, O_PATH);
	bool is_folder;

	if (rc < 0 && rc != -ENOENT && rc != -ELOOP) {
		file_call_done(c, rc);
		return;
	}
	c->folder = rc < 0 ? -1 : rc;
	rc = rc < 0 ? 0 : file_look(c->folder, &st);
	is_folder = c->folder >= 0 && !rc && S_ISDIR(st.stx_mode);
	if (is_folder && st.stx_mnt_id != c->root->mount)
		rc = -EXDEV;
	if (!rc && is_folder) {
		c->fd = openat(c->folder, ".",
			       O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = c->fd < 0 ? -errno : names_read(c, c->fd);
		names_sort(c);
		rc = rc ? rc : entries_look(c, c->fd);
	} else if (!rc) {
		fd_close(&c->folder);
		rc = list_one(c);
	}
	if (rc)
		c->n_entries = 0;
	file_call_done(c, rc);
}
