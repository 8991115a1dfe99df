/*
 * hutch sandbox: sandboxes that are held, from the command line.
 *
 * create prints an id; exec runs a program in it and run a file of code, with
 * the output as it comes and the exit status; stop, resume and rm are one
 * call each, and wait until it is done.  Options of exec stand
 * before the sandbox: what follows its id is the program's.
 */
#include "../../hostd/http/utf8.h"
#include "../../hostd/surface/lbb/lbb.h"
#include "commands.h"
#include "files.h"
#include "outcome.h"
#include "output.h"
#include "progress.h"
#include "source.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CREATE_SLICE_MS 500
#define SLICE_MS	"500"
#define SETTLE_SLICE_MS 200
#define MS_PER_S	1000
#define ID_BYTES	CLI_ID_BYTES

static const char help[] =
	"usage: hutch sandbox create [OPTIONS]\n"
	"       hutch sandbox exec [OPTIONS] SANDBOX PROGRAM [ARGUMENTS]\n"
	"       hutch sandbox run [OPTIONS] SANDBOX FILE\n"
	"       hutch sandbox stop|resume|rm SANDBOX\n"
	"       hutch sandbox files SANDBOX [PATH]\n"
	"       hutch sandbox get SANDBOX PATH [FILE]\n"
	"       hutch sandbox put SANDBOX FILE PATH\n"
	"       hutch sandbox del SANDBOX PATH\n"
	"\n"
	"A held sandbox runs commands until it is removed or expires; files "
	"stay between\n"
	"them.  It lives in a daemon that goes on: start `hutch serve` first, "
	"or give --url.\n"
	"Idle, or by stop, its memory and disk are kept and its place is free; "
	"resume lets\n"
	"it go on.  exec prints what the program writes and exits as it does "
	"(124 timed\n"
	"out, 127 no such program, 126 cannot be executed, 130 cancelled, 75 "
	"not started\n"
	"or lost).  The program's standard input is empty, or what --stdin "
	"names, read to\n"
	"its end before the program starts.  Ctrl-C cancels exec and run, and "
	"removes what\n"
	"create had begun.\n"
	"\n"
	"files lists a folder of the sandbox, get reads a file of it, put "
	"writes one of\n"
	"up to 4 MiB with the folders on the way, del deletes one or an empty "
	"folder.  A\n"
	"PATH is below /workspace; FILE is ours, - standard input or output.\n"
	"\n"
	"  id=$(hutch sandbox create --template lbb/shell)\n"
	"  hutch sandbox exec $id bash -c 'echo hello > f; ls'\n"
	"  hutch sandbox exec --timeout 5 --env A=b $id env\n"
	"  seq 9 | hutch sandbox exec --stdin - $id -- tail -n 2\n"
	"  hutch sandbox run --input '[1, 2, 3]' $id sum.py\n"
	"  hutch sandbox put $id data.csv in/data.csv\n"
	"  hutch sandbox files $id in\n"
	"  hutch sandbox get $id in/data.csv | head -n 1\n"
	"  hutch sandbox del $id in/data.csv\n"
	"  hutch sandbox stop $id; hutch sandbox resume $id\n"
	"  hutch sandbox rm $id\n";

struct verb {
	struct cli *c;
	const char *template_name, *snapshot, *key, *cwd, *stdin_file, *input,
		*config;
	uint64_t memory_mib, vcpus, disk_mib, idle_ms, expires_ms, timeout_ms;
	struct opt_list env, seeds;
	struct args args;
	const char *program; /* of exec, for its errors */
	char made_key[CLI_KEY_BYTES];
};

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

/* ---- bodies ------------------------------------------------------------- */

static void put_number(struct json_out *j, const char *name, uint64_t n)
{
	if (n)
		json_out_u64(j, name, n);
}

static int post(struct verb *v, const char *path, const char *sandbox,
		struct json_out *body, struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes full = {0};

	if (body->rc || cli_path(v->c, &full, path, "sandbox", sandbox, NULL))
		return no_memory(e);
	return cli_begin(v->c, (char *)full.data, &body->buf, v->key, a, e);
}

/* A call on a sandbox, in place of what `a` had. */
static int sandbox_call(struct verb *v, const char *method, const char *path,
			const char *sandbox, struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes full = {0};

	answer_finish(a);
	if (cli_path(v->c, &full, path, "sandbox", sandbox, NULL))
		return no_memory(e);
	return cli_call(v->c, method, (char *)full.data, NULL, NULL, a, e);
}

