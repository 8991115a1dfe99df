/*
 * Timers of the loop: a binary heap by due time.  A timer knows its index, so
 * that setting it again and stopping it are O(log n) without a search.
 */
#include "loop_internal.h"
#include <errno.h>
#include <stdlib.h>

static void put(struct timer_heap *h, size_t i, struct loop_timer *t)
{
	h->t[i] = t;
	t->heap_idx = i;
}

static void sift_up(struct timer_heap *h, size_t i, struct loop_timer *t)
{
	while (i > 1 && h->t[i / 2]->at_ms > t->at_ms) {
		put(h, i, h->t[i / 2]);
		i /= 2;
	}
	put(h, i, t);
}

static void sift_down(struct timer_heap *h, size_t i, struct loop_timer *t)
{
	size_t child;

	while ((child = 2 * i) <= h->n) {
		if (child < h->n && h->t[child + 1]->at_ms < h->t[child]->at_ms)
			child++;
		if (h->t[child]->at_ms >= t->at_ms)
			break;
		put(h, i, h->t[child]);
		i = child;
	}
	put(h, i, t);
}

int timer_heap_set(struct timer_heap *h, struct loop_timer *t, int64_t at_ms)
{
	if (t->heap_idx)
		timer_heap_remove(h, t);
	if (h->n + 1 >= h->cap) {
		size_t cap = h->cap ? h->cap * 2 : 64;
		struct loop_timer **p = realloc(h->t, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		h->t = p;
		h->cap = cap;
	}
	t->at_ms = at_ms;
	h->n++;
	sift_up(h, h->n, t);
	return 0;
}

void timer_heap_remove(struct timer_heap *h, struct loop_timer *t)
{
	size_t i = t->heap_idx;
	struct loop_timer *last;

	if (!i)
		return;
	t->heap_idx = 0;
	last = h->t[h->n--];
	if (last == t)
		return;
	if (i > 1 && h->t[i / 2]->at_ms > last->at_ms)
		sift_up(h, i, last);
	else
		sift_down(h, i, last);
}

void timer_heap_run(struct timer_heap *h, int64_t now_ms)
{
	/* A timer set anew by a callback for `now` waits for the next turn:
	 * the number of runs is bounded by what was set before. */
	for (size_t left = h->n; left && h->n && h->t[1]->at_ms <= now_ms;
	     left--) {
		struct loop_timer *t = h->t[1];

		timer_heap_remove(h, t);
		t->fn(t);
	}
}
