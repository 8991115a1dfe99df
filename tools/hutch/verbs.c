/* Commands with verbs; see verbs.h. */
#include "verbs.h"
#include <string.h>

#define VALUE_BYTES_MAX 160

static int no_verb(const struct verb_command *cmd, struct err *e)
{
	char names[128] = "";
	size_t n = 0;

	for (const struct verb_row *v = cmd->verbs; v->name; v++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s",
				      n ? ", " : "", v->name);
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "the first word is one of %s", names);
}

int verbs_run(struct cli *c, int argc, char **argv,
	      const struct verb_command *cmd)
{
	const struct verb_row *v = cmd->verbs;
	struct args args;
	struct err e;
	int rc;

	while (v->name && (!argc || strcmp(v->name, argv[0])))
		v++;
	if (v->name) {
		argc--;
		argv++;
	}
	if (args_parse(&args, argc, argv, cmd->opts, cli_global_opts, false,
		       &e))
		return cli_usage(c, cmd->name, &e);
	if (args.is_help)
		return cli_help(cmd->help, cmd->opts);
	if ((!v->name && no_verb(cmd, &e)) ||
	    cli_expect_local(c, cmd->does, &e) ||
	    args_expect_of(&args, cmd->opts, v->name, &e) ||
	    args_expect(&args, v->n, v->n, v->what, &e))
		return cli_usage(c, cmd->name, &e);
	if (cli_open(c, CLI_FOR_KEYS, &e))
		return cli_fail(c, &e);
	rc = v->fn(cmd->ctx, &args, &e) ? cli_fail(c, &e) : 0;
	cli_close(c);
	return rc;
}

/* ---- the answer as a table ---------------------------------------------- */

static void print_value(struct json_span record, const struct verb_column *col)
{
	char text[VALUE_BYTES_MAX];
	struct json_span v;

	if (!json_at(record, col->member, &v)) {
		snprintf(text, sizeof(text), "-");
	} else if (json_kind_of(v) == JSON_KIND_BOOL) {
		snprintf(text, sizeof(text), "%s",
			 answer_bool(record, col->member) ? "yes" : "no");
	} else if (json_kind_of(v) == JSON_KIND_NUMBER) {
		snprintf(text, sizeof(text), "%lld",
			 (long long)answer_int(record, col->member, 0));
	} else {
		answer_text(record, col->member, text, sizeof(text), "-");
	}
	if (col[1].title)
		printf("%-*s ", col->width, text);
	else
		printf("%s\n", text);
}

static void print_records(struct json_span root,
			  const struct verb_column *columns)
{
	struct json_member m;
	struct json_span data;
	struct json_iter it;

	for (const struct verb_column *col = columns; col->title; col++)
		if (col[1].title)
			printf("%-*s ", col->width, col->title);
		else
			printf("%s\n", col->title);
	if (json_at(root, "data", &data)) {
		json_iter_begin(&it, data);
		while (json_iter_next(&it, &m))
			for (const struct verb_column *col = columns;
			     col->title; col++)
				print_value(m.value, col);
		return;
	}
	for (const struct verb_column *col = columns; col->title; col++)
		print_value(root, col);
}

int verbs_call(struct cli *c, const char *method, const struct bytes *path,
	       struct json_out *body, const struct verb_column *columns,
	       struct err *e)
{
	_cleanup_answer_ struct answer a = {0};
	int rc = body ? body->rc : 0;

	if (rc)
		err_set(e, ERR_INTERNAL, NULL, "no memory");
	else
		rc = cli_call(c, method, (const char *)path->data,
			      body ? &body->buf : NULL, NULL, &a, e);
	if (body)
		json_out_finish(body);
	if (rc)
		return -1;
	if (c->is_json || !columns)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		print_records(a.root, columns);
	return 0;
}
