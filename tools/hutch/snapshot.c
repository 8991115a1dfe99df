/*
 * hutch snapshot: what a held sandbox is, kept to start others from.
 *
 * create prints an id, which `hutch sandbox create --snapshot` takes.
 */
#include "../../hostd/engine/engine.h"
#include "pages.h"
#include "verbs.h"
#include <string.h>

#define ID_BYTES  64
#define SNAPSHOTS "/v1/sandboxes/snapshots"
/* Gigabytes are written, or read, before the answer. */
#define SILENCE_MS_MAX 600000
#define PAGE	       "100"
#define MS_PER_S       UINT64_C(1000)

static const char help[] =
	"usage: hutch snapshot create [OPTIONS] SANDBOX\n"
	"       hutch snapshot ls\n"
	"       hutch snapshot verify SNAPSHOT\n"
	"       hutch snapshot rm SNAPSHOT\n"
	"\n"
	"A snapshot is the memory and the disk of a held sandbox at one "
	"moment: one that\n"
	"runs stands still for it and goes on, one that is stopped stays so.  "
	"Any number\n"
	"of sandboxes may begin from it, each with a disk, a host name and "
	"random numbers\n"
	"of its own; processes of the first one go on in each.  It stays when "
	"the sandbox\n"
	"is removed, and they stay when it is.\n"
	"\n"
	"A sandbox does not begin from a snapshot whose files were altered or "
	"cut "
	"short.  Bytes\n"
	"that a disk lost by itself are found by verify, which reads all of "
	"them.\n"
	"\n"
	"What a process kept in its own memory is the same in all of them: "
	"keys and tokens\n"
	"that it holds, generators of random numbers that it has seeded.\n"
	"\n"
	"Ctrl-C while it is taken: it is removed again.\n"
	"\n"
	"  snap=$(hutch snapshot create --name ready $id)\n"
	"  hutch sandbox create --snapshot $snap\n"
	"  hutch snapshot create --expires 7d $id\n"
	"  hutch snapshot ls\n"
	"  hutch snapshot verify $snap\n"
	"  hutch snapshot rm $snap\n";

struct verb {
	struct cli *c;
	const char *name, *key;
	uint64_t expires_ms;
	struct args args;
	char made_key[CLI_KEY_BYTES];
};

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "no memory");
}

static int create_call(struct verb *v, struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};
	struct json_out j = {0};
	int rc;

	json_out_begin(&j, NULL, '{');
	if (v->name)
		json_out_text(&j, "name", v->name, strlen(v->name));
	if (v->expires_ms)
		json_out_u64(&j, "expires_in_seconds",
			     v->expires_ms / MS_PER_S);
	json_out_end(&j, '}');
	if (j.rc ||
	    cli_path(v->c, &path, SNAPSHOTS, "sandbox", v->args.rest[0], NULL))
		rc = no_memory(e);
	else
		rc = cli_begin(v->c, (char *)path.data, &j.buf, v->key, a, e);
	json_out_finish(&j);
	return rc;
}

/* A call on one. */
static int one_call(struct verb *v, const char *method, const char *route,
		    const char *snapshot, struct answer *a, struct err *e)
{
	_cleanup_bytes_ struct bytes path = {0};

	if (cli_path(v->c, &path, route, "snapshot", snapshot, NULL))
		return no_memory(e);
	return cli_call(v->c, method, (char *)path.data, NULL, NULL, a, e);
}

/* Ctrl-C, and what was being taken is known by now. */
static int create_undo(struct verb *v, const char *id, struct err *e)
{
	_cleanup_answer_ struct answer gone = {0};

	v->c->http.is_cancelled = NULL;
	if (one_call(v, "DELETE", SNAPSHOTS, id, &gone, e))
		return cli_interrupted(
			v->c, e, "hutch snapshot rm %s removes what was made",
			id);
	return cli_interrupted(v->c, e, "%s is removed", id);
}

