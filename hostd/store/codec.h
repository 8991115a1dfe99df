/*
 * Records as CBOR maps, by table.
 *
 * A record type is a list of fields: map key, kind, place in the struct,
 * bounds.  The same list encodes and decodes, so the two cannot drift apart.
 * The map has unsigned keys, and key 0 is the record's version; its values are
 * plain, but for lists of records that are nothing by themselves.
 *
 * Decoding believes nothing (a file may be damaged or tampered with): it uses
 * libcbor's streaming decoder, which allocates nothing, and takes exactly one
 * definite map that holds every field once, each of its kind and inside its
 * bounds, and not a byte more.  Anything else is -EBADMSG and leaves the
 * record empty.  A new field is a new version with a list of its own.
 */
#ifndef HUTCHD_CODEC_H
#define HUTCHD_CODEC_H

#include "bytes.h"
#include <stdint.h>

enum field_kind {
	F_U32,	 /* uint32_t, min..max */
	F_U64,	 /* uint64_t, min..max */
	F_I32,	 /* int32_t, any */
	F_I64,	 /* int64_t, any */
	F_ENUM,	 /* an enum (unsigned in memory), min..max */
	F_BOOL,	 /* bool */
	F_TEXT,	 /* char[]: printable ASCII, at most max bytes + NUL */
	F_HASH,	 /* uint8_t[max], exactly max bytes */
	F_BYTES, /* struct bytes, at most max bytes */
	F_LIST,	 /* struct record_list of the type's `items`, min..max */
};

/* As a record has them: a pointer to its structs, and how many. */
struct record_list {
	void *at; /* owned; NULL = none */
	size_t n;
};

struct field {
	uint32_t key; /* 1..63 */
	enum field_kind kind;
	size_t offset;
	uint64_t min, max;
};

struct record_type {
	const char *name;
	uint32_t version;
	size_t size; /* of the struct */
	const struct field *fields;
	size_t n_fields;
	const struct record_type *items; /* of its lists; NULL = it has none */
};

/* 0, -ENOMEM, or -EINVAL: a value is outside what the list allows. */
int codec_encode(const struct record_type *t, const void *rec,
		 struct bytes *out);
/* 0, -ENOMEM, -EBADMSG, or -ENOTSUP: another version. */
int codec_decode(const struct record_type *t, void *rec, const void *cbor,
		 size_t len);
/* Frees the F_BYTES and F_LIST fields and zeroes the record. */
void codec_finish(const struct record_type *t, void *rec);

#endif
