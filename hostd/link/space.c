/*
 * What takes space; see space.h.
 *
 * Folders are walked without following links, by st_blocks, so that the sum of
 * what is in STATE is what du says of it.  Disks of VMs have no name, or one in
 * STATE/stopped when their sandbox was stopped once: they are asked by their
 * descriptors, and left out where they lie.
 */
#include "space.h"
#include "../image/sparse.h"
#include "fd.h"
#include "vm_priv.h"
#include "work.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DEPTH_MAX	6
#define ST_BLOCKS_BYTES 512u

static const char *const kind_names[] = {
	[SPACE_TEMPLATES] = "templates", [SPACE_SNAPSHOTS] = "snapshots",
	[SPACE_FILES] = "files",	 [SPACE_STOPPED] = "stopped",
	[SPACE_DISKS] = "disks",	 [SPACE_DATABASE] = "database",
	[SPACE_LOGS] = "logs",		 [SPACE_OTHER] = "other",
};
static_assert(sizeof(kind_names) / sizeof(*kind_names) == SPACE_KINDS,
	      "a name for every kind");

const char *space_kind_name(enum space_kind k)
{
	return kind_names[k];
}

/* ---- disks of VMs ----------------------------------------------------------
 */

/* Those that have a name, too: of sandboxes that were stopped once. */
struct open_disks {
	struct {
		dev_t dev;
		ino_t ino;
	} * of; /* owned */
	size_t n;
};

static uint64_t blocks(const struct stat *st)
{
	return (uint64_t)st->st_blocks * ST_BLOCKS_BYTES;
}

/* Without memory for the list they are counted where they lie. */
static struct space_use disks_use(const struct link *l, struct open_disks *ret)
{
	struct space_use u = {0};
	size_t n = 0;

	for (struct list *p = l->vms.next; p != &l->vms; p = p->next)
		n++;
	*ret = (struct open_disks){.of = calloc(n + 1, sizeof(*ret->of))};
	for (struct list *p = l->vms.next; p != &l->vms; p = p->next) {
		const struct vm *vm = container_of(p, struct vm, node);
		struct stat st;

		if (vm->disk_fd < 0 || fstat(vm->disk_fd, &st) ||
		    (st.st_nlink && !ret->of))
			continue;
		u.count++;
		u.bytes += blocks(&st);
		if (!st.st_nlink)
			continue;
		ret->of[ret->n].dev = st.st_dev;
		ret->of[ret->n++].ino = st.st_ino;
	}
	return u;
}

static bool is_open(const struct open_disks *d, const struct stat *st)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->of[i].dev == st->st_dev && d->of[i].ino == st->st_ino)
			return true;
	return false;
}

/* ---- walking ------------------------------------------------------------ */

/* Everything at and below `name`, but what is in `but`. */
static uint64_t tree_bytes(int at, const char *name, int depth,
			   const struct open_disks *but)
{
	struct stat st;
	uint64_t sum;
	struct dirent *d;
	DIR *dir;
	int fd;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) || is_open(but, &st))
		return 0;
	sum = blocks(&st);
	if (!S_ISDIR(st.st_mode) || depth == DEPTH_MAX)
		return sum;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		fd_close(&fd);
		return sum;
	}
	while ((d = readdir(dir)))
		if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			sum += tree_bytes(dirfd(dir), d->d_name, depth + 1,
					  but);
	closedir(dir);
	return sum;
}

/* A sandbox that was stopped once, and runs: nothing but its disk is there. */
static bool runs(int at, const char *sandbox, const struct open_disks *but)
{
	char path[NAME_MAX + sizeof("/disk")];
	struct stat st;

	if (!but->n)
		return false;
	snprintf(path, sizeof(path), "%s/disk", sandbox);
	if (fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) || !is_open(but, &st))
		return false;
	snprintf(path, sizeof(path), "%s/mem", sandbox);
	return fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) != 0;
}

/* Its entries are what is counted. */
static struct space_use folder_use(int at, const char *name,
				   const struct open_disks *but)
{
	struct space_use u = {.bytes = tree_bytes(at, name, 0, but)};
	int fd = openat(at, name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		fd_close(&fd);
		return u;
	}
	while ((d = readdir(dir)))
		u.count +=
			*d->d_name != '.' && !runs(dirfd(dir), d->d_name, but);
	closedir(dir);
	return u;
}

