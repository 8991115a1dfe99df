/*
 * Shared by the files of this folder.  All of it runs on the loop's thread.
 *
 * rpc.c     one POST: messages in, replies out, in order
 * methods.c initialize, ping, tools/list, tools/call, notifications
 * tools.c   the tables: tools, their actions, arguments, and the list of them
 * args.c    arguments of a call, by the tables, into a request of /v1
 * call.c    a call of a tool from its arguments to its result
 * shape.c   an answer of /v1 as a result
 * ask.c     questions to the person
 */
#ifndef HUTCHD_MCP_PRIV_H
#define HUTCHD_MCP_PRIV_H

#include "list.h"
#include "mcp.h"

#define MCP_SESSION_BYTES 48
#define MCP_N_OF(a)	  (sizeof(a) / sizeof((a)[0]))

/* JSON-RPC 2.0, section 5.1. */
enum rpc_code {
	RPC_PARSE = -32700,
	RPC_INVALID = -32600,
	RPC_METHOD = -32601,
	RPC_PARAMS = -32602,
	RPC_INTERNAL = -32603,
};

/* ---- tables ------------------------------------------------------------- */

enum mcp_tool_id { MCP_READ, MCP_MANAGE, MCP_DELETE, MCP_TOOLS };

struct mcp_tool {
	const char *name, *title, *help;
	const char *annotations; /* JSON */
	bool has_action;
};

/* Arguments of all tools; a name means the same everywhere. */
enum mcp_arg_id {
	A_ACTION,
	A_GRAPH,
	A_SANDBOX,
	A_COMMAND,
	A_TEMPLATE,
	A_STATUS,
	A_LIMIT,
	A_CURSOR,
	A_VERSIONS,
	A_STREAM,
	A_OFFSET,
	A_PATH,
	A_CODE,
	A_INPUT,
	A_CONFIG,
	A_ARGV,
	A_CWD,
	A_STDIN,
	A_ENV,
	A_LIMITS,
	A_TIMEOUT,
	A_SNAPSHOT,
	A_IDLE,
	A_EXPIRES,
	A_NAME,
	A_LABELS,
	A_FILES,
	A_BASE,
	A_CONTENT,
	A_BASE64,
	A_SOURCE,
	A_WAIT,
	A_KEY,
	A_CONFIRM,
	MCP_ARGS,
};

enum mcp_type {
	MCP_ANY,
	MCP_STRING,
	MCP_INTEGER,
	MCP_BOOLEAN,
	MCP_OBJECT,
	MCP_ARRAY,
};

struct mcp_arg {
	const char *name;
	enum mcp_type type;
	const char *schema; /* more of its JSON schema, with a comma before */
	const char *help;
};

/* Where an argument goes in the request. */
enum mcp_place {
	MCP_TO_QUERY,
	MCP_TO_BODY, /* a member, as it is spelt */
	MCP_TO_RUN,  /* a member of `run` */
	MCP_TO_FILE, /* the body's bytes */
	MCP_TO_US,
};

struct mcp_use {
	enum mcp_arg_id arg;
	enum mcp_place place;
	bool is_needed;
};

enum mcp_flag {
	MCP_KEYED = 1,	 /* needs an Idempotency-Key, and gives it back */
	MCP_WAITED = 2,	 /* wait_ms is of its body, with a default of ours */
	MCP_PAGED = 4,	 /* limit is bytes, with a default of ours */
	MCP_LISTED = 8,	 /* the answer is a list */
	MCP_OUTPUT = 16, /* the answer is a command's record, with output */
};

struct mcp_call;

struct mcp_action {
	const char *name;
	enum mcp_tool_id tool;
	enum http_method method;
	const char *path; /* of /v1 */
	unsigned flags;
	const struct mcp_use *uses; /* beside action and graph */
	size_t n_uses;
	/* What of data is from the sandbox; NULL = nothing. */
	const char *untrusted;
	const char *help;
	/* Sends the first request; NULL = the one of this row. */
	void (*begin)(struct mcp_call *c);
	/* Takes an answer under 400; NULL = mcp_shape. */
	void (*take)(struct mcp_call *c, struct inner_reply *reply);
};

extern const struct mcp_tool mcp_tools[MCP_TOOLS];
extern const struct mcp_arg mcp_args[MCP_ARGS];
extern const struct mcp_action mcp_actions[];
extern const size_t mcp_n_actions;

/* NULL = there is none. */
const struct mcp_tool *mcp_tool_find(struct json_span name);
/* {"tools":[...]} */
void mcp_put_tools(struct json_out *j);

/* ---- a call ------------------------------------------------------------- */

struct mcp_post;
struct mcp_question;

struct mcp_call {
	struct mcp_post *post;
	struct json_span id; /* of the JSON-RPC request */
	const struct mcp_action *action;
	struct json_span args[MCP_ARGS];	 /* at NULL = not given */
	char key[IDEMPOTENCY_KEY_BYTES_MAX + 1]; /* "" = none */
	unsigned attempt;			 /* of a run: 1 ... */
	unsigned n_asked;			 /* of a run: requests */
	struct bytes kept; /* owned: an answer while another is waited for */
	struct mcp_question *question; /* owned by ask.c */
};

