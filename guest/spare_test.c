/*
 * A spare's dealings with init: taken or not, started, refused, dead.  The test
 * is spare, nest and host at once; no process is started.  That what it becomes
 * is what a start would have made is tests/guest/test_spare.py.
 */
#include "session_fixture.h"
#include "spare.c"
#include <signal.h>
#include <sys/wait.h>

struct made {
	struct fixture *f;
	struct command *spare;
	int theirs; /* the spare's end of its channel */
};

static struct made made(struct fixture *f)
{
	struct made y = {.f = f};
	struct guest *g = &f->g;

	g->phase = PHASE_BOUND;
	g->prepare.runner = RUNNER_PYTHON;
	g->spares.wanted = 1;
	if (g->null_fd < 0)
		g->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	g->nest.is_busy = true; /* what no spare takes is queued, and seen */
	g->cg.n_slots = 1;	/* without files: nothing may be written */
	g->cg.slots[0].state = SLOT_FREE;
	g->cg.slots[0].kill = g->cg.slots[0].cpu = -1;
	g->cg.slots[0].mem_events = g->cg.slots[0].mem_peak = -1;
	take_frame(f); /* HELLO */
	y.spare = command_new(g, CMD_EXEC, 0);
	assert_non_null(y.spare);
	y.spare->is_spare = true;
	y.spare->pid = 77;
	y.spare->state = CMD_WARM;
	y.spare->slot = slot_take(&g->cg);
	assert_int_equal(y.spare->slot, 0);
	assert_int_equal(runner_channel_make(y.spare, &y.theirs), 0);
	return y;
}

static void made_finish(struct made *y)
{
	fd_close(&y->theirs);
	fd_close(&y->f->g.null_fd);
}

/* EXEC of these, from the host. */
static void exec_send(struct fixture *f, uint64_t number,
		      const char *const *argv, const char *input)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct writer w = {.out = &b};
	uint8_t n = 0;

	while (argv[n])
		n++;
	wire_put_map(&w, 1 + (input != NULL));
	assert_int_equal(bytes_append(&b, "\x08", 1), 0);
	n |= 0x80; /* an array of less than 24 */
	assert_int_equal(bytes_append(&b, &n, 1), 0);
	for (; *argv; argv++) {
		_cleanup_bytes_ struct bytes item = {0};
		struct writer one = {.out = &item};

		/* A pair of a map: its key is cut off. */
		wire_put_bytes(&one, 1, *argv, strlen(*argv));
		assert_int_equal(bytes_append(&b, item.data + 1, item.len - 1),
				 0);
	}
	if (input)
		wire_put_bytes(&w, GP_EXEC_STDIN, input, strlen(input));
	send_frame(f, GP_EXEC, number, b.data, b.len);
}

#define EXEC(f, number, input, ...)                                            \
	exec_send(f, number, (const char *const[]){__VA_ARGS__, NULL}, input)

/* What it got: the strings with '|' after each; false: nothing. */
static bool request_read(struct made *y, char *ret, size_t cap, char *ret_input,
			 size_t input_cap)
{
	struct runner_request h;
	size_t n_fds = 1;
	int fd = -1;

	if (fd_recv(y->theirs, &h, sizeof(h), &fd, &n_fds, MSG_DONTWAIT) !=
	    sizeof(h))
		return false;
	assert_int_equal(h.kind, RUNNER_REQUEST_EXEC);
	assert_int_equal(n_fds, 1);
	assert_true(h.code_len < cap);
	assert_int_equal(fd_read_all(y->theirs, ret, h.code_len), 0);
	ret[h.code_len] = '\0';
	assert_int_equal(h.argc, 3);
	for (size_t i = 0; i < h.code_len; i++)
		ret[i] = ret[i] ? ret[i] : '|';
	memset(ret_input, 0, input_cap);
	assert_true(read(fd, ret_input, input_cap - 1) >= 0);
	close(fd);
	return true;
}

