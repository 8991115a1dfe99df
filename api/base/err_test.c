/* Unit tests of err.c and of the table in api/errors.h. */
#include "err.c"
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void every_row_is_whole(void **state)
{
	(void)state;
	for (int i = ERR_NONE + 1; i < ERR_N; i++) {
		const struct err_info *r = err_info((enum err_code)i);

		assert_true(r->code[0] && r->type[0] && r->sentence[0]);
		assert_in_range(r->http_status, 400, 599);
		/* sysexits.h, clear of 1..63 which user code may use */
		assert_in_range(r->exit_status, 64, 78);
		for (const char *c = r->code; *c; c++)
			assert_true((*c >= 'a' && *c <= 'z') || *c == '_');
		if (r->http_status == 429 || r->http_status == 503)
			assert_true(r->is_retryable);
		if (r->http_status >= 400 && r->http_status < 429)
			assert_false(r->is_retryable);
	}
}

static void unknown_code_is_internal(void **state)
{
	(void)state;
	assert_ptr_equal(err_info((enum err_code)ERR_N),
			 err_info(ERR_INTERNAL));
	assert_ptr_equal(err_info((enum err_code) - 1), err_info(ERR_INTERNAL));
}

static void set_takes_the_sentence(void **state)
{
	struct err e;

	(void)state;
	memset(&e, 0xff, sizeof(e));
	assert_int_equal(err_set(&e, ERR_NO_ROUTE, NULL, NULL), -1);
	assert_string_equal(e.text, "no route for this path");
	assert_string_equal(e.param, "");
	assert_int_equal(e.retry_after_s, 0);
}

static void set_formats(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, ERR_LIMITS_INVALID, "limits.vcpus", "vcpus is %d", 9);
	assert_int_equal(e.code, ERR_LIMITS_INVALID);
	assert_string_equal(e.text, "vcpus is 9");
	assert_string_equal(e.param, "limits.vcpus");
	assert_int_equal(err_set(NULL, ERR_INTERNAL, NULL, NULL), -1);
}

static void long_text_is_cut(void **state)
{
	char big[2 * ERR_TEXT_BYTES_MAX];
	struct err e;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	err_set(&e, ERR_INTERNAL, big, "%s", big);
	assert_int_equal(strlen(e.text), ERR_TEXT_BYTES_MAX - 1);
	assert_int_equal(strlen(e.param), ERR_PARAM_BYTES_MAX - 1);
	/* Context in front pushes the end out, never over the edge. */
	err_wrap(&e, "open %s", "/dev/kvm");
	assert_memory_equal(e.text, "open /dev/kvm: xxx", 18);
	assert_int_equal(strlen(e.text), ERR_TEXT_BYTES_MAX - 1);
	err_wrap(&e, "%s", big);
	assert_int_equal(strlen(e.text), ERR_TEXT_BYTES_MAX - 1);
}

static void wrap_adds_in_front(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, ERR_NOT_FOUND, NULL, "no file %s", "a");
	assert_int_equal(err_wrap(&e, "line %d", 3), -1);
	assert_string_equal(e.text, "line 3: no file a");
	assert_int_equal(e.code, ERR_NOT_FOUND);
	assert_int_equal(err_wrap(NULL, "x"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_whole),
		cmocka_unit_test(unknown_code_is_internal),
		cmocka_unit_test(set_takes_the_sentence),
		cmocka_unit_test(set_formats),
		cmocka_unit_test(long_text_is_cut),
		cmocka_unit_test(wrap_adds_in_front),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
