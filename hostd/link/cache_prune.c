/* What the cache forgets; see cache.h. */
#include "../clock.h"
#include "cache.h"
#include "fd.h"
#include "log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNUSED_S_MAX	    (14ll * 86400)
#define UNUSED_S_UNDER_NEED 3600
#define ENTRIES_MAX	    512
#define KEY_CHARS	    64

struct entry {
	char name[80]; /* of the folder */
	int64_t used_s;
};

/* ".new-<key>", ".old-<key>" and "<key>"; NULL for anything else. */
static const char *key_of(const char *name)
{
	if (name[0] == '.')
		name = strlen(name) > 5 ? name + 5 : "";
	return strlen(name) == KEY_CHARS ? name : NULL;
}

static int64_t last_used_s(const struct cache *c, const char *key)
{
	char path[80];
	struct stat st;

	snprintf(path, sizeof(path), "locks/%s", key);
	return fstatat(c->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW)
		       ? 0
		       : (int64_t)st.st_mtim.tv_sec;
}

/* Not while somebody makes it. */
static bool entry_remove(const struct cache *c, int dir, const char *name)
{
	_cleanup_fd_ int lock = -1;
	struct err e = {0};

	if (cache_lock(c, key_of(name), &lock, &e))
		return false;
	cache_folder_remove(dir, name);
	log_info("cache removed=\"%s\"", log_quoted(name, strlen(name)).s);
	return true;
}

static int by_age(const void *a, const void *b)
{
	int64_t x = ((const struct entry *)a)->used_s;
	int64_t y = ((const struct entry *)b)->used_s;

	return x < y ? -1 : x > y;
}

static size_t entries_read(const struct cache *c, int dir, struct entry *list)
{
	int fd = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	size_t n = 0;

	while (d && n < ENTRIES_MAX && (de = readdir(d))) {
		const char *key = key_of(de->d_name);

		if (!key)
			continue;
		snprintf(list[n].name, sizeof(list[n].name), "%.79s",
			 de->d_name);
		/* What a maker left is the oldest of all. */
		list[n].used_s = de->d_name[0] == '.' ? 0 : last_used_s(c, key);
		n++;
	}
	if (d)
		closedir(d);
	return n;
}

static int snapshots_open(const struct cache *c)
{
	return openat(c->dir_fd, "snapshots",
		      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/*
 * A maker that was killed between the two renames leaves the old entry under
 * another name, in the middle of the rest the new one: as large as the guest's
 * memory, and where all templates are made no other maker comes by.
 */
void cache_sweep(const struct cache *c)
{
	struct entry *list = calloc(ENTRIES_MAX, sizeof(*list));
	_cleanup_fd_ int dir = snapshots_open(c);
	size_t n = list && dir >= 0 ? entries_read(c, dir, list) : 0;

	for (size_t i = 0; i < n; i++)
		if (list[i].name[0] == '.')
			entry_remove(c, dir, list[i].name);
	free(list);
}

unsigned cache_prune(const struct cache *c, uint64_t need_bytes)
{
	struct entry *list = calloc(ENTRIES_MAX, sizeof(*list));
	_cleanup_fd_ int dir = snapshots_open(c);
	int64_t now_s = clock_file_ms() / 1000;
	unsigned removed = 0;
	size_t n;

	if (!list || dir < 0) {
		free(list);
		return 0;
	}
	n = entries_read(c, dir, list);
	qsort(list, n, sizeof(*list), by_age);
	for (size_t i = 0; i < n; i++) {
		int64_t unused_s = now_s - list[i].used_s;

		if (unused_s > UNUSED_S_MAX ||
		    (unused_s > UNUSED_S_UNDER_NEED &&
		     cache_free_bytes(c) < need_bytes))
			removed += entry_remove(c, dir, list[i].name);
	}
	free(list);
	return removed;
}
