/* Tests of the loop: level watches, removal in callbacks, timers, threads. */
#include "clock.h"
#include "loop.c"
#include "loop_timer.c"
#include "loop_work.c"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>

#include <cmocka.h>

static struct loop *loop;

static int setup(void **state)
{
	(void)state;
	return loop_create(&loop);
}

static int teardown(void **state)
{
	(void)state;
	loop_destroy(loop);
	return 0;
}

static void stop_now(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

static void on_stop_timer(struct loop_timer *t)
{
	(void)t;
	loop_stop(loop);
}

/* Run the loop for about `ms`. */
static void run_for(int64_t ms)
{
	struct loop_timer t = {.fn = on_stop_timer};

	assert_int_equal(loop_timer_set(loop, &t, ms), 0);
	assert_int_equal(loop_run(loop), 0);
}

/* Run the loop until *n is `want`, however slow the machine, then a little
 * more: nothing may follow. */
static void run_until(const int *n, int want)
{
	for (int i = 0; i < 1000 && *n < want; i++)
		run_for(2);
	run_for(5);
}

struct counted {
	struct loop_watch w;
	int n_calls, stop_at, n_read;
	uint32_t last;
	struct counted *victim;
};

static void count(struct loop_watch *w, uint32_t revents)
{
	struct counted *c = container_of(w, struct counted, w);
	char buf[16];

	c->n_calls++;
	c->last = revents;
	for (int i = 0; i < c->n_read; i++)
		assert_true(read(w->fd, buf, 1) >= 0);
	if (c->n_calls == c->stop_at)
		loop_watch_remove(loop, w);
}

static void level_fires_until_drained(void **state)
{
	struct counted c = {.w = {.fn = count, .events = POLLIN}, .n_read = 1};
	int fd[2];

	(void)state;
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	c.w.fd = fd[0];
	assert_int_equal(write(fd[1], "abcdef", 6), 6);
	assert_int_equal(loop_watch_add(loop, &c.w), 0);
	run_until(&c.n_calls, 6);
	assert_int_equal(c.n_calls, 6); /* one byte a call, no new wake-up */
	assert_int_equal(write(fd[1], "gh", 2), 2);
	run_until(&c.n_calls, 8);
	assert_int_equal(c.n_calls, 8);
	loop_watch_remove(loop, &c.w);
	assert_int_equal(write(fd[1], "i", 1), 1);
	run_for(10);
	assert_int_equal(c.n_calls, 8);
	close(fd[0]);
	close(fd[1]);
}

static void undrained_fires_again(void **state)
{
	struct counted c = {.w = {.fn = count, .events = POLLIN},
			    .stop_at = 1000};
	int fd[2];

	(void)state;
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	c.w.fd = fd[0];
	assert_int_equal(write(fd[1], "x", 1), 1);
	assert_int_equal(loop_watch_add(loop, &c.w), 0);
	run_until(&c.n_calls, 1000);
	assert_int_equal(c.n_calls, 1000); /* and removed itself */
	close(fd[0]);
	close(fd[1]);
}

static void hang_up_is_told(void **state)
{
	struct counted c = {.w = {.fn = count, .events = POLLIN}, .stop_at = 1};
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd),
			 0);
	c.w.fd = fd[0];
	assert_int_equal(loop_watch_add(loop, &c.w), 0);
	close(fd[1]);
	run_until(&c.n_calls, 1);
	assert_int_equal(c.n_calls, 1);
	assert_true(c.last & POLLHUP);
	close(fd[0]);
}

static void mod_pauses_and_changes(void **state)
{
	struct counted c = {.w = {.fn = count, .events = POLLIN}, .n_read = 1};
	int fd[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd),
			 0);
	c.w.fd = fd[0];
	assert_int_equal(loop_watch_add(loop, &c.w), 0);
	assert_int_equal(loop_watch_mod(loop, &c.w, 0), 0);
	assert_int_equal(write(fd[1], "x", 1), 1);
	run_for(10);
	assert_int_equal(c.n_calls, 0);
	assert_int_equal(loop_watch_mod(loop, &c.w, POLLIN), 0);
	run_until(&c.n_calls, 1);
	assert_int_equal(c.n_calls, 1);
	c.n_read = 0;
	c.stop_at = 2;
	assert_int_equal(loop_watch_mod(loop, &c.w, POLLOUT), 0);
	run_until(&c.n_calls, 2);
	assert_int_equal(c.n_calls, 2);
	assert_true(c.last & POLLOUT);
	assert_int_equal(loop_watch_mod(loop, &c.w, POLLIN), -ENOENT);
	close(fd[0]);
	close(fd[1]);
}

