/*
 * hutch key: API keys for clients over HTTP.
 *
 * A key is told once, when it is made; the daemon keeps its hash only.  These
 * calls exist on the admin socket only.
 */
#include "commands.h"
#include <string.h>

static const char help[] =
	"usage: hutch key create --name NAME [--environment NAME] [--plan "
	"full|free]\n"
	"                 [--change-environment]\n"
	"       hutch key list\n"
	"       hutch key revoke --name NAME [--environment NAME]\n\n"
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
	const char *name, *environment, *plan;
	bool is_change;
};

static int key_create(struct key *k, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	struct json_out j = {0};
	char text[160];
	int rc;

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "name", k->name);
	if (k->environment)
		json_out_str(&j, "environment", k->environment);
	if (k->plan)
		json_out_str(&j, "plan", k->plan);
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

static int key_list(struct key *k, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	struct json_member m;
	struct json_span data;
	struct json_iter it;

	if (cli_call(k->c, "GET", "/admin/keys", NULL, NULL, &a, e))
		return -1;
	if (k->c->is_json) {
		printf("%.*s\n", (int)a.root.len, a.root.at);
		return 0;
	}
	printf("%-24s %-24s %-8s %s\n", "NAME", "ENVIRONMENT", "PLAN", "STATE");
	if (!json_at(a.root, "data", &data))
		return 0;
	json_iter_begin(&it, data);
	while (json_iter_next(&it, &m)) {
		char name[72], environment[48], plan[16];

		printf("%-24s %-24s %-8s %s\n",
		       answer_text(m.value, "name", name, sizeof(name), ""),
		       answer_text(m.value, "environment", environment,
				   sizeof(environment), ""),
		       answer_text(m.value, "plan", plan, sizeof(plan), ""),
		       answer_bool(m.value, "revoked") ? "revoked" : "valid");
	}
	return 0;
}

static int key_revoke(struct key *k, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

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
	static const struct {
		const char *name;
		int (*fn)(struct key *k, struct err *e);
		bool needs_name;
	} verbs[] = {
		{"create", key_create, true},
		{"list", key_list, false},
		{"revoke", key_revoke, true},
	};
	struct key k = {.c = c};
	const struct opt opts[] = {
		{"name", "NAME", OPT_TEXT, &k.name, 0, 0,
		 "name of the key, unique in its environment",
		 "create, revoke"},
		{"environment", "NAME", OPT_TEXT, &k.environment, 0, 0,
		 "environment of the key, default local", "create, revoke"},
		{"plan", "PLAN", OPT_TEXT, &k.plan, 0, 0,
		 "full (default) or free: may read, not run", "create"},
		{"change-environment", NULL, OPT_FLAG, &k.is_change, 0, 0,
		 "--plan is meant for all keys of the environment", "create"},
		{0},
	};
	struct args args;
	struct err e;
	int rc;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e))
		return cli_usage(c, "key", &e);
	if (args.is_help)
		return cli_help(help, opts);
	if (cli_expect_local(c, "keys are managed", &e) ||
	    args_expect(&args, 1, 1, "create, list or revoke", &e))
		return cli_usage(c, "key", &e);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
		if (strcmp(verbs[i].name, args.rest[0]))
			continue;
		if (args_expect_of(&args, opts, verbs[i].name, &e))
			return cli_usage(c, "key", &e);
		if (verbs[i].needs_name && !k.name) {
			err_set(&e, ERR_INVALID_REQUEST, "name",
				"--name is missing");
			return cli_usage(c, "key", &e);
		}
		if (cli_open(c, CLI_FOR_KEYS, &e))
			return cli_fail(c, &e);
		rc = verbs[i].fn(&k, &e) ? cli_fail(c, &e) : 0;
		cli_close(c);
		return rc;
	}
	err_set(&e, ERR_INVALID_REQUEST, NULL, "no verb \"%s\"", args.rest[0]);
	return cli_usage(c, "key", &e);
}
