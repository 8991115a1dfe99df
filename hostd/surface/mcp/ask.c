/*
 * Questions to the person at the client: elicitation.
 *
 * The call's answer becomes a stream of events; the first is our request
 * `elicitation/create`, the last the call's result.  The client's answer comes
 * as a POST of its own, a JSON-RPC response with the id that we gave, and is
 * taken only with the session and from the environment that was asked.  The
 * digits of the id are random: nobody else can answer.
 *
 * A question ends by its answer, by notifications/cancelled of the call, after
 * MCP_ASK_MS_MAX, when nobody reads the stream any more, or when the daemon
 * stops; in all cases but the first nothing is done.
 */
#include "../../http/server.h"
#include "../../loop.h"
#include "mcp_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define QUESTION_ID_BYTES 40

struct mcp_question {
	struct list node; /* in `questions` */
	struct mcp_call *call;
	void (*yes)(struct mcp_call *c);
	struct loop_timer beat;
	int left_ms;
	char id[QUESTION_ID_BYTES];
};

/* Those that wait; on the loop's thread. */
static struct list questions = {&questions, &questions};

static struct request *request_of(const struct mcp_question *q)
{
	return q->call->post->request;
}

bool mcp_can_ask(const struct mcp_call *c)
{
	const struct mcp_post *p = c->post;

	return p->has_session && p->takes_stream && !p->is_batch;
}

static void question_free(struct mcp_question *q)
{
	struct request *r = request_of(q);

	loop_timer_stop(r->services->loop, &q->beat);
	list_remove(&q->node);
	r->abandon = NULL;
	q->call->question = NULL;
	free(q);
}

/* ---- its end ------------------------------------------------------------ */

/* The call ends without a result: nobody waits for one. */
static void give_up(struct mcp_question *q)
{
	struct mcp_call *c = q->call;
	struct mcp_post *p = c->post;

	question_free(q);
	mcp_call_finish(c);
	mcp_post_done(p);
}

static void refuse(struct mcp_question *q, const char *why)
{
	struct mcp_call *c = q->call;
	struct err e;

	question_free(q);
	err_set(&e, ERR_NOT_APPROVED, NULL, "%s; nothing was destroyed", why);
	mcp_call_err(c, &e);
}

/* The server closes: the stream has ended already. */
static void on_abandon(struct request *r)
{
	give_up(mcp_call_of(r)->question);
}

static void on_beat(struct loop_timer *t)
{
	struct mcp_question *q = container_of(t, struct mcp_question, beat);
	struct request *r = request_of(q);

	q->left_ms -= MCP_ASK_BEAT_MS;
	if (reply_stream_is_gone(r)) {
		give_up(q);
	} else if (http_server_is_draining(r->services->http)) {
		refuse(q, "the daemon is stopping");
	} else if (q->left_ms <= 0) {
		refuse(q, "the person did not answer within 10 minutes");
	} else {
		reply_stream_write(r, ": waiting\n\n", 11);
		loop_timer_set(r->services->loop, t, MCP_ASK_BEAT_MS);
	}
}

/* ---- asking ------------------------------------------------------------- */

static int limits(const struct mcp_call *c, struct err *e)
{
	const char *environment = c->post->request->environment;
	struct list *pos, *tmp;
	unsigned n = 0, n_own = 0;

	list_for_each_safe(pos, tmp, &questions)
	{
		struct mcp_question *q =
			container_of(pos, struct mcp_question, node);

		n++;
		n_own += !strcmp(request_of(q)->environment, environment);
	}
	if (n < MCP_QUESTIONS_MAX && n_own < MCP_QUESTIONS_ENVIRONMENT_MAX)
		return 0;
	return err_set(e, ERR_LIMIT_REACHED, NULL,
		       "%u questions wait for their answers (%u of this "
		       "environment); at most %d (%d)",
		       n, n_own, MCP_QUESTIONS_MAX,
		       MCP_QUESTIONS_ENVIRONMENT_MAX);
}

