/*
 * Runs by the express lane, with a process that plays a hostile VMM: "y" says
 * READY, "1" takes BIND by the lane and answers it, "z" goes on when told to,
 * "q" takes the request, "=" the same and rings for each next part before it
 * replies, "-" takes one part; "m" answers it; "v", "V" and "X" are its words
 * about ADOPT.
 */
#include "../clock.h"
#include "lane.h"
#include "vm_pool_test_util.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGE_BYTES (900u << 10)
#define PARTS_BYTES (3u << 20) /* more than three times what a lane takes */

static struct link_stats stats(void)
{
	struct link_stats s;

	link_stats(lnk, &s);
	return s;
}

/* One claimed run, from the start to the end. */
static struct pooled run(const char *script)
{
	struct pooled p = {.then = pooled_claim};

	pooled_play(&p, script);
	return p;
}

static void assert_good(const struct pooled *p, const char *script)
{
	if (strcmp(p->run.result, "6") != 0)
		fail_msg("script %s: '%s' '%s'", script, p->run.text, p->text);
	assert_int_equal(p->run.bound, 1);
	assert_int_equal(p->run.started, 1);
	assert_int_equal(p->run.output, 1);
	assert_int_equal(p->run.ended, 1);
	assert_int_equal(p->run.why, END_NONE);
}

/* The same end by every way there is. */
static void test_good(void **state)
{
	static const struct {
		const char *script;
		unsigned by_lane, adopted;
	} t[] = {
		{"Ny1zyqm", 1, 0},
		{"Ny1yWzqm", 1, 0},    /* it rings before RESUME's reply */
		{"Ny1zyqM", 1, 0},     /* an answer in pieces of 7 bytes */
		{"Ny1zyqK", 1, 0},     /* more behind the end: not heard */
		{"Ny1zyqvAsoE", 1, 1}, /* long: adopted */
		{"Ny1zyqVm", 1, 0},    /* just too long */
		{"Ny1zyqWWWmV", 1, 0}, /* both at once */
		{"Ny1zyqWWWmX", 1, 0}, /* the same, said otherwise */
		{"Ny1zzzrsoE", 0, 0},  /* never at its doorbell */
		{"bzzrsoE", 0, 0},     /* no lane */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct link_stats before = stats();
		struct pooled p = run(t[i].script);

		assert_good(&p, t[i].script);
		assert_int_equal(stats().lane_runs - before.lane_runs,
				 t[i].by_lane);
		assert_int_equal(stats().lane_adopted - before.lane_adopted,
				 t[i].adopted);
	}
}

#define BUSY_VMS  3
#define WAITS_MAX 5000 /* of 2 ms */

/* More runs than processors: none is adopted before it had its share. */
static void test_busy(void **state)
{
	static const struct {
		unsigned n_cpus, timeout_ms;
		int64_t least_ms;
	} t[] = {
		{1, 5000, BUSY_VMS * 250},
		{2, 5000, BUSY_VMS * 125},
		{1, 400, 400}, /* it times out then */
		{BUSY_VMS, 5000, 250},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct pooled p[BUSY_VMS] = {0};
		unsigned adopted = (unsigned)stats().lane_adopted, gone = 0;
		int64_t began;

		lnk->n_cpus = t[i].n_cpus;
		lnk->times.start_ms = 10000;
		pooled_begin(&p[0], "Ny1zyqvAsoE");
		for (size_t k = 0; k < BUSY_VMS; k++) {
			struct err e;

			p[k].timeout_ms = t[i].timeout_ms;
			if (k && vm_create_pooled(&p[k].vm, lnk, &test_spec,
						  &pooled_ops, &p[k], &e))
				fail_msg("%s", e.text);
		}
		for (int n = 0; !p[0].waiting || !p[1].waiting || !p[2].waiting;
		     n++) {
			assert_true(n < WAITS_MAX);
			loop_for(2);
		}
		began = clock_mono_ms();
		for (size_t k = 0; k < BUSY_VMS; k++)
			pooled_claim(&p[k]);
		for (int n = 0; stats().lane_adopted == adopted; n++) {
			assert_true(n < WAITS_MAX);
			loop_for(2);
		}
		assert_in_range(clock_mono_ms() - began, t[i].least_ms,
				t[i].least_ms + 4000);
		for (int n = 0; gone < BUSY_VMS; n++) {
			assert_true(n < WAITS_MAX);
			loop_for(2);
			gone = 0;
			for (size_t k = 0; k < BUSY_VMS; k++)
				gone += p[k].gone + p[k].run.gone;
		}
		for (size_t k = 0; k < BUSY_VMS; k++)
			assert_good(&p[k], "busy");
		pooled_clean();
	}
}

