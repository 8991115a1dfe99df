/*
 * Requests that a request makes: the same checks as of one from outside, its
 * answer whole, and both ended when the server closes.
 */
#include "fd.h"
#include "log.h"
#include "request.h"
#include "server_test_util.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEYED "Authorization: Bearer " TEST_KEY "\r\n"

static const char *ask(const char *query, const char *head, const char *body)
{
	static char request[ECHO_BYTES_MAX + 1024];

	snprintf(
		request, sizeof(request),
		"POST /outer?%s HTTP/1.1\r\n" KEYED "%s"
		"Content-Type: application/json\r\nContent-Length: %zu\r\n" HOST
		"Connection: close\r\n\r\n%s",
		query, head, strlen(body), body);
	return talk(request);
}

static void test_answers(void **state)
{
	(void)state;
	want(ask("method=POST&to=/echo", "", "{\"a\":1}"), "200",
	     "\r\n\r\ninner 200 {\"a\":1}");
	want(answer, "200", "X-More: no\r\n");
	/* One that takes its time. */
	want(ask("method=GET&to=/later", "X-Ask: 1\r\n", ""), "200",
	     "inner 200 \"later\"");
	want(answer, "200", "X-More: yes\r\n");
	want(ask("method=GET&to=/large", "", ""), "200", "inner 200 xxx");
	/* As the outer one's caller. */
	want(ask("method=GET&to=/key&query=graph%3Dg", "", ""), "200",
	     "inner 200 ");
	still_healthy();
}

static void test_checks(void **state)
{
	static const struct {
		const char *query, *body, *part;
	} refused[] = {
		{"method=GET&to=/nope", "", "inner 404 {\"error\":"},
		{"method=GET&to=/echo", "", "inner 405 {\"error\":"},
		{"method=GET&to=/later&query=x%3D1", "",
		 "unknown query parameter x"},
		{"method=GET&to=/later&query=long%3D1%26long%3D2", "",
		 "long comes twice"},
		{"method=GET&to=/later&query=long%3D%2500", "",
		 "not valid percent-encoded"},
		{"method=GET&to=/later", "{}",
		 "the body has 2 bytes; at most 0"},
		{"method=POST&to=/off", "0123456789abcdefg",
		 "the body has 17 bytes; at most 16"},
		{"method=GET&to=/key&query=graph%3Da/b", "",
		 "graph \\\"a/b\\\" is not a name"},
		{"method=POST&to=/once", "{}", "missing_idempotency_key"},
		{"method=POST&to=/once&key=%C3%A4", "{}",
		 "not printable ASCII"},
		/* A key opens no door of the admin socket. */
		{"method=GET&to=/admin", "", "inner 404 "},
	};
	char id[64];
	const char *at;

	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
		want(ask(refused[i].query, "", refused[i].body), "200",
		     refused[i].part);
	want(ask("method=POST&to=/once&key=k", "", "{}"), "200",
	     "inner 200 {}");
	/* The error has the id of the answer that the client sees. */
	want(ask("method=GET&to=/nope", "", ""), "200", "inner 404");
	at = strstr(answer, "X-Request-Id: ");
	assert_non_null(at);
	snprintf(id, sizeof(id), "\"request_id\":\"%.20s\"", at + 14);
	want(answer, "200", id);
	still_healthy();
}

/* Both are ended, and the server's memory is whole (SAN=1). */
static void test_close(void **state)
{
	int fd = dial(), status = -1;

	(void)state;
	dprintf(fd, "POST /outer?method=GET&to=/later&query=long%%3D1 HTTP/1.1"
		    "\r\n" KEYED HOST "Connection: close\r\n"
		    "Content-Length: 0\r\n\r\n");
	usleep(200000);
	/* Draining: the outer route answers, what it asks for does not. */
	assert_int_equal(write(term_fd, "d", 1), 1);
	usleep(100000);
	want(ask("method=POST&to=/echo", "", "{}"), "200", "inner 503");
	assert_int_equal(write(term_fd, "s", 1), 1);
	want(read_answer(fd), "503", "\"retryable\":true");
	waitpid(server_pid, &status, 0);
	assert_int_equal(status, 0);
	fd_close(&term_fd);
	assert_int_equal(start(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_checks),
		cmocka_unit_test(test_close),
	};
	int rc;

	log_init("http_inner_test");
	if (test_files_make())
		return 1;
	rc = cmocka_run_group_tests_name("inner", tests, start, stop);
	test_files_remove();
	return rc;
}
