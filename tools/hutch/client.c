/* The command line's side of the daemon's API; see client.h. */
#include "client.h"
#include "daemon.h"
#include "fd.h"
#include "wording.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int set_state(struct cli *c, const char *dir, const char *rest,
		     struct err *e)
{
	char cwd[CLI_PATH_BYTES_MAX] = "";
	int n;

	if (dir[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		return err_set(e, ERR_INTERNAL, "state", "current folder: %s",
			       strerror(errno));
	n = snprintf(c->state_dir, sizeof(c->state_dir), "%s%s%s%s", cwd,
		     cwd[0] ? "/" : "", dir, rest);
	if (n < 0 || (size_t)n >= sizeof(c->state_dir))
		return err_set(e, ERR_INVALID_REQUEST, "state",
			       "the state folder's path is too long");
	return 0;
}

int cli_resolve_state(struct cli *c, struct err *e)
{
	const char *own = getenv("HUTCH_STATE");
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	if (c->state && *c->state)
		return set_state(c, c->state, "", e);
	if (own && *own)
		return set_state(c, own, "", e);
	if (xdg && *xdg)
		return set_state(c, xdg, "/hutch", e);
	if (home && *home)
		return set_state(c, home, "/.local/state/hutch", e);
	return err_set(e, ERR_INVALID_REQUEST, "state",
		       "no state folder: set --state, HUTCH_STATE or HOME");
}

volatile sig_atomic_t cli_is_interrupted;

static void on_signal(int sig)
{
	(void)sig;
	cli_is_interrupted = 1;
}

static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction act = {.sa_handler = on_signal,
				.sa_flags = (int)SA_RESETHAND};

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &act, NULL);
}

int cli_open(struct cli *c, enum cli_need need, struct err *e)
{
	int rc;

	catch_signals();
	if (c->url)
		rc = http_init_url(&c->http, c->url, e);
	else
		rc = cli_resolve_state(c, e) || daemon_connect(c, need, e);
	if (rc && cli_is_interrupted) {
		c->exit_status = CLI_EXIT_INTERRUPTED;
		return err_set(e, ERR_UNAVAILABLE, NULL, "interrupted");
	}
	if (rc) {
		c->exit_status = err_info(e->code)->exit_status;
		return -1;
	}
	c->http.is_cancelled = &cli_is_interrupted;
	c->is_open = true;
	return 0;
}

void cli_close(struct cli *c)
{
	if (!c->is_open)
		return;
	c->http.is_cancelled = NULL;
	if (!c->url)
		daemon_release(c);
	http_finish(&c->http);
	c->is_open = false;
}

void answer_finish(struct answer *a)
{
	http_reply_finish(&a->reply);
	a->root = (struct json_span){NULL, 0};
}

/* The row of api/errors.h with this code on the wire. */
static enum err_code find_code(const char *wire)
{
	for (int i = ERR_NONE + 1; i < ERR_N; i++)
		if (!strcmp(err_info((enum err_code)i)->code, wire))
			return (enum err_code)i;
	return ERR_INTERNAL;
}

static void name_key(const struct cli *c, struct err *e)
{
	char was[ERR_TEXT_BYTES_MAX];

	memcpy(was, e->text, sizeof(was));
	if (c->api_key)
		snprintf(e->text, sizeof(e->text), "%.400s The key is from %s.",
			 was, "--api-key or HUTCH_API_KEY");
	else
		snprintf(e->text, sizeof(e->text),
			 "an API key is missing: give --api-key KEY or set "
			 "HUTCH_API_KEY");
}

static int refused(struct cli *c, const struct answer *a, struct err *e)
{
	char text[400], param[64];

	c->http_status = a->reply.status;
	if (!a->root.at || !answer_text(a->root, "error.code", c->code,
					sizeof(c->code), NULL)) {
		c->exit_status = err_info(ERR_INTERNAL)->exit_status;
		return err_set(e, ERR_INTERNAL, NULL,
			       "the server answered %d without an error body",
			       a->reply.status);
	}
	answer_text(a->root, "error.message", text, sizeof(text), "");
	answer_text(a->root, "error.param", param, sizeof(param), "");
	answer_text(a->root, "error.request_id", c->request_id,
		    sizeof(c->request_id), "");
	err_set(e, find_code(c->code), param, "%s", text);
	wording_of_options(e);
	if (e->code == ERR_UNAUTHORIZED)
		name_key(c, e);
	e->retry_after_s =
		(int)answer_int(a->root, "error.retry_after_seconds", 0);
	c->exit_status = err_info(e->code)->exit_status;
	return -1;
}

