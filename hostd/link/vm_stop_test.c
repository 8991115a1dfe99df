/*
 * vm_stop.c with a process that plays a VMM (vm_test_util.h): files, steps that
 * fail, and going on.
 */
#include "vm_test_util.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the sandbox's folder, in the link's state folder. */
static bool is_there(const char *name)
{
	char path[100];
	struct stat st;

	snprintf(path, sizeof(path), "stopped/%s%s%s", test_spec.sandbox,
		 *name ? "/" : "", name);
	return !fstatat(lnk->state_fd, path, &st, AT_SYMLINK_NOFOLLOW);
}

static bool keep_none(void *ctx, const char *sandbox)
{
	(void)ctx;
	(void)sandbox;
	return false;
}

static bool keep_all(void *ctx, const char *sandbox)
{
	(void)ctx;
	assert_string_equal(sandbox, test_spec.sandbox);
	return true;
}

/* A run, then PONG, PAUSE, SNAPSHOT. */
static void stop(struct seen *s)
{
	memset(s, 0, sizeof(*s));
	s->stop_on_end = 1;
	play("brsoE?zz", s);
	assert_int_equal(s->rc, 0);
	assert_int_equal(s->stopped, 1);
	assert_string_equal(s->error, "");
	assert_int_equal(s->why, END_NONE);
}

static int resume(struct seen *s)
{
	struct vm_run run = {.code = "x", .code_len = 1, .timeout_ms = 100};
	struct err e = {0};
	int rc;

	memset(s, 0, sizeof(*s));
	s->destroy_on_end = 1;
	rc = vm_create_stopped(&s->vm, lnk, &test_spec, &ops, s, &e);
	if (rc)
		return rc;
	assert_int_equal(vm_run(s->vm, 1, &run), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s->gone, 1);
	return 0;
}

static void test_stop_and_go_on(void **state)
{
	unsigned fds;
	struct seen s;

	(void)state;
	stop(&s);
	fds = fds_open();
	for (int i = 0; i < 2; i++) {
		assert_true(is_there("state") && is_there("mem") &&
			    is_there("disk"));
		assert_true(vm_stopped_is_there(lnk, test_spec.sandbox));
		/* hostile_vmm's snapshot is the script "brsoE". */
		assert_int_equal(resume(&s), 0);
		assert_int_equal(s.bound + s.ended, 2);
		/* Memory is never used twice; the disk stays. */
		assert_false(is_there("state") || is_there("mem"));
		assert_true(is_there("disk"));
		assert_false(vm_stopped_is_there(lnk, test_spec.sandbox));
		/* The next one has no files: nothing runs. */
		assert_int_equal(resume(&s), 0);
		assert_int_equal(s.why, END_NOT_STARTED);
		assert_int_equal(s.bound, 0);
		stop(&s); /* another VM's disk takes the name */
	}
	fds_are(fds);
	vm_stopped_remove(lnk, test_spec.sandbox);
	loop_for(200);
	assert_false(is_there(""));
	vm_stopped_remove(lnk, test_spec.sandbox); /* nothing there */
	loop_for(50);
}

static void test_sweep(void **state)
{
	struct seen s;

	(void)state;
	vm_stopped_sweep(lnk, keep_none, NULL); /* no folder yet */
	stop(&s);
	vm_stopped_sweep(lnk, keep_all, NULL);
	assert_true(is_there("disk"));
	vm_stopped_sweep(lnk, keep_none, NULL);
	assert_false(is_there(""));
}

static void test_steps_that_fail(void **state)
{
	static const struct {
		const char *script, *error, *text;
	} t[] = {
		/* It goes on, and that is told. */
		{"brsoE?Zh", "cannot be paused", ""},
		{"brsoE?zZzh", "cannot be written", ""},
		/* It ends. */
		{"brsoEh", "", "did not stop in time"},
		{"brsoE?h", "", "did not stop in time"},
		{"brsoE?zh", "", "did not stop in time"},
		{"brsoE?x", "", "killed by signal 9"},
		{"brsoE?zx", "", "killed by signal 9"},
		{"brsoEp", "", "may not come now"},
	};
	unsigned fds = fds_open();

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct seen s = {.stop_on_end = 1};

		play(t[i].script, &s);
		if (!strstr(s.error, t[i].error) ||
		    (*t[i].text && !strstr(s.text, t[i].text)))
			fail_msg("script %s: '%s' '%s'", t[i].script, s.error,
				 s.text);
		assert_int_equal(s.stopped, *t[i].error != 0);
		fds_are(fds);
	}
}

/* Not before it runs, and not while it has a command. */
static void test_not_now(void **state)
{
	struct seen s = {.kill_on_start = 2};
	struct err e = {0};

	(void)state;
	entry_put("brsoE");
	assert_int_equal(vm_create(&s.vm, lnk, &test_spec, &ops, &s, &e), 0);
	assert_int_equal(vm_stop(s.vm), -EAGAIN);
	vm_destroy(s.vm);
	assert_int_equal(vm_stop(s.vm), -EAGAIN);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.gone, 1);
}

#define TEST(fn) cmocka_unit_test(fn)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_stop_and_go_on),
		TEST(test_sweep),
		TEST(test_steps_that_fail),
		TEST(test_not_now),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests(tests, setup, link_remove);
}
