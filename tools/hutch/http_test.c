/*
 * Unit tests of http.c against a server that says what the case wants, byte
 * by byte where that matters.
 */
#include "http.c"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct server {
	int fd;
	const char *text;
	bool is_slow; /* one byte at a time */
};

static void *serve(void *arg)
{
	struct server *s = arg;
	size_t len = strlen(s->text), step = s->is_slow ? 1 : len;
	char request[4096];

	if (recv(s->fd, request, sizeof(request), 0) > 0)
		for (size_t at = 0; at < len; at += step)
			send(s->fd, s->text + at, step, MSG_NOSIGNAL);
	close(s->fd);
	return NULL;
}

/* One call to a server that answers `text` and closes. */
static int call(const char *text, bool is_slow, struct http_reply *r)
{
	struct server s = {.text = text, .is_slow = is_slow};
	struct http h;
	pthread_t t;
	int fds[2], rc;

	http_init_socket(&h, "/nowhere");
	h.timeout_ms = 3000;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	h.fd = fds[0];
	s.fd = fds[1];
	pthread_create(&t, NULL, serve, &s);
	rc = http_call(&h, "POST", "/x", "", NULL, false, r);
	http_finish(&h);
	pthread_join(t, NULL);
	return rc;
}

static void a_body_by_length(void **state)
{
	struct http_reply r;
	char value[32];

	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		assert_int_equal(call("HTTP/1.1 201 Created\r\n"
				      "Content-Length:  5 \r\n"
				      "retry-after: 7\r\n\r\nhello",
				      slow, &r),
				 0);
		assert_int_equal(r.status, 201);
		assert_int_equal(r.body.len, 5);
		assert_memory_equal(r.body.data, "hello", 5);
		assert_true(
			http_header(&r, "Retry-After", value, sizeof(value)));
		assert_string_equal(value, "7");
		assert_false(http_header(&r, "Retry", value, sizeof(value)));
		assert_false(http_header(&r, "Content-Length", value, 1));
		http_reply_finish(&r);
	}
}

static void a_body_in_chunks(void **state)
{
	struct http_reply r;

	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		assert_int_equal(call("HTTP/1.1 200 OK\r\n"
				      "Transfer-Encoding: chunked\r\n\r\n"
				      "5\r\nhello\r\n1;x=y\r\n,\r\n"
				      "6\r\n world\r\n0\r\n\r\n",
				      slow, &r),
				 0);
		assert_int_equal(r.body.len, 12);
		assert_memory_equal(r.body.data, "hello, world", 12);
		http_reply_finish(&r);
	}
}

/* Reads a request until it ends with `last`, and answers 200. */
struct taker {
	int fd;
	const char *last;
	char request[400000];
	size_t len;
};

static void *take(void *arg)
{
	struct taker *t = arg;
	size_t n = strlen(t->last);
	ssize_t got;

	while ((got = recv(t->fd, t->request + t->len,
			   sizeof(t->request) - 1 - t->len, 0)) > 0) {
		t->len += (size_t)got;
		if (t->len >= n && !memcmp(t->request + t->len - n, t->last, n))
			break;
	}
	send(t->fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38,
	     MSG_NOSIGNAL);
	close(t->fd);
	return NULL;
}

static int upload(struct taker *t, uint64_t bytes, size_t len)
{
	FILE *f = tmpfile();
	struct http_reply r;
	struct http h;
	pthread_t thread;
	int fds[2], rc;

	http_init_socket(&h, "/nowhere");
	h.timeout_ms = 3000;
	for (size_t i = 0; i < len; i++)
		fputc(i + 1 == len ? 'z' : 'a', f);
	rewind(f);
	fflush(f);
	h.file.fd = fileno(f);
	h.file.bytes = bytes;
	h.file.type = "text/x";
	h.more_headers = "Range: bytes=0-1\r\n";
	t->len = 0;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	h.fd = fds[0];
	t->fd = fds[1];
	pthread_create(&thread, NULL, take, t);
	rc = http_call(&h, "POST", "/x", "", NULL, false, &r);
	http_finish(&h);
	pthread_join(thread, NULL);
	t->request[t->len] = 0;
	if (!rc)
		http_reply_finish(&r);
	fclose(f);
	return rc;
}