static int create(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	_cleanup_answer_ struct answer a = {0};
	char id[ID_BYTES];

	if (create_call(v, &a, e))
		return cli_is_interrupted
			       ? cli_interrupted(v->c, e,
						 "no snapshot was made")
			       : -1;
	answer_text(a.root, "id", id, sizeof(id), "");
	if (cli_is_interrupted)
		return create_undo(v, id, e);
	if (v->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s\n", id);
	return 0;
}

static int ls_path(void *ctx, const char *cursor, struct bytes *out)
{
	const struct verb *v = ctx;

	return cli_path(v->c, out, SNAPSHOTS, "limit", PAGE, "cursor", cursor,
			NULL);
}

static bool print_row(void *ctx, struct json_span s)
{
	char id[ID_BYTES], name[72], sandbox[ID_BYTES], template[72], at[40];

	(void)ctx;
	printf("%-30s %-16s %7lld %-14s %-30s %s\n",
	       answer_text(s, "id", id, sizeof(id), ""),
	       answer_text(s, "name", name, sizeof(name), "-"),
	       (long long)answer_int(s, "bytes", 0) >> 20,
	       answer_text(s, "template", template, sizeof(template), ""),
	       answer_text(s, "sandbox", sandbox, sizeof(sandbox), ""),
	       answer_text(s, "created_at", at, sizeof(at), ""));
	return true;
}

/* All pages; as JSON a line for each. */
static int ls(void *ctx, struct err *e)
{
	struct verb *v = ctx;
	const struct pages p = {ls_path, print_row, v};

	if (!v->c->is_json)
		printf("%-30s %-16s %7s %-14s %-30s %s\n", "SNAPSHOT", "NAME",
		       "MIB", "TEMPLATE", "SANDBOX", "CREATED");
	return pages_read(v->c, &p, e);
}

/* The same for the command line, and what is said of it. */
static int one(struct verb *v, const char *method, const char *route,
	       const char *said, struct err *e)
{
	_cleanup_answer_ struct answer a = {0};

	if (one_call(v, method, route, v->args.rest[0], &a, e))
		return -1;
	if (v->c->is_json)
		printf("%.*s\n", (int)a.root.len, a.root.at);
	else
		printf("%s %s\n", v->args.rest[0], said);
	return 0;
}

static int verify(void *ctx, struct err *e)
{
	struct verb *v = ctx;

	return one(v, "POST", SNAPSHOTS "/verify", "is what was taken", e);
}

static int rm(void *ctx, struct err *e)
{
	struct verb *v = ctx;

	return one(v, "DELETE", SNAPSHOTS, "removed", e);
}

int cmd_snapshot(struct cli *c, int argc, char **argv)
{
	struct verb v = {.c = c};
	const struct opt opts[] = {
		{"name", "NAME", OPT_TEXT, &v.name, 0, 0,
		 "1 to 64 of a-z 0-9 . _ -", "create"},
		{"expires", "TIME", OPT_TIME, &v.expires_ms,
		 ENGINE_SNAPSHOT_SECONDS_MIN * MS_PER_S,
		 ENGINE_SNAPSHOT_SECONDS_MAX * MS_PER_S,
		 "remove it after that, 1m to 365d, default never", "create"},
		{"key", "KEY", OPT_TEXT, &v.key, 0, 0,
		 "idempotency key; the same key acts once", "create"},
		{0},
	};
	static const struct verb_row verbs[] = {
		{"create", "a sandbox", 1, 1, create},
		{"ls", "nothing", 0, 0, ls},
		{"verify", "a snapshot", 1, 1, verify},
		{"rm", "a snapshot", 1, 1, rm},
		{0},
	};
	const struct verb_command cmd = {
		.name = "snapshot",
		.help = help,
		.opts = opts,
		.verbs = verbs,
		.ctx = &v,
		.args = &v.args,
		.key = &v.key,
		.made_key = v.made_key,
		.timeout_ms = SILENCE_MS_MAX,
	};

	return verbs_run(c, argc, argv, &cmd);
}
