/*
 * What a client can do to answers: bytes of its own in headers (K14), and not
 * reading a stream (K15).
 */
#include "log.h"
#include "request.h"
#include "server_test_util.h"
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Lines of the answer's head that begin with `name`. */
static unsigned heads(const char *got, const char *name)
{
	const char *end = strstr(got, "\r\n\r\n");
	char line[64];
	unsigned n = 0;

	assert_non_null(end);
	snprintf(line, sizeof(line), "\n%s", name);
	for (const char *p = got; (p = strstr(p, line)) && p < end; p++)
		n++;
	return n;
}

static void test_k14_headers(void **state)
{
	static const char *const versions[] = {
		"2026\r\nSet-Cookie: a=b",	   /* a field of its own */
		"2026\r\n Set-Cookie: a=b",	   /* folded */
		"2026\nSet-Cookie: a=b",	   /* bare LF */
		"2026\rSet-Cookie: a=b",	   /* bare CR */
		"2026\x0bSet-Cookie: a=b\x7f\x01", /* other controls */
		"\xc4\x8d\xc4\x8aSet-Cookie: a=b", /* becomes CR LF when cut */
	};
	char request[512];

	(void)state;
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		snprintf(request, sizeof(request),
			 "GET /nope HTTP/1.1\r\nLbb-Version: %s\r\n" CLOSE,
			 versions[i]);
		want(talk(request), "4", NULL);
		assert_int_equal(heads(answer, "Set-Cookie"), 0);
		assert_true(heads(answer, "Lbb-Version") <= 1);
	}
	/* What is echoed in a body is JSON there, and the type says so. */
	want(talk("GET /x%0d%0aSet-Cookie:%20a=b<script>\"' "
		  "HTTP/1.1\r\n" CLOSE),
	     "404", "Content-Type: application/json");
	assert_int_equal(heads(answer, "Set-Cookie"), 0);
	assert_non_null(strstr(answer, "<script>\\\"'"));
	assert_int_equal(heads(answer, "X-Content-Type-Options: nosniff"), 1);
	want(talk("GET /later?%0d%0aSet-Cookie:a HTTP/1.1\r\n" CLOSE), "400",
	     "\\r\\nSet-Cookie");
	assert_int_equal(heads(answer, "Set-Cookie"), 0);
}

static long server_peak_kib(void)
{
	char path[64], line[256];
	long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)server_pid);
	f = fopen(path, "re");
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmHWM: %ld", &kib);
	fclose(f);
	return kib;
}

/* 64 MB for a client that does not read: whole pieces are left out. */
static void test_k15_slow_reader(void **state)
{
	static char buf[1 << 20];
	long before = server_peak_kib();
	int fd = dial(), small = 4096, large = 1 << 20;
	size_t total = 0, lines = 0, run = 0;
	bool has_last = false;
	ssize_t n;
	char *body;

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	/* HTTP/1.0: the stream comes without chunks and ends with a close. */
	dprintf(fd, "GET /pour HTTP/1.0\r\n" HOST "\r\n");
	for (int i = 0; i < 10; i++) {
		usleep(100000);
		still_healthy();
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large));
	n = read(fd, buf, sizeof(buf));
	assert_true(n > 0);
	body = memmem(buf, (size_t)n, "\r\n\r\n", 4);
	assert_non_null(body);
	for (body += 4;; body = buf) {
		for (; body < buf + n; body++, total++) {
			run++;
			if (*body != '\n')
				continue;
			has_last = run == strlen("last\n");
			assert_true(has_last || run == POUR_LINE_BYTES);
			run = 0;
			lines++;
		}
		n = read(fd, buf, sizeof(buf));
		if (n <= 0)
			break;
	}
	close(fd);
	assert_int_equal(run, 0);
	assert_true(has_last);
	assert_true(lines > 0 && lines < POUR_LINES / 2);
	assert_true(total >= STREAM_BYTES_MAX / 2);
	assert_true(server_peak_kib() - before < 16 << 10);
	still_healthy();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_k14_headers),
		cmocka_unit_test(test_k15_slow_reader),
	};
	int rc;

	log_init("answer_test");
	if (test_files_make())
		return 1;
	rc = cmocka_run_group_tests_name("answer", tests, start, stop);
	test_files_remove();
	return rc;
}