static int broke(struct cli *c, int rc, struct err *e)
{
	const char *where = c->url ? c->url : c->http.socket;

	c->exit_status = rc == -EINTR ? CLI_EXIT_INTERRUPTED
				      : err_info(ERR_UNAVAILABLE)->exit_status;
	if (rc == -EINTR)
		return err_set(e, ERR_UNAVAILABLE, NULL, "interrupted");
	return err_set(e, ERR_UNAVAILABLE, NULL, "%s: %s", where,
		       strerror(-rc));
}

/* Status line and body are there; `e` only when the answer refuses. */
static int exchange(struct cli *c, const char *method, const char *path,
		    const struct bytes *body, const char *key,
		    struct answer *ret, struct err *e)
{
	char headers[1024];
	struct err ignored;
	int rc, n;

	memset(ret, 0, sizeof(*ret));
	c->http_status = 0;
	c->code[0] = c->request_id[0] = 0;
	n = snprintf(headers, sizeof(headers), "%s%s%s%s%s%s",
		     c->api_key ? "Authorization: Bearer " : "",
		     c->api_key ? c->api_key : "", c->api_key ? "\r\n" : "",
		     key ? "Idempotency-Key: " : "", key ? key : "",
		     key ? "\r\n" : "");
	if (n < 0 || (size_t)n >= sizeof(headers) ||
	    (c->api_key && strpbrk(c->api_key, "\r\n")) ||
	    (key && strpbrk(key, "\r\n"))) {
		c->exit_status = CLI_EXIT_USAGE;
		return err_set(e, ERR_INVALID_REQUEST, "key",
			       "a key is too long or holds a line end");
	}
	/* A call with a key is safe to send again: the daemon runs it once. */
	rc = http_call(&c->http, method, path, headers, body, key != NULL,
		       &ret->reply);
	if (rc)
		return broke(c, rc, e);
	if (json_check(ret->reply.body.data, ret->reply.body.len,
		       JSON_DEPTH_MAX, &ret->root, &ignored))
		ret->root = (struct json_span){NULL, 0};
	return ret->reply.status >= 400 ? refused(c, ret, e) : 0;
}

int cli_call(struct cli *c, const char *method, const char *path,
	     const struct bytes *body, const char *key, struct answer *ret,
	     struct err *e)
{
	if (exchange(c, method, path, body, key, ret, e))
		return -1;
	if (ret->root.at)
		return 0;
	c->exit_status = err_info(ERR_INTERNAL)->exit_status;
	return err_set(e, ERR_INTERNAL, NULL,
		       "the server's answer is not JSON");
}

int cli_call_bytes(struct cli *c, const char *method, const char *path,
		   const struct bytes *body, const char *key,
		   struct answer *ret, struct err *e)
{
	return exchange(c, method, path, body, key, ret, e);
}

int cli_begin(struct cli *c, const char *path, const struct bytes *body,
	      const char *key, struct answer *ret, struct err *e)
{
	int rc = cli_call(c, "POST", path, body, key, ret, e);

	if (!rc || !cli_is_interrupted || c->http_status)
		return rc;
	c->http.is_cancelled = NULL;
	answer_finish(ret);
	return cli_call(c, "POST", path, body, key, ret, e);
}

int cli_call_lines(struct cli *c, const char *path, const struct bytes *body,
		   struct answer *ret, struct err *e)
{
	return exchange(c, "POST", path, body, NULL, ret, e);
}

static int add_query(struct bytes *out, char sep, const char *name,
		     const char *value)
{
	int rc = bytes_printf(out, "%c%s=", sep, name);

	for (const char *p = value; !rc && *p; p++) {
		bool is_plain =
			isalnum((unsigned char)*p) || strchr("-._~", *p);

		rc = is_plain ? bytes_append(out, p, 1)
			      : bytes_printf(out, "%%%02X", (unsigned char)*p);
	}
	return rc;
}

int cli_path(const struct cli *c, struct bytes *out, const char *path, ...)
{
	const char *name;
	char sep = '?';
	va_list ap;
	int rc;

	out->len = 0;
	rc = bytes_append(out, path, strlen(path));
	if (!rc && c->graph && strncmp(path, "/v1/", 4) == 0) {
		rc = add_query(out, sep, "graph", c->graph);
		sep = '&';
	}
	va_start(ap, path);
	while (!rc && (name = va_arg(ap, const char *))) {
		const char *value = va_arg(ap, const char *);

		if (!value)
			continue;
		rc = add_query(out, sep, name, value);
		sep = '&';
	}
	va_end(ap);
	return rc ? rc : bytes_append(out, "", 1);
}

const char *answer_text(struct json_span v, const char *path, char *dst,
			size_t cap, const char *otherwise)
{
	_cleanup_bytes_ struct bytes b = {0};
	struct json_span s;
	size_t n;

	if (!v.at || !json_at(v, path, &s) || json_text(s, &b)) {
		if (otherwise)
			snprintf(dst, cap, "%s", otherwise);
		return otherwise ? dst : NULL;
	}
	n = b.len < cap - 1 ? b.len : cap - 1;
	for (size_t i = 0; i < n; i++)
		dst[i] = b.data[i] < 0x20 || b.data[i] == 0x7f
				 ? '?'
				 : (char)b.data[i];
	dst[n] = 0;
	return dst;
}

