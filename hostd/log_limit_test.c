/*
 * K20: a flood of one kind of message is cut to its bucket, is summed up in
 * one line, and leaves the other kinds alone.  The clock is the test's own.
 */
#include "log_limit.c"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

#define FLOOD_LINES 100000

static int64_t now_ms = 1000000;
static int saved_stderr, file;

int64_t clock_mono_ms(void)
{
	return now_ms;
}

static int capture(void **state)
{
	char path[] = "/tmp/hutch-log-limit-test-XXXXXX";

	(void)state;
	memset(kinds, 0, sizeof(kinds));
	log_set_level(LOG_DEBUG);
	log_limit_begin();
	file = mkostemp(path, O_CLOEXEC | O_APPEND);
	unlink(path);
	saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	return file < 0 || dup2(file, STDERR_FILENO) < 0;
}

static int release(void **state)
{
	(void)state;
	log_set_gate(NULL);
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(file);
	return 0;
}

static char *captured(void)
{
	static char buf[1 << 20];
	ssize_t n = pread(file, buf, sizeof(buf) - 1, 0);

	assert_true(n >= 0);
	buf[n] = 0;
	return buf;
}

static unsigned count(const char *part)
{
	unsigned n = 0;

	for (const char *p = captured(); (p = strstr(p, part)); p++)
		n++;
	return n;
}

static void flood(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		log_warn("http error=\"%s\"",
			 log_quoted("x\" status=good\n2026 fake", 24).s);
}

static void test_flood(void **state)
{
	(void)state;
	flood(FLOOD_LINES);
	assert_int_equal(count("http error="), 10);
	assert_int_equal(count("status=good\\x0a2026"), 10);
	log_warn("another kind");
	log_error("and an error");
	assert_int_equal(count("another kind"), 1);
	assert_int_equal(count("and an error"), 1);
	log_limit_summary();
	assert_int_equal(count("log left_out=99990 kind=\"http error="), 1);
	log_limit_summary(); /* nothing new */
	assert_int_equal(count("left_out="), 1);
}

/* 2 a second again after it, 10 at once after a pause; never more. */
static void test_refill(void **state)
{
	(void)state;
	flood(100);
	for (int i = 0; i < 20; i++) {
		now_ms += 100;
		flood(100);
	}
	assert_int_equal(count("http error="), 10 + 4);
	now_ms += 3600 * 1000;
	flood(100);
	assert_int_equal(count("http error="), 10 + 4 + 10);
}

static void test_levels(void **state)
{
	(void)state;
	for (int i = 0; i < 5000; i++) {
		log_error("an error");
		log_info("a state");
		log_debug("a detail");
	}
	assert_int_equal(count("an error"), 10);
	assert_int_equal(count("a state"), 100);
	assert_int_equal(count("a detail"), 1000);
}

/* More kinds than there are buckets share the last one. */
static void test_many_kinds(void **state)
{
	static char fmts[LOG_LIMIT_KINDS_MAX + 50];
	unsigned n = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(fmts); i++)
		n += log_limit_pass(LOG_WARN, &fmts[i]);
	assert_int_equal(n, LOG_LIMIT_KINDS_MAX + 10);
	log_limit_summary();
	assert_int_equal(count("left_out=40 kind=\"other messages\""), 1);
}

static void *shout(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20000; i++)
		log_warn("from two threads");
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t t[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, shout, NULL), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	log_limit_summary();
	assert_int_equal(count("from two threads\n"), 10);
	assert_int_equal(count("left_out=39990"), 1);
}

/* Whoever reads the log stands still: lines are left out, nobody waits. */
static void test_full_pipe(void **state)
{
	static char buf[1 << 20];
	int fds[2];
	size_t n = 0;
	ssize_t got;

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_true(dup2(fds[1], STDERR_FILENO) >= 0);
	close(fds[1]);
	alarm(20);
	for (int i = 0; i < 2000; i++)
		log_debug("%0400d", i); /* 800 KB into 64 KiB; within rate */
	log_error("one that does not fit");
	log_limit_summary();
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	while ((got = read(fds[0], buf + n, sizeof(buf) - 1 - n)) > 0)
		n += (size_t)got;
	assert_in_range(n, 50000, 65536);
	assert_int_equal(buf[n - 1], '\n');
	now_ms += 5000;
	log_limit_summary();
	log_error("one that fits");
	got = read(fds[0], buf, sizeof(buf) - 1);
	assert_true(got > 0);
	buf[got] = 0;
	assert_non_null(strstr(buf, "left_out=1 kind=\"one that does not"));
	assert_non_null(strstr(buf, "one that fits"));
	assert_non_null(strstr(buf, "kind=\"%0400d"));
	alarm(0);
	close(fds[0]);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, capture, release)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_flood),      CASE(test_refill),  CASE(test_levels),
		CASE(test_many_kinds), CASE(test_threads), CASE(test_full_pipe),
	};

	log_init("hutchd");
	return cmocka_run_group_tests_name("log_limit", tests, NULL, NULL);
}
