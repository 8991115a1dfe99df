/*
 * Bodies that are taken as they come, and answers that are files, over real
 * sockets: whole, refused, cut, slow (K3, K15, LBB-158).
 */
#include "log.h"
#include "server_test_files.h"
#include "server_test_util.h"
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB    (1u << 20)
#define CHUNKS 2000 /* of 3 bytes, in what is read at once */

static unsigned char body[8 * MIB];

/* ---- taken -------------------------------------------------------------- */

static void say(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL),
			 strlen(text));
}

/* False: the other side has closed. */
static bool pour(int fd, const unsigned char *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

static int begin(const char *query, size_t len)
{
	char head[256];
	int fd = dial();

	snprintf(head, sizeof(head),
		 "POST /take%s HTTP/1.1\r\nContent-Type: a/b\r\n"
		 "Content-Length: %zu\r\n" CLOSE,
		 query, len);
	say(fd, head);
	return fd;
}

static void taken(const char *query, size_t len)
{
	int fd = begin(query, len);
	char part[64];

	assert_true(pour(fd, body, len));
	snprintf(part, sizeof(part), "{\"taken\":%zu,\"right\":%zu}", len, len);
	want(read_answer(fd), "200", part);
}

static void test_taken(void **state)
{
	static const size_t sizes[] = {0, 1, 4095, 65536, MIB, 5 * MIB + 3};
	int fd;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		taken("", sizes[i]);
	taken("?slow=1", 3 * MIB + 1);
	/* In chunks, and without any body. */
	fd = dial();
	say(fd, "POST /take HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" CLOSE
		"3\r\n");
	assert_true(pour(fd, body, 3));
	say(fd, "\r\n4\r\n");
	assert_true(pour(fd, body + 3, 4));
	say(fd, "\r\n0\r\n\r\n");
	want(read_answer(fd), "200", "{\"taken\":7,\"right\":7}");
	want(talk("POST /take HTTP/1.1\r\n" CLOSE), "200", "\"taken\":0");
	still_healthy();
}

/* Many chunks that came together: the first of them fills the sink, the others
 * come all the same. */
static const char *small_chunks(const char *query)
{
	static char text[512 + CHUNKS * 16];
	int fd = dial(), n;

	n = snprintf(text, sizeof(text),
		     "POST /take%s HTTP/1.1\r\n"
		     "Transfer-Encoding: chunked\r\n" CLOSE,
		     query);
	for (int i = 0; i < CHUNKS; i++)
		n += sprintf(text + n, "3\r\n%c%c%c\r\n", body[3 * i],
			     body[3 * i + 1], body[3 * i + 2]);
	memcpy(text + n, "0\r\n\r\n", 5);
	assert_true(pour(fd, (unsigned char *)text, (size_t)n + 5));
	return read_answer(fd);
}

static void test_chunks(void **state)
{
	char part[64];

	(void)state;
	snprintf(part, sizeof(part), "{\"taken\":%d,\"right\":%d}", 3 * CHUNKS,
		 3 * CHUNKS);
	for (int i = 0; i < 8; i++) {
		want(small_chunks("?slow=1"), "200", part);
		/* Refused while it waits for room. */
		want(small_chunks("?slow=1&refuse=few"), "503",
		     "refused in the middle");
	}
	still_healthy();
}

/* As many at once as one test may: none waits for another. */
static void test_many(void **state)
{
	int fds[32];

	(void)state;
	for (int i = 0; i < 32; i++)
		fds[i] = begin(i % 2 ? "?slow=1" : "", 200000);
	for (size_t at = 0; at < 200000; at += 20000)
		for (int i = 0; i < 32; i++)
			assert_true(pour(fds[i], body + at, 20000));
	for (int i = 31; i >= 0; i--)
		want(read_answer(fds[i]), "200",
		     "{\"taken\":200000,\"right\":200000}");
}

/* ---- refused ------------------------------------------------------------ */

static void test_refused(void **state)
{
	int fd;

	(void)state;
	/* A small body is read to its end, and the connection goes on. */
	fd = dial();
	say(fd, "POST /take?refuse=head HTTP/1.1\r\nContent-Length: 5\r\n" HOST
		"\r\nhello"
		"GET /cuts HTTP/1.1\r\n" CLOSE);
	want(read_answer(fd), "503", "refused at the head");
	assert_non_null(strstr(answer, "{\"cuts\":0}"));
	/* A large one is not: here nobody knows who calls. */
	fd = begin("?refuse=head", 20 * MIB);
	want(read_answer(fd), "503", "Connection: close");
	fd = dial();
	say(fd, "POST /take?refuse=head HTTP/1.1\r\nContent-Length: 5\r\n"
		"Expect: 100-continue\r\n" CLOSE);
	want(read_answer(fd), "503", "refused at the head");
	fd = begin("?refuse=middle", 3 * MIB);
	assert_true(pour(fd, body, 3 * MIB));
	want(read_answer(fd), "503", "refused in the middle");
	/* Over what the route takes: told, and in chunks found out. */
	fd = begin("", TAKE_BYTES_MAX + 1);
	want(read_answer(fd), "413", "\"code\":\"file_too_large\"");
	want(talk("GET /cuts HTTP/1.1\r\n" CLOSE), "200", "{\"cuts\":0}");
	still_healthy();
}

/* ---- cut ---------------------------------------------------------------- */

static unsigned cuts(void)
{
	const char *at =
		strstr(talk("GET /cuts HTTP/1.1\r\n" CLOSE), "cuts\":");

	assert_non_null(at);
	return (unsigned)strtoul(at + 6, NULL, 10);
}

static void until_cuts(unsigned n)
{
	for (int i = 0; cuts() < n && i < 200; i++)
		usleep(10000);
	assert_int_equal(cuts(), n);
}

static void test_cut(void **state)
{
	unsigned n = cuts();
	int fd;

	(void)state;
	fd = begin("", 2 * MIB);
	assert_true(pour(fd, body, MIB));
	close(fd);
	until_cuts(++n);
	/* While it was told to wait. */
	fd = begin("?slow=1", 2 * MIB);
	assert_true(pour(fd, body, 100000));
	close(fd);
	until_cuts(++n);
	/* After the head, without a byte: found out by its time at last. */
	clock_set(0);
	close(begin("", 5));
	usleep(50000);
	clock_set(61000);
	until_cuts(++n);
	/* No MiB within its time; another client's came in time. */
	clock_set(0);
	fd = begin("", 4 * MIB);
	assert_true(pour(fd, body, MIB + MIB / 2));
	assert_int_equal(cuts(), n);
	clock_set(50000);
	assert_int_equal(cuts(), n);
	assert_true(pour(fd, body + MIB + MIB / 2, MIB));
	usleep(200000); /* it has come */
	clock_set(100000);
	usleep(200000);
	assert_int_equal(cuts(), n);
	clock_set(111000);
	assert_string_equal(read_answer(fd), "");
	until_cuts(++n);
	clock_set(0);
	still_healthy();
}

/* ---- files -------------------------------------------------------------- */

static const char *ask_file(const char *method, const char *headers)
{
	char request[512];
	int fd = dial();

	snprintf(request, sizeof(request), "%s /file HTTP/1.1\r\n%s" CLOSE,
		 method, headers);
	say(fd, request);
	return read_answer(fd);
}

static void test_ranges(void **state)
{
	static const struct {
		const char *headers, *status, *range;
		size_t at, len;
	} t[] = {
		{"Range: bytes=0-4\r\n", "206", "bytes 0-4/3145728", 0, 5},
		{"Range: bytes=3145727-\r\n", "206",
		 "bytes 3145727-3145727/3145728", 3145727, 1},
		{"Range: bytes=3145720-99999999999999999999999\r\n", "206",
		 "bytes 3145720-3145727/3145728", 3145720, 8},
		{"Range: bytes=-3\r\n", "206", "bytes 3145725-3145727/3145728",
		 3145725, 3},
		{"Range: BYTES = 7-9 \r\n", "206", "bytes 7-9/3145728", 7, 3},
		{"Range: bytes=262140-262150\r\n", "206",
		 "bytes 262140-262150/3145728", 262140, 11},
		{"Range: bytes=1-2\r\nIf-Range: \"tag\"\r\n", "206",
		 "bytes 1-2/3145728", 1, 2},
		{"Range: bytes=3145728-\r\n", "416", "bytes */3145728", 0, 0},
		{"Range: bytes=-0\r\n", "416", "bytes */3145728", 0, 0},
		{"Range: bytes=99999999999999999999999-\r\n", "416",
		 "bytes */3145728", 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		char line[80];
		const char *p;

		snprintf(line, sizeof(line), "Content-Range: %s\r\n",
			 t[i].range);
		want(ask_file("GET", t[i].headers), t[i].status, line);
		p = strstr(answer, "\r\n\r\n");
		for (size_t k = 0; k < t[i].len; k++)
			assert_int_equal((unsigned char)p[4 + k],
					 TEST_FILE_AT(t[i].at + k));
	}
}

/* What is not one range of it gives all of it, whatever it is. */
static void test_whole(void **state)
{
	static const char *const headers[] = {
		"",
		"Range: bytes=0-0,2-3\r\n",
		"Range: bytes=5-2\r\n",
		"Range: bytes=\r\n",
		"Range: bytes=-\r\n",
		"Range: bytes=a-b\r\n",
		"Range: bytes=0x1-2\r\n",
		"Range: bytes=--1\r\n",
		"Range: pages=1-2\r\n",
		"Range: bytes 1-2\r\n",
		"Range: bytes=1-2\r\nIf-Range: \"other\"\r\n",
		"Range: bytes=1-2\r\nIf-Range: W/\"tag\"\r\n",
		"Range: bytes=1-2\r\nIf-Range: \"tag\r\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
		want(ask_file("HEAD", headers[i]), "200",
		     "Content-Length: 3145728\r\n");
		assert_null(strstr(answer, "Content-Range"));
		assert_non_null(strstr(answer, "ETag: \"tag\"\r\n"));
		assert_non_null(strstr(answer, "Content-Type: text/x\r\n"));
		assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
	}
	want(talk("GET /file?empty=1 HTTP/1.1\r\nRange: bytes=0-\r\n" CLOSE),
	     "416", "bytes */0");
	want(talk("GET /file?empty=1 HTTP/1.1\r\n" CLOSE), "200",
	     "Content-Length: 0\r\n");
}

/* Of an answer to be read: bytes of the file, as they should be. */
static size_t read_on(int fd, size_t at, size_t max, bool *ret_is_end)
{
	static unsigned char buf[65536];
	size_t n = 0;

	while (n < max) {
		ssize_t got = read(
			fd, buf, max - n < sizeof(buf) ? max - n : sizeof(buf));

		*ret_is_end = got <= 0;
		if (got <= 0)
			break;
		for (ssize_t k = 0; k < got; k++, n++)
			assert_int_equal(buf[k], TEST_FILE_AT(at + n));
	}
	return n;
}

static int file_begin(void)
{
	int fd = dial();
	char head[2048];
	size_t n = 0;

	say(fd, "GET /file?large=1 HTTP/1.1\r\n" CLOSE);
	do {
		assert_int_equal(read(fd, head + n, 1), 1);
		head[++n] = 0;
	} while (!strstr(head, "\r\n\r\n"));
	return fd;
}

static void test_readers(void **state)
{
	bool is_end = false;
	int fd = file_begin();

	(void)state;
	assert_int_equal(read_on(fd, 0, 2 * TEST_FILE_LARGE, &is_end),
			 TEST_FILE_LARGE);
	assert_true(is_end);
	close(fd);
	/* One that goes away; one that is slow; one that stands still. */
	close(file_begin());
	clock_set(0);
	fd = file_begin();
	for (unsigned i = 0; i < 3; i++) {
		usleep(100000);
		clock_set(50000 * i);
		usleep(100000);
		assert_int_equal(read_on(fd, i * 8 * MIB, 8 * MIB, &is_end),
				 8 * MIB);
	}
	close(fd);
	fd = file_begin();
	usleep(200000);
	clock_set(161000);
	usleep(200000);
	assert_true(read_on(fd, 0, TEST_FILE_LARGE, &is_end) < TEST_FILE_LARGE);
	assert_true(is_end);
	close(fd);
	clock_set(0);
	still_healthy();
}

/* The server ends with one of each in the middle (and leaks nothing). */
static void test_end(void **state)
{
	int up = begin("", 4 * MIB), slow = begin("?slow=1", 4 * MIB);
	int down = file_begin();

	(void)state;
	assert_true(pour(up, body, MIB));
	assert_true(pour(slow, body, 50000));
	usleep(100000);
	assert_int_equal(stop(NULL), 0);
	close(up);
	close(slow);
	close(down);
	assert_int_equal(start(NULL), 0);
	still_healthy();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken), cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_many),  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_cut),   cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_whole), cmocka_unit_test(test_readers),
		cmocka_unit_test(test_end),
	};
	int rc;

	log_init("stream_test");
	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = TEST_FILE_AT(i);
	if (test_files_make())
		return 1;
	rc = cmocka_run_group_tests_name("stream", tests, start, stop);
	test_files_remove();
	return rc;
}
