/*
 * hutch grant, hutch budget: what steps of workflows may do, and how often.
 */
#include "../../hostd/http/grants.h"
#include "verbs.h"
#include <string.h>

#define GRANTS	      "/v1/sandboxes/grants"
#define BUDGETS	      "/admin/budgets"
#define MS_PER_DAY    86400000ull
#define RUNS_MAX      1000000000ull
#define WINDOW_MS_MAX (366 * MS_PER_DAY)

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

static int missing(struct cli *c, const char *option, struct err *e)
{
	c->exit_status = CLI_EXIT_USAGE;
	return err_set(e, ERR_INVALID_REQUEST, option, "--%s is missing",
		       option);
}

/* ---- grant ----------------------------------------------------------------
 */

static const char grant_help[] =
	"usage: hutch grant create --workflow NAME --run ID --step NAME "
	"--attempt N\n"
	"                          --operation NAME[,NAME...] [--turn N] "
	"[--ttl "
	"TIME]\n"
	"                          [--env NAME] [--graph NAME]\n\n"
	"Prints a token that stands in the place of an API key for one attempt "
	"of one step\n"
	"of a workflow, for one kind of call on one graph, for a minute at "
	"most; a line for\n"
	"each operation: sandbox_run, sandbox_create, sandbox_command, "
	"sandbox_resume,\n"
	"sandbox_write, sandbox_read, sandbox_manage. Calls with it have the "
	"step in their\n"
	"records. A grant for a later attempt ends those of earlier ones. Only "
	"its hash is\n"
	"kept.\n\n"
	"  hutch grant create --workflow nightly --run r7 --step sum --attempt "
	"1 \\\n"
	"      --operation sandbox_run --ttl 60s\n";

struct grant_args {
	struct cli *c;
	struct args args;
	const char *env, *workflow, *run, *step, *operation;
	uint64_t attempt, turn, ttl_ms;
};

static int grant_one(struct grant_args *v, const char *operation, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};
	struct json_out j = {0};
	char token[GRANT_TOKEN_BYTES];
	int rc;

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "workflow", v->workflow);
	json_out_str(&j, "run", v->run);
	json_out_str(&j, "step", v->step);
	json_out_u64(&j, "attempt", v->attempt);
	json_out_u64(&j, "turn", v->turn);
	json_out_str(&j, "operation", operation);
	json_out_u64(&j, "ttl_ms", v->ttl_ms);
	json_out_end(&j, '}');
	if (j.rc || cli_path(v->c, &path, GRANTS, "environment", v->env, NULL))
		rc = no_memory(e);
	else
		rc = cli_call(v->c, "POST", (char *)path.data, &j.buf, NULL, &a,
			      e);
	json_out_finish(&j);
	if (rc)
		return -1;
	if (v->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s\n",
		       answer_text(a.root, "token", token, sizeof(token), ""));
	return 0;
}

static int grant_create(void *ctx, struct err *e)
{
	struct grant_args *v = ctx;
	const struct {
		const char *option, *value;
	} needed[] = {
		{"workflow", v->workflow},
		{"run", v->run},
		{"step", v->step},
		{"attempt", v->attempt ? "" : NULL},
		{"operation", v->operation},
	};
	const char *p = v->operation;

	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
		if (!needed[i].value)
			return missing(v->c, needed[i].option, e);
	for (;;) {
		char name[GRANT_OPERATION_BYTES_MAX];
		size_t len = strcspn(p, ",");

		snprintf(name, sizeof(name), "%.*s", (int)len, p);
		if (grant_one(v, name, e))
			return -1;
		if (!p[len])
			return 0;
		p += len + 1;
	}
}

int cmd_grant(struct cli *c, int argc, char **argv)
{
	struct grant_args v = {.c = c, .turn = 1, .ttl_ms = GRANT_TTL_MS_MAX};
	const struct opt opts[] = {
		{"env", "NAME", OPT_TEXT, &v.env, 0, 0,
		 "environment, default " VERBS_ENVIRONMENT, NULL},
		{"workflow", "NAME", OPT_TEXT, &v.workflow, 0, 0,
		 "1 to 128 of A-Z a-z 0-9 _ . -", NULL},
		{"run", "ID", OPT_TEXT, &v.run, 0, 0, "run of the workflow",
		 NULL},
		{"step", "NAME", OPT_TEXT, &v.step, 0, 0, "key of the step",
		 NULL},
		{"attempt", "N", OPT_U64, &v.attempt, 1, UINT32_MAX,
		 "attempt of the step, from 1", NULL},
		{"turn", "N", OPT_U64, &v.turn, 1, INT64_MAX,
		 "turn of the workflow, default 1", NULL},
		{"operation", "NAME", OPT_TEXT, &v.operation, 0, 0,
		 "what it is for; some, with commas: a token each", NULL},
		{"ttl", "TIME", OPT_TIME, &v.ttl_ms, GRANT_TTL_MS_MIN,
		 GRANT_TTL_MS_MAX, "for how long, 1s to 1m (default)", NULL},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"create", "options only", 0, 0, grant_create},
		{0},
	};
	const struct verb_command cmd = {
		.name = "grant",
		.does = "grants are given",
		.help = grant_help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &v,
		.args = &v.args,
	};

	return verbs_run(c, argc, argv, &cmd);
}

