/* Living, dying and dead children, on this host's kernel. */
#include "dying.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

static void nap_ms(long ms)
{
	struct timespec t = {.tv_nsec = ms * 1000000};

	nanosleep(&t, NULL);
}

static pid_t child(void (*fn)(void))
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		fn();
		_exit(0);
	}
	return pid;
}

static void reap(pid_t pid, int *ret_status)
{
	assert_int_equal(waitpid(pid, ret_status, 0), pid);
}

/* Until it is dead, without reaping it. */
static void wait_dead(pid_t pid)
{
	siginfo_t si;

	assert_int_equal(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
}

static void lives(void)
{
	for (;;)
		pause();
}

static void exits_3(void)
{
	/* A name that looks like the end of the name. */
	prctl(PR_SET_NAME, "a) Z 1 2 3");
	_exit(3);
}

static void is_killed(void)
{
	raise(SIGKILL);
}

static void *lives_on(void *arg)
{
	(void)arg;
	lives();
	return NULL;
}

static void only_first_thread_ends(void)
{
	pthread_t t;

	pthread_create(&t, NULL, lives_on, NULL);
	pthread_exit(NULL);
}

static void alive(void **state)
{
	static void (*const fns[])(void) = {lives, only_first_thread_ends};
	int status;

	(void)state;
	for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++) {
		pid_t pid = child(fns[i]);

		nap_ms(100);
		assert_false(process_is_dying(pid, &status));
		kill(pid, SIGKILL);
		reap(pid, &status);
		assert_int_equal(WTERMSIG(status), SIGKILL);
		/* Nobody has this number now. */
		assert_false(process_is_dying(pid, &status));
	}
}

static void told_to_die(void **state)
{
	pid_t pid = child(lives);
	int fd = process_stat_open(pid), status;

	(void)state;
	assert_true(fd >= 0);
	assert_false(process_was_killed(-1));
	nap_ms(50);
	assert_false(process_was_killed(fd));
	kill(pid, SIGSTOP);
	assert_false(process_was_killed(fd));
	kill(pid, SIGKILL);
	assert_true(process_was_killed(fd));
	wait_dead(pid);
	assert_true(process_was_killed(fd));
	reap(pid, &status);
	assert_true(process_was_killed(fd));
	close(fd);
	assert_int_equal(process_stat_open(pid), -1);
}

static void dead(void **state)
{
	static const struct {
		void (*fn)(void);
		int status;
	} cases[] = {{exits_3, 3 << 8}, {is_killed, SIGKILL}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		pid_t pid = child(cases[i].fn);
		int early = -1, status;

		wait_dead(pid);
		assert_true(process_is_dying(pid, &early));
		reap(pid, &status);
		assert_int_equal(early, status);
		assert_int_equal(status, cases[i].status);
	}
}

/* Twice as large as what a host frees within one look. */
#define LARGE_BYTES (1ull << 30)

static void large_exit(void)
{
	char *p = mmap(NULL, LARGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(1);
	madvise(p, LARGE_BYTES, MADV_NOHUGEPAGE);
	memset(p, 1, LARGE_BYTES);
	_exit(7);
}

static void told_before_wait(void **state)
{
	pid_t pid = child(large_exit);
	int early = -1, status = 0;
	bool was_first = false;

	(void)state;
	for (;;) {
		bool is_dying = process_is_dying(pid, &early);
		pid_t got = waitpid(pid, &status, WNOHANG);

		was_first |= is_dying && got == 0;
		if (got == pid)
			break;
		assert_int_equal(got, 0);
		nap_ms(1);
	}
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 1)
		skip(); /* no gigabyte to be had */
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_true(was_first);
	assert_int_equal(early, status);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alive),
		cmocka_unit_test(told_to_die),
		cmocka_unit_test(dead),
		cmocka_unit_test(told_before_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
