/* Starts of real processes: streams, folder, environment, reasons. */
#include "spawn.c"
#include <linux/close_range.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>

#define SIGNALS 64 /* of the kernel */

// clang-format off
#include <cmocka.h>
// clang-format on

static char *const env[] = {(char[]){"PATH=/nowhere:/usr/bin:/bin"},
			    (char[]){"A=b"}, NULL};

struct result {
	int rc, status;
	struct spawn s;
	char out[4096];
};

/* argv from a NULL-terminated list; standard output is collected. */
static struct result run(const char *const *argv, const char *cwd)
{
	struct result r = {.s = {.argv = (char *const *)(uintptr_t)argv,
				 .env = env,
				 .cwd = cwd,
				 .channel = -1,
				 .cgroup_dir = -1,
				 .uid = -1}};
	int p[2], null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	size_t n = 0;
	ssize_t k;
	pid_t pid;

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	r.s.in = fcntl(null_fd, F_DUPFD_CLOEXEC, 20);
	r.s.out = fcntl(p[1], F_DUPFD_CLOEXEC, 20);
	r.s.err = fcntl(null_fd, F_DUPFD_CLOEXEC, 20);
	close(p[1]);
	close(null_fd);
	r.rc = spawn_run(&r.s, &pid);
	close(r.s.in);
	close(r.s.out);
	close(r.s.err);
	while ((k = read(p[0], r.out + n, sizeof(r.out) - 1 - n)) > 0)
		n += (size_t)k;
	close(p[0]);
	if (!r.rc)
		assert_int_equal(waitpid(pid, &r.status, 0), pid);
	else
		while (waitpid(-1, &r.status, 0) > 0)
			;
	return r;
}

#define RUN(cwd, ...) run((const char *const[]){__VA_ARGS__, NULL}, cwd)

static void output_and_status(void **state)
{
	struct result r = RUN("/", "sh", "-c", "pwd; echo $A; exit 3");

	(void)state;
	assert_int_equal(r.rc, 0);
	assert_string_equal(r.out, "/\nb\n");
	assert_int_equal(WEXITSTATUS(r.status), 3);
}

static void own_session_and_plain_signals(void **state)
{
	static const struct {
		void *handler;
		unsigned long flags;
		void *restorer;
		uint64_t mask;
	} by_default;
	struct result r;

	(void)state;
	/* As PID 1 has them, whatever ran this program ignores or left open:
	 * also the two signals that the C library keeps for itself. */
	close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
	for (int sig = 1; sig <= SIGNALS; sig++)
		syscall(SYS_rt_sigaction, sig, &by_default, NULL, SIGNALS / 8);
	signal(SIGPIPE, SIG_IGN);
	r = RUN("/", "sh", "-c",
		"grep -E '^Sig(Ign|Blk|Cgt)' /proc/self/status; "
		"ls /proc/self/fd | tr '\\n' ' '");
	signal(SIGPIPE, SIG_DFL);
	assert_int_equal(r.rc, 0);
	fprintf(stderr, "%s\n", r.out);
	assert_non_null(strstr(r.out, "SigBlk:\t0000000000000000"));
	assert_non_null(strstr(r.out, "SigIgn:\t0000000000000000"));
	/* The sources were 20 and up: closed by exec. */
	assert_null(strstr(r.out, " 20 "));
	assert_null(strstr(r.out, " 21 "));
	assert_null(strstr(r.out, " 22 "));
}

static void reasons(void **state)
{
	char dir[] = "/tmp/spawn_test.XXXXXX", plain[64], text[64];
	char *huge = malloc(256 << 10);
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(plain, sizeof(plain), "%s/plain", dir);
	snprintf(text, sizeof(text), "%s/text", dir);
	f = fopen(plain, "w");
	fclose(f);
	f = fopen(text, "w");
	fputs("no program\n", f);
	fclose(f);
	chmod(text, 0755);
	memset(huge, 'x', (256 << 10) - 1);
	huge[(256 << 10) - 1] = 0;

	struct result cases[] = {
		RUN("/", "no-such-program"),
		RUN("/", "/no/such/program"),
		RUN("/", plain),
		RUN("/", text),
		RUN("/", "true", huge),
		RUN("/no/such/folder", "true"),
		RUN(plain, "true"),
		RUN("/", ""),
	};
	static const struct {
		int error;
		const char *what;
	} want[] = {
		{ENOENT, "exec"},  {ENOENT, "exec"}, {EACCES, "exec"},
		{ENOEXEC, "exec"}, {E2BIG, "exec"},  {ENOENT, "cwd"},
		{ENOTDIR, "cwd"},  {ENOENT, "exec"},
	};

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		assert_int_equal(cases[i].rc, -want[i].error);
		assert_string_equal(cases[i].s.what, want[i].what);
	}
	free(huge);
	unlink(plain);
	unlink(text);
	rmdir(dir);
}

/* The shared stack is free again after each start. */
static void many_starts(void **state)
{
	(void)state;
	for (int i = 0; i < 50; i++) {
		struct result r = RUN("/", "true");

		assert_int_equal(r.rc, 0);
		assert_int_equal(r.status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(output_and_status),
		cmocka_unit_test(own_session_and_plain_signals),
		cmocka_unit_test(reasons),
		cmocka_unit_test(many_starts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
