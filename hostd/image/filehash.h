/*
 * Hashes of files that do not change, remembered between starts.
 *
 * A file is known by its stamp: device, inode, size, mtime and ctime in
 * nanoseconds.  Its hash is kept in <cache>/hashes under that stamp; another
 * stamp, and the file is read again.  ctime cannot be set back by anyone but
 * root moving the clock; `verify` reads the file in any case.
 */
#ifndef HUTCHD_FILEHASH_H
#define HUTCHD_FILEHASH_H

#include <stdbool.h>
#include <stdint.h>

struct file_hashes {
	int dir_fd; /* -1 = remember nothing */
};

int file_hashes_open(struct file_hashes *h, int cache_fd);
void file_hashes_close(struct file_hashes *h);

enum file_hash_kind {
	FILE_HASH_PLAIN = 'p',	/* SHA-256 of the bytes */
	FILE_HASH_SPARSE = 's', /* sparse_hash */
};

/*
 * Any thread.  0 or a negative errno.  is_verify: read it, whatever is
 * remembered.
 */
int file_hash(const struct file_hashes *h, enum file_hash_kind kind, int fd,
	      bool is_verify, uint8_t ret[32]);

/* What is remembered of a file that shall be removed. */
void file_hash_forget(const struct file_hashes *h, enum file_hash_kind kind,
		      int fd);

/* 64 lower-case digits and NUL; and back: 0 or -EINVAL. */
void hash_to_hex(const uint8_t hash[32], char ret[65]);
int hash_from_hex(const char *hex, uint8_t ret[32]);

#endif