static void say(const struct cli *c, const struct answer *a)
{
	char id[ID_BYTES], status[32];

	if (c->is_json) {
		printf("%.*s\n", (int)a->root.len, a->root.at);
		return;
	}
	printf("%s %s\n", answer_text(a->root, "id", id, sizeof(id), ""),
	       answer_text(a->root, "status", status, sizeof(status), ""));
}

/* ---- verbs -------------------------------------------------------------- */

/* The same record each time, by the key; waits up to wait_ms until it runs. */
static int create_call(struct verb *v, uint64_t wait_ms, struct answer *a,
		       struct err *e)
{
	struct json_out j = {0};
	int rc;

	answer_finish(a);
	json_out_begin(&j, NULL, '{');
	if (v->template_name)
		json_out_str(&j, "template", v->template_name);
	if (v->snapshot)
		json_out_str(&j, "snapshot", v->snapshot);
	if (v->vcpus || v->memory_mib || v->disk_mib) {
		json_out_begin(&j, "limits", '{');
		put_number(&j, "vcpus", v->vcpus);
		put_number(&j, "memory_mib", v->memory_mib);
		put_number(&j, "disk_mib", v->disk_mib);
		json_out_end(&j, '}');
	}
	put_number(&j, "idle_seconds", v->idle_ms / MS_PER_S);
	put_number(&j, "expires_in_seconds", v->expires_ms / MS_PER_S);
	rc = source_put_env(&j, &v->env, e);
	if (!rc)
		rc = source_put_seeds(&j, &v->seeds, e);
	json_out_u64(&j, "wait_ms", wait_ms);
	json_out_end(&j, '}');
	if (!rc)
		rc = post(v, "/v1/sandboxes", NULL, &j, a, e);
	json_out_finish(&j);
	return rc;
}

/* Ctrl-C: what has begun is removed, and its id said if that fails. */
static int create_undo(struct verb *v, struct err *e)
{
	_cleanup_answer_ struct answer gone = {0};

	if (!v->c->sandbox[0])
		return cli_interrupted(v->c, e, "nothing is known to be made");
	v->c->http.is_cancelled = NULL;
	if (sandbox_call(v, "DELETE", "/v1/sandboxes", v->c->sandbox, &gone, e))
		return cli_interrupted(v->c, e,
				       "hutch sandbox rm %s removes "
				       "what was made",
				       v->c->sandbox);
	return cli_interrupted(v->c, e, "%s is removed", v->c->sandbox);
}

static int create(struct verb *v, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	struct progress progress;
	char status[32], text[256];
	uint64_t wait_ms = 0;
	int rc;

	progress_init(&progress);
	do {
		rc = create_call(v, wait_ms, &a, e);
		if (!rc)
			answer_text(a.root, "id", v->c->sandbox, CLI_ID_BYTES,
				    "");
		wait_ms = CREATE_SLICE_MS;
	} while (!rc && !cli_is_interrupted &&
		 progress_of_sandbox(&progress, a.root));
	progress_clear(&progress);
	if (cli_is_interrupted)
		return create_undo(v, e);
	if (rc)
		return rc;
	answer_text(a.root, "status", status, sizeof(status), "");
	if (!strcmp(status, "failed") || !strcmp(status, "lost")) {
		v->c->exit_status = EXIT_NOT_STARTED;
		return err_set(e, ERR_UNAVAILABLE, NULL, "%s %s: %s",
			       v->c->sandbox, status,
			       answer_text(a.root, "message", text,
					   sizeof(text), "no reason is known"));
	}
	if (v->c->is_json)
		say(v->c, &a);
	else
		printf("%s\n", v->c->sandbox);
	return 0;
}

static bool is_final(const struct answer *a)
{
	char status[32];

	answer_text(a->root, "status", status, sizeof(status), "");
	return strcmp(status, "queued") && strcmp(status, "running");
}

static int call_command(struct verb *v, const char *method, const char *path,
			const char *id, const char *wait_ms, struct answer *ret,
			struct err *e)
{
	_cleanup_bytes_ struct bytes full = {0};
	struct answer a = {0};

	if (cli_path(v->c, &full, path, "command", id, "wait_ms", wait_ms,
		     NULL))
		return no_memory(e);
	if (cli_call(v->c, method, (char *)full.data, NULL, NULL, &a, e)) {
		answer_finish(&a);
		return -1;
	}
	answer_finish(ret);
	*ret = a;
	return 0;
}

