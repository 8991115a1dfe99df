/*
 * One POST of JSON-RPC: its messages in order, its replies in one body.
 *
 * A body is one message, or a batch of them where the client's revision has
 * batches (2025-03-26; the next one took them away).  Each message is a
 * request, which gets a reply, or a notification or a response, which get
 * none; without a reply to give the answer is 202.  Requests of a batch are
 * done one after another, and their waits share one limit.
 *
 * HTTP statuses other than 200 and 202 are for what is no message: 400 with a
 * JSON-RPC error, 404 for a session that is none of ours (the client begins
 * anew); what the front refuses (401, 403, 413, 415 ...) has its envelope.
 */
#include "../../clock.h"
#include "mcp_priv.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A request's id, as its JSON text. */
#define ID_BYTES_MAX_RPC 256

static const struct json_span null_id = {"null", 4};

static void post_step(struct mcp_post *p);

int64_t mcp_post_left_ms(const struct mcp_post *p)
{
	int64_t left = p->end_ms - clock_mono_ms();

	return left > 0 ? left : 0;
}

/* ---- replies ------------------------------------------------------------ */

static void reply_begin(struct json_out *j, struct json_span id)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "jsonrpc", "2.0");
	json_out_raw(j, "id", id.at, id.len);
}

static struct json_out *reply_to(struct mcp_post *p, struct json_out *event)
{
	p->n_replies++;
	return p->is_stream ? event : &p->out;
}

void mcp_post_event(struct mcp_post *p, struct json_out *message)
{
	static const char head[] = "event: message\ndata: ";

	if (message->rc)
		return; /* no memory: the stream ends without it */
	/* Line ends are white space of user JSON: they would end the data. */
	for (size_t i = 0; i < message->buf.len; i++)
		if (message->buf.data[i] == '\n' ||
		    message->buf.data[i] == '\r')
			message->buf.data[i] = ' ';
	reply_stream_write(p->request, head, sizeof(head) - 1);
	reply_stream_write(p->request, message->buf.data, message->buf.len);
	reply_stream_write(p->request, "\n\n", 2);
}

static void reply_end(struct mcp_post *p, struct json_out *j)
{
	json_out_end(j, '}');
	if (p->is_stream)
		mcp_post_event(p, j);
	post_step(p);
}

void mcp_post_result(struct mcp_post *p, struct json_span id,
		     const struct json_out *result)
{
	struct json_out event = {0};
	struct json_out *j = reply_to(p, &event);

	reply_begin(j, id);
	json_out_raw(j, "result", result->buf.data, result->buf.len);
	if (result->rc)
		j->rc = result->rc;
	reply_end(p, j);
	json_out_finish(&event);
}

