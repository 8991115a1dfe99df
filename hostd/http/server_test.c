/*
 * The HTTP front against hostile and slow clients, over real sockets: cases
 * K1 to K5, K8, K16, K19, by their ids.
 */
#include "fd.h"
#include "log.h"
#include "server_test_util.h"
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- K1, K2, K5: framing ---------------------------------------------- */

static void test_basic(void **state)
{
	const char *got;

	(void)state;
	still_healthy();
	got = talk("GET /nope HTTP/1.1\r\nLbb-Version: 2026-10-21\r\n" CLOSE);
	want(got, "404", "\"message\":\"no route for GET /nope\"");
	want(got, "404", "X-Request-Id: req_");
	want(got, "404", "Lbb-Version: 2026-10-21");
	want(got, "404", "\"doc_url\":\"http://127.0.0.1:");
	got = talk("PUT /echo HTTP/1.1\r\n" CLOSE);
	want(got, "405", "Allow: POST, OPTIONS");
	got = talk("HEAD /later HTTP/1.1\r\n" CLOSE);
	want(got, "200", "Content-Length: 7");
	assert_null(strstr(got, "later"));
	want(talk("OPTIONS /later HTTP/1.1\r\n" CLOSE), "204",
	     "Allow: GET, HEAD, OPTIONS");
	want(talk("OPTIONS * HTTP/1.1\r\n" CLOSE), "204", "Allow: ");
	want(talk("TRACE /later HTTP/1.1\r\n" CLOSE), "405", NULL);
	want(talk("CONNECT x:80 HTTP/1.1\r\n" CLOSE), "404", NULL);
	want(talk("GET http://localhost/later HTTP/1.1\r\n" CLOSE), "200",
	     "later");
	want(talk("GET /later?long=1&long=2 HTTP/1.1\r\n" CLOSE), "400",
	     "comes twice");
	want(talk("GET /later?x=1 HTTP/1.1\r\n" CLOSE), "400",
	     "\"param\":\"x\"");
	want(talk("GET /stream HTTP/1.1\r\n" CLOSE), "200", "begin\n");
	assert_non_null(strstr(answer, "tick\n"));
	want(talk("GET /later HTTP/1.0\r\n\r\n"), "200", "later");
}

static void test_k1_heads(void **state)
{
	static const char nul[] = "GET /later HTTP/1.1\r\nX: a\0b\r\n" CLOSE;
	static char big[80000], request[90000];
	const char *got;

	(void)state;
	repeat(big, "a", 40000);
	snprintf(request, sizeof(request),
		 "GET /later HTTP/1.1\r\nX: %s\r\n" CLOSE, big);
	want(talk(request), "431", NULL);
	repeat(big, "a", 60000);
	snprintf(request, sizeof(request), "GET /%s HTTP/1.1\r\n" CLOSE, big);
	got = talk(request);
	if (*got)
		want(got, "4", NULL);
	repeat(big, "a: b\r\n", 1000);
	snprintf(request, sizeof(request), "GET /later HTTP/1.1\r\n%s" CLOSE,
		 big);
	/* No memory is left for an answer either: the end is what counts. */
	got = talk(request);
	if (*got)
		want(got, "4", NULL);
	repeat(big, "a: b\r\n", 101);
	snprintf(request, sizeof(request), "GET /later HTTP/1.1\r\n%s" CLOSE,
		 big);
	want(talk(request), "400", "header fields; at most 100");
	want(talk("GET /later HTTP/1.1\r\n\r\n"), "400", NULL);
	want(talk("GET /later HTTP/1.1\r\nnonsense\r\n" CLOSE), "400", NULL);
	want(talk("GET /later HTTP/1.1\r\nX: a\x01"
		  "b\r\n" CLOSE),
	     "400", "control character");
	/* MHD cuts the value at the NUL: no NUL gets past it. */
	want(talk_bytes(nul, sizeof(nul) - 1), "200", "later");
	want(talk("GET /later HTTP/1.1\r\nHost: localhost\r\nHost: x\r\n\r\n"),
	     "400", "comes 2 times");
	still_healthy();
}

