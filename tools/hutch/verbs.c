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
				      !n	  ? ""
				      : v[1].name ? ", "
						  : " or ",
				      v->name);
	return err_set(e, ERR_INVALID_REQUEST, NULL, "the first word is %s",
		       names);
}

/* What is wrong with the words and options; 0 or -1. */
static int expect(const struct cli *c, const struct verb_command *cmd,
		  const struct verb_row *v, struct err *e)
{
	if (!v->name)
		return no_verb(cmd, e);
	if ((cmd->does && cli_expect_local(c, cmd->does, e)) ||
	    (cmd->check && cmd->check(cmd->ctx, e)) ||
	    args_expect_of(cmd->args, cmd->opts, v->name, e))
		return -1;
	return args_expect(cmd->args, v->min, v->max, v->what, e);
}

int verbs_run(struct cli *c, int argc, char **argv,
	      const struct verb_command *cmd)
{
	const struct verb_row *v = cmd->verbs;
	struct err e;
	int rc;

	while (v->name && (!argc || strcmp(v->name, argv[0])))
		v++;
	if (v->name) {
		argc--;
		argv++;
	}
	if (args_parse(cmd->args, argc, argv, cmd->opts, cli_global_opts, false,
		       &e))
		return cli_usage(c, cmd->name, &e);
	if (cmd->args->is_help)
		return cli_help(cmd->help, cmd->opts);
	if (expect(c, cmd, v, &e))
		return cli_usage(c, cmd->name, &e);
	if ((cmd->key &&
	     cli_key_make(cmd->key, cmd->made_key, cmd->name, &e)) ||
	    cli_open(c, cmd->does ? CLI_FOR_KEYS : CLI_FOR_RECORDS, &e))
		return cli_fail(c, &e);
	if (cmd->timeout_ms)
		c->http.timeout_ms = cmd->timeout_ms;
	rc = v->fn(cmd->ctx, &e) ? cli_fail(c, &e) : 0;
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
