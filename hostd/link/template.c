/*
 * Which snapshots there are, and who waits for them; see template.h.
 *
 * IDLE -> CHECKING (worker: hash the inputs, look into the cache) -> READY,
 * or -> WAITING (lock) -> MAKING (maker.c) -> CHECKING again, which opens the
 * new entry like any other.  A failure goes back to IDLE: the next call tries
 * again.
 */
#include "../clock.h"
#include "check.h"
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
static void template_lock(struct template *t);
static void template_end(struct template *t, const struct err *e);

void template_fds_close(struct template *t)
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

static void check_work(struct job *j)
{
	check_run(container_of(j, struct check, job));
}

static void check_free(struct check *c)
{
	check_finish(c);
	free(c);
}

static void check_done(struct job *j)
{
	struct check *c = container_of(j, struct check, job);
	struct template *t = c->t;

	if (!j->link) {
		check_free(c);
		return;
	}
	template_fds_close(t);
	check_give(c, t);
	t->files = c->files;
	c->files = (struct snapshot_files)SNAPSHOT_FILES_NONE;
	if (c->rc == 0) {
		fd_close(&t->kernel_fd); /* only a cold boot needs it */
		t->state = TPL_READY;
		t->is_suspect = false;
		t->generation++;
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
	struct check *c = calloc(1, sizeof(*c));
	struct err e = {0};

	t->state = TPL_CHECKING;
	if (c) {
		check_init(c, t->link, &t->shape);
		c->t = t;
		c->is_verify = t->is_suspect;
		if (!job_start(t->link, &c->job, check_work, check_done))
			return;
		free(c);
	}
	err_set(&e, ERR_INTERNAL, NULL, "out of memory");
	template_end(t, &e);
}

/* ---- making ----------------------------------------------------------- */

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
	if (t->made)
		t->made(t, e);
	else if (e)
		template_end(t, e);
	else
		template_check(t);
}

/* ---- waiters ---------------------------------------------------------- */

/* READY, or failed with `e`: all waiters hear it. */
static void template_end(struct template *t, const struct err *e)
{
	struct list mine;

	t->waiting_since_ms = 0;
	t->progress[0] = '\0';
	if (e) {
		t->state = TPL_IDLE;
		template_fds_close(t);
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

bool template_is_current(struct template *t)
{
	int fds[3] = {t->files.state_fd, t->files.mem_fd, t->files.disk_fd};
	struct stat st;

	if (!template_is_fresh(t))
		return false;
	for (int i = 0; i < 3; i++)
		if (fstat(fds[i], &st) || !st.st_nlink)
			return false;
	return true;
}

void template_recheck(struct template *t)
{
	if (t->state == TPL_READY)
		t->state = TPL_IDLE;
	if (t->state == TPL_IDLE)
		template_check(t);
}

void template_suspect(struct template *t)
{
	if (t->state == TPL_READY) {
		t->state = TPL_IDLE;
		t->is_suspect = true;
	}
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

void template_init(struct template *t, struct link *l, const struct shape *s)
{
	*t = (struct template){
		.link = l,
		.shape = *s,
		.kernel_fd = -1,
		.init_fd = -1,
		.root_fd = -1,
		.lock_fd = -1,
		.files = SNAPSHOT_FILES_NONE,
		.retry = {.fn = on_retry},
	};
	list_init(&t->waiters);
}

int template_get(struct link *l, const struct shape *s, struct template **ret)
{
	struct list *pos, *tmp;
	struct template *t;

	list_for_each_safe(pos, tmp, &l->templates)
	{
		t = container_of(pos, struct template, node);
		if (shape_is_same(&t->shape, s)) {
			*ret = t;
			return 0;
		}
	}
	t = malloc(sizeof(*t));
	if (!t)
		return -ENOMEM;
	template_init(t, l, s);
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

/* A waiter of template_prepare. */
struct prepare {
	struct template_waiter waiter;
	void (*progress)(void *ctx, const char *text);
	void (*done)(void *ctx, const struct err *e);
	void *ctx;
};

/* VMs are gone: who waits still came by template_prepare, and is not told,
 * because what it would tell may be gone, too. */
static void waiters_free(struct template *t)
{
	while (!list_is_empty(&t->waiters)) {
		struct prepare *p = container_of(t->waiters.next,
						 struct prepare, waiter.node);

		list_remove(&p->waiter.node);
		free(p);
	}
}

void templates_free(struct link *l)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &l->templates)
	{
		struct template *t = container_of(pos, struct template, node);

		maker_destroy(t->maker);
		waiters_free(t);
		list_remove(&t->node);
		template_fds_close(t);
		fd_close(&t->lock_fd);
		bytes_finish(&t->manifest);
		free(t);
	}
}

/* ---- for the rest of the daemon --------------------------------------- */

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