/* Two watches ready in one batch; the first removes and frees the second. */
static void kill_victim(struct loop_watch *w, uint32_t revents)
{
	struct counted *c = container_of(w, struct counted, w);

	(void)revents;
	c->n_calls++;
	if (c->victim) {
		loop_watch_remove(loop, &c->victim->w);
		close(c->victim->w.fd);
		free(c->victim);
		c->victim = NULL;
	}
	loop_watch_remove(loop, w);
}

static void remove_of_another(void **state)
{
	(void)state;
	for (int round = 0; round < 50; round++) {
		struct counted *a = calloc(1, sizeof(*a));
		struct counted *b = calloc(1, sizeof(*b));
		int fd[2];

		assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
		assert_int_equal(write(fd[1], "x", 1), 1);
		a->w = (struct loop_watch){
			.fn = kill_victim, .events = POLLIN, .fd = fd[0]};
		b->w = (struct loop_watch){
			.fn = kill_victim, .events = POLLIN, .fd = dup(fd[0])};
		a->victim = b;
		assert_int_equal(loop_watch_add(loop, &a->w), 0);
		assert_int_equal(loop_watch_add(loop, &b->w), 0);
		run_until(&a->n_calls, 1);
		assert_int_equal(a->n_calls, 1);
		free(a);
		close(fd[0]);
		close(fd[1]);
	}
	assert_true(loop->ops.next->next == &loop->ops); /* only `wake` */
}

static void many_adds_and_removes(void **state)
{
	static struct counted c[2000];
	int fd[2];

	(void)state;
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(write(fd[1], "x", 1), 1);
	for (int i = 0; i < 2000; i++) {
		memset(&c[i], 0, sizeof(c[i]));
		c[i].w = (struct loop_watch){
			.fn = count, .fd = fd[0], .events = POLLIN};
		c[i].stop_at = 3;
		assert_int_equal(loop_watch_add(loop, &c[i].w), 0);
		if (i % 2)
			loop_watch_remove(loop, &c[i].w);
	}
	for (int i = 0; i < 2000; i += 2)
		if (c[i].n_calls < 3)
			run_until(&c[i].n_calls, 3);
	for (int i = 0; i < 2000; i++)
		assert_int_equal(c[i].n_calls, i % 2 ? 0 : 3);
	close(fd[0]);
	close(fd[1]);
}

static void closed_fd_is_told_once(void **state)
{
	struct counted c = {.w = {.fn = count, .events = POLLIN, .fd = 9999}};

	(void)state;
	assert_int_equal(loop_watch_add(loop, &c.w), 0);
	run_until(&c.n_calls, 1);
	assert_int_equal(c.n_calls, 1);
	assert_int_equal(c.last, POLLNVAL);
	loop_watch_remove(loop, &c.w);
	run_for(1);
}

/* ---- timers -------------------------------------------------------------- */

struct ticker {
	struct loop_timer t;
	int n, left;
	int64_t *last_ms; /* of all tickers: must not go back */
	struct ticker *stops;
};

static void tick(struct loop_timer *t)
{
	struct ticker *k = container_of(t, struct ticker, t);

	k->n++;
	if (k->last_ms) {
		assert_true(t->at_ms >= *k->last_ms);
		*k->last_ms = t->at_ms;
	}
	if (k->left-- > 0)
		assert_int_equal(loop_timer_set(loop, t, 0), 0);
	if (k->stops)
		loop_timer_stop(loop, &k->stops->t);
}

