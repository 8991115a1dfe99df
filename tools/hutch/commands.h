/*
 * The commands of `hutch`, one function each.  argv[0] is the first argument
 * after the command's name.  The return value is the exit status.
 */
#ifndef HUTCH_CLI_COMMANDS_H
#define HUTCH_CLI_COMMANDS_H

#include "args.h"
#include "client.h"

extern const struct opt *cli_global_opts; /* main.c: --state, --json ... */

int cmd_run(struct cli *c, int argc, char **argv);
int cmd_ps(struct cli *c, int argc, char **argv);
int cmd_logs(struct cli *c, int argc, char **argv);
int cmd_show(struct cli *c, int argc, char **argv);
int cmd_kill(struct cli *c, int argc, char **argv);
int cmd_env(struct cli *c, int argc, char **argv);
int cmd_graph(struct cli *c, int argc, char **argv);
int cmd_grant(struct cli *c, int argc, char **argv);
int cmd_budget(struct cli *c, int argc, char **argv);
int cmd_key(struct cli *c, int argc, char **argv);
int cmd_sandbox(struct cli *c, int argc, char **argv);
int cmd_template(struct cli *c, int argc, char **argv);
int cmd_file(struct cli *c, int argc, char **argv);
int cmd_snapshot(struct cli *c, int argc, char **argv);
int cmd_records(struct cli *c, int argc, char **argv);
int cmd_df(struct cli *c, int argc, char **argv);
int cmd_pool(struct cli *c, int argc, char **argv);
int cmd_prepare(struct cli *c, int argc, char **argv);
int cmd_mcp(struct cli *c, int argc, char **argv);
int cmd_doctor(struct cli *c, int argc, char **argv);
int cmd_serve(struct cli *c, int argc, char **argv);

/* A value, indented, for people (records.c). */
void cli_print_value(struct json_span v, int indent);

/* Text of `hutch COMMAND --help`: the head, then the options. */
int cli_help(const char *text, const struct opt *opts);

#endif
