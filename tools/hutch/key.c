/*
 * hutch key: API keys for clients over HTTP.
 *
 * A key is told once, when it is made; the daemon keeps its hash only.  These
 * calls exist on the admin socket only.
 */
#include "verbs.h"
#include <string.h>

static const char help[] =
	"usage: hutch key create --name NAME [--env NAME] [--test] [--plan "
	"full|free]\n"
	"                 [--change-environment]\n"
	"       hutch key list [--env NAME]\n"
	"       hutch key revoke --name NAME [--env NAME]\n\n"
	"API keys for clients over HTTP.  `create` prints the key, once: the "
	"daemon keeps\n"
	"only its hash.  A revoked key is refused at the very next "
	"request.\n"
	"A daemon must run on this state folder (hutch serve): none is "
	"started for a key.\n\n"
	"  KEY=$(hutch key create --name laptop)\n"
	"  curl -H \"Authorization: Bearer $KEY\" "
	"http://127.0.0.1:7400/v1/sandboxes\n";

struct key {
	struct cli *c;
	struct args args;
	const char *name, *environment, *plan;
	bool is_change, is_test;
};

static int name_missing(struct key *k, struct err *e)
{
	if (k->name)
		return 0;
	k->c->exit_status = CLI_EXIT_USAGE;
	return err_set(e, ERR_INVALID_REQUEST, "name", "--name is missing");
}

static int key_create(void *ctx, struct err *e)
{
	struct key *k = ctx;
	_cleanup_answer_ struct answer a = {0};
	struct json_out j = {0};
	char text[160];
	int rc;

	if (name_missing(k, e))
		return -1;
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "name", k->name);
	if (k->environment)
		json_out_str(&j, "environment", k->environment);
	if (k->plan)
		json_out_str(&j, "plan", k->plan);
	if (k->is_test)
		json_out_str(&j, "mode", "test");
	if (k->is_change)
		json_out_bool(&j, "change_environment", true);
	json_out_end(&j, '}');
	rc = cli_call(k->c, "POST", "/admin/keys", &j.buf, NULL, &a, e);
	json_out_finish(&j);
	if (rc)
		return rc;
	if (k->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s\n",
		       answer_text(a.root, "key", text, sizeof(text), ""));
	fprintf(stderr, "hutch: key %s is for the daemon on %s\n", k->name,
		k->c->state_dir);
	return 0;
}

static int key_list(void *ctx, struct err *e)
{
	struct key *k = ctx;
	static const struct verb_column columns[] = {
		{"NAME", 24, "name"},	   {"ENVIRONMENT", 24, "environment"},
		{"MODE", 5, "mode"},	   {"PLAN", 8, "plan"},
		{"REVOKED", 0, "revoked"}, {0},
	};
	_cleanup_bytes_ struct bytes path = {0};

	if (cli_path(k->c, &path, "/admin/keys", "environment", k->environment,
		     NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	return verbs_call(k->c, "GET", &path, NULL, columns, e);
}

static int key_revoke(void *ctx, struct err *e)
{
	struct key *k = ctx;
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

	if (name_missing(k, e))
		return -1;
	if (cli_path(k->c, &path, "/admin/keys", "name", k->name, "environment",
		     k->environment, NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	if (cli_call(k->c, "DELETE", (char *)path.data, NULL, NULL, &a, e))
		return -1;
	if (k->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s revoked\n", k->name);
	return 0;
}

int cmd_key(struct cli *c, int argc, char **argv)
{
	struct key k = {.c = c};
	const struct opt opts[] = {
		{"name", "NAME", OPT_TEXT, &k.name, 0, 0,
		 "name of the key, unique in its environment",
		 "create, revoke"},
		{"env", "NAME", OPT_TEXT, &k.environment, 0, 0,
		 "environment of the key, default " VERBS_ENVIRONMENT
		 "; of a list: all",
		 NULL},
		{"environment", "NAME", OPT_TEXT, &k.environment, 0, 0,
		 "the same", NULL},
		{"test", NULL, OPT_FLAG, &k.is_test, 0, 0,
		 "it begins with lbb_sk_test_, a mark for people", "create"},
		{"plan", "PLAN", OPT_TEXT, &k.plan, 0, 0,
		 "full (default) or free: may read, not run", "create"},
		{"change-environment", NULL, OPT_FLAG, &k.is_change, 0, 0,
		 "--plan is meant for all keys of the environment", "create"},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"create", "options only", 0, 0, key_create},
		{"list", "options only", 0, 0, key_list},
		{"revoke", "options only", 0, 0, key_revoke},
		{0},
	};
	const struct verb_command cmd = {
		.name = "key",
		.does = "keys are managed",
		.help = help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &k,
		.args = &k.args,
	};

	return verbs_run(c, argc, argv, &cmd);
}
