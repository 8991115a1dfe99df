/*
 * The two pipes of a command, from user code's output to its streams.
 *
 * A pipe is watched for one event; after it is read it is left alone for a
 * while and then read or watched again, so a program that writes line by line
 * does not wake init at each line, and a flood costs little.
 */
#ifndef HUTCH_GUEST_PIPES_H
#define HUTCH_GUEST_PIPES_H

#include "command.h"

void pipes_init(struct command *c);
/* Both pipes; the write ends in ret_fds, owned by the caller, also after an
 * error. */
int pipes_open(struct command *c, int ret_fds[2]);
/* Take in the caps and the time-out of RUN or EXEC. */
void pipes_limits(struct command *c, const struct wire_map *m);
/* Read one; true when bytes came. */
bool pipes_visit(struct command *c, int i);
/* Leave both alone, as they are; and see to them again. */
void pipes_unwatch(struct command *c);
void pipes_watch(struct command *c);
void pipes_close(struct command *c);

#endif