/* What run() returned, unless it is nothing, or a script's output already. */
static void print_result(const struct answer *a, const struct pump *out)
{
	struct json_span v;

	if (json_at(a->root, "result", &v) &&
	    json_kind_of(v) != JSON_KIND_NULL &&
	    !pump_wrote_only(out, v.at, v.len))
		printf("%s%.*s\n", pump_ends_in_line(out) ? "" : "\n",
		       (int)v.len, v.at);
}

/* Its output as it comes, until it has ended; Ctrl-C cancels it. */
static int follow(struct verb *v, const char *id, struct answer *a,
		  struct err *e)
{
	bool is_cancelled = false;
	struct pump out, err;
	int rc = 0;

	pump_init(&out, "stdout", v->c->is_json ? -1 : STDOUT_FILENO);
	pump_init(&err, "stderr", v->c->is_json ? -1 : STDERR_FILENO);
	for (;;) {
		bool is_last = is_final(a);

		if (!rc && !v->c->is_json &&
		    (pump_read(v->c, &out, id, e) ||
		     pump_read(v->c, &err, id, e)))
			rc = -1;
		if (rc && (!cli_is_interrupted || is_cancelled))
			break;
		if (is_last && !rc)
			break;
		rc = 0;
		if (cli_is_interrupted && !is_cancelled) {
			is_cancelled = true;
			v->c->http.is_cancelled = NULL;
			rc = call_command(v, "POST",
					  "/v1/sandboxes/commands/cancel", id,
					  NULL, a, e);
		} else {
			rc = call_command(v, "GET",
					  "/v1/sandboxes/commands/get", id,
					  SLICE_MS, a, e);
		}
	}
	if (!rc && !v->c->is_json)
		print_result(a, &out);
	pump_finish(&out);
	pump_finish(&err);
	return rc;
}

static int put_stdin(struct json_out *j, const char *file, struct err *e)
{
	_cleanup_bytes_ struct bytes data = {0};

	if (!file)
		return 0;
	if (source_read_file(file, &data, e))
		return -1;
	/* It travels as a JSON string. */
	if (!utf8_is_valid(data.data, data.len))
		return err_set(e, ERR_INVALID_REQUEST, "stdin",
			       "--stdin %s: not UTF-8 text", file);
	json_out_text(j, "stdin", data.data ? data.data : (uint8_t *)"",
		      data.len);
	return 0;
}

static int put_command(struct json_out *j, struct verb *v, struct err *e)
{
	size_t first = 1;

	/* What stands behind the sandbox may be set off: ID -- PROGRAM */
	if (!strcmp(v->args.rest[1], "--") &&
	    args_expect(&v->args, ++first + 1, ARGS_LIST_MAX, "a program", e))
		return -1;
	v->program = v->args.rest[first];
	json_out_begin(j, NULL, '{');
	json_out_begin(j, "argv", '[');
	for (size_t i = first; i < v->args.n; i++)
		json_out_text(j, NULL, v->args.rest[i],
			      strlen(v->args.rest[i]));
	json_out_end(j, ']');
	if (v->cwd)
		json_out_text(j, "cwd", v->cwd, strlen(v->cwd));
	put_number(j, "timeout_ms", v->timeout_ms);
	if (source_put_env(j, &v->env, e) || put_stdin(j, v->stdin_file, e))
		return -1;
	json_out_end(j, '}');
	return 0;
}

/* > 0: the program's exit status. */
static int start_and_follow(struct verb *v, struct json_out *body,
			    struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	char id[ID_BYTES], text[400];
	int rc =
		post(v, "/v1/sandboxes/commands", v->args.rest[0], body, &a, e);

	if (rc)
		return rc;
	answer_text(a.root, "id", id, sizeof(id), "");
	memcpy(v->c->command, id, sizeof(id));
	if (follow(v, id, &a, e))
		return -1;
	if (v->c->is_json)
		say(v->c, &a);
	fflush(stdout);
	rc = outcome_exit_status(a.root);
	if (rc && !v->c->is_json) {
		bool is_refused = outcome_exec_refused(a.root);

		outcome_text(a.root, text, sizeof(text));
		fprintf(stderr, "hutch: %.200s%s%s; %s\n",
			is_refused ? v->program : "", is_refused ? ": " : "",
			text, id);
	}
	return rc;
}

