/* Snapshots on disk; see cache.h. */
#include "cache.h"
#include "../clock.h"
#include "../image/sparse.h"
#include "bytes.h"
#include "fault.h"
#include "fd.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define META_VERSION   1
#define META_BYTES_MAX (64u << 10)
#define NAME_BYTES     96

enum { FILE_STATE, FILE_MEM, FILE_DISK, FILE_TOUCHED, FILE_N };

static const struct {
	const char *name;
	enum file_hash_kind kind;
} files[FILE_N] = {
	[FILE_STATE] = {"state", FILE_HASH_PLAIN},
	[FILE_MEM] = {"mem", FILE_HASH_SPARSE},
	[FILE_DISK] = {"disk", FILE_HASH_SPARSE},
	[FILE_TOUCHED] = {"touched", FILE_HASH_PLAIN},
};

void snapshot_files_close(struct snapshot_files *f)
{
	fd_close(&f->state_fd);
	fd_close(&f->mem_fd);
	fd_close(&f->disk_fd);
	fd_close(&f->touched_fd);
}

static int fail(struct err *e, int rc, const char *what, const char *name)
{
	err_set(e, ERR_INTERNAL, NULL, "snapshot cache: %s %s: %s", what, name,
		strerror(-rc));
	return rc;
}

static int sub_folder(const struct cache *c, const char *name, int *ret_fd,
		      struct err *e)
{
	if (mkdirat(c->dir_fd, name, 0755) && errno != EEXIST)
		return fail(e, -errno, "mkdir", name);
	*ret_fd = openat(c->dir_fd, name,
			 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd < 0)
		return fail(e, -errno, "open", name);
	return 0;
}

/* ---- reading an entry ------------------------------------------------- */

static int damaged(struct err *e, const char *key, const char *what)
{
	err_set(e, ERR_INTERNAL, NULL, "snapshot %.16s is damaged: %s", key,
		what);
	return -EBADMSG;
}

static json_t *meta_load(int dir)
{
	_cleanup_fd_ int fd =
		openat(dir, "meta.json", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_bytes_ struct bytes b = {0};
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size > META_BYTES_MAX ||
	    bytes_reserve(&b, (size_t)st.st_size) ||
	    fd_read_all(fd, b.data, (size_t)st.st_size))
		return NULL;
	return json_loadb((const char *)b.data, (size_t)st.st_size,
			  JSON_REJECT_DUPLICATES, NULL);
}

/* Opens files[i] of the entry and holds it against its line in meta.json. */
static int file_open(const struct cache *c, int dir, const char *key,
		     json_t *meta, int i, bool is_verify, int *ret_fd,
		     struct err *e)
{
	json_t *v =
		json_object_get(json_object_get(meta, "files"), files[i].name);
	const char *hex = json_string_value(json_object_get(v, "sha256"));
	json_int_t bytes = json_integer_value(json_object_get(v, "bytes"));
	uint8_t want[32], have[32];
	char what[80];
	struct stat st;
	int rc;

	*ret_fd = openat(dir, files[i].name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd < 0 || fstat(*ret_fd, &st) || !S_ISREG(st.st_mode)) {
		snprintf(what, sizeof(what), "file '%s' is missing",
			 files[i].name);
		return damaged(e, key, what);
	}
	if (!hex || hash_from_hex(hex, want))
		return damaged(e, key, "meta.json lacks a hash");
	if (st.st_size != bytes) {
		snprintf(what, sizeof(what),
			 "file '%s' has %lld bytes in place of %lld",
			 files[i].name, (long long)st.st_size,
			 (long long)bytes);
		return damaged(e, key, what);
	}
	rc = file_hash(c->hashes, files[i].kind, *ret_fd, is_verify, have);
	if (rc)
		return fail(e, rc, "reading", files[i].name);
	if (memcmp(want, have, sizeof(want)) != 0) {
		snprintf(what, sizeof(what), "file '%s' has another hash",
			 files[i].name);
		return damaged(e, key, what);
	}
	return 0;
}

/* A hint: what is wrong with it costs time, and nothing else. */
static void touched_open(const struct cache *c, int dir, const char *key,
			 json_t *meta, bool is_verify, int *ret_fd)
{
	const char *name = files[FILE_TOUCHED].name;
	struct err e = {0};

	if (!json_object_get(json_object_get(meta, "files"), name) ||
	    !file_open(c, dir, key, meta, FILE_TOUCHED, is_verify, ret_fd, &e))
		return;
	fd_close(ret_fd);
	log_warn("%s; its VMs begin slower", e.text);
}

