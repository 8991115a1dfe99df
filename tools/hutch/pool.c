/*
 * hutch pool: the VMs that wait for a run.
 *
 * The daemon's numbers as they are now; with --watch again every second.
 */
#include "commands.h"
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: hutch pool [--watch]\n\n"
	"Shows the VMs that are restored ahead and wait, paused, for a run: "
	"one line for\n"
	"each template and limits.  MIN is the configuration's, TARGET what "
	"it and recent\n"
	"runs ask for now; of those READY, LANE wait at their express lane.\n"
	"HITS are runs that were given one, MISSES those that were not.\n\n"
	"  hutch pool\n"
	"  hutch pool --json\n"
	"  hutch pool --watch        again every second\n";

static long long number(struct json_span v, const char *name)
{
	return (long long)answer_int(v, name, 0);
}

static void print_class(struct json_span v)
{
	char name[72];

	printf("%-14s %2lld %5lld %6lld %4lld %6lld %5lld %4lld %8lld %7lld "
	       "%7lld "
	       "%7lld %8lld\n",
	       answer_text(v, "template", name, sizeof(name), ""),
	       number(v, "vcpus"), number(v, "memory_mib"),
	       number(v, "disk_mib"), number(v, "minimum"), number(v, "target"),
	       number(v, "ready"), number(v, "lanes"), number(v, "starting"),
	       number(v, "hits"), number(v, "misses"), number(v, "refills"),
	       number(v, "failures"));
}

static void print_pool(const struct cli *c, const struct answer *a)
{
	struct json_member m;
	struct json_span classes;
	struct json_iter it;

	if (c->is_json) {
		printf("%.*s\n", (int)a->root.len, a->root.at);
		return;
	}
	printf("%lld of at most %lld wait, %lld starting, %lld MiB of RAM "
	       "promised to them; %lld gave way%s\n",
	       number(a->root, "ready"), number(a->root, "maximum"),
	       number(a->root, "starting"), number(a->root, "ram_bytes") >> 20,
	       number(a->root, "evictions"),
	       answer_bool(a->root, "memory_short")
		       ? "; the host is short of memory"
		       : "");
	printf("%-14s %2s %5s %6s %4s %6s %5s %4s %8s %7s %7s %7s %8s\n",
	       "TEMPLATE", "N", "MIB", "DISK", "MIN", "TARGET", "READY", "LANE",
	       "STARTING", "HITS", "MISSES", "REFILLS", "FAILURES");
	if (!json_at(a->root, "classes", &classes))
		return;
	json_iter_begin(&it, classes);
	while (json_iter_next(&it, &m))
		print_class(m.value);
}

static int show(struct cli *c, bool is_watch, struct err *e)
{
	for (;;) {
		_cleanup_answer_ struct answer a = {0};

		if (cli_call(c, "GET", "/admin/pool", NULL, NULL, &a, e))
			return -1;
		print_pool(c, &a);
		if (fflush(stdout) || !is_watch)
			return 0;
		sleep(1);
		if (!c->is_json)
			printf("\n");
	}
}

int cmd_pool(struct cli *c, int argc, char **argv)
{
	bool is_watch = false;
	const struct opt opts[] = {
		{"watch", NULL, OPT_FLAG, &is_watch, 0, 0,
		 "again every second, until it is ended", NULL},
		{0},
	};
	struct args args;
	struct err e;
	int rc;

	if (args_parse(&args, argc, argv, opts, cli_global_opts, false, &e) ||
	    (!args.is_help && args_expect(&args, 0, 0, "", &e)))
		return cli_usage(c, "pool", &e);
	if (args.is_help)
		return cli_help(help, opts);
	if (cli_open(c, CLI_FOR_RECORDS, &e))
		return cli_fail(c, &e);
	rc = show(c, is_watch, &e) ? cli_fail(c, &e) : 0;
	cli_close(c);
	return rc;
}