static int exec(struct verb *v, struct err *e)
{
	struct json_out j = {0};
	int rc = put_command(&j, v, e);

	if (!rc)
		rc = start_and_follow(v, &j, e);
	json_out_finish(&j);
	return rc;
}

/* Is the file's name one of the language that the sandbox has? */
static int check_template(struct verb *v, const char *file, struct err *e)
{
	const char *of_file = source_template_of(file);
	_cleanup_answer_ struct answer a = {0};
	char name[72];

	if (!of_file && strcmp(file, "-"))
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "%s: not .py, .js or .sh; - takes code of any "
			       "name from standard input",
			       file);
	if (!of_file)
		return 0;
	if (sandbox_call(v, "GET", "/v1/sandboxes/get", v->args.rest[0], &a, e))
		return -1;
	answer_text(a.root, "template", name, sizeof(name), "");
	if (strncmp(name, "lbb/", 4) || !strcmp(name, of_file))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "%s is for %s, and %s is %s; - takes code of any name "
		       "from standard input",
		       file, of_file, v->args.rest[0], name);
}

static int run_file(struct verb *v, struct err *e)
{
	struct json_out j = {0};
	struct source s = {
		.file = v->args.rest[1],
		.input = v->input,
		.config = v->config,
		.env = v->env,
		.timeout_ms = v->timeout_ms,
		.is_in_held = true,
	};
	int rc = check_template(v, s.file, e);

	/* Told at once: what waits for its runner can be cancelled by its id.
	 */
	if (!rc)
		rc = source_body(&s, 0, &j.buf, e);
	if (!rc)
		rc = start_and_follow(v, &j, e);
	json_out_finish(&j);
	return rc;
}

/* The call, and until it is done: a large sandbox is long on its way. */
static int call_until(struct verb *v, const char *method, const char *path,
		      const char *on_its_way, struct err *e)
{
	const char *sandbox = v->args.rest[0];
	_cleanup_answer_ struct answer a = {0};
	int rc = sandbox_call(v, method, path, sandbox, &a, e);
	char status[32];

	while (!rc && !strcmp(answer_text(a.root, "status", status,
					  sizeof(status), ""),
			      on_its_way)) {
		usleep(SETTLE_SLICE_MS * 1000);
		rc = sandbox_call(v, "GET", "/v1/sandboxes/get", sandbox, &a,
				  e);
	}
	if (!rc)
		say(v->c, &a);
	return rc;
}

static int stop(struct verb *v, struct err *e)
{
	return call_until(v, "POST", "/v1/sandboxes/stop", "stopping", e);
}

static int resume(struct verb *v, struct err *e)
{
	return call_until(v, "POST", "/v1/sandboxes/resume", "starting", e);
}

static int rm(struct verb *v, struct err *e)
{
	return call_until(v, "DELETE", "/v1/sandboxes", "destroying", e);
}

static const struct {
	const char *name, *what;
	int (*fn)(struct verb *v, struct err *e);
	size_t min, max;
	/* In place of fn. */
	int (*files)(struct cli *c, const char *const *words, size_t n,
		     struct err *e);
} verbs[] = {
	{"create", "nothing", create, 0, 0, NULL},
	{"exec", "a sandbox and a program", exec, 2, ARGS_LIST_MAX, NULL},
	{"run", "a sandbox and a file", run_file, 2, 2, NULL},
	{"stop", "a sandbox", stop, 1, 1, NULL},
	{"resume", "a sandbox", resume, 1, 1, NULL},
	{"rm", "a sandbox", rm, 1, 1, NULL},
	{"files", "a sandbox and perhaps a path", NULL, 1, 2, files_list},
	{"get", "a sandbox, a path and perhaps a file", NULL, 2, 3, files_get},
	{"put", "a sandbox, a file and a path", NULL, 3, 3, files_put},
	{"del", "a sandbox and a path", NULL, 2, 2, files_del},
};
#define VERBS (sizeof(verbs) / sizeof(*verbs))

static int run(struct verb *v, size_t i)
{
	struct err e = {0};
	int rc;

	if (cli_key_make(&v->key, v->made_key, "sandbox", &e) ||
	    cli_open(v->c, CLI_FOR_RECORDS, &e))
		return cli_fail(v->c, &e);
	if (v->c->is_daemon_ours)
		rc = err_set(&e, ERR_UNAVAILABLE, NULL,
			     "a held sandbox needs a daemon that goes on: "
			     "start `hutch serve`");
	else if (verbs[i].files)
		rc = verbs[i].files(v->c, v->args.rest, v->args.n, &e);
	else
		rc = verbs[i].fn(v, &e);
	if (rc < 0)
		rc = cli_fail(v->c, &e);
	cli_close(v->c);
	return rc;
}