static void test_k2_framing(void **state)
{
	static const char *const heads[] = {
		"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
		"Content-Length: 2\r\nContent-Length: 2\r\n",
		"Content-Length: 2\r\nContent-Length: 3\r\n",
		"Content-Length: +2\r\n",
		"Content-Length: 0x2\r\n",
		"Content-Length: 99999999999999999999999\r\n",
		"Content-Length: -1\r\n",
		"Content-Length: 2,2\r\n",
		"Transfer-Encoding: gzip, chunked\r\n",
		"Transfer-Encoding: xchunked\r\n",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
	};
	static const char *const chunks[] = {
		"ffffffffffffffffff\r\n", "-1\r\n{}\r\n", "g\r\n{}\r\n",
		"2\r\n{}x\r\n",		  "\r\n\r\n",
	};
	char request[512];

	(void)state;
	for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		snprintf(request, sizeof(request),
			 "POST /echo HTTP/1.1\r\n"
			 "Content-Type: application/json\r\n%s" HOST "\r\n{}",
			 heads[i]);
		want(talk(request), "4", NULL);
	}
	for (size_t i = 0; i < sizeof(chunks) / sizeof(*chunks); i++) {
		snprintf(request, sizeof(request),
			 "POST /echo HTTP/1.1\r\n"
			 "Content-Type: application/json\r\n"
			 "Transfer-Encoding: chunked\r\n" HOST "\r\n%s",
			 chunks[i]);
		want(talk(request), "4", NULL);
	}
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		  "Transfer-Encoding: chunked\r\n" CLOSE
		  "1\r\n{\r\n1;ext=1\r\n}\r\n0\r\n\r\n"),
	     "200", "\r\n\r\n{}");
	still_healthy();
}

static void test_k5_pipelining(void **state)
{
	const char *got =
		talk("GET /later HTTP/1.1\r\n" HOST "\r\n"
		     "POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		     "Content-Length: 3\r\n" HOST "\r\n[1]"
		     "GET /nope HTTP/1.1\r\n" CLOSE);
	const char *second, *third;

	(void)state;
	want(got, "200", "later");
	second = strstr(got, "\r\n\r\n[1]");
	third = strstr(got, "HTTP/1.1 404");
	assert_non_null(second);
	assert_true(third > second);
}

/* ---- K4: bodies ------------------------------------------------------- */

static void test_k4_bodies(void **state)
{
	static char body[ECHO_BYTES_MAX + 2], request[ECHO_BYTES_MAX + 512];

	(void)state;
	repeat(body, "x", ECHO_BYTES_MAX);
	snprintf(request, sizeof(request),
		 "POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		 "Content-Length: %u\r\n" CLOSE "%s",
		 ECHO_BYTES_MAX, body);
	want(talk(request), "200", body);
	snprintf(request, sizeof(request),
		 "POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		 "Content-Length: %u\r\n" CLOSE "%sx",
		 ECHO_BYTES_MAX + 1, body);
	want(talk(request), "413", "\"code\":\"body_too_large\"");
	snprintf(request, sizeof(request),
		 "POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		 "Transfer-Encoding: chunked\r\n" CLOSE
		 "10001\r\n%sx\r\n0\r\n\r\n",
		 body);
	want(talk(request), "413", "\"code\":\"body_too_large\"");
	/* Far too large: answered before it is sent. */
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		  "Content-Length: 999999999999\r\n" HOST "\r\n{"),
	     "413", "Connection: close");
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		  "Content-Length: 99999\r\nExpect: 100-continue\r\n" HOST
		  "\r\n"),
	     "413", NULL);
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: text/plain\r\n"
		  "Content-Length: 2\r\n" CLOSE "{}"),
	     "415", "must be application/json");
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/jsonx\r\n"
		  "Content-Length: 2\r\n" CLOSE "{}"),
	     "415", NULL);
	want(talk("POST /echo HTTP/1.1\r\nContent-Length: 2\r\n"
		  "Content-Type: Application/JSON; charset=utf-8\r\n" CLOSE
		  "{}"),
	     "200", NULL);
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		  "Content-Encoding: gzip\r\nContent-Length: 2\r\n" CLOSE "{}"),
	     "415", "Content-Encoding gzip is not supported");
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		  "Content-Encoding: identity\r\nContent-Length: 2\r\n" CLOSE
		  "{}"),
	     "200", NULL);
	want(talk("GET /later HTTP/1.1\r\nContent-Length: 2\r\n" CLOSE "{}"),
	     "413", "takes no body");
	still_healthy();
}

