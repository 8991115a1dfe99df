/*
 * Work of the link on the worker pool, safe against the link's end.
 *
 * `fn` runs on a worker and may use the link's folders and file hashes, and
 * what is in the job; `done` runs on the loop.  link_destroy waits for every
 * fn; after that `done` still runs once, with job->link NULL, and then only
 * frees the job.
 */
#ifndef HUTCHD_LINK_WORK_H
#define HUTCHD_LINK_WORK_H

#include "list.h"
#include <stdbool.h>

struct link;

struct job {
	struct list node; /* in link->jobs */
	struct link *link;
	void (*fn)(struct job *j);
	void (*done)(struct job *j);
	bool is_finished; /* under the lock of work.c */
};

int job_start(struct link *l, struct job *j, void (*fn)(struct job *j),
	      void (*done)(struct job *j));
void jobs_wait(struct link *l); /* link_destroy */

#endif
