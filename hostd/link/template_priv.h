/*
 * Templates as vm.c and maker.c see them.
 *
 * One struct template per shape that was ever asked for.  Waiters are called
 * when its snapshot is there or cannot be made; making it is a struct maker's
 * work.
 */
#ifndef HUTCHD_TEMPLATE_PRIV_H
#define HUTCHD_TEMPLATE_PRIV_H

#include "../loop.h"
#include "cache.h"
#include "key.h"
#include "list.h"
#include "template.h"
#include <time.h>

struct link;
struct maker;

enum template_state {
	TPL_IDLE = 0, /* nothing known, nothing going on */
	TPL_CHECKING, /* a worker looks at files and cache */
	TPL_WAITING,  /* for its turn, or for another process's maker */
	TPL_MAKING,
	TPL_READY,
};

struct template
{
	struct list node; /* in link->templates */
	struct link *link;
	struct shape shape;
	enum template_state state;
	char key[KEY_HEX_BYTES];
	struct bytes manifest;		 /* owned: lines of the key */
	int kernel_fd, init_fd, root_fd; /* owned, read-only */
	struct snapshot_files files;
	struct timespec stamps[3]; /* mtimes of the files, when checked */
	int lock_fd;		   /* held while making */
	struct maker *maker;
	struct loop_timer retry;
	int64_t waiting_since_ms;
	bool is_suspect;     /* a VM could not be set up: verify every byte */
	uint64_t generation; /* counts the times that it became ready */
	struct list waiters;
	char progress[256]; /* last text */
	/* renew.c */
	int64_t renew_from_ms; /* not before, monotonic */
	/* Of a shadow: its maker has ended.  NULL of all others. */
	void (*made)(struct template * t, const struct err *e);
};

struct template_waiter {
	struct list node;
	/* Also at once for a waiter that joins late.  May be NULL. */
	void (*progress)(void *ctx, const char *text);
	/* Once; the waiter is off the list.  e NULL = ready. */
	void (*done)(void *ctx, const struct err *e);
	void *ctx;
};

/* The runner of a base ("python"), or NULL for an unknown base. */
const char *base_runner(const char *base);
const char *base_image(const char *base); /* its name in images.json */
/* Code of a short run by the lane, or NULL (first_run.h). */
const char *base_first_run(const char *base);
bool shape_has_preload(const struct shape *s);
bool shape_is_same(const struct shape *a, const struct shape *b);
/* "lbb/python with 1 vCPU and 1024 MiB" */
void shape_text(const struct shape *s, char *dst, size_t cap);

void template_init(struct template *t, struct link *l, const struct shape *s);
void template_fds_close(struct template *t);
/* Find or make the struct; -ENOMEM. */
int template_get(struct link *l, const struct shape *s, struct template **ret);
/* Ready, and its files are as they were when they were checked. */
bool template_is_fresh(struct template *t);
/* Fresh, and its files still are the ones in the cache: neither removed nor
 * made anew. */
bool template_is_current(struct template *t);
/* Look again at what the cache has, without making anything. */
void template_recheck(struct template *t);
/* A VM of it could not be set up: the next one looks at it again, wholly. */
void template_suspect(struct template *t);
/* `done` comes later, never from within; `progress` may come at once. */
void template_wait(struct template *t, struct template_waiter *w);
void template_unwait(struct template_waiter *w); /* twice is fine */

void templates_stop(struct link *l); /* ends makers */
void templates_free(struct link *l);

/* From the maker: text, and the end (e NULL = the entry is in the cache). */
void template_progress(struct template *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void template_made(struct template *t, const struct err *e);

/* renew.c: each snapshot anew when it is so old; 0 = never. */
void renew_start(struct link *l, int64_t renew_ms);
/* At the link's end, as of makers. */
void renew_stop(struct link *l);
void renew_free(struct link *l);

/* maker.c */
int maker_start(struct maker **ret, struct template *t, struct err *e);
/* At the link's end: first stop, then wait for the workers, then destroy. */
void maker_stop(struct maker *m);
void maker_destroy(struct maker *m);

#endif
