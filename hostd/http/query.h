/*
 * The query of a URI, decoded once and strictly.
 *
 * %XX and '+' are resolved; a name that comes twice, a broken escape, a NUL
 * or bytes that are not UTF-8 are refused, so that two readers can never see
 * two requests.
 */
#ifndef HUTCHD_QUERY_H
#define HUTCHD_QUERY_H

#include "err.h"
#include <stdint.h>

#define QUERY_ITEMS_MAX 16

struct query {
	char *text; /* owned: the decoded names and values */
	struct {
		const char *name, *value; /* into text */
	} items[QUERY_ITEMS_MAX];
	unsigned n;
};

/* `raw`: what follows the '?', may be NULL.  0 or -1 with `e`. */
int query_parse(struct query *q, const char *raw, struct err *e);
void query_finish(struct query *q);

/* Value or NULL. */
const char *query_get(const struct query *q, const char *name);
/* The value as a number within [min, max], or `otherwise` when absent. */
int query_u64(const struct query *q, const char *name, uint64_t min,
	      uint64_t max, uint64_t otherwise, uint64_t *ret, struct err *e);
/* Refuse names that are in none of the two NULL-terminated lists. */
int query_check(const struct query *q, const char *const *known,
		const char *const *more, struct err *e);

#endif
