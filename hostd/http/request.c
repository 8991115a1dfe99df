/*
 * A request from its first line to its handler.
 *
 * MHD calls request_on_uri with the raw target, then request_on_data: once
 * with the whole header, once per piece of the body, once at the end, and once
 * more after a resume.  The state says what a call means.
 *
 * A request has two owners: MHD until request_on_done, and the handler until
 * it answered.  It is freed when both let go.
 */
#include "request.h"
#include "../clock.h"
#include "log.h"
#include "server_priv.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

/* Odd: a count times this visits every 64-bit number once. */
#define REQUEST_ID_STEP ((uint64_t)0x9e3779b97f4a7c15)

/* Up to the '?' of it. */
struct request_priv *request_new(struct http_server *s, const char *uri)
{
	struct request_priv *p = calloc(1, sizeof(*p));
	struct request *r;

	if (!p)
		return NULL;
	r = &p->request;
	list_init(&p->node);
	p->server = s;
	p->begun_us = clock_mono_us();
	r->priv = p;
	r->services = s->services;
	r->path = strndup(uri, strcspn(uri, "?"));
	if (r->path)
		return p;
	free(p);
	return NULL;
}

static struct request_priv *priv_new(struct http_listener *l, const char *uri)
{
	struct http_server *s = l->server;
	struct request_priv *p = request_new(s, uri);
	const char *mark = strchr(uri, '?');
	struct request *r;

	if (!p)
		return NULL;
	r = &p->request;
	p->listener = l;
	r->is_admin = l->is_admin;
	p->raw_query = mark ? strdup(mark + 1) : NULL;
	snprintf(r->id, sizeof(r->id), "req_%016" PRIx64,
		 s->id_seed ^ (++s->id_count * REQUEST_ID_STEP));
	if (!mark || p->raw_query)
		return p;
	free(r->path);
	free(p);
	return NULL;
}

/* "http://host/path" is the path for us: we are no proxy. */
static const char *without_authority(const char *uri)
{
	const char *slash;

	if (strncasecmp(uri, "http://", 7))
		return uri;
	slash = strchr(uri + 7, '/');
	return slash ? slash : "/";
}

void *request_on_uri(void *cls, const char *uri, struct MHD_Connection *c)
{
	struct request_priv *p = priv_new(cls, without_authority(uri));

	(void)c;
	return p ? &p->request : NULL;
}

static void body_drop(struct request *r)
{
	r->priv->server->stats.body_bytes -= r->body.len;
	bytes_finish_secret(&r->body);
}

static void free_if_done(struct request *r)
{
	struct request_priv *p = r->priv;

	if (p->is_held || p->mhd)
		return;
	body_drop(r);
	query_finish(&r->query);
	bytes_finish(&p->reply.body);
	if (p->reply.stream)
		stream_unref(p->reply.stream);
	if (p->reply.file)
		file_body_unref(p->reply.file);
	free(r->idempotency_key);
	free(p->raw_query);
	free(r->path);
	free(p);
}

void request_release(struct request *r)
{
	struct request_priv *p = r->priv;
	struct http_server *s = p->server;

	if (!p->is_held)
		return;
	p->is_held = false;
	r->abandon = NULL;
	list_remove(&p->node);
	s->stats.working--;
	free_if_done(r);
	http_server_free_if_done(s);
}

/* Who took the body hears that there will be no more of it. */
static void sink_cut(struct request *r)
{
	const struct body_sink *sink = r->sink;

	r->sink = NULL;
	sink->cut(r);
	request_release(r);
}

void request_on_done(void *cls, struct MHD_Connection *c, void **con_cls,
		     enum MHD_RequestTerminationCode why)
{
	struct request *r = *con_cls;
	struct request_priv *p;

	(void)cls;
	(void)c;
	if (!r)
		return;
	p = r->priv;
	*con_cls = NULL;
	log_debug("http request=%s %s path=\"%s\" status=%d us=%" PRId64
		  " end=%d",
		  r->id, http_method_name(r->method),
		  log_quoted(r->path, strlen(r->path)).s, p->reply.status,
		  clock_mono_us() - p->begun_us, (int)why);
	if (p->conn)
		http_conn_phase(p->conn, CONN_IDLE);
	p->conn = NULL;
	p->mhd = NULL;
	if (r->sink)
		sink_cut(r);
	else
		free_if_done(r);
}