int cache_open(const struct cache *c, const char *key, bool is_verify,
	       struct snapshot_files *ret, struct err *e)
{
	struct snapshot_files f = SNAPSHOT_FILES_NONE;
	int *fds[FILE_N] = {&f.state_fd, &f.mem_fd, &f.disk_fd, &f.touched_fd};
	_cleanup_fd_ int dir = -1;
	char path[NAME_BYTES];
	json_t *meta;
	const char *meta_key;
	int rc = 0;

	snprintf(path, sizeof(path), "snapshots/%s", key);
	dir = openat(c->dir_fd, path,
		     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? -ENOENT
				       : fail(e, -errno, "open", path);
	meta = meta_load(dir);
	meta_key = json_string_value(json_object_get(meta, "key"));
	if (!meta || json_integer_value(json_object_get(meta, "version")) !=
			     META_VERSION)
		rc = damaged(e, key, "meta.json is not readable");
	else if (!meta_key || strcmp(meta_key, key) != 0)
		rc = damaged(e, key, "meta.json is of another snapshot");
	for (int i = 0; !rc && i < FILE_TOUCHED; i++)
		rc = file_open(c, dir, key, meta, i, is_verify, fds[i], e);
	if (!rc)
		touched_open(c, dir, key, meta, is_verify, &f.touched_fd);
	json_decref(meta);
	if (rc) {
		snapshot_files_close(&f);
		return rc;
	}
	*ret = f;
	snprintf(path, sizeof(path), "locks/%s", key);
	utimensat(c->dir_fd, path, NULL, AT_SYMLINK_NOFOLLOW);
	return 0;
}

/* ---- making one ------------------------------------------------------- */

int cache_lock(const struct cache *c, const char *key, int *ret_fd,
	       struct err *e)
{
	_cleanup_fd_ int dir = -1, fd = -1;
	int rc = sub_folder(c, "locks", &dir, e);

