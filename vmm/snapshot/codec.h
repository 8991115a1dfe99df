/*
 * C structs to CBOR and back, by tables.
 *
 * A table of fields describes a struct; its CBOR form is one map, keys in the
 * table's order, each exactly once.  Decoding accepts this form only: another
 * key, another order, a number that does not fit, a byte string of another
 * length, or anything left over is -EPROTO.  Nothing is allocated by sizes in
 * the input, and nesting is as deep as the tables are.
 */
#ifndef HUTCH_CODEC_H
#define HUTCH_CODEC_H

#include "bytes.h"
#include <stddef.h>
#include <stdint.h>

enum codec_kind {
	CODEC_END,
	CODEC_UINT,  /* unsigned integer of `size` bytes: 1, 2, 4 or 8 */
	CODEC_FIXED, /* exactly `size` bytes */
	CODEC_BYTES, /* up to `size` bytes; their count is a uint32_t at `n` */
	CODEC_LIST,  /* up to `size` structs of `stride` bytes by `item`; their
		      * count is a uint32_t at `n` */
};

struct codec_field {
	enum codec_kind kind;
	uint32_t key;
	size_t at, size, n, stride;
	const struct codec_field *item;
	const char *name; /* for messages */
};

#define CODEC_FIELD_UINT(key, type, field)                                     \
	{                                                                      \
		CODEC_UINT, key, offsetof(type, field),                        \
			sizeof(((type *)0)->field), 0, 0, NULL, #field         \
	}
#define CODEC_FIELD_FIXED(key, type, field)                                    \
	{                                                                      \
		CODEC_FIXED, key, offsetof(type, field),                       \
			sizeof(((type *)0)->field), 0, 0, NULL, #field         \
	}
#define CODEC_FIELD_BYTES(key, type, field, count)                             \
	{                                                                      \
		CODEC_BYTES, key, offsetof(type, field),                       \
			sizeof(((type *)0)->field), offsetof(type, count), 0,  \
			NULL, #field                                           \
	}
#define CODEC_FIELD_LIST(key, type, field, count, table)                       \
	{                                                                      \
		CODEC_LIST, key, offsetof(type, field),                        \
			sizeof(((type *)0)->field) /                           \
				sizeof(((type *)0)->field[0]),                 \
			offsetof(type, count), sizeof(((type *)0)->field[0]),  \
			table, #field                                          \
	}
#define CODEC_FIELD_END                                                        \
	{                                                                      \
		CODEC_END, 0, 0, 0, 0, 0, NULL, NULL                           \
	}

/* Append to `out`; 0 or -ENOMEM. */
int codec_encode(struct bytes *out, const struct codec_field *table,
		 const void *from);
/* Decode all of `data`; 0 or -EPROTO, then *ret_field names the field that
 * was wrong (never NULL). */
int codec_decode(const void *data, size_t len, const struct codec_field *table,
		 void *to, const char **ret_field);

#endif
