/*
 * A call of a tool, from its arguments to its result.
 *
 * Most calls are one request of /v1, whose answer becomes the result.  Three
 * are more:
 *
 *   run     is asked again by its key until it ended or the time is up, and a
 *           lost one is sent anew under the next key (LBB-28, LBB-196); of one
 *           that failed the command's record is read for its output
 *   delete  reads the sandbox, has the person asked, and deletes it then
 *   read    asks for one byte more than it shows of a file
 */
#include "mcp_priv.h"
#include <stdio.h>
#include <string.h>

/* Less is no wait: the answer has to come back, too. */
#define WAIT_MS_MIN 200
/* Of one run; each waits, so there are two of an attempt. */
#define RUN_REQUESTS_MAX 8

struct mcp_call *mcp_call_of(struct request *r)
{
	struct mcp_post *p = r->op;

	return &p->call;
}

void mcp_call_finish(struct mcp_call *c)
{
	struct mcp_post *p = c->post;

	bytes_finish(&c->kept);
	memset(c, 0, sizeof(*c));
	c->post = p;
}

void mcp_call_err(struct mcp_call *c, const struct err *e)
{
	struct json_out j = {0};

	error_envelope(&j, c->post->request, e);
	mcp_shape_error(c, err_info(e->code)->http_status, &j.buf);
	json_out_finish(&j);
}

/* What is refused ends the call here. */
static bool is_refused(struct mcp_call *c, const struct inner_reply *reply)
{
	if (reply->status < 400)
		return false;
	mcp_shape_error(c, reply->status, &reply->body);
	return true;
}

/* ---- requests ----------------------------------------------------------- */

void mcp_call_send(struct mcp_call *c, enum http_method method,
		   const char *path, struct bytes *query, struct bytes *body,
		   const char *key, request_inner_fn *fn)
{
	struct inner_spec spec = {
		.method = method, .path = path, .key = key, .body = body};
	struct err e;

	if (bytes_append(query, "", 1)) {
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
		mcp_call_err(c, &e);
		return;
	}
	spec.query = (const char *)query->data;
	request_inner(c->post->request, &spec, fn);
}

/* A request about one record: `path`?graph=&`name`=`id`. */
static void send_id(struct mcp_call *c, enum http_method method,
		    const char *path, const char *name, const char *id,
		    request_inner_fn *fn)
{
	_cleanup_bytes_ struct bytes query = {0};
	struct err e;

	if (mcp_args_query(c, name, id, &query, &e))
		mcp_call_err(c, &e);
	else
		mcp_call_send(c, method, path, &query, NULL, NULL, fn);
}

/* The row's request. */
static void send_row(struct mcp_call *c, int64_t wait_ms, const char *key,
		     request_inner_fn *fn)
{
	_cleanup_bytes_ struct bytes query = {0};
	_cleanup_secret_ struct bytes body = {0};
	struct err e;

	if (mcp_args_request(c, wait_ms, &query, &body, &e))
		mcp_call_err(c, &e);
	else
		mcp_call_send(c, c->action->method, c->action->path, &query,
			      &body, key, fn);
}

static void on_answer(struct request *r, struct inner_reply *reply)
{
	struct mcp_call *c = mcp_call_of(r);

	if (is_refused(c, reply))
		return;
	if (c->action->take)
		c->action->take(c, reply);
	else
		mcp_shape(c, reply);
}

void mcp_call_begin(struct mcp_call *c, const struct mcp_tool *tool,
		    struct json_span arguments)
{
	struct err e;

	if (mcp_args_decode(c, (enum mcp_tool_id)(tool - mcp_tools), arguments,
			    &e))
		mcp_call_err(c, &e);
	else if (c->action->begin)
		c->action->begin(c);
	else
		send_row(c, -1, *c->key ? c->key : NULL, on_answer);
}

void mcp_read_take(struct mcp_call *c, struct inner_reply *reply)
{
	uint64_t offset, limit;
	struct err e;

	if (mcp_args_page(c, &offset, &limit, &e))
		mcp_call_err(c, &e); /* they were good before */
	else
		mcp_shape_file(c, &reply->body, offset, limit);
}

/* ---- run ---------------------------------------------------------------- */

static void on_run(struct request *r, struct inner_reply *reply);

static void run_send(struct mcp_call *c)
{
	char key[sizeof(c->key) + 16];
	int64_t wait_ms = mcp_post_left_ms(c->post);

	c->n_asked++;
	snprintf(key, sizeof(key), "%s", c->key);
	if (c->attempt > 1)
		snprintf(key, sizeof(key), "%s.%u", c->key, c->attempt);
	send_row(c, wait_ms < ENGINE_WAIT_MS_MAX ? wait_ms : ENGINE_WAIT_MS_MAX,
		 key, on_run);
}

void mcp_run_begin(struct mcp_call *c)
{
	c->attempt = 1;
	run_send(c);
}

