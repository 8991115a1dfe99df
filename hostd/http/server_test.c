/*
 * The HTTP front against hostile and slow clients, over real sockets.
 *
 * The server runs in a child process with a small route table; the tests talk
 * to it byte by byte.  Its clock is the movable one: a test jumps over a
 * deadline instead of waiting for it.  Cases: K1 to K5, K8, K16, K19.
 */
#include "../loop.h"
#include "auth.h"
#include "fd.h"
#include "log.h"
#include "request.h"
#include "server.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka wants the standard ones first. */
#include <cmocka.h>

#define ANSWER_BYTES_MAX (1u << 20)
#define ECHO_BYTES_MAX	 (64u << 10)
#define CONNECTIONS_MAX	 1200
#define HOST		 "Host: localhost\r\n"
#define CLOSE		 HOST "Connection: close\r\n\r\n"

static char dir[] = "/tmp/http_server_test.XXXXXX";
static char clock_path[64], admin_path[64];
static struct sockaddr_in address;
static pid_t server_pid;
static char answer[ANSWER_BYTES_MAX + 1];

/* ---- the server ------------------------------------------------------- */

static void echo(struct request *r)
{
	reply_bytes(r, 200, "application/json", &r->body);
}

struct later {
	struct loop_timer timer;
	struct request *r;
};

static void later_fire(struct loop_timer *t)
{
	struct later *l = container_of(t, struct later, timer);
	struct json_out j = {0};

	json_out_str(&j, NULL, "later");
	l->r->abandon = NULL;
	reply_json(l->r, 200, &j);
	free(l);
}

static void later_abandon(struct request *r)
{
	struct later *l = r->op;

	loop_timer_stop(r->services->loop, &l->timer);
	free(l);
	request_drop(r);
}

static void later(struct request *r)
{
	struct later *l = calloc(1, sizeof(*l));

	l->r = r;
	l->timer.fn = later_fire;
	r->op = l;
	r->abandon = later_abandon;
	loop_timer_set(r->services->loop, &l->timer,
		       query_get(&r->query, "long") ? 1000000 : 200);
}

static void stream_tick(struct loop_timer *t)
{
	struct later *l = container_of(t, struct later, timer);

	reply_stream_write(l->r, "tick\n", 5);
	reply_stream_end(l->r);
	free(l);
}

static void stream(struct request *r)
{
	struct later *l = calloc(1, sizeof(*l));

	l->r = r;
	l->timer.fn = stream_tick;
	reply_stream_begin(r, "text/plain");
	reply_stream_write(r, "begin\n", 6);
	loop_timer_set(r->services->loop, &l->timer, 100);
}

static void large(struct request *r)
{
	struct bytes b = {0};

	bytes_reserve(&b, 8u << 20);
	memset(b.data, 'x', 8u << 20);
	b.len = 8u << 20;
	reply_bytes(r, 200, "text/plain", &b);
}

static const char *const p_none[] = {NULL};
static const char *const p_long[] = {"long", NULL};

static const struct route rows[] = {
	{HTTP_POST, "/echo", "echo", 0, ECHO_BYTES_MAX, p_none, echo},
	{HTTP_GET, "/later", "later", 0, 0, p_long, later},
	{HTTP_GET, "/stream", "stream", 0, 0, p_none, stream},
	{HTTP_GET, "/large", "large", 0, 0, p_none, large},
	{HTTP_GET, "/key", "key", ROUTE_KEY | ROUTE_GRAPH, 0, p_none, echo},
	{HTTP_POST, "/once", "once", ROUTE_IDEMPOTENT, ECHO_BYTES_MAX, p_none,
	 echo},
	{HTTP_GET, "/admin", "admin", ROUTE_ADMIN, 0, p_none, echo},
};
static const struct route_table table = {"test", rows,
					 sizeof(rows) / sizeof(*rows)};
static const struct route_table *const tables[] = {&table, NULL};

/* Not called: no route that works with keys is reached with one. */
int store_key_list(struct store *s, store_key_fn fn, void *ctx)
{
	(void)s;
	(void)fn;
	(void)ctx;
	abort();
}

static struct services sv;
static struct loop_watch term;

static void on_drained(void *ctx)
{
	(void)ctx;
	loop_stop(sv.loop);
}

/* First byte: drain.  Second byte, or end of file: stop at once. */
static void on_term(struct loop_watch *w, uint32_t revents)
{
	char c;

	(void)revents;
	if (read(w->fd, &c, 1) != 1 || http_server_is_draining(sv.http))
		loop_stop(sv.loop);
	else
		http_server_drain(sv.http, on_drained, NULL);
}

