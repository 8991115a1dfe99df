/*
 * Files of a runner under the sandbox's /run/hutch (tmpfs): the runner's own
 * program, and for the shell the request and the result.
 *
 *   python.py node.js shell.sh    the program, root's, read-only
 *   lane.so lane.node spare.so    what it loads (runner/)
 *   code input config env         shell only; root's, written at RUN
 *   out/result                    shell only; the user's: JSON, or empty
 *
 * All are made and opened before the snapshot; a run only writes into them.
 */
#ifndef HUTCH_GUEST_RUNNER_FILES_H
#define HUTCH_GUEST_RUNNER_FILES_H

#include "guest.h"

#define RUNNER_DIR "/run/hutch/" /* as user code sees it */

/* Fresh files for the next runner; 0 or -errno. */
int runner_files_make(struct guest *g);
/* This kind of runner knows what an express lane is. */
bool runner_files_know_lane(enum runner_kind kind);
/* `role`: "lane", "zygote" or NULL */
void runner_files_argv(struct guest *g, struct nest_strings *s,
		       const char *role, uint32_t *ret_n);
void runner_files_env(struct guest *g, struct nest_strings *s, uint32_t *ret_n);
/* What the runner gets as standard input; a new descriptor. */
int runner_files_stdin(struct guest *g);
/* Shell: the request into the files, and the byte that wakes it. */
int runner_files_request(struct command *c, const struct wire_map *m);
/* Shell: out/result becomes the answer. */
void runner_files_result(struct command *c);

/* `list` as lines that a shell can source; names that are none are left out. */
int runner_files_env_text(struct span list, struct bytes *ret);

#endif