void mcp_post_error(struct mcp_post *p, struct json_span id, enum rpc_code code,
		    const char *fmt, ...)
{
	struct json_out event = {0};
	struct json_out *j = reply_to(p, &event);
	char text[ERR_TEXT_BYTES_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	reply_begin(j, id.at ? id : null_id);
	json_out_begin(j, "error", '{');
	json_out_i64(j, "code", code);
	json_out_str(j, "message", text);
	json_out_end(j, '}');
	reply_end(p, j);
	json_out_finish(&event);
}

void mcp_post_done(struct mcp_post *p)
{
	post_step(p);
}

int mcp_post_stream(struct mcp_post *p)
{
	if (reply_stream_begin(p->request, "text/event-stream"))
		return -1;
	p->is_stream = true;
	return 0;
}

static void post_free(struct mcp_post *p)
{
	p->request->op = NULL;
	json_out_finish(&p->out);
	free(p);
}

static void post_end(struct mcp_post *p)
{
	struct request *r = p->request;
	bool is_stream = p->is_stream;
	struct json_out out = p->out;
	struct bytes none = {0};
	int status = p->http_status;
	unsigned n = p->n_replies;

	if (p->is_batch && n)
		json_out_end(&out, ']');
	memset(&p->out, 0, sizeof(p->out));
	post_free(p);
	if (is_stream) {
		reply_stream_end(r, NULL, 0);
	} else if (n) {
		reply_json(r, status, &out);
		return;
	} else {
		reply_bytes(r, status == 200 ? 202 : status, NULL, &none);
	}
	json_out_finish(&out);
}

/* ---- messages ----------------------------------------------------------- */

static bool is_id(struct json_span v)
{
	int64_t n;

	return v.len <= ID_BYTES_MAX_RPC &&
	       (json_kind_of(v) == JSON_KIND_STRING || !json_int(v, &n));
}

/* No message: 400, where it is all that there is. */
static void invalid(struct mcp_post *p, struct json_span id, const char *text)
{
	if (!p->is_batch)
		p->http_status = 400;
	mcp_post_error(p, id, RPC_INVALID, "%s", text);
}

static void response(struct mcp_post *p, struct json_span id,
		     struct json_span message)
{
	if (mcp_answer(p, id, message))
		mcp_post_done(p);
	else
		invalid(p, id,
			"nothing was asked under this id, or the "
			"question is over");
}

static void message(struct mcp_post *p, struct json_span m)
{
	struct json_span version, id = {0}, method, other;
	bool has_id;

	if (json_kind_of(m) != JSON_KIND_OBJECT) {
		invalid(p, id, "a message is a JSON object");
		return;
	}
	has_id = json_at(m, "id", &id);
	if (has_id && !is_id(id)) {
		id.at = NULL;
		invalid(p, id,
			"id is neither a string nor a whole number, or longer "
			"than 256 bytes");
	} else if (!json_at(m, "jsonrpc", &version) ||
		   json_kind_of(version) != JSON_KIND_STRING ||
		   !json_name_is(version, "2.0")) {
		invalid(p, id, "jsonrpc is not \"2.0\"");
	} else if (json_at(m, "method", &method)) {
		if (json_kind_of(method) != JSON_KIND_STRING)
			invalid(p, id, "method is not a string");
		else if (has_id)
			mcp_method(p, m, id, method);
		else
			mcp_notification(p, m, method);
	} else if (has_id && (json_at(m, "result", &other) ||
			      json_at(m, "error", &other))) {
		response(p, id, m);
	} else {
		invalid(p, id, "method is missing");
	}
}

/* Goes on until a message waits for something, or all are done. */
static void post_step(struct mcp_post *p)
{
	struct json_member m;

	p->is_ready = true;
	if (p->is_busy)
		return;
	p->is_busy = true;
	while (p->is_ready) {
		if (!json_iter_next(&p->it, &m)) {
			post_end(p);
			return;
		}
		p->is_ready = false;
		message(p, m.value);
	}
	p->is_busy = false;
}

/* ---- the POST ----------------------------------------------------------- */

static void refuse(struct mcp_post *p, int status, enum rpc_code code,
		   const char *text)
{
	p->http_status = status;
	/* The iterator is empty: it ends behind this reply. */
	mcp_post_error(p, null_id, code, "%s", text);
}

static bool takes_stream(const struct request *r)
{
	const char *accept = request_header(r, "Accept");

	return accept && (strcasestr(accept, "text/event-stream") ||
			  strcasestr(accept, "*/*"));
}

/* A batch of messages, as the revision that has them allows. */
static bool batch_is_good(struct mcp_post *p, struct json_span root,
			  const char *version)
{
	struct json_member m;
	struct json_iter it;
	unsigned n = 0;

	if (version && strcmp(version, "2025-03-26") > 0) {
		refuse(p, 400, RPC_INVALID,
		       "a batch: this revision of the protocol sends one "
		       "message a request");
		return false;
	}
	json_iter_begin(&it, root);
	while (json_iter_next(&it, &m))
		n++;
	if (n && n <= MCP_BATCH_MAX)
		return true;
	refuse(p, 400, RPC_INVALID,
	       n ? "a batch has at most 16 messages" : "the batch is empty");
	return false;
}

static void begin(struct mcp_post *p, struct json_span root,
		  const char *version)
{
	if (json_kind_of(root) == JSON_KIND_ARRAY) {
		if (!batch_is_good(p, root, version))
			return;
		p->is_batch = true;
		json_out_begin(&p->out, NULL, '[');
		json_iter_begin(&p->it, root);
	} else {
		/* One member, with what a walk skips around it. */
		p->it.p = root.at;
		p->it.end = root.at + root.len;
	}
	post_step(p);
}

static void mcp_post_handle(struct request *r)
{
	const char *version = request_header(r, "MCP-Protocol-Version");
	const char *session = request_header(r, "Mcp-Session-Id");
	struct mcp_post *p = calloc(1, sizeof(*p));
	struct json_span root;
	struct err e;

	if (!p) {
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
		reply_err(r, &e);
		return;
	}
	r->op = p;
	p->request = r;
	p->call.post = p;
	p->http_status = 200;
	p->end_ms = clock_mono_ms() + MCP_WAIT_MS_MAX;
	p->takes_stream = takes_stream(r);
	p->it.p = p->it.end = "";
	if (session && mcp_session_is_valid(session)) {
		p->has_session = true;
		snprintf(p->session, sizeof(p->session), "%s", session);
	}
	if (version && !mcp_version_is_known(version))
		refuse(p, 400, RPC_INVALID,
		       "MCP-Protocol-Version is none of 2025-11-25, "
		       "2025-06-18, 2025-03-26, 2024-11-05");
	else if (session && !p->has_session)
		refuse(p, 404, RPC_INVALID,
		       "Mcp-Session-Id is of no session here: initialize");
	else if (json_check(r->body.data ? r->body.data : (const uint8_t *)"",
			    r->body.len, JSON_DEPTH_MAX, &root, &e))
		refuse(p, 400, RPC_PARSE, e.text);
	else
		begin(p, root, version);
}

static const char *const p_none[] = {NULL};

/* Tools are refused as their routes are: also while it drains. */
static const struct route routes[] = {
	{HTTP_POST, "/mcp", "mcp", ROUTE_KEY | ROUTE_GRAPH | ROUTE_ALWAYS,
	 ACCESS_OPEN, MCP_BODY_BYTES_MAX, p_none, mcp_post_handle},
};

const struct route_table mcp_routes = {"mcp", routes, MCP_N_OF(routes)};
