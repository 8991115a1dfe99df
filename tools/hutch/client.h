/*
 * The command line's side of the daemon's API.
 *
 * Two ways to a daemon: --url with an API key (any daemon), or the admin
 * socket STATE/admin.sock of a local one, which needs no key because only its
 * owner can open it.  When nothing listens there, daemon.h starts one.
 */
#ifndef HUTCH_CLI_CLIENT_H
#define HUTCH_CLI_CLIENT_H

#include "../../hostd/http/json_out.h"
#include "../../hostd/http/json_raw.h"
#include "http.h"

#define CLI_PATH_BYTES_MAX   1024
#define CLI_ID_BYTES	     64
#define CLI_EXIT_USAGE	     64
#define CLI_EXIT_INTERRUPTED 130 /* as after Ctrl-C */

struct cli {
	/* options of every command */
	const char *state, *url, *api_key, *graph;
	bool is_json;
	bool wants_json; /* --json is somewhere: for mistakes found before */

	char state_dir[CLI_PATH_BYTES_MAX]; /* absolute, resolved */
	struct http http;
	bool is_open;
	int user_lock;	     /* shared flock on STATE/users.lock; owned */
	bool is_daemon_ours; /* started by some `hutch`, not by `serve` */
	int exit_status;     /* of the last refusal, from api/errors.h */
	/* of the last refusal by a server */
	int http_status; /* 0 = it did not come from one */
	char code[64], request_id[64];
	/* What a call has begun, for the errors after that; "" = nothing. */
	char sandbox[CLI_ID_BYTES], command[CLI_ID_BYTES];
};

/* What each command file exports; see main.c. */
typedef int (*cli_command_fn)(struct cli *c, int argc, char **argv);

/* --state, $HUTCH_STATE, $XDG_STATE_HOME/hutch, ~/.local/state/hutch. */
int cli_resolve_state(struct cli *c, struct err *e);

/*
 * Set by SIGINT, SIGTERM and SIGHUP once cli_open was called: the call under
 * way ends with "interrupted", so that a daemon of ours is ended too.  A
 * second signal ends hutch at once.
 */
extern volatile sig_atomic_t cli_is_interrupted;

/* When no daemon answers, one is started; but CLI_FOR_RECORDS: not without a
 * state folder, CLI_FOR_KEYS: never. */
enum cli_need { CLI_FOR_RECORDS, CLI_FOR_RUN, CLI_FOR_KEYS };
int cli_open(struct cli *c, enum cli_need need, struct err *e);
/* Ends a daemon that was started for us when no other `hutch` uses it. */
void cli_close(struct cli *c);

struct answer {
	struct http_reply reply; /* owned */
	struct json_span root;	 /* {NULL, 0}: the body is no JSON */
};
void answer_finish(struct answer *a);
#define _cleanup_answer_ __attribute__((cleanup(answer_finish)))

/*
 * One call.  `path` is complete; `key` NULL = no Idempotency-Key.  0 and an
 * answer with a status under 400, or -1 with `e` filled from the error
 * envelope (or from what broke) and c->exit_status set.
 */
int cli_call(struct cli *c, const char *method, const char *path,
	     const struct bytes *body, const char *key, struct answer *ret,
	     struct err *e);

/* The same; the answer is bytes of any kind (reply.body). */
int cli_call_bytes(struct cli *c, const char *method, const char *path,
		   const struct bytes *body, const char *key,
		   struct answer *ret, struct err *e);

/*
 * A POST that begins something.  When Ctrl-C ends the call before it is
 * answered it is made again, by its key and to its end: what has begun is known
 * then, and the caller, who looks at cli_is_interrupted, can end it.
 */
int cli_begin(struct cli *c, const char *path, const struct bytes *body,
	      const char *key, struct answer *ret, struct err *e);

/* A POST that is answered with JSON lines (http.on_body reads them). */
int cli_call_lines(struct cli *c, const char *path, const struct bytes *body,
		   struct answer *ret, struct err *e);

/* PATH?graph=G&NAME=VALUE..., values percent-encoded; NULL value = left out.
 * Arguments: name, value, ..., NULL. */
int cli_path(const struct cli *c, struct bytes *out, const char *path, ...)
	__attribute__((sentinel));

#define CLI_KEY_BYTES 64
/* An idempotency key of our own, "hutch.VERB:" and 128 random bits, unless the
 * user gave one: *key is the user's, or `dst`.  0 or -1 with `e`. */
int cli_key_make(const char **key, char dst[CLI_KEY_BYTES], const char *verb,
		 struct err *e);

/* A member as text, as a number; `otherwise` when absent or another type.
 * Text is cut to fit and never has control bytes. */
const char *answer_text(struct json_span v, const char *path, char *dst,
			size_t cap, const char *otherwise);
int64_t answer_int(struct json_span v, const char *path, int64_t otherwise);
bool answer_bool(struct json_span v, const char *path);

/* The finished object as a line of standard output; `j` is empty after it. */
void cli_print_json(struct json_out *j);

/* Ctrl-C ended it; `what` says what that means.  -1, exit status 130. */
int cli_interrupted(struct cli *c, struct err *e, const char *what, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Message on standard error and, with --json, the error envelope on standard
 * output; returns the exit status of the refusal.
 */
int cli_fail(const struct cli *c, const struct err *e);
/* Refuses --url: what `does` says ("keys are managed") is for the host. */
int cli_expect_local(const struct cli *c, const char *does, struct err *e);
/* cli_fail for a mistake on the command line. */
int cli_usage(const struct cli *c, const char *command, const struct err *e);

#endif
