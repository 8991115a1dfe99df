/*
 * hutch ps, show, logs, kill: records that are there already.
 *
 * Records are printed from the answer's own bytes; nothing is rebuilt.
 */
#include "../../hostd/surface/lbb/lbb.h"
#include "commands.h"
#include "output.h"
#include "pages.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define FOLLOW_SLICE_MS 300
#define INDENT_MAX	64

static bool is_command(const char *id)
{
	return !strncmp(id, "cmd_", 4);
}

static int check_id(const char *id, struct err *e)
{
	if (is_command(id) || !strncmp(id, "sbx_", 4))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "%s: an id begins with sbx_ or cmd_", id);
}

/* Open, one call, close: what most of these commands are. */
static int one_call(struct cli *c, const char *method, const char *path,
		    const char *param, const char *id, struct answer *a,
		    struct err *e)
{
	_cleanup_bytes_ struct bytes full = {0};

	if (cli_path(c, &full, path, param, id, NULL))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	return cli_call(c, method, (char *)full.data, NULL, NULL, a, e);
}

/* ---- ps ------------------------------------------------------------------ */

static const char ps_help[] =
	"usage: hutch ps [OPTIONS]\n\n"
	"Lists sandboxes: those that live, then those "
	"that ended, newest first.\n"
	"--json: one page of the daemon, by time alone.\n\n"
	"  hutch ps\n"
	"  hutch ps --status running\n"
	"  hutch ps --limit 100 --json\n";

static void print_row(struct json_span v)
{
	char id[48], status[24], name[72], created[40], command[48];
	char called[72];

	answer_text(v, "id", id, sizeof(id), "");
	answer_text(v, "status", status, sizeof(status), "");
	if (!answer_text(v, "template.name", name, sizeof(name), NULL))
		answer_text(v, "template", name, sizeof(name), "");
	answer_text(v, "created_at", created, sizeof(created), "");
	answer_text(v, "command", command, sizeof(command), "");
	answer_text(v, "name", called, sizeof(called), "");
	printf("%-30s %-10s %-12s %2lld %5lld  %-20.19s %s%s\n", id, status,
	       name, (long long)answer_int(v, "limits.vcpus", 0),
	       (long long)answer_int(v, "limits.memory_mib", 0), created,
	       command, called);
}

/* Lists of sandboxes: each status that lives, then all. */
static const char *const live[] = {"running", "starting", "stopping", "stopped",
				   "destroying"};
#define LIVE (sizeof(live) / sizeof(*live))

struct ps {
	struct cli *c;
	const char *status, *template_name, *name;
	const char *of;	   /* the status that is listed now; NULL = all */
	uint64_t limit, n; /* rows at most, rows printed */
	bool has_more;
};

static bool is_live(struct json_span v)
{
	char status[24];
	size_t i = 0;

	answer_text(v, "status", status, sizeof(status), "");
	while (i < LIVE && strcmp(live[i], status))
		i++;
	return i < LIVE;
}

static void print_head(void)
{
	printf("%-30s %-10s %-12s %2s %5s  %-20s %s\n", "SANDBOX", "STATUS",
	       "TEMPLATE", "N", "MIB", "CREATED (UTC)", "COMMAND OR NAME");
}

static int ps_path(void *ctx, const char *cursor, struct bytes *out)
{
	const struct ps *p = ctx;
	char limit[24];

	snprintf(limit, sizeof(limit), "%llu", (unsigned long long)p->limit);
	return cli_path(p->c, out, "/v1/sandboxes", "limit", limit, "status",
			p->of, "template", p->template_name, "name", p->name,
			"cursor", cursor, NULL);
}

/* Rows until there are `limit`; of all without a status: that do not live. */
static bool ps_row(void *ctx, struct json_span v)
{
	struct ps *p = ctx;

	if (!p->of && is_live(v))
		return true;
	p->has_more = p->n == p->limit;
	if (p->has_more)
		return false;
	if (!p->n++)
		print_head();
	print_row(v);
	return true;
}

/* With --json a page, as the daemon has it. */
static int ps_json(struct cli *c, struct ps *p, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	_cleanup_answer_ struct answer a = {0};

	p->of = p->status;
	if (ps_path(p, NULL, &path))
		return err_set(e, ERR_INTERNAL, NULL, "no memory");
	if (cli_call(c, "GET", (char *)path.data, NULL, NULL, &a, e))
		return -1;
	printf("%.*s\n", (int)a.root.len, a.root.at);
	return 0;
}

static int ps(struct cli *c, struct ps *p, struct err *e)
{
	const struct pages pages = {ps_path, ps_row, p};
	int rc = 0;

	p->c = c;
	if (c->is_json)
		return ps_json(c, p, e);
	for (size_t i = 0; !rc && !p->status && i < LIVE; i++) {
		p->of = live[i];
		rc = pages_read(c, &pages, e);
	}
	p->of = p->status;
	if (!rc)
		rc = pages_read(c, &pages, e);
	if (!rc && !p->n)
		print_head();
	if (p->has_more)
		fprintf(stderr, "hutch: there are more; use --limit\n");
	return rc;
}