const char *request_header(const struct request *r, const char *name)
{
	return r->priv->mhd ? check_header(r->priv->mhd, name) : NULL;
}

void request_set_header(struct request *r, const char *name, const char *value)
{
	struct request_priv *p = r->priv;

	if (strlen(value) >= sizeof(p->more_value))
		return;
	p->more_name = name;
	snprintf(p->more_value, sizeof(p->more_value), "%s", value);
}

/* ---- the handler's side ----------------------------------------------- */

void request_wake(struct request *r)
{
	struct request_priv *p = r->priv;

	if (!p->is_suspended || !p->mhd)
		return;
	p->is_suspended = false;
	MHD_resume_connection(p->mhd);
	http_listener_wake(p->listener);
}

void request_give_up(struct request *r, const struct err *e)
{
	struct request_priv *p = r->priv;

	if (r->sink && p->state == REQ_BODY) {
		reply_set_err(r, e);
		p->state = REQ_REFUSED;
		request_wake(r);
		sink_cut(r);
		return;
	}
	p->is_given_up = true;
	if (p->reply.stream) {
		stream_abort(p->reply.stream);
	} else if (p->state == REQ_WORKING) {
		reply_set_err(r, e);
		p->state = REQ_READY;
		request_wake(r);
	}
	if (r->abandon) {
		void (*fn)(struct request *) = r->abandon;

		r->abandon = NULL;
		fn(r);
	}
}

/* ---- MHD's side ------------------------------------------------------- */

static uint64_t drain_max(const struct request *r)
{
	return r->route && r->route->flags & ROUTE_STREAM && *r->environment
		       ? HTTP_DRAIN_UPLOAD_BYTES_MAX
		       : HTTP_DRAIN_BYTES_MAX;
}

/* The answer is there.  `is_framed`: where the body ends is certain. */
static enum MHD_Result refused(struct request *r, struct MHD_Connection *c,
			       bool is_framed)
{
	struct request_priv *p = r->priv;
	uint64_t len = check_body_length(c);

	p->state = REQ_REFUSED;
	if (is_framed && len <= drain_max(r) && !check_header(c, "Expect"))
		return MHD_YES;
	/* Not to be read to its end: answer now and close. */
	p->reply.must_close = true;
	return reply_send(r);
}

static enum MHD_Result refuse(struct request *r, struct MHD_Connection *c,
			      const struct err *e, unsigned allow,
			      bool is_framed)
{
	struct request_priv *p = r->priv;

	if (e->code == ERR_NONE)
		p->reply = (struct reply){.status = 204};
	else
		reply_set_err(r, e);
	route_allow(allow, p->reply.allow, sizeof(p->reply.allow));
	return refused(r, c, is_framed);
}

/* The handler has it, from here until it answers. */
static void hold(struct request_priv *p)
{
	p->is_held = true;
	p->server->stats.working++;
	list_append(&p->server->working, &p->node);
}

/* The handler takes the body, or has refused it. */
static enum MHD_Result stream_begin(struct request *r, struct MHD_Connection *c)
{
	struct request_priv *p = r->priv;

	hold(p);
	r->route->handler(r);
	if (p->state == REQ_READY)
		return refused(r, c, true);
	p->state = REQ_BODY;
	return MHD_YES;
}

static enum MHD_Result on_head(struct request *r, struct MHD_Connection *c,
			       const char *method)
{
	struct request_priv *p = r->priv;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	unsigned allow = 0;
	struct err e;

	p->mhd = c;
	p->conn = info->socket_context;
	if (!p->conn)
		return MHD_NO;
	p->server->stats.requests++;
	r->method = http_method_parse(method);
	http_conn_phase(p->conn, CONN_BODY);
	if (check_framing(c, &e))
		return refuse(r, c, &e, 0, false);
	if (check_head(r, c, &allow, &e))
		return refuse(r, c, &e, allow, true);
	if (r->route->flags & ROUTE_STREAM)
		return stream_begin(r, c);
	p->state = REQ_BODY;
	return MHD_YES;
}

static void stop_reading(struct request *r, const struct err *e)
{
	body_drop(r);
	reply_set_err(r, e);
	r->priv->state = REQ_REFUSED;
}

