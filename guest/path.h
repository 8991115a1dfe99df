/*
 * The search of execvp(3) with the PATH of another environment, and no shell
 * implied: for init's starts (spawn.c) and for interpreters that wait
 * (runner/spare.c).
 */
#ifndef HUTCH_GUEST_PATH_H
#define HUTCH_GUEST_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* Longest name that is tried, with its NUL. */
#define PATH_BYTES_MAX 4096

/* Value of `name` in a list of "NAME=value", or NULL. */
const char *path_env_get(char *const *env, const char *name);

/* The names that `file` may have, one after another. */
struct path_search {
	const char *file;
	const char *at; /* of PATH; NULL: at its end */
};
void path_search_init(struct path_search *s, const char *file,
		      char *const *env);
/* false: there is no other.  Names that are too long are left out. */
bool path_search_next(struct path_search *s, char ret[PATH_BYTES_MAX]);

/* Comes back only with an error, in errno. */
void path_exec(char *const *argv, char *const *env);

#endif
