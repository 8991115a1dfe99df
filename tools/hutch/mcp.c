/*
 * hutch mcp: the MCP server over standard input and output.
 *
 * It carries JSON-RPC lines to the daemon's POST /mcp and the answers back, so
 * that there is one server.  A request has a thread and a connection of its
 * own, because it may take 50 s, or wait for the person (its answer is a stream
 * of events then), while others come; all that takes no time is sent in the
 * order in which it came, before the next line is read.
 *
 * Of the protocol it knows what a client of streamable HTTP has to: the session
 * and the revision that the answer to `initialize` names go with each later
 * message.  What the daemon refuses outside of JSON-RPC, and what breaks on the
 * way, becomes a JSON-RPC error of the request.
 *
 * At the end of the input it waits for the answers that are under way, but not
 * for a person whom nobody could ask any more.
 */
#include "../../hostd/surface/mcp/mcp.h"
#include "commands.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* At once: the admin socket has 64 connections for all. */
#define CALLS_MAX	  16
#define POLL_MS		  500
#define READ_BYTES	  65536
#define HEADERS_BYTES_MAX 1024
#define SESSION_BYTES_MAX 128
#define VERSION_BYTES_MAX 32
/* JSON-RPC: what a server makes of its own errors. */
#define RPC_SERVER_ERROR (-32000)

static const char help[] =
	"usage: hutch mcp [--graph NAME] [--url URL --api-key KEY]\n\n"
	"An MCP server on standard input and output, for agents: the tools "
	"lbb_sandboxes\n"
	"(reads), lbb_sandboxes_manage (runs code, holds sandboxes) and\n"
	"lbb_sandboxes_delete (asks the person).  An MCP client starts it:\n\n"
	"  {\"mcpServers\": {\"hutch\": {\"command\": \"hutch\", \"args\": "
	"[\"mcp\"]}}}\n\n"
	"For graph main of another host that is:\n\n"
	"  hutch mcp --url http://HOST:7400 --api-key KEY\n\n"
	"It speaks for the local daemon, and starts one that ends with it when "
	"none runs;\n"
	"with --url for another, as the key's environment.  A client that "
	"takes HTTP needs\n"
	"no hutch mcp: http://HOST:7400/mcp?graph=NAME with the key as Bearer "
	"token.\n"
	"It ends at the end of its input, when what was asked is answered.\n";

struct bridge {
	struct cli *c;
	struct bytes path;
	pthread_mutex_t lock; /* of standard output, and of what follows */
	pthread_cond_t ended; /* a call */
	struct call *calls[CALLS_MAX];
	unsigned n_calls;
	bool is_input_over, is_output_gone;
	/* Of the main thread. */
	char session[SESSION_BYTES_MAX], version[VERSION_BYTES_MAX];
};

/* One message to the daemon. */
struct call {
	struct bridge *b;
	struct bytes line;   /* owned */
	struct json_span id; /* in line; at NULL = it takes no reply */
	struct http http;
	struct http_reply reply;
	char headers[HEADERS_BYTES_MAX];
	volatile sig_atomic_t is_cancelled;
	size_t n_read; /* of the stream's bytes */
	bool is_asking, is_replied;
};

/* ---- out ---------------------------------------------------------------- */

/* A line.  Line ends inside are white space between tokens: JSON has none in
 * strings. */
static void emit(struct bridge *b, void *json, size_t len)
{
	char *p = json;

	for (size_t i = 0; i < len; i++)
		if (p[i] == '\n' || p[i] == '\r')
			p[i] = ' ';
	pthread_mutex_lock(&b->lock);
	if (fwrite(p, 1, len, stdout) != len || fputc('\n', stdout) == EOF ||
	    fflush(stdout))
		b->is_output_gone = true;
	pthread_mutex_unlock(&b->lock);
}

/* Nobody reads our output, or a signal came. */
static bool is_over(struct bridge *b)
{
	bool is_gone;

	pthread_mutex_lock(&b->lock);
	is_gone = b->is_output_gone;
	pthread_mutex_unlock(&b->lock);
	return is_gone || cli_is_interrupted;
}

