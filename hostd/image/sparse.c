/* Sparse files; see sparse.h. */
#include "sparse.h"
#include "bytes.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (256u << 10)

/* The next run of data at or after `at`: 1, or 0 when only holes follow. */
static int data_next(int fd, off_t at, off_t *ret_start, off_t *ret_end)
{
	off_t start = lseek(fd, at, SEEK_DATA), end;

	if (start < 0)
		return errno == ENXIO ? 0 : -errno;
	end = lseek(fd, start, SEEK_HOLE);
	if (end < 0)
		return -errno;
	*ret_start = start;
	*ret_end = end;
	return 1;
}

static int copy_bytes(int src, int dst, off_t at, off_t end)
{
	uint8_t buf[64 << 10];

	while (at < end) {
		size_t n = (size_t)(end - at) < sizeof(buf) ? (size_t)(end - at)
							    : sizeof(buf);
		int rc = fd_pread_all(src, buf, n, at);

		if (!rc)
			rc = fd_pwrite_all(dst, buf, n, at);
		if (rc)
			return rc;
		at += (off_t)n;
	}
	return 0;
}

static int copy_range(int src, int dst, off_t at, off_t end)
{
	while (at < end) {
		off_t in = at, out = at;
		ssize_t n = copy_file_range(src, &in, dst, &out,
					    (size_t)(end - at), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EXDEV || errno == EINVAL ||
			      errno == EOPNOTSUPP || errno == ENOSYS))
			return copy_bytes(src, dst, at, end);
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA; /* the file shrank under us */
		at += n;
	}
	return 0;
}

int sparse_copy(int src, int dst, uint64_t *ret_copied)
{
	off_t at = 0, start, end;
	uint64_t copied = 0;
	struct stat st;
	int rc;

	if (fstat(src, &st))
		return -errno;
	if (ioctl(dst, FICLONE, src) == 0)
		goto done;
	if (ftruncate(dst, st.st_size))
		return -errno;
	while ((rc = data_next(src, at, &start, &end)) > 0) {
		rc = copy_range(src, dst, start, end);
		if (rc)
			return rc;
		copied += (uint64_t)(end - start);
		at = end;
	}
	if (rc < 0)
		return rc;
done:
	if (ret_copied)
		*ret_copied = copied;
	return 0;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* `fn` on every block of [start, end) that holds data. */
static int blocks_walk(int fd, off_t start, off_t end, uint8_t *buf,
		       int (*fn)(void *ctx, off_t at, const uint8_t *p,
				 size_t n),
		       void *ctx)
{
	for (off_t at = start; at < end;) {
		size_t n = (size_t)(end - at) < CHUNK_BYTES ? (size_t)(end - at)
							    : CHUNK_BYTES;
		int rc = fd_pread_all(fd, buf, n, at);

		for (size_t i = 0; !rc && i < n; i += SPARSE_BLOCK_BYTES) {
			size_t len = n - i < SPARSE_BLOCK_BYTES
					     ? n - i
					     : SPARSE_BLOCK_BYTES;

			rc = fn(ctx, at + (off_t)i, buf + i, len);
		}
		if (rc)
			return rc;
		at += (off_t)n;
	}
	return 0;
}

static int file_walk(int fd,
		     int (*fn)(void *ctx, off_t at, const uint8_t *p, size_t n),
		     void *ctx)
{
	uint8_t *buf = malloc(CHUNK_BYTES);
	off_t at = 0, start, end;
	int rc;

	if (!buf)
		return -ENOMEM;
	while ((rc = data_next(fd, at, &start, &end)) > 0) {
		start -= start % SPARSE_BLOCK_BYTES;
		rc = blocks_walk(fd, start, end, buf, fn, ctx);
		if (rc)
			break;
		at = end;
	}
	free(buf);
	return rc;
}

struct dig {
	int fd;
	off_t start, end; /* run of zero blocks not yet punched */
	uint64_t freed;
};

static int dig_punch(struct dig *d)
{
	if (d->end > d->start &&
	    fallocate(d->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      d->start, d->end - d->start))
		return -errno;
	d->freed += (uint64_t)(d->end - d->start);
	d->start = d->end = 0;
	return 0;
}

static int dig_block(void *ctx, off_t at, const uint8_t *p, size_t n)
{
	struct dig *d = ctx;
	int rc = 0;

	if (!is_zero(p, n))
		return 0;
	if (d->end != at) {
		rc = dig_punch(d);
		d->start = at;
	}
	d->end = at + (off_t)n;
	return rc;
}

int sparse_dig(int fd, uint64_t *ret_freed)
{
	struct dig d = {.fd = fd};
	int rc = file_walk(fd, dig_block, &d);

	if (!rc)
		rc = dig_punch(&d);
	if (!rc && ret_freed)
		*ret_freed = d.freed;
	return rc;
}

static int hash_block(void *ctx, off_t at, const uint8_t *p, size_t n)
{
	uint8_t off[8];

	if (is_zero(p, n))
		return 0;
	le64_store(off, (uint64_t)at);
	if (!EVP_DigestUpdate(ctx, off, sizeof(off)) ||
	    !EVP_DigestUpdate(ctx, p, n))
		return -EIO;
	return 0;
}

int sparse_hash(int fd, uint8_t ret[32])
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	uint8_t size[8];
	struct stat st;
	int rc = -EIO;

	if (!md)
		return -ENOMEM;
	if (fstat(fd, &st)) {
		rc = -errno;
		goto out;
	}
	le64_store(size, (uint64_t)st.st_size);
	if (!EVP_DigestInit_ex(md, EVP_sha256(), NULL) ||
	    !EVP_DigestUpdate(md, size, sizeof(size)))
		goto out;
	rc = file_walk(fd, hash_block, md);
	if (!rc && !EVP_DigestFinal_ex(md, ret, NULL))
		rc = -EIO;
out:
	EVP_MD_CTX_free(md);
	return rc;
}

uint64_t sparse_allocated(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}