int cmd_ps(struct cli *c, int argc, char **argv)
{
	struct ps p = {.limit = 20};
	const struct opt opts[] = {
		{"status", "STATUS", OPT_TEXT, &p.status, 0, 0,
		 "only these: starting, running, destroyed, failed, lost ...",
		 NULL},
		{"template", "NAME", OPT_TEXT, &p.template_name, 0, 0,
		 "only of this template, or of this version (sbt_...)", NULL},
		{"name", "NAME", OPT_TEXT, &p.name, 0, 0, "only with this name",
		 NULL},
		{"limit", "N", OPT_U64, &p.limit, 1, LBB_PAGE_MAX,
		 "1 to 100, default 20", NULL},
		{0},
	};
	struct args args;
	struct err e;
	int rc;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e) ||
	    (!args.is_help && args_expect(&args, 0, 0, "", &e)))
		return cli_usage(c, "ps", &e);
	if (args.is_help)
		return cli_help(ps_help, opts);
	if (cli_open(c, CLI_FOR_RECORDS, &e))
		return cli_fail(c, &e);
	rc = ps(c, &p, &e);
	if (rc)
		rc = cli_fail(c, &e);
	cli_close(c);
	return rc;
}

/* ---- show ---------------------------------------------------------------- */

static const char show_help[] =
	"usage: hutch show SANDBOX|COMMAND\n\n"
	"Prints the record of a sandbox (sbx_...) or a command (cmd_...).\n\n"
	"  hutch show sbx_...          indented\n"
	"  hutch show cmd_... --json   as the daemon sent it\n";

void cli_print_value(struct json_span v, int indent)
{
	struct json_member m;
	struct json_iter it;
	enum json_kind type = json_kind_of(v);
	bool is_first = true;

	if ((type != JSON_KIND_OBJECT && type != JSON_KIND_ARRAY) ||
	    v.len <= 2 || indent > INDENT_MAX) {
		printf("%.*s", (int)v.len, v.at);
		return;
	}
	putchar(v.at[0]);
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m)) {
		printf("%s\n%*s", is_first ? "" : ",", indent + 2, "");
		is_first = false;
		if (m.name.at)
			printf("%.*s: ", (int)m.name.len, m.name.at);
		cli_print_value(m.value, indent + 2);
	}
	printf("\n%*s%c", indent, "", v.at[v.len - 1]);
}

int cmd_show(struct cli *c, int argc, char **argv)
{
	_cleanup_answer_ struct answer a = {0};
	struct args args;
	struct err e;
	int rc;

	if (args_parse(&args, argc, argv, cli_global_opts, NULL, false, &e) ||
	    (!args.is_help && (args_expect(&args, 1, 1, "an id", &e) ||
			       check_id(args.rest[0], &e))))
		return cli_usage(c, "show", &e);
	if (args.is_help)
		return cli_help(show_help, NULL);
	if (cli_open(c, CLI_FOR_RECORDS, &e))
		return cli_fail(c, &e);
	if (is_command(args.rest[0]))
		rc = one_call(c, "GET", "/v1/sandboxes/commands/get", "command",
			      args.rest[0], &a, &e);
	else
		rc = one_call(c, "GET", "/v1/sandboxes/get", "sandbox",
			      args.rest[0], &a, &e);
	if (rc) {
		rc = cli_fail(c, &e);
	} else if (c->is_json) {
		printf("%.*s\n", (int)a.root.len, a.root.at);
	} else {
		cli_print_value(a.root, 0);
		putchar('\n');
	}
	cli_close(c);
	return rc;
}

/* ---- logs ---------------------------------------------------------------- */

static const char logs_help[] =
	"usage: hutch logs COMMAND|SANDBOX [OPTIONS]\n\n"
	"Prints what a command wrote: its standard output on standard "
	"output, its\n"
	"standard error on standard error.  A one-call sandbox stands for "
	"its command.\n"
	"--json: one object with both as strings; its eof says whether that "
	"is all.\n"
	"Bytes that the daemon did not keep are said on standard error.\n\n"
	"  hutch logs cmd_...\n"
	"  hutch logs cmd_... --follow\n"
	"  hutch logs cmd_... --stream stderr\n";

/* The command of a one-call sandbox. */
static int find_command(struct cli *c, const char *id, char *dst, size_t cap,
			struct err *e)
{
	_cleanup_answer_ struct answer a = {0};

