/* Unit tests of args.c: every form of an option, and every mistake. */
#include "args.c"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct {
	bool flag;
	const char *text;
	uint64_t number;
	struct opt_list list;
} got;

static const struct opt opts[] = {
	{"flag", NULL, OPT_FLAG, &got.flag, 0, 0, "a flag", NULL},
	{"text", "TEXT", OPT_TEXT, &got.text, 0, 0, "a text", NULL},
	{"number", "N", OPT_U64, &got.number, 1, 100, "a number", NULL},
	{"list", "X", OPT_LIST, &got.list, 0, 0, "many", NULL},
	{0},
};

/* Words separated by spaces; static, as argv is. */
static int parse(const char *words, struct args *a, struct err *e)
{
	static char text[512];
	char *argv[64], *save = NULL;
	int argc = 0;

	memset(&got, 0, sizeof(got));
	snprintf(text, sizeof(text), "%s", words);
	for (char *w = strtok_r(text, " ", &save); w;
	     w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	return args_parse(a, argc, argv, opts, NULL, false, e);
}

static void every_form(void **state)
{
	struct args a;
	struct err e;

	(void)state;
	assert_int_equal(parse("one --flag --text a --number=7 two --list x "
			       "--list=y=z -- --flag -",
			       &a, &e),
			 0);
	assert_true(got.flag);
	assert_string_equal(got.text, "a");
	assert_int_equal(got.number, 7);
	assert_int_equal(got.list.n, 2);
	assert_string_equal(got.list.items[1], "y=z");
	assert_int_equal(a.n, 4);
	assert_string_equal(a.rest[0], "one");
	assert_string_equal(a.rest[2], "--flag");
	assert_string_equal(a.rest[3], "-");
}

static void help_is_seen(void **state)
{
	struct args a;
	struct err e;

	(void)state;
	assert_int_equal(parse("--help", &a, &e), 0);
	assert_true(a.is_help);
	assert_int_equal(parse("-- --help", &a, &e), 0);
	assert_false(a.is_help);
}

static void mistakes_are_named(void **state)
{
	static const struct {
		const char *words, *message;
	} cases[] = {
		{"--nope", "unknown option --nope"},
		{"--fla", "unknown option --fla"},
		{"--flags", "unknown option --flags"},
		{"-x", "unknown option -x"},
		{"--flag=1", "--flag takes no value"},
		{"--text", "--text needs a value: --text TEXT"},
		{"--number 0", "--number 0: must be a whole number from 1 to "
			       "100"},
		{"--number 101", "--number 101: must be a whole number from 1 "
				 "to 100"},
		{"--number 1.5", "--number 1.5: must be a whole number from 1 "
				 "to 100"},
		{"--number -1", "--number -1: must be a whole number from 1 "
				"to 100"},
		{"--number 18446744073709551617",
		 "--number 18446744073709551617: must be a whole number from "
		 "1 to 100"},
		{"--number=", "--number : must be a whole number from 1 to "
			      "100"},
	};
	struct args a;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_int_equal(parse(cases[i].words, &a, &e), -1);
		assert_string_equal(e.text, cases[i].message);
		assert_int_equal(e.code, ERR_INVALID_REQUEST);
	}
}

static void too_many_are_refused(void **state)
{
	static char word[] = "w", list[] = "--list=v";
	char *argv[ARGS_LIST_MAX + 1];
	struct args a;
	struct err e;

	(void)state;
	for (int i = 0; i <= ARGS_LIST_MAX; i++)
		argv[i] = word;
	assert_int_equal(
		args_parse(&a, ARGS_LIST_MAX + 1, argv, opts, NULL, false, &e),
		-1);
	memset(&got, 0, sizeof(got));
	for (int i = 0; i <= ARGS_LIST_MAX; i++)
		argv[i] = list;
	assert_int_equal(
		args_parse(&a, ARGS_LIST_MAX + 1, argv, opts, NULL, false, &e),
		-1);
	assert_int_equal(got.list.n, ARGS_LIST_MAX);
}

static void rest_is_left_alone(void **state)
{
	static char flag[] = "--flag", run[] = "run", nope[] = "--nope";
	char *argv[] = {flag, run, nope};
	struct args a;
	struct err e;

	(void)state;
	assert_int_equal(args_parse(&a, 3, argv, opts, NULL, true, &e), 0);
	assert_int_equal(a.n, 2);
	assert_string_equal(a.rest[1], "--nope");
}

static void verbs_have_options_of_their_own(void **state)
{
	bool is_forced = false, is_long = false;
	const struct opt table[] = {
		{"force", NULL, OPT_FLAG, &is_forced, 0, 0, "", "make, remove"},
		{"long", NULL, OPT_FLAG, &is_long, 0, 0, "", NULL},
		{0},
	};
	static char force[] = "--force", is_long_too[] = "--long";
	char *argv[] = {force, is_long_too};
	struct args a;
	struct err e;

	(void)state;
	assert_int_equal(args_parse(&a, 2, argv, table, NULL, false, &e), 0);
	assert_int_equal(args_expect_of(&a, table, "make", &e), 0);
	assert_int_equal(args_expect_of(&a, table, "remove", &e), 0);
	assert_int_equal(args_expect_of(&a, table, "mak", &e), -1);
	assert_int_equal(args_expect_of(&a, table, "list", &e), -1);
	assert_string_equal(
		e.text, "--force is an option of make, remove, not of list");
	assert_int_equal(args_parse(&a, 1, argv + 1, table, NULL, false, &e),
			 0);
	assert_int_equal(args_expect_of(&a, table, "list", &e), 0);
}

static void times_have_units(void **state)
{
	static const struct {
		const char *text;
		uint64_t ms; /* 0 = refused */
	} cases[] = {
		{"90", 90000},	 {"1.5", 1500},	 {"1500ms", 1500},
		{"90s", 90000},	 {"2m", 120000}, {"1h", 3600000},
		{"1ms", 1},	 {"", 0},	 {"s", 0},
		{"0", 0},	 {"61m", 0},	 {"1y", 0},
		{"nan", 0},	 {"inf", 0},	 {"-1", 0},
		{"0.0001ms", 0}, {"1h ", 0},	 {"1e9", 0},
	};
	uint64_t ms;
	const struct opt table[] = {
		{"timeout", "TIME", OPT_TIME, &ms, 1, 3600000, "", NULL}, {0}};
	static char name[] = "--timeout";
	struct args a;
	struct err e;

	(void)state;
	for (size_t i = 0; i < N_OF(cases); i++) {
		char text[16], *argv[] = {name, text};
		int rc;

		snprintf(text, sizeof(text), "%s", cases[i].text);
		ms = 0;
		rc = args_parse(&a, 2, argv, table, NULL, false, &e);
		assert_int_equal(rc, cases[i].ms ? 0 : -1);
		assert_int_equal(ms, cases[i].ms);
	}
	assert_string_equal(e.text,
			    "--timeout 1e9: expected seconds, or a number with "
			    "ms, s, m, h or d, from 1ms to 1h");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_form),
		cmocka_unit_test(help_is_seen),
		cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(too_many_are_refused),
		cmocka_unit_test(rest_is_left_alone),
		cmocka_unit_test(verbs_have_options_of_their_own),
		cmocka_unit_test(times_have_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
