/*
 * vm.c, vmm.c and spawn.c with a process that plays a hostile VM
 * (vm_test_util.h).
 */
#include "vm_test_util.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void test_good(void **state)
{
	struct seen s = {.destroy_on_end = 1};

	(void)state;
	play("brsoE", &s);
	assert_int_equal(s.bound, 1);
	assert_int_equal(s.started, 1);
	assert_int_equal(s.output, 1);
	assert_int_equal(s.ended, 1);
	assert_string_equal(s.result, "6");
	assert_int_equal(s.why, END_NONE);
}

/* Exactly the descriptors that it needs, its own session, no environment:
 * 0 1 2, state, mem, three disks, control, channel; the touched pages if its
 * template knows them. */
static void test_world(void **state)
{
	struct seen s = {.destroy_on_end = 1}, t = s;

	(void)state;
	play("bsw", &s);
	assert_string_equal(s.result, "[10,1,0]");
	entry_touched = "pages";
	play("bsw", &t);
	entry_touched = NULL;
	assert_string_equal(t.result, "[11,1,0]");
}

/* H10, H11 and the deadlines. */
static void test_lost(void **state)
{
	static const struct {
		const char *script, *text;
		unsigned bound, ended;
		enum end_reason why;
	} t[] = {
		{"h", "did not answer within", 0, 0, END_VM_LOST},
		{"bh", "did not start command 1", 1, 0, END_VM_LOST},
		{"bsx", "killed by signal 9", 1, 0, END_VM_LOST},
		{"x", "killed by signal 9", 0, 0, END_VM_LOST},
		{"7", "cannot take its identity: bad", 0, 0, END_VM_LOST},
		{"S", "has another size", 0, 0, END_NOT_STARTED},
		{"bsg", "triple fault\\x1b[31m", 1, 0, END_VM_LOST},
		{"bsch", "channel was closed", 1, 0, END_VM_LOST},
		{"bsp", "may not come now", 1, 0, END_GUEST_PROTOCOL},
		{"p", "may not come now", 0, 0, END_GUEST_PROTOCOL},
		{"be", "an end before the start", 1, 0, END_GUEST_PROTOCOL},
		{"bss", "started twice", 1, 0, END_GUEST_PROTOCOL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct seen s = {0};

		play(t[i].script, &s);
		if (!strstr(s.text, t[i].text))
			fail_msg("script %s: '%s'", t[i].script, s.text);
		assert_int_equal(s.why, t[i].why);
		assert_int_equal(s.bound, t[i].bound);
		assert_int_equal(s.ended, t[i].ended);
	}
}

/* A command that its guest lets run on: we end it, as what it was. */
static void test_overrun(void **state)
{
	struct seen s = {0}, k = {.kill_on_start = 1};
	int64_t from = clock_mono_ms();

	(void)state;
	play("bsh", &s);
	assert_int_equal(s.ended, 1);
	assert_int_equal(s.how, GP_END_TIMED_OUT);
	assert_int_equal(s.why, END_VM_LOST);
	assert_in_range(clock_mono_ms() - from, 290, 5000);
	play("bskh", &k);
	assert_int_equal(k.ended, 1);
	assert_int_equal(k.how, GP_END_CANCELLED);
}

/* The guest makes a runner for the second run: it may take longer. */
static void test_second_run(void **state)
{
	struct seen s = {.again_on_end = 1};
	int64_t from = clock_mono_ms();

	(void)state;
	play("bsEh", &s);
	assert_int_equal(s.ended, 1);
	assert_string_equal(s.text,
			    "the guest did not start command 2 in time");
	assert_in_range(clock_mono_ms() - from, 900, 5000);
}

static void test_destroy_in_event(void **state)
{
	struct seen s = {.kill_on_start = 2};

	(void)state;
	play("bsoE", &s);
	assert_int_equal(s.started, 1);
	assert_int_equal(s.output + s.ended, 0);
	assert_int_equal(s.why, END_NONE);
}

static void test_destroy_at_once(void **state)
{
	struct seen s = {0};
	struct err e = {0};

	(void)state;
	entry_put("bse");
	assert_int_equal(vm_create(&s.vm, lnk, &test_spec, &ops, &s, &e), 0);
	vm_destroy(s.vm);
	assert_int_equal(s.gone, 0); /* never from within */
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(s.gone, 1);
	assert_int_equal(s.why, END_NONE);
}

static void test_refused(void **state)
{
	struct vm_spec spec = {.base = "lbb/ruby",
			       .limits = {1, 128, 256},
			       .sandbox = "sbx_test"};
	struct vm *vm;
	struct err e = {0};

	(void)state;
	assert_int_equal(vm_create(&vm, lnk, &spec, &ops, NULL, &e), -1);
	assert_int_equal(e.code, ERR_TEMPLATE_NOT_FOUND);
	snprintf(spec.base, sizeof(spec.base), "lbb/python");
	spec.limits.vcpus = 5;
	assert_int_equal(vm_create(&vm, lnk, &spec, &ops, NULL, &e), -1);
	assert_string_equal(e.param, "limits.vcpus");
	spec.limits.vcpus = 3;
	spec.limits.memory_mib = 8193;
	assert_int_equal(vm_create(&vm, lnk, &spec, &ops, NULL, &e), -1);
	assert_string_equal(e.param, "limits.memory_mib");
}

/* A VMM that fills its log is cut short, and ends like any other. */
static void test_log_flood(void **state)
{
	struct seen s = {.destroy_on_end = 1};

	(void)state;
	play("lbse", &s);
	assert_int_equal(s.ended, 1);
}

/* LBB-127: once the guest has its command, no value of env is in memory;
 * also when the command never got that far. */
static void test_env_is_wiped(void **state)
{
	static const char *const scripts[] = {"brsoE", "h", "S", "x"};
	static char text[SECRET_TEXT_BYTES];
	const char *env[] = {"A=x", text, NULL};
	uint8_t masked[SECRET_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++) {
		struct seen s = {.destroy_on_end = 1};

		secret_put(text, i % 2 ? SECRET_PAD_BYTES_MAX : 0, masked);
		run_env = env;
		play(scripts[i], &s);
		run_env = NULL;
		explicit_bzero(text, sizeof(text));
		assert_int_equal(memory_count(masked), 0);
	}
}

static int64_t cpu_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Its VMM was taken over: what it says on the control socket, and that it
 * does not listen there, must not hold up the daemon. */
static void test_hostile_control(void **state)
{
	static const struct {
		const char *script, *text;
		unsigned ended;
	} t[] = {
		{"bst", "started twice", 0},
		{"bsf", "does not read its control socket", 0},
		{"bfs", "does not read its control socket", 0},
		{"bsFe", "destroyed", 1},
	};

	(void)state;
	alarm(60); /* a loop that blocks would stay so */
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct seen s = {.destroy_on_end = 1};
		int64_t from = cpu_ms();

		lnk->times.start_ms = lnk->times.overrun_ms = 20000;
		play(t[i].script, &s);
		if (!strstr(s.text, t[i].text))
			fail_msg("script %s: '%s'", t[i].script, s.text);
		assert_int_equal(s.ended, t[i].ended);
		assert_true(cpu_ms() - from < 2000);
	}
	lnk->times.start_ms = 300;
	lnk->times.overrun_ms = 200;
	alarm(0);
}

