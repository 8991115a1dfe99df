/* Work on the pool; see work.h. */
#include "work.h"
#include "../loop.h"
#include "link_priv.h"
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;

static void job_run(void *arg)
{
	struct job *j = arg;

	j->fn(j);
	pthread_mutex_lock(&lock);
	j->is_finished = true;
	pthread_cond_broadcast(&finished);
	pthread_mutex_unlock(&lock);
}

static void job_done(void *arg)
{
	struct job *j = arg;

	list_remove(&j->node);
	j->done(j);
}

int job_start(struct link *l, struct job *j, void (*fn)(struct job *j),
	      void (*done)(struct job *j))
{
	int rc;

	list_init(&j->node);
	j->link = l;
	j->fn = fn;
	j->done = done;
	j->is_finished = false;
	rc = loop_work(l->loop, job_run, job_done, j);
	if (!rc)
		list_append(&l->jobs, &j->node);
	return rc;
}

void jobs_wait(struct link *l)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &l->jobs)
	{
		struct job *j = container_of(pos, struct job, node);

		pthread_mutex_lock(&lock);
		while (!j->is_finished)
			pthread_cond_wait(&finished, &lock);
		pthread_mutex_unlock(&lock);
		j->link = NULL;
		list_remove(&j->node);
	}
}
