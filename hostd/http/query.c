/* The query of a URI; see query.h. */
#include "query.h"
#include "json_str.h"
#include "utf8.h"
#include <stdlib.h>
#include <string.h>

void query_finish(struct query *q)
{
	free(q->text);
	memset(q, 0, sizeof(*q));
}

/* Decode `len` bytes to *dst, which moves behind the added NUL.  False = a
 * broken escape, a NUL, or not UTF-8. */
static bool decode(char **dst, const char *src, size_t len)
{
	char *from = *dst, *to = from;

	for (size_t i = 0; i < len; i++) {
		char c = src[i];

		if (c == '+') {
			c = ' ';
		} else if (c == '%') {
			int hi = i + 2 < len ? json_hex((uint8_t)src[i + 1])
					     : -1;
			int lo = hi < 0 ? -1 : json_hex((uint8_t)src[i + 2]);

			if (lo < 0)
				return false;
			c = (char)(hi << 4 | lo);
			i += 2;
		}
		if (!c)
			return false;
		*to++ = c;
	}
	*to = 0;
	*dst = to + 1;
	return utf8_is_valid(from, (size_t)(to - from));
}

static int add(struct query *q, char **dst, const char *item, size_t len,
	       struct err *e)
{
	const char *eq = memchr(item, '=', len);
	size_t name_len = eq ? (size_t)(eq - item) : len;
	const char *name, *value;

	name = *dst;
	if (!decode(dst, item, name_len))
		return err_set(e, ERR_INVALID_REQUEST, "query",
			       "a query parameter's name is not valid "
			       "percent-encoded UTF-8");
	value = *dst;
	if (!decode(dst, eq ? eq + 1 : "", eq ? len - name_len - 1 : 0))
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "query parameter %s is not valid "
			       "percent-encoded UTF-8",
			       name);
	if (query_get(q, name))
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "query parameter %s comes twice", name);
	if (q->n == QUERY_ITEMS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "more than %d query parameters",
			       QUERY_ITEMS_MAX);
	q->items[q->n].name = name;
	q->items[q->n++].value = value;
	return 0;
}

int query_parse(struct query *q, const char *raw, struct err *e)
{
	size_t len = raw ? strlen(raw) : 0;
	char *dst;

	memset(q, 0, sizeof(*q));
	if (!len)
		return 0;
	/* Each item adds at most two NULs and loses at least one separator. */
	dst = q->text = malloc(2 * len + 2);
	if (!dst)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	while (*raw) {
		size_t n = strcspn(raw, "&");

		if (n && add(q, &dst, raw, n, e)) {
			query_finish(q);
			return -1;
		}
		raw += n + (raw[n] == '&');
	}
	return 0;
}

const char *query_get(const struct query *q, const char *name)
{
	for (unsigned i = 0; i < q->n; i++)
		if (!strcmp(q->items[i].name, name))
			return q->items[i].value;
	return NULL;
}

int query_u64(const struct query *q, const char *name, uint64_t min,
	      uint64_t max, uint64_t otherwise, uint64_t *ret, struct err *e)
{
	const char *text = query_get(q, name);
	uint64_t n = 0;
	bool is_good;

	if (!text) {
		*ret = otherwise;
		return 0;
	}
	is_good = *text;
	for (const char *p = text; is_good && *p; p++)
		is_good = *p >= '0' && *p <= '9' &&
			  !__builtin_mul_overflow(n, (uint64_t)10, &n) &&
			  !__builtin_add_overflow(n, (uint64_t)(*p - '0'), &n);
	if (!is_good || n < min || n > max)
		return err_set(e, ERR_INVALID_REQUEST, name,
			       "%s is \"%.40s\"; it must be a whole number "
			       "from %llu to %llu",
			       name, text, (unsigned long long)min,
			       (unsigned long long)max);
	*ret = n;
	return 0;
}

static bool is_in(const char *name, const char *const *list)
{
	for (; list && *list; list++)
		if (!strcmp(name, *list))
			return true;
	return false;
}

int query_check(const struct query *q, const char *const *known,
		const char *const *more, struct err *e)
{
	for (unsigned i = 0; i < q->n; i++) {
		const char *name = q->items[i].name;

		if (!is_in(name, known) && !is_in(name, more))
			return err_set(e, ERR_INVALID_REQUEST, name,
				       "unknown query parameter %.64s", name);
	}
	return 0;
}
