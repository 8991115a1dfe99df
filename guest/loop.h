/*
 * Event loop of init: one epoll, timers by deadline, one thread.
 *
 * A watch is owned by whoever embeds it.  loop_unwatch() may be called from
 * any callback; a watch that is gone gets no event, also when one was already
 * fetched.  Memory that holds a watch or timer must live until the end of the
 * turn (command.c frees between turns).
 *
 * Timers need no system call: the next deadline is the wait's time-out.
 */
#ifndef HUTCH_GUEST_LOOP_H
#define HUTCH_GUEST_LOOP_H

#include "list.h"
#include <stdbool.h>
#include <stdint.h>

struct watch {
	int fd;		 /* borrowed */
	uint32_t events; /* EPOLL*; 0 = not watched */
	bool is_known;	 /* to the epoll */
	void (*fn)(struct watch *w, uint32_t events);
};

struct timer {
	struct list node; /* zeroed = not set */
	uint64_t at_ns;
	bool is_set;
	void (*fn)(struct timer *t);
};

struct loop {
	int epfd;
	struct list timers;
};

int loop_init(struct loop *l);
void loop_finish(struct loop *l);
/* Start, change (events != 0) or stop (0) watching; 0 or -errno. */
int loop_watch(struct loop *l, struct watch *w, uint32_t events);
void loop_unwatch(struct loop *l, struct watch *w);
/* One event, then nothing until it is watched again: no system call. */
int loop_watch_once(struct loop *l, struct watch *w, uint32_t events);
/* Its descriptor was closed, which took it out of the epoll. */
void loop_forget(struct watch *w);
void timer_set(struct loop *l, struct timer *t, uint64_t at_ns);
void timer_set_in(struct loop *l, struct timer *t, uint64_t ms);
void timer_clear(struct timer *t);
/* Wait once and call back; 0 or -errno of the wait. */
int loop_turn(struct loop *l);
uint64_t loop_now_ns(void); /* CLOCK_MONOTONIC */

#endif
