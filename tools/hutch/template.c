/*
 * hutch template: code, limits, config and Files, saved to run by name.
 *
 * Each save of a name is a new version; `hutch run --template NAME` and `hutch
 * sandbox create --template NAME` take the newest one.
 */
#include "../../hostd/surface/lbb/lbb.h"
#include "pages.h"
#include "source.h"
#include "verbs.h"
#include <stdlib.h>
#include <string.h>

#define TEMPLATES "/v1/sandboxes/templates"
#define PAGE	  "100"

static const char help[] =
	"usage: hutch template save [OPTIONS] NAME "
	"[FILE.py|FILE.js|FILE.sh|-]\n"
	"       hutch template list [NAME]\n"
	"       hutch template show [--code] NAME|ID\n"
	"\n"
	"A template is a base, and may have code, limits, a time-out, a "
	"config and Files of\n"
	"the graph, which are in /workspace before anything runs.  Each save "
	"of a name is a\n"
	"new version with an id of its own, which never changes; a run by "
	"name has the\n"
	"newest.  What the run itself is given comes first; its --file are "
	"added.\n"
	"\n"
	"list shows the newest version of each name, and the bases; with NAME "
	"all versions\n"
	"of it.  show prints a record; --code only its code, as it was saved.\n"
	"\n"
	"  hutch template save normalize norm.py --memory 2048 --config "
	"'{\"unit\": \"cm\"}'\n"
	"  hutch run --template normalize --input '[1, 2, 3]'\n"
	"  hutch template save box --base lbb/shell --vcpus 2 --file "
	"HASH:data.csv\n"
	"  hutch template list\n"
	"  hutch template show --code normalize > norm.py\n";

struct verb {
	struct cli *c;
	struct source source;
	const char *base, *key;
	bool is_code;
	struct args args;
	char made_key[CLI_KEY_BYTES];
};

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

/* ---- save --------------------------------------------------------------- */

/* The wording knows options; here it is the first argument. */
static void name_is_no_option(struct err *e)
{
	static const char option[] = "--name ";

	if (!strncmp(e->text, option, strlen(option)))
		memmove(e->text, e->text + 2, strlen(e->text + 2) + 1);
}

static int put_base(struct json_out *j, const struct verb *v, struct err *e)
{
	const char *base = v->base;

	if (!base && v->source.file)
		base = source_template_of(v->source.file);
	if (!base)
		return err_set(e, ERR_INVALID_REQUEST, "base",
			       v->source.file ? "%s: not .py, .js or .sh; name "
						"a --base"
					      : "%s without a file: name a "
						"--base",
			       v->source.file ? v->source.file
					      : v->args.rest[0]);
	json_out_text(j, "base", base, strlen(base));
	return 0;
}

static int save_call(struct verb *v, struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	const char *name = v->args.rest[0];
	struct json_out j = {0};
	int rc;

	v->source.file = v->args.n > 1 ? v->args.rest[1] : NULL;
	json_out_begin(&j, NULL, '{');
	json_out_text(&j, "name", name, strlen(name));
	rc = put_base(&j, v, e);
	if (!rc)
		rc = source_put_template(&j, &v->source, e);
	json_out_end(&j, '}');
	if (!rc && (j.rc || cli_path(v->c, &path, TEMPLATES, NULL)))
		rc = no_memory(e);
	if (!rc) {
		rc = cli_begin(v->c, (char *)path.data, &j.buf, v->key, a, e);
		if (rc)
			name_is_no_option(e);
	}
	json_out_finish(&j);
	return rc;
}

static int save(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	_cleanup_answer_ struct answer a = {0};
	char id[CLI_ID_BYTES];

	if (save_call(v, &a, e))
		return cli_is_interrupted && !v->c->http_status
			       ? cli_interrupted(v->c, e,
						 "nothing is known to "
						 "be saved")
			       : -1;
	if (v->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s %lld %s\n", v->args.rest[0],
		       (long long)answer_int(a.root, "version", 0),
		       answer_text(a.root, "id", id, sizeof(id), ""));
	return 0;
}

/* ---- list, show --------------------------------------------------------- */

static int list_path(void *ctx, const char *cursor, struct bytes *out)
{
	const struct verb *v = ctx;
	const char *name = v->args.n ? v->args.rest[0] : NULL;

	return cli_path(v->c, out, TEMPLATES, "name", name, "versions",
			name ? "true" : NULL, "limit", PAGE, "cursor", cursor,
			NULL);
}

