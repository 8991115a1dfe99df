/*
 * kill -9 at random moments (hardening L1): a child writes runs and tells each
 * acknowledged step through a pipe; it is killed, the database is opened by
 * the next child and by the parent, and everything told must be there.
 *
 * Many rounds on one database, so that recovery meets what recovery left.
 */
#include "store_test_util.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define IN_FLIGHT 8 /* runs at once in the child */

static unsigned seed;

enum step { STEP_BEGUN = 1, STEP_ENDED = 2 };
struct told {
	int n;
	enum step step;
};

/* ---- child ------------------------------------------------------------------
 */

struct child {
	struct fixture *f;
	int out;
	int next;
};

struct child_run {
	struct child *c;
	int n;
};

static void begin_next(struct child *c);

static void tell(struct child *c, int n, enum step step)
{
	struct told t = {n, step};

	if (write(c->out, &t, sizeof(t)) != sizeof(t))
		_exit(3);
}

static void on_ended(void *ctx, int rc)
{
	struct child_run *r = ctx;

	if (rc)
		_exit(4);
	tell(r->c, r->n, STEP_ENDED);
	begin_next(r->c);
	free(r);
}

static void on_begun(void *ctx, int rc, const struct store_found *found)
{
	struct child_run *r = ctx;
	struct sandbox_rec s = sandbox_of(r->n);
	struct command_rec c = command_of(r->n);
	char out[2000];

	if (rc || found->is_found)
		_exit(5);
	tell(r->c, r->n, STEP_BEGUN);
	s.status = SBX_DESTROYED;
	s.ended_ms = 1;
	c.status = CMD_SUCCEEDED;
	c.ended_ms = 1;
	c.out[1].total = sizeof(out);
	memset(out, r->n & 0xff, sizeof(out));
	bytes_append(&c.out[1].head, out, sizeof(out));
	if (store_update(r->c->f->store, &s, &c, true, on_ended, r))
		_exit(6);
	command_rec_finish(&c);
}

static void begin_next(struct child *c)
{
	struct child_run *r = calloc(1, sizeof(*r));
	struct sandbox_rec s = sandbox_of(c->next);
	struct command_rec cmd = command_of(c->next);
	char key[16];
	struct store_begin b = {"env_a", "main", "run", key, {1, 2, 3}};

	r->c = c;
	r->n = c->next++;
	snprintf(key, sizeof(key), "k%d", r->n);
	if (store_run_begin(c->f->store, &b, &s, &cmd, on_begun, r))
		_exit(7);
	command_rec_finish(&cmd);
}

static void child_main(const char *dir, int out, int first)
{
	struct fixture f = {0};
	struct child c = {.f = &f, .out = out, .next = first};
	struct err e;
	unsigned n_lost;

	snprintf(f.dir, sizeof(f.dir), "%s", dir);
	if (loop_create(&f.loop) || store_open(&f.store, f.loop, f.dir, &e) ||
	    store_recover(f.store, "boot-1", 1, &n_lost, &e))
		_exit(2);
	for (int i = 0; i < IN_FLIGHT; i++)
		begin_next(&c);
	loop_run(f.loop);
	_exit(8);
}

/* ---- parent
 * ------------------------------------------------------------------ */

#define RUNS_MAX 20000
#define ROUNDS	 (is_long_run() ? 100 : 30)

static uint8_t *steps; /* of each run: what was told */
static int n_runs;