/* ---- budget ---------------------------------------------------------------
 */

static const char budget_help[] =
	"usage: hutch budget set --runs N --window TIME [--env NAME] "
	"[--workflow NAME]\n"
	"       hutch budget list [--env NAME]\n"
	"       hutch budget rm [--env NAME] [--workflow NAME]\n\n"
	"So many runs (of code, and commands) may begin in each window of "
	"time, in an\n"
	"environment, or in one of its workflows. A window begins with its "
	"first run. The\n"
	"count is in the commit that begins the run; one more run is 429\n"
	"workflow_budget_exceeded, with the time when the next window may "
	"begin.\n\n"
	"  hutch budget set --env team --workflow nightly --runs 100 --window "
	"1h\n";

struct budget_args {
	struct cli *c;
	struct args args;
	const char *env, *workflow;
	uint64_t runs, window_ms;
};

static const struct verb_column budget_columns[] = {
	{"ENVIRONMENT", 24, "environment"},
	{"WORKFLOW", 24, "workflow"},
	{"RUNS", 8, "runs"},
	{"SECONDS", 8, "window_seconds"},
	{"USED", 8, "runs_used"},
	{"WINDOW ENDS", 0, "window_ends_at"},
	{0},
};

static int budget_call(struct budget_args *v, const char *method,
		       const char *env, const char *workflow,
		       struct json_out *body, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};

	if (cli_path(v->c, &path, BUDGETS, "environment", env, "workflow",
		     workflow, NULL)) {
		if (body)
			json_out_finish(body);
		return no_memory(e);
	}
	return verbs_call(v->c, method, &path, body, budget_columns, e);
}

static const char *env_of(const struct budget_args *v)
{
	return v->env ? v->env : VERBS_ENVIRONMENT;
}

static int budget_set(void *ctx, struct err *e)
{
	struct budget_args *v = ctx;
	struct json_out j = {0};

	if (!v->runs || !v->window_ms)
		return missing(v->c, v->runs ? "window" : "runs", e);
	json_out_begin(&j, NULL, '{');
	if (v->workflow)
		json_out_str(&j, "workflow", v->workflow);
	json_out_u64(&j, "runs", v->runs);
	json_out_u64(&j, "window_seconds", v->window_ms / 1000);
	json_out_end(&j, '}');
	return budget_call(v, "PUT", env_of(v), NULL, &j, e);
}

static int budget_list(void *ctx, struct err *e)
{
	struct budget_args *v = ctx;

	return budget_call(v, "GET", v->env, NULL, NULL, e);
}

static int budget_rm(void *ctx, struct err *e)
{
	struct budget_args *v = ctx;

	return budget_call(v, "DELETE", env_of(v), v->workflow, NULL, e);
}

int cmd_budget(struct cli *c, int argc, char **argv)
{
	struct budget_args v = {.c = c};
	const struct opt opts[] = {
		{"env", "NAME", OPT_TEXT, &v.env, 0, 0,
		 "environment, default " VERBS_ENVIRONMENT "; of a list: all",
		 NULL},
		{"workflow", "NAME", OPT_TEXT, &v.workflow, 0, 0,
		 "of this workflow alone, default: of all runs", "set, rm"},
		{"runs", "N", OPT_U64, &v.runs, 1, RUNS_MAX, "runs in a window",
		 "set"},
		{"window", "TIME", OPT_TIME, &v.window_ms, 1000, WINDOW_MS_MAX,
		 "1s to 366d", "set"},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"set", "options only", 0, 0, budget_set},
		{"list", "options only", 0, 0, budget_list},
		{"rm", "options only", 0, 0, budget_rm},
		{0},
	};
	const struct verb_command cmd = {
		.name = "budget",
		.does = "budgets are kept",
		.help = budget_help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &v,
		.args = &v.args,
	};

	return verbs_run(c, argc, argv, &cmd);
}
