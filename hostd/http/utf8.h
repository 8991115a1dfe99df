/*
 * UTF-8, strictly (Unicode 15, table 3-7): no surrogates, no overlong forms,
 * nothing above U+10FFFF.
 */
#ifndef HUTCHD_UTF8_H
#define HUTCHD_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One character at `p`.  Returns its length 1..4 and *ret_cp; 0 = the bytes
 * are the beginning of a character that is cut off by the end; -1 = no
 * character can begin like this.
 */
int utf8_next(const uint8_t *p, size_t len, uint32_t *ret_cp);

/* Encode; returns 1..4.  Surrogates are encoded as they are (3 bytes). */
size_t utf8_put(uint8_t dst[4], uint32_t cp);

bool utf8_is_valid(const void *data, size_t len);

/* Bytes at the end of `data` that only begin a character: 0..3. */
size_t utf8_cut_bytes(const void *data, size_t len);

#endif
