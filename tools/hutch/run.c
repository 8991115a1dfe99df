/*
 * hutch run: one call, from a file to its result.
 *
 * POST /v1/sandboxes answers with the ids; then the run is followed: while the
 * sandbox starts, its progress is shown on standard error; then its output is
 * printed as it comes.  The result is the last line of standard output, as the
 * bytes that the code's JSON has.  Ctrl-C cancels the command and still prints
 * what came of it; a second one ends hutch.
 */
#include "../../hostd/surface/lbb/lbb.h"
#include "commands.h"
#include "outcome.h"
#include "output.h"
#include "progress.h"
#include "source.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* None: a run whose id is known can be cancelled. */
#define FIRST_WAIT_MS 0
#define NEXT_WAIT_MS  "1000"
/* How long others may hold all places; then their refusal is told. */
#define PLACE_WAIT_MS  60000
#define PLACE_SLICE_MS 200

struct run {
	struct cli *c;
	struct source source;
	const char *key;
	char made_key[CLI_KEY_BYTES], status[32];
	struct progress progress;
	struct pump out, err;
	struct answer last; /* of the command, or of the call */
	bool is_no_wait, is_cancelled;
};

static const char help[] =
	"usage: hutch run FILE.py|FILE.js|FILE.sh|- [OPTIONS]\n"
	"       hutch run --template NAME [OPTIONS]\n"
	"\n"
	"Runs the code in a fresh microVM, prints what it wrote and, as the "
	"last line,\n"
	"its result as JSON; a shell script's only when it is not what it "
	"wrote, and not\n"
	"null.  The exit status is that of the code (124 timed out, 130 "
	"cancelled, 128+N\n"
	"signal N, 75 not started or lost; 64 to 78: refused).\n"
	"\n"
	"Ctrl-C cancels the run.  While other runs hold all places it waits "
	"for one, up\n"
	"to 60 s.  Tracebacks call the file <run>.\n"
	"\n"
	"Python and node code defines run(input, config); a shell script reads "
	"its input\n"
	"on standard input.  Without a running daemon one is started for this "
	"call.\n"
	"Without FILE the code is that of a saved template (hutch template).\n"
	"\n"
	"  hutch run sum.py --input '[1, 2, 3]'\n"
	"  hutch run report.py --input @table.json --timeout 10m --memory "
	"2048\n"
	"  echo 'jq .a' | hutch run - --template lbb/shell --input "
	"'{\"a\": 1}'\n"
	"  hutch run sum.py --input '[1]' --key sum-a   # again: same record\n"
	"  hutch run --template normalize --input '[1, 2, 3]'\n";

static int final_status(const struct run *r)
{
	return strcmp(r->status, "queued") && strcmp(r->status, "running") &&
	       strcmp(r->status, "starting");
}

/* The id may be the member itself or the id of an object. */
static void take_id(struct json_span root, const char *name, char *dst)
{
	char path[64];

	if (dst[0])
		return;
	snprintf(path, sizeof(path), "%s.id", name);
	if (!answer_text(root, name, dst, CLI_ID_BYTES, NULL))
		answer_text(root, path, dst, CLI_ID_BYTES, "");
}

