/*
 * What process_prepare promises of core files, on processes that crash: the
 * same crash without it leaves one where the host's core_pattern writes files.
 */
#include "link/spawn.h"
#include "log.h"
#include "process.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

static char folder[] = "/tmp/hutch-process-test-XXXXXX";

/* 1 when the crash of a child left a core, by the kernel's word. */
static int crash(bool is_prepared)
{
	const struct rlimit any = {RLIM_INFINITY, RLIM_INFINITY};
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (chdir(folder) || setrlimit(RLIMIT_CORE, &any))
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
		if (is_prepared)
			process_prepare();
		signal(SIGQUIT, SIG_DFL);
		raise(SIGQUIT);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	return WCOREDUMP(status) ? 1 : 0;
}

static void test_no_core(void **state)
{
	(void)state;
	if (!crash(false)) {
		printf("skip: this host writes no core files at all\n");
		skip();
	}
	assert_int_equal(crash(true), 0);
}

static void test_settings(void **state)
{
	struct rlimit l;
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		process_prepare();
		_exit(getrlimit(RLIMIT_CORE, &l) || l.rlim_cur || l.rlim_max ||
		      prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* A daemon that is not dumpable starts VMs, as root and as another user. */
static int start_one(uid_t uid)
{
	static char sleep_name[] = "sleep", seconds[] = "20";
	char *const argv[] = {sleep_name, seconds, NULL};
	const struct spawn_spec spec = {.path = "/bin/sleep",
					.argv = argv,
					.log_fd = -1,
					.oom_score_adj = 800};
	const char *step = "";
	char path[64], text[16] = "";
	int pidfd, fd, rc;
	pid_t pid;

	if (setresuid(uid, uid, uid))
		return 1;
	process_prepare();
	rc = spawn_process(&spec, &pid, &pidfd, &step);
	if (rc) {
		fprintf(stderr, "uid %u: %s: %s\n", uid, step, strerror(-rc));
		return 2;
	}
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
	    strcmp(text, "800\n"))
		rc = 3;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return rc;
}

static void test_starts_vms(void **state)
{
	static const uid_t uids[] = {0, 65534};

	(void)state;
	if (geteuid())
		skip();
	for (size_t i = 0; i < sizeof(uids) / sizeof(*uids); i++) {
		int status;
		pid_t pid = fork();

		if (!pid)
			_exit(start_one(uids[i]));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_core),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_starts_vms),
	};
	char cmd[64];
	int rc;

	log_init("process_test");
	if (!mkdtemp(folder))
		return 1;
	rc = cmocka_run_group_tests_name("process", tests, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", folder);
	return system(cmd) || rc;
}
