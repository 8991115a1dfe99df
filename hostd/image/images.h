/*
 * What `make images` left: <images>/images.json names each file with its
 * SHA-256 and size: "kernel", "python", "node", "shell".
 * A relative path is relative to that folder.
 */
#ifndef HUTCHD_IMAGES_H
#define HUTCHD_IMAGES_H

#include "err.h"
#include "filehash.h"
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#define IMAGES_MAX 16

struct image {
	char name[64];
	char path[PATH_MAX];
	uint8_t sha256[32];
	uint64_t bytes;
};

struct images {
	struct image list[IMAGES_MAX];
	unsigned n;
};

/* Any thread.  -1 with `e` that says what to do. */
int images_load(struct images *ret, const char *dir, struct err *e);
/*
 * The same, read and parsed only when the file is another than the last time
 * (device, inode, size, times), for who asks often; zeroed at first.  *ret is
 * borrowed until the next call.
 */
struct images_cache {
	struct images im;
	struct stat stamp;
	bool is_valid;
};
int images_cached(struct images_cache *c, const char *dir,
		  const struct images **ret, struct err *e);
const struct image *images_find(const struct images *im, const char *name);

/*
 * Open for reading and check size and hash (remembered by stamp).
 * *ret_fd is the caller's.
 */
int image_open(const struct image *im, const struct file_hashes *h,
	       bool is_verify, int *ret_fd, struct err *e);

#endif