static bool print_row(void *ctx, struct json_span t)
{
	char id[CLI_ID_BYTES], name[72], base[72], at[40], version[24] = "-";

	(void)ctx;
	if (answer_int(t, "version", 0))
		snprintf(version, sizeof(version), "%lld",
			 (long long)answer_int(t, "version", 0));
	printf("%-20s %7s %-30s %-10s %2lld %5lld %6lld %.19s\n",
	       answer_text(t, "name", name, sizeof(name), ""), version,
	       answer_text(t, "id", id, sizeof(id), "-"),
	       answer_text(t, "base", base, sizeof(base), ""),
	       (long long)answer_int(t, "limits.vcpus", 0),
	       (long long)answer_int(t, "limits.memory_mib", 0),
	       (long long)answer_int(t, "code_bytes", 0),
	       answer_text(t, "created_at", at, sizeof(at), "-"));
	return true;
}

static int list(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	const struct pages p = {list_path, print_row, v};

	if (!v->c->is_json)
		printf("%-20s %7s %-30s %-10s %2s %5s %6s %s\n", "TEMPLATE",
		       "VERSION", "ID", "BASE", "N", "MIB", "CODE",
		       "CREATED (UTC)");
	return pages_read(v->c, &p, e);
}

static int print_code(struct json_span root, const char *name, struct err *e)
{
	_cleanup_bytes_ struct bytes code = {0};
	struct json_span v;

	if (!json_at(root, "code", &v) || json_kind_of(v) != JSON_KIND_STRING)
		return err_set(e, ERR_NOT_FOUND, NULL, "%s has no code", name);
	if (json_text(v, &code))
		return no_memory(e);
	fwrite(code.data, 1, code.len, stdout);
	return 0;
}

static int show(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

	if (cli_path(v->c, &path, TEMPLATES "/get", "template", v->args.rest[0],
		     NULL))
		return no_memory(e);
	if (cli_call(v->c, "GET", (char *)path.data, NULL, NULL, &a, e))
		return -1;
	if (v->is_code)
		return print_code(a.root, v->args.rest[0], e);
	if (v->c->is_json) {
		printf("%.*s\n", (int)a.root.len, a.root.at);
		return 0;
	}
	cli_print_value(a.root, 0);
	putchar('\n');
	return 0;
}

/* ---- the command -------------------------------------------------------- */

int cmd_template(struct cli *c, int argc, char **argv)
{
	struct verb v = {.c = c};
	const struct opt opts[] = {
		{"base", "NAME", OPT_TEXT, &v.base, 0, 0,
		 "lbb/python, lbb/node or lbb/shell; or as FILE says", "save"},
		{"config", "JSON", OPT_TEXT, &v.source.config, 0, 0,
		 "config of run(), or @FILE", "save"},
		{"file", "HASH:PATH", OPT_LIST, &v.source.seeds, 0, 0,
		 "a File of the graph (hutch file) in /workspace; many times",
		 "save"},
		{"timeout", "TIME", OPT_TIME, &v.source.timeout_ms, 1,
		 ENGINE_TIMEOUT_MS_MAX,
		 "seconds, or with a unit: 1500ms 90s 60m; default 60", "save"},
		{"memory", "MIB", OPT_U64, &v.source.memory_mib,
		 LBB_MEMORY_MIB_MIN, LBB_MEMORY_MIB_MAX,
		 "128 to 8192, default 1024", "save"},
		{"vcpus", "N", OPT_U64, &v.source.vcpus, LBB_VCPUS_MIN,
		 LBB_VCPUS_MAX, "1 to 4, default 1", "save"},
		{"disk", "MIB", OPT_U64, &v.source.disk_mib, LBB_DISK_MIB_MIN,
		 LBB_DISK_MIB_MAX, "256 to 10240, default 4096", "save"},
		{"key", "KEY", OPT_TEXT, &v.key, 0, 0,
		 "idempotency key; the same key saves once", "save"},
		{"code", NULL, OPT_FLAG, &v.is_code, 0, 0,
		 "print only the code", "show"},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"save", "a name", 1, 2, save},
		{"list", "nothing", 0, 1, list},
		{"show", "a name or an id", 1, 1, show},
		{0},
	};
	const struct verb_command cmd = {
		.name = "template",
		.help = help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &v,
		.args = &v.args,
		.key = &v.key,
		.made_key = v.made_key,
	};

	return verbs_run(c, argc, argv, &cmd);
}
