/*
 * hutch sandbox files, get, put, del: the workspace of a held sandbox.
 *
 * Each takes the words behind the verb: the sandbox first.  0, or -1 with `e`.
 */
#ifndef HUTCH_CLI_FILES_H
#define HUTCH_CLI_FILES_H

#include "client.h"

/* SANDBOX [PATH]: a line each; a folder's name ends in a slash. */
int files_list(struct cli *c, const char *const *words, size_t n,
	       struct err *e);
/* SANDBOX PATH [FILE]: to standard output, or into FILE, which is whole or as
 * it was. */
int files_get(struct cli *c, const char *const *words, size_t n, struct err *e);
/* SANDBOX FILE PATH; FILE "-" = standard input. */
int files_put(struct cli *c, const char *const *words, size_t n, struct err *e);
/* SANDBOX PATH */
int files_del(struct cli *c, const char *const *words, size_t n, struct err *e);

#endif
