/*
 * Commands with verbs: a verb, words, options.  Those of the operator are each
 * one call of the admin socket, and its answer as a table or as JSON.
 */
#ifndef HUTCH_CLI_VERBS_H
#define HUTCH_CLI_VERBS_H

#include "commands.h"

#define VERBS_ENVIRONMENT "env_local" /* when none was named */

struct verb_row {
	const char *name, *what; /* what its words are: "an environment" */
	size_t min, max;	 /* words behind it */
	int (*fn)(void *ctx, struct err *e);
};

struct verb_command {
	const char *name; /* "env" */
	/* "environments are kept" ... on the host; NULL: of any daemon */
	const char *does;
	const char *help;
	const struct opt *opts;
	const struct verb_row *verbs; /* name NULL ends it */
	void *ctx;
	struct args *args; /* of the ctx: set before fn is called */
	/* Of the options, before anything is opened: 0, or -1 with `e`; or
	 * NULL. */
	int (*check)(const void *ctx, struct err *e);
	/* --key, made here when none was given, of CLI_KEY_BYTES; or NULL. */
	const char **key;
	char *made_key;
	int timeout_ms; /* of silence; 0 = as ever */
};

/* Parses, opens the daemon's socket, runs the verb; the exit status. */
int verbs_run(struct cli *c, int argc, char **argv,
	      const struct verb_command *cmd);

/* A column of a table: title, width (0 = as it comes), member; a bool is
 * yes or no, null is "-". */
struct verb_column {
	const char *title;
	int width;
	const char *member;
};

/* `method` PATH with `body` (NULL = none); prints the record, or the records
 * of a list, by `columns` (title NULL ends them). */
int verbs_call(struct cli *c, const char *method, const struct bytes *path,
	       struct json_out *body, const struct verb_column *columns,
	       struct err *e);

#endif
