/*
 * hutch df: what takes space on the disk, by kind.
 */
#include "commands.h"
#include <string.h>

static const char help[] =
	"usage: hutch df\n\n"
	"What the daemon keeps on the disk: how many of each kind, what they "
	"take, and what\n"
	"they may (snapshots_max_mib, files_max_mib, stopped_max_mib in "
	"hutchd.conf).\n\n"
	"  templates  snapshots of templates, in the cache folder\n"
	"  snapshots  snapshots of sandboxes; hutch snapshot rm\n"
	"  files      Files of graphs, the same bytes once; hutch file rm\n"
	"  stopped    memory and disk of stopped sandboxes; hutch sandbox rm\n"
	"  disks      of VMs that run or wait\n"
	"  database   records, output of commands\n"
	"  logs       of a daemon that logs into its state folder\n"
	"  other      keys, sockets, the folder itself\n\n"
	"All but templates and disks is what du says of the state folder; it "
	"also finds the\n"
	"disks of sandboxes that were stopped and run again.  Where the file "
	"system can share\n"
	"blocks (xfs, btrfs), a copy counts here in full and takes next to "
	"nothing.\n\n"
	"  hutch df\n"
	"  hutch df --json | jq '.kinds[] | [.kind, .bytes]'\n";

static unsigned long long mib_up(int64_t bytes)
{
	return (unsigned long long)(bytes + (1 << 20) - 1) >> 20;
}

static void print_kind(struct json_span v)
{
	int64_t limit = answer_int(v, "limit_bytes", 0);
	char kind[32], text[32] = "-";

	if (limit)
		snprintf(text, sizeof(text), "%llu", mib_up(limit));
	printf("%-10s %6lld %10.1f %10s\n",
	       answer_text(v, "kind", kind, sizeof(kind), ""),
	       (long long)answer_int(v, "count", 0),
	       (double)answer_int(v, "bytes", 0) / (1 << 20), text);
}

static void print_folder(struct json_span root, const char *name)
{
	struct json_span v;
	char path[512];

	if (!json_at(root, name, &v))
		return;
	printf("%s: %llu of %llu MiB are free (%s)\n", name,
	       mib_up(answer_int(v, "free_bytes", 0)),
	       mib_up(answer_int(v, "total_bytes", 0)),
	       answer_text(v, "path", path, sizeof(path), ""));
}

static void print_space(const struct cli *c, const struct answer *a)
{
	struct json_span kinds;
	struct json_member m;
	struct json_iter it;

	if (c->is_json) {
		printf("%.*s\n", (int)a->root.len, a->root.at);
		return;
	}
	printf("%-10s %6s %10s %10s\n", "KIND", "COUNT", "MIB", "LIMIT");
	if (json_at(a->root, "kinds", &kinds)) {
		json_iter_begin(&it, kinds);
		while (json_iter_next(&it, &m))
			print_kind(m.value);
	}
	print_folder(a->root, "state");
	print_folder(a->root, "cache");
	printf("%llu MiB stay free (disk_reserve_mib)\n",
	       mib_up(answer_int(a->root, "disk_reserve_bytes", 0)));
}

int cmd_df(struct cli *c, int argc, char **argv)
{
	_cleanup_answer_ struct answer a = {0};
	const struct opt opts[] = {{0}};
	struct args args;
	struct err e = {0};
	int rc;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e) ||
	    (!args.is_help && args_expect(&args, 0, 0, "", &e)))
		return cli_usage(c, "df", &e);
	if (args.is_help)
		return cli_help(help, opts);
	if (cli_open(c, CLI_FOR_RECORDS, &e))
		return cli_fail(c, &e);
	rc = cli_call(c, "GET", "/admin/df", NULL, NULL, &a, &e);
	if (rc)
		rc = cli_fail(c, &e);
	else
		print_space(c, &a);
	cli_close(c);
	return rc;
}
