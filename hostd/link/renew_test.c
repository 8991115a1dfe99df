/*
 * Snapshots that are made anew because of their age, with a process that plays
 * the VM: when, what serves meanwhile, and what comes of each failure.
 */
#include "../clock.h"
#include "fd.h"
#include "link_test_util.h"
#include "template_priv.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
/* after the headers it needs */
#include <cmocka.h>

#define HOUR_S	   3600
#define WAIT_TURNS 5000 /* of a millisecond */

static const struct shape shape = {
	.base = "lbb/python", .vcpus = 1, .ram_mib = 256};
static struct template *t;

/* As the daemon starts: its snapshot is there. */
static void ready(void)
{
	assert_int_equal(template_get(lnk, &shape, &t), 0);
	for (int i = 0; !template_is_ready(lnk, &shape); i++) {
		assert_true(i < WAIT_TURNS);
		loop_for(1);
	}
}

static void on_done(void *ctx, const struct err *e)
{
	(void)ctx;
	assert_null(e);
	loop_stop(loop);
}

static int open_again(void)
{
	if (link_open())
		return -1;
	lnk->times = (struct link_times){
		.hello_ms = 2000, .prepare_ms = 2000, .snapshot_ms = 2000};
	lnk->renew_ms = HOUR_S * 1000;
	return 0;
}

static int setup(void **state)
{
	(void)state;
	if (folder_make() || open_again())
		return -1;
	file_put("vmlinux", "HPRzz");
	assert_int_equal(template_prepare(lnk, &shape, NULL, on_done, NULL), 0);
	assert_int_equal(loop_run(loop), 0);
	ready();
	return 0;
}

/* Its files are that old, and the daemon has them as they are. */
static void age(int64_t seconds)
{
	static const char *const names[] = {"state", "mem", "disk"};
	struct timespec now, ts[2];
	char path[300];

	clock_gettime(CLOCK_REALTIME, &now);
	ts[0] = ts[1] = (struct timespec){.tv_sec = now.tv_sec - seconds};
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/cache/snapshots/%s/%s", folder,
			 t->key, names[i]);
		assert_int_equal(utimensat(AT_FDCWD, path, ts, 0), 0);
	}
	template_recheck(t);
	ready();
}

/* Once; until what it begins has ended. */
static void look(void)
{
	loop_timer_set(loop, &lnk->renew_timer, 0);
	loop_for(1);
	for (int i = 0; lnk->renewal; i++) {
		assert_true(i < WAIT_TURNS);
		loop_for(1);
	}
	assert_int_equal(lnk->n_making, 0);
}

static ino_t inode(void)
{
	struct stat st;

	assert_int_equal(fstat(t->files.mem_fd, &st), 0);
	return st.st_ino;
}

static void test_when(void **state)
{
	uint64_t generation;
	ino_t was;

	(void)state;
	look();
	assert_int_equal(lnk->stats.renewed, 0);
	age(HOUR_S - 60);
	look();
	assert_int_equal(lnk->stats.renewed, 0);
	age(HOUR_S);
	was = inode();
	generation = t->generation;
	look();
	assert_int_equal(lnk->stats.renewed, 1);
	ready();
	assert_true(t->generation > generation);
	assert_int_not_equal(inode(), was);
	assert_int_equal(cache_entries(""), 1);
	look();
	assert_int_equal(lnk->stats.renewed, 1);
	/* Also when a clock that was moved says that the new one is old. */
	age(2 * HOUR_S);
	look();
	assert_int_equal(lnk->stats.renewed, 1);
	t->renew_from_ms = clock_mono_ms();
	look();
	assert_int_equal(lnk->stats.renewed, 2);
	ready();
}

/* The old one serves while the new one is made. */
static void test_meanwhile(void **state)
{
	bool is_seen = false;
	ino_t was;

	(void)state;
	t->renew_from_ms = 0;
	age(2 * HOUR_S);
	was = inode();
	loop_timer_set(loop, &lnk->renew_timer, 0);
	for (int i = 0; !lnk->stats.renewed; i++) {
		assert_true(i < WAIT_TURNS);
		loop_for(1);
		/* Beside the one under way. */
		if (cache_entries("") == 2 && lnk->renewal) {
			assert_int_equal(t->state, TPL_READY);
			assert_int_equal(inode(), was);
			is_seen = true;
		}
	}
	assert_true(is_seen);
	ready();
	assert_int_equal(cache_entries(""), 1);
}

static void stays(void)
{
	uint64_t renewed = lnk->stats.renewed;
	ino_t was = inode();

	t->renew_from_ms = 0;
	look();
	assert_int_equal(lnk->stats.renewed, renewed);
	/* Not again at once, and what there was is as it was. */
	assert_true(t->renew_from_ms > clock_mono_ms() + 1000);
	assert_true(template_is_current(t));
	assert_int_equal(inode(), was);
	assert_int_equal(cache_entries(""), 1);
}

static void test_fails(void **state)
{
	struct cache c = {lnk->cache_fd, &lnk->hashes};
	int lock = -1, go[2], status;
	struct err e;
	pid_t pid;

	(void)state;
	age(2 * HOUR_S);
	/* No uid is free for its VMM. */
	memset(lnk->uid_used, 0xff, sizeof(lnk->uid_used));
	stays();
	memset(lnk->uid_used, 0, sizeof(lnk->uid_used));
	/* Another process makes it. */
	assert_int_equal(pipe(go), 0);
	assert_int_equal(cache_lock(&c, t->key, &lock, &e), 0);
	pid = fork();
	if (!pid) {
		close(go[1]);
		_exit((int)read(go[0], &lock, 1));
	}
	fd_close(&lock); /* the child still has it */
	stays();
	close(go[0]);
	close(go[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	/* Other images: whoever needs them makes another one. */
	file_put("vmlinux", "HPRzz\nother");
	stays();
	file_put("vmlinux", "HPRzz");
	/* And after all of that. */
	t->renew_from_ms = 0;
	look();
	assert_int_equal(lnk->stats.renewed, 1);
	ready();
}

/* The daemon ends at any moment of it. */
static void test_end(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		age(2 * HOUR_S);
		t->renew_from_ms = 0;
		loop_timer_set(loop, &lnk->renew_timer, 0);
		for (int k = 0; k < i; k++)
			loop_for(1);
		link_destroy(lnk);
		loop_destroy(loop);
		assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
		assert_int_equal(open_again(), 0);
		assert_int_equal(cache_entries(""), 1);
		ready();
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, link_remove)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_when),
		TEST(test_meanwhile),
		TEST(test_fails),
		TEST(test_end),
	};

	(void)argc;
	if (!maker_can(argv[0]))
		return 77;
	return cmocka_run_group_tests_name("renew", tests, NULL, NULL);
}
