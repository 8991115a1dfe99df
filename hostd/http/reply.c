/* Answers: envelope, headers, streams. */
#include "log.h"
#include "server_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* When nothing better is known: soon, but not at once. */
#define RETRY_AFTER_S_DEFAULT 1

static int retry_after(const struct err *e)
{
	int status = err_info(e->code)->http_status;

	if (e->retry_after_s)
		return e->retry_after_s;
	return status == 429 || status == 503 ? RETRY_AFTER_S_DEFAULT : 0;
}

void error_envelope(struct json_out *j, const struct request *r,
		    const struct err *e)
{
	const struct err_info *info = err_info(e->code);
	char url[HTTP_URL_BYTES_MAX + 96];
	int wait_s = retry_after(e);

	snprintf(url, sizeof(url), "%s/errors#%s", r->priv->server->public_url,
		 info->code);
	json_out_begin(j, NULL, '{');
	json_out_begin(j, "error", '{');
	json_out_str(j, "type", info->type);
	json_out_str(j, "code", info->code);
	json_out_str(j, "message", e->text);
	json_out_str(j, "request_id", r->id);
	json_out_str(j, "doc_url", url);
	if (*e->param)
		json_out_str(j, "param", e->param);
	json_out_bool(j, "retryable", info->is_retryable);
	if (wait_s)
		json_out_i64(j, "retry_after_seconds", wait_s);
	if (e->retry_at_ms)
		json_out_i64(j, "retry_at_ms", e->retry_at_ms);
	if (e->status) {
		json_out_begin(j, "details", '{');
		json_out_str(j, "status", e->status);
		json_out_end(j, '}');
	}
	json_out_end(j, '}');
	json_out_end(j, '}');
}

void reply_set_err(struct request *r, const struct err *e)
{
	struct reply *reply = &r->priv->reply;
	struct json_out j = {0};

	error_envelope(&j, r, e);
	if (j.rc)
		json_out_finish(&j); /* an empty body says the status still */
	bytes_finish(&reply->body);
	*reply = (struct reply){
		.status = err_info(e->code)->http_status,
		.content_type = "application/json",
		.body = j.buf,
		.retry_after_s = retry_after(e),
	};
	if (reply->status >= 500 && e->code != ERR_CAPACITY &&
	    e->code != ERR_UNAVAILABLE)
		log_warn("http request=%s status=%d error=\"%s\"", r->id,
			 reply->status, log_quoted(e->text, strlen(e->text)).s);
}

/* ---- streams ---------------------------------------------------------- */

struct stream {
	struct bytes buf; /* owned: not yet read by MHD */
	struct http_listener *listener;
	struct MHD_Connection *mhd; /* NULL when its response is gone */
	unsigned refs;		    /* the request, the response */
	bool is_ended, is_suspended;
};

void stream_unref(struct stream *s)
{
	if (--s->refs)
		return;
	bytes_finish(&s->buf);
	free(s);
}

static void stream_wake(struct stream *s)
{
	if (!s->is_suspended || !s->mhd)
		return;
	s->is_suspended = false;
	MHD_resume_connection(s->mhd);
	http_listener_wake(s->listener);
}

void stream_abort(struct stream *s)
{
	s->is_ended = true;
	stream_wake(s);
}

static ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct stream *s = cls;
	size_t n = s->buf.len < max ? s->buf.len : max;

	(void)pos;
	if (n) {
		memcpy(buf, s->buf.data, n);
		bytes_consume(&s->buf, n);
		return (ssize_t)n;
	}
	if (s->is_ended)
		return MHD_CONTENT_READER_END_OF_STREAM;
	s->is_suspended = true;
	MHD_suspend_connection(s->mhd);
	return 0;
}

static void stream_response_gone(void *cls)
{
	struct stream *s = cls;

	s->mhd = NULL;
	stream_unref(s);
}

int reply_stream_begin(struct request *r, const char *content_type)
{
	struct request_priv *p = r->priv;
	struct stream *s;

	if (p->outer)
		return -ENOTSUP; /* its answer is read whole */
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->refs = 1;
	s->mhd = p->mhd;
	s->listener = p->listener;
	p->reply = (struct reply){
		.status = 200, .content_type = content_type, .stream = s};
	p->state = REQ_READY;
	request_wake(r);
	return 0;
}

static void stream_add(struct stream *s, const void *data, size_t len,
		       size_t max)
{
	if (!s->mhd || s->is_ended || len > max || s->buf.len > max - len ||
	    bytes_append(&s->buf, data, len))
		return;
	stream_wake(s);
}

void reply_stream_write(struct request *r, const void *data, size_t len)
{
	stream_add(r->priv->reply.stream, data, len, STREAM_BYTES_MAX);
}

void reply_stream_end(struct request *r, const void *last, size_t len)
{
	stream_add(r->priv->reply.stream, last, len,
		   STREAM_BYTES_MAX + STREAM_LAST_BYTES_MAX);
	stream_abort(r->priv->reply.stream);
	request_release(r);
}