int cmd_sandbox(struct cli *c, int argc, char **argv)
{
	struct verb v = {.c = c};
	const struct opt opts[] = {
		{"template", "NAME", OPT_TEXT, &v.template_name, 0, 0,
		 "lbb/python (default), lbb/node or lbb/shell", "create"},
		{"snapshot", "ID", OPT_TEXT, &v.snapshot, 0, 0,
		 "go on from a snapshot (hutch snapshot); its limits",
		 "create"},
		{"memory", "MIB", OPT_U64, &v.memory_mib, LBB_MEMORY_MIB_MIN,
		 LBB_MEMORY_MIB_MAX, "128 to 8192, default 1024", "create"},
		{"vcpus", "N", OPT_U64, &v.vcpus, LBB_VCPUS_MIN, LBB_VCPUS_MAX,
		 "1 to 4, default 1", "create"},
		{"disk", "MIB", OPT_U64, &v.disk_mib, LBB_DISK_MIB_MIN,
		 LBB_DISK_MIB_MAX, "256 to 10240, default 4096", "create"},
		{"idle", "TIME", OPT_TIME, &v.idle_ms,
		 ENGINE_IDLE_SECONDS_MIN * MS_PER_S,
		 ENGINE_IDLE_SECONDS_MAX * MS_PER_S,
		 "stop when idle so long, 30s to 1h, default 5m", "create"},
		{"expires", "TIME", OPT_TIME, &v.expires_ms,
		 ENGINE_EXPIRES_IN_SECONDS_MIN * MS_PER_S,
		 (uint64_t)ENGINE_EXPIRES_IN_SECONDS_MAX * MS_PER_S,
		 "destroy after that, 1m to 7d, default 1h", "create"},
		{"file", "HASH:PATH", OPT_LIST, &v.seeds, 0, 0,
		 "a File of the graph (hutch file) in /workspace; many times",
		 "create"},
		{"env", "NAME=VALUE", OPT_LIST, &v.env, 0, 0,
		 "variable; may come many times", "create, exec, run"},
		{"cwd", "DIR", OPT_TEXT, &v.cwd, 0, 0,
		 "folder, default /workspace", "exec"},
		{"stdin", "FILE", OPT_TEXT, &v.stdin_file, 0, 0,
		 "the program's standard input, up to 1 MiB; - = ours", "exec"},
		{"input", "JSON", OPT_TEXT, &v.input, 0, 0,
		 "input of run(), JSON, or @FILE; default null", "run"},
		{"config", "JSON", OPT_TEXT, &v.config, 0, 0,
		 "config of run(), as input", "run"},
		{"timeout", "TIME", OPT_TIME, &v.timeout_ms, 1,
		 ENGINE_TIMEOUT_MS_MAX,
		 "seconds, or 1500ms 90s 60m; default 60", "exec, run"},
		{"key", "KEY", OPT_TEXT, &v.key, 0, 0,
		 "idempotency key; the same key acts once",
		 "create, exec, run"},
		{0},
	};
	size_t i = argc ? 0 : VERBS;
	struct err e;

	while (i < VERBS && strcmp(verbs[i].name, argv[0]))
		i++;
	if (i < VERBS) {
		argc--;
		argv++;
	}
	/* What follows exec's first word is the program's. */
	if (args_parse(&v.args, argc, argv, opts, cli_global_opts,
		       i < VERBS && verbs[i].fn == exec, &e))
		return cli_usage(c, "sandbox", &e);
	if (v.args.is_help)
		return cli_help(help, opts);
	if (i == VERBS) {
		err_set(&e, ERR_INVALID_REQUEST, NULL,
			"the first word is create, exec, run, stop, resume, "
			"rm, files, get, put or del");
		return cli_usage(c, "sandbox", &e);
	}
	if (args_expect_of(&v.args, opts, verbs[i].name, &e) ||
	    args_expect(&v.args, verbs[i].min, verbs[i].max, verbs[i].what, &e))
		return cli_usage(c, "sandbox", &e);
	return run(&v, i);
}
