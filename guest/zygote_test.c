/*
 * The zygote's dealings with init: asked, obeyed, dead, and spoken for by user
 * code.  The test is zygote, runners and nest at once; no process is started.
 */
#include "dying.h"
#include "refill.h"
#include "session_fixture.h"
#include "zygote.c"
#include <sys/wait.h>

#define RUNNERS_WAITING 3

struct family {
	struct fixture *f;
	struct command *zygote;
	int control, nest; /* the zygote's end, the nest's end */
};

static struct family family(struct fixture *f)
{
	struct family y = {.f = f};
	struct guest *g = &f->g;
	int pair[2];

	g->phase = PHASE_BOUND;
	g->prepare.runner = RUNNER_PYTHON;
	g->zygote.runners = RUNNERS_WAITING;
	g->cg.n_slots = 2; /* without files: nothing may be written to them */
	for (int i = 0; i < 2; i++)
		g->cg.slots[i].kill = g->cg.slots[i].cpu = -1;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	g->nest.watch.fd = pair[0];
	y.nest = pair[1];
	y.zygote = command_new(g, CMD_RUNNER, 0);
	assert_non_null(y.zygote);
	assert_int_equal(runner_channel_make(y.zygote, &y.control), 0);
	y.zygote->is_zygote = y.zygote->is_in_prep = true;
	y.zygote->state = CMD_RUNNING;
	y.zygote->done = zygote_ended;
	g->zygote.c = y.zygote;
	return y;
}

static void family_finish(struct family *y)
{
	fd_close(&y->control);
	fd_close(&y->nest);
	fd_close(&y->f->g.nest.watch.fd);
}

static void never(struct command *c)
{
	fail_msg("command %llu ended", (unsigned long long)c->tag);
}

static unsigned n_ended;

static void count(struct command *c)
{
	(void)c;
	n_ended++;
}

/* A runner was asked for: the command, and what the zygote got. */
static struct command *asked(struct family *y, struct runner_request *ret,
			     int fds[3])
{
	size_t n = 3;

	assert_int_equal(
		fd_recv(y->control, ret, sizeof(*ret), fds, &n, MSG_DONTWAIT),
		sizeof(*ret));
	assert_int_equal(n, 3);
	assert_int_equal(ret->kind, RUNNER_REQUEST_FORK);
	return command_by_tag(&y->f->g, ret->tag);
}

static struct command *ask(struct family *y, void (*done)(struct command *c),
			   struct runner_request *ret, int fds[3])
{
	assert_int_equal(zygote_ask(&y->f->g, done), 0);
	return asked(y, ret, fds);
}

static void fds_close(int fds[3])
{
	for (int i = 0; i < 3; i++)
		fd_close(&fds[i]);
}

static void take(struct command *c)
{
	assert_int_equal(runner_message_take(c), 1);
}

static struct nest_ask nest_asked(struct family *y)
{
	struct nest_ask a = {0};

	assert_int_equal(recv(y->nest, &a, sizeof(a), MSG_DONTWAIT), sizeof(a));
	return a;
}

static void a_fork_becomes_a_waiting_runner(void **state)
{
	struct family y = family(*state);
	struct guest *g = &y.f->g;
	struct runner_request h;
	struct nest_ask a;
	struct command *c;
	int fds[3];

	assert_true(zygote_is_wanted(g));
	/* Not before it says that it waits; then at once. */
	assert_int_equal(zygote_ask(g, never), 0);
	assert_int_equal(g->commands.n, 1);
	g->zygote.is_ready = true;
	c = ask(&y, never, &h, fds);
	assert_int_equal(c->state, CMD_STARTING);
	assert_true(c->is_forked && c->is_in_prep && c->slot == 0);
	put_message(c, RUNNER_BORN, 77, "", 0);
	put_message(c, RUNNER_WAITING, 0, "", 0);
	take(c);
	assert_int_equal(c->state, CMD_RUNNING);
	a = nest_asked(&y);
	assert_int_equal(a.type, NEST_FOSTER);
	assert_int_equal(a.pid, 77);
	assert_int_equal(a.tag, c->tag);
	take(c);
	assert_int_equal(c->state, CMD_WARM);
	a = nest_asked(&y);
	assert_int_equal(a.type, NEST_MOVE);
	assert_int_equal(a.pid, 77);
	/* Its streams are those that the zygote was given. */
	assert_int_equal(write(fds[0], "x", 1), 1);
	pipes_visit(c, 0);
	assert_int_equal(c->out[0].total, 1);
	/* The zygote itself is not a runner that waits. */
	assert_int_equal(runner_count(g), 1);
	c->state = CMD_ENDED;
	assert_int_equal(runner_count(g), 0);
	fds_close(fds);
	family_finish(&y);
}

