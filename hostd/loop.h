/*
 * The daemon's one loop: io_uring polls, timers, calls from other threads.
 *
 * Everything of hutchd except the store thread and the worker pool runs on
 * the thread that called loop_run().  Watches and timers are embedded in
 * their owner, which removes them before it is freed.
 */
#ifndef HUTCHD_LOOP_H
#define HUTCHD_LOOP_H

#include "list.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;

int loop_create(struct loop **ret);
/* Finishes the work in hand and runs what was posted; after loop_run. */
void loop_destroy(struct loop *l);
int loop_run(struct loop *l);	/* until loop_stop; 0 or -errno */
void loop_stop(struct loop *l); /* any thread */

/*
 * Level-like watch on a descriptor: `fn` runs as long as `events` hold, and
 * with POLLERR, POLLHUP or POLLNVAL also when nobody asked for them.  A watch
 * may be removed, changed or added in any callback, also its own; a removed
 * one is never called again and its descriptor may be closed at once.
 */
struct loop_watch {
	void (*fn)(struct loop_watch *w, uint32_t revents);
	int fd;
	uint32_t events; /* POLLIN | POLLOUT; 0 = paused */
	void *op;	 /* the loop's own */
};
int loop_watch_add(struct loop *l, struct loop_watch *w);
int loop_watch_mod(struct loop *l, struct loop_watch *w, uint32_t events);
void loop_watch_remove(struct loop *l, struct loop_watch *w);

/* One-shot timer on the monotonic clock; set again from its own fn is fine. */
struct loop_timer {
	void (*fn)(struct loop_timer *t);
	int64_t at_ms;
	size_t heap_idx; /* 0 = not set */
};
int loop_timer_set(struct loop *l, struct loop_timer *t, int64_t after_ms);
void loop_timer_stop(struct loop *l, struct loop_timer *t);

/* Run fn(arg) on the loop's thread soon; any thread; FIFO. */
int loop_post(struct loop *l, void (*fn)(void *arg), void *arg);

/*
 * The same without an allocation, so it cannot fail: the call is embedded in
 * its owner, which keeps it until fn ran.  A call that is posted already must
 * not be posted again.
 */
struct loop_call {
	void (*fn)(void *arg);
	void *arg;
	struct loop_call *next; /* the loop's own */
};
void loop_post_call(struct loop *l, struct loop_call *c);

/* Run fn(arg) on a worker thread, then done(arg) on the loop's thread. */
int loop_work(struct loop *l, void (*fn)(void *arg), void (*done)(void *arg),
	      void *arg);

#endif
