/* The images of `make images`; see images.h. */
#include "images.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>

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
