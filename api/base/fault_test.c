/* Unit tests of fault.c: what is armed, and that it is a death by SIGKILL. */
#include "fault.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* How a process ends, or stops, that passes all of them: a wait status. */
static int passes_all(enum fault_side side, const char *text)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (text && fault_arm(side, text, NULL) < 0)
			_exit(9);
		for (size_t i = 1; i < N_FAULTS; i++)
			fault_point((enum fault)i);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	if (!WIFSTOPPED(status))
		return status;
	/* It halts once, and goes on. */
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &(int){0}, 0), pid);
	return status;
}

static void unarmed_passes(void **state)
{
	(void)state;
	assert_int_equal(passes_all(FAULT_OF_HUTCHD, NULL), 0);
}

static void each_kills_or_halts(void **state)
{
	char text[80];

	(void)state;
	for (size_t i = 1; i < N_FAULTS; i++) {
		enum fault_side other = faults[i].side == FAULT_OF_VMM
						? FAULT_OF_HUTCHD
						: FAULT_OF_VMM;
		int status = passes_all(faults[i].side, faults[i].name);

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGKILL);
		assert_int_equal(passes_all(other, faults[i].name), 0);
		snprintf(text, sizeof(text), "%s:halt", faults[i].name);
		status = passes_all(faults[i].side, text);
		assert_true(WIFSTOPPED(status));
		assert_int_equal(WSTOPSIG(status), SIGSTOP);
	}
}

/* A test that names one wrongly shall not pass for that. */
static void unknown_is_refused(void **state)
{
	static const char *const t[] = {"",	     ":halt",
					"stop",	     "stop.saved:",
					"stop.save", "stop.saved:halt:halt",
					"vmm.",	     "stop.saved "};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct err e = {0};

		assert_int_equal(fault_arm(FAULT_OF_HUTCHD, t[i], &e), -1);
		assert_non_null(strstr(e.text, "no moment"));
		assert_int_equal(fault_armed, FAULT_NONE);
	}
}

static void names_are_told_apart(void **state)
{
	(void)state;
	for (size_t i = 1; i < N_FAULTS; i++) {
		assert_int_equal(strncmp(faults[i].name, "vmm.", 4) == 0,
				 faults[i].side == FAULT_OF_VMM);
		for (size_t k = 1; k < i; k++)
			assert_string_not_equal(faults[i].name, faults[k].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unarmed_passes),
		cmocka_unit_test(each_kills_or_halts),
		cmocka_unit_test(unknown_is_refused),
		cmocka_unit_test(names_are_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
