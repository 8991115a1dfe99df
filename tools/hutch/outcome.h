/*
 * How a command ended, in words and as an exit status.
 *
 * `root` is a command's record or a run's answer: both have status, reason,
 * message, exit_code, signal and timeout_ms.
 */
#ifndef HUTCH_CLI_OUTCOME_H
#define HUTCH_CLI_OUTCOME_H

#include "client.h"

/* Exit statuses for ends that are no exit code of the program. */
#define EXIT_TIMED_OUT	    124 /* as timeout(1) */
#define EXIT_CANCELLED	    CLI_EXIT_INTERRUPTED
#define EXIT_SIGNAL	    128
#define EXIT_NOT_STARTED    75	/* no code ran: try again */
#define EXIT_NOT_EXECUTABLE 126 /* as a shell */
#define EXIT_NOT_FOUND	    127
#define EXIT_LOST	    75 /* nobody knows: try again */

/* "failed: exit code 7", "timed out after 3 s (--timeout)" ... */
void outcome_text(struct json_span root, char *dst, size_t cap);
int outcome_exit_status(struct json_span root);
/* No code ran, because the host or the VM could not be made ready. */
bool outcome_is_not_started(struct json_span root);
/* Why execve refused the program of an argv command: the status of a shell, or
 * 0 for all else. */
int outcome_exec_refused(struct json_span root);

#endif
