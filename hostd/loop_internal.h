/* What the files of the loop share; nobody else includes this. */
#ifndef HUTCHD_LOOP_INTERNAL_H
#define HUTCHD_LOOP_INTERNAL_H

#include "loop.h"
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>

#define LOOP_RING_ENTRIES 256
#define LOOP_CQE_BATCH	  64
#define LOOP_WORKERS	  2
/* With a movable clock the loop looks at it at least this often. */
#define LOOP_MOVABLE_WAIT_MS 20

/* Binary heap, smallest at_ms at [1]; [0] is not used. */
struct timer_heap {
	struct loop_timer **t; /* owned array of borrowed timers */
	size_t n, cap;
};
int timer_heap_set(struct timer_heap *h, struct loop_timer *t, int64_t at_ms);
void timer_heap_remove(struct timer_heap *h, struct loop_timer *t);
/* Run what is due at `now_ms`, each timer at most once. */
void timer_heap_run(struct timer_heap *h, int64_t now_ms);

struct work {
	struct work *next;
	struct loop *loop;
	void (*fn)(void *arg);
	void (*done)(void *arg);
	void *arg;
	struct loop_call call;
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct work *first, **last; /* queue */
	pthread_t threads[LOOP_WORKERS];
	unsigned n_threads;
	bool is_ending;
};
int pool_init(struct pool *p);
void pool_finish(struct pool *p); /* after the queue is worked off */
void pool_add(struct pool *p, struct work *w);

struct loop {
	struct io_uring ring;
	bool has_ring;
	struct timer_heap timers;
	struct pool pool;
	bool has_pool;

	int wake_fd; /* eventfd: calls are waiting, or stop */
	struct loop_watch wake;
	pthread_mutex_t calls_lock;
	struct loop_call *calls, **calls_last; /* FIFO */
	atomic_bool is_woken;		       /* wake_fd was written */
	atomic_bool is_stopped;

	struct list ops; /* all watch ops, to be freed at the end */
};

#endif