static void a_body_from_a_file(void **state)
{
	static struct taker t = {.last = "z"};

	(void)state;
	assert_int_equal(upload(&t, 200000, 200000), 0);
	assert_non_null(strstr(t.request, "Content-Length: 200000\r\n"));
	assert_non_null(strstr(t.request, "Content-Type: text/x\r\n"));
	assert_non_null(strstr(t.request, "Range: bytes=0-1\r\n"));
	assert_int_equal(strlen(strstr(t.request, "\r\n\r\n")), 200004);
	/* Shorter than it was: not sent as if it were whole. */
	assert_int_equal(upload(&t, 9, 5), -ENODATA);
	t.last = "0\r\n\r\n";
	assert_int_equal(upload(&t, UINT64_MAX, 65537), 0);
	assert_non_null(strstr(t.request, "Transfer-Encoding: chunked\r\n"));
	assert_non_null(strstr(t.request, "\r\n\r\n10000\r\naaa"));
	assert_non_null(strstr(t.request, "a\r\n1\r\nz\r\n0\r\n\r\n"));
	assert_int_equal(upload(&t, UINT64_MAX, 0), 0);
}

static void no_body(void **state)
{
	struct http_reply r;

	(void)state;
	assert_int_equal(call("HTTP/1.1 204 No Content\r\n\r\n", false, &r), 0);
	assert_int_equal(r.body.len, 0);
	http_reply_finish(&r);
}

static void what_a_broken_server_says(void **state)
{
	static const struct {
		const char *text;
		int want;
	} cases[] = {
		{"", -ECONNRESET},
		{"HTTP/1.1 200 OK\r\n", -ECONNRESET},
		{"SSH-2.0-x\r\n\r\n", -EPROTO},
		{"HTTP/1.1 abc\r\n\r\n", -EPROTO},
		{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
		 -ECONNRESET},
		{"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx",
		 -EMSGSIZE},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		 "ffffffffffff\r\nx",
		 -EMSGSIZE},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n"
		 "ab",
		 -ECONNRESET},
	};
	struct http_reply r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		assert_int_equal(call(cases[i].text, false, &r), cases[i].want);
}

static void a_head_without_end(void **state)
{
	size_t len = HTTP_HEAD_BYTES_MAX + 40000;
	char *text = malloc(len + 1);
	struct http_reply r;

	(void)state;
	memset(text, 'a', len);
	memcpy(text, "HTTP/1.1 200 OK\r\nX: ", 20);
	text[len] = 0;
	assert_int_equal(call(text, false, &r), -EPROTO);
	free(text);
}

static void silence_ends(void **state)
{
	struct http_reply r;
	struct http h;
	int fds[2];

	(void)state;
	http_init_socket(&h, "/nowhere");
	h.timeout_ms = 400;
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);
	h.fd = fds[0];
	assert_int_equal(http_call(&h, "GET", "/", "", NULL, true, &r),
			 -ETIMEDOUT);
	close(fds[1]);
	http_finish(&h);
}

static void urls(void **state)
{
	static const struct {
		const char *url, *host, *port, *prefix;
	} good[] = {
		{"http://h", "h", "80", ""},
		{"http://127.0.0.1:7400", "127.0.0.1", "7400", ""},
		{"http://host:1/", "host", "1", ""},
		{"http://h:8/a/b//", "h", "8", "/a/b"},
	};
	static const char *const bad[] = {
		"foo",	     "host:1",	  "https://h",	"http://",
		"http://:1", "http://h:", "http://h:x", "http://h:123456789"};
	struct http h;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(http_init_url(&h, good[i].url, &e), 0);
		assert_string_equal(h.host, good[i].host);
		assert_string_equal(h.port, good[i].port);
		assert_string_equal(h.prefix, good[i].prefix);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(http_init_url(&h, bad[i], &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_body_by_length),
		cmocka_unit_test(a_body_in_chunks),
		cmocka_unit_test(a_body_from_a_file),
		cmocka_unit_test(no_body),
		cmocka_unit_test(what_a_broken_server_says),
		cmocka_unit_test(a_head_without_end),
		cmocka_unit_test(silence_ends),
		cmocka_unit_test(urls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