	if (is_command(id)) {
		snprintf(dst, cap, "%s", id);
		return 0;
	}
	if (one_call(c, "GET", "/v1/sandboxes/get", "sandbox", id, &a, e))
		return -1;
	if (answer_text(a.root, "command", dst, cap, NULL) && is_command(dst))
		return 0;
	return err_set(e, ERR_COMMAND_NOT_FOUND, NULL,
		       "%s is not a one-call sandbox; name a command", id);
}

static int read_logs(struct cli *c, const char *command, bool is_follow,
		     struct pump *pumps, struct err *e)
{
	for (;;) {
		bool is_eof = true;

		for (int i = 0; i < 2; i++) {
			if (!pumps[i].stream || pumps[i].is_eof)
				continue;
			if (pump_read(c, &pumps[i], command, e))
				return -1;
			is_eof = is_eof && pumps[i].is_eof;
		}
		if (is_eof || !is_follow)
			return 0;
		usleep(FOLLOW_SLICE_MS * 1000);
	}
}

static void print_logs(const char *command, const struct pump *pumps)
{
	struct json_out j = {0};
	bool is_over = true;

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "command", command);
	for (int i = 0; i < 2; i++) {
		if (!pumps[i].stream)
			continue;
		pump_json(&pumps[i], &j);
		is_over = is_over && pumps[i].is_eof;
	}
	json_out_bool(&j, "eof", is_over);
	json_out_end(&j, '}');
	cli_print_json(&j);
}

int cmd_logs(struct cli *c, int argc, char **argv)
{
	struct pump pumps[2] = {{0}, {0}};
	const char *stream = NULL;
	bool is_follow = false;
	const struct opt opts[] = {
		{"follow", NULL, OPT_FLAG, &is_follow, 0, 0,
		 "go on until the command ends", NULL},
		{"stream", "NAME", OPT_TEXT, &stream, 0, 0,
		 "only stdout or only stderr", NULL},
		{0},
	};
	struct args args;
	char command[64];
	struct err e;
	int rc;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e) ||
	    (!args.is_help && (args_expect(&args, 1, 1, "an id", &e) ||
			       check_id(args.rest[0], &e))))
		return cli_usage(c, "logs", &e);
	if (args.is_help)
		return cli_help(logs_help, opts);
	if (stream && strcmp(stream, "stdout") && strcmp(stream, "stderr")) {
		err_set(&e, ERR_INVALID_REQUEST, "stream",
			"--stream %s: must be stdout or stderr", stream);
		return cli_usage(c, "logs", &e);
	}
	if (!stream || !strcmp(stream, "stdout"))
		pump_init(&pumps[0], "stdout", c->is_json ? -1 : STDOUT_FILENO);
	if (!stream || !strcmp(stream, "stderr"))
		pump_init(&pumps[1], "stderr", c->is_json ? -1 : STDERR_FILENO);
	if (cli_open(c, CLI_FOR_RECORDS, &e))
		return cli_fail(c, &e);
	rc = find_command(c, args.rest[0], command, sizeof(command), &e);
	if (!rc)
		rc = read_logs(c, command, is_follow, pumps, &e);
	if (rc)
		rc = cli_fail(c, &e);
	else if (c->is_json)
		print_logs(command, pumps);
	cli_close(c);
	pump_finish(&pumps[0]);
	pump_finish(&pumps[1]);
	return rc;
}

/* ---- kill ---------------------------------------------------------------- */

static const char kill_help[] =
	"usage: hutch kill COMMAND|SANDBOX\n\n"
	"Cancels a command (TERM, then KILL, for its whole tree) or destroys "
	"a sandbox.\n"
	"Its records stay.\n\n"
	"  hutch kill cmd_...\n"
	"  hutch kill sbx_...\n";

int cmd_kill(struct cli *c, int argc, char **argv)
{
	_cleanup_answer_ struct answer a = {0};
	struct args args;
	char status[32];
	struct err e;
	int rc;

	if (args_parse(&args, argc, argv, cli_global_opts, NULL, false, &e) ||
	    (!args.is_help && (args_expect(&args, 1, 1, "an id", &e) ||
			       check_id(args.rest[0], &e))))
		return cli_usage(c, "kill", &e);
	if (args.is_help)
		return cli_help(kill_help, NULL);
	if (cli_open(c, CLI_FOR_RECORDS, &e))
		return cli_fail(c, &e);
	if (is_command(args.rest[0]))
		rc = one_call(c, "POST", "/v1/sandboxes/commands/cancel",
			      "command", args.rest[0], &a, &e);
	else
		rc = one_call(c, "DELETE", "/v1/sandboxes", "sandbox",
			      args.rest[0], &a, &e);
	if (rc) {
		rc = cli_fail(c, &e);
	} else if (c->is_json) {
		printf("%.*s\n", (int)a.root.len, a.root.at);
	} else {
		answer_text(a.root, "status", status, sizeof(status), "");
		printf("%s %s\n", args.rest[0], status);
	}
	cli_close(c);
	return rc;
}
