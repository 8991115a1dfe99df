/*
 * hutch env, hutch graph: what the operator sets of environments and graphs.
 *
 * It is in force at the next request of the running daemon, and after any
 * restart.
 */
#include "verbs.h"
#include <string.h>

#define PLACES_MAX  100000
#define NOT_GIVEN   UINT64_MAX
#define ENVIRONMENT "/admin/environments"
#define GRAPHS	    "/admin/graphs"

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

static int put_yes_no(struct json_out *j, const char *key, const char *option,
		      const char *value, struct err *e)
{
	bool is = !strcmp(value, "yes") || !strcmp(value, "on");

	if (!is && strcmp(value, "no") && strcmp(value, "off"))
		return err_set(e, ERR_INVALID_REQUEST, option,
			       "--%s %s: must be yes or no", option, value);
	json_out_bool(j, key, is);
	return 0;
}

/* ---- env ------------------------------------------------------------------
 */

static const char env_help[] =
	"usage: hutch env create NAME [--plan full|free] [--enabled yes|no]\n"
	"                        [--places N] [--graph-places N]\n"
	"       hutch env list\n"
	"       hutch env show NAME\n"
	"       hutch env set NAME [--plan ...] [--enabled ...] [--places N] "
	"...\n"
	"       hutch env rm NAME\n\n"
	"An environment has API keys, a plan, and places for sandboxes. What "
	"belongs to\n"
	"one is not there for the keys of another. The free plan lists, reads, "
	"stops,\n"
	"updates and deletes; what starts or writes is refused (403). One that "
	"is not\n"
	"enabled is refused every call (409). Both take hold at the next "
	"request; what\n"
	"runs goes on. `rm` needs an environment without records.\n\n"
	"  hutch env create team --places 20\n"
	"  hutch key create --env team --name laptop\n"
	"  hutch env set team --plan free\n";

struct env {
	struct cli *c;
	struct args args;
	const char *plan, *enabled;
	uint64_t places, graph_places;
};

static const struct verb_column env_columns[] = {
	{"ENVIRONMENT", 24, "name"},
	{"PLAN", 6, "plan"},
	{"ENABLED", 8, "sandboxes_enabled"},
	{"PLACES", 7, "places"},
	{"A GRAPH", 8, "graph_places"},
	{"HELD", 5, "places_held"},
	{"KEYS", 5, "keys"},
	{"CREATED", 0, "created_at"},
	{0},
};

static int env_body(const struct env *v, const char *name, struct json_out *j,
		    struct err *e)
{
	json_out_begin(j, NULL, '{');
	if (name)
		json_out_str(j, "name", name);
	if (v->plan)
		json_out_str(j, "plan", v->plan);
	if (v->enabled &&
	    put_yes_no(j, "sandboxes_enabled", "enabled", v->enabled, e)) {
		json_out_finish(j);
		return -1;
	}
	if (v->places != NOT_GIVEN)
		json_out_u64(j, "places", v->places);
	if (v->graph_places != NOT_GIVEN)
		json_out_u64(j, "graph_places", v->graph_places);
	json_out_end(j, '}');
	return 0;
}

/* One call on the environment `name`; NULL = on all, or in the body. */
static int env_call(struct env *v, const char *method, const char *name,
		    struct json_out *body, const struct verb_column *columns,
		    struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};

	if (cli_path(v->c, &path, ENVIRONMENT, "environment", name, NULL)) {
		if (body)
			json_out_finish(body);
		return no_memory(e);
	}
	return verbs_call(v->c, method, &path, body, columns, e);
}

static int env_create(void *ctx, struct err *e)
{
	struct env *v = ctx;
	struct json_out j = {0};

	return env_body(v, v->args.rest[0], &j, e)
		       ? -1
		       : env_call(v, "POST", NULL, &j, env_columns, e);
}

static int env_set(void *ctx, struct err *e)
{
	struct env *v = ctx;
	struct json_out j = {0};

	return env_body(v, NULL, &j, e) ? -1
					: env_call(v, "PATCH", v->args.rest[0],
						   &j, env_columns, e);
}

static int env_list(void *ctx, struct err *e)
{
	return env_call(ctx, "GET", NULL, NULL, env_columns, e);
}

static int env_show(void *ctx, struct err *e)
{
	struct env *v = ctx;

	return env_call(v, "GET", v->args.rest[0], NULL, env_columns, e);
}

static int env_rm(void *ctx, struct err *e)
{
	struct env *v = ctx;
	static const struct verb_column gone[] = {{"REMOVED", 0, "name"}, {0}};

	return env_call(v, "DELETE", v->args.rest[0], NULL, gone, e);
}