static void its_end_is_told_by_the_zygote(void **state)
{
	static const int32_t killed = SIGKILL;
	struct family y = family(*state);
	struct runner_request h;
	struct command *c, *other;
	int fds[3];

	y.f->g.zygote.is_ready = true;
	n_ended = 0;
	c = ask(&y, count, &h, fds);
	fds_close(fds);
	put_message(c, RUNNER_BORN, 77, "", 0);
	take(c);
	put_message(y.zygote, RUNNER_DIED, (uint32_t)c->tag,
		    (const char *)&killed, sizeof(killed));
	take(y.zygote);
	assert_int_equal(c->state, CMD_ENDED);
	assert_int_equal(c->status, SIGKILL);
	assert_int_equal(n_ended, 1);
	/* One that ends before it was born is not waited for. */
	other = ask(&y, count, &h, fds);
	fds_close(fds);
	put_message(y.zygote, RUNNER_DIED, (uint32_t)other->tag,
		    (const char *)&killed, sizeof(killed));
	take(y.zygote);
	assert_int_equal(other->state, CMD_ENDED);
	assert_int_equal(n_ended, 2);
	family_finish(&y);
}

static void a_zygote_that_ends_is_replaced_once(void **state)
{
	struct family y = family(*state);
	struct guest *g = &y.f->g;
	struct runner_request h;
	struct command *c;
	int fds[3];

	g->zygote.is_ready = true;
	n_ended = 0;
	c = ask(&y, count, &h, fds);
	fds_close(fds);
	y.zygote->has_exited = true;
	command_event(y.zygote, EV_EXIT);
	assert_int_equal(y.zygote->state, CMD_ENDED);
	assert_int_equal(c->state, CMD_ENDED);
	assert_int_equal(n_ended, 1);
	assert_null(g->zygote.c);
	assert_true(g->refill.is_set);
	assert_true(zygote_is_wanted(g));
	g->zygote.ends++;
	assert_false(zygote_is_wanted(g));
	family_finish(&y);
}

/* User code has the uid of the zygote and a channel of its own. */
static void what_is_not_its_to_say(void **state)
{
	static const int32_t zero;
	struct family y = family(*state);
	struct runner_request h;
	struct command *c, *run;
	int fds[3];

	y.f->g.zygote.is_ready = true;
	c = ask(&y, never, &h, fds);
	fds_close(fds);
	run = command_new(&y.f->g, CMD_RUNNER, 5);
	run->state = CMD_RUNNING;
	put_message(run, RUNNER_DIED, (uint32_t)c->tag, (const char *)&zero, 4);
	put_message(run, RUNNER_BORN, 1, "", 0);
	put_message(run, RUNNER_WAITING, 0, "", 0);
	for (int i = 0; i < 3; i++)
		take(run);
	assert_int_equal(run->state, CMD_RUNNING);
	assert_int_equal(run->pid, 0);
	assert_int_equal(c->state, CMD_STARTING);
	/* Twice born; a status of the wrong size; nobody's tag. */
	put_message(c, RUNNER_BORN, 77, "", 0);
	put_message(c, RUNNER_BORN, 78, "", 0);
	take(c);
	take(c);
	assert_int_equal(c->pid, 77);
	put_message(y.zygote, RUNNER_DIED, (uint32_t)c->tag, "123", 3);
	put_message(y.zygote, RUNNER_DIED, 4711, (const char *)&zero, 4);
	put_message(y.zygote, RUNNER_DIED, (uint32_t)run->tag,
		    (const char *)&zero, 4);
	for (int i = 0; i < 3; i++)
		take(y.zygote);
	assert_int_equal(c->state, CMD_RUNNING);
	assert_int_equal(run->state, CMD_RUNNING);
	c->done = NULL;
	family_finish(&y);
}

