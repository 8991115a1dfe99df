/* A VFS for tests; see test_vfs.h. */
#include "test_vfs.h"
#include "bytes.h"
#include "list.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_vfs test_vfs;

struct pending {
	struct list node;
	sqlite3_int64 at;
	bool is_truncate;
	struct bytes data;
};

/* One file's durable content and what waits for a sync. */
struct shadow {
	struct list node;
	char name[64]; /* without its folder */
	struct bytes synced;
	struct list pending;
};

struct shim_file {
	sqlite3_file base;
	struct shadow *shadow;
	sqlite3_file *real; /* behind this struct */
};

static sqlite3_vfs *real_vfs;
static struct list shadows = {&shadows, &shadows};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void test_vfs_calm(void)
{
	atomic_store(&test_vfs.fail_in, 0);
	atomic_store(&test_vfs.cut_in, 0);
	atomic_store(&test_vfs.is_lasting, false);
	atomic_store(&test_vfs.is_lying, false);
}

/* Before each write, sync and truncate: a fault's code or 0. */
static int step(void)
{
	atomic_fetch_add(&test_vfs.n_calls, 1);
	if (atomic_load(&test_vfs.cut_in) > 0 &&
	    atomic_fetch_sub(&test_vfs.cut_in, 1) == 1)
		test_vfs.cut(test_vfs.ctx);
	if (atomic_load(&test_vfs.fail_in) > 0) {
		long left = atomic_fetch_sub(&test_vfs.fail_in, 1);

		if (left > 1)
			return 0;
		if (atomic_load(&test_vfs.is_lasting))
			atomic_store(&test_vfs.fail_in, 1);
		atomic_fetch_add(&test_vfs.n_failed, 1);
		return atomic_load(&test_vfs.code);
	}
	return 0;
}

/* ---- shadows ---------------------------------------------------------------
 */

static void pending_free(struct pending *p)
{
	list_remove(&p->node);
	bytes_finish(&p->data);
	free(p);
}

static void apply(struct bytes *to, const struct pending *p)
{
	size_t at = (size_t)p->at, end = at + p->data.len;

	if (p->is_truncate) {
		if (to->len > at)
			to->len = at;
		return;
	}
	if (end > to->len) {
		if (bytes_reserve(to, end - to->len))
			abort();
		memset(to->data + to->len, 0, end - to->len);
		to->len = end;
	}
	if (p->data.len)
		memcpy(to->data + at, p->data.data, p->data.len);
}

static void remember(struct shadow *s, sqlite3_int64 at, const void *data,
		     size_t len, bool is_truncate)
{
	struct pending *p = calloc(1, sizeof(*p));

	if (!p || bytes_append(&p->data, data, len))
		abort();
	p->at = at;
	p->is_truncate = is_truncate;
	pthread_mutex_lock(&lock);
	list_append(&s->pending, &p->node);
	pthread_mutex_unlock(&lock);
}

static void synced(struct shadow *s)
{
	pthread_mutex_lock(&lock);
	while (!list_is_empty(&s->pending)) {
		struct pending *p =
			container_of(s->pending.next, struct pending, node);

		apply(&s->synced, p);
		pending_free(p);
	}
	pthread_mutex_unlock(&lock);
}

static void shadow_drop(struct shadow *s)
{
	while (!list_is_empty(&s->pending))
		pending_free(
			container_of(s->pending.next, struct pending, node));
	bytes_finish(&s->synced);
	list_remove(&s->node);
	free(s);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static struct shadow *shadow_find(const char *name)
{
	for (struct list *n = shadows.next; n != &shadows; n = n->next) {
		struct shadow *s = container_of(n, struct shadow, node);

		if (!strcmp(s->name, name))
			return s;
	}
	return NULL;
}

/* A file as it is found at open counts as durable. */
static struct shadow *shadow_open(const char *path, sqlite3_file *real)
{
	struct shadow *s = shadow_find(base_name(path));
	sqlite3_int64 size = 0;

	if (s)
		shadow_drop(s);
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	snprintf(s->name, sizeof(s->name), "%s", base_name(path));
	list_init(&s->pending);
	real->pMethods->xFileSize(real, &size);
	if (size) {
		if (bytes_reserve(&s->synced, (size_t)size))
			abort();
		real->pMethods->xRead(real, s->synced.data, (int)size, 0);
		s->synced.len = (size_t)size;
	}
	list_append(&shadows, &s->node);
	return s;
}

void test_vfs_dump(const char *dir, unsigned *seed)
{
	pthread_mutex_lock(&lock);
	for (struct list *n = shadows.next; n != &shadows; n = n->next) {
		struct shadow *s = container_of(n, struct shadow, node);
		struct bytes left = {0};
		const struct pending *kept[256];
		size_t n_kept = 0;
		char path[256];
		FILE *f;

		if (bytes_append(&left, s->synced.data, s->synced.len))
			abort();
		for (struct list *m = s->pending.next; m != &s->pending;
		     m = m->next)
			if (rand_r(seed) % 2 && n_kept < 256)
				kept[n_kept++] =
					container_of(m, struct pending, node);
		for (size_t i = n_kept; i > 1; i--) {
			size_t k = (size_t)rand_r(seed) % i;
			const struct pending *t = kept[k];

			kept[k] = kept[i - 1];
			kept[i - 1] = t;
		}
		for (size_t i = 0; i < n_kept; i++)
			apply(&left, kept[i]);
		snprintf(path, sizeof(path), "%s/%s", dir, s->name);
		f = fopen(path, "we");
		if (!f || fwrite(left.data, 1, left.len, f) != left.len ||
		    fclose(f))
			abort();
		bytes_finish(&left);
	}
	pthread_mutex_unlock(&lock);
}

/* ---- file methods ----------------------------------------------------------
 */

static sqlite3_file *real_of(sqlite3_file *f)
{
	return ((struct shim_file *)f)->real;
}

static struct shadow *shadow_of(sqlite3_file *f)
{
	return ((struct shim_file *)f)->shadow;
}

static int shim_close(sqlite3_file *f)
{
	return real_of(f)->pMethods->xClose(real_of(f));
}

static int shim_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
	return real_of(f)->pMethods->xRead(real_of(f), p, n, at);
}

