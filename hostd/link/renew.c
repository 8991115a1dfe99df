/*
 * Template snapshots are made anew on a schedule.
 *
 * What a started interpreter cannot change is the same in all VMs of a snapshot
 * (hash seeds, addresses, stack canaries: guest/README.md).  So that none of it
 * is worth learning, a snapshot serves for `renew_ms` (a day) and is then made
 * again, in the background, one at a time and only when no other is made.
 *
 * The old one serves until the new one has its name.  VMs that run keep its
 * files open; those that wait in a pool are of a snapshot that is not current
 * any more, and are replaced (pool.c of the engine).  Its age is that of its
 * files, so it counts over restarts, and daemons that share a cache see what
 * the others did.  What fails is tried again later; nobody waits for it.
 *
 *   CHECKING  worker: are images, key and entry what the template has?
 *   MAKING    a maker as of any other template, for a shadow of it
 */
#include "../clock.h"
#include "check.h"
#include "fd.h"
#include "link_priv.h"
#include "log.h"
#include "template_priv.h"
#include "work.h"
#include <stdlib.h>
#include <string.h>

/* Snapshots are looked at soon after the start, then so often; after what
 * failed: not for so long. */
#define FIRST_LOOK_MS (10 * 1000)
#define LOOK_MS	      (60 * 1000)
#define RETRY_MS      (60 * 60 * 1000)

struct renewal {
	struct template shadow; /* what the maker sees */
	struct template *of;
	struct check check;
	bool is_making;
};

static void renewal_free(struct renewal *r)
{
	template_fds_close(&r->shadow);
	fd_close(&r->shadow.lock_fd);
	bytes_finish(&r->shadow.manifest);
	free(r);
}

/* NULL: it has a new one.  Otherwise what is wrong, "" = nothing. */
static void renewal_end(struct renewal *r, const char *wrong)
{
	struct link *l = r->shadow.link;
	struct template *t = r->of;

	l->renewal = NULL;
	t->renew_from_ms = clock_mono_ms() + (wrong ? RETRY_MS : l->renew_ms);
	if (wrong && *wrong)
		log_warn("template=%s its snapshot is not renewed: %s",
			 t->shape.base, wrong);
	if (!wrong) {
		log_info("template=%s vcpus=%u ram_mib=%u snapshot=renewed",
			 t->shape.base, t->shape.vcpus, t->shape.ram_mib);
		l->stats.renewed++;
		template_recheck(t);
	}
	renewal_free(r);
}

static void on_made(struct template *shadow, const struct err *e)
{
	renewal_end(container_of(shadow, struct renewal, shadow),
		    e ? e->text : NULL);
}

static void make(struct renewal *r)
{
	struct template *s = &r->shadow;
	struct link *l = s->link;
	struct cache c = {l->cache_fd, &l->hashes};
	struct err e = {0};

	/* -EAGAIN: another process is at it. */
	if (cache_lock(&c, s->key, &s->lock_fd, &e)) {
		renewal_end(r, "");
		return;
	}
	r->is_making = true;
	l->n_making++;
	s->waiting_since_ms = clock_mono_ms();
	if (!maker_start(&s->maker, s, &e))
		return;
	l->n_making--;
	renewal_end(r, e.text);
}

static void check_work(struct job *j)
{
	check_run(container_of(j, struct check, job));
}

static void check_done(struct job *j)
{
	struct check *c = container_of(j, struct check, job);
	struct renewal *r = container_of(c, struct renewal, check);
	struct template *s = &r->shadow;

	if (!j->link) {
		check_finish(c);
		renewal_free(r);
		return;
	}
	check_give(c, s);
	check_finish(c);
	/* Gone, damaged, of other images: the next one that needs it sees. */
	if (c->rc || strcmp(s->key, r->of->key) != 0)
		renewal_end(r, "");
	else
		make(r);
}

static void begin(struct template *t)
{
	struct renewal *r = calloc(1, sizeof(*r));
	struct link *l = t->link;

	t->renew_from_ms = clock_mono_ms() + RETRY_MS;
	if (!r)
		return;
	template_init(&r->shadow, l, &t->shape);
	r->shadow.made = on_made;
	r->of = t;
	check_init(&r->check, l, &t->shape);
	r->check.is_question = true;
	if (job_start(l, &r->check.job, check_work, check_done)) {
		free(r);
		return;
	}
	l->renewal = r;
}

static bool is_due(struct template *t)
{
	int64_t made_ms = (int64_t)t->stamps[0].tv_sec * 1000;

	return t->state == TPL_READY &&
	       clock_wall_ms() - made_ms >= t->link->renew_ms &&
	       clock_mono_ms() >= t->renew_from_ms && template_is_current(t);
}

static void on_look(struct loop_timer *timer)
{
	struct link *l = container_of(timer, struct link, renew_timer);
	struct list *pos, *tmp;

	loop_timer_set(l->loop, timer, LOOK_MS);
	if (l->renewal || l->n_making)
		return;
	list_for_each_safe(pos, tmp, &l->templates)
	{
		struct template *t = container_of(pos, struct template, node);

		if (is_due(t)) {
			begin(t);
			return;
		}
	}
}

void renew_start(struct link *l, int64_t renew_ms)
{
	l->renew_ms = renew_ms;
	l->renew_timer.fn = on_look;
	if (renew_ms)
		loop_timer_set(l->loop, &l->renew_timer, FIRST_LOOK_MS);
}

void renew_stop(struct link *l)
{
	loop_timer_stop(l->loop, &l->renew_timer);
	if (l->renewal)
		maker_stop(l->renewal->shadow.maker);
}

void renew_free(struct link *l)
{
	struct renewal *r = l->renewal;

	l->renewal = NULL;
	/* The job of a check is still to come, and frees it. */
	if (!r || !r->is_making)
		return;
	maker_destroy(r->shadow.maker);
	renewal_free(r);
}