/* A body that is a file: of any type, or of none, and its own error. */
static void test_raw(void **state)
{
	static char request[ECHO_BYTES_MAX + 512];

	(void)state;
	want(talk("PUT /raw HTTP/1.1\r\nContent-Length: 3\r\n" CLOSE "a\xff{"),
	     "200", "a\xff{");
	want(talk("PUT /raw HTTP/1.1\r\nContent-Type: text/csv\r\n"
		  "Content-Length: 1\r\n" CLOSE "a"),
	     "200", NULL);
	want(talk("PUT /raw HTTP/1.1\r\n" CLOSE), "200", NULL);
	want(talk("PUT /raw HTTP/1.1\r\nContent-Length: 999999999\r\n" HOST
		  "\r\nx"),
	     "413", "\"code\":\"sandbox_file_too_large\"");
	snprintf(request, sizeof(request),
		 "PUT /raw HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" CLOSE
		 "10001\r\n%065537d\r\n0\r\n\r\n",
		 0);
	want(talk(request), "413", "\"code\":\"sandbox_file_too_large\"");
	want(talk("PUT /raw HTTP/1.1\r\nContent-Encoding: gzip\r\n"
		  "Content-Length: 1\r\n" CLOSE "a"),
	     "415", NULL);
	still_healthy();
}