int64_t answer_int(struct json_span v, const char *path, int64_t otherwise)
{
	struct json_span s;
	int64_t n;

	if (!v.at || !json_at(v, path, &s) || json_int(s, &n))
		return otherwise;
	return n;
}

bool answer_bool(struct json_span v, const char *path)
{
	struct json_span s;
	bool is;

	return v.at && json_at(v, path, &s) && !json_bool(s, &is) && is;
}

void cli_print_json(struct json_out *j)
{
	printf("%.*s\n", (int)j->buf.len, (char *)j->buf.data);
	json_out_finish(j);
}

int cli_interrupted(struct cli *c, struct err *e, const char *what, ...)
{
	char text[ERR_TEXT_BYTES_MAX];
	va_list ap;

	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	c->exit_status = CLI_EXIT_INTERRUPTED;
	c->http_status = 0;
	return err_set(e, ERR_UNAVAILABLE, NULL, "interrupted; %.400s", text);
}

static void print_error(const struct cli *c, const struct err *e, int status)
{
	const struct err_info *info = err_info(e->code);
	const char *param = e->param;
	struct json_out j = {0};

	/* An option's name without its dashes, wherever the refusal is from. */
	if (!strncmp(param, "--", 2))
		param += 2;
	json_out_begin(&j, NULL, '{');
	json_out_begin(&j, "error", '{');
	json_out_str(&j, "type", info->type);
	json_out_str(&j, "code", c->http_status ? c->code : info->code);
	json_out_str(&j, "message", e->text);
	if (e->param[0])
		json_out_str(&j, "param", param);
	if (c->request_id[0])
		json_out_str(&j, "request_id", c->request_id);
	json_out_bool(&j, "retryable", info->is_retryable);
	if (e->retry_after_s)
		json_out_i64(&j, "retry_after_seconds", e->retry_after_s);
	json_out_end(&j, '}');
	if (c->sandbox[0])
		json_out_str(&j, "sandbox", c->sandbox);
	if (c->command[0])
		json_out_str(&j, "command", c->command);
	json_out_i64(&j, "exit_status", status);
	json_out_end(&j, '}');
	cli_print_json(&j);
}

int cli_fail(const struct cli *c, const struct err *e)
{
	int status = c->exit_status ? c->exit_status
				    : err_info(e->code)->exit_status;

	if (c->is_json)
		print_error(c, e, status);
	fprintf(stderr, "hutch: %s", e->text);
	if (c->http_status && c->code[0])
		fprintf(stderr, " (%d %s%s%s)", c->http_status, c->code,
			c->request_id[0] ? ", request " : "", c->request_id);
	fputc('\n', stderr);
	if (c->http_status && !strstr(e->text, e->param))
		fprintf(stderr, "hutch: field: %s\n", e->param);
	/* What has begun is not to be begun again. */
	if (e->retry_after_s && !c->sandbox[0] && !c->command[0])
		fprintf(stderr, "hutch: try again in %d s\n", e->retry_after_s);
	if (c->command[0] || c->sandbox[0])
		fprintf(stderr,
			"hutch: `hutch show %s` tells what became of it\n",
			c->command[0] ? c->command : c->sandbox);
	return status;
}

int cli_expect_local(const struct cli *c, const char *does, struct err *e)
{
	if (!c->url)
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, "url",
		       "%s on the host, with --state, not with --url", does);
}

int cli_usage(const struct cli *c, const char *command, const struct err *e)
{
	if (c->is_json || c->wants_json)
		print_error(c, e, CLI_EXIT_USAGE);
	fprintf(stderr, "hutch%s%s: %s\nhutch %s%s shows how\n",
		command ? " " : "", command ? command : "", e->text,
		command ? command : "help", command ? " --help" : "");
	return CLI_EXIT_USAGE;
}

int cli_key_make(const char **key, char dst[CLI_KEY_BYTES], const char *verb,
		 struct err *e)
{
	uint8_t random[16];
	int len;

	if (*key && !**key)
		return err_set(e, ERR_INVALID_REQUEST, "key",
			       "--key: it is empty; leave the option out for "
			       "a key of our own");
	if (*key)
		return 0;
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return err_set(e, ERR_INTERNAL, NULL, "no random bytes: %s",
			       strerror(errno));
	len = snprintf(dst, CLI_KEY_BYTES, "hutch.%s:", verb);
	for (size_t i = 0; i < sizeof(random); i++)
		len += snprintf(dst + len, 3, "%02x", random[i]);
	*key = dst;
	return 0;
}
