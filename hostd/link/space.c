/*
 * What takes space; see space.h.
 *
 * Folders are walked without following links, by st_blocks, so that the sum of
 * what is in STATE is what du says of it.  Disks of VMs have no name: they are
 * asked by their descriptors.
 */
#include "space.h"
#include "../image/sparse.h"
#include "fd.h"
#include "vm_priv.h"
#include "work.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DEPTH_MAX	6
#define ST_BLOCKS_BYTES 512u

static const char *const kind_names[] = {
	[SPACE_TEMPLATES] = "templates", [SPACE_SNAPSHOTS] = "snapshots",
	[SPACE_STOPPED] = "stopped",	 [SPACE_DISKS] = "disks",
	[SPACE_DATABASE] = "database",	 [SPACE_LOGS] = "logs",
	[SPACE_OTHER] = "other",
};
static_assert(sizeof(kind_names) / sizeof(*kind_names) == SPACE_KINDS,
	      "a name for every kind");

const char *space_kind_name(enum space_kind k)
{
	return kind_names[k];
}

/* ---- walking ------------------------------------------------------------ */

static uint64_t blocks(const struct stat *st)
{
	return (uint64_t)st->st_blocks * ST_BLOCKS_BYTES;
}

/* Everything at and below `name`. */
static uint64_t tree_bytes(int at, const char *name, int depth)
{
	struct stat st;
	uint64_t sum;
	struct dirent *d;
	DIR *dir;
	int fd;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW))
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
			sum += tree_bytes(dirfd(dir), d->d_name, depth + 1);
	closedir(dir);
	return sum;
}

/* Its entries are what is counted. */
static struct space_use folder_use(int at, const char *name)
{
	struct space_use u = {.bytes = tree_bytes(at, name, 0)};
	int fd = openat(at, name,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		fd_close(&fd);
		return u;
	}
	while ((d = readdir(dir)))
		u.count += *d->d_name != '.';
	closedir(dir);
	return u;
}

struct space_use space_of(const struct link *l, enum space_kind k)
{
	return folder_use(l->state_fd, kind_names[k]);
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
	if (!strncmp(name, "hutch.db", 8))
		return SPACE_DATABASE;
	return has_end(name, ".log") ? SPACE_LOGS : SPACE_OTHER;
}

static void state_walk(int state_fd, struct space *s)
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
		if (k == SPACE_SNAPSHOTS || k == SPACE_STOPPED)
			u = folder_use(dirfd(dir), d->d_name);
		else
			u.bytes = tree_bytes(dirfd(dir), d->d_name, 0);
		s->of[k].count += u.count;
		s->of[k].bytes += u.bytes;
	}
	closedir(dir);
}

/* ---- all of it ---------------------------------------------------------- */

struct measuring {
	struct job job;
	struct space space;
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
	struct space_use disks = folder_use(l->cache_fd, "disks");

	state_walk(l->state_fd, s);
	s->of[SPACE_TEMPLATES] = folder_use(l->cache_fd, "snapshots");
	s->of[SPACE_TEMPLATES].bytes += disks.bytes;
	free_space(l->state_fd, &s->state_free_bytes, &s->state_total_bytes);
	free_space(l->cache_fd, &s->cache_free_bytes, &s->cache_total_bytes);
}

static void measure_done(struct job *j)
{
	struct measuring *m = container_of(j, struct measuring, job);

	if (j->link && m->fn)
		m->fn(m->ctx, &m->space);
	free(m);
}

/* Those with a name are in STATE/stopped. */
static struct space_use disks_use(const struct link *l)
{
	struct space_use u = {0};

	for (struct list *n = l->vms.next; n != &l->vms; n = n->next) {
		const struct vm *vm = container_of(n, struct vm, node);
		struct stat st;

		if (vm->disk_fd < 0 || fstat(vm->disk_fd, &st) || st.st_nlink)
			continue;
		u.count++;
		u.bytes += blocks(&st);
	}
	return u;
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
	m->space.of[SPACE_DISKS] = disks_use(l);
	rc = job_start(l, &m->job, measure_run, measure_done);
	if (rc)
		free(m);
	else
		*ret = m;
	return rc;
}

void space_forget(struct measuring *m)
{
	m->fn = NULL;
}
