/* A server in a child process, and a client; see server_test_util.h. */
#include "server_test_util.h"
#include "../loop.h"
#include "auth.h"
#include "fd.h"
#include "log.h"
#include "request.h"
#include "server.h"
#include "server_test_files.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/http_server_test.XXXXXX";
static char clock_path[64], admin_path[64];
static struct sockaddr_in address;
pid_t server_pid;
rlim_t server_files;
char answer[ANSWER_BYTES_MAX + 1];

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

	reply_stream_end(l->r, "tick\n", 5);
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

static const char *param(const struct request *r, const char *name)
{
	return query_get(&r->query, name);
}

static void on_inner(struct request *r, struct inner_reply *reply)
{
	struct bytes b = {0};

	bytes_printf(&b, "inner %d ", reply->status);
	bytes_append(&b, reply->body.data, reply->body.len);
	reply_bytes(r, 200, "text/plain", &b);
}

/* ?method=&to=PATH&query=&key= with our body: what that request answers. */
static void outer(struct request *r)
{
	struct bytes body = {0};
	struct inner_spec spec = {
		.method = http_method_parse(param(r, "method")),
		.path = param(r, "to"),
		.query = param(r, "query"),
		.key = param(r, "key"),
		.body = &body,
	};

	bytes_append(&body, r->body.data, r->body.len);
	request_set_header(r, "X-More",
			   request_header(r, "X-Ask") ? "yes" : "no");
	request_inner(r, &spec, on_inner);
}

struct pour {
	struct loop_timer timer;
	struct request *r;
	unsigned left;
};

/* Lines of POUR_LINE_BYTES, faster than anybody reads. */
static void pour_tick(struct loop_timer *t)
{
	static char line[POUR_LINE_BYTES];
	struct pour *p = container_of(t, struct pour, timer);

	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\n';
	for (int i = 0; i < 20 && p->left; i++, p->left--)
		reply_stream_write(p->r, line, sizeof(line));
	if (p->left) {
		loop_timer_set(p->r->services->loop, t, 1);
		return;
	}
	reply_stream_end(p->r, "last\n", 5);
	free(p);
}