static void test_off(void **state)
{
	struct pooled p;

	(void)state;
	lnk->has_lane = false;
	p = run("NyzbzzrsoE");
	assert_good(&p, "off");
	assert_int_equal(stats().lane_runs, 0);
}

static void look(struct pooled *p)
{
	assert_true(vm_has_lane(p->vm));
	pooled_claim(p);
}

static void look_none(struct pooled *p)
{
	assert_false(vm_has_lane(p->vm));
	pooled_claim(p);
}

/* READY on its way when the pause was asked for, or after the VM was resumed:
 * of no use, but no harm. */
static void test_ready(void **state)
{
	struct pooled p = {.then = look}, q = {.then = look_none}, r = q, s = q;

	(void)state;
	pooled_play(&p, "Ny1zyqm");
	assert_good(&p, "ready");
	pooled_play(&q, "Ny1zzzrsoE");
	assert_good(&q, "no ready");
	pooled_play(&r, "Ny1zWWWWWWWWWyzzrsoE");
	assert_good(&r, "late");
	pooled_play(&s, "Ny1zWWWWWWWWWzzyzrsoE");
	assert_good(&s, "very late");
}

/* ---- before the claim -------------------------------------------------- */

static void test_lost_before(void **state)
{
	static const struct pooled_lost t[] = {
		{"G", "has 5 lanes", 0, END_VM_LOST},
		{"NyyW", "out of turn: a runner waits", 0, END_VM_LOST},
		{"NYh", "spoke of lane 4 of 1", 0, END_VM_LOST},
		{"Nh", "did not answer within", 0, END_VM_LOST},
		{"Nym", "may not come now", 0, END_GUEST_PROTOCOL},
		{"Ny2", "take its identity: bad", 0, END_VM_LOST},
		{"Ny3", "be given its identity", 0, END_VM_LOST},
		{"Ny6h", "did not answer within", 0, END_VM_LOST},
		{"Ny6m", "may not come now", 0, END_GUEST_PROTOCOL},
		{"Ny6T", "not answered by BOUND", 0, END_GUEST_PROTOCOL},
		{"Ny65", "may not come now", 0, END_GUEST_PROTOCOL},
		{"Ny6B", "may not come now", 0, END_GUEST_PROTOCOL},
		{"Ny6g", "triple fault", 0, END_VM_LOST},
		{"Ny1Z", "the VM cannot go on", 0, END_VM_LOST},
		{"Ny1zY", "out of turn: a runner waits", 0, END_VM_LOST},
		{"Ny1zyWy", "out of turn: a runner waits", 1, END_VM_LOST},
		{"Ny1zyWm", "out of turn: an answer", 1, END_VM_LOST},
		{"Ny1zyWT", "out of turn: an answer", 1, END_VM_LOST},
		{"byW", "out of turn: a runner waits", 0, END_VM_LOST},
		{"bzWy", "out of turn: a runner waits", 1, END_VM_LOST},
		{"Ny1zWWWWWWWWWyzWy", "out of turn: a runner waits", 1,
		 END_VM_LOST},
		{"Ny1zWWWWWWWWWyyW", "out of turn: a runner waits", 0,
		 END_VM_LOST},
		{"Ny1zWWWWWWWWWm", "out of turn: an answer", 0, END_VM_LOST},
		{"Ny1zh", "did not answer within", 0, END_VM_LOST},
		{"Ny1zm", "out of turn: an answer", 0, END_VM_LOST},
		{"Ny1zcWyh", "channel was closed", 1, END_VM_LOST},
		{"Ny1zs", "may not come now", 0, END_GUEST_PROTOCOL},
		{"Ny1zyWs", "may not come now", 1, END_GUEST_PROTOCOL},
		{"Ny1zyWx", "killed by signal 9", 1, END_VM_LOST},
		{"Ny1zx", "killed by signal 9", 0, END_VM_LOST},
		{"Ny1zZ", "cannot be paused", 0, END_VM_LOST},
	};

	(void)state;
	pooled_lost_check(t, sizeof(t) / sizeof(t[0]));
}

/* ---- after the request was handed over --------------------------------- */

