/*
 * A file with a seal: what a snapshot consists of beside its memory.
 *
 *   {1: magic, 2: version, 3: SHA-256 of the body, 4: body}
 *
 * in CBOR, and the body by a table (codec.h).  Whatever lies on disk is input:
 * a file is refused by name when it is torn, altered, of another version, or
 * something else.  What its fields may hold is for who reads it to check.
 */
#ifndef HUTCH_SEALED_H
#define HUTCH_SEALED_H

#include "codec.h"
#include "err.h"

#define SEALED_MAGIC_BYTES 8
#define SEALED_BYTES_MAX   (2u << 20)

struct sealed_kind {
	const char *name; /* for messages: "state file" */
	char magic[SEALED_MAGIC_BYTES];
	uint32_t version; /* changed with the table, and with any meaning */
	const struct codec_field *table;
};

/* 0 or -errno with `e`. */
int sealed_write(int fd, const struct sealed_kind *k, const void *from,
		 struct err *e);
/* 0 or -1 with `e`; `to` is then partly filled. */
int sealed_read(int fd, const struct sealed_kind *k, void *to, struct err *e);

#endif
