/*
 * The loop: one io_uring, one wait, one batch of completions a turn.
 *
 * A watch is an io_uring poll.  Multishot polls fire on wake-ups only, so a
 * descriptor that was not drained would stay silent; asking poll(2) after
 * each callback would cost a system call.  So each poll is one-shot and is
 * armed again after its callback: the kernel looks at the descriptor's state
 * when it arms, which is level behaviour, and arming rides on the
 * io_uring_enter that waits anyway.
 *
 * The poll's user data is a small op on the heap, not the watch: a watch that
 * is removed while its poll is in flight leaves the op behind, which is freed
 * when the kernel gives the poll back.  So there is exactly one completion for
 * each armed op, and completions never touch a watch that is gone.  A cancel
 * goes by the op's address; the ring takes entries in order, so a cancel is
 * always seen before a poll of a later op at the same address.
 */
#include "loop.h"
#include "clock.h"
#include "log.h"
#include "loop_internal.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct watch_op {
	struct list node;     /* in loop.ops */
	struct loop_watch *w; /* NULL: the watch was removed */
	bool is_armed;	      /* a poll is on its way */
	bool is_busy;	      /* its callback is running: dispatch goes on */
};

static struct io_uring_sqe *sqe_get(struct loop *l)
{
	struct io_uring_sqe *sqe;

	while (!(sqe = io_uring_get_sqe(&l->ring))) {
		int rc = io_uring_submit(&l->ring);

		if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
			log_error("loop: io_uring_submit failed: %s",
				  strerror(-rc));
			abort(); /* without its ring the daemon is blind */
		}
	}
	return sqe;
}

static void op_arm(struct loop *l, struct watch_op *op)
{
	struct io_uring_sqe *sqe = sqe_get(l);

	io_uring_prep_poll_add(sqe, op->w->fd, op->w->events);
	io_uring_sqe_set_data(sqe, op);
	op->is_armed = true;
}

static void op_free(struct watch_op *op)
{
	list_remove(&op->node);
	free(op);
}

/* The op's watch is gone: take the poll back, or free at once. */
static void op_abandon(struct loop *l, struct watch_op *op)
{
	struct io_uring_sqe *sqe;

	op->w = NULL;
	if (op->is_armed) {
		sqe = sqe_get(l);
		io_uring_prep_poll_remove(sqe, (uint64_t)(uintptr_t)op);
		io_uring_sqe_set_data(sqe, NULL);
	} else if (!op->is_busy) {
		op_free(op);
	}
}

int loop_watch_add(struct loop *l, struct loop_watch *w)
{
	struct watch_op *op = calloc(1, sizeof(*op));

	if (!op)
		return -ENOMEM;
	op->w = w;
	w->op = op;
	list_append(&l->ops, &op->node);
	if (w->events)
		op_arm(l, op);
	return 0;
}

void loop_watch_remove(struct loop *l, struct loop_watch *w)
{
	struct watch_op *op = w->op;

	if (!op)
		return;
	w->op = NULL;
	op_abandon(l, op);
}

int loop_watch_mod(struct loop *l, struct loop_watch *w, uint32_t events)
{
	struct watch_op *op = w->op;
	uint32_t old = w->events;
	int rc;

	if (!op)
		return -ENOENT;
	if (events == old)
		return 0;
	w->events = events;
	if (op->is_armed) {
		rc = loop_watch_add(l, w);
		if (rc) {
			w->events = old;
			return rc;
		}
		op_abandon(l, op);
	} else if (!op->is_busy && events) {
		op_arm(l, op);
	}
	return 0;
}

static void dispatch(struct loop *l, struct watch_op *op, int res)
{
	bool is_level = res >= 0;

	op->is_armed = false;
	if (op->w && (res == -ECANCELED || res == -EINTR || res == -EAGAIN)) {
		op_arm(l, op);
		return;
	}
	if (op->w) {
		op->is_busy = true;
		if (res < 0)
			/* Cannot be polled (closed without a remove?): told
			 * once, not armed again, or the loop would spin. */
			log_warn("loop: poll of fd %d failed: %s", op->w->fd,
				 strerror(-res));
		op->w->fn(op->w, res < 0 ? POLLNVAL : (uint32_t)res);
		op->is_busy = false;
	}
	if (!op->w)
		op_free(op); /* removed before or in its callback */
	else if (is_level && op->w->events)
		op_arm(l, op);
}

static void handle_batch(struct loop *l)
{
	struct io_uring_cqe *cqes[LOOP_CQE_BATCH];
	struct {
		struct watch_op *op;
		int res;
	} got[LOOP_CQE_BATCH];
	unsigned n = io_uring_peek_batch_cqe(&l->ring, cqes, LOOP_CQE_BATCH);

	/* Callbacks may submit; the ring's slots are given back before.  An op
	 * in got[] stays alive until its turn: is_armed is still set. */
	for (unsigned i = 0; i < n; i++) {
		got[i].op = io_uring_cqe_get_data(cqes[i]);
		got[i].res = cqes[i]->res;
	}
	io_uring_cq_advance(&l->ring, n);
	for (unsigned i = 0; i < n; i++)
		if (got[i].op)
			dispatch(l, got[i].op, got[i].res);
}

/* ---- calls from any thread -------------------------------------------- */

static void wake_up(struct loop *l)
{
	uint64_t one = 1;

	/* One write until the loop has seen it; EAGAIN means it is set. */
	if (!atomic_exchange(&l->is_woken, true))
		while (write(l->wake_fd, &one, sizeof(one)) < 0 &&
		       errno == EINTR)
			;
}

