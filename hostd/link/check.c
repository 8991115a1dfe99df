/* Files, key and cache entry of a template; see check.h. */
#include "check.h"
#include "../image/images.h"
#include "fd.h"
#include "link_priv.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void check_init(struct check *c, struct link *l, const struct shape *s)
{
	*c = (struct check){
		.cache = {l->cache_fd, &l->hashes},
		.images_dir = l->images_dir,
		.vmm_path = l->vmm_path,
		.init_path = l->init_path,
		.inputs = {.is_soft = l->is_soft,
			   .cmdline = LINK_CMDLINE,
			   .runner = base_runner(s->base),
			   .has_preload = shape_has_preload(s),
			   .shape = *s},
		.kernel_fd = -1,
		.init_fd = -1,
		.root_fd = -1,
		.files = SNAPSHOT_FILES_NONE,
	};
}

void check_finish(struct check *c)
{
	fd_close(&c->kernel_fd);
	fd_close(&c->init_fd);
	fd_close(&c->root_fd);
	snapshot_files_close(&c->files);
	bytes_finish(&c->manifest);
}

static int plain_file_hash(struct check *c, const char *path, int *ret_fd,
			   uint8_t hash[HASH_BYTES])
{
	int rc;

	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*ret_fd < 0)
		return err_set(&c->e, ERR_INTERNAL, NULL, "cannot open %s: %s",
			       path, strerror(errno));
	rc = file_hash(c->cache.hashes, FILE_HASH_PLAIN, *ret_fd, c->is_verify,
		       hash);
	return rc ? err_set(&c->e, ERR_INTERNAL, NULL, "cannot hash %s: %s",
			    path, strerror(-rc))
		  : 0;
}

static int image_by_name(struct check *c, const struct images *im,
			 const char *name, int *ret_fd,
			 uint8_t hash[HASH_BYTES])
{
	const struct image *i = images_find(im, name);

	if (!i)
		return err_set(&c->e, ERR_INTERNAL, NULL,
			       "%s/images.json has no '%s': run `make images`",
			       c->images_dir, name);
	memcpy(hash, i->sha256, HASH_BYTES);
	return image_open(i, c->cache.hashes, c->is_verify, ret_fd, &c->e);
}

/* A kernel of one's own is put at <images>/vmlinux without a list entry. */
static int kernel_open(struct check *c, const struct images *im)
{
	char path[PATH_MAX];

	if (images_find(im, "kernel"))
		return image_by_name(c, im, "kernel", &c->kernel_fd,
				     c->inputs.kernel);
	snprintf(path, sizeof(path), "%s/vmlinux", c->images_dir);
	return plain_file_hash(c, path, &c->kernel_fd, c->inputs.kernel);
}

static int inputs_open(struct check *c)
{
	struct images *im = calloc(1, sizeof(*im));
	_cleanup_fd_ int vmm_fd = -1;
	int rc;

	if (!im)
		return err_set(&c->e, ERR_INTERNAL, NULL, "out of memory");
	rc = images_load(im, c->images_dir, &c->e);
	if (!rc)
		rc = kernel_open(c, im);
	if (!rc)
		rc = image_by_name(c, im, base_image(c->inputs.shape.base),
				   &c->root_fd, c->inputs.root);
	if (!rc)
		rc = plain_file_hash(c, c->init_path, &c->init_fd,
				     c->inputs.init);
	if (!rc)
		rc = plain_file_hash(c, c->vmm_path, &vmm_fd, c->inputs.vmm);
	free(im);
	return rc;
}

void check_run(struct check *c)
{
	struct err why = {0};

	c->rc = inputs_open(c);
	if (!c->rc && key_make(&c->inputs, &c->manifest, c->key))
		c->rc = err_set(&c->e, ERR_INTERNAL, NULL, "out of memory");
	if (c->rc)
		return;
	c->rc = cache_open(&c->cache, c->key, c->is_verify, &c->files, &why);
	if (c->rc == -EBADMSG && !c->is_question) {
		log_warn("template=%s %s; it will be made anew",
			 c->inputs.shape.base, why.text);
		c->rc = -ENOENT;
	}
	if (c->rc)
		c->e = why;
}

void check_give(struct check *c, struct template *t)
{
	memcpy(t->key, c->key, sizeof(t->key));
	bytes_finish(&t->manifest);
	t->manifest = c->manifest;
	c->manifest = (struct bytes){0};
	t->kernel_fd = fd_take(&c->kernel_fd);
	t->init_fd = fd_take(&c->init_fd);
	t->root_fd = fd_take(&c->root_fd);
}

int template_hashes(struct link *l, const char *base, uint8_t image[HASH_BYTES],
		    uint8_t kernel[HASH_BYTES])
{
	const char *name = base_image(base);
	const struct shape any = {.vcpus = 1};
	const struct images *im;
	const struct image *i;
	struct check c;
	int rc = -ENOENT;

	check_init(&c, l, &any);
	if (!name || images_cached(&l->images, l->images_dir, &im, &c.e))
		goto out;
	i = images_find(im, name);
	if (!i)
		goto out;
	memcpy(image, i->sha256, HASH_BYTES);
	i = images_find(im, "kernel");
	if (!i && kernel_open(&c, im))
		goto out;
	memcpy(kernel, i ? i->sha256 : c.inputs.kernel, HASH_BYTES);
	rc = 0;
out:
	check_finish(&c);
	return rc;
}

int template_verify(struct link *l, const struct shape *s, struct err *e)
{
	struct check c;

	check_init(&c, l, s);
	c.is_verify = c.is_question = true;
	check_run(&c);
	if (c.rc == -ENOENT)
		err_set(&c.e, ERR_NOT_FOUND, NULL, "there is no snapshot yet");
	if (c.rc)
		*e = c.e;
	check_finish(&c);
	return c.rc ? -1 : 0;
}
