/*
 * Arguments of a tool's call, by the tables, into a request of /v1.
 *
 * Refused here: a tool without an action, an argument that is unknown, does
 * not belong to the action, or is missing, and what could not be written into
 * a query.  All else is the route's to refuse, in its words.
 *
 * A body gets the arguments as they are spelt, in the order of the table and
 * not of the call: the hash that tells whether two requests with one key are
 * the same goes over bytes, and an agent that sends a call again may name its
 * arguments in another order.
 */
#include "../lbb/decode.h"
#include "mcp_priv.h"
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TAKES_BYTES_MAX 320
#define BASE64                                                                 \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
/* Of a body of ours, beside the arguments: names, brackets, wait_ms. */
#define FRAME_BYTES_MAX 256

static int no_memory(struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, NULL, "out of memory");
}

/* ---- what a call has ---------------------------------------------------- */

static bool is_ours(const struct mcp_action *a, size_t arg,
		    const struct mcp_use **ret)
{
	*ret = NULL;
	for (size_t i = 0; i < a->n_uses && !*ret; i++)
		if (a->uses[i].arg == arg)
			*ret = &a->uses[i];
	return *ret || arg == A_GRAPH ||
	       (arg == A_ACTION && mcp_tools[a->tool].has_action);
}

static void name_takes(const struct mcp_action *a, char dst[TAKES_BYTES_MAX])
{
	int n = 0;

	for (size_t i = 0; i < a->n_uses; i++)
		n += snprintf(dst + n, TAKES_BYTES_MAX - (size_t)n, "%s, ",
			      mcp_args[a->uses[i].arg].name);
	snprintf(dst + n, TAKES_BYTES_MAX - (size_t)n, "graph");
}

static int foreign(const struct mcp_action *a, struct json_span name,
		   struct err *e)
{
	char shown[ERR_PARAM_BYTES_MAX], takes[TAKES_BYTES_MAX];
	const struct mcp_tool *t = &mcp_tools[a->tool];

	/* Without its quotes, which are there. */
	snprintf(shown, sizeof(shown), "%.*s", (int)(name.len - 2),
		 name.at + 1);
	name_takes(a, takes);
	return err_set(e, ERR_INVALID_REQUEST, shown,
		       "%.60s does not belong to %s%s%s, which takes %s", shown,
		       t->name, t->has_action ? " action=" : "",
		       t->has_action ? a->name : "", takes);
}

static int find_action(struct mcp_call *c, enum mcp_tool_id tool,
		       struct json_span arguments, struct err *e)
{
	const char *name = mcp_tools[tool].name;
	struct json_span v;
	char names[TAKES_BYTES_MAX] = "";
	int n = 0;
	bool is_given = json_at(arguments, "action", &v);

	for (size_t i = 0; i < mcp_n_actions; i++) {
		const struct mcp_action *a = &mcp_actions[i];

		if (a->tool != tool)
			continue;
		c->action = a;
		if (!mcp_tools[tool].has_action ||
		    (is_given && json_kind_of(v) == JSON_KIND_STRING &&
		     json_name_is(v, a->name)))
			return 0;
		n += snprintf(names + n, sizeof(names) - (size_t)n, "%s%s",
			      n ? ", " : "", a->name);
	}
	c->action = NULL;
	if (!is_given)
		return err_set(e, ERR_INVALID_REQUEST, "action",
			       "action is missing; %s takes %s", name, names);
	return err_set(e, ERR_INVALID_REQUEST, "action",
		       "action %.*s is none of %s: %s",
		       (int)(v.len < 60 ? v.len : 60), v.at, name, names);
}

static int take_arguments(struct mcp_call *c, struct json_span arguments,
			  struct err *e)
{
	const struct mcp_use *use;
	struct json_member m;
	struct json_iter it;

	json_iter_begin(&it, arguments);
	while (json_iter_next(&it, &m)) {
		size_t arg = 0;

		while (arg < MCP_ARGS &&
		       !json_name_is(m.name, mcp_args[arg].name))
			arg++;
		if (arg == MCP_ARGS || !is_ours(c->action, arg, &use))
			return foreign(c->action, m.name, e);
		c->args[arg] = m.value;
	}
	for (size_t i = 0; i < c->action->n_uses; i++) {
		const struct mcp_use *u = &c->action->uses[i];

		if (u->is_needed && !c->args[u->arg].at)
			return err_set(e, ERR_INVALID_REQUEST,
				       mcp_args[u->arg].name,
				       "%s is missing; action %s needs it",
				       mcp_args[u->arg].name, c->action->name);
	}
	return 0;
}

/* ---- the idempotency key ------------------------------------------------ */

static int key_make(struct mcp_call *c, struct err *e)
{
	uint8_t random[16];
	int n;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return err_set(e, ERR_INTERNAL, NULL, "no random bytes");
	n = snprintf(c->key, sizeof(c->key), "mcp.%s:", c->action->name);
	for (size_t i = 0; i < sizeof(random); i++)
		n += snprintf(c->key + n, 3, "%02x", random[i]);
	return 0;
}