static int poll_sandbox(struct run *r, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

	if (cli_path(r->c, &path, "/v1/sandboxes/get", "sandbox", r->c->sandbox,
		     NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	if (cli_call(r->c, "GET", (char *)path.data, NULL, NULL, &a, e))
		return -1;
	progress_of_sandbox(&r->progress, a.root);
	return 0;
}

static int pump_both(struct run *r, struct err *e)
{
	progress_clear(&r->progress);
	if (pump_read(r->c, &r->out, r->c->command, e))
		return -1;
	return pump_read(r->c, &r->err, r->c->command, e);
}

static int poll_command(struct run *r, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	struct answer a;

	if (cli_path(r->c, &path, "/v1/sandboxes/commands/get", "command",
		     r->c->command, "wait_ms", NEXT_WAIT_MS, NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	if (cli_call(r->c, "GET", (char *)path.data, NULL, NULL, &a, e)) {
		answer_finish(&a);
		return -1;
	}
	answer_finish(&r->last);
	r->last = a;
	answer_text(a.root, "status", r->status, sizeof(r->status), "");
	return 0;
}

static int cancel(struct run *r, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

	r->is_cancelled = true;
	r->c->http.is_cancelled = NULL;
	progress_clear(&r->progress);
	fprintf(stderr, "hutch: cancelling %s\n", r->c->command);
	if (cli_path(r->c, &path, "/v1/sandboxes/commands/cancel", "command",
		     r->c->command, NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	return cli_call(r->c, "POST", (char *)path.data, NULL, NULL, &a, e);
}

static int follow(struct run *r, struct err *e)
{
	while (!final_status(r)) {
		int rc = 0;

		if (cli_is_interrupted && !r->is_cancelled)
			rc = cancel(r, e);
		else if (!strcmp(r->status, "running"))
			rc = pump_both(r, e);
		else
			rc = poll_sandbox(r, e);
		if (!rc)
			rc = poll_command(r, e);
		/* A call that Ctrl-C ended is no failure: cancel is next. */
		if (rc && (!cli_is_interrupted || r->is_cancelled))
			return rc;
	}
	return pump_both(r, e);
}

static bool is_full(const struct err *e)
{
	return e->code == ERR_LIMIT_REACHED || e->code == ERR_CAPACITY;
}

/* Retry-After, as long as there is patience left.  Room on the host may not
 * come: who waits is told what is missing. */
static void wait_for_place(struct run *r, const struct err *e, int *waited_ms)
{
	int left_ms = e->retry_after_s > 0 ? e->retry_after_s * 1000 : 1000;
	char text[256];

	while (left_ms > 0 && *waited_ms < PLACE_WAIT_MS &&
	       !cli_is_interrupted) {
		snprintf(text, sizeof(text), "waiting for %s%.200s (%d s)",
			 e->code == ERR_CAPACITY ? "room: " : "a place",
			 e->code == ERR_CAPACITY ? e->text : "",
			 *waited_ms / 1000);
		progress_show(&r->progress, text);
		usleep(PLACE_SLICE_MS * 1000);
		*waited_ms += PLACE_SLICE_MS;
		left_ms -= PLACE_SLICE_MS;
	}
}

/* The call; again while other runs hold all places. */
static int send_run(struct run *r, const char *path, const struct bytes *body,
		    struct err *e)
{
	int waited_ms = 0;

	for (;;) {
		answer_finish(&r->last);
		if (!cli_begin(r->c, path, body, r->key, &r->last, e)) {
			progress_clear(&r->progress);
			return 0;
		}
		if (!is_full(e) || r->is_no_wait ||
		    waited_ms >= PLACE_WAIT_MS || cli_is_interrupted)
			return -1;
		wait_for_place(r, e, &waited_ms);
		if (cli_is_interrupted)
			return -1;
	}
}

static int start(struct run *r, const struct bytes *body, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};

	if (cli_path(r->c, &path, "/v1/sandboxes", NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	if (cli_is_interrupted)
		return cli_interrupted(r->c, e, "nothing was started");
	if (send_run(r, (char *)path.data, body, e)) {
		if (!cli_is_interrupted)
			return -1;
		if (r->c->http_status)
			return cli_interrupted(r->c, e, "nothing was started");
		return cli_interrupted(
			r->c, e, "hutch run %s%.60s --key %.60s finds the run",
			r->source.file ? "" : "--template ",
			r->source.file ? r->source.file
				       : r->source.template_name,
			r->key);
	}
	take_id(r->last.root, "sandbox", r->c->sandbox);
	take_id(r->last.root, "command", r->c->command);
	answer_text(r->last.root, "status", r->status, sizeof(r->status), "");
	return follow(r, e);
}

static void print_json(struct run *r)
{
	static const char *const copied[] = {
		"ok",	      "result",	  "status",	"exit_code",
		"signal",     "reason",	  "message",	"created_at",
		"started_at", "ended_at", "duration_ms"};
	struct json_out j = {0};
	struct json_span v;

	json_out_begin(&j, NULL, '{');
	if (!json_at(r->last.root, "ok", &v))
		json_out_bool(&j, "ok", !strcmp(r->status, "succeeded"));
	for (size_t i = 0; i < sizeof(copied) / sizeof(*copied); i++)
		if (json_at(r->last.root, copied[i], &v))
			json_out_raw(&j, copied[i], v.at, v.len);
	json_out_str(&j, "sandbox", r->c->sandbox);
	json_out_str(&j, "command", r->c->command);
	json_out_str(&j, "idempotency_key", r->key);
	pump_json(&r->out, &j);
	pump_json(&r->err, &j);
	json_out_bool(&j, "truncated", r->out.omitted || r->err.omitted);
	json_out_end(&j, '}');
	cli_print_json(&j);
}

/*
 * A shell script's result is its output when it leaves none of its own: then
 * it is on standard output already, or there is none.
 */
static bool is_result_shown(const struct run *r, struct json_span v)
{
	char base[72];

	if (strcmp(answer_text(r->last.root, "template_base", base,
			       sizeof(base), ""),
		   "lbb/shell") &&
	    !source_is_shell(&r->source))
		return false;
	return json_kind_of(v) == JSON_KIND_NULL ||
	       pump_wrote_only(&r->out, v.at, v.len);
}

static void print_end(const struct run *r)
{
	bool is_good = !strcmp(r->status, "succeeded");
	char text[400];
	struct json_span v;

	if (is_good && json_at(r->last.root, "result", &v) &&
	    !is_result_shown(r, v))
		printf("%s%.*s\n", pump_ends_in_line(&r->out) ? "" : "\n",
		       (int)v.len, v.at);
	fflush(stdout);
	if (is_good && !r->progress.is_tty)
		return;
	outcome_text(r->last.root, text, sizeof(text));
	fprintf(stderr, "hutch: %s; %s %s\n", text, r->c->sandbox,
		r->c->command);
	if (outcome_is_not_started(r->last.root))
		fputs("hutch: run `hutch doctor` to see what this host "
		      "lacks\n",
		      stderr);
}

static int run(struct run *r)
{
	_cleanup_bytes_ struct bytes body = {0};
	struct err e = {0};
	int status;

	pump_init(&r->out, "stdout", r->c->is_json ? -1 : STDOUT_FILENO);
	pump_init(&r->err, "stderr", r->c->is_json ? -1 : STDERR_FILENO);
	progress_init(&r->progress);
	/* What the command line has wrong is said before a daemon starts. */
	if (source_body(&r->source, FIRST_WAIT_MS, &body, &e) ||
	    cli_key_make(&r->key, r->made_key, "run", &e) ||
	    cli_open(r->c, CLI_FOR_RUN, &e))
		return cli_fail(r->c, &e);
	if (start(r, &body, &e)) {
		progress_clear(&r->progress);
		status = cli_fail(r->c, &e);
	} else {
		if (r->c->is_json)
			print_json(r);
		else
			print_end(r);
		status = outcome_exit_status(r->last.root);
	}
	cli_close(r->c);
	answer_finish(&r->last);
	pump_finish(&r->out);
	pump_finish(&r->err);
	return status;
}

int cmd_run(struct cli *c, int argc, char **argv)
{
	struct run r = {.c = c};
	const struct opt opts[] = {
		{"input", "JSON", OPT_TEXT, &r.source.input, 0, 0,
		 "input of run(), or @FILE; default null", NULL},
		{"config", "JSON", OPT_TEXT, &r.source.config, 0, 0,
		 "config of run(), or @FILE", NULL},
		{"template", "NAME", OPT_TEXT, &r.source.template_name, 0, 0,
		 "lbb/python, lbb/node, lbb/shell, or a saved one", NULL},
		{"timeout", "TIME", OPT_TIME, &r.source.timeout_ms, 1,
		 ENGINE_TIMEOUT_MS_MAX,
		 "seconds, or with a unit: 1500ms 90s 60m; default 60", NULL},
		{"memory", "MIB", OPT_U64, &r.source.memory_mib,
		 LBB_MEMORY_MIB_MIN, LBB_MEMORY_MIB_MAX,
		 "memory of the sandbox, 128 to 8192, default 1024", NULL},
		{"vcpus", "N", OPT_U64, &r.source.vcpus, LBB_VCPUS_MIN,
		 LBB_VCPUS_MAX, "virtual CPUs, 1 to 4, default 1", NULL},
		{"disk", "MIB", OPT_U64, &r.source.disk_mib, LBB_DISK_MIB_MIN,
		 LBB_DISK_MIB_MAX,
		 "disk of the sandbox, 256 to 10240, default 4096", NULL},
		{"file", "HASH:PATH", OPT_LIST, &r.source.seeds, 0, 0,
		 "a File of the graph (hutch file) in /workspace; many times",
		 NULL},
		{"env", "NAME=VALUE", OPT_LIST, &r.source.env, 0, 0,
		 "variable for the code; may come many times", NULL},
		{"key", "KEY", OPT_TEXT, &r.key, 0, 0,
		 "idempotency key; the same key runs once", NULL},
		{"no-wait", NULL, OPT_FLAG, &r.is_no_wait, 0, 0,
		 "refused (75) when all places are taken, not after 60 s",
		 NULL},
		{0},
	};
	struct args a;
	struct err e;

	if (args_parse(&a, argc, argv, opts, cli_global_opts, false, &e))
		return cli_usage(c, "run", &e);
	if (a.is_help)
		return cli_help(help, opts);
	if (args_expect(&a, r.source.template_name ? 0 : 1, 1,
			"the file to run", &e))
		return cli_usage(c, "run", &e);
	r.source.file = a.n ? a.rest[0] : NULL;
	return run(&r);
}
