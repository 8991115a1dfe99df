/*
 * Which snapshots there are, and who waits for them; see template.h.
 *
 * IDLE -> CHECKING (worker: hash the inputs, look into the cache) -> READY,
 * or -> WAITING (lock) -> MAKING (maker.c) -> CHECKING again, which opens the
 * new entry like any other.  A failure goes back to IDLE: the next call tries
 * again.
 */
#include "../clock.h"
#include "../image/images.h"
#include "fd.h"
#include "link_priv.h"
#include "log.h"
#include "template_priv.h"
#include "work.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Booting and importing is heavy: two at once on a host are enough. */
#define LINK_MAKERS_MAX 2
#define LOCK_RETRY_MS	1000
/* Heavy libraries are imported ahead where there is room for them. */
#define PRELOAD_MIB_MIN 512

static const struct {
	const char *base, *runner, *image;
} bases[] = {
	{"lbb/python", "python", "python"},
	{"lbb/node", "node", "node"},
	{"lbb/shell", "shell", "shell"},
};
#define N_BASES (sizeof(bases) / sizeof(bases[0]))

static const uint32_t ram_classes[] = {256, 512, 1024, 2048, 4096, 8192};
static const uint32_t vcpu_classes[] = {1, 2, 4};

const char *base_runner(const char *base)
{
	for (size_t i = 0; i < N_BASES; i++)
		if (strcmp(bases[i].base, base) == 0)
			return bases[i].runner;
	return NULL;
}

static const char *base_image(const char *base)
{
	for (size_t i = 0; i < N_BASES; i++)
		if (strcmp(bases[i].base, base) == 0)
			return bases[i].image;
	return NULL;
}

bool shape_has_preload(const struct shape *s)
{
	return s->ram_mib >= PRELOAD_MIB_MIN;
}

void shape_text(const struct shape *s, char *dst, size_t cap)
{
	snprintf(dst, cap, "%s with %u vCPU%s and %u MiB", s->base, s->vcpus,
		 s->vcpus == 1 ? "" : "s", s->ram_mib);
}

static uint32_t class_of(const uint32_t *list, size_t n, uint32_t want)
{
	for (size_t i = 0; i < n; i++)
		if (want <= list[i])
			return list[i];
	return 0;
}

int shape_for(const char *base, const struct limits *limits, struct shape *ret,
	      struct err *e)
{
	struct shape s = {
		.vcpus = class_of(vcpu_classes, 3, limits->vcpus),
		.ram_mib = class_of(ram_classes, 6, limits->memory_mib),
	};

	if (!base_runner(base))
		return err_set(e, ERR_TEMPLATE_NOT_FOUND, "template",
			       "there is no template '%.64s': the base "
			       "templates are lbb/python, lbb/node and "
			       "lbb/shell",
			       base);
	if (!s.vcpus)
		return err_set(e, ERR_LIMITS_INVALID, "limits.vcpus",
			       "limits.vcpus is %u, at most 4 are possible",
			       limits->vcpus);
	if (!s.ram_mib)
		return err_set(e, ERR_LIMITS_INVALID, "limits.memory_mib",
			       "limits.memory_mib is %u, at most 8192 are "
			       "possible",
			       limits->memory_mib);
	snprintf(s.base, sizeof(s.base), "%s", base);
	*ret = s;
	return 0;
}

/* ---- looking at files and cache (worker) ----------------------------------
 */

struct check {
	struct job job;
	struct template *t; /* loop thread only */
	struct cache cache;
	const char *images_dir, *vmm_path, *init_path;
	struct key_inputs inputs;
	char key[KEY_HEX_BYTES];
	struct bytes manifest;
	int kernel_fd, init_fd, root_fd;
	struct snapshot_files files;
	int rc; /* 0 ready, -ENOENT to be made, else failed */
	struct err e;
};