/* `data`: a JSON text, or none. */
static void emit_error(struct bridge *b, struct json_span id, int code,
		       const char *text, struct json_span data)
{
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "jsonrpc", "2.0");
	if (id.at)
		json_out_raw(&j, "id", id.at, id.len);
	else
		json_out_null(&j, "id");
	json_out_begin(&j, "error", '{');
	json_out_i64(&j, "code", code);
	json_out_str(&j, "message", text);
	if (data.at)
		json_out_raw(&j, "data", data.at, data.len);
	json_out_end(&j, '}');
	json_out_end(&j, '}');
	if (!j.rc)
		emit(b, j.buf.data, j.buf.len);
	json_out_finish(&j);
}

/* ---- answers ------------------------------------------------------------ */

static void forward(struct call *k, struct json_span root)
{
	struct json_span method;
	bool is_question = json_kind_of(root) == JSON_KIND_OBJECT &&
			   json_at(root, "method", &method);

	pthread_mutex_lock(&k->b->lock);
	k->is_asking = is_question;
	k->is_replied |= !is_question;
	if (is_question && k->b->is_input_over)
		k->is_cancelled = 1;
	pthread_mutex_unlock(&k->b->lock);
	emit(k->b, (void *)(uintptr_t)root.at, root.len);
}

static void forward_event(struct call *k, char *at, size_t len)
{
	struct json_span root;
	struct err e;

	if (!json_check(at, len, JSON_DEPTH_MAX, &root, &e))
		forward(k, root);
}

static bool is_stream(const struct call *k)
{
	char type[64];

	return http_header(&k->reply, "Content-Type", type, sizeof(type)) &&
	       !strncasecmp(type, "text/event-stream", 17);
}

/* An event of the daemon has one line of data, and ends with an empty line. */
static void on_body(void *ctx, const struct bytes *body)
{
	struct call *k = ctx;

	if (!is_stream(k))
		return;
	for (;;) {
		char *at = (char *)body->data + k->n_read;
		size_t left = body->len - k->n_read;
		char *end = left ? memchr(at, '\n', left) : NULL;
		size_t len;

		if (!end)
			return;
		len = (size_t)(end - at);
		if (len > 6 && !memcmp(at, "data: ", 6))
			forward_event(k, at + 6, len - 6);
		k->n_read += len + 1;
	}
}

/* Refused outside of JSON-RPC: the envelope of the daemon's errors. */
static void refused(struct call *k, struct json_span root)
{
	char text[ERR_TEXT_BYTES_MAX], full[ERR_TEXT_BYTES_MAX + 64];
	struct json_span error = {0};

	if (root.at && !json_at(root, "error", &error))
		error.at = NULL;
	answer_text(root, "error.message", text, sizeof(text),
		    "no reason is given");
	snprintf(full, sizeof(full), "the daemon answered %d: %s",
		 k->reply.status, text);
	if (k->id.at)
		emit_error(k->b, k->id, RPC_SERVER_ERROR, full, error);
	else
		fprintf(stderr, "hutch mcp: %s\n", full);
}

static void answered(struct call *k)
{
	struct json_span root = {0}, rpc;
	struct err e;

	if (k->reply.status == 202 || is_stream(k))
		return; /* read already */
	if (json_check(k->reply.body.data ? k->reply.body.data
					  : (const uint8_t *)"",
		       k->reply.body.len, JSON_DEPTH_MAX, &root, &e))
		root.at = NULL;
	if (root.at && (json_kind_of(root) == JSON_KIND_ARRAY ||
			json_at(root, "jsonrpc", &rpc)))
		forward(k, root);
	else
		refused(k, root);
}

static void broke(struct call *k, int rc)
{
	const struct cli *c = k->b->c;
	bool is_unsent =
		rc == -ECONNREFUSED || rc == -ENOENT || rc == -EHOSTUNREACH;
	char text[ERR_TEXT_BYTES_MAX];

	if (k->is_cancelled || k->is_replied)
		return;
	snprintf(text, sizeof(text), "%s: %s; %s",
		 c->url ? c->url : k->http.socket, strerror(-rc),
		 is_unsent ? "nothing was sent"
			   : "whether the call was done is not known");
	if (k->id.at)
		emit_error(k->b, k->id, RPC_SERVER_ERROR, text,
			   (struct json_span){0});
	else
		fprintf(stderr, "hutch mcp: %s\n", text);
}

