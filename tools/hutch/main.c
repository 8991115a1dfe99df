/*
 * hutch: the command line of the sandbox daemon.
 *
 * A table of commands; options that every command takes may stand before or
 * after its name.  Exit status: that of the code for `run`, else 0, or the
 * exit status that api/errors.h gives to a refusal (64 and up).
 */
#include "commands.h"
#include "log.h"
#include "version.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct cli cli;

static const struct opt global_opts[] = {
	{"state", "DIR", OPT_TEXT, &cli.state, 0, 0,
	 "state folder of the local daemon (HUTCH_STATE)", NULL},
	{"url", "URL", OPT_TEXT, &cli.url, 0, 0,
	 "another daemon, http://HOST:PORT, with --api-key", NULL},
	{"api-key", "KEY", OPT_TEXT, &cli.api_key, 0, 0,
	 "API key (HUTCH_API_KEY)", NULL},
	{"graph", "NAME", OPT_TEXT, &cli.graph, 0, 0, "graph, default main",
	 NULL},
	{"json", NULL, OPT_FLAG, &cli.is_json, 0, 0,
	 "one JSON object on standard output, also for an error", NULL},
	{0},
};
const struct opt *cli_global_opts = global_opts;

static int cmd_version(struct cli *c, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (c->is_json)
		printf("{\"version\":\"%s\"}\n", HUTCH_VERSION);
	else
		printf("hutch %s\n", HUTCH_VERSION);
	return 0;
}

static int cmd_help(struct cli *c, int argc, char **argv);

static const struct command {
	const char *name, *help;
	cli_command_fn fn;
} commands[] = {
	{"run", "run code in a fresh microVM and print its result", cmd_run},
	{"ps", "list sandboxes", cmd_ps},
	{"show", "show the record of a sandbox or a command", cmd_show},
	{"logs", "print what a command wrote", cmd_logs},
	{"kill", "end a command, or destroy a sandbox", cmd_kill},
	{"sandbox", "hold a sandbox: create, exec, run, set, stop, rm, files",
	 cmd_sandbox},
	{"template", "save code, limits and config to run by name",
	 cmd_template},
	{"file", "Files of a graph: put, list, get, rm, keep, import",
	 cmd_file},
	{"snapshot", "keep what a sandbox is: create, ls, verify, rm",
	 cmd_snapshot},
	{"records", "export the records of all runs: CBOR or JSON lines",
	 cmd_records},
	{"df", "show what takes space, by kind", cmd_df},
	{"pool", "show the VMs that wait for a run", cmd_pool},
	{"prepare", "make a template's snapshot ahead of the first run",
	 cmd_prepare},
	{"mcp", "serve the tools of agents on standard input and output",
	 cmd_mcp},
	{"env", "environments: plan, enabled, places", cmd_env},
	{"graph", "graphs: places, epoch", cmd_graph},
	{"key", "create, list and revoke API keys", cmd_key},
	{"grant", "a token for one attempt of a workflow's step", cmd_grant},
	{"budget", "how many runs may begin in a window of time", cmd_budget},
	{"doctor", "check this host and say what to do", cmd_doctor},
	{"serve", "run the daemon in the foreground", cmd_serve},
	{"version", "print the version; also hutch --version", cmd_version},
	{"help", "this text, or `hutch help COMMAND`", cmd_help},
};
#define COMMANDS (sizeof(commands) / sizeof(*commands))

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static void print_overview(FILE *out)
{
	fputs("hutch runs code in microVMs: own kernel, no network, a record "
	      "of every run.\n\n"
	      "usage: hutch [OPTIONS] COMMAND [ARGUMENTS]\n\n",
	      out);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name,
			commands[i].help);
	fputs("\nOptions of every command:\n", out);
	args_help(global_opts, out);
	fputs("\nFirst steps:\n"
	      "  hutch doctor\n"
	      "  echo 'def run(input, config): return sum(input)' > sum.py\n"
	      "  hutch run sum.py --input '[1, 2, 3]'\n"
	      "  hutch ps\n",
	      out);
}

static int cmd_help(struct cli *c, int argc, char **argv)
{
	static char help_flag[] = "--help";
	char *help_argv[] = {help_flag, NULL};
	const struct command *command = argc ? find(argv[0]) : NULL;
	struct err e;

	if (!argc) {
		print_overview(stdout);
		return 0;
	}
	if (!command) {
		err_set(&e, ERR_INVALID_REQUEST, NULL, "no command \"%s\"",
			argv[0]);
		return cli_usage(c, "help", &e);
	}
	if (command->fn == cmd_help || command->fn == cmd_version) {
		printf("hutch %s: %s\n", command->name, command->help);
		return 0;
	}
	return command->fn(c, 1, help_argv);
}

int cli_help(const char *text, const struct opt *opts)
{
	fputs(text, stdout);
	if (opts && opts->name) {
		fputs("\nOptions:\n", stdout);
		args_help(opts, stdout);
	}
	fputs("\nOptions of every command:\n", stdout);
	args_help(global_opts, stdout);
	return 0;
}

/*
 * A descriptor 0, 1 or 2 that is closed would be given to a socket; reading
 * and writing must fail instead.
 */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			/* check-source: allow cloexec a daemon inherits it */
			open("/dev/null",
			     fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

/* What was printed is out, or the exit status says that it is not. */
static int finish(int status)
{
	bool is_lost = ferror(stdout);

	errno = 0;
	if (!fflush(stdout) && !is_lost)
		return status;
	fprintf(stderr, "hutch: cannot write stdout%s%s\n", errno ? ": " : "",
		errno ? strerror(errno) : "");
	return err_info(ERR_INTERNAL)->exit_status;
}

/* A mistake may be found before --json is. */
static bool has_json(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], "--json"))
			return true;
	return false;
}

static int run_command(int argc, char **argv)
{
	bool is_version = false;
	const struct opt main_opts[] = {
		{"version", NULL, OPT_FLAG, &is_version, 0, 0, "", NULL},
		{0},
	};
	const struct command *command;
	struct args a;
	struct err e;
	int rest;

	if (args_parse(&a, argc - 1, argv + 1, global_opts, main_opts, true,
		       &e))
		return cli_usage(&cli, NULL, &e);
	if (is_version)
		return cmd_version(&cli, 0, NULL);
	if (a.is_help || !a.n) {
		print_overview(a.is_help ? stdout : stderr);
		return a.is_help ? 0 : CLI_EXIT_USAGE;
	}
	command = find(a.rest[0]);
	if (!command) {
		err_set(&e, ERR_INVALID_REQUEST, NULL, "no command \"%s\"",
			a.rest[0]);
		return cli_usage(&cli, NULL, &e);
	}
	rest = argc - (int)a.n + 1;
	return command->fn(&cli, argc - rest, argv + rest);
}

int main(int argc, char **argv)
{
	log_init("hutch");
	fill_standard_fds();
	signal(SIGPIPE, SIG_IGN);
	cli.user_lock = -1;
	cli.api_key = getenv("HUTCH_API_KEY");
	cli.wants_json = has_json(argc, argv);
	return finish(run_command(argc, argv));
}