static int plain_file_hash(struct check *c, const char *path, int *ret_fd,
			   uint8_t hash[HASH_BYTES])
{
	int rc;

	*ret_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*ret_fd < 0)
		return err_set(&c->e, ERR_INTERNAL, NULL, "cannot open %s: %s",
			       path, strerror(errno));
	rc = file_hash(c->cache.hashes, FILE_HASH_PLAIN, *ret_fd, false, hash);
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
	return image_open(i, c->cache.hashes, false, ret_fd, &c->e);
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

static void check_run(struct job *j)
{
	struct check *c = container_of(j, struct check, job);
	struct err why = {0};

	c->rc = inputs_open(c);
	if (!c->rc && key_make(&c->inputs, &c->manifest, c->key))
		c->rc = err_set(&c->e, ERR_INTERNAL, NULL, "out of memory");
	if (c->rc)
		return;
	c->rc = cache_open(&c->cache, c->key, false, &c->files, &why);
	if (c->rc == -EBADMSG) {
		log_warn("template=%s %s; it will be made anew",
			 c->inputs.shape.base, why.text);
		c->rc = -ENOENT;
	}
	if (c->rc && c->rc != -ENOENT)
		c->e = why;
}

static void check_free(struct check *c)
{
	fd_close(&c->kernel_fd);
	fd_close(&c->init_fd);
	fd_close(&c->root_fd);
	snapshot_files_close(&c->files);
	bytes_finish(&c->manifest);
	free(c);
}

static void template_lock(struct template *t);
static void template_end(struct template *t, const struct err *e);

static void fds_close(struct template *t)
{
	fd_close(&t->kernel_fd);
	fd_close(&t->init_fd);
	fd_close(&t->root_fd);
	snapshot_files_close(&t->files);
}

static void stamps_read(const struct template *t, struct timespec ret[3])
{
	int fds[3] = {t->files.state_fd, t->files.mem_fd, t->files.disk_fd};
	struct stat st;

	for (int i = 0; i < 3; i++) {
		if (fstat(fds[i], &st))
			memset(&st, 0, sizeof(st));
		ret[i] = st.st_mtim;
	}
}

static void check_done(struct job *j)
{
	struct check *c = container_of(j, struct check, job);
	struct template *t = c->t;

	if (!j->link) {
		check_free(c);
		return;
	}
	fds_close(t);
	bytes_finish(&t->manifest);
	t->inputs = c->inputs;
	memcpy(t->key, c->key, sizeof(t->key));
	t->manifest = c->manifest;
	c->manifest = (struct bytes){0};
	t->kernel_fd = fd_take(&c->kernel_fd);
	t->init_fd = fd_take(&c->init_fd);
	t->root_fd = fd_take(&c->root_fd);
	t->files = c->files;
	c->files = (struct snapshot_files)SNAPSHOT_FILES_NONE;
	if (c->rc == 0) {
		fd_close(&t->kernel_fd); /* only a cold boot needs it */
		t->state = TPL_READY;
		stamps_read(t, t->stamps);
		template_end(t, NULL);
	} else if (c->rc == -ENOENT && list_is_empty(&t->waiters)) {
		t->state = TPL_IDLE; /* only asked whether it is there */
	} else if (c->rc == -ENOENT) {
		template_lock(t);
	} else {
		template_end(t, &c->e);
	}
	check_free(c);
}

static void template_check(struct template *t)
{
	struct link *l = t->link;
	struct check *c = calloc(1, sizeof(*c));
	struct err e = {0};

	t->state = TPL_CHECKING;
	if (c) {
		c->t = t;
		c->cache = (struct cache){l->cache_fd, &l->hashes};
		c->images_dir = l->images_dir;
		c->vmm_path = l->vmm_path;
		c->init_path = l->init_path;
		c->inputs = (struct key_inputs){
			.is_soft = l->is_soft,
			.cmdline = LINK_CMDLINE,
			.runner = base_runner(t->shape.base),
			.has_preload = shape_has_preload(&t->shape),
			.shape = t->shape,
		};
		c->kernel_fd = c->init_fd = c->root_fd = -1;
		c->files = (struct snapshot_files)SNAPSHOT_FILES_NONE;
		if (!job_start(l, &c->job, check_run, check_done))
			return;
		free(c);
	}
	err_set(&e, ERR_INTERNAL, NULL, "out of memory");
	template_end(t, &e);
}