int cmd_env(struct cli *c, int argc, char **argv)
{
	struct env v = {.c = c, .places = NOT_GIVEN, .graph_places = NOT_GIVEN};
	const struct opt opts[] = {
		{"plan", "PLAN", OPT_TEXT, &v.plan, 0, 0,
		 "full (default) or free", "create, set"},
		{"enabled", "YES", OPT_TEXT, &v.enabled, 0, 0,
		 "yes (default) or no", "create, set"},
		{"places", "N", OPT_U64, &v.places, 0, PLACES_MAX,
		 "sandboxes at once, 0 = as configured", "create, set"},
		{"graph-places", "N", OPT_U64, &v.graph_places, 0, PLACES_MAX,
		 "the same of each graph", "create, set"},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"create", "a name", 1, 1, env_create},
		{"list", "nothing", 0, 0, env_list},
		{"show", "an environment", 1, 1, env_show},
		{"set", "an environment", 1, 1, env_set},
		{"rm", "an environment", 1, 1, env_rm},
		{0},
	};
	const struct verb_command cmd = {
		.name = "env",
		.does = "environments are kept",
		.help = env_help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &v,
		.args = &v.args,
	};

	return verbs_run(c, argc, argv, &cmd);
}

/* ---- graph ----------------------------------------------------------------
 */

static const char graph_help[] =
	"usage: hutch graph list [--env NAME]\n"
	"       hutch graph show GRAPH [--env NAME]\n"
	"       hutch graph set GRAPH [--env NAME] [--places N] "
	"[--new-epoch]\n\n"
	"A graph needs no making: it is there from its first sandbox on. `set` "
	"gives it\n"
	"places of its own, or a new epoch, which ends every grant of the old "
	"one.\n\n"
	"  hutch graph set main --env team --places 3\n";

struct graph {
	struct cli *c;
	struct args args;
	const char *env;
	uint64_t places;
	bool is_new_epoch;
};

static const struct verb_column graph_columns[] = {
	{"GRAPH", 24, "name"},
	{"ENVIRONMENT", 24, "environment"},
	{"EPOCH", 6, "epoch"},
	{"PLACES", 7, "places"},
	{"HELD", 5, "places_held"},
	{"CREATED", 0, "created_at"},
	{0},
};

static int graph_call(struct graph *v, const char *method, const char *env,
		      const char *name, struct json_out *body, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};

	if (cli_path(v->c, &path, GRAPHS, "environment", env, "graph", name,
		     NULL)) {
		if (body)
			json_out_finish(body);
		return no_memory(e);
	}
	return verbs_call(v->c, method, &path, body, graph_columns, e);
}

static const char *env_or_local(const char *env)
{
	return env ? env : VERBS_ENVIRONMENT;
}

static int graph_list(void *ctx, struct err *e)
{
	struct graph *v = ctx;

	return graph_call(v, "GET", v->env, NULL, NULL, e);
}

static int graph_show(void *ctx, struct err *e)
{
	struct graph *v = ctx;

	return graph_call(v, "GET", env_or_local(v->env), v->args.rest[0], NULL,
			  e);
}

static int graph_set(void *ctx, struct err *e)
{
	struct graph *v = ctx;
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	if (v->places != NOT_GIVEN)
		json_out_u64(&j, "places", v->places);
	if (v->is_new_epoch)
		json_out_bool(&j, "new_epoch", true);
	json_out_end(&j, '}');
	return graph_call(v, "PATCH", env_or_local(v->env), v->args.rest[0], &j,
			  e);
}

int cmd_graph(struct cli *c, int argc, char **argv)
{
	struct graph v = {.c = c, .places = NOT_GIVEN};
	const struct opt opts[] = {
		{"env", "NAME", OPT_TEXT, &v.env, 0, 0,
		 "its environment, default " VERBS_ENVIRONMENT
		 "; of a list: all",
		 NULL},
		{"places", "N", OPT_U64, &v.places, 0, PLACES_MAX,
		 "sandboxes at once, 0 = as its environment says", "set"},
		{"new-epoch", NULL, OPT_FLAG, &v.is_new_epoch, 0, 0,
		 "grants of before are refused from now on", "set"},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"list", "nothing", 0, 0, graph_list},
		{"show", "a graph", 1, 1, graph_show},
		{"set", "a graph", 1, 1, graph_set},
		{0},
	};
	const struct verb_command cmd = {
		.name = "graph",
		.does = "graphs are kept",
		.help = graph_help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &v,
		.args = &v.args,
	};

	return verbs_run(c, argc, argv, &cmd);
}