static void pour(struct request *r)
{
	struct pour *p = calloc(1, sizeof(*p));

	p->r = r;
	p->left = POUR_LINES;
	p->timer.fn = pour_tick;
	reply_stream_begin(r, "text/plain");
	loop_timer_set(r->services->loop, &p->timer, 1);
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
static const char *const p_take[] = {"refuse", "slow", NULL};
static const char *const p_file[] = {"empty", "large", NULL};

static const char *const p_outer[] = {"method", "to", "query", "key", NULL};
static const struct route rows[] = {
	{HTTP_POST, "/echo", "echo", 0, ACCESS_OPEN, ECHO_BYTES_MAX, p_none,
	 echo},
	{HTTP_GET, "/later", "later", 0, ACCESS_OPEN, 0, p_long, later},
	{HTTP_GET, "/stream", "stream", 0, ACCESS_OPEN, 0, p_none, stream},
	{HTTP_GET, "/large", "large", 0, ACCESS_OPEN, 0, p_none, large},
	{HTTP_GET, "/pour", "pour", 0, ACCESS_OPEN, 0, p_none, pour},
	{HTTP_PUT, "/raw", "raw", ROUTE_RAW, ACCESS_OPEN, ECHO_BYTES_MAX,
	 p_none, echo},
	{HTTP_GET, "/key", "key", ROUTE_KEY | ROUTE_GRAPH, ACCESS_OPEN, 0,
	 p_none, echo},
	{HTTP_POST, "/once", "once", ROUTE_IDEMPOTENT, ACCESS_OPEN,
	 ECHO_BYTES_MAX, p_none, echo},
	{HTTP_GET, "/admin", "admin", ROUTE_ADMIN, ACCESS_OPEN, 0, p_none,
	 echo},
	{HTTP_POST, "/take", "take", ROUTE_STREAM, ACCESS_OPEN, TAKE_BYTES_MAX,
	 p_take, test_take},
	{HTTP_GET, "/cuts", "cuts", ROUTE_ALWAYS, ACCESS_OPEN, 0, p_none,
	 test_cuts},
	{HTTP_GET, "/file", "file", 0, ACCESS_OPEN, 0, p_file, test_file},
	{HTTP_POST, "/outer", "outer", ROUTE_KEY | ROUTE_GRAPH | ROUTE_ALWAYS,
	 ACCESS_OPEN, ECHO_BYTES_MAX, p_outer, outer},
	{HTTP_POST, "/off", "off", ROUTE_KEY, ACCESS_READ, 16, p_none, echo},
};
static const struct route_table table = {"test", rows,
					 sizeof(rows) / sizeof(*rows)};
static const struct route_table *const tables[] = {&table, NULL};

/* The one key that there is: TEST_KEY. */
int store_key_list(struct store *s, store_key_fn fn, void *ctx)
{
	struct key_info k = {
		.environment = "env_test", .name = "one", .is_enabled = true};
	uint8_t hash[HASH_BYTES];

	(void)s;
	SHA256((const uint8_t *)TEST_KEY, strlen(TEST_KEY), hash);
	fn(ctx, 0, &k, hash);
	fn(ctx, 0, NULL, NULL);
	return 0;
}

int store_realm_load(struct store *s, bool with_all_graphs, store_realm_fn fn,
		     void *ctx)
{
	static const struct environment_info one = {
		.id = "env_test", .plan = PLAN_FULL, .is_enabled = true};
	static const struct realm_rows all = {&one, NULL, 1, 0};

	(void)s;
	(void)with_all_graphs;
	fn(ctx, 0, &all);
	return 0;
}

int store_grant_load(struct store *s, int64_t now_ms, store_grants_fn fn,
		     void *ctx)
{
	(void)s;
	(void)now_ms;
	fn(ctx, 0, NULL, 0);
	return 0;
}

static void on_keys(void *ctx, int rc)
{
	(void)ctx;
	if (rc)
		_exit(2);
}

static struct services sv;
static struct loop_watch term;

/* First byte: drain.  Second byte, or end of file: stop at once. */
static void on_term(struct loop_watch *w, uint32_t revents)
{
	char c;

	(void)revents;
	if (read(w->fd, &c, 1) != 1 || http_server_is_draining(sv.http))
		loop_stop(sv.loop);
	else
		http_server_drain(sv.http);
}

static void serve(int end_fd, int address_fd)
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
	if (server_files)
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){server_files, 4096});
	if (loop_create(&sv.loop) || auth_create(&sv.auth, NULL) ||
	    auth_load(sv.auth, on_keys, NULL) ||
	    http_server_create(&sv.http, &sv, &cfg, &e))
		_exit(1);
	dprintf(address_fd, "%s", http_server_address(sv.http));
	close(address_fd);
	term.fn = on_term;
	term.fd = end_fd;
	term.events = POLLIN;
	loop_watch_add(sv.loop, &term);
	loop_run(sv.loop);
	http_server_destroy(sv.http);
	loop_watch_remove(sv.loop, &term);
	auth_destroy(sv.auth);
	loop_destroy(sv.loop);
	exit(0); /* so that the leak check of SAN=1 runs */
}

int term_fd = -1;

void clock_set(long ms)
{
	FILE *f = fopen(clock_path, "we");

	assert_non_null(f);
	fprintf(f, "%ld\n", ms);
	fclose(f);
}

int start(void **state)
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

int stop(void **state)
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

int dial(void)
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
const char *read_answer(int fd)
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

const char *talk_bytes(const char *request, size_t len)
{
	int fd = dial();

	/* The server may answer and close before it has read all. */
	(void)!send(fd, request, len, MSG_NOSIGNAL);
	return read_answer(fd);
}

const char *talk(const char *request)
{
	return talk_bytes(request, strlen(request));
}

void want(const char *got, const char *status, const char *part)
{
	char line[32];

	snprintf(line, sizeof(line), "HTTP/1.1 %s", status);
	if (strncmp(got, line, strlen(line)) || (part && !strstr(got, part)))
		fail_msg("wanted %s with \"%s\", got:\n%s", line,
			 part ? part : "", got);
}

void still_healthy(void)
{
	want(talk("POST /echo HTTP/1.1\r\nContent-Type: application/json\r\n"
		  "Content-Length: 2\r\n" CLOSE "{}"),
	     "200", "\r\n\r\n{}");
}

const char *repeat(char *dst, const char *part, size_t times)
{
	size_t len = strlen(part);

	for (size_t i = 0; i < times; i++)
		memcpy(dst + i * len, part, len);
	dst[times * len] = 0;
	return dst;
}

int dial_admin(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", admin_path);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

int test_files_make(void)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(clock_path, sizeof(clock_path), "%s/clock", dir);
	snprintf(admin_path, sizeof(admin_path), "%s/admin.sock", dir);
	setenv("HUTCH_TEST_CLOCK", clock_path, 1);
	return 0;
}

void test_files_remove(void)
{
	unlink(clock_path);
	unlink(admin_path);
	rmdir(dir);
}
