/* The images of `make images`; see images.h. */
#include "images.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <time.h>

#define IMAGES_SETTLED_S 2

static int image_read(struct image *im, const char *dir, const char *name,
		      json_t *v)
{
	const char *path = json_string_value(json_object_get(v, "path"));
	const char *sha = json_string_value(json_object_get(v, "sha256"));
	json_t *bytes = json_object_get(v, "bytes");
	int n;

	if (!path || !sha || !json_is_integer(bytes) ||
	    hash_from_hex(sha, im->sha256) || strlen(name) >= sizeof(im->name))
		return -EINVAL;
	memcpy(im->name, name, strlen(name) + 1);
	im->bytes = (uint64_t)json_integer_value(bytes);
	if (path[0] == '/')
		n = snprintf(im->path, sizeof(im->path), "%s", path);
	else
		n = snprintf(im->path, sizeof(im->path), "%s/%s", dir, path);
	return n < (int)sizeof(im->path) ? 0 : -ENAMETOOLONG;
}

int images_load(struct images *ret, const char *dir, struct err *e)
{
	char path[PATH_MAX];
	json_error_t je;
	const char *name;
	json_t *root, *v;
	int rc = 0;

	ret->n = 0;
	snprintf(path, sizeof(path), "%s/images.json", dir);
	root = json_load_file(path, JSON_REJECT_DUPLICATES, &je);
	if (!root)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot read %s: %s (run `make images`)", path,
			       je.text);
	json_object_foreach(root, name, v)
	{
		if (ret->n == IMAGES_MAX ||
		    image_read(&ret->list[ret->n], dir, name, v)) {
			rc = err_set(e, ERR_INTERNAL, NULL,
				     "%s: entry '%.64s' is not {path, sha256, "
				     "bytes} or one too many (run `make "
				     "images`)",
				     path, name);
			break;
		}
		ret->n++;
	}
	if (!rc && !json_is_object(root))
		rc = err_set(e, ERR_INTERNAL, NULL,
			     "%s is not an object (run `make images`)", path);
	json_decref(root);
	return rc;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* A file's times have steps: one that was written just now may be written
 * again within the same step, so it is not remembered yet. */
static bool is_settled(const struct stat *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec - st->st_ctim.tv_sec >= IMAGES_SETTLED_S;
}

int images_cached(struct images_cache *c, const char *dir,
		  const struct images **ret, struct err *e)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/images.json", dir);
	/* Looked at before it is read: what is read is that or newer. */
	if (stat(path, &st))
		memset(&st, 0, sizeof(st));
	if (!c->is_valid || !is_same_file(&st, &c->stamp)) {
		c->is_valid = false;
		if (images_load(&c->im, dir, e))
			return -1;
		c->stamp = st;
		c->is_valid = is_settled(&st);
	}
	*ret = &c->im;
	return 0;
}

const struct image *images_find(const struct images *im, const char *name)
{
	for (unsigned i = 0; i < im->n; i++)
		if (strcmp(im->list[i].name, name) == 0)
			return &im->list[i];
	return NULL;
}

int image_open(const struct image *im, const struct file_hashes *h,
	       bool is_verify, int *ret_fd, struct err *e)
{
	_cleanup_fd_ int fd = open(im->path, O_RDONLY | O_CLOEXEC);
	uint8_t sha[32];
	struct stat st;
	int rc;

	if (fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "cannot open %s: %s",
			       im->path, strerror(errno));
	if (fstat(fd, &st) || (uint64_t)st.st_size != im->bytes)
		return err_set(e, ERR_INTERNAL, NULL,
			       "%s has %lld bytes, images.json says %llu: run "
			       "`make images`",
			       im->path, (long long)st.st_size,
			       (unsigned long long)im->bytes);
	rc = file_hash(h, FILE_HASH_PLAIN, fd, is_verify, sha);
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL, "cannot hash %s: %s",
			       im->path, strerror(-rc));
	if (memcmp(sha, im->sha256, sizeof(sha)) != 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "%s is damaged (its SHA-256 is not that of "
			       "images.json): run `make images`",
			       im->path);
	*ret_fd = fd_take(&fd);
	return 0;
}
