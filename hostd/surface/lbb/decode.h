/*
 * Decoding our own fields of a body, by tables.
 *
 * An object is described by rows {name, function}; a member without a row is
 * refused by its full path ("run.limits.cpus"), as is every value of another
 * type or outside its range: the message names field, value and range.
 */
#ifndef HUTCHD_DECODE_H
#define HUTCHD_DECODE_H

#include "../../http/json_raw.h"

struct decode_field {
	const char *name;
	/* `path`: of the value, for messages.  0 or -1 with `e`. */
	int (*decode)(void *ctx, const char *path, struct json_span v,
		      struct err *e);
};

/* `prefix` "" or "run"; `n` rows. */
int decode_object(void *ctx, const char *prefix, struct json_span v,
		  const struct decode_field *fields, size_t n, struct err *e);

int decode_type(const char *path, struct json_span v, enum json_kind want,
		struct err *e);
/* A whole number within [min, max]; `code` when it is not. */
int decode_u32(const char *path, struct json_span v, uint32_t min, uint32_t max,
	       enum err_code code, uint32_t *ret, struct err *e);
/* Characters of a string, NUL terminated in `ret`; no NUL inside. */
int decode_string(const char *path, struct json_span v, struct bytes *ret,
		  struct err *e);
int decode_bool(const char *path, struct json_span v, bool *ret, struct err *e);

#endif
