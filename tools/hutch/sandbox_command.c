/*
 * hutch sandbox exec and run: commands in a held sandbox, from the call to the
 * exit status.
 */
#include "../../hostd/http/utf8.h"
#include "outcome.h"
#include "output.h"
#include "sandbox.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLICE_MS "500"

static bool is_final(const struct answer *a)
{
	char status[32];

	answer_text(a->root, "status", status, sizeof(status), "");
	return strcmp(status, "queued") && strcmp(status, "running");
}

static int call_command(struct sandbox_verb *v, const char *method,
			const char *path, const char *id, const char *wait_ms,
			struct answer *ret, struct err *e)
{
	_cleanup_bytes_ struct bytes full = {0};
	struct answer a = {0};

	if (cli_path(v->c, &full, path, "command", id, "wait_ms", wait_ms,
		     NULL))
		return sandbox_no_memory(e);
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
static int follow(struct sandbox_verb *v, const char *id, struct answer *a,
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

static int put_command(struct json_out *j, struct sandbox_verb *v,
		       struct err *e)
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
	sandbox_put_number(j, "timeout_ms", v->timeout_ms);
	if (source_put_env(j, &v->env, e) || put_stdin(j, v->stdin_file, e))
		return -1;
	json_out_end(j, '}');
	return 0;
}

/* > 0: the program's exit status. */
static int start_and_follow(struct sandbox_verb *v, struct json_out *body,
			    struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	char id[CLI_ID_BYTES], text[400];
	int rc = sandbox_post(v, "/v1/sandboxes/commands", v->args.rest[0],
			      body, &a, e);

	if (rc)
		return rc;
	answer_text(a.root, "id", id, sizeof(id), "");
	memcpy(v->c->command, id, sizeof(id));
	if (follow(v, id, &a, e))
		return -1;
	if (v->c->is_json)
		sandbox_say(v->c, &a);
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

int sandbox_exec(struct sandbox_verb *v, struct err *e)
{
	struct json_out j = {0};
	int rc = put_command(&j, v, e);

	if (!rc)
		rc = start_and_follow(v, &j, e);
	json_out_finish(&j);
	return rc;
}

/* Is the file's name one of the language that the sandbox has? */
static int check_template(struct sandbox_verb *v, const char *file,
			  struct err *e)
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
	answer_text(a.root, "template_base", name, sizeof(name), "");
	if (strncmp(name, "lbb/", 4) || !strcmp(name, of_file))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "%s is for %s, and %s is %s; - takes code of any name "
		       "from standard input",
		       file, of_file, v->args.rest[0], name);
}

int sandbox_run_file(struct sandbox_verb *v, struct err *e)
{
	struct json_out j = {0};
	struct source s = {
		.file = v->args.n > 1 ? v->args.rest[1] : NULL,
		.input = v->input,
		.config = v->config,
		.env = v->env,
		.timeout_ms = v->timeout_ms,
		.is_in_held = true,
	};
	int rc = s.file ? check_template(v, s.file, e) : 0;

	/* Told at once: what waits for its runner can be cancelled by its id.
	 */
	if (!rc)
		rc = source_body(&s, 0, &j.buf, e);
	if (!rc)
		rc = start_and_follow(v, &j, e);
	json_out_finish(&j);
	return rc;
}
