/*
 * load: the same request again and again, on kept connections.
 *
 *   load HOST PORT CLIENTS REQUESTS KEY METHOD PATH [BODY]
 *
 * Each client has a connection and sends its next request when it has the
 * answer of the last; a POST has an idempotency key of its own.  One thread and
 * epoll, so that the generator costs little beside what it measures.  Output:
 * the seconds from the first request to the last answer, then for each answer
 * its status and its time in microseconds.  An answer that is not understood,
 * or a connection that ends, is an error: it is not a measurement.
 */
#include "fd.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS_MAX	 1024
#define REQUESTS_MAX	 10000000
#define ANSWER_BYTES_MAX (1u << 20)
#define REQUEST_BYTES	 (64u << 10)
#define WAIT_MS_MAX	 120000

struct client {
	int fd;
	int64_t sent_ns;
	size_t have;
	char *answer; /* ANSWER_BYTES_MAX + 1 */
};

struct sample {
	int status;
	int64_t ns;
};

static struct load {
	struct client clients[CLIENTS_MAX];
	struct sample *samples; /* n_requests */
	uint64_t n_requests, n_sent, n_answered, nonce;
	const char *host, *port, *key, *method, *path, *body;
	int epoll;
} l;

__attribute__((noreturn, format(printf, 1, 2))) static void die(
	const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fprintf(stderr, "load: ");
	vfprintf(stderr, format, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static uint64_t number(const char *what, const char *text, uint64_t max)
{
	char *end;
	uint64_t v = strtoull(text, &end, 10);

	if (*end || !*text || !v || v > max)
		die("%s \"%s\" is no number of 1 to %" PRIu64, what, text, max);
	return v;
}

static void client_send(struct client *c)
{
	static char text[REQUEST_BYTES];
	size_t len = strlen(l.body);
	int n = snprintf(text, sizeof(text),
			 "%s %s HTTP/1.1\r\nHost: %s:%s\r\n"
			 "Authorization: Bearer %s\r\n",
			 l.method, l.path, l.host, l.port, l.key);

	if (len)
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			      "Content-Type: application/json\r\n"
			      "Idempotency-Key: load-%016" PRIx64 "-%" PRIu64
			      "\r\nContent-Length: %zu\r\n",
			      l.nonce, l.n_sent, len);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "\r\n%s", l.body);
	if ((size_t)n >= sizeof(text))
		die("the request has over %u bytes", REQUEST_BYTES);
	c->have = 0;
	c->sent_ns = now_ns();
	l.n_sent++;
	if (fd_write_all(c->fd, text, (size_t)n))
		die("request %" PRIu64 " cannot be sent: %s", l.n_sent,
		    strerror(errno));
}

/* 0 = not whole yet. */
static int answer_status(const struct client *c)
{
	const char *end = strstr(c->answer, "\r\n\r\n"), *field;
	int status;

	if (!end)
		return 0;
	field = strcasestr(c->answer, "\r\nContent-Length:");
	if (sscanf(c->answer, "HTTP/1.1 %d ", &status) != 1 || !field ||
	    field > end)
		die("an answer is not understood: %.200s", c->answer);
	if (c->have <
	    (size_t)(end + 4 - c->answer) + strtoull(field + 17, NULL, 10))
		return 0;
	return status;
}

static void client_read(struct client *c)
{
	ssize_t n =
		read(c->fd, c->answer + c->have, ANSWER_BYTES_MAX - c->have);
	int status;

	if (n <= 0)
		die("a connection ended after %" PRIu64 " answers: %s",
		    l.n_answered, n ? strerror(errno) : "closed");
	c->have += (size_t)n;
	c->answer[c->have] = 0;
	status = answer_status(c);
	if (!status) {
		if (c->have == ANSWER_BYTES_MAX)
			die("an answer has over %u bytes", ANSWER_BYTES_MAX);
		return;
	}
	l.samples[l.n_answered++] =
		(struct sample){status, now_ns() - c->sent_ns};
	if (l.n_sent < l.n_requests)
		client_send(c);
}

static void client_open(struct client *c)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)number("port", l.port, 65535))};
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
	int on = 1;

	if (inet_pton(AF_INET, l.host, &to.sin_addr) != 1)
		die("host \"%s\" is no IPv4 address", l.host);
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	c->answer = malloc(ANSWER_BYTES_MAX + 1);
	if (c->fd < 0 || !c->answer ||
	    connect(c->fd, (struct sockaddr *)&to, sizeof(to)) ||
	    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) ||
	    epoll_ctl(l.epoll, EPOLL_CTL_ADD, c->fd, &ev))
		die("%s:%s: %s", l.host, l.port, strerror(errno));
}

static void run(size_t n_clients)
{
	struct epoll_event got[64];
	int64_t began = now_ns();

	for (size_t i = 0; i < n_clients && l.n_sent < l.n_requests; i++)
		client_send(&l.clients[i]);
	while (l.n_answered < l.n_requests) {
		int n = epoll_wait(l.epoll, got, 64, WAIT_MS_MAX);

		if (n <= 0)
			die("no answer within %d ms", WAIT_MS_MAX);
		for (int i = 0; i < n; i++)
			client_read(got[i].data.ptr);
	}
	printf("%.6f\n", (double)(now_ns() - began) / 1e9);
}

int main(int argc, char **argv)
{
	size_t n_clients;

	if (argc < 8 || argc > 9)
		die("usage: load HOST PORT CLIENTS REQUESTS KEY METHOD PATH "
		    "[BODY]");
	l.host = argv[1];
	l.port = argv[2];
	n_clients = number("CLIENTS", argv[3], CLIENTS_MAX);
	l.n_requests = number("REQUESTS", argv[4], REQUESTS_MAX);
	l.key = argv[5];
	l.method = argv[6];
	l.path = argv[7];
	l.body = argc > 8 ? argv[8] : "";
	l.samples = calloc(l.n_requests, sizeof(*l.samples));
	l.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!l.samples || l.epoll < 0 ||
	    getrandom(&l.nonce, sizeof(l.nonce), 0) != sizeof(l.nonce))
		die("%s", strerror(errno));
	for (size_t i = 0; i < n_clients; i++)
		client_open(&l.clients[i]);
	run(n_clients);
	for (uint64_t i = 0; i < l.n_requests; i++)
		printf("%d %" PRId64 "\n", l.samples[i].status,
		       l.samples[i].ns / 1000);
	return 0;
}