/* Of the run that failed: its command's record. */
static void on_output(struct request *r, struct inner_reply *reply)
{
	struct mcp_call *c = mcp_call_of(r);
	struct json_span run, command = {0};
	struct err e;

	if (json_check(c->kept.data, c->kept.len, JSON_DEPTH_MAX, &run, &e) ||
	    (reply->status < 400 &&
	     json_check(reply->body.data, reply->body.len, JSON_DEPTH_MAX,
			&command, &e)))
		mcp_call_err(c, &e);
	else
		mcp_shape_run(c, run, command);
}

static void run_failed(struct mcp_call *c, struct json_span run,
		       struct inner_reply *reply)
{
	_cleanup_bytes_ struct bytes id = {0};
	struct json_span v;

	if (!json_at(run, "command", &v) || json_text(v, &id) ||
	    bytes_append(&id, "", 1)) {
		mcp_shape_run(c, run, (struct json_span){0});
		return;
	}
	c->kept = reply->body;
	memset(&reply->body, 0, sizeof(reply->body));
	send_id(c, HTTP_GET, "/v1/sandboxes/commands/get", "command",
		(const char *)id.data, on_output);
}

static void on_run(struct request *r, struct inner_reply *reply)
{
	struct mcp_call *c = mcp_call_of(r);
	bool has_time = mcp_post_left_ms(c->post) >= WAIT_MS_MIN &&
			c->n_asked < RUN_REQUESTS_MAX;
	struct json_span run;
	struct err e;

	if (is_refused(c, reply))
		return;
	if (json_check(reply->body.data, reply->body.len, JSON_DEPTH_MAX, &run,
		       &e)) {
		mcp_call_err(c, &e);
	} else if (reply->status == 202 && has_time) {
		run_send(c);
	} else if (mcp_text_is(run, "status", "lost") && has_time &&
		   c->attempt < MCP_ATTEMPTS) {
		c->attempt++;
		run_send(c);
	} else if (reply->status != 202 && !mcp_is_true(run, "ok")) {
		run_failed(c, run, reply);
	} else {
		mcp_shape_run(c, run, (struct json_span){0});
	}
}

/* ---- delete ------------------------------------------------------------- */

static int sandbox_of(const struct mcp_call *c, struct bytes *ret,
		      struct err *e)
{
	return mcp_args_text(c, A_SANDBOX, ret, e);
}

static void delete_now(struct mcp_call *c)
{
	_cleanup_bytes_ struct bytes id = {0};
	struct err e;

	if (sandbox_of(c, &id, &e))
		mcp_call_err(c, &e);
	else
		send_id(c, HTTP_DELETE, c->action->path, "sandbox",
			(const char *)id.data, on_answer);
}

/* There is such a sandbox: the person is told what it is. */
static void on_doomed(struct request *r, struct inner_reply *reply)
{
	struct mcp_call *c = mcp_call_of(r);
	char id[MCP_TEXT_BYTES], status[MCP_TEXT_BYTES],
		template[MCP_TEXT_BYTES], created[MCP_TEXT_BYTES];
	char graph[MCP_TEXT_BYTES], text[8 * MCP_TEXT_BYTES];
	struct json_span s;
	struct err e;

	if (is_refused(c, reply))
		return;
	if (json_check(reply->body.data, reply->body.len, JSON_DEPTH_MAX, &s,
		       &e)) {
		mcp_call_err(c, &e);
		return;
	}
	mcp_text_at(s, "id", id);
	mcp_text_at(s, "status", status);
	mcp_text_at(s, "template", template);
	mcp_text_at(s, "created_at", created);
	mcp_text_at(s, "graph", graph);
	snprintf(text, sizeof(text),
		 "Destroy sandbox %s (%s, %s, made %s) of graph %s? Its disk "
		 "and files end with it, and that cannot be undone.",
		 id, template, status, created, graph);
	mcp_ask(c, text, delete_now);
}

void mcp_delete_begin(struct mcp_call *c)
{
	_cleanup_bytes_ struct bytes id = {0}, confirm = {0};
	struct err e;

	if (sandbox_of(c, &id, &e) ||
	    mcp_args_text(c, A_CONFIRM, &confirm, &e)) {
		mcp_call_err(c, &e);
	} else if (c->args[A_CONFIRM].at &&
		   strcmp((char *)id.data, (char *)confirm.data)) {
		err_set(&e, ERR_INVALID_REQUEST, "confirm",
			"confirm is not the id of sandbox");
		mcp_call_err(c, &e);
	} else if (mcp_can_ask(c)) {
		send_id(c, HTTP_GET, "/v1/sandboxes/get", "sandbox",
			(char *)id.data, on_doomed);
	} else if (c->args[A_CONFIRM].at) {
		delete_now(c);
	} else {
		err_set(&e, ERR_INVALID_REQUEST, "confirm",
			"confirm is missing: ask the person whether %.64s may "
			"be destroyed, then call again with confirm set to its "
			"id",
			(char *)id.data);
		mcp_call_err(c, &e);
	}
}
