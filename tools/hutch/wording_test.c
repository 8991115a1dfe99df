/* Unit tests of wording.c. */
#include "wording.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void fields_become_options(void **state)
{
	static const struct {
		const char *param, *text, *want_param, *want;
	} cases[] = {
		{"run.limits.memory_mib",
		 "run.limits.memory_mib is 64; it must be 128 to 8192",
		 "--memory", "--memory 64; it must be 128 to 8192"},
		{"run.timeout_ms", "run.timeout_ms is 9; it must be 10 to 20",
		 "--timeout", "--timeout 9; it must be 10 to 20 milliseconds"},
		{"run.env", "env has the name \"LBB_X\"; it is reserved",
		 "--env", "--env has the name \"LBB_X\"; it is reserved"},
		{"limit", "limit is \"x\"; it must be 1 to 100", "--limit",
		 "--limit \"x\"; it must be 1 to 100"},
		{"run.template", "there is no template \"x\"", "--template",
		 "--template: there is no template \"x\""},
		{"limitless", "limitless is 1; no", "limitless",
		 "limitless is 1; no"},
		{"", "no field", "", "no field"},
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		err_set(&e, ERR_INVALID_REQUEST, cases[i].param, "%s",
			cases[i].text);
		wording_of_options(&e);
		assert_string_equal(e.text, cases[i].want);
		assert_string_equal(e.param, cases[i].want_param);
	}
}

/* A text that fills the room is cut, not run over. */
static void long_texts_are_cut(void **state)
{
	struct err e;

	(void)state;
	memset(&e, 0, sizeof(e));
	memset(e.text, 'x', sizeof(e.text) - 1);
	snprintf(e.param, sizeof(e.param), "environment");
	wording_of_options(&e);
	assert_true(strlen(e.text) < sizeof(e.text));
	assert_int_equal(strncmp(e.text, "--environment: xxx", 18), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_become_options),
		cmocka_unit_test(long_texts_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
