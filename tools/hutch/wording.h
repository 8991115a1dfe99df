/*
 * The API's refusals in the words of the command line.
 *
 * The daemon names a field of its request ("run.limits.memory_mib is 64; it
 * must be ..."); who typed --memory 64 knows only the option.
 */
#ifndef HUTCH_CLI_WORDING_H
#define HUTCH_CLI_WORDING_H

#include "err.h"

/* `e->param`, and the field at the beginning of the text, become the option's
 * name; a field without an option stays. */
void wording_of_options(struct err *e);

#endif
