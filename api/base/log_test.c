/* Unit tests of log.c: escaping, cutting, one write a line. */
#include "log.c"
#include <fcntl.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int saved_stderr, file;

static int capture(void **state)
{
	char path[] = "/tmp/hutch-log-test-XXXXXX";

	(void)state;
	file = mkostemp(path, O_CLOEXEC);
	unlink(path);
	saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	return file < 0 || dup2(file, STDERR_FILENO) < 0;
}

static int release(void **state)
{
	(void)state;
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(file);
	return 0;
}

static size_t captured(char *buf, size_t cap)
{
	ssize_t n = pread(file, buf, cap - 1, 0);

	assert_true(n >= 0);
	buf[n] = 0;
	return (size_t)n;
}

static void line_has_time_program_level(void **state)
{
	char buf[LOG_LINE_BYTES_MAX + 1];
	size_t n;

	(void)state;
	program = "hutchd";
	log_set_level(LOG_INFO);
	errno = ENOSPC;
	log_info("sandbox=%s event=%s", "sbx_1", "start");
	assert_int_equal(errno, ENOSPC);
	n = captured(buf, sizeof(buf));
	assert_int_equal(buf[n - 1], '\n');
	assert_non_null(strstr(buf, "Z hutchd info sandbox=sbx_1 event=start"));
	assert_int_equal(buf[4], '-');
	assert_int_equal(buf[10], 'T');
}

static void level_filters(void **state)
{
	char buf[256];

	(void)state;
	log_set_level(LOG_WARN);
	log_info("hidden");
	log_debug("hidden");
	assert_int_equal(captured(buf, sizeof(buf)), 0);
}

static void long_line_is_cut_and_ended(void **state)
{
	char big[3 * LOG_LINE_BYTES_MAX], buf[4 * LOG_LINE_BYTES_MAX];
	size_t n;

	(void)state;
	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	log_set_level(LOG_INFO);
	log_error("%s", big);
	n = captured(buf, sizeof(buf));
	assert_true(n <= LOG_LINE_BYTES_MAX);
	assert_int_equal(buf[n - 1], '\n');
	assert_int_equal(buf[n - 2], 'y');
}

static void foreign_text_is_escaped(void **state)
{
	(void)state;
	assert_string_equal(log_text("a\nb\x1b[2J\0\xff\\", 9).s,
			    "a\\x0ab\\x1b[2J\\x00\\xff");
	assert_string_equal(log_text("\\", 1).s, "\\x5c");
	assert_string_equal(log_text(NULL, 0).s, "");
	/* K20: what stands between quotes cannot end them. */
	assert_string_equal(log_quoted("x\" status=\n\\", 12).s,
			    "x\\x22 status=\\x0a\\x5c");
	assert_string_equal(log_text("a\"b", 3).s, "a\"b");
}

static unsigned n_asked;

static bool only_errors(enum log_level level, const char *fmt)
{
	assert_non_null(fmt);
	n_asked++;
	return level == LOG_ERROR;
}

static void gate_decides(void **state)
{
	char buf[LOG_LINE_BYTES_MAX];

	(void)state;
	log_set_level(LOG_WARN);
	log_set_gate(only_errors);
	log_info("below the level: nobody is asked");
	log_warn("stopped at the gate");
	assert_int_equal(captured(buf, sizeof(buf)), 0);
	assert_int_equal(n_asked, 1);
	log_error("let through");
	log_set_gate(NULL);
	captured(buf, sizeof(buf));
	assert_non_null(strstr(buf, "let through"));
}

static void foreign_text_is_bounded(void **state)
{
	char big[4096];
	struct log_text t;

	(void)state;
	for (int fill = 0; fill < 256; fill += 255) {
		memset(big, fill ? fill : 'a', sizeof(big));
		t = log_text(big, sizeof(big));
		assert_true(strlen(t.s) <= LOG_TEXT_BYTES_MAX + 3);
		assert_string_equal(t.s + strlen(t.s) - 3, "...");
	}
	/* Exactly at the limit nothing is cut. */
	memset(big, 'a', sizeof(big));
	t = log_text(big, LOG_TEXT_BYTES_MAX);
	assert_int_equal(strlen(t.s), LOG_TEXT_BYTES_MAX);
	assert_int_equal(t.s[LOG_TEXT_BYTES_MAX - 1], 'a');
}

static void level_comes_from_the_environment(void **state)
{
	(void)state;
	setenv("HUTCH_LOG", "debug", 1);
	log_init("x");
	assert_int_equal(threshold, LOG_DEBUG);
	setenv("HUTCH_LOG", "nonsense", 1);
	log_init("x");
	assert_int_equal(threshold, LOG_DEBUG);
	unsetenv("HUTCH_LOG");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(line_has_time_program_level,
						capture, release),
		cmocka_unit_test_setup_teardown(level_filters, capture,
						release),
		cmocka_unit_test_setup_teardown(long_line_is_cut_and_ended,
						capture, release),
		cmocka_unit_test_setup_teardown(gate_decides, capture, release),
		cmocka_unit_test(foreign_text_is_escaped),
		cmocka_unit_test(foreign_text_is_bounded),
		cmocka_unit_test(level_comes_from_the_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
