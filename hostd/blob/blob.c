/*
 * The folder of bytes by hash; see blob.h.  Writing is in blob_write.c.
 */
#include "../image/filehash.h"
#include "blob_priv.h"
#include "fault.h"
#include "fd.h"
#include "log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- life --------------------------------------------------------------- */

void blobs_unref(struct blobs *b)
{
	if (--b->n_refs)
		return;
	fd_close(&b->dir_fd);
	free(b->found);
	free(b);
}

static int by_hash(const void *a, const void *b)
{
	return memcmp(a, b, HASH_BYTES);
}

static int found_add(struct blobs *b, const char *name)
{
	struct blob_found one = {0};
	struct stat st;

	if (strlen(name) != 2 * HASH_BYTES || hash_from_hex(name, one.sha256) ||
	    fstatat(b->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISREG(st.st_mode))
		return 0; /* nothing of ours */
	if (b->n_found == b->cap_found) {
		size_t cap = b->cap_found ? 2 * b->cap_found : 64;
		void *more = realloc(b->found, cap * sizeof(*b->found));

		if (!more)
			return -ENOMEM;
		b->found = more;
		b->cap_found = cap;
	}
	one.bytes = (uint64_t)st.st_size;
	b->found[b->n_found++] = one;
	b->bytes += one.bytes;
	b->count++;
	return 0;
}

static int look(struct blobs *b)
{
	int fd = openat(b->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		fd_close(&fd);
		return rc;
	}
	while (!rc && (d = readdir(dir)))
		rc = found_add(b, d->d_name);
	closedir(dir);
	if (b->n_found)
		qsort(b->found, b->n_found, sizeof(*b->found), by_hash);
	return rc;
}

int blobs_open(struct blobs **ret, struct loop *loop, const char *state_dir,
	       struct err *e)
{
	struct blobs *b = calloc(1, sizeof(*b));
	_cleanup_fd_ int state = -1;
	int rc = 0;

	if (!b)
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	b->n_refs = 1;
	b->loop = loop;
	b->dir_fd = -1;
	list_init(&b->writers);
	state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (state < 0 || (mkdirat(state, BLOB_FOLDER, 0700) && errno != EEXIST))
		rc = -errno;
	if (!rc) {
		b->dir_fd =
			openat(state, BLOB_FOLDER,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		/* The folder itself must outlive a power cut. */
		rc = b->dir_fd < 0 || fsync(state) ? -errno : look(b);
	}
	if (rc) {
		blobs_unref(b);
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot use the folder %s/" BLOB_FOLDER ": %s",
			       state_dir, strerror(-rc));
	}
	*ret = b;
	return 0;
}

void blobs_close(struct blobs *b)
{
	if (!b)
		return;
	b->orphan = NULL;
	blobs_unref(b);
}

void blobs_on_orphan(struct blobs *b,
		     void (*fn)(void *ctx, const uint8_t sha256[HASH_BYTES]),
		     void *ctx)
{
	b->orphan = fn;
	b->orphan_ctx = ctx;
}

uint64_t blobs_bytes(const struct blobs *b)
{
	return b->bytes;
}

uint64_t blobs_count(const struct blobs *b)
{
	return b->count;
}

/* ---- sweeping ----------------------------------------------------------- */

int blobs_mark(struct blobs *b, const uint8_t sha256[HASH_BYTES])
{
	struct blob_found *f = b->n_found
				       ? bsearch(sha256, b->found, b->n_found,
						 sizeof(*b->found), by_hash)
				       : NULL;

	if (!f)
		return -ENOENT;
	f->is_marked = true;
	return 0;
}

size_t blobs_sweep(struct blobs *b)
{
	size_t n = 0;

	for (size_t i = 0; i < b->n_found; i++) {
		if (b->found[i].is_marked)
			continue;
		blob_remove(b, b->found[i].sha256);
		n++;
	}
	free(b->found);
	b->found = NULL;
	b->n_found = b->cap_found = 0;
	return n;
}

/* ---- one ---------------------------------------------------------------- */

int blob_open(const struct blobs *b, const uint8_t sha256[HASH_BYTES])
{
	char name[2 * HASH_BYTES + 1];
	int fd;

	hash_to_hex(sha256, name);
	fd = openat(b->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool is_pinned(const struct blobs *b, const uint8_t sha256[HASH_BYTES])
{
	for (struct list *n = b->writers.next; n != &b->writers; n = n->next) {
		const struct blob_writer *w =
			container_of(n, struct blob_writer, node);

		if (w->is_pinned && !memcmp(w->sha256, sha256, HASH_BYTES))
			return true;
	}
	return false;
}

static void last_close(void *arg)
{
	int fd = (int)(intptr_t)arg;

	fd_close(&fd);
}

static void closed(void *arg)
{
	(void)arg;
}

void blob_remove(struct blobs *b, const uint8_t sha256[HASH_BYTES])
{
	char name[2 * HASH_BYTES + 1];
	struct stat st;
	int fd;

	if (is_pinned(b, sha256))
		return;
	fd = blob_open(b, sha256);
	if (fd < 0)
		return;
	hash_to_hex(sha256, name);
	if (!fstat(fd, &st) && !unlinkat(b->dir_fd, name, 0)) {
		b->bytes -= (uint64_t)st.st_size;
		b->count--;
		fault_point(FAULT_FILE_REMOVED);
	}
	/* To free a gigabyte takes a while: not here. */
	if (loop_work(b->loop, last_close, closed, (void *)(intptr_t)fd))
		fd_close(&fd);
}
