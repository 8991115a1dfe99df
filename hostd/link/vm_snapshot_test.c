/*
 * Snapshots with a process that plays a VMM (vm_test_util.h): files, steps that
 * fail, what is held back meanwhile, and VMs that begin from one.
 */
#include "space.h"
#include "vm_snapshot_test_util.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_there(const char *name)
{
	char path[100];
	struct stat st;

	snprintf(path, sizeof(path), "snapshots/%s", name);
	return !fstatat(lnk->state_fd, path, &st, AT_SYMLINK_NOFOLLOW);
}

static void take_and_kill(struct seen *s)
{
	take(s);
	assert_int_equal(vm_kill(s->vm, 1, 0), 0);
}

static void take_and_begin(void)
{
	struct snapshot_from f;
	struct err e = {0};
	struct seen s[2];
	uint64_t bytes;

	take_good();
	assert_true(is_there(ID "/state") && is_there(ID "/mem") &&
		    is_there(ID "/disk"));
	assert_int_equal(n_folders(), 1);
	assert_true(taken.r.state_bytes > 0);
	assert_true(taken.r.paused_us > 0);
	bytes = taken.r.state_bytes + taken.r.mem_bytes + taken.r.disk_bytes;
	assert_true(space_of(lnk, SPACE_SNAPSHOTS).bytes >= bytes);
	assert_int_equal(space_of(lnk, SPACE_SNAPSHOTS).count, 1);
	/* hostile_vmm's snapshot is the script "brsoE".  Two at once, and it is
	 * removed under them. */
	f = from_taken();
	for (int i = 0; i < 2; i++)
		assert_int_equal(begin_from(&s[i], &f, &e), 0);
	snapshot_remove(lnk, ID);
	while (!s[0].gone || !s[1].gone)
		assert_int_equal(loop_run(loop), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(s[i].bound + s[i].ended, 2);
		assert_int_equal(s[i].why, END_NONE);
	}
	remove_all();
	/* And now there is none. */
	assert_int_equal(begin_from(&s[0], &f, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
}

static void test_taken_and_begun_from(void **state)
{
	unsigned fds;

	(void)state;
	take_and_begin();
	loop_for(100);
	fds = fds_open();
	take_and_begin();
	fds_are(fds);
}

static void test_what_it_was_is_checked(void **state)
{
	struct snapshot_from f;
	struct err e = {0};
	struct seen s;
	unsigned fds;

	(void)state;
	take_good();
	fds = fds_open();
	f = from_taken();
	f.sums.init[0] ^= 1;
	begins_not(&f, "another image");
	/* Ended before it has its disk. */
	f = from_taken();
	assert_int_equal(begin_from(&s, &f, &e), 0);
	vm_destroy(s.vm);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.gone, 1);
	assert_int_equal(s.bound, 0);
	remove_all();
	fds_are(fds); /* its worker was still at work */
}

static void test_steps_that_fail(void **state)
{
	static const struct {
		const char *script, *error, *text;
	} t[] = {
		/* Those without an answer (h, and no PONG) wait for a deadline.
		 * It goes on, and its command ends as ever. */
		{"brs!Z>oE", "cannot be paused", ""},
		{"brs!zZz>oE", "cannot be written", ""},
		{"brs>oE", "did not answer", ""},
		/* It ends. */
		{"brs!h", "sandbox ended", "did not pause in time"},
		{"brs!zh", "sandbox ended", "did not pause in time"},
		{"brs!x", "sandbox ended", "killed by signal 9"},
		{"brs!zx", "sandbox ended", "killed by signal 9"},
		{"brsp", "sandbox ended", "may not come now"},
		{"brs!zzZ", "", "cannot go on"},
	};
	unsigned fds = fds_open();

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct seen s = {.destroy_on_end = 1, .on_start = take};

		times_set(strchr(t[i].script, 'h') || t[i].script[3] == '>'
				  ? SHORT_MS
				  : LONG_MS);
		play(t[i].script, &s);
		times_set(LONG_MS);
		wait_taken();
		if (!strstr(taken.error, t[i].error) ||
		    !strstr(s.text, t[i].text))
			fail_msg("script %s: '%s' '%s'", t[i].script,
				 taken.error, s.text);
		/* The last one was taken, and is whole. */
		assert_int_equal(!taken.rc, !*t[i].error);
		assert_int_equal(n_folders(), !*t[i].error);
		assert_int_equal(s.ended, !*t[i].text);
		fds_are(fds);
	}
	remove_all();
}