static void a_command_becomes_one(void **state)
{
	struct made y = made(*state);
	char text[4096], input[16];
	struct frame fr;

	EXEC(y.f, 5, "in", "python3", "a.py", "x");
	assert_true(request_read(&y, text, sizeof(text), input, sizeof(input)));
	assert_memory_equal(text, "/workspace|python3|a.py|x|PATH=", 31);
	assert_string_equal(input, "in");
	assert_int_equal(y.f->g.commands.n, 1);
	assert_int_equal(y.spare->number, 5);
	assert_int_equal(y.spare->state, CMD_STARTING);
	assert_int_equal(take_frame(y.f).head.type, 0);
	/* Started when its channel is at its end. */
	fd_close(&y.theirs);
	assert_int_equal(loop_turn(&y.f->g.loop), 0);
	link_flush(&y.f->g.link);
	fr = take_frame(y.f);
	assert_int_equal(fr.head.type, GP_STARTED);
	assert_int_equal(fr.head.cmd, 5);
	assert_int_equal(y.spare->state, CMD_RUNNING);
	assert_true(y.spare->deadline.is_set);
	made_finish(&y);
}

static void not_without_one(void **state)
{
	struct made y = made(*state);
	char text[4096], input[16];

	EXEC(y.f, 4, NULL, "perl", "a.py", "x");
	EXEC(y.f, 5, NULL, "python3", "-u", "a.py");
	EXEC(y.f, 6, NULL, "python3", "-c");
	EXEC(y.f, 7, NULL, "python3", "-I");
	EXEC(y.f, 8, NULL, "python3", "--version");
	y.spare->is_in_prep = true;
	EXEC(y.f, 9, NULL, "python3", "a.py", "x");
	y.spare->is_in_prep = false;
	y.spare->has_exited = true;
	EXEC(y.f, 10, NULL, "python3", "a.py", "x");
	assert_false(
		request_read(&y, text, sizeof(text), input, sizeof(input)));
	assert_int_equal(y.f->g.commands.n, 8);
	y.spare->has_exited = false;
	EXEC(y.f, 11, NULL, "/usr/bin/python", "-c", "1");
	assert_true(request_read(&y, text, sizeof(text), input, sizeof(input)));
	EXEC(y.f, 12, NULL, "python3", "a.py", "x"); /* it is taken */
	assert_int_equal(y.f->g.commands.n, 9);
	made_finish(&y);
}

static void long_ones_are_left_to_exec(void **state)
{
	static char text[SPARE_STRINGS_BYTES_MAX + 1];
	struct made y = made(*state);
	char input[16];

	memset(text, 'x', SPARE_STRINGS_BYTES_MAX);
	EXEC(y.f, 5, NULL, "python3", "-c", text);
	assert_int_equal(y.spare->number, 0);
	text[SPARE_STRINGS_BYTES_MAX / 2] = '\0';
	EXEC(y.f, 6, NULL, "python3", "-c", text);
	assert_int_equal(y.spare->number, 6);
	assert_true(request_read(&y, text, sizeof(text), input, sizeof(input)));
	made_finish(&y);
}

static void its_failure_is_the_commands(void **state)
{
	struct made y = made(*state);
	struct frame fr;

	EXEC(y.f, 5, NULL, "python3", "a.py", "x");
	put_message(y.spare, RUNNER_FAILED, ENOENT, "cwd", 3);
	assert_int_equal(runner_message_take(y.spare), 1);
	link_flush(&y.f->g.link);
	fr = take_frame(y.f);
	assert_int_equal(ended_how(&fr), GP_END_NOT_STARTED);
	assert_non_null(memmem(fr.payload, fr.head.len, "cwd: ENOENT", 11));
	assert_int_equal(take_frame(y.f).head.type, 0);
	made_finish(&y);
}

/* User code has its uid: killed before it was taken. */
static void death_of_one(void **state)
{
	struct made y = made(*state);

	fd_close(&y.theirs);
	EXEC(y.f, 4, NULL, "python3", "a.py", "x");
	assert_int_equal(y.spare->number, 0); /* its channel is broken */
	made_finish(&y);
}

/* Killed before, as its process shows, and its channel does not. */
static void what_was_killed_is_not_asked(void **state)
{
	struct made y = made(*state);
	char text[4096], input[16];
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	y.spare->stat_fd = process_stat_open(pid);
	assert_true(y.spare->stat_fd >= 0);
	kill(pid, SIGKILL);
	EXEC(y.f, 4, NULL, "python3", "a.py", "x");
	assert_int_equal(y.spare->number, 0);
	assert_int_equal(y.spare->state, CMD_WARM);
	assert_false(
		request_read(&y, text, sizeof(text), input, sizeof(input)));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	made_finish(&y);
}

/* Killed before, and the kernel was still at its memory: its channel was not
 * broken yet. */
