/*
 * hutch sandbox files, get, put, del: the workspace of a held sandbox.
 *
 * Each takes the words behind the verb: the sandbox first.  0, or -1 with `e`.
 */
#ifndef HUTCH_CLI_FILES_H
#define HUTCH_CLI_FILES_H

#include "client.h"

/* FILE by `fn`, which gets a descriptor and its name; "-" = standard output,
 * another is whole or as it was.  0 or -1 with `e`. */
int files_into(const char *file,
	       int (*fn)(void *ctx, int fd, const char *name, struct err *e),
	       void *ctx, struct err *e);
/* On standard output, with what does not show, or deceives, as \xNN. */
void files_print_name(const uint8_t *p, size_t len);
/* ROUTE?sandbox=&path=... with one more parameter, or NULL; a path that is not
 * UTF-8 goes by its bytes.  0 or -ENOMEM. */
int files_path(struct cli *c, struct bytes *out, const char *route,
	       const char *sandbox, const char *path, const char *more,
	       const char *value);

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