static void run_calls(struct loop *l)
{
	struct loop_call *c, *next;

	pthread_mutex_lock(&l->calls_lock);
	c = l->calls;
	l->calls = NULL;
	l->calls_last = &l->calls;
	pthread_mutex_unlock(&l->calls_lock);
	/* What these post runs in the next turn: I/O gets its chance. */
	for (; c; c = next) {
		next = c->next;
		c->next = NULL;
		c->fn(c->arg);
	}
}

static void on_wake(struct loop_watch *w, uint32_t revents)
{
	struct loop *l = container_of(w, struct loop, wake);
	uint64_t n;

	(void)revents;
	while (read(l->wake_fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
	/* Cleared before the list is taken: a call added after that writes
	 * the eventfd again. */
	atomic_store(&l->is_woken, false);
	run_calls(l);
}

void loop_post_call(struct loop *l, struct loop_call *c)
{
	c->next = NULL;
	pthread_mutex_lock(&l->calls_lock);
	*l->calls_last = c;
	l->calls_last = &c->next;
	pthread_mutex_unlock(&l->calls_lock);
	wake_up(l);
}

struct post {
	struct loop_call call;
	void (*fn)(void *arg);
	void *arg;
};

static void post_run(void *arg)
{
	struct post p = *(struct post *)arg;

	free(arg);
	p.fn(p.arg);
}

int loop_post(struct loop *l, void (*fn)(void *arg), void *arg)
{
	struct post *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->fn = fn;
	p->arg = arg;
	p->call.fn = post_run;
	p->call.arg = p;
	loop_post_call(l, &p->call);
	return 0;
}

/* ---- timers and work --------------------------------------------------- */

int loop_timer_set(struct loop *l, struct loop_timer *t, int64_t after_ms)
{
	if (after_ms < 0)
		after_ms = 0;
	return timer_heap_set(&l->timers, t, clock_mono_ms() + after_ms);
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	timer_heap_remove(&l->timers, t);
}

static void work_done(void *arg)
{
	struct work w = *(struct work *)arg;

	free(arg);
	w.done(w.arg);
}

int loop_work(struct loop *l, void (*fn)(void *arg), void (*done)(void *arg),
	      void *arg)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->loop = l;
	w->fn = fn;
	w->done = done;
	w->arg = arg;
	w->call.fn = work_done;
	w->call.arg = w;
	pool_add(&l->pool, w);
	return 0;
}

/* ---- life ---------------------------------------------------------------- */

static int ring_open(struct loop *l)
{
	struct io_uring_params p = {.flags = IORING_SETUP_CLAMP |
					     IORING_SETUP_COOP_TASKRUN};
	int rc = io_uring_queue_init_params(LOOP_RING_ENTRIES, &l->ring, &p);

	if (rc == -EINVAL) { /* kernel before 5.19 */
		memset(&p, 0, sizeof(p));
		p.flags = IORING_SETUP_CLAMP;
		rc = io_uring_queue_init_params(LOOP_RING_ENTRIES, &l->ring,
						&p);
	}
	if (rc)
		return rc;
	l->has_ring = true;
	/* NODROP: completions over the ring's size are kept; EXT_ARG: wait
	 * with a time-out without a timeout entry. */
	if (!(p.features & IORING_FEAT_NODROP) ||
	    !(p.features & IORING_FEAT_EXT_ARG))
		return -ENOSYS;
	return 0;
}

int loop_create(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	list_init(&l->ops);
	pthread_mutex_init(&l->calls_lock, NULL);
	l->calls_last = &l->calls;
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = l->wake_fd < 0 ? -errno : ring_open(l);
	if (!rc) {
		l->wake.fn = on_wake;
		l->wake.fd = l->wake_fd;
		l->wake.events = POLLIN;
		rc = loop_watch_add(l, &l->wake);
	}
	if (!rc) {
		rc = pool_init(&l->pool);
		l->has_pool = !rc;
	}
	if (rc) {
		loop_destroy(l);
		return rc;
	}
	*ret = l;
	return 0;
}

void loop_destroy(struct loop *l)
{
	if (!l)
		return;
	if (l->has_pool)
		pool_finish(&l->pool);
	while (l->calls)
		run_calls(l);
	if (l->has_ring)
		io_uring_queue_exit(&l->ring);
	while (!list_is_empty(&l->ops)) {
		struct watch_op *op =
			container_of(l->ops.next, struct watch_op, node);

		if (op->w)
			op->w->op = NULL;
		op_free(op);
	}
	if (l->wake_fd >= 0)
		close(l->wake_fd);
	pthread_mutex_destroy(&l->calls_lock);
	free(l->timers.t);
	free(l);
}

void loop_stop(struct loop *l)
{
	atomic_store(&l->is_stopped, true);
	wake_up(l);
}

/* Milliseconds until the next timer; -1 = none. */
static int64_t wait_ms(const struct loop *l)
{
	int64_t left = -1;

	if (l->timers.n) {
		left = l->timers.t[1]->at_ms - clock_mono_ms();
		if (left < 0)
			left = 0;
	}
	if (clock_is_movable() && (left < 0 || left > LOOP_MOVABLE_WAIT_MS))
		left = LOOP_MOVABLE_WAIT_MS;
	return left;
}

int loop_run(struct loop *l)
{
	while (!atomic_load(&l->is_stopped)) {
		int64_t ms = wait_ms(l);
		struct __kernel_timespec ts = {
			.tv_sec = ms / 1000,
			.tv_nsec = ms % 1000 * 1000000,
		};
		struct io_uring_cqe *cqe;
		int rc = io_uring_submit_and_wait_timeout(
			&l->ring, &cqe, 1, ms < 0 ? NULL : &ts, NULL);

		if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN &&
		    rc != -EBUSY)
			return rc;
		handle_batch(l);
		timer_heap_run(&l->timers, clock_mono_ms());
	}
	atomic_store(&l->is_stopped, false);
	return 0;
}
