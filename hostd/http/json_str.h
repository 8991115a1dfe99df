/*
 * Strings of a checked JSON text, from their opening quote.
 *
 * All of these take `at` = the opening quote of a string that json_check
 * accepted: they need no length, the closing quote ends them.  Two strings are
 * equal when their characters are, however they are escaped.
 */
#ifndef HUTCHD_JSON_STR_H
#define HUTCHD_JSON_STR_H

#include <stddef.h>
#include <stdint.h>

/* Value of a hex digit or -1. */
int json_hex(uint8_t c);

/* Next code point, *p moves on; -1 at the closing quote.  A lone surrogate
 * escape comes out as its own number, a pair as one character. */
int32_t json_str_next(const uint8_t **p);

/* `seed`: secret, so that nobody can prepare names that collide. */
uint64_t json_str_hash(const uint8_t *at, uint64_t seed);
int json_str_cmp(const uint8_t *a, const uint8_t *b);
/* For messages: quoted as in the text, cut with "..." when long. */
void json_str_print(char *dst, size_t cap, const uint8_t *at);

#endif