static void test_continue(void **state)
{
	int fd = dial();
	static const char head[] =
		"POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		"Content-Length: 2\r\nExpect: 100-continue\r\n" CLOSE;

	(void)state;
	assert_int_equal(write(fd, head, strlen(head)), strlen(head));
	assert_int_equal(read(fd, answer, 25), 25);
	assert_memory_equal(answer, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	assert_int_equal(write(fd, "{}", 2), 2);
	want(read_answer(fd), "200", "\r\n\r\n{}");
}

/* ---- keys, hosts ------------------------------------------------------ */

static void test_keys(void **state)
{
	static char key[300], request[600];

	(void)state;
	want(talk("GET /key HTTP/1.1\r\n" CLOSE), "401",
	     "\"code\":\"unauthorized\"");
	want(talk("GET /key HTTP/1.1\r\nAuthorization: Basic eDp5\r\n" CLOSE),
	     "401", "WWW-Authenticate: Bearer");
	want(talk("GET /key HTTP/1.1\r\n"
		  "Authorization: Bearer lbb_sk_live_0\r\n" CLOSE),
	     "401", "not known");
	/* K6: a token in the query is no token. */
	want(talk("GET /key?token=lbb_sk_live_0 HTTP/1.1\r\n" CLOSE), "401",
	     NULL);
	want(talk("POST /once HTTP/1.1\r\n" CLOSE), "400",
	     "\"code\":\"missing_idempotency_key\"");
	repeat(key, "k", 255);
	snprintf(request, sizeof(request),
		 "POST /once HTTP/1.1\r\nIdempotency-Key: %s\r\n" CLOSE, key);
	want(talk(request), "200", NULL);
	repeat(key, "k", 256);
	snprintf(request, sizeof(request),
		 "POST /once HTTP/1.1\r\nIdempotency-Key: %s\r\n" CLOSE, key);
	want(talk(request), "400", "at most 255");
	want(talk("POST /once HTTP/1.1\r\nIdempotency-Key: \xc3\xa9\r\n" CLOSE),
	     "400", "printable ASCII");
	/* Where none is needed, one that comes is checked all the same. */
	want(talk("POST /echo HTTP/1.1\r\nIdempotency-Key: a:1\r\n" CLOSE),
	     "200", NULL);
	want(talk("POST /echo HTTP/1.1\r\nIdempotency-Key: \xc3\xa9\r\n" CLOSE),
	     "400", "printable ASCII");
	want(talk("POST /echo HTTP/1.1\r\nIdempotency-Key:\r\n" CLOSE), "400",
	     "the Idempotency-Key is empty");
	want(talk("GET /admin HTTP/1.1\r\n" CLOSE), "404", "no route for");
}

/* How many of `part` came in the answers to `n` requests on one connection. */
static unsigned ask_many(const char *request, unsigned n, const char *part)
{
	unsigned n_seen = 0, n_part = 0;
	size_t len = 0;
	int fd = dial();

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(write(fd, request, strlen(request)),
				 strlen(request));
	while (n_seen < n) {
		ssize_t got = read(fd, answer + len, ANSWER_BYTES_MAX - len);

		assert_true(got > 0);
		len += (size_t)got;
		answer[len] = 0;
		n_seen = n_part = 0;
		for (char *p = answer; (p = strstr(p, "HTTP/1.1 ")); p++)
			n_seen++;
		for (char *p = answer; (p = strstr(p, part)); p++)
			n_part++;
	}
	close(fd);
	return n_part;
}

/* K6: wrong keys without end; right ones of the same address are served. */
static void test_k6_wrong_keys(void **state)
{
	static const char wrong[] = "GET /key HTTP/1.1\r\n" HOST
				    "Authorization: Bearer lbb_sk_1\r\n\r\n";
	static const char right[] =
		"GET /key HTTP/1.1\r\n"
		"Authorization: Bearer " TEST_KEY "\r\n" CLOSE;

	(void)state;
	clock_set(3600000);
	usleep(100000);
	want(talk(right), "200", NULL);
	assert_int_equal(ask_many(wrong, 300, "HTTP/1.1 401 "), 30);
	assert_int_equal(ask_many(wrong, 300, "HTTP/1.1 429 "), 300);
	want(talk("GET /key HTTP/1.1\r\nAuthorization: Bearer x\r\n" CLOSE),
	     "429", "Retry-After: 2");
	assert_non_null(strstr(answer, "\"code\":\"rate_limited\""));
	assert_non_null(strstr(answer, "\"retry_after_seconds\":2"));
	assert_non_null(strstr(answer, "\"retryable\":true"));
	assert_int_equal(ask_many("GET /key HTTP/1.1\r\n" HOST
				  "Authorization: Bearer " TEST_KEY "\r\n\r\n",
				  100, "HTTP/1.1 200 "),
			 100);
	/* Who sends none is told that, and costs the others nothing. */
	want(talk("GET /key HTTP/1.1\r\n" CLOSE), "401", "no API key");
	clock_set(3602500);
	assert_int_equal(ask_many(wrong, 10, "HTTP/1.1 401 "), 1);
	clock_set(0);
}

static void test_k8_hosts(void **state)
{
	static const struct {
		const char *head, *status;
	} cases[] = {
		{"Host: 127.0.0.1:1\r\n", "200"},
		{"Host: LOCALHOST\r\n", "200"},
		{"Host: [::1]:80\r\n", "200"},
		{"Host: other.test:9\r\n", "200"},
		{"Host: hutch.test\r\n", "200"},
		{"Host: evil.test\r\n", "403"},
		{"Host: localhost.evil.test\r\n", "403"},
		{"Host: hutch.tes\r\n", "403"},
		{"Host: \r\n", "403"},
		{"Host: localhost\r\nOrigin: http://evil.test\r\n", "403"},
		{"Host: localhost\r\nOrigin: null\r\n", "403"},
		{"Host: localhost\r\nOrigin: http://localhost:8000\r\n", "200"},
	};
	char request[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(request, sizeof(request),
			 "GET /stream HTTP/1.1\r\n%sConnection: close\r\n\r\n",
			 cases[i].head);
		want(talk(request), cases[i].status, NULL);
	}
}

/* ---- K3: slow clients ------------------------------------------------- */

static bool is_closed(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

static bool closes_soon(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char buf[4096];
	ssize_t n;

	for (int i = 0; i < 100; i++) {
		if (poll(&p, 1, 3000) != 1)
			return false;
		n = recv(fd, buf, sizeof(buf), 0);
		if (n <= 0)
			return true;
	}
	return true;
}

static void test_k3_slow(void **state)
{
	int head = dial(), body = dial(), idle = dial(), reader = dial();
	int silent = dial();

	(void)state;
	assert_int_equal(write(head, "GET /later HT", 13), 13);
	dprintf(body,
		"POST /echo HTTP/1.1\r\nContent-Type: "
		"application/json\r\nContent-Length: 9\r\n" HOST "\r\n[1");
	dprintf(idle, "GET /nope HTTP/1.1\r\n" HOST "\r\n");
	dprintf(reader, "GET /large HTTP/1.1\r\n" HOST "\r\n");
	assert_true(read(idle, answer, ANSWER_BYTES_MAX) > 0);
	usleep(100000);
	clock_set(9000);
	usleep(600000);
	assert_int_equal(write(head, "TP", 2), 2);
	assert_false(is_closed(head));
	clock_set(11000);
	assert_true(closes_soon(head));
	assert_true(closes_soon(silent));
	assert_false(is_closed(body));
	assert_false(is_closed(idle));
	clock_set(50000);
	usleep(600000);
	assert_int_equal(write(body, ",", 1), 1);
	assert_false(is_closed(body));
	clock_set(75000);
	assert_true(closes_soon(body));
	assert_true(closes_soon(idle));
	/* The reader never read: what is in flight comes, then the end. */
	while (recv(reader, answer, ANSWER_BYTES_MAX, 0) > 0)
		;
	close(head);
	close(body);
	close(idle);
	close(reader);
	close(silent);
	still_healthy();
}

static void test_k3_many(void **state)
{
	static int fds[1000];

	(void)state;
	for (int i = 0; i < 1000; i++) {
		fds[i] = dial();
		assert_int_equal(write(fds[i], "GET /", 5), 5);
	}
	for (int i = 0; i < 20; i++)
		still_healthy();
	for (int i = 0; i < 1000; i++)
		close(fds[i]);
	still_healthy();
}

/* K5, K10: clients that leave early, at every point. */
static void test_early_close(void **state)
{
	static const char request[] =
		"POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		"Content-Length: 2\r\n" HOST
		"\r\n{}GET /later HTTP/1.1\r\n" HOST "\r\n";

	(void)state;
	for (size_t n = 0; n <= strlen(request); n++) {
		int fd = dial();

		assert_int_equal(write(fd, request, n), n);
		close(fd);
	}
	usleep(300000);
	still_healthy();
}

/* K16: more clients than connections may be open: they wait, none is lost,
 * and the daemon does not spin. */
static void test_k16_limit(void **state)
{
	static int fds[CONNECTIONS_MAX + 50];
	const int n = CONNECTIONS_MAX + 50;

	(void)state;
	for (int i = 0; i < n; i++)
		fds[i] = dial();
	for (int i = 0; i < 100; i++)
		close(fds[i]);
	still_healthy();
	for (int i = 100; i < n; i++)
		close(fds[i]);
	still_healthy();
}

/* ---- K19: drain ------------------------------------------------------- */

static void test_drain(void **state)
{
	static const char waits[] = "GET /later?long=1 HTTP/1.1\r\n" CLOSE;
	int waiting = dial(), idle = dial(), status = -1;

	(void)state;
	assert_int_equal(write(waiting, waits, strlen(waits)), strlen(waits));
	dprintf(idle, "GET /nope HTTP/1.1\r\n" HOST "\r\n");
	assert_true(read(idle, answer, ANSWER_BYTES_MAX) > 0);
	usleep(100000);
	assert_int_equal(write(term_fd, "d", 1), 1);
	usleep(200000);
	dprintf(idle, "GET /later HTTP/1.1\r\n" CLOSE);
	want(read_answer(idle), "503", "Retry-After: 1");
	assert_int_equal(write(term_fd, "s", 1), 1);
	want(read_answer(waiting), "503", "\"retryable\":true");
	waitpid(server_pid, &status, 0);
	assert_int_equal(status, 0);
	fd_close(&term_fd);
	assert_int_equal(start(NULL), 0);
}

static void test_admin_socket(void **state)
{
	char command[256];
	int fd = dial_admin();

	(void)state;
	snprintf(command, sizeof(command),
		 "GET /admin?environment=env_x HTTP/1.1\r\nHost: any\r\n"
		 "Connection: close\r\n\r\n");
	assert_true(write(fd, command, strlen(command)) > 0);
	want(read_answer(fd), "200", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_basic),
		cmocka_unit_test(test_k1_heads),
		cmocka_unit_test(test_k2_framing),
		cmocka_unit_test(test_k5_pipelining),
		cmocka_unit_test(test_k4_bodies),
		cmocka_unit_test(test_raw),
		cmocka_unit_test(test_continue),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_k6_wrong_keys),
		cmocka_unit_test(test_k8_hosts),
		cmocka_unit_test(test_admin_socket),
		cmocka_unit_test(test_early_close),
		cmocka_unit_test(test_k3_many),
		cmocka_unit_test(test_k16_limit),
		cmocka_unit_test(test_drain),
		cmocka_unit_test(test_k3_slow),
	};
	struct rlimit files = {4096, 4096};
	int rc;

	log_init("http_server_test");
	setrlimit(RLIMIT_NOFILE, &files);
	if (test_files_make())
		return 1;
	rc = cmocka_run_group_tests_name("http_server", tests, start, stop);
	test_files_remove();
	return rc;
}