/* What the child told before it died; false: it died by itself. */
static void collect(int in, int killer_ms, pid_t pid)
{
	struct pollfd p = {.fd = in, .events = POLLIN};
	struct told t;
	int status;
	bool is_killed = false;
	int left_ms = killer_ms;

	for (;;) {
		int rc = poll(&p, 1, is_killed ? -1 : left_ms);

		if (!rc) {
			kill(pid, SIGKILL);
			is_killed = true;
			continue;
		}
		if (read(in, &t, sizeof(t)) != sizeof(t))
			break;
		if (t.n < RUNS_MAX && steps[t.n] < t.step)
			steps[t.n] = (uint8_t)t.step;
		if (t.n >= n_runs)
			n_runs = t.n + 1;
		/* Each message shortens the rest a little: time passes. */
		if (!is_killed && left_ms > 0 && !(rand_r(&seed) % 8))
			left_ms--;
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status))
		fail_msg("seed=%u: the child ended with %d", seed,
			 WEXITSTATUS(status));
}

static void check_run(struct fixture *f, int n)
{
	struct answer a;

	answer_init(&a, f);
	store_run_get(f->store, "env_a", "main", sandbox_of(n).command, true,
		      on_run, &a);
	answer_wait(&a, 1);
	if (a.rc)
		fail_msg("seed=%u run %d, told %d: %s", seed, n, steps[n],
			 strerror(-a.rc));
	if (steps[n] == STEP_ENDED) {
		assert_int_equal(a.cmd.status, CMD_SUCCEEDED);
		assert_int_equal(a.sbx.status, SBX_DESTROYED);
		assert_int_equal(a.cmd.out[1].head.len, 2000);
		assert_int_equal(a.cmd.out[1].head.data[1999], n & 0xff);
	} else if (a.cmd.status != CMD_SUCCEEDED) {
		assert_int_equal(a.cmd.status, CMD_LOST);
		assert_int_equal(a.sbx.status, SBX_LOST);
	}
	answer_finish(&a);
}

static void check_all(struct fixture *f, int from)
{
	struct err e;
	unsigned n_lost;

	fixture_open(f);
	assert_int_equal(store_recover(f->store, "boot-1", 1, &n_lost, &e), 0);
	for (int n = from; n < n_runs; n++)
		if (steps[n])
			check_run(f, n);
	fixture_close(f);
	/* Nothing half: each key has its command, each command its key. */
	assert_int_equal(raw_number(f, "SELECT count(*) FROM command c FULL"
				       " JOIN idempotency i ON i.command ="
				       " c.id WHERE c.id IS NULL OR i.command"
				       " IS NULL"),
			 0);
	assert_int_equal(raw_number(f, "SELECT integrity_check = 'ok' FROM"
				       " pragma_integrity_check"),
			 1);
}

/* Kill it ROUNDS times on one database. */
static int one_database(void)
{
	struct fixture f;
	int from = 0, told = 0, first = 0;

	fixture_init(&f);
	steps = calloc(RUNS_MAX, 1);
	n_runs = 0;
	for (int i = 0; i < ROUNDS; i++) {
		int fd[2];
		pid_t pid;

		assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
		/* Numbers that a kill left without word are not used again. */
		first = (n_runs > first ? n_runs : first) + IN_FLIGHT + 1;
		assert_true(first < RUNS_MAX / 2);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid) {
			close(fd[0]);
			child_main(f.dir, fd[1], first);
		}
		close(fd[1]);
		collect(fd[0], rand_r(&seed) % 60, pid);
		close(fd[0]);
		/* Mostly the next child recovers; sometimes all is read. */
		if (i % 10 == 9) {
			check_all(&f, from);
			from = n_runs;
		}
	}
	check_all(&f, 0);
	for (int n = 0; n < n_runs; n++)
		told += steps[n] != 0;
	free(steps);
	fixture_finish(&f);
	return told;
}

static void nothing_told_is_lost(void **state)
{
	int n = is_long_run() ? 20 : 1, told = 0;

	(void)state;
	for (int i = 0; i < n; i++)
		told += one_database();
	print_message("# count=%d kills, %d runs told\n", n * ROUNDS, told);
	assert_true(told > n);
}

int main(void)
{
	const char *given = getenv("HUTCH_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_told_is_lost),
	};

	seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
	print_message("# seed=%u (HUTCH_SEED)\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
