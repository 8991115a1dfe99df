/*
 * What a command wrote: read from the daemon by byte offset, as it comes.
 *
 * A pump follows one stream.  Bytes between head and tail that the daemon did
 * not keep are said on standard error (or are fields of the JSON): the stream
 * itself has only what the command wrote.  Of a flood that is followed the
 * first gap is said where it is, the others in one line at the end.
 */
#ifndef HUTCH_CLI_OUTPUT_H
#define HUTCH_CLI_OUTPUT_H

#include "client.h"

/* A result is at most as long: see pump_wrote_only. */
#define PUMP_FIRST_BYTES (64u << 10)

struct pump {
	const char *stream; /* "stdout", "stderr" */
	uint64_t offset;    /* to read next */
	uint64_t end;	    /* of what was read */
	uint64_t omitted, omitted_at;
	uint64_t told; /* of the omitted: said on standard error */
	bool is_eof;
	char last_byte;
	int fd;		    /* where to write; -1 = into `kept` */
	struct bytes kept;  /* owned */
	struct bytes first; /* owned: the first bytes written to `fd` */
};

void pump_init(struct pump *p, const char *stream, int fd);
void pump_finish(struct pump *p);

/* Everything there is now; 0 or -1 with `e`. */
int pump_read(struct cli *c, struct pump *p, const char *command,
	      struct err *e);

/* Would a text that follows begin a line of its own? */
bool pump_ends_in_line(const struct pump *p);
/* Was `data`, but for space around it, all that was written to `fd`? */
bool pump_wrote_only(const struct pump *p, const void *data, size_t len);
/* NAME, NAME_truncated and, when so, NAME_omitted_bytes, NAME_omitted_at. */
void pump_json(const struct pump *p, struct json_out *j);

/* In place; the daemon's own encoding, so anything odd is an error: -1. */
int base64_decode(struct bytes *b);

#endif