static void exchange(struct call *k)
{
	int rc = http_call(&k->http, "POST", (char *)k->b->path.data,
			   k->headers, &k->line, false, &k->reply);

	if (rc)
		broke(k, rc);
	else
		answered(k);
}

/* ---- calls -------------------------------------------------------------- */

static void call_free(struct call *k)
{
	http_finish(&k->http);
	http_reply_finish(&k->reply);
	bytes_finish_secret(&k->line);
	free(k);
}

static int put_headers(struct call *k)
{
	const struct bridge *b = k->b;
	const char *key = b->c->url ? b->c->api_key : NULL;
	int n = snprintf(k->headers, sizeof(k->headers),
			 "Accept: application/json, text/event-stream\r\n"
			 "%s%s%s%s%s%s%s%s%s",
			 key ? "Authorization: Bearer " : "", key ? key : "",
			 key ? "\r\n" : "",
			 *b->session ? "Mcp-Session-Id: " : "", b->session,
			 *b->session ? "\r\n" : "",
			 *b->version ? "MCP-Protocol-Version: " : "",
			 b->version, *b->version ? "\r\n" : "");

	return n < 0 || (size_t)n >= sizeof(k->headers) ? -EMSGSIZE : 0;
}

/* Takes over `line`. */
static struct call *call_new(struct bridge *b, struct bytes *line)
{
	struct call *k = calloc(1, sizeof(*k));

	if (!k)
		return NULL;
	k->b = b;
	k->line = *line;
	memset(line, 0, sizeof(*line));
	k->http = b->c->http;
	k->http.fd = -1;
	k->http.is_cancelled = &k->is_cancelled;
	k->http.on_body = on_body;
	k->http.on_body_ctx = k;
	if (!put_headers(k))
		return k;
	call_free(k);
	return NULL;
}

static void *call_main(void *arg)
{
	struct call *k = arg;
	struct bridge *b = k->b;

	exchange(k);
	pthread_mutex_lock(&b->lock);
	for (size_t i = 0; i < CALLS_MAX; i++)
		if (b->calls[i] == k)
			b->calls[i] = NULL;
	call_free(k);
	b->n_calls--;
	pthread_cond_signal(&b->ended);
	pthread_mutex_unlock(&b->lock);
	return NULL;
}

/* In a thread of its own. */
static void call_start(struct bridge *b, struct call *k)
{
	pthread_t thread;
	bool has_place;
	int rc = 0;

	pthread_mutex_lock(&b->lock);
	has_place = b->n_calls < CALLS_MAX;
	for (size_t i = 0; has_place && i < CALLS_MAX; i++) {
		if (b->calls[i])
			continue;
		rc = pthread_create(&thread, NULL, call_main, k);
		if (rc)
			break;
		pthread_detach(thread);
		b->calls[i] = k;
		b->n_calls++;
		break;
	}
	pthread_mutex_unlock(&b->lock);
	if (has_place && !rc)
		return;
	emit_error(b, k->id, RPC_SERVER_ERROR,
		   has_place ? "cannot start a thread"
			     : "16 calls are under way; send this one again "
			       "when one of them is answered",
		   (struct json_span){0});
	call_free(k);
}

/* ---- in ----------------------------------------------------------------- */

/* What later messages carry. */
static void learn(struct bridge *b, const struct call *k)
{
	struct json_span root;
	struct err e;

	if (!http_header(&k->reply, "Mcp-Session-Id", b->session,
			 sizeof(b->session)))
		b->session[0] = 0;
	if (!k->reply.body.len ||
	    json_check(k->reply.body.data, k->reply.body.len, JSON_DEPTH_MAX,
		       &root, &e) ||
	    !answer_text(root, "result.protocolVersion", b->version,
			 sizeof(b->version), NULL))
		b->version[0] = 0;
}