static int take_key(struct mcp_call *c, struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};

	if (!(c->action->flags & MCP_KEYED))
		return 0;
	if (!c->args[A_KEY].at)
		return key_make(c, e);
	if (decode_string("idempotency_key", c->args[A_KEY], &text, e))
		return -1;
	if (!text.len || text.len > MCP_KEY_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "idempotency_key",
			       "idempotency_key has %zu bytes; it must have 1 "
			       "to %d",
			       text.len, MCP_KEY_BYTES_MAX);
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] < ' ' || text.data[i] > '~')
			return err_set(e, ERR_INVALID_REQUEST,
				       "idempotency_key",
				       "idempotency_key has a byte that is not "
				       "printable ASCII");
	memcpy(c->key, text.data, text.len + 1);
	return 0;
}

int mcp_args_decode(struct mcp_call *c, enum mcp_tool_id tool,
		    struct json_span arguments, struct err *e)
{
	if (find_action(c, tool, arguments, e) ||
	    take_arguments(c, arguments, e))
		return -1;
	return take_key(c, e);
}

int mcp_args_text(const struct mcp_call *c, enum mcp_arg_id arg,
		  struct bytes *ret, struct err *e)
{
	ret->len = 0;
	if (c->args[arg].at)
		return decode_string(mcp_args[arg].name, c->args[arg], ret, e);
	if (bytes_append(ret, "", 1))
		return no_memory(e);
	ret->len = 0;
	return 0;
}

/* ---- the query ---------------------------------------------------------- */

static int put_query(struct bytes *b, const char *name, const void *value,
		     size_t len, struct err *e)
{
	const uint8_t *p = value;
	int rc = bytes_printf(b, "%s%s=", b->len ? "&" : "", name);

	for (size_t i = 0; !rc && i < len; i++) {
		bool is_plain = (p[i] >= 'a' && p[i] <= 'z') ||
				(p[i] >= 'A' && p[i] <= 'Z') ||
				(p[i] >= '0' && p[i] <= '9') ||
				(p[i] && strchr("-._~", p[i]));

		rc = is_plain ? bytes_append(b, &p[i], 1)
			      : bytes_printf(b, "%%%02X", p[i]);
	}
	return rc ? no_memory(e) : 0;
}

/* A number or a truth is written as it is spelt: the route reads it. */
static int put_query_arg(const struct mcp_call *c, enum mcp_arg_id arg,
			 struct bytes *b, struct err *e)
{
	static const enum json_kind kinds[] = {
		[MCP_STRING] = JSON_KIND_STRING,
		[MCP_INTEGER] = JSON_KIND_NUMBER,
		[MCP_BOOLEAN] = JSON_KIND_BOOL,
	};
	_cleanup_bytes_ struct bytes text = {0};
	const struct mcp_arg *a = &mcp_args[arg];
	struct json_span v = c->args[arg];

	if (decode_type(a->name, v, kinds[a->type], e))
		return -1;
	if (a->type != MCP_STRING)
		return put_query(b, a->name, v.at, v.len, e);
	if (decode_string(a->name, v, &text, e))
		return -1;
	return put_query(b, a->name, text.data, text.len, e);
}

int mcp_args_query(const struct mcp_call *c, const char *name,
		   const char *value, struct bytes *ret, struct err *e)
{
	const char *graph = c->post->request->graph;
	int rc = c->args[A_GRAPH].at
			 ? put_query_arg(c, A_GRAPH, ret, e)
			 : put_query(ret, "graph", graph, strlen(graph), e);

	if (rc || !name)
		return rc;
	return put_query(ret, name, value, strlen(value), e);
}

/* ---- the body ----------------------------------------------------------- */

static int put_file_base64(struct bytes *b, struct json_span v, struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	size_t n_pad;
	int n;

	if (decode_string("content_base64", v, &text, e))
		return -1;
	if (!text.len)
		return 0;
	if (bytes_reserve(b, text.len))
		return no_memory(e);
	/* The library takes white space around, and = in the middle. */
	n_pad = text.len - strspn((const char *)text.data, BASE64);
	if (text.len % 4 || n_pad > 2 ||
	    memcmp(text.data + text.len - n_pad, "==", n_pad))
		n = -1;
	else
		n = EVP_DecodeBlock(b->data, text.data, (int)text.len);
	if (n < 0)
		return err_set(e, ERR_INVALID_REQUEST, "content_base64",
			       "content_base64 is not base64 with its padding");
	b->len = (size_t)n - n_pad;
	return 0;
}

/* Any characters, NUL too. */
static int put_file_text(struct bytes *b, struct json_span v, struct err *e)
{
	int rc;

	if (decode_type("content", v, JSON_KIND_STRING, e))
		return -1;
	rc = json_text(v, b);
	if (rc == -EILSEQ)
		return err_set(e, ERR_INVALID_REQUEST, "content",
			       "content has a lone surrogate, which no UTF-8 "
			       "text can hold");
	return rc ? no_memory(e) : 0;
}