/* ---- making ----------------------------------------------------------------
 */

/* One maker per key among all processes, and not too many in this one. */
static void template_lock(struct template *t)
{
	struct link *l = t->link;
	struct cache c = {l->cache_fd, &l->hashes};
	struct err e = {0};
	int rc = -EAGAIN;

	if (!t->waiting_since_ms)
		t->waiting_since_ms = clock_mono_ms();
	if (l->n_making < LINK_MAKERS_MAX)
		rc = cache_lock(&c, t->key, &t->lock_fd, &e);
	if (rc == -EAGAIN) {
		t->state = TPL_WAITING;
		template_progress(t, l->n_making < LINK_MAKERS_MAX
					     ? "another process prepares it"
					     : "others are prepared first");
		loop_timer_set(l->loop, &t->retry, LOCK_RETRY_MS);
		return;
	}
	if (!rc) {
		t->state = TPL_MAKING;
		l->n_making++;
		rc = maker_start(&t->maker, t, &e);
		if (rc)
			l->n_making--;
	}
	if (rc) {
		fd_close(&t->lock_fd);
		template_end(t, &e);
	}
}

/* The other maker may have finished: look again, then lock again. */
static void on_retry(struct loop_timer *timer)
{
	template_check(container_of(timer, struct template, retry));
}

void template_made(struct template *t, const struct err *e)
{
	t->maker = NULL;
	t->link->n_making--;
	fd_close(&t->lock_fd);
	if (e)
		template_end(t, e);
	else
		template_check(t);
}

/* ---- waiters ----------------------------------------------------------------
 */

/* READY, or failed with `e`: all waiters hear it. */
static void template_end(struct template *t, const struct err *e)
{
	struct list mine;

	t->waiting_since_ms = 0;
	t->progress[0] = '\0';
	if (e) {
		t->state = TPL_IDLE;
		fds_close(t);
	}
	/* A callback may wait anew or remove another waiter: take them from
	 * the list one by one, and only those who wait now. */
	list_init(&mine);
	while (!list_is_empty(&t->waiters)) {
		struct list *n = t->waiters.next;

		list_remove(n);
		list_append(&mine, n);
	}
	while (!list_is_empty(&mine)) {
		struct template_waiter *w =
			container_of(mine.next, struct template_waiter, node);

		list_remove(&w->node);
		w->done(w->ctx, e);
	}
}

void template_progress(struct template *t, const char *fmt, ...)
{
	struct list *pos, *tmp;
	char text[192], shape[128];
	int64_t s;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	shape_text(&t->shape, shape, sizeof(shape));
	s = (clock_mono_ms() - t->waiting_since_ms) / 1000;
	snprintf(t->progress, sizeof(t->progress),
		 "preparing %.110s: %.100s (%lld s)", shape, text,
		 (long long)s);
	list_for_each_safe(pos, tmp, &t->waiters)
	{
		struct template_waiter *w =
			container_of(pos, struct template_waiter, node);

		if (w->progress)
			w->progress(w->ctx, t->progress);
	}
}

bool template_is_fresh(struct template *t)
{
	struct timespec now[3];

	if (t->state != TPL_READY)
		return false;
	stamps_read(t, now);
	return memcmp(now, t->stamps, sizeof(now)) == 0;
}

void template_wait(struct template *t, struct template_waiter *w)
{
	list_init(&w->node);
	list_append(&t->waiters, &w->node);
	if (t->state == TPL_IDLE || t->state == TPL_READY)
		template_check(t);
	else if (w->progress && t->progress[0])
		w->progress(w->ctx, t->progress);
}

