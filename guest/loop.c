/* Event loop; see loop.h. */
#include "loop.h"
#include "limits.h"
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_MAX 16

int loop_init(struct loop *l)
{
	list_init(&l->timers);
	l->epfd = epoll_create1(EPOLL_CLOEXEC);
	return l->epfd < 0 ? -errno : 0;
}

void loop_finish(struct loop *l)
{
	if (l->epfd >= 0)
		close(l->epfd);
	l->epfd = -1;
}

static int watch_set(struct loop *l, struct watch *w, uint32_t events,
		     uint32_t flags)
{
	struct epoll_event ev = {.events = events | flags, .data.ptr = w};
	int op = EPOLL_CTL_ADD;

	if (events == w->events && (events || !w->is_known))
		return 0;
	if (w->is_known)
		op = events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
	w->events = events;
	w->is_known = events;
	return epoll_ctl(l->epfd, op, w->fd, &ev) ? -errno : 0;
}

int loop_watch(struct loop *l, struct watch *w, uint32_t events)
{
	return watch_set(l, w, events, 0);
}

int loop_watch_once(struct loop *l, struct watch *w, uint32_t events)
{
	return watch_set(l, w, events, EPOLLONESHOT);
}

void loop_unwatch(struct loop *l, struct watch *w)
{
	watch_set(l, w, 0, 0);
}

void loop_forget(struct watch *w)
{
	w->events = 0;
	w->is_known = false;
}

uint64_t loop_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void timer_clear(struct timer *t)
{
	if (t->is_set)
		list_remove(&t->node);
	t->is_set = false;
}

void timer_set(struct loop *l, struct timer *t, uint64_t at_ns)
{
	timer_clear(t);
	t->at_ns = at_ns;
	t->is_set = true;
	list_append(&l->timers, &t->node);
}

void timer_set_in(struct loop *l, struct timer *t, uint64_t ms)
{
	timer_set(l, t, loop_now_ns() + ms * NS_PER_MS);
}

static int wait_ms(const struct loop *l)
{
	uint64_t at = UINT64_MAX, now, ms;

	for (const struct list *n = l->timers.next; n != &l->timers;
	     n = n->next) {
		const struct timer *t =
			(const void *)((const char *)n -
				       offsetof(struct timer, node));

		if (t->at_ns < at)
			at = t->at_ns;
	}
	if (at == UINT64_MAX)
		return -1;
	now = loop_now_ns();
	if (at <= now)
		return 0;
	ms = (at - now + NS_PER_MS - 1) / NS_PER_MS;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* One at a time from the start: a callback may set or clear any timer. */
static void timers_fire(struct loop *l, uint64_t now)
{
	struct list *n = l->timers.next;

	while (n != &l->timers) {
		struct timer *t = container_of(n, struct timer, node);

		n = n->next;
		if (t->at_ns > now)
			continue;
		timer_clear(t);
		t->fn(t);
		n = l->timers.next;
	}
}

int loop_turn(struct loop *l)
{
	struct epoll_event ev[EVENTS_MAX];
	int n = epoll_wait(l->epfd, ev, EVENTS_MAX, wait_ms(l));

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;

		if (w->events)
			w->fn(w, ev[i].events);
	}
	if (!list_is_empty(&l->timers))
		timers_fire(l, loop_now_ns());
	return 0;
}