/* args.c: 0, or -1 with `e`. */
int mcp_args_decode(struct mcp_call *c, enum mcp_tool_id tool,
		    struct json_span arguments, struct err *e);
/* The row's request.  wait_ms < 0: the call's own, or ours. */
int mcp_args_request(const struct mcp_call *c, int64_t wait_ms,
		     struct bytes *ret_query, struct bytes *ret_body,
		     struct err *e);
/* `graph=G&NAME=VALUE`, of the call's graph. */
int mcp_args_query(const struct mcp_call *c, const char *name,
		   const char *value, struct bytes *ret, struct err *e);
/* offset and limit, or what they are when not given. */
int mcp_args_page(const struct mcp_call *c, uint64_t *ret_offset,
		  uint64_t *ret_limit, struct err *e);
/* A string argument's characters; "" when it is not given. */
int mcp_args_text(const struct mcp_call *c, enum mcp_arg_id arg,
		  struct bytes *ret, struct err *e);

/* call.c */
void mcp_call_begin(struct mcp_call *c, const struct mcp_tool *tool,
		    struct json_span arguments);
/* One more request for this call; `fn` gets what is under 400. */
void mcp_call_send(struct mcp_call *c, enum http_method method,
		   const char *path, struct bytes *query, struct bytes *body,
		   const char *key, request_inner_fn *fn);
void mcp_call_err(struct mcp_call *c, const struct err *e);
void mcp_call_finish(struct mcp_call *c); /* frees what it owns */
struct mcp_call *mcp_call_of(struct request *r);
void mcp_run_begin(struct mcp_call *c);
void mcp_delete_begin(struct mcp_call *c);
void mcp_read_take(struct mcp_call *c, struct inner_reply *reply);

/* shape.c: these end the call. */
void mcp_shape(struct mcp_call *c, struct inner_reply *reply);
/* `command`: record with output, or none. */
void mcp_shape_run(struct mcp_call *c, struct json_span run,
		   struct json_span command);
void mcp_shape_file(struct mcp_call *c, const struct bytes *file,
		    uint64_t offset, uint64_t limit);
/* Members of an answer: the text cut to fit, "" when it is none. */
#define MCP_TEXT_BYTES 64
void mcp_text_at(struct json_span v, const char *path,
		 char dst[MCP_TEXT_BYTES]);
bool mcp_text_is(struct json_span v, const char *path, const char *text);
bool mcp_is_true(struct json_span v, const char *path);
void mcp_shape_error(struct mcp_call *c, int status, const struct bytes *body);

/* ask.c */
/* Does the client take a question in the middle of this call? */
bool mcp_can_ask(const struct mcp_call *c);
/* Ask; then `fn` with yes, or the call is ended. */
void mcp_ask(struct mcp_call *c, const char *message,
	     void (*fn)(struct mcp_call *c));
/* A JSON-RPC response from the client: was it of a question? */
bool mcp_answer(struct mcp_post *p, struct json_span id,
		struct json_span message);
/* notifications/cancelled of a request whose question still waits. */
void mcp_withdraw(struct mcp_post *p, struct json_span id);

/* ---- a POST ------------------------------------------------------------- */

struct mcp_post {
	struct request *request;
	struct json_iter it; /* messages that are still to be done */
	bool is_batch;
	bool is_stream; /* answered by events */
	bool is_busy;	/* in mcp_post_step: it goes on by itself */
	bool is_ready;
	unsigned n_replies;
	int http_status;
	struct json_out out; /* owned: replies so far */
	int64_t end_ms;	     /* of all its waits, clock_mono */
	bool has_session, takes_stream;
	char session[MCP_SESSION_BYTES];
	struct mcp_call call;
};

/* Milliseconds that may still be waited. */
int64_t mcp_post_left_ms(const struct mcp_post *p);
/* The reply to `id`: `result` is a whole JSON text.  Goes on with the next. */
void mcp_post_result(struct mcp_post *p, struct json_span id,
		     const struct json_out *result);
void mcp_post_error(struct mcp_post *p, struct json_span id, enum rpc_code code,
		    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The message takes no reply, or its client gave it up. */
void mcp_post_done(struct mcp_post *p);
/* From here on by events: 0 or -1, then nothing has happened. */
int mcp_post_stream(struct mcp_post *p);
void mcp_post_event(struct mcp_post *p, struct json_out *message);

/* methods.c: ends in one of the above, now or later. */
void mcp_method(struct mcp_post *p, struct json_span message,
		struct json_span id, struct json_span method);
void mcp_notification(struct mcp_post *p, struct json_span message,
		      struct json_span method);
bool mcp_version_is_known(const char *version);
bool mcp_session_is_valid(const char *session);

#endif
