/*
 * A request that another request makes; see request.h.
 *
 * It has no connection and is in no list of the server: the outer request is,
 * and is what the server gives up.  Then the inner handler takes back what it
 * may; if it cannot, the engine's answer ends it as ever.
 */
#include "server_priv.h"
#include <stdio.h>
#include <stdlib.h>

/* The server closes. */
static void on_abandon(struct request *outer)
{
	struct request *r = outer->priv->inner;

	if (r && r->abandon) {
		void (*fn)(struct request *) = r->abandon;

		r->abandon = NULL;
		fn(r);
	}
}

void inner_answered(struct request *r)
{
	struct request_priv *p = r->priv;
	struct request *outer = p->outer;
	request_inner_fn *fn = p->on_inner;
	struct inner_reply reply = {p->reply.status, p->reply.body};

	memset(&p->reply.body, 0, sizeof(p->reply.body));
	/* The outer one was answered by the server: nothing goes on for it. */
	if (outer->priv->is_given_up)
		reply.status = 503;
	outer->priv->inner = NULL;
	outer->abandon = NULL;
	request_release(r);
	fn(outer, &reply);
	bytes_finish_secret(&reply.body);
}

static struct request *inner_new(struct request *outer,
				 const struct inner_spec *spec,
				 request_inner_fn *fn)
{
	struct http_server *s = outer->priv->server;
	struct request_priv *p = request_new(s, spec->path);
	struct request *r;

	if (!p)
		return NULL;
	r = &p->request;
	p->outer = outer;
	p->on_inner = fn;
	p->state = REQ_WORKING;
	p->is_held = true;
	s->stats.working++;
	r->method = spec->method;
	snprintf(r->id, sizeof(r->id), "%s", outer->id);
	snprintf(r->environment, sizeof(r->environment), "%s",
		 outer->environment);
	r->caller.plan = outer->caller.plan;
	r->caller.is_enabled = outer->caller.is_enabled;
	if (spec->body) {
		r->body = *spec->body;
		memset(spec->body, 0, sizeof(*spec->body));
		s->stats.body_bytes += r->body.len;
	}
	return r;
}

void request_inner(struct request *outer, const struct inner_spec *spec,
		   request_inner_fn *fn)
{
	struct request *r = inner_new(outer, spec, fn);
	struct inner_reply none = {.status = 503};
	struct err e;

	if (!r) {
		fn(outer, &none);
		return;
	}
	outer->priv->inner = r;
	outer->abandon = on_abandon;
	if (check_inner(r, spec->query, spec->key, &e))
		reply_err(r, &e);
	else
		r->route->handler(r);
}
