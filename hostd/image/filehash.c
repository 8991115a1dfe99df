/* Remembered file hashes; see filehash.h. */
#include "filehash.h"
#include "fd.h"
#include "sparse.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES (256u << 10)
/* Old stamps are forgotten all at once: reading files again is cheap. */
#define STAMPS_MAX	 4096
#define STAMP_NAME_BYTES 160
#define HASH_TRIES_MAX	 3

int file_hashes_open(struct file_hashes *h, int cache_fd)
{
	unsigned n = 0;
	struct dirent *de;
	DIR *dir;
	int fd;

	h->dir_fd = -1;
	if (mkdirat(cache_fd, "hashes", 0755) && errno != EEXIST)
		return -errno;
	h->dir_fd = openat(cache_fd, "hashes",
			   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (h->dir_fd < 0)
		return -errno;
	fd = fcntl(h->dir_fd, F_DUPFD_CLOEXEC, 0);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	rewinddir(dir);
	while (n > STAMPS_MAX && (de = readdir(dir)))
		if (de->d_name[0] != '.')
			unlinkat(h->dir_fd, de->d_name, 0);
	closedir(dir);
	return 0;
}

void file_hashes_close(struct file_hashes *h)
{
	fd_close(&h->dir_fd);
}

void hash_to_hex(const uint8_t hash[32], char ret[65])
{
	for (int i = 0; i < 32; i++)
		snprintf(ret + 2 * i, 3, "%02x", hash[i]);
}

int hash_from_hex(const char *hex, uint8_t ret[32])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t out[32];

	if (strlen(hex) != 64)
		return -EINVAL;
	for (int i = 0; i < 64; i++) {
		const char *p = strchr(digits, hex[i]);

		if (!p)
			return -EINVAL;
		out[i / 2] = (uint8_t)(out[i / 2] << 4 | (p - digits));
	}
	memcpy(ret, out, sizeof(out));
	return 0;
}

static int plain_hash(int fd, uint8_t ret[32])
{
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	uint8_t *buf = malloc(READ_BYTES);
	int rc = -EIO;
	off_t at = 0;

	if (!md || !buf) {
		rc = -ENOMEM;
		goto out;
	}
	if (!EVP_DigestInit_ex(md, EVP_sha256(), NULL))
		goto out;
	for (;;) {
		ssize_t n = pread(fd, buf, READ_BYTES, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = -errno;
		if (n <= 0)
			break;
		if (!EVP_DigestUpdate(md, buf, (size_t)n))
			goto out;
		at += n;
	}
	if (rc == -EIO)
		rc = EVP_DigestFinal_ex(md, ret, NULL) ? 0 : -EIO;
out:
	free(buf);
	EVP_MD_CTX_free(md);
	return rc;
}

static int stamp_name(int fd, enum file_hash_kind kind,
		      char name[STAMP_NAME_BYTES])
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	snprintf(name, STAMP_NAME_BYTES,
		 "%c-%llx-%llx-%llx-%llx.%09lx-%llx.%09lx", kind,
		 (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
		 (unsigned long long)st.st_size,
		 (unsigned long long)st.st_mtim.tv_sec,
		 (unsigned long)st.st_mtim.tv_nsec,
		 (unsigned long long)st.st_ctim.tv_sec,
		 (unsigned long)st.st_ctim.tv_nsec);
	return 0;
}

static int recall(int dir_fd, const char *name, uint8_t ret[32])
{
	_cleanup_fd_ int fd =
		openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char hex[65];
	int rc;

	if (fd < 0)
		return -errno;
	rc = fd_read_all(fd, hex, 64);
	if (rc)
		return rc;
	hex[64] = '\0';
	return hash_from_hex(hex, ret);
}

/* Written aside and renamed, so that a reader never sees half a hash.  That
 * it cannot be remembered is no error. */
static void remember(int dir_fd, const char *name, const uint8_t hash[32])
{
	static atomic_uint serial;
	char hex[65], tmp[64];
	int fd;

	snprintf(tmp, sizeof(tmp), ".new-%d-%u", (int)getpid(),
		 atomic_fetch_add(&serial, 1));
	hash_to_hex(hash, hex);
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return;
	if (fd_write_all(fd, hex, 64) || renameat(dir_fd, tmp, dir_fd, name))
		unlinkat(dir_fd, tmp, 0);
	fd_close(&fd);
}

int file_hash(const struct file_hashes *h, enum file_hash_kind kind, int fd,
	      bool is_verify, uint8_t ret[32])
{
	char before[STAMP_NAME_BYTES], after[STAMP_NAME_BYTES];

	for (int i = 0; i < HASH_TRIES_MAX; i++) {
		int rc = stamp_name(fd, kind, before);

		if (rc)
			return rc;
		if (!is_verify && h->dir_fd >= 0 &&
		    !recall(h->dir_fd, before, ret))
			return 0;
		rc = kind == FILE_HASH_SPARSE ? sparse_hash(fd, ret)
					      : plain_hash(fd, ret);
		if (rc)
			return rc;
		/* Changed while it was read: the hash belongs to no stamp. */
		if (stamp_name(fd, kind, after) || strcmp(before, after) != 0)
			continue;
		if (h->dir_fd >= 0)
			remember(h->dir_fd, before, ret);
		return 0;
	}
	return -EBUSY;
}

void file_hash_forget(const struct file_hashes *h, enum file_hash_kind kind,
		      int fd)
{
	char name[STAMP_NAME_BYTES];

	if (h->dir_fd >= 0 && !stamp_name(fd, kind, name))
		unlinkat(h->dir_fd, name, 0);
}