void template_unwait(struct template_waiter *w)
{
	if (w->node.next)
		list_remove(&w->node);
}

int template_get(struct link *l, const struct shape *s, struct template **ret)
{
	struct list *pos, *tmp;
	struct template *t;

	list_for_each_safe(pos, tmp, &l->templates)
	{
		t = container_of(pos, struct template, node);
		if (strcmp(t->shape.base, s->base) == 0 &&
		    t->shape.vcpus == s->vcpus &&
		    t->shape.ram_mib == s->ram_mib) {
			*ret = t;
			return 0;
		}
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->link = l;
	t->shape = *s;
	t->kernel_fd = t->init_fd = t->root_fd = t->lock_fd = -1;
	t->files = (struct snapshot_files)SNAPSHOT_FILES_NONE;
	t->retry.fn = on_retry;
	list_init(&t->waiters);
	list_append(&l->templates, &t->node);
	*ret = t;
	return 0;
}

void templates_stop(struct link *l)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &l->templates)
	{
		struct template *t = container_of(pos, struct template, node);

		loop_timer_stop(l->loop, &t->retry);
		maker_stop(t->maker);
	}
}

void templates_free(struct link *l)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &l->templates)
	{
		struct template *t = container_of(pos, struct template, node);

		maker_destroy(t->maker);
		list_remove(&t->node);
		fds_close(t);
		fd_close(&t->lock_fd);
		bytes_finish(&t->manifest);
		free(t);
	}
}

/* ---- for the rest of the daemon ---------------------------------------------
 */

struct prepare {
	struct template_waiter waiter;
	void (*progress)(void *ctx, const char *text);
	void (*done)(void *ctx, const struct err *e);
	void *ctx;
};

static void prepare_progress(void *ctx, const char *text)
{
	struct prepare *p = ctx;

	p->progress(p->ctx, text);
}

static void prepare_done(void *ctx, const struct err *e)
{
	struct prepare p = *(struct prepare *)ctx;

	free(ctx);
	p.done(p.ctx, e);
}

int template_prepare(struct link *l, const struct shape *s,
		     void (*progress)(void *ctx, const char *text),
		     void (*done)(void *ctx, const struct err *e), void *ctx)
{
	struct prepare *p = calloc(1, sizeof(*p));
	struct template *t;

	if (!p || template_get(l, s, &t)) {
		free(p);
		return -ENOMEM;
	}
	p->progress = progress;
	p->done = done;
	p->ctx = ctx;
	p->waiter.progress = progress ? prepare_progress : NULL;
	p->waiter.done = prepare_done;
	p->waiter.ctx = p;
	template_wait(t, &p->waiter);
	return 0;
}

bool template_is_ready(struct link *l, const struct shape *s)
{
	struct template *t;

	if (template_get(l, s, &t))
		return false;
	/* Not looked at yet: ask for it, so that the next answer is right. */
	if (t->state == TPL_IDLE)
		template_check(t);
	return template_is_fresh(t);
}

int template_hashes(struct link *l, const char *base, uint8_t image[HASH_BYTES],
		    uint8_t kernel[HASH_BYTES])
{
	struct check c = {.cache = {l->cache_fd, &l->hashes},
			  .images_dir = l->images_dir,
			  .kernel_fd = -1};
	struct images *im = calloc(1, sizeof(*im));
	const char *name = base_image(base);
	const struct image *i;
	int rc = -ENOENT;

	if (!im || !name || images_load(im, l->images_dir, &c.e))
		goto out;
	i = images_find(im, name);
	if (!i || kernel_open(&c, im))
		goto out;
	memcpy(image, i->sha256, HASH_BYTES);
	memcpy(kernel, c.inputs.kernel, HASH_BYTES);
	rc = 0;
out:
	fd_close(&c.kernel_fd);
	free(im);
	return rc;
}