/* What we say meanwhile comes behind GO; deadlines of commands stand still. */
static void test_held_back(void **state)
{
	struct seen k = {.destroy_on_end = 1, .on_start = take_and_kill};
	struct seen w = {.destroy_on_end = 1, .on_start = take};

	(void)state;
	play("brs!zzz>ke", &k);
	assert_int_equal(k.ended, 1);
	assert_int_equal(k.why, END_NONE);
	wait_taken();
	remove_all();
	/* Time-out and overrun are 700 ms, the W 1000. */
	lnk->times.overrun_ms = 600;
	play("brs!zWWWWWWWWWWWWWWWWWWWWzz>oE", &w);
	times_set(LONG_MS);
	assert_int_equal(w.ended, 1);
	assert_int_equal(w.how, GP_END_EXITED);
	wait_taken();
	assert_true(taken.r.paused_us > 900000);
	remove_all();
}

static void test_not_now(void **state)
{
	struct seen s = {.kill_on_start = 2};
	struct err e = {0};

	(void)state;
	entry_put("brsoE");
	assert_int_equal(vm_create(&s.vm, lnk, &test_spec, &ops, &s, &e), 0);
	assert_int_equal(vm_snapshot(s.vm, ID, on_taken, NULL), -EAGAIN);
	vm_destroy(s.vm);
	assert_int_equal(vm_snapshot(s.vm, ID, on_taken, NULL), -EAGAIN);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.gone, 1);
	assert_int_equal(n_folders(), 0);
}

static void test_of_a_stopped_one(void **state)
{
	struct seen s = {.stop_on_end = 1};
	struct snapshot_from f;
	struct err e = {0};

	(void)state;
	play("brsoE?zz", &s);
	if (!s.stopped || *s.error)
		fail_msg("%u '%s' '%s'", s.stopped, s.error, s.text);
	assert_true(stopped_bytes(lnk, test_spec.sandbox) > 0);
	memset(&taken, 0, sizeof(taken));
	assert_int_equal(
		stopped_snapshot(lnk, test_spec.sandbox, ID, on_taken, NULL),
		0);
	/* A folder of that name is there. */
	assert_int_equal(
		stopped_snapshot(lnk, test_spec.sandbox, ID, on_taken, NULL),
		-EEXIST);
	wait_taken();
	assert_int_equal(taken.rc, 0);
	assert_true(vm_stopped_is_there(lnk, test_spec.sandbox));
	vm_stopped_remove(lnk, test_spec.sandbox);
	for (int i = 0; i < 500 && stopped_bytes(lnk, test_spec.sandbox); i++)
		loop_for(10);
	assert_int_equal(stopped_bytes(lnk, test_spec.sandbox), 0);
	f = from_taken();
	assert_int_equal(begin_from(&s, &f, &e), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.bound + s.ended, 2);
	remove_all();
	assert_int_equal(
		stopped_snapshot(lnk, test_spec.sandbox, ID, on_taken, NULL),
		-ENOENT);
	assert_int_equal(n_folders(), 0);
}

static void stop_loop(struct seen *s)
{
	take(s);
	loop_stop(loop);
}

/* Nobody is told, and nothing is lost but what was being taken. */
static void test_link_ends(void **state)
{
	struct vm_run run = {.code = "x", .code_len = 1, .timeout_ms = 100};
	struct seen s = {.on_start = stop_loop};
	struct err e = {0};

	(void)state;
	entry_put("brs!zzz>oE");
	assert_int_equal(vm_create(&s.vm, lnk, &test_spec, &ops, &s, &e), 0);
	assert_int_equal(vm_run(s.vm, 1, &run), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_folders(), 1);
	assert_int_equal(link_remove(NULL), 0);
	assert_int_equal(taken.n, 0);
	assert_int_equal(setup(NULL), 0);
}

static void on_space(void *ctx, const struct space *s)
{
	*(struct space *)ctx = *s;
	loop_stop(loop);
}

static void test_space(void **state)
{
	struct measuring *m;
	struct space s = {0};

	(void)state;
	take_good();
	assert_int_equal(space_measure(lnk, on_space, &s, &m), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.of[SPACE_SNAPSHOTS].count, 1);
	assert_int_equal(s.of[SPACE_TEMPLATES].count, 1);
	assert_true(s.of[SPACE_OTHER].bytes > 0);
	assert_int_equal(s.of[SPACE_DISKS].count, 0);
	assert_true(s.state_free_bytes > 0 && s.cache_total_bytes > 0);
	memset(&s, 0, sizeof(s));
	assert_int_equal(space_measure(lnk, on_space, &s, &m), 0);
	space_forget(m);
	loop_for(100);
	assert_int_equal(s.state_total_bytes, 0);
	remove_all();
}

#define TEST(fn) cmocka_unit_test(fn)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_taken_and_begun_from),
		TEST(test_what_it_was_is_checked),
		TEST(test_steps_that_fail),
		TEST(test_held_back),
		TEST(test_of_a_stopped_one),
		TEST(test_space),
		TEST(test_link_ends),
		/* Last: its template may still be looked at. */
		TEST(test_not_now),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests(tests, setup_patient, link_remove);
}
