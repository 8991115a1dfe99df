/*
 * Writing JSON: our own fields, and user JSON byte for byte.
 *
 * A writer appends to a buffer and keeps the first failure (no memory) in
 * `rc`; the caller looks once at the end.  `key` is a literal of ours, or NULL
 * inside an array and at the top.
 */
#ifndef HUTCHD_JSON_OUT_H
#define HUTCHD_JSON_OUT_H

#include "bytes.h"
#include <stdbool.h>

struct json_out {
	struct bytes buf; /* owned */
	bool needs_comma;
	int rc;
};

void json_out_finish(struct json_out *j);

void json_out_begin(struct json_out *j, const char *key, char bracket);
void json_out_end(struct json_out *j, char bracket);

/* NULL text = null. */
void json_out_str(struct json_out *j, const char *key, const char *text);
/*
 * `len` foreign bytes as a string: what is not UTF-8 becomes U+FFFD, one for
 * each byte.  Returns whether that happened.
 */
bool json_out_text(struct json_out *j, const char *key, const void *text,
		   size_t len);
void json_out_i64(struct json_out *j, const char *key, int64_t n);
void json_out_u64(struct json_out *j, const char *key, uint64_t n);
void json_out_bool(struct json_out *j, const char *key, bool is);
void json_out_null(struct json_out *j, const char *key);
/* A checked JSON text as it is. */
void json_out_raw(struct json_out *j, const char *key, const void *json,
		  size_t len);
/* Unix milliseconds as "2026-10-21T07:28:00.000Z"; 0 = null. */
void json_out_time(struct json_out *j, const char *key, int64_t wall_ms);
void json_out_hex(struct json_out *j, const char *key, const uint8_t *data,
		  size_t len);
void json_out_base64(struct json_out *j, const char *key, const void *data,
		     size_t len);

#endif