static int shim_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
	int rc = step();

	if (rc)
		return rc;
	remember(shadow_of(f), at, p, (size_t)n, false);
	return real_of(f)->pMethods->xWrite(real_of(f), p, n, at);
}

static int shim_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	int rc = step();

	if (rc)
		return rc == SQLITE_IOERR_WRITE ? SQLITE_IOERR_TRUNCATE : rc;
	remember(shadow_of(f), size, "", 0, true);
	return real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int shim_sync(sqlite3_file *f, int flags)
{
	int rc = step();

	(void)flags; /* no need to reach a platter in a test */
	if (rc)
		return rc == SQLITE_IOERR_WRITE ? SQLITE_IOERR_FSYNC : rc;
	if (!atomic_load(&test_vfs.is_lying))
		synced(shadow_of(f));
	return SQLITE_OK;
}

static int shim_size(sqlite3_file *f, sqlite3_int64 *size)
{
	return real_of(f)->pMethods->xFileSize(real_of(f), size);
}

static int shim_lock(sqlite3_file *f, int level)
{
	return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int shim_unlock(sqlite3_file *f, int level)
{
	return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int shim_reserved(sqlite3_file *f, int *ret)
{
	return real_of(f)->pMethods->xCheckReservedLock(real_of(f), ret);
}

static int shim_control(sqlite3_file *f, int op, void *arg)
{
	return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int shim_sector(sqlite3_file *f)
{
	return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int shim_traits(sqlite3_file *f)
{
	return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

/* Version 1: no shared memory, as under locking_mode = EXCLUSIVE. */
static const sqlite3_io_methods shim_methods = {
	.iVersion = 1,
	.xClose = shim_close,
	.xRead = shim_read,
	.xWrite = shim_write,
	.xTruncate = shim_truncate,
	.xSync = shim_sync,
	.xFileSize = shim_size,
	.xLock = shim_lock,
	.xUnlock = shim_unlock,
	.xCheckReservedLock = shim_reserved,
	.xFileControl = shim_control,
	.xSectorSize = shim_sector,
	.xDeviceCharacteristics = shim_traits,
};

/* ---- the VFS ---------------------------------------------------------------
 */

static int shim_open(sqlite3_vfs *v, const char *path, sqlite3_file *f,
		     int flags, int *ret_flags)
{
	struct shim_file *s = (struct shim_file *)f;
	int rc;

	(void)v;
	memset(s, 0, sizeof(*s));
	s->real = (sqlite3_file *)(s + 1);
	rc = real_vfs->xOpen(real_vfs, path, s->real, flags, ret_flags);
	if (rc)
		return rc;
	if (path)
		s->shadow = shadow_open(path, s->real);
	f->pMethods = &shim_methods;
	return SQLITE_OK;
}

static int shim_delete(sqlite3_vfs *v, const char *path, int sync_dir)
{
	struct shadow *s = shadow_find(base_name(path));

	(void)v;
	if (s)
		shadow_drop(s);
	return real_vfs->xDelete(real_vfs, path, sync_dir);
}

void test_vfs_install(void)
{
	static sqlite3_vfs shim;

	real_vfs = sqlite3_vfs_find(NULL);
	shim = *real_vfs; /* all else is the real one's, with its own data */
	shim.zName = "test";
	shim.szOsFile = (int)sizeof(struct shim_file) + real_vfs->szOsFile;
	shim.xOpen = shim_open;
	shim.xDelete = shim_delete;
	sqlite3_vfs_register(&shim, 1);
}
