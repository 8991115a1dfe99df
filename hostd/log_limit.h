/*
 * How much of each kind of message gets into the daemon's log (K20).
 *
 * A client or a guest can cause most lines as often as it likes.  So each kind
 * (call site of log_error ... log_debug) has a token bucket of its own, and
 * what finds it empty is counted instead of written.  The counts come out as
 * one line a kind, at most every LOG_LIMIT_SUMMARY_MS:
 *
 *   log left_out=N kind="http request=%s status=%d ..."
 *
 * A line that standard error cannot take now (a pipe whose reader stands still)
 * is counted, too: the daemon never waits for its log.
 *
 * So the log grows by a bounded number of bytes a second, whatever happens,
 * and says what it lacks.  Records are in the database; the log is not needed
 * to know what came of a run.
 *
 *   level   at once   then
 *   error   10        2 a second
 *   warn    10        2 a second
 *   info    100       20 a second (state changes of good runs are here)
 *   debug   1000      200 a second
 */
#ifndef HUTCHD_LOG_LIMIT_H
#define HUTCHD_LOG_LIMIT_H

#include "log.h"
#include <stdint.h>

#define LOG_LIMIT_SUMMARY_MS 5000
/* Kinds beyond this many share one bucket. */
#define LOG_LIMIT_KINDS_MAX 256

/* From now on, for all threads; before there are any. */
void log_limit_begin(void);

/* log_gate_fn: takes a token of the kind's bucket. */
bool log_limit_pass(enum log_level level, const char *fmt);

/* Say what was left out since the last call. */
void log_limit_summary(void);

#endif
