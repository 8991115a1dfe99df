/*
 * What the host hears about a command: STARTED, OUTPUT, ENDED.
 *
 * Nothing is lost with a connection: streams and ENDED are kept until the
 * host's ACK, and report_again() tells everything from the start.
 */
#ifndef HUTCH_GUEST_REPORT_H
#define HUTCH_GUEST_REPORT_H

#include "command.h"

void report_started(struct command *c);
/* Soon: now when much waits, else within OUTPUT_BATCH_MS. */
void report_output_later(struct command *c);
void report_output(struct command *c);
/* All output that is left, then ENDED. */
void report_ended(struct command *c);
/* The connection has room again, or is a new one. */
void report_room(struct guest *g);
void report_again(struct guest *g);
/* ENDED for a number that has no command here. */
void report_refused(struct guest *g, uint64_t number, const char *text);

#endif
