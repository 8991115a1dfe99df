/*
 * EXEC: a program with arguments in the sandbox.
 *
 * The nest starts one at a time, so commands queue here in the order in which
 * they came.  No shell is implied.
 */
#ifndef HUTCH_GUEST_EXEC_H
#define HUTCH_GUEST_EXEC_H

#include "command.h"

/* The frame's payload; the command exists and is QUEUED. */
void exec_ask(struct command *c, const void *payload, size_t len);
/* A program of our own (warm-up): argv ends with NULL. */
int exec_internal(struct guest *g, const char *const *argv, uint64_t timeout_ms,
		  void (*done)(struct command *c));
/* The nest is free again: hand it the next one. */
void exec_next(struct guest *g);

/* Environment that every process gets, then what the request adds. */
void exec_add_env(struct nest_strings *s, struct span list, bool is_shell,
		  uint32_t *ret_n);

/* cwd, argv and env of an EXEC. */
void exec_add_all(const struct guest *g, struct nest_strings *s,
		  const struct wire_map *m, uint32_t *ret_argc,
		  uint32_t *ret_envc);
/* Standard input that is these bytes: a new descriptor, or -errno. */
int exec_stdin_make(const struct guest *g, struct span data);

#endif