/* User code may have run: lost is lost, nothing is restored instead. */
static void test_lost_after(void **state)
{
	static const struct {
		const char *script, *text;
		enum end_reason why;
		unsigned started;
	} t[] = {
		/* It has the request and does not say so. */
		{"Ny1zyCh", "did not answer within", END_VM_LOST, 0},
		{"Ny1zyCm", "out of turn: an answer", END_VM_LOST, 0},
		{"Ny1zyCx", "killed by signal 9", END_VM_LOST, 0},
		{"Ny1zyqh", "did not start command 1", END_VM_LOST, 0},
		{"Ny1zyqvAh", "did not start command 1", END_VM_LOST, 0},
		{"Ny1zyqx", "killed by signal 9", END_VM_LOST, 0},
		{"Ny1zyqWx", "killed by signal 9", END_VM_LOST, 0},
		{"Ny1zyqg", "triple fault", END_VM_LOST, 0},
		{"Ny1zyqX", "cannot be adopted", END_VM_LOST, 0},
		{"Ny1zyqT", "has no end", END_GUEST_PROTOCOL, 0},
		{"Ny1zyqU", "its length is wrong", END_VM_LOST, 0},
		{"Ny1zyqu", "of another lane", END_VM_LOST, 0},
		{"Ny1zyqD", "out of its place", END_VM_LOST, 0},
		{"Ny1zyqdm", "out of its place", END_VM_LOST, 1},
		{"Ny1zyqdWg", "triple fault", END_VM_LOST, 1},
		{"Ny1zyqj", "has no end", END_GUEST_PROTOCOL, 1},
		{"Ny1zyqn", "an end before the start", END_GUEST_PROTOCOL, 0},
		{"Ny1zyqy", "out of turn: a runner waits", END_VM_LOST, 0},
		{"Ny1zyqs", "may not come now", END_GUEST_PROTOCOL, 0},
		{"Ny1zWWWWWWWWWzzyzyh", "out of turn: a runner waits",
		 END_VM_LOST, 0},
		{"Ny1zWWWWWWWWWyzzyh", "out of turn: a runner waits",
		 END_VM_LOST, 0},
		{"Ny1zyqvAm", "out of turn: an answer", END_VM_LOST, 0},
		{"Ny1zyqvAsy", "out of turn: a runner waits", END_VM_LOST, 1},
		{"Ny1zyqvAsm", "out of turn: an answer", END_VM_LOST, 1},
		{"Ny1zyqvAe", "an end before the start", END_GUEST_PROTOCOL, 0},
		{"Ny1zyqVs", "may not come now", END_GUEST_PROTOCOL, 0},
		{"Ny1zyqc", "channel was closed", END_VM_LOST, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct pooled p = run(t[i].script);

		if (!strstr(p.run.text, t[i].text))
			fail_msg("script %s: '%s'", t[i].script, p.run.text);
		assert_int_equal(p.run.why, t[i].why);
		assert_int_equal(p.run.started, t[i].started);
		assert_int_equal(p.run.bound, !strchr(t[i].script, 'C'));
		assert_int_equal(p.run.ended, 0);
		assert_int_equal(p.run.gone, 1);
	}
}

/*
 * A run that says that it ends, and goes on: user code can write that into the
 * page.  Its time-out holds, and so does a KILL.
 */
static void test_finishing(void **state)
{
	struct pooled p = run("Ny1zyqVh");
	struct pooled k = {.then = pooled_claim, .run.kill_on_bound = 1};

	(void)state;
	assert_int_equal(p.run.ended, 1);
	assert_int_equal(p.run.started, 1);
	assert_int_equal(p.run.how, GP_END_TIMED_OUT);
	pooled_play(&k, "Ny1zyqVh");
	assert_int_equal(k.run.ended, 1);
	assert_int_equal(k.run.how, GP_END_CANCELLED);
}

/* An end that was told stays, whatever comes behind it. */
static void test_after_the_end(void **state)
{
	struct pooled p = run("Ny1zyqJ");

	(void)state;
	assert_int_equal(p.run.ended, 1);
	assert_string_equal(p.run.result, "6");
}

/* ---- another in its place ---------------------------------------------- */

static void claim_large(struct pooled *p)
{
	p->code_len = LARGE_BYTES;
	pooled_claim_swap(p);
}

static void claim_parts(struct pooled *p)
{
	p->code_len = PARTS_BYTES;
	pooled_claim_swap(p);
}

static void test_instead(void **state)
{
	static const struct {
		const char *script;
		void (*then)(struct pooled *p);
	} t[] = {
		{"Ny1zyh", pooled_claim_dead},	/* dead when it is claimed */
		{"Ny1zyWx", pooled_claim_swap}, /* dies with the request unread
						 */
		{"Ny1zyWg", pooled_claim_swap},
		{"Ny1zyWcWx", pooled_claim_swap},
		{"Ny1zyI", pooled_claim_swap},	 /* refuses the request */
		{"Ny1zyiI", claim_large},	 /* a later piece */
		{"Ny1zyix", claim_large},	 /* dies before it has it all */
		{"Ny1zyih", claim_large},	 /* does not take it */
		{"Ny1zyis", claim_large},	 /* speaks instead */
		{"Ny1zyiyh", claim_large},	 /* rings once more */
		{"Ny1zy-x", claim_parts},	 /* dies with a part of it */
		{"Ny1zy-h", claim_parts},	 /* asks for no more */
		{"Ny1zy-yiyh", claim_parts},	 /* for what is on its way */
		{"Ny1zy-yyh", claim_parts},	 /* twice */
		{"Ny1zy-Yh", claim_parts},	 /* by another lane */
		{"Ny1zy-mh", claim_parts},	 /* answers a part */
		{"Ny1zy-yI", claim_parts},	 /* refuses the next */
		{"Ny1zyWBh", pooled_claim_late}, /* a word, unread */
		{"Ny1zyWyh", pooled_claim_late}, /* a second ring, unread */
		{"Ny1zyWmh", pooled_claim_late}, /* an answer to nothing */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct pooled p = {.then = t[i].then};

		pooled_play(&p, t[i].script);
		assert_good(&p, t[i].script);
		assert_int_equal(p.gone, 0);
	}
}

/* ---- sizes ------------------------------------------------------------- */

/* A request in many pieces, to a VMM that reads when it likes; and one in
 * parts. */
static void test_large(void **state)
{
	static const struct {
		size_t len;
		const char *script;
		unsigned by_lane;
	} t[] = {
		{LARGE_BYTES, "Ny1zyqm", 1},
		{LARGE_BYTES, "Ny1zyWqm", 1},
		{LANE_REQUEST_BYTES_MAX - 100, "Ny1zyqm", 1},
		{LANE_REQUEST_BYTES_MAX, "Ny1zyqm", 1},
		{PARTS_BYTES, "Ny1zyqm", 1},
		{PARTS_BYTES, "Ny1zy=m", 1},
		{PARTS_BYTES, "Ny1zyWqm", 1},
		{PARTS_BYTES, "Ny1zy-y-yqvAsoE", 1}, /* adopted */
	};
	struct pooled p;

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		uint64_t before = stats().lane_runs;

		p = (struct pooled){.then = pooled_claim, .code_len = t[i].len};
		pooled_play(&p, t[i].script);
		assert_good(&p, t[i].script);
		assert_int_equal(stats().lane_runs - before, t[i].by_lane);
	}
	p = run("Ny1zyqO");
	assert_int_equal(p.run.ended, 1);
	assert_int_equal(strspn(p.run.result, "6"), sizeof(p.run.result) - 1);
}

