/* The front as variables; see mcp_test_util.h. */
#include "mcp_test_util.h"
#include "../../clock.h"
#include "../../http/server.h"
#include "../../loop.h"
#include "log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct sent sent[SENT_MAX];
unsigned n_sent;
bool is_waiting;
const char *head_accept, *head_session, *head_version;
int got_status;
struct bytes got, streamed;
char got_session[64];
bool is_stream, is_stream_over, is_reader_gone, is_draining;

static struct {
	int status;
	const char *body;
} ready[SENT_MAX];
static unsigned n_ready, n_taken;

static struct request *waiting;
static request_inner_fn *waiting_fn;

static int64_t now_ms = 1;
static struct loop_timer *timer;

static struct services services;
static struct request *streaming;

#define MUST(x)                                                                \
	do {                                                                   \
		if (!(x)) {                                                    \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#x);                                           \
			abort();                                               \
		}                                                              \
	} while (0)

/* ---- clock and loop ----------------------------------------------------- */

int64_t clock_mono_ms(void)
{
	return now_ms;
}

int loop_timer_set(struct loop *l, struct loop_timer *t, int64_t after_ms)
{
	(void)l;
	MUST(!timer || timer == t);
	timer = t;
	t->at_ms = now_ms + after_ms;
	return 0;
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	(void)l;
	if (timer == t)
		timer = NULL;
}

void pass_time(int64_t ms)
{
	int64_t end_ms = now_ms + ms;

	while (timer && timer->at_ms <= end_ms) {
		struct loop_timer *t = timer;

		now_ms = t->at_ms;
		timer = NULL;
		t->fn(t);
	}
	now_ms = end_ms;
}

/* ---- the client's side -------------------------------------------------- */

static void gone(struct request *r)
{
	bytes_finish(&r->body);
	free(r);
}

const char *request_header(const struct request *r, const char *name)
{
	(void)r;
	if (!strcmp(name, "Accept"))
		return head_accept;
	if (!strcmp(name, "Mcp-Session-Id"))
		return head_session;
	MUST(!strcmp(name, "MCP-Protocol-Version"));
	return head_version;
}

void request_set_header(struct request *r, const char *name, const char *value)
{
	(void)r;
	MUST(!strcmp(name, "Mcp-Session-Id"));
	snprintf(got_session, sizeof(got_session), "%s", value);
}

void reply_bytes(struct request *r, int status, const char *type,
		 struct bytes *body)
{
	(void)type;
	MUST(!got_status && r != streaming);
	got_status = status;
	bytes_finish(&got);
	MUST(!bytes_append(&got, body->len ? (const void *)body->data : "",
			   body->len) &&
	     !bytes_append(&got, "", 1));
	got.len--;
	bytes_finish(body);
	gone(r);
}

void reply_json(struct request *r, int status, struct json_out *j)
{
	MUST(!j->rc);
	reply_bytes(r, status, "application/json", &j->buf);
}

void reply_err(struct request *r, const struct err *e)
{
	(void)r;
	(void)e;
	abort(); /* memory is there */
}

int reply_stream_begin(struct request *r, const char *type)
{
	MUST(!strcmp(type, "text/event-stream") && !streaming);
	streaming = r;
	is_stream = true;
	is_stream_over = false;
	bytes_finish(&streamed);
	return 0;
}

void reply_stream_write(struct request *r, const void *data, size_t len)
{
	MUST(r == streaming && !bytes_append(&streamed, data, len) &&
	     !bytes_append(&streamed, "", 1));
	streamed.len--;
}

void reply_stream_end(struct request *r, const void *last, size_t len)
{
	MUST(!last && !len && r == streaming);
	streaming = NULL;
	is_stream_over = true;
	gone(r);
}

bool http_server_is_draining(const struct http_server *s)
{
	(void)s;
	return is_draining;
}

bool reply_stream_is_gone(const struct request *r)
{
	(void)r;
	return is_reader_gone;
}

void error_envelope(struct json_out *j, const struct request *r,
		    const struct err *e)
{
	const struct err_info *info = err_info(e->code);

	json_out_begin(j, NULL, '{');
	json_out_begin(j, "error", '{');
	json_out_str(j, "type", info->type);
	json_out_str(j, "code", info->code);
	json_out_str(j, "message", e->text);
	json_out_str(j, "request_id", r->id);
	json_out_str(j, "doc_url", "http://test/errors");
	if (*e->param)
		json_out_str(j, "param", e->param);
	json_out_end(j, '}');
	json_out_end(j, '}');
}

/* ---- the routes' side --------------------------------------------------- */

void ready_reply(int status, const char *body)
{
	ready[n_ready].status = status;
	ready[n_ready++].body = body;
}

void answer_now(void)
{
	struct request *r = waiting;
	request_inner_fn *fn = waiting_fn;
	struct inner_reply reply = {.status = 200};
	const char *body = "{}";

	MUST(r);
	waiting = NULL;
	if (n_ready) {
		reply.status = ready[n_taken].status;
		body = ready[n_taken].body;
		if (n_taken + 1 < n_ready)
			n_taken++;
	}
	MUST(!bytes_append(&reply.body, body, strlen(body)));
	r->abandon = NULL;
	fn(r, &reply);
	bytes_finish(&reply.body);
}

void request_inner(struct request *outer, const struct inner_spec *spec,
		   request_inner_fn *fn)
{
	struct sent *s = &sent[n_sent++ % SENT_MAX];

	MUST(!waiting);
	s->method = spec->method;
	snprintf(s->path, sizeof(s->path), "%s", spec->path);
	s->has_key = spec->key != NULL;
	snprintf(s->key, sizeof(s->key), "%s", spec->key ? spec->key : "");
	bytes_finish(&s->query);
	bytes_finish(&s->body);
	MUST(!bytes_append(&s->query, spec->query, strlen(spec->query) + 1));
	if (spec->body) {
		s->body = *spec->body;
		memset(spec->body, 0, sizeof(*spec->body));
	}
	MUST(!bytes_append(&s->body, "", 1));
	s->body.len--;
	waiting = outer;
	waiting_fn = fn;
	if (!is_waiting)
		answer_now();
}

/* ---- tests -------------------------------------------------------------- */

struct request *post_bytes(const void *body, size_t len)
{
	struct request *r = calloc(1, sizeof(*r));

	MUST(r);
	r->services = &services;
	r->method = HTTP_POST;
	snprintf(r->id, sizeof(r->id), "req_1");
	snprintf(r->environment, sizeof(r->environment), "env");
	snprintf(r->graph, sizeof(r->graph), "main");
	MUST(!bytes_append(&r->body, len ? body : "", len));
	got_status = 0;
	got_session[0] = 0;
	mcp_routes.routes[0].handler(r);
	return got_status ? NULL : r;
}

struct request *post(const char *body)
{
	return post_bytes(body, strlen(body));
}

void util_reset(void)
{
	MUST(!waiting && !timer && !streaming);
	for (unsigned i = 0; i < SENT_MAX; i++) {
		bytes_finish(&sent[i].query);
		bytes_finish(&sent[i].body);
	}
	memset(sent, 0, sizeof(sent));
	n_sent = n_ready = n_taken = 0;
	is_waiting = false;
	head_accept = head_session = head_version = NULL;
	bytes_finish(&got);
	bytes_finish(&streamed);
	is_stream = is_stream_over = is_reader_gone = is_draining = false;
	got_status = 0;
}