static void timers_in_order(void **state)
{
	static struct ticker k[500];
	int64_t last = 0;
	unsigned seed = 7;

	(void)state;
	for (int i = 0; i < 500; i++) {
		k[i] = (struct ticker){.t = {.fn = tick}, .last_ms = &last};
		loop_timer_set(loop, &k[i].t, rand_r(&seed) % 100);
	}
	for (int i = 0; i < 500; i += 5)
		loop_timer_stop(loop, &k[i].t);
	for (int i = 1; i < 500; i += 5) /* set again moves it */
		loop_timer_set(loop, &k[i].t, rand_r(&seed) % 100);
	run_for(150);
	for (int i = 0; i < 500; i++) {
		assert_int_equal(k[i].n, i % 5 != 0);
		assert_int_equal(k[i].t.heap_idx, 0);
	}
}

static void timer_sets_itself(void **state)
{
	struct ticker k = {.t = {.fn = tick}, .left = 5};
	struct ticker other = {.t = {.fn = tick}};
	struct ticker stopper = {.t = {.fn = tick}, .stops = &other};

	(void)state;
	loop_timer_set(loop, &k.t, 0);
	loop_timer_set(loop, &stopper.t, 1);
	loop_timer_set(loop, &other.t, 1);
	run_until(&k.n, 6);
	assert_int_equal(k.n, 6);
	assert_true(other.n + stopper.n >= 1);
	assert_int_equal(other.t.heap_idx, 0);
	loop_timer_stop(loop, &k.t); /* stopping a stopped one is harmless */
}

/* ---- threads ------------------------------------------------------------- */

static int next_expected;
static void in_order(void *arg)
{
	assert_int_equal((int)(intptr_t)arg, next_expected);
	next_expected++;
}

static void *poster(void *arg)
{
	(void)arg;
	for (int i = 0; i < 10000; i++)
		loop_post(loop, in_order, (void *)(intptr_t)i);
	loop_post(loop, stop_now, NULL);
	return NULL;
}

static void posts_are_fifo(void **state)
{
	pthread_t t;

	(void)state;
	next_expected = 0;
	assert_int_equal(pthread_create(&t, NULL, poster, NULL), 0);
	assert_int_equal(loop_run(loop), 0);
	pthread_join(t, NULL);
	assert_int_equal(next_expected, 10000);
}

struct job {
	pthread_t ran_on;
	int n_done;
};
static int jobs_left;

static void job_fn(void *arg)
{
	struct job *j = arg;

	j->ran_on = pthread_self();
}

static void job_done(void *arg)
{
	struct job *j = arg;

	assert_false(pthread_equal(j->ran_on, pthread_self()));
	j->n_done++;
	if (!--jobs_left)
		loop_stop(loop);
}

static void work_runs_elsewhere(void **state)
{
	static struct job jobs[200];

	(void)state;
	jobs_left = 200;
	for (int i = 0; i < 200; i++)
		assert_int_equal(loop_work(loop, job_fn, job_done, &jobs[i]),
				 0);
	assert_int_equal(loop_run(loop), 0);
	for (int i = 0; i < 200; i++)
		assert_int_equal(jobs[i].n_done, 1);
}

static void destroy_finishes_work(void **state)
{
	static struct job jobs[50];

	(void)state;
	jobs_left = 51;
	for (int i = 0; i < 50; i++)
		assert_int_equal(loop_work(loop, job_fn, job_done, &jobs[i]),
				 0);
	loop_destroy(loop);
	for (int i = 0; i < 50; i++)
		assert_int_equal(jobs[i].n_done, 1);
	assert_int_equal(loop_create(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(level_fires_until_drained),
		cmocka_unit_test(undrained_fires_again),
		cmocka_unit_test(hang_up_is_told),
		cmocka_unit_test(mod_pauses_and_changes),
		cmocka_unit_test(remove_of_another),
		cmocka_unit_test(many_adds_and_removes),
		cmocka_unit_test(closed_fd_is_told_once),
		cmocka_unit_test(timers_in_order),
		cmocka_unit_test(timer_sets_itself),
		cmocka_unit_test(posts_are_fifo),
		cmocka_unit_test(work_runs_elsewhere),
		cmocka_unit_test(destroy_finishes_work),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