/* ---- cancelled --------------------------------------------------------- */

static void claim_kill_open(struct pooled *p)
{
	p->run.kill_on_bound = 1;
	pooled_claim(p);
}

static void claim_kill(struct pooled *p)
{
	pooled_claim(p);
	assert_int_equal(vm_kill(p->vm, 1, 0), 0);
}

static struct pooled *killed;

static void on_kill(struct loop_timer *t)
{
	(void)t;
	assert_int_equal(vm_kill(killed->vm, 1, 0), 0);
}

/* While its pieces wait for room. */
static void claim_kill_sending(struct pooled *p)
{
	static struct loop_timer t;

	t = (struct loop_timer){.fn = on_kill};
	killed = p;
	p->code_len = LARGE_BYTES;
	pooled_claim(p);
	loop_timer_set(loop, &t, 10);
}

static void test_killed(void **state)
{
	static const struct {
		const char *script;
		void (*then)(struct pooled *p);
		unsigned ended;
		enum gp_end how;
		const char *text;
	} t[] = {
		/* Adopted, killed as any other. */
		{"Ny1zyqvAksoE", claim_kill_open, 1, GP_END_EXITED,
		 "destroyed"},
		{"Ny1zyqVm", claim_kill_open, 1, GP_END_EXITED, "destroyed"},
		{"Ny1zyqvAkh", claim_kill_open, 1, GP_END_CANCELLED,
		 "destroyed"},
		{"Ny1zyqVh", claim_kill_open, 1, GP_END_CANCELLED, "destroyed"},
		{"Ny1zyqh", claim_kill_open, 1, GP_END_CANCELLED, "destroyed"},
		{"Ny1zyWqvAksoE", claim_kill_sending, 1, GP_END_EXITED,
		 "destroyed"},
		/* Two frames: not for the lane. */
		{"Ny1zyzrksoE", claim_kill, 1, GP_END_EXITED, "destroyed"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct pooled p = {.then = t[i].then};

		pooled_play(&p, t[i].script);
		if (p.run.ended != t[i].ended || p.run.how != t[i].how ||
		    !strstr(p.run.text, t[i].text))
			fail_msg("script %s: '%s' ended %u how %d", t[i].script,
				 p.run.text, p.run.ended, (int)p.run.how);
	}
}

static void claim_again(struct pooled *p)
{
	p->run.again_on_end = 1;
	pooled_claim(p);
}

/* A VM that answered by its lane is parked; more to do wakes it up. */
static void test_again(void **state)
{
	struct pooled p = {.then = claim_again}, q = p;

	(void)state;
	pooled_play(&p, "Ny1zyqmzrx");
	assert_int_equal(p.run.ended, 1);
	assert_non_null(strstr(p.run.text, "killed by signal 9"));
	pooled_play(&q, "Ny1zyqmZh");
	assert_non_null(strstr(q.run.text, "cannot go on"));
}

/* ---- ends -------------------------------------------------------------- */

static void claim_destroy(struct pooled *p)
{
	pooled_claim(p);
	vm_destroy(p->vm);
}

static void on_destroy(struct loop_timer *t)
{
	(void)t;
	vm_destroy(killed->vm);
}

static void claim_destroy_later(struct pooled *p)
{
	static struct loop_timer t;

	t = (struct loop_timer){.fn = on_destroy};
	killed = p;
	p->code_len = LARGE_BYTES;
	pooled_claim(p);
	loop_timer_set(loop, &t, 30);
}

static void test_destroyed(void **state)
{
	static const char *const scripts[] = {"Ny1zyih", "Ny1zyqh",
					      "Ny1zyqvAsh", "Ny1zyqdh"};
	struct pooled p = {.then = claim_destroy};

	(void)state;
	pooled_play(&p, "Ny1zyh");
	assert_int_equal(p.run.gone, 1);
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
		struct pooled q = {.then = claim_destroy_later};

		pooled_play(&q, scripts[i]);
		assert_int_equal(q.run.gone, 1);
		assert_int_equal(q.run.why, END_NONE);
	}
}