static int put_file(const struct mcp_call *c, struct bytes *b, struct err *e)
{
	struct json_span text = c->args[A_CONTENT], coded = c->args[A_BASE64];
	int n = !!text.at + !!coded.at + !!c->args[A_SOURCE].at;

	if (n != 1)
		return err_set(e, ERR_INVALID_REQUEST, "content",
			       "%s content, content_base64 and source_sha256 "
			       "is needed",
			       n ? "only one of" : "one of");
	if (text.at)
		return put_file_text(b, text, e);
	return coded.at ? put_file_base64(b, coded, e) : 0;
}

static void put_members(const struct mcp_call *c, struct json_out *j,
			enum mcp_place place)
{
	for (size_t i = 0; i < c->action->n_uses; i++) {
		const struct mcp_use *u = &c->action->uses[i];
		struct json_span v = c->args[u->arg];

		if (u->place == place && v.at)
			json_out_raw(j, mcp_args[u->arg].name, v.at, v.len);
	}
}

static bool has_members(const struct mcp_call *c, enum mcp_place place)
{
	for (size_t i = 0; i < c->action->n_uses; i++)
		if (c->action->uses[i].place == place &&
		    c->args[c->action->uses[i].arg].at)
			return true;
	return false;
}

static int put_body(const struct mcp_call *c, int64_t wait_ms, struct bytes *b,
		    struct err *e)
{
	struct json_out j = {0};

	/* Values of env leave no copy where a buffer grew. */
	j.rc = bytes_reserve(&j.buf,
			     c->post->request->body.len + FRAME_BYTES_MAX);
	json_out_begin(&j, NULL, '{');
	if (has_members(c, MCP_TO_RUN) || c->action->begin == mcp_run_begin) {
		json_out_begin(&j, "run", '{');
		put_members(c, &j, MCP_TO_RUN);
		json_out_end(&j, '}');
	}
	put_members(c, &j, MCP_TO_BODY);
	if ((c->action->flags & MCP_WAITED) && !c->args[A_WAIT].at)
		json_out_i64(&j, "wait_ms",
			     wait_ms < 0 ? ENGINE_WAIT_MS_MAX : wait_ms);
	json_out_end(&j, '}');
	*b = j.buf;
	return j.rc ? no_memory(e) : 0;
}

/* ---- the request -------------------------------------------------------- */

static bool has_place(const struct mcp_action *a, enum mcp_place place)
{
	for (size_t i = 0; i < a->n_uses; i++)
		if (a->uses[i].place == place)
			return true;
	return false;
}

int mcp_args_page(const struct mcp_call *c, uint64_t *ret_offset,
		  uint64_t *ret_limit, struct err *e)
{
	struct json_span offset = c->args[A_OFFSET], limit = c->args[A_LIMIT];
	int64_t n = 0;

	*ret_limit = MCP_READ_BYTES_DEFAULT;
	if (offset.at && (json_int(offset, &n) || n < 0))
		return err_set(e, ERR_INVALID_REQUEST, "offset",
			       "offset must be a whole number from 0");
	*ret_offset = (uint64_t)n;
	if (!limit.at)
		return 0;
	if (json_int(limit, &n) || n < 1 || n > MCP_READ_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "limit",
			       "limit must be a whole number from 1 to %u",
			       MCP_READ_BYTES_MAX);
	*ret_limit = (uint64_t)n;
	return 0;
}

/* One byte more of a file: whether there is more. */
static int put_page(const struct mcp_call *c, struct bytes *b, struct err *e)
{
	uint64_t offset, limit;

	if (mcp_args_page(c, &offset, &limit, e))
		return -1;
	limit += c->action->take == mcp_read_take;
	if (bytes_printf(b, "&limit=%llu", (unsigned long long)limit))
		return no_memory(e);
	return 0;
}

int mcp_args_request(const struct mcp_call *c, int64_t wait_ms,
		     struct bytes *ret_query, struct bytes *ret_body,
		     struct err *e)
{
	const struct mcp_action *a = c->action;

	if (mcp_args_query(c, NULL, NULL, ret_query, e))
		return -1;
	if ((a->flags & MCP_PAGED) && put_page(c, ret_query, e))
		return -1;
	for (size_t i = 0; i < a->n_uses; i++) {
		enum mcp_arg_id arg = a->uses[i].arg;

		if (a->uses[i].place != MCP_TO_QUERY || !c->args[arg].at ||
		    ((a->flags & MCP_PAGED) && arg == A_LIMIT))
			continue;
		if (put_query_arg(c, arg, ret_query, e))
			return -1;
	}
	if (has_place(a, MCP_TO_FILE))
		return put_file(c, ret_body, e);
	if (has_place(a, MCP_TO_BODY) || a->begin == mcp_run_begin)
		return put_body(c, wait_ms, ret_body, e);
	return 0;
}