	if (rc)
		return rc;
	fd = openat(dir, key, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return fail(e, -errno, "open lock", key);
	if (flock(fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? -EAGAIN
					    : fail(e, -errno, "flock", key);
	*ret_fd = fd_take(&fd);
	return 0;
}

void cache_folder_remove(int at, const char *name)
{
	_cleanup_fd_ int dir = openat(
		at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return;
	for (int i = 0; i < FILE_N; i++)
		if (!unlinkat(dir, files[i].name, 0))
			fault_point(FAULT_REMOVE_PART);
	unlinkat(dir, "meta.json", 0);
	unlinkat(at, name, AT_REMOVEDIR);
}

static void new_name(const char *key, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, ".new-%s", key);
}

int cache_making_begin(const struct cache *c, const char *key,
		       struct cache_making *ret, struct err *e)
{
	struct cache_making m = CACHE_MAKING_NONE;
	int *fds[FILE_N] = {&m.state_fd, &m.mem_fd, &m.disk_fd, &m.touched_fd};
	_cleanup_fd_ int snapshots = -1;
	char name[NAME_BYTES];
	int rc = sub_folder(c, "snapshots", &snapshots, e);

	if (rc)
		return rc;
	new_name(key, name);
	cache_folder_remove(snapshots, name);
	if (mkdirat(snapshots, name, 0755))
		return fail(e, -errno, "mkdir", name);
	m.dir_fd = openat(snapshots, name,
			  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (m.dir_fd < 0)
		rc = -errno;
	for (int i = 0; !rc && i < FILE_N; i++) {
		*fds[i] = openat(m.dir_fd, files[i].name,
				 O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (*fds[i] < 0)
			rc = -errno;
	}
	if (rc) {
		cache_making_end(c, key, &m);
		return fail(e, rc, "making", name);
	}
	*ret = m;
	return 0;
}

/* What meta.json says of files[i]; makes it durable and read-only, too. */
static int file_seal(const struct cache *c, int dir, int i, int fd,
		     json_t *list, struct err *e)
{
	uint8_t sha[32];
	char hex[65];
	struct stat st;
	int rc = 0;

	if (i == FILE_TOUCHED && !fstat(fd, &st) && !st.st_size)
		return unlinkat(dir, files[i].name, 0)
			       ? fail(e, -errno, "removing", files[i].name)
			       : 0;
	if (files[i].kind == FILE_HASH_SPARSE)
		rc = sparse_dig(fd, NULL);
	if (!rc && (fchmod(fd, 0444) || fsync(fd) || fstat(fd, &st)))
		rc = -errno;
	if (!rc)
		rc = file_hash(c->hashes, files[i].kind, fd, true, sha);
	if (rc)
		return fail(e, rc, "sealing", files[i].name);
	hash_to_hex(sha, hex);
	rc = json_object_set_new(
		list, files[i].name,
		json_pack("{s:I,s:I,s:s}", "bytes", (json_int_t)st.st_size,
			  "allocated_bytes", (json_int_t)sparse_allocated(fd),
			  "sha256", hex));
	return rc ? fail(e, -ENOMEM, "sealing", files[i].name) : 0;
}

static int meta_write(int dir, const char *key, json_t *list,
		      const char *inputs, int64_t seconds, struct err *e)
{
	_cleanup_fd_ int fd =
		openat(dir, "meta.json",
		       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	json_t *meta = json_pack(
		"{s:i,s:s,s:I,s:I,s:O,s:s}", "version", META_VERSION, "key",
		key, "made_at_ms", (json_int_t)clock_file_ms(), "seconds",
		(json_int_t)seconds, "files", list, "inputs", inputs);
	int rc = 0;

	if (fd < 0 || !meta || json_dumpfd(meta, fd, JSON_INDENT(1)) ||
	    fsync(fd))
		rc = fail(e, errno ? -errno : -EIO, "writing", "meta.json");
	json_decref(meta);
	return rc;
}

int cache_making_commit(const struct cache *c, const char *key,
			struct cache_making *m, const char *inputs,
			int64_t seconds, struct err *e)
{
	int fds[FILE_N] = {m->state_fd, m->mem_fd, m->disk_fd, m->touched_fd};
	char tmp[NAME_BYTES], trash[NAME_BYTES];
	_cleanup_fd_ int snapshots = -1;
	json_t *list = json_object();
	int rc = list ? 0 : fail(e, -ENOMEM, "sealing", key);

	for (int i = 0; !rc && i < FILE_N; i++)
		rc = file_seal(c, m->dir_fd, i, fds[i], list, e);
	fault_point(FAULT_MAKE_SEALED);
	if (!rc)
		rc = meta_write(m->dir_fd, key, list, inputs, seconds, e);
	json_decref(list);
	if (!rc && fsync(m->dir_fd))
		rc = fail(e, -errno, "fsync", key);
	if (!rc)
		rc = sub_folder(c, "snapshots", &snapshots, e);
	if (rc)
		return rc;
	fault_point(FAULT_MAKE_SYNCED);
	new_name(key, tmp);
	snprintf(trash, sizeof(trash), ".old-%s", key);
	cache_folder_remove(snapshots, trash);
	if (renameat(snapshots, key, snapshots, trash) && errno != ENOENT)
		rc = fail(e, -errno, "moving away", key);
	fault_point(FAULT_MAKE_MOVED);
	if (!rc && renameat(snapshots, tmp, snapshots, key))
		rc = fail(e, -errno, "naming", key);
	fault_point(FAULT_MAKE_NAMED);
	if (!rc && fsync(snapshots))
		rc = fail(e, -errno, "fsync", "snapshots");
	cache_folder_remove(snapshots, trash);
	return rc;
}

void cache_making_end(const struct cache *c, const char *key,
		      struct cache_making *m)
{
	char path[NAME_BYTES], name[NAME_BYTES - 10];

	fd_close(&m->dir_fd);
	fd_close(&m->state_fd);
	fd_close(&m->mem_fd);
	fd_close(&m->disk_fd);
	fd_close(&m->touched_fd);
	snprintf(name, sizeof(name), ".new-%s", key);
	snprintf(path, sizeof(path), "snapshots/%s", name);
	cache_folder_remove(c->dir_fd, path);
}

uint64_t cache_free_bytes(const struct cache *c)
{
	struct statvfs v;

	return fstatvfs(c->dir_fd, &v) ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
}