static void take_line(struct bridge *b, struct bytes *line)
{
	struct json_span root, method = {0}, id = {0};
	bool is_request = false, is_hello = false;
	struct call *k = call_new(b, line);
	struct err e;

	if (!k) {
		emit_error(b, id, RPC_SERVER_ERROR, "out of memory", id);
		return;
	}
	/* What is no JSON is told so by the daemon. */
	if (!json_check(k->line.data, k->line.len, JSON_DEPTH_MAX, &root, &e)) {
		bool is_one = json_kind_of(root) == JSON_KIND_OBJECT;

		is_request = !is_one || (json_at(root, "method", &method) &&
					 json_at(root, "id", &id));
		is_hello = method.at &&
			   json_kind_of(method) == JSON_KIND_STRING &&
			   json_name_is(method, "initialize");
		k->id = id;
	}
	if (is_request && !is_hello) {
		call_start(b, k);
		return;
	}
	exchange(k);
	if (is_hello)
		learn(b, k);
	call_free(k);
}

/* Whole lines of `in`; a longer one than the daemon takes is skipped. */
static void take_lines(struct bridge *b, struct bytes *in, bool *is_skipping)
{
	const struct json_span none = {0};
	uint8_t *end;

	while ((end = in->len ? memchr(in->data, '\n', in->len) : NULL)) {
		size_t len = (size_t)(end - in->data);
		struct bytes line = {0};

		if (!*is_skipping && len && (len > 1 || *in->data != '\r') &&
		    !bytes_append_secret(&line, in->data, len))
			take_line(b, &line);
		*is_skipping = false;
		bytes_finish_secret(&line);
		bytes_consume(in, len + 1);
	}
	if (in->len <= MCP_BODY_BYTES_MAX)
		return;
	if (!*is_skipping)
		emit_error(b, none, RPC_SERVER_ERROR,
			   "a message is longer than 1048576 bytes", none);
	*is_skipping = true;
	in->len = 0;
}

static void read_input(struct bridge *b)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	_cleanup_secret_ struct bytes in = {0};
	bool is_skipping = false;
	ssize_t n;

	while (!is_over(b)) {
		if (poll(&p, 1, POLL_MS) <= 0)
			continue;
		if (bytes_reserve(&in, READ_BYTES))
			return;
		n = read(STDIN_FILENO, in.data + in.len, READ_BYTES);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		in.len += (size_t)n;
		take_lines(b, &in, &is_skipping);
	}
}

/* ---- the command -------------------------------------------------------- */

static void wait_for_calls(struct bridge *b)
{
	bool is_ended = is_over(b);

	pthread_mutex_lock(&b->lock);
	b->is_input_over = true;
	for (size_t i = 0; i < CALLS_MAX; i++)
		if (b->calls[i] && (is_ended || b->calls[i]->is_asking))
			b->calls[i]->is_cancelled = 1;
	while (b->n_calls) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&b->ended, &b->lock, &until);
		if (!cli_is_interrupted)
			continue;
		for (size_t i = 0; i < CALLS_MAX; i++)
			if (b->calls[i])
				b->calls[i]->is_cancelled = 1;
	}
	pthread_mutex_unlock(&b->lock);
}

static int serve(struct cli *c, struct err *e)
{
	struct bridge b = {.c = c};

	if (cli_path(c, &b.path, "/mcp", "graph", c->graph, NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	pthread_mutex_init(&b.lock, NULL);
	pthread_cond_init(&b.ended, NULL);
	read_input(&b);
	wait_for_calls(&b);
	bytes_finish(&b.path);
	return 0;
}

int cmd_mcp(struct cli *c, int argc, char **argv)
{
	struct args args;
	struct err e;
	int rc;

	if (args_parse(&args, argc, argv, cli_global_opts, NULL, false, &e) ||
	    (!args.is_help && args_expect(&args, 0, 0, "", &e)))
		return cli_usage(c, "mcp", &e);
	if (args.is_help)
		return cli_help(help, NULL);
	if (c->url && !c->api_key) {
		err_set(&e, ERR_UNAUTHORIZED, "api-key",
			"an API key is missing: give --api-key KEY or set "
			"HUTCH_API_KEY");
		return cli_fail(c, &e);
	}
	if (cli_open(c, CLI_FOR_RUN, &e))
		return cli_fail(c, &e);
	rc = serve(c, &e) ? cli_fail(c, &e) : 0;
	cli_close(c);
	return rc;
}
