/* See vm_snapshot_test_util.h. */
#include "vm_snapshot_test_util.h"
#include <errno.h>
#include <stdio.h>

struct taken taken;

static void on_folder(void *ctx, const char *name)
{
	(void)name;
	(*(int *)ctx)++;
}

int n_folders(void)
{
	int n = 0;

	snapshots_each(lnk, on_folder, &n);
	return n;
}

void on_taken(void *ctx, int rc, const char *error,
	      const struct snapshot_result *r)
{
	(void)ctx;
	taken.n++;
	taken.rc = rc;
	snprintf(taken.error, sizeof(taken.error), "%s", error ? error : "");
	if (r)
		taken.r = *r;
}

void take(struct seen *s)
{
	memset(&taken, 0, sizeof(taken));
	s->rc = vm_snapshot(s->vm, ID, on_taken, NULL);
	assert_int_equal(s->rc, 0);
	assert_int_equal(taken.n, 0); /* never from within */
	assert_int_equal(vm_snapshot(s->vm, ID, on_taken, NULL), -EAGAIN);
	assert_int_equal(vm_stop(s->vm), -EAGAIN);
}

void times_set(int64_t ms)
{
	lnk->times.bind_ms = LONG_MS;
	lnk->times.start_ms = lnk->times.snapshot_ms = ms;
	lnk->times.overrun_ms = LONG_MS;
}

int setup_patient(void **state)
{
	int rc = setup(state);

	if (!rc)
		times_set(LONG_MS);
	return rc;
}

void wait_taken(void)
{
	for (int i = 0; i < 500 && !taken.n; i++)
		loop_for(10);
	assert_int_equal(taken.n, 1);
}

void remove_all(void)
{
	snapshot_remove(lnk, ID);
	for (int i = 0; i < 500 && n_folders(); i++)
		loop_for(10);
	assert_int_equal(n_folders(), 0);
}

void take_good(void)
{
	struct seen s = {.destroy_on_end = 1, .on_start = take};

	play("brs!zzz>oE", &s);
	wait_taken();
	assert_int_equal(taken.rc, 0);
	assert_int_equal(s.ended, 1);
	assert_int_equal(s.why, END_NONE);
}

struct snapshot_from from_taken(void)
{
	struct snapshot_from f = {.id = ID};

	f.sums = taken.r.sums;
	return f;
}

int begin_from(struct seen *s, const struct snapshot_from *f, struct err *e)
{
	struct vm_run run = {.code = "x", .code_len = 1, .timeout_ms = 100};
	int rc;

	memset(s, 0, sizeof(*s));
	s->destroy_on_end = 1;
	rc = vm_create_from(&s->vm, lnk, &test_spec, f, &ops, s, e);
	if (!rc)
		assert_int_equal(vm_run(s->vm, 1, &run), 0);
	return rc;
}

void begins_not(const struct snapshot_from *f, const char *why)
{
	struct err e = {0};
	struct seen s;

	assert_int_equal(begin_from(&s, f, &e), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.why, END_NOT_STARTED);
	if (!strstr(s.text, why))
		fail_msg("'%s' is not in '%s'", why, s.text);
	assert_int_equal(s.bound, 0);
}
