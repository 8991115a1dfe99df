/*
 * Command lines as tables: one row per option; parsing, checking and --help
 * read the same rows.
 *
 * `--name VALUE` and `--name=VALUE` are the same; `--` ends the options; an
 * option may stand before or after the other arguments.  A value out of range,
 * an unknown name or a missing argument is refused by name.  A command with
 * verbs (`key create`) names in a row the verbs that the option is for.
 */
#ifndef HUTCH_CLI_ARGS_H
#define HUTCH_CLI_ARGS_H

#include "err.h"
#include <stdint.h>
#include <stdio.h>

#define ARGS_LIST_MAX 256

enum opt_kind {
	OPT_FLAG, /* bool */
	OPT_TEXT, /* const char * */
	OPT_U64,  /* uint64_t in [min, max] */
	OPT_TIME, /* the same, in milliseconds: "90" or "90s" "1500ms" "2h" */
	OPT_LIST, /* struct opt_list: may come many times */
};

struct opt_list {
	const char *items[ARGS_LIST_MAX];
	size_t n;
};

struct opt {
	const char *name; /* "timeout"; NULL ends the table */
	const char *arg;  /* "MS", NULL for a flag */
	enum opt_kind kind;
	void *dst;
	uint64_t min, max;
	const char *help;
	const char *of; /* "create, exec": only for these; NULL = all */
};

struct args {
	const char *rest[ARGS_LIST_MAX]; /* what is not an option */
	size_t n;
	bool is_help;
	uint64_t given; /* which rows of the first table came, by bit */
};

/*
 * Parse argv[0..argc) against two tables (`more` may be NULL).  With
 * `stop_at_rest` the first argument that is no option and all behind it go to
 * `rest` untouched.  0 or -1 with `e`.
 */
int args_parse(struct args *a, int argc, char **argv, const struct opt *opts,
	       const struct opt *more, bool stop_at_rest, struct err *e);
void args_help(const struct opt *opts, FILE *out);

/* Between min and max values in `rest`; `what` names them in the message. */
int args_expect(const struct args *a, size_t min, size_t max, const char *what,
		struct err *e);

/* Were only options of this verb given? */
int args_expect_of(const struct args *a, const struct opt *opts,
		   const char *verb, struct err *e);

#endif