static void end_and_begin(void)
{
	assert_int_equal(link_remove(NULL), 0);
	assert_int_equal(setup(NULL), 0);
}

static void vm_make(struct seen *s)
{
	struct vm_run run = {.code = "x", .code_len = 1, .timeout_ms = 100};
	struct err e = {0};

	assert_int_equal(vm_create(&s->vm, lnk, &test_spec, &ops, s, &e), 0);
	assert_int_equal(vm_run(s->vm, 1, &run), 0);
}

/*
 * The link ends at each moment of a VM's life: what the VM has posted runs in
 * loop_destroy, when the link is gone, and must find its VM.  Nobody is told.
 */
static void test_link_ends(void **state)
{
	struct seen s[4] = {0}, good = {.destroy_on_end = 1};

	(void)state;
	/* Its start is posted: the template is known to be good. */
	play("brsoE", &good);
	vm_make(&s[0]);
	/* Its end is posted on top of the start. */
	vm_make(&s[1]);
	vm_destroy(s[1].vm);
	end_and_begin();
	/* Its end is posted in place of a start: it waits for the template. */
	entry_put("brsoE");
	vm_make(&s[2]);
	vm_destroy(s[2].vm);
	vm_make(&s[3]);
	end_and_begin();
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(s[i].gone + s[i].bound, 0);
}

/* M9, M10: many in a row leave nothing behind. */
static void test_no_leak(void **state)
{
	unsigned before = 0;

	(void)state;
	for (int i = 0; i < 40; i++) {
		struct seen s = {.destroy_on_end = 1};

		play(i % 2 ? "bsx" : "bse", &s);
		if (i == 1)
			before = fds_open();
	}
	fds_are(before);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_world),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_overrun),
		cmocka_unit_test(test_second_run),
		cmocka_unit_test(test_destroy_in_event),
		cmocka_unit_test(test_destroy_at_once),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_log_flood),
		cmocka_unit_test(test_env_is_wiped),
		cmocka_unit_test(test_hostile_control),
		cmocka_unit_test(test_link_ends),
		cmocka_unit_test(test_no_leak),
	};

	(void)argc;
	if (!vmm_find(argv[0]))
		return 77;
	return cmocka_run_group_tests(tests, setup, link_remove);
}