bool reply_stream_is_gone(const struct request *r)
{
	return !r->priv->reply.stream->mhd;
}

/* ---- whole answers ---------------------------------------------------- */

static struct MHD_Response *response_new(struct request *r)
{
	struct reply *reply = &r->priv->reply;
	struct MHD_Response *m;

	if (reply->file) {
		m = file_response(r, reply->file);
		if (m)
			reply->file = NULL;
		return m;
	}
	if (reply->stream) {
		m = MHD_create_response_from_callback(
			MHD_SIZE_UNKNOWN, 4096, stream_read, reply->stream,
			stream_response_gone);
		if (m)
			reply->stream->refs++;
		return m;
	}
	m = MHD_create_response_from_buffer(reply->body.len, reply->body.data,
					    MHD_RESPMEM_MUST_FREE);
	if (m)
		memset(&reply->body, 0, sizeof(reply->body));
	return m;
}

static void add_headers(struct MHD_Response *m, const struct request *r)
{
	const struct reply *reply = &r->priv->reply;
	char number[16];

	MHD_add_response_header(m, "X-Request-Id", r->id);
	MHD_add_response_header(m, "Cache-Control", "no-store");
	MHD_add_response_header(m, "X-Content-Type-Options", "nosniff");
	if (*reply->file_type)
		MHD_add_response_header(m, "Content-Type", reply->file_type);
	else if (reply->content_type)
		MHD_add_response_header(m, "Content-Type", reply->content_type);
	if (*reply->etag) {
		MHD_add_response_header(m, "ETag", reply->etag);
		MHD_add_response_header(m, "Accept-Ranges", "bytes");
	}
	if (*reply->content_range)
		MHD_add_response_header(m, "Content-Range",
					reply->content_range);
	if (*r->priv->version)
		MHD_add_response_header(m, "Lbb-Version", r->priv->version);
	if (*reply->allow)
		MHD_add_response_header(m, "Allow", reply->allow);
	if (reply->status == 401)
		MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
	if (reply->retry_after_s) {
		snprintf(number, sizeof(number), "%d", reply->retry_after_s);
		MHD_add_response_header(m, "Retry-After", number);
	}
	if (r->priv->more_name)
		MHD_add_response_header(m, r->priv->more_name,
					r->priv->more_value);
	if (reply->must_close)
		MHD_add_response_header(m, "Connection", "close");
}

enum MHD_Result reply_send(struct request *r)
{
	struct request_priv *p = r->priv;
	unsigned status = (unsigned)p->reply.status;
	struct MHD_Response *m = response_new(r);
	enum MHD_Result rc;

	if (!m)
		return MHD_NO;
	add_headers(m, r);
	p->state = REQ_SENT;
	if (p->reply.stream)
		http_conn_phase(p->conn, CONN_WORK);
	else
		http_conn_phase(p->conn, CONN_SEND);
	p->server->stats.by_class[status / 100 % 6]++;
	rc = MHD_queue_response(p->mhd, status, m);
	MHD_destroy_response(m);
	return rc;
}

void reply_answered(struct request *r)
{
	if (r->priv->outer) {
		inner_answered(r);
		return;
	}
	r->priv->state = REQ_READY;
	request_wake(r);
	request_release(r);
}

void reply_bytes(struct request *r, int status, const char *content_type,
		 struct bytes *body)
{
	struct request_priv *p = r->priv;

	if (p->is_given_up) {
		bytes_finish(body);
		request_release(r);
		return;
	}
	p->reply = (struct reply){
		.status = status, .content_type = content_type, .body = *body};
	memset(body, 0, sizeof(*body));
	reply_answered(r);
}

void reply_json(struct request *r, int status, struct json_out *j)
{
	struct err e;

	if (!j->rc) {
		reply_bytes(r, status, "application/json", &j->buf);
		return;
	}
	json_out_finish(j);
	err_set(&e, ERR_INTERNAL, NULL, "out of memory");
	reply_err(r, &e);
}

void reply_err(struct request *r, const struct err *e)
{
	if (r->priv->is_given_up) {
		request_release(r);
		return;
	}
	reply_set_err(r, e);
	reply_answered(r);
}

void request_drop(struct request *r)
{
	struct err e;

	if (r->priv->state != REQ_WORKING) {
		request_release(r);
		return;
	}
	err_set(&e, r->priv->outer ? ERR_UNAVAILABLE : ERR_INTERNAL, NULL,
		NULL);
	reply_err(r, &e);
}

int request_object(struct request *r, struct json_span *ret)
{
	struct err e;

	if (!r->body.len) {
		err_set(&e, ERR_INVALID_JSON, NULL,
			"the body is empty; it must be a JSON object");
	} else if (!json_check(r->body.data, r->body.len, JSON_DEPTH_MAX, ret,
			       &e)) {
		if (json_kind_of(*ret) == JSON_KIND_OBJECT)
			return 0;
		err_set(&e, ERR_INVALID_REQUEST, NULL,
			"the body is %s; it must be a JSON object",
			json_kind_name(json_kind_of(*ret)));
	}
	reply_err(r, &e);
	return -1;
}