static int id_make(char dst[QUESTION_ID_BYTES], struct err *e)
{
	uint8_t random[16];
	int n = snprintf(dst, QUESTION_ID_BYTES, "ask-");

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return err_set(e, ERR_INTERNAL, NULL, "no random bytes");
	for (size_t i = 0; i < sizeof(random); i++)
		n += snprintf(dst + n, 3, "%02x", random[i]);
	return 0;
}

static void put_form(struct json_out *j)
{
	json_out_begin(j, "requestedSchema", '{');
	json_out_str(j, "type", "object");
	json_out_begin(j, "properties", '{');
	json_out_begin(j, "approve", '{');
	json_out_str(j, "type", "boolean");
	json_out_str(j, "title", "Destroy it");
	json_out_str(j, "description", "Yes: the sandbox is destroyed now.");
	json_out_bool(j, "default", false);
	json_out_end(j, '}');
	json_out_end(j, '}');
	json_out_begin(j, "required", '[');
	json_out_str(j, NULL, "approve");
	json_out_end(j, ']');
	json_out_end(j, '}');
}

static void send_question(const struct mcp_question *q, const char *message)
{
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "jsonrpc", "2.0");
	json_out_str(&j, "id", q->id);
	json_out_str(&j, "method", "elicitation/create");
	json_out_begin(&j, "params", '{');
	json_out_str(&j, "message", message);
	put_form(&j);
	json_out_end(&j, '}');
	json_out_end(&j, '}');
	mcp_post_event(q->call->post, &j);
	json_out_finish(&j);
}

void mcp_ask(struct mcp_call *c, const char *message,
	     void (*fn)(struct mcp_call *c))
{
	struct mcp_question *q = calloc(1, sizeof(*q));
	struct request *r = c->post->request;
	struct err e;

	if (!q)
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
	if (!q || limits(c, &e) || id_make(q->id, &e)) {
		free(q);
		mcp_call_err(c, &e);
		return;
	}
	if (mcp_post_stream(c->post)) {
		free(q);
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
		mcp_call_err(c, &e);
		return;
	}
	q->call = c;
	q->yes = fn;
	q->beat.fn = on_beat;
	q->left_ms = MCP_ASK_MS_MAX;
	c->question = q;
	list_append(&questions, &q->node);
	r->abandon = on_abandon;
	loop_timer_set(r->services->loop, &q->beat, MCP_ASK_BEAT_MS);
	send_question(q, message);
}

/* ---- answers ------------------------------------------------------------ */

static bool is_of(const struct mcp_question *q, const struct mcp_post *p)
{
	return !strcmp(q->call->post->session, p->session) &&
	       !strcmp(request_of(q)->environment, p->request->environment);
}

static struct mcp_question *find(const struct mcp_post *p, struct json_span id)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &questions)
	{
		struct mcp_question *q =
			container_of(pos, struct mcp_question, node);

		if (p->has_session && is_of(q, p) &&
		    json_kind_of(id) == JSON_KIND_STRING &&
		    json_name_is(id, q->id))
			return q;
	}
	return NULL;
}

static bool is_approved(struct json_span message)
{
	struct json_span action, approve;
	bool is = false;

	return json_at(message, "result.action", &action) &&
	       json_kind_of(action) == JSON_KIND_STRING &&
	       json_name_is(action, "accept") &&
	       json_at(message, "result.content.approve", &approve) &&
	       !json_bool(approve, &is) && is;
}

bool mcp_answer(struct mcp_post *p, struct json_span id,
		struct json_span message)
{
	struct mcp_question *q = find(p, id);
	struct mcp_call *c;
	struct json_span error;

	if (!q)
		return false;
	c = q->call;
	if (json_at(message, "error", &error)) {
		refuse(q, "the client could not ask the person");
	} else if (!is_approved(message)) {
		refuse(q, "the person did not approve");
	} else {
		void (*yes)(struct mcp_call *) = q->yes;

		question_free(q);
		yes(c);
	}
	return true;
}

void mcp_withdraw(struct mcp_post *p, struct json_span id)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &questions)
	{
		struct mcp_question *q =
			container_of(pos, struct mcp_question, node);

		if (!p->has_session || !is_of(q, p) ||
		    q->call->id.len != id.len ||
		    memcmp(q->call->id.at, id.at, id.len))
			continue;
		give_up(q);
		return;
	}
}