static void serve(int term_fd, int address_fd)
{
	struct http_config cfg = {
		.listen = "127.0.0.1:0",
		.admin_path = admin_path,
		.public_url = "",
		.allowed_hosts = "hutch.test, other.test",
		.connections_max = CONNECTIONS_MAX,
		.body_budget_bytes = 4u << 20,
		.tables = tables,
	};
	struct err e;

	signal(SIGPIPE, SIG_IGN);
	if (loop_create(&sv.loop) || auth_create(&sv.auth, NULL) ||
	    http_server_create(&sv.http, &sv, &cfg, &e))
		_exit(1);
	dprintf(address_fd, "%s", http_server_address(sv.http));
	close(address_fd);
	term.fn = on_term;
	term.fd = term_fd;
	term.events = POLLIN;
	loop_watch_add(sv.loop, &term);
	loop_run(sv.loop);
	http_server_destroy(sv.http);
	loop_watch_remove(sv.loop, &term);
	auth_destroy(sv.auth);
	loop_destroy(sv.loop);
	exit(0); /* so that the leak check of SAN=1 runs */
}

static int term_fd = -1;

static void clock_set(long ms)
{
	FILE *f = fopen(clock_path, "we");

	assert_non_null(f);
	fprintf(f, "%ld\n", ms);
	fclose(f);
}

static int start(void **state)
{
	int pair[2], out[2];
	char text[64] = "";
	char *colon;

	(void)state;
	clock_set(0);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) ||
	    pipe2(out, O_CLOEXEC))
		return -1;
	server_pid = fork();
	if (!server_pid) {
		close(pair[0]);
		close(out[0]);
		serve(pair[1], out[1]);
	}
	close(pair[1]);
	close(out[1]);
	term_fd = pair[0];
	if (fd_read_all(out[0], text, 10) != 0)
		return -1;
	while (strlen(text) < sizeof(text) - 1 &&
	       read(out[0], text + strlen(text), 1) == 1)
		;
	close(out[0]);
	colon = strchr(text, ':');
	*colon = 0;
	address.sin_family = AF_INET;
	address.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	inet_pton(AF_INET, text, &address.sin_addr);
	return 0;
}

static int stop(void **state)
{
	int status = -1;

	(void)state;
	fd_close(&term_fd);
	waitpid(server_pid, &status, 0);
	if (status)
		fprintf(stderr, "server ended with status %#x\n", status);
	return status;
}

/* ---- the client ------------------------------------------------------- */

static int dial(void)
{
	struct timeval limit = {.tv_sec = 10};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	assert_int_equal(
		connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* All that comes until the server closes. */
static const char *read_answer(int fd)
{
	size_t n = 0;

	answer[0] = 0;
	for (;;) {
		ssize_t got = read(fd, answer + n, ANSWER_BYTES_MAX - n);

		if (got <= 0) {
			if (got < 0 && errno == EAGAIN)
				fail_msg("the server did not close: \"%s\"",
					 answer);
			break;
		}
		n += (size_t)got;
		answer[n] = 0;
	}
	answer[n] = 0;
	close(fd);
	return answer;
}

static const char *talk_bytes(const char *request, size_t len)
{
	int fd = dial();

	/* The server may answer and close before it has read all. */
	(void)!send(fd, request, len, MSG_NOSIGNAL);
	return read_answer(fd);
}

static const char *talk(const char *request)
{
	return talk_bytes(request, strlen(request));
}

static void want(const char *got, const char *status, const char *part)
{
	char line[32];

	snprintf(line, sizeof(line), "HTTP/1.1 %s", status);
	if (strncmp(got, line, strlen(line)) || (part && !strstr(got, part)))
		fail_msg("wanted %s with \"%s\", got:\n%s", line,
			 part ? part : "", got);
}

static void still_healthy(void)
{
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		  "Content-Length: 2\r\n" CLOSE "{}"),
	     "200", "\r\n\r\n{}");
}

static const char *repeat(char *dst, const char *part, size_t times)
{
	size_t len = strlen(part);

	for (size_t i = 0; i < times; i++)
		memcpy(dst + i * len, part, len);
	dst[times * len] = 0;
	return dst;
}

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
	want(talk("GET /later HTTP/1.1\r\nContent-Length: 2\r\n" CLOSE "{}"),
	     "413", "takes no body");
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
	want(talk("GET /admin HTTP/1.1\r\n" CLOSE), "404", "no route for");
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
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct {
		sa_family_t family;
		char path[108];
	} a = {.family = AF_UNIX};

	(void)state;
	snprintf(a.path, sizeof(a.path), "%s", admin_path);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
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
		cmocka_unit_test(test_continue),
		cmocka_unit_test(test_keys),
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
	if (!mkdtemp(dir))
		return 1;
	snprintf(clock_path, sizeof(clock_path), "%s/clock", dir);
	snprintf(admin_path, sizeof(admin_path), "%s/admin.sock", dir);
	setenv("HUTCH_TEST_CLOCK", clock_path, 1);
	rc = cmocka_run_group_tests_name("http_server", tests, start, stop);
	unlink(clock_path);
	unlink(admin_path);
	rmdir(dir);
	return rc;
}
