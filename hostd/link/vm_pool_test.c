/*
 * VMs that wait, with a process that plays a hostile one: "b" confirms the
 * identity, the first "z" the pause, the second the resumption.
 */
#include "vm_pool_test_util.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_good(void **state)
{
	struct pooled p = {.then = pooled_claim};

	(void)state;
	pooled_play(&p, "bzzrsoE");
	assert_int_equal(p.waiting, 1);
	assert_int_equal(p.run.bound, 1);
	assert_int_equal(p.run.started, 1);
	assert_int_equal(p.run.output, 1);
	assert_string_equal(p.run.result, "6");
	assert_int_equal(p.run.why, END_NONE);
}

/* Nothing of it before its claim is believed to be more than it is. */
static void test_lost_before(void **state)
{
	static const struct pooled_lost t[] = {
		{"7", "cannot take its identity: bad", 0, END_VM_LOST},
		{"h", "did not answer within", 0, END_VM_LOST},
		{"bh", "did not answer within", 0, END_VM_LOST},
		{"bZ", "cannot be paused", 0, END_VM_LOST},
		{"zbh", "did not answer within", 0, END_VM_LOST},
		{"S", "has another size", 0, END_NOT_STARTED},
		{"x", "killed by signal 9", 0, END_VM_LOST},
		{"bs", "may not come now", 0, END_GUEST_PROTOCOL},
		{"bzWg", "triple fault", 1, END_VM_LOST},
		{"bzWx", "killed by signal 9", 1, END_VM_LOST},
		{"bzWB", "may not come now", 1, END_GUEST_PROTOCOL},
		{"bzWs", "may not come now", 1, END_GUEST_PROTOCOL},
		{"bzWch", "channel was closed", 1, END_VM_LOST},
	};

	(void)state;
	pooled_lost_check(t, sizeof(t) / sizeof(t[0]));
}

static void test_lost_after(void **state)
{
	static const struct {
		const char *script, *text;
		enum end_reason why;
	} t[] = {
		{"bzzh", "did not start command 1", END_VM_LOST},
		{"bzzWB", "may not come now", END_GUEST_PROTOCOL},
		{"bzzrg", "triple fault", END_VM_LOST},
		{"bzzrsx", "killed by signal 9", END_VM_LOST},
		{"bzzre", "an end before the start", END_GUEST_PROTOCOL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct pooled p = {.then = pooled_claim};

		pooled_play(&p, t[i].script);
		if (!strstr(p.run.text, t[i].text))
			fail_msg("script %s: '%s'", t[i].script, p.run.text);
		assert_int_equal(p.run.why, t[i].why);
		assert_int_equal(p.run.bound, 1);
		assert_int_equal(p.run.gone, 1);
		assert_int_equal(p.run.ended, 0);
	}
}

/* ---- another in its place ---------------------------------------------- */

static void test_instead(void **state)
{
	static const struct {
		const char *script;
		void (*then)(struct pooled *p);
	} t[] = {
		{"bz", pooled_claim_dead},    /* dead when it is claimed */
		{"bzWBh", pooled_claim_late}, /* a second word, unread */
		{"bzWx", pooled_claim_late},  /* part of a frame, then death */
		{"bzWch", pooled_claim_late}, /* no channel */
		{"bzZh", pooled_claim_swap},  /* refuses to go on */
		{"bzh", pooled_claim_swap},   /* does not go on */
		{"bzg", pooled_claim_swap},   /* dies instead of going on */
		{"bzWs", pooled_claim_swap},  /* speaks instead of going on */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct pooled p = {.then = t[i].then};

		pooled_play(&p, t[i].script);
		if (strcmp(p.run.result, "6") != 0)
			fail_msg("script %s: '%s'", t[i].script, p.run.text);
		assert_int_equal(p.gone, 0);
		assert_int_equal(p.run.bound, 1);
		assert_int_equal(p.run.why, END_NONE);
	}
}

/* ---- ends -------------------------------------------------------------- */

static void destroy(struct pooled *p)
{
	vm_destroy(p->vm);
}

static void claim_destroy(struct pooled *p)
{
	pooled_claim(p);
	vm_destroy(p->vm);
}

static void test_destroyed(void **state)
{
	struct pooled p = {.then = destroy}, q = {.then = claim_destroy};
	struct pooled r = {0};

	(void)state;
	pooled_play(&p, "bzh");
	assert_int_equal(p.gone, 1);
	assert_int_equal(p.why, END_NONE);
	pooled_play(&q, "bzh");
	assert_int_equal(q.run.gone, 1);
	assert_int_equal(q.run.bound, 0);
	pooled_begin(&r, "h"); /* still on its way */
	vm_destroy(r.vm);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(r.gone, 1);
	pooled_clean();
}

/* link_remove ends the link with one that waits and one that was given back. */
static void test_link_ends(void **state)
{
	static struct pooled p, q;

	(void)state;
	p = q = (struct pooled){.then = pooled_stop};
	pooled_begin(&p, "bzh");
	assert_int_equal(loop_run(loop), 0);
	pooled_begin(&q, "bzWBh");
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(p.waiting + q.waiting, 2);
}

/* ---- its snapshot ------------------------------------------------------ */

static void folder_remove(void)
{
	struct template *t;
	char path[100];

	assert_int_equal(template_get(lnk, &test_shape, &t), 0);
	snprintf(path, sizeof(path), "snapshots/%s", t->key);
	cache_folder_remove(lnk->cache_fd, path);
}

static void test_snapshot_removed(void **state)
{
	struct pooled p = {.then = pooled_stop};
	struct err e = {0};
	struct vm *vm;

	(void)state;
	pooled_begin(&p, "bzh");
	assert_int_equal(loop_run(loop), 0);
	assert_true(vm_is_current(p.vm));
	folder_remove();
	assert_false(vm_is_current(p.vm));
	assert_int_equal(vm_claim(p.vm, &ops, &p.run), -ESTALE);
	/* Not made for the pool, and looked for again. */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(vm_create_pooled(&vm, lnk, &test_spec,
						  &pooled_ops, &p, &e),
				 -1);
		assert_int_equal(e.code, ERR_UNAVAILABLE);
		loop_for(20);
	}
	assert_true(list_is_empty(&lnk->jobs));
	vm_destroy(p.vm);
	assert_int_equal(loop_run(loop), 0);
	pooled_clean();
}

static void test_snapshot_made_anew(void **state)
{
	struct pooled p = {.then = pooled_stop}, q = {.then = pooled_claim};

	(void)state;
	pooled_begin(&p, "bzh");
	assert_int_equal(loop_run(loop), 0);
	/* In the place of the old one; then the new one is claimed. */
	pooled_begin(&q, "bzzrsoE");
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(q.run.gone, 1);
	assert_string_equal(q.run.result, "6");
	assert_false(vm_is_current(p.vm));
	assert_int_equal(vm_claim(p.vm, &ops, &p.run), -ESTALE);
	vm_destroy(p.vm);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(p.gone, 1);
	pooled_clean();
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, link_remove)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),
		TEST(test_lost_before),
		TEST(test_lost_after),
		TEST(test_instead),
		TEST(test_destroyed),
		TEST(test_link_ends),
		TEST(test_snapshot_removed),
		TEST(test_snapshot_made_anew),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests_name("vm_pool", tests, NULL, NULL);
}