static void take_body(struct request *r, const char *data, size_t len)
{
	struct http_server *s = r->priv->server;
	size_t max = r->route->body_bytes_max;
	struct err e;

	if (r->body.len + len > max) {
		err_set(&e, check_too_large(r), NULL,
			max ? "the body is larger than %zu bytes"
			    : "this route takes no body (%zu bytes)",
			max);
		stop_reading(r, &e);
	} else if (s->stats.body_bytes + len > s->cfg.body_budget_bytes) {
		err_set(&e, ERR_UNAVAILABLE, NULL,
			"the daemon holds as many request bodies as it may");
		stop_reading(r, &e);
	} else if (bytes_append_secret(&r->body, data, len)) {
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
		stop_reading(r, &e);
	} else {
		s->stats.body_bytes += len;
	}
}

/*
 * A client that is gone, without all of its body.  libmicrohttpd waits for an
 * event that may have come together with the last bytes, and then would not
 * hear of it before the deadline.
 */
static bool is_cut_short(const struct request_priv *p)
{
	uint64_t all = check_body_length(p->mhd);
	char c;

	return all != UINT64_MAX && p->n_streamed < all &&
	       !recv(p->conn->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
}

static void stream_body(struct request *r, const char *data, size_t len)
{
	struct request_priv *p = r->priv;
	uint64_t before = p->n_streamed;
	struct err e = {0};
	int rc;

	p->n_streamed += len;
	if (p->n_streamed / HTTP_BODY_STEP_BYTES !=
	    before / HTTP_BODY_STEP_BYTES)
		http_conn_phase(p->conn, CONN_BODY);
	rc = r->sink->take(r, data, len, &e);
	if (rc < 0) {
		r->sink = NULL;
		stop_reading(r, &e);
		request_wake(r); /* nobody else would */
		request_release(r);
	} else if (rc > 0 && !p->is_suspended) {
		/*
		 * The client is not the one that is slow.  libmicrohttpd goes
		 * on with the chunks that it has read, suspended or not, and
		 * one that is suspended twice is in none of its lists.
		 */
		http_conn_phase(p->conn, CONN_WORK);
		p->is_suspended = true;
		MHD_suspend_connection(p->mhd);
	} else if (is_cut_short(p)) {
		shutdown(p->conn->fd, SHUT_RDWR); /* an event of our own */
	}
}

void request_body_more(struct request *r)
{
	struct request_priv *p = r->priv;

	if (!p->is_suspended || p->state != REQ_BODY)
		return;
	http_conn_phase(p->conn, CONN_BODY);
	request_wake(r);
}

/*
 * A body may hold values of env, which stay nowhere.  `data` is MHD's own
 * buffer of the connection, malloc'ed and not read again once we took it: wiped
 * here, because MHD gives it to the next request and to free() as it is.
 */
static enum MHD_Result on_body(struct request *r, const char *data, size_t *len)
{
	struct request_priv *p = r->priv;

	if (p->state == REQ_BODY && r->sink)
		stream_body(r, data, *len);
	else if (p->state == REQ_BODY)
		take_body(r, data, *len);
	else
		p->n_drained += *len;
	explicit_bzero((void *)(uintptr_t)data, *len);
	if (p->n_drained > drain_max(r))
		return MHD_NO;
	*len = 0;
	return MHD_YES;
}

static enum MHD_Result run(struct request *r)
{
	struct request_priv *p = r->priv;

	const struct body_sink *sink = r->sink;

	p->state = REQ_WORKING;
	http_conn_phase(p->conn, CONN_WORK);
	r->sink = NULL;
	if (sink) {
		sink->end(r);
	} else {
		hold(p);
		r->route->handler(r);
	}
	if (p->state == REQ_READY)
		return reply_send(r);
	p->is_suspended = true;
	MHD_suspend_connection(p->mhd);
	return MHD_YES;
}

enum MHD_Result request_on_data(void *cls, struct MHD_Connection *c,
				const char *url, const char *method,
				const char *version, const char *data,
				size_t *data_len, void **con_cls)
{
	struct request *r = *con_cls;

	(void)cls;
	(void)url;
	(void)version;
	if (!r)
		return MHD_NO;
	switch (r->priv->state) {
	case REQ_HEAD:
		return on_head(r, c, method);
	case REQ_BODY:
		if (*data_len)
			return on_body(r, data, data_len);
		return run(r);
	case REQ_REFUSED:
		if (*data_len)
			return on_body(r, data, data_len);
		return reply_send(r);
	case REQ_READY:
		return reply_send(r);
	case REQ_WORKING:
	case REQ_SENT:
		return MHD_YES;
	}
	return MHD_NO;
}
