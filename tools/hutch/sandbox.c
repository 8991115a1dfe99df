/*
 * hutch sandbox: sandboxes that are held, from the command line.
 *
 * create prints an id; exec runs a program in it and run a file of code, with
 * the output as it comes and the exit status; stop, resume and rm are one
 * call each, and wait until it is done.  Options of exec stand
 * before the sandbox: what follows its id is the program's.
 */
#include "sandbox.h"
#include "../../hostd/surface/lbb/lbb.h"
#include "commands.h"
#include "files.h"
#include "outcome.h"
#include "progress.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CREATE_SLICE_MS 500
#define SETTLE_SLICE_MS 200
#define MS_PER_S	1000
#define ID_BYTES	CLI_ID_BYTES

static const char help[] =
	"usage: hutch sandbox create [OPTIONS]\n"
	"       hutch sandbox exec [OPTIONS] SANDBOX PROGRAM [ARGUMENTS]\n"
	"       hutch sandbox run [OPTIONS] SANDBOX [FILE]\n"
	"       hutch sandbox set [OPTIONS] SANDBOX\n"
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
	"create had begun.  run without FILE has the code of the saved "
	"template that the\n"
	"sandbox is of.  set changes what is given: --expires counts from "
	"now, and labels\n"
	"are set anew, all of them.\n"
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
	"  hutch sandbox set $id --name nightly --label team=reports --expires "
	"2h\n"
	"  hutch sandbox stop $id; hutch sandbox resume $id\n"
	"  hutch sandbox rm $id\n";

int sandbox_no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

/* ---- bodies ------------------------------------------------------------- */

void sandbox_put_number(struct json_out *j, const char *name, uint64_t n)
{
	if (n)
		json_out_u64(j, name, n);
}

int sandbox_post(struct sandbox_verb *v, const char *path, const char *sandbox,
		 struct json_out *body, struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes full = {0};

	if (body->rc || cli_path(v->c, &full, path, "sandbox", sandbox, NULL))
		return sandbox_no_memory(e);
	return cli_begin(v->c, (char *)full.data, &body->buf, v->key, a, e);
}

/* A call on a sandbox, in place of what `a` had. */
int sandbox_call(struct sandbox_verb *v, const char *method, const char *path,
		 const char *sandbox, struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes full = {0};

	answer_finish(a);
	if (cli_path(v->c, &full, path, "sandbox", sandbox, NULL))
		return sandbox_no_memory(e);
	return cli_call(v->c, method, (char *)full.data, NULL, NULL, a, e);
}

void sandbox_say(const struct cli *c, const struct answer *a)
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

/* What create gives and set changes. */
static int put_naming(struct json_out *j, const struct sandbox_verb *v,
		      struct err *e)
{
	sandbox_put_number(j, "idle_seconds", v->idle_ms / MS_PER_S);
	sandbox_put_number(j, "expires_in_seconds", v->expires_ms / MS_PER_S);
	if (v->name)
		json_out_text(j, "name", v->name, strlen(v->name));
	else if (v->is_no_name)
		json_out_null(j, "name");
	if (v->is_no_labels)
		json_out_null(j, "labels");
	return v->is_no_labels ? 0 : source_put_labels(j, &v->labels, e);
}

/* The same record each time, by the key; waits up to wait_ms until it runs. */
static int create_call(struct sandbox_verb *v, uint64_t wait_ms,
		       struct answer *a, struct err *e)
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
		sandbox_put_number(&j, "vcpus", v->vcpus);
		sandbox_put_number(&j, "memory_mib", v->memory_mib);
		sandbox_put_number(&j, "disk_mib", v->disk_mib);
		json_out_end(&j, '}');
	}
	rc = put_naming(&j, v, e);
	if (!rc)
		rc = source_put_env(&j, &v->env, e);
	if (!rc)
		rc = source_put_seeds(&j, &v->seeds, e);
	json_out_u64(&j, "wait_ms", wait_ms);
	json_out_end(&j, '}');
	if (!rc)
		rc = sandbox_post(v, "/v1/sandboxes", NULL, &j, a, e);
	json_out_finish(&j);
	return rc;
}

/* Ctrl-C: what has begun is removed, and its id said if that fails. */
static int create_undo(struct sandbox_verb *v, struct err *e)
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

static int create(struct sandbox_verb *v, struct err *e)
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
		sandbox_say(v->c, &a);
	else
		printf("%s\n", v->c->sandbox);
	return 0;
}

/* The call, and until it is done: a large sandbox is long on its way. */
static int call_until(struct sandbox_verb *v, const char *method,
		      const char *path, const char *on_its_way, struct err *e)
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
		sandbox_say(v->c, &a);
	return rc;
}

static int stop(struct sandbox_verb *v, struct err *e)
{
	return call_until(v, "POST", "/v1/sandboxes/stop", "stopping", e);
}

static int resume(struct sandbox_verb *v, struct err *e)
{
	return call_until(v, "POST", "/v1/sandboxes/resume", "starting", e);
}

static int set(struct sandbox_verb *v, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};
	struct json_out j = {0};
	int rc;

	json_out_begin(&j, NULL, '{');
	rc = put_naming(&j, v, e);
	json_out_end(&j, '}');
	if (!rc && (j.rc || cli_path(v->c, &path, "/v1/sandboxes", "sandbox",
				     v->args.rest[0], NULL)))
		rc = sandbox_no_memory(e);
	if (!rc)
		rc = cli_call(v->c, "PATCH", (char *)path.data, &j.buf, NULL,
			      &a, e);
	json_out_finish(&j);
	if (!rc)
		sandbox_say(v->c, &a);
	return rc;
}

