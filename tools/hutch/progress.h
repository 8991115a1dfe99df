/*
 * A line on standard error about what is being waited for.
 *
 * On a terminal it is written over; elsewhere (a log) a line is printed when
 * the work changes and every PROGRESS_LOG_S seconds.  Texts end in "(N s)",
 * which is not a change.
 */
#ifndef HUTCH_CLI_PROGRESS_H
#define HUTCH_CLI_PROGRESS_H

#include "client.h"
#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_LOG_S 15

struct progress {
	bool is_tty;
	bool is_shown; /* the cursor's line has a text of ours */
	char work[256];
	int64_t logged_s; /* on the monotonic clock */
};

void progress_init(struct progress *p);
void progress_show(struct progress *p, const char *text);
/* Of a sandbox's record: is it starting?  Shows with what, or clears. */
bool progress_of_sandbox(struct progress *p, struct json_span record);
/* Leaves an empty line for what comes next. */
void progress_clear(struct progress *p);

#endif
