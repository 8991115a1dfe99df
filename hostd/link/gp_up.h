/*
 * Payloads from the guest: one flat CBOR map, decoded under limits.
 *
 * A payload is described by a table of rules: which keys there are, of what
 * kind, and in which range.  Everything else is refused: unknown or repeated
 * keys, nested values, indefinite lengths, tags, floats, null, negative
 * numbers, bytes after the map.  Work is one pass over the input, the stack is
 * constant and nothing is allocated, so a hostile payload costs its own length
 * and no more.
 */
#ifndef HUTCHD_GP_UP_H
#define HUTCHD_GP_UP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gp_kind { GP_KIND_UINT = 1, GP_KIND_BYTES, GP_KIND_TEXT, GP_KIND_BOOL };

#define GP_UP_KEY_MAX 15 /* keys are 1 ... 15 */

struct gp_rule {
	uint8_t key;
	uint8_t kind; /* enum gp_kind */
	bool is_required;
	uint64_t min, max; /* of the number, or of the length in bytes */
};

struct gp_value {
	bool is_set;
	uint64_t u;	     /* UINT, BOOL */
	const uint8_t *data; /* BYTES, TEXT: borrowed from the payload */
	size_t len;
};

struct gp_map {
	struct gp_value v[GP_UP_KEY_MAX + 1]; /* by key */
};

/*
 * 0, or -EPROTO with *ret_why (a constant sentence).  Text is valid UTF-8.
 */
int gp_map_decode(const void *payload, size_t len, const struct gp_rule *rules,
		  size_t n_rules, struct gp_map *ret, const char **ret_why);

/*
 * Text of the guest for people: control bytes, C1, bidirectional marks and
 * bytes that are not UTF-8 become '?', tab and line feed stay when
 * `keep_lines`; cut at a character's edge so that it fits `cap` with the NUL.
 */
void gp_text_clean(char *dst, size_t cap, const void *src, size_t len,
		   bool keep_lines);
bool gp_utf8_is_valid(const void *src, size_t len);

#endif