static int rm(struct sandbox_verb *v, struct err *e)
{
	return call_until(v, "DELETE", "/v1/sandboxes", "destroying", e);
}

static const struct {
	const char *name, *what;
	int (*fn)(struct sandbox_verb *v, struct err *e);
	size_t min, max;
	/* In place of fn. */
	int (*files)(struct cli *c, const char *const *words, size_t n,
		     struct err *e);
} verbs[] = {
	{"create", "nothing", create, 0, 0, NULL},
	{"exec", "a sandbox and a program", sandbox_exec, 2, ARGS_LIST_MAX,
	 NULL},
	{"run", "a sandbox and perhaps a file", sandbox_run_file, 1, 2, NULL},
	{"set", "a sandbox", set, 1, 1, NULL},
	{"stop", "a sandbox", stop, 1, 1, NULL},
	{"resume", "a sandbox", resume, 1, 1, NULL},
	{"rm", "a sandbox", rm, 1, 1, NULL},
	{"files", "a sandbox and perhaps a path", NULL, 1, 2, files_list},
	{"get", "a sandbox, a path and perhaps a file", NULL, 2, 3, files_get},
	{"put", "a sandbox, a file and a path", NULL, 3, 3, files_put},
	{"del", "a sandbox and a path", NULL, 2, 2, files_del},
};
#define VERBS (sizeof(verbs) / sizeof(*verbs))

static int run(struct sandbox_verb *v, size_t i)
{
	struct err e = {0};
	int rc;

	if (args_expect(&v->args, verbs[i].min, verbs[i].max, verbs[i].what,
			&e))
		return cli_usage(v->c, "sandbox", &e);
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

/* VERBS: it is none. */
static size_t verb_of(const char *word)
{
	size_t i = 0;

	while (i < VERBS && strcmp(verbs[i].name, word))
		i++;
	return i;
}

int cmd_sandbox(struct cli *c, int argc, char **argv)
{
	struct sandbox_verb v = {.c = c};
	const struct opt opts[] = {
		{"template", "NAME", OPT_TEXT, &v.template_name, 0, 0,
		 "a base, default lbb/python, or a saved one", "create"},
		{"snapshot", "ID", OPT_TEXT, &v.snapshot, 0, 0,
		 "go on from a snapshot, with its limits", "create"},
		{"memory", "MIB", OPT_U64, &v.memory_mib, LBB_MEMORY_MIB_MIN,
		 LBB_MEMORY_MIB_MAX, "128 to 8192, default 1024", "create"},
		{"vcpus", "N", OPT_U64, &v.vcpus, LBB_VCPUS_MIN, LBB_VCPUS_MAX,
		 "1 to 4, default 1", "create"},
		{"disk", "MIB", OPT_U64, &v.disk_mib, LBB_DISK_MIB_MIN,
		 LBB_DISK_MIB_MAX, "256 to 10240, default 4096", "create"},
		{"idle", "TIME", OPT_TIME, &v.idle_ms,
		 ENGINE_IDLE_SECONDS_MIN * MS_PER_S,
		 ENGINE_IDLE_SECONDS_MAX * MS_PER_S,
		 "stop when idle, 30s to 1h, default 5m", "create, set"},
		{"expires", "TIME", OPT_TIME, &v.expires_ms,
		 ENGINE_EXPIRES_IN_SECONDS_MIN * MS_PER_S,
		 (uint64_t)ENGINE_EXPIRES_IN_SECONDS_MAX * MS_PER_S,
		 "destroy after that, 1m to 7d, default 1h", "create, set"},
		{"name", "NAME", OPT_TEXT, &v.name, 0, 0,
		 "1 to 64 printable characters, for people", "create, set"},
		{"label", "NAME=VALUE", OPT_LIST, &v.labels, 0, 0,
		 "may come 16 times", "create, set"},
		{"no-name", NULL, OPT_FLAG, &v.is_no_name, 0, 0, "none", "set"},
		{"no-labels", NULL, OPT_FLAG, &v.is_no_labels, 0, 0, "none",
		 "set"},
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
		{"key", "KEY", OPT_TEXT, &v.key, 0, 0, "the same key acts once",
		 "create, exec, run"},
		{0},
	};
	const size_t i = argc ? verb_of(argv[0]) : VERBS;
	struct err e;

	if (i < VERBS) {
		argc--;
		argv++;
	}
	/* What follows exec's first word is the program's. */
	if (args_parse(&v.args, argc, argv, opts, cli_global_opts,
		       i < VERBS && verbs[i].fn == sandbox_exec, &e))
		return cli_usage(c, "sandbox", &e);
	if (v.args.is_help)
		return cli_help(help, opts);
	if (i == VERBS) {
		err_set(&e, ERR_INVALID_REQUEST, NULL,
			"the first word is create, exec, run, set, stop, "
			"resume, rm, files, get, put or del");
		return cli_usage(c, "sandbox", &e);
	}
	if (args_expect_of(&v.args, opts, verbs[i].name, &e))
		return cli_usage(c, "sandbox", &e);
	return run(&v, i);
}