/* Before READY: forks until the set is whole, one after another. */
static void the_set_waits_in_the_snapshot(void **state)
{
	struct family y = family(*state);
	struct guest *g = &y.f->g;
	struct command *first = command_new(g, CMD_RUNNER, 0);
	struct runner_request h;
	int fds[3];

	g->phase = PHASE_PREPARING;
	first->state = CMD_WARM;
	prepare_waits(g); /* the zygote is on its way */
	assert_false(g->prepare.settle.is_set);
	put_message(y.zygote, RUNNER_WAITING, 0, "", 0);
	take(y.zygote);
	for (unsigned n = 1; n < RUNNERS_WAITING; n++) {
		struct command *c = asked(&y, &h, fds);
		struct nest_tell moved = {.type = NEST_MOVED, .tag = h.tag};

		assert_int_equal(runner_count(g), n + 1);
		fds_close(fds);
		put_message(c, RUNNER_BORN, 77, "", 0);
		put_message(c, RUNNER_WAITING, 0, "", 0);
		take(c);
		take(c);
		assert_false(g->prepare.settle.is_set);
		command_on_tell(g, &moved);
	}
	assert_true(g->prepare.settle.is_set);
	family_finish(&y);
}

/* A run is for one that lives, whatever its channel looks like. */
static void a_killed_one_gets_no_run(void **state)
{
	static const uint8_t run[] = {0xa1, 0x01, 0x41, 'x'};
	struct family y = family(*state);
	struct guest *g = &y.f->g;
	struct command *killed = command_new(g, CMD_RUNNER, 0);
	struct command *lives = command_new(g, CMD_RUNNER, 0);
	int theirs[2];
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	killed->state = lives->state = CMD_WARM;
	assert_int_equal(runner_channel_make(killed, &theirs[0]), 0);
	assert_int_equal(runner_channel_make(lives, &theirs[1]), 0);
	killed->stat_fd = process_stat_open(pid);
	lives->stat_fd = process_stat_open(getpid());
	kill(pid, SIGKILL);
	send_frame(y.f, GP_RUN, 1, run, sizeof(run));
	assert_int_equal(killed->number, 0);
	assert_int_equal(lives->number, 1);
	assert_int_equal(lives->state, CMD_RUNNING);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	fd_close(&theirs[0]);
	fd_close(&theirs[1]);
	family_finish(&y);
}

/* After a run: at once when none waits, else when the sandbox is idle. */
static void the_set_is_refilled(void **state)
{
	struct family y = family(*state);
	struct guest *g = &y.f->g;
	struct command *first = command_new(g, CMD_RUNNER, 0);
	struct command *exec = command_new(g, CMD_EXEC, 3);
	struct command *run = command_new(g, CMD_RUNNER, 4);
	struct runner_request h;
	int fds[3];

	g->zygote.is_ready = true;
	first->state = CMD_WARM;
	run->state = CMD_ENDED;
	exec->state = CMD_RUNNING;
	refill_soon(exec);
	assert_true(g->refill.is_set);
	assert_true(g->refill.at_ns > loop_now_ns());
	g->refill.fn(&g->refill); /* not while a command runs */
	assert_int_equal(runner_count(g), 1);
	exec->state = CMD_ENDED;
	g->refill.fn(&g->refill);
	assert_int_equal(runner_count(g), 2);
	/* One at a time. */
	refill_now(g);
	assert_int_equal(runner_count(g), 2);
	assert_int_equal(asked(&y, &h, fds)->state, CMD_STARTING);
	fds_close(fds);
	command_by_tag(g, h.tag)->is_over = first->is_over = true;
	exec->state = CMD_RUNNING;
	/* Not beside a run: it would take twice as long. */
	run->state = CMD_RUNNING;
	g->refill.fn(&g->refill);
	assert_int_equal(runner_count(g), 0);
	run->state = CMD_ENDED;
	refill_soon(run);
	assert_true(g->refill.at_ns <= loop_now_ns());
	g->refill.fn(&g->refill);
	assert_int_equal(runner_count(g), 1);
	asked(&y, &h, fds);
	fds_close(fds);
	family_finish(&y);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_fork_becomes_a_waiting_runner),
		TEST(its_end_is_told_by_the_zygote),
		TEST(a_zygote_that_ends_is_replaced_once),
		TEST(what_is_not_its_to_say),
		TEST(the_set_waits_in_the_snapshot),
		TEST(the_set_is_refilled),
		TEST(a_killed_one_gets_no_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
