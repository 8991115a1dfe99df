/*
 * kill -9 of the daemon at every named step of making a template's snapshot
 * (api/base/fault.h): the next daemon finds it whole, or makes it; the process
 * that played the VM ends, and nothing is left in the folders.
 *
 * Each step is tried twice: with no snapshot there before, and with a damaged
 * one that has to make room.  Each daemon is a process of its own; those that
 * the dead one leaves behind become ours.
 */
#include "fault.h"
#include "fd.h"
#include "link_test_util.h"
#include "template_priv.h"
#include "vm.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

#define END_MS_MAX 10000

static const struct shape shape = {
	.base = "lbb/python", .vcpus = 1, .ram_mib = 256};

static const struct {
	const char *name;
	bool is_whole; /* afterwards: nothing has to be made */
} steps[] = {
	{"make.disk", false},	{"make.booted", false}, {"make.paused", false},
	{"make.saved", false},	{"make.quit", false},	{"make.sealed", false},
	{"make.synced", false}, {"make.moved", false},	{"make.named", true},
};

/* ---- in a daemon's process, which says what is wrong and ends ----------- */

static void need_at(bool is_so, const char *what, int line)
{
	if (is_so)
		return;
	fprintf(stderr, "line %d: not so: %s\n", line, what);
	_exit(1);
}
#define need(what) need_at(what, #what, __LINE__)

struct seen {
	unsigned progress;
	struct err e;
};

static void on_progress(void *ctx, const char *text)
{
	struct seen *s = ctx;

	(void)text;
	s->progress++;
}

static void on_done(void *ctx, const struct err *e)
{
	struct seen *s = ctx;

	if (e)
		s->e = *e;
	loop_stop(loop);
}

/* What `text` says is armed.  Returns when the snapshot is there. */
static void daemon_prepare(const char *text, struct seen *s)
{
	memset(s, 0, sizeof(*s));
	need(link_open() == 0);
	if (text)
		need(fault_arm(FAULT_OF_HUTCHD, text, &s->e) == 1);
	need(template_prepare(lnk, &shape, on_progress, on_done, s) == 0);
	need(loop_run(loop) == 0);
	need(s->e.code == ERR_NONE);
}

static void daemon_end(void)
{
	link_destroy(lnk);
	loop_destroy(loop);
	_exit(0);
}

static void daemon_makes(const char *text)
{
	struct seen s;

	daemon_prepare(text, &s);
	daemon_end();
}

static void daemon_spoils(const char *text)
{
	struct template *t;
	struct seen s;
	char path[300];
	int fd;

	(void)text;
	daemon_prepare(NULL, &s);
	need(template_get(lnk, &shape, &t) == 0);
	snprintf(path, sizeof(path), "%s/cache/snapshots/%s/mem", folder,
		 t->key);
	need(chmod(path, 0600) == 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	need(fd >= 0);
	need(fd_pwrite_all(fd, "x", 1, 777) == 0);
	close(fd);
	daemon_end();
}

static void daemon_needs(bool is_whole)
{
	struct err e = {0};
	struct seen s;

	daemon_prepare(NULL, &s);
	need(is_whole == (s.progress == 0));
	need(template_verify(lnk, &shape, &e) == 0);
	daemon_end();
}

static void daemon_finds(const char *text)
{
	(void)text;
	daemon_needs(true);
}

static void daemon_remakes(const char *text)
{
	(void)text;
	daemon_needs(false);
}

/* ---- in the test's ------------------------------------------------------ */

static int daemon_status(void (*fn)(const char *text), const char *text)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		fn(text);
		_exit(9);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* Its VM, which is ours now, if it had one. */
static void wait_for_orphans(const char *step)
{
	for (int ms = 0; ms < END_MS_MAX; ms += 10) {
		pid_t pid = waitpid(-1, NULL, WNOHANG);

		if (pid < 0 && errno == ECHILD)
			return;
		if (pid == 0)
			usleep(10000);
	}
	fail_msg("%s: a process is left", step);
}

/* Names in a folder of ours; the last one in `ret`. */
static unsigned names_in(const char *name, char ret[300])
{
	char path[128];
	struct dirent *de;
	unsigned n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	d = opendir(path);
	while (d && (de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		snprintf(ret, 300, "%s", de->d_name);
		n++;
	}
	if (d)
		closedir(d);
	return n;
}

static int remove_one(const char *path, const struct stat *st, int type,
		      struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

static void killed_at(size_t i, bool is_damaged)
{
	char name[300] = "", path[400];
	int status;

	assert_int_equal(folder_make(), 0);
	file_put("vmlinux", "HPRzz");
	if (is_damaged)
		assert_int_equal(daemon_status(daemon_spoils, NULL), 0);
	status = daemon_status(daemon_makes, steps[i].name);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("%s: status %#x", steps[i].name, (unsigned)status);
	wait_for_orphans(steps[i].name);
	status = daemon_status(
		steps[i].is_whole ? daemon_finds : daemon_remakes, NULL);
	if (status)
		fail_msg("after %s, %s: status %#x", steps[i].name,
			 is_damaged ? "damaged" : "none", (unsigned)status);
	/* And it is the only one; what it was made of has gone. */
	assert_int_equal(daemon_status(daemon_finds, NULL), 0);
	if (names_in("cache/snapshots", name) != 1 || strlen(name) != 64)
		fail_msg("after %s, %s: %s is left", steps[i].name,
			 is_damaged ? "damaged" : "none", name);
	snprintf(path, sizeof(path), "cache/snapshots/%s", name);
	assert_int_equal(names_in(path, name), 4);
	assert_int_equal(names_in("cache/disks", name), 1);
	assert_int_equal(names_in("state", name), 0);
	assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void test_none_before(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		killed_at(i, false);
}

static void test_damaged_before(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		killed_at(i, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_before),
		cmocka_unit_test(test_damaged_before),
	};

	(void)argc;
	if (!maker_can(argv[0]))
		return 77;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