struct space_use space_of(const struct link *l, enum space_kind k)
{
	struct open_disks disks;
	struct space_use u;

	(void)disks_use(l, &disks);
	u = folder_use(l->state_fd, kind_names[k], &disks);
	free(disks.of);
	return u;
}

static bool has_end(const char *name, const char *end)
{
	size_t len = strlen(name), n = strlen(end);

	return len >= n && !strcmp(name + len - n, end);
}

static enum space_kind kind_of(const char *name)
{
	if (!strcmp(name, kind_names[SPACE_SNAPSHOTS]))
		return SPACE_SNAPSHOTS;
	if (!strcmp(name, kind_names[SPACE_STOPPED]))
		return SPACE_STOPPED;
	if (!strcmp(name, kind_names[SPACE_FILES]))
		return SPACE_FILES;
	if (!strncmp(name, "hutch.db", 8))
		return SPACE_DATABASE;
	return has_end(name, ".log") ? SPACE_LOGS : SPACE_OTHER;
}

static void state_walk(int state_fd, const struct open_disks *disks,
		       struct space *s)
{
	int fd = openat(state_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	struct stat st;

	if (!dir) {
		fd_close(&fd);
		return;
	}
	if (!fstat(dirfd(dir), &st))
		s->of[SPACE_OTHER].bytes += blocks(&st);
	while ((d = readdir(dir))) {
		struct space_use u = {.count = 1};
		enum space_kind k = kind_of(d->d_name);

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (k == SPACE_SNAPSHOTS || k == SPACE_STOPPED ||
		    k == SPACE_FILES)
			u = folder_use(dirfd(dir), d->d_name, disks);
		else
			u.bytes = tree_bytes(dirfd(dir), d->d_name, 0, disks);
		s->of[k].count += u.count;
		s->of[k].bytes += u.bytes;
	}
	closedir(dir);
}

/* ---- all of it ---------------------------------------------------------- */

struct measuring {
	struct job job;
	struct space space;
	struct open_disks disks;
	void (*fn)(void *ctx, const struct space *s);
	void *ctx;
};

static void free_space(int fd, uint64_t *ret_free, uint64_t *ret_total)
{
	struct statvfs v;

	if (fstatvfs(fd, &v))
		return;
	*ret_free = (uint64_t)v.f_bavail * v.f_frsize;
	*ret_total = (uint64_t)v.f_blocks * v.f_frsize;
}

static void measure_run(struct job *j)
{
	struct measuring *m = container_of(j, struct measuring, job);
	const struct link *l = j->link;
	struct space *s = &m->space;
	struct space_use disks = folder_use(l->cache_fd, "disks", &m->disks);

	state_walk(l->state_fd, &m->disks, s);
	s->of[SPACE_TEMPLATES] =
		folder_use(l->cache_fd, "snapshots", &m->disks);
	s->of[SPACE_TEMPLATES].bytes += disks.bytes;
	free_space(l->state_fd, &s->state_free_bytes, &s->state_total_bytes);
	free_space(l->cache_fd, &s->cache_free_bytes, &s->cache_total_bytes);
}

static void measuring_free(struct measuring *m)
{
	free(m->disks.of);
	free(m);
}

static void measure_done(struct job *j)
{
	struct measuring *m = container_of(j, struct measuring, job);

	if (j->link && m->fn)
		m->fn(m->ctx, &m->space);
	measuring_free(m);
}

int space_measure(struct link *l, void (*fn)(void *ctx, const struct space *s),
		  void *ctx, struct measuring **ret)
{
	struct measuring *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return -ENOMEM;
	m->fn = fn;
	m->ctx = ctx;
	m->space.of[SPACE_DISKS] = disks_use(l, &m->disks);
	rc = job_start(l, &m->job, measure_run, measure_done);
	if (rc)
		measuring_free(m);
	else
		*ret = m;
	return rc;
}

void space_forget(struct measuring *m)
{
	m->fn = NULL;
}