static void dies_unread(struct fixture *f, bool is_told_first)
{
	struct made y = made(f);
	struct guest *g = &f->g;
	struct nest_tell gone = {
		.type = NEST_EXITED, .tag = y.spare->tag, .status = SIGKILL};
	struct command *c;

	EXEC(f, 5, "in", "python3", "a.py", "x");
	assert_int_equal(y.spare->number, 5);
	if (is_told_first)
		command_on_tell(g, &gone);
	assert_int_equal(y.spare->state, CMD_STARTING);
	fd_close(&y.theirs);
	assert_int_equal(loop_turn(&g->loop), 0);
	link_flush(&g->link);
	assert_int_equal(take_frame(f).head.type, 0);
	assert_true(y.spare->is_over);
	assert_int_equal(g->cg.slots[0].state, SLOT_LEFT);
	commands_sweep(g);
	if (!is_told_first)
		command_on_tell(g, &gone);
	assert_int_equal(g->commands.n, 1);
	c = command_by_number(g, 5);
	assert_non_null(c);
	assert_false(c->is_spare);
	assert_int_equal(c->state, CMD_QUEUED);
	made_finish(&y);
}

static void what_a_dying_one_got_is_asked_for_again(void **state)
{
	dies_unread(*state, false);
}

static void also_when_its_end_is_told_before(void **state)
{
	dies_unread(*state, true);
}

/* Killed before, and so was the one that gets it next. */
static void two_that_die(void **state)
{
	struct made y = made(*state);
	struct guest *g = &y.f->g;
	char text[4096], input[16];

	EXEC(y.f, 5, "in", "python3", "a.py", "x");
	for (int i = 0; i < 2; i++) {
		struct made next = made(y.f);

		assert_int_equal(y.spare->number, 5);
		fd_close(&y.theirs);
		y = next;
		assert_int_equal(loop_turn(&g->loop), 0);
		commands_sweep(g);
	}
	assert_true(request_read(&y, text, sizeof(text), input, sizeof(input)));
	assert_memory_equal(text, "/workspace|python3|a.py|x|PATH=", 31);
	assert_string_equal(input, "in");
	fd_close(&y.theirs);
	assert_int_equal(loop_turn(&g->loop), 0);
	link_flush(&g->link);
	assert_int_equal(take_frame(y.f).head.type, GP_STARTED);
	assert_int_equal(y.spare->number, 5);
	assert_int_equal(g->commands.n, 1);
	made_finish(&y);
}

/* Killed after it had read: that was the command. */
static void death_of_what_has_begun(void **state)
{
	struct made y = made(*state);
	struct nest_tell gone = {
		.type = NEST_EXITED, .tag = y.spare->tag, .status = SIGKILL};
	char text[4096], input[16];

	EXEC(y.f, 5, NULL, "python3", "a.py", "x");
	assert_true(request_read(&y, text, sizeof(text), input, sizeof(input)));
	command_on_tell(&y.f->g, &gone);
	assert_int_equal(y.spare->state, CMD_STARTING);
	fd_close(&y.theirs);
	assert_int_equal(loop_turn(&y.f->g.loop), 0);
	link_flush(&y.f->g.link);
	assert_int_equal(take_frame(y.f).head.type, GP_STARTED);
	assert_true(y.spare->state > CMD_RUNNING);
	made_finish(&y);
}

static void it_is_given_up_where_none_ever_waits(void **state)
{
	struct made y = made(*state);
	struct guest *g = &y.f->g;

	assert_false(spare_is_wanted(g)); /* one waits */
	y.spare->is_in_prep = true;
	y.spare->state = CMD_RUNNING;
	assert_true(spare_is_coming(g));
	y.spare->is_over = true;
	assert_false(spare_is_coming(g));
	for (int i = 0; i < ENDS_MAX; i++) {
		assert_true(spare_is_wanted(g));
		spare_ended(y.spare);
	}
	assert_false(spare_is_wanted(g));
	made_finish(&y);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_command_becomes_one),
		TEST(not_without_one),
		TEST(long_ones_are_left_to_exec),
		TEST(its_failure_is_the_commands),
		TEST(death_of_one),
		TEST(what_was_killed_is_not_asked),
		TEST(what_a_dying_one_got_is_asked_for_again),
		TEST(also_when_its_end_is_told_before),
		TEST(two_that_die),
		TEST(death_of_what_has_begun),
		TEST(it_is_given_up_where_none_ever_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
