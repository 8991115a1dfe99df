/*
 * JSON as the bytes it came in (RFC 8259).
 *
 * User JSON (input, config, results) is never rebuilt: a number like 2^65, a
 * lone surrogate escape or \u0000 keeps its spelling from the request to the
 * guest.  So the daemon does not parse a body into values; it checks the whole
 * text once and then hands out spans of it.
 *
 * json_check refuses, beside what the grammar refuses: bytes that are not
 * UTF-8, a byte order mark, nesting over the limit, and an object that names a
 * member twice ("a" and "\u0061" are the same name), because readers disagree
 * on which of the two counts.  Escapes of lone surrogates and of NUL are legal
 * and carried; a number is any number of the grammar, whatever its size.
 *
 * Everything after json_check trusts the text: the other functions may be
 * called only on spans that come from a text which passed.
 */
#ifndef HUTCHD_JSON_RAW_H
#define HUTCHD_JSON_RAW_H

#include "bytes.h"
#include "err.h"
#include <stdbool.h>

/* Deepest nesting of arrays and objects: in a user's value, and in all. */
#define JSON_USER_DEPTH_MAX 512
#define JSON_DEPTH_MAX	    520

enum json_kind {
	JSON_KIND_NULL,
	JSON_KIND_BOOL,
	JSON_KIND_NUMBER,
	JSON_KIND_STRING,
	JSON_KIND_ARRAY,
	JSON_KIND_OBJECT,
};

/* One value, without white space around it.  Borrows the checked text. */
struct json_span {
	const char *at; /* NULL = none */
	size_t len;
};

/*
 * Check the text.  0 and *ret_root, or -1 with `e`: ERR_INVALID_JSON with
 * what is wrong and at which byte, or ERR_INTERNAL without memory.
 */
int json_check(const void *text, size_t len, unsigned depth_max,
	       struct json_span *ret_root, struct err *e);

enum json_kind json_kind_of(struct json_span v);
const char *json_kind_name(enum json_kind t); /* "an array" */
/* 0 for a scalar, 1 for [] ... */
unsigned json_depth(struct json_span v);

/* Walk an array or an object in the order of the text. */
struct json_iter {
	const char *p, *end;
	bool is_object;
};
struct json_member {
	struct json_span name; /* with its quotes; none in an array */
	struct json_span value;
};
void json_iter_begin(struct json_iter *it, struct json_span v);
bool json_iter_next(struct json_iter *it, struct json_member *ret);

/* Is the string `name` equal to this ASCII text, escapes resolved? */
bool json_name_is(struct json_span name, const char *ascii);

/* The value at a dotted path ("run.limits.vcpus"); false = not there. */
bool json_at(struct json_span v, const char *path, struct json_span *ret);

/*
 * Append a string's characters as UTF-8.  0, -EINVAL: not a string,
 * -EILSEQ: it has a lone surrogate, -ENOMEM.  May contain NUL.
 */
int json_text(struct json_span v, struct bytes *out);

/* 0, -EINVAL: not a number or one with a fraction or an exponent, -ERANGE. */
int json_int(struct json_span v, int64_t *ret);
/* 0 or -EINVAL. */
int json_bool(struct json_span v, bool *ret);

#endif
