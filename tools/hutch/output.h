/*
 * What a command wrote: read from the daemon by byte offset, as it comes.
 *
 * A pump follows one stream.  Bytes between head and tail that the daemon did
 * not keep are named in the text's place.
 */
#ifndef HUTCH_CLI_OUTPUT_H
#define HUTCH_CLI_OUTPUT_H

#include "client.h"

struct pump {
	const char *stream; /* "stdout", "stderr" */
	uint64_t offset;
	bool is_eof, is_truncated;
	int fd;		   /* where to write; -1 = into `kept` */
	struct bytes kept; /* owned */
};

void pump_init(struct pump *p, const char *stream, int fd);
void pump_finish(struct pump *p);

/* Everything there is now; 0 or -1 with `e`. */
int pump_read(struct cli *c, struct pump *p, const char *command,
	      struct err *e);

#endif