static void claim_stop(struct pooled *p)
{
	pooled_claim(p);
	loop_for(50);
	loop_stop(loop);
}

/* link_remove ends the link with one that waits and one whose run is open. */
static void test_link_ends(void **state)
{
	static struct pooled p, q;

	(void)state;
	p = (struct pooled){.then = pooled_stop};
	q = (struct pooled){.then = claim_stop};
	pooled_begin(&p, "Ny1zyh");
	assert_int_equal(loop_run(loop), 0);
	pooled_begin(&q, "Ny1zyqh");
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(p.waiting + q.waiting, 2);
}

/* ---- secrets ----------------------------------------------------------- */

/* LBB-127: once the VMM has the request, no value of env is in memory; also
 * when the request never got that far. */
static void test_env_is_wiped(void **state)
{
	static const char *const scripts[] = {"Ny1zyqm", "Ny1zyqvAsoE",
					      "Ny1zyqx", "Ny1zyih", "Ny1zyWIh"};
	static char text[SECRET_TEXT_BYTES];
	const char *env[] = {"A=x", text, NULL};
	uint8_t masked[SECRET_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
		struct pooled p;

		secret_put(text, i % 2 ? SECRET_PAD_BYTES_MAX : 0, masked);
		run_env = env;
		p = run(scripts[i]);
		assert_int_equal(p.run.gone, 1);
		run_env = NULL;
		explicit_bzero(text, SECRET_TEXT_BYTES);
		assert_int_equal(memory_count(masked), 0);
	}
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, link_remove)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_good),	  TEST(test_busy),
		TEST(test_off),		  TEST(test_ready),
		TEST(test_lost_before),	  TEST(test_lost_after),
		TEST(test_after_the_end), TEST(test_finishing),
		TEST(test_instead),	  TEST(test_large),
		TEST(test_killed),	  TEST(test_again),
		TEST(test_destroyed),	  TEST(test_link_ends),
		TEST(test_env_is_wiped),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests_name("vm_lane", tests, NULL, NULL);
}
