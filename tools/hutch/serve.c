/*
 * hutch serve: the daemon in the foreground, on the same state folder that
 * the other commands use, unless hutchd's file names another (hutchd puts
 * --default-state under its file).  Everything after the options is hutchd's.
 */
#include "commands.h"
#include "daemon.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: hutch serve [--state DIR] [HUTCHD OPTIONS]\n\n"
	"Runs hutchd in the foreground.  `hutchd --help` lists its options; "
	"they may\n"
	"follow here.\n\n"
	"  hutch serve\n"
	"  hutch serve --listen 127.0.0.1:7400\n"
	"  hutch key create --name me      (in another terminal)\n";

int cmd_serve(struct cli *c, int argc, char **argv)
{
	static char name[] = "hutchd", state[] = "--state";
	static char default_state[] = "--default-state";
	char program[CLI_PATH_BYTES_MAX];
	char *run[ARGS_LIST_MAX + 4] = {name, default_state, c->state_dir};
	int n = 3;
	struct err e;

	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return cli_help(help, NULL);
		if (!strcmp(argv[i], "--state") && i + 1 < argc) {
			c->state = argv[++i];
			continue;
		}
		if (n >= ARGS_LIST_MAX) {
			err_set(&e, ERR_INVALID_REQUEST, NULL,
				"more than %d arguments", ARGS_LIST_MAX);
			return cli_usage(c, "serve", &e);
		}
		run[n++] = argv[i];
	}
	if (c->state && *c->state)
		run[1] = state;
	if (cli_resolve_state(c, &e) ||
	    daemon_program(name, program, sizeof(program), &e))
		return cli_fail(c, &e);
	execv(program, run);
	err_set(&e, ERR_UNAVAILABLE, NULL, "%s: %s", program, strerror(errno));
	return cli_fail(c, &e);
}
