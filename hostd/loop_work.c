/*
 * The loop's worker pool: a few threads, one queue.  For work that blocks and
 * has no other home (mkfs, copying a disk, hashing an image).
 */
#include "loop_internal.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

static void *worker(void *arg)
{
	struct pool *p = arg;
	struct work *w;

	for (;;) {
		pthread_mutex_lock(&p->lock);
		while (!p->first && !p->is_ending)
			pthread_cond_wait(&p->more, &p->lock);
		w = p->first;
		if (!w) {
			pthread_mutex_unlock(&p->lock);
			return NULL;
		}
		p->first = w->next;
		if (!p->first)
			p->last = &p->first;
		pthread_mutex_unlock(&p->lock);
		w->fn(w->arg);
		loop_post_call(w->loop, &w->call);
	}
}

int pool_init(struct pool *p)
{
	sigset_t all, old;
	int rc = 0;

	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	p->last = &p->first;
	/* Signals are for the loop's thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (!rc && p->n_threads < LOOP_WORKERS) {
		rc = pthread_create(&p->threads[p->n_threads], NULL, worker, p);
		if (!rc)
			p->n_threads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		pool_finish(p);
	return -rc;
}

void pool_finish(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->is_ending = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->n_threads; i++)
		pthread_join(p->threads[i], NULL);
	p->n_threads = 0;
	pthread_cond_destroy(&p->more);
	pthread_mutex_destroy(&p->lock);
}

void pool_add(struct pool *p, struct work *w)
{
	pthread_mutex_lock(&p->lock);
	*p->last = w;
	p->last = &w->next;
	pthread_cond_signal(&p->more);
	pthread_mutex_unlock(&p->lock);
}
