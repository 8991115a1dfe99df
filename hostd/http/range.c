/*
 * Range and If-Range of a request (RFC 9110, 13.1.5 and 14.2).
 *
 * One range of bytes is answered.  What asks for more than one, or is not
 * understood, is answered with all of it, as the RFC allows: so no client can
 * make the daemon give the same bytes a thousand times in one answer.
 */
#include "request.h"
#include <strings.h>

/* Digits at *at, moved behind them; false: none, or too many. */
static bool number(const char **at, uint64_t *ret)
{
	const char *p = *at;
	uint64_t n = 0;

	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(n, (uint64_t)10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
			n = UINT64_MAX / 16;
	if (p == *at)
		return false;
	*at = p;
	*ret = n;
	return true;
}

/* "0-4", "5-", "-3" of `total` bytes, as request_range. */
static int one_range(const char *p, uint64_t total, uint64_t *ret_at,
		     uint64_t *ret_len)
{
	uint64_t first = 0, last = UINT64_MAX, n;
	bool has_first = number(&p, &first), has_last;

	if (*p++ != '-')
		return 0;
	has_last = number(&p, &n);
	p += strspn(p, " \t");
	if (*p || (!has_first && !has_last))
		return 0;
	if (!has_first) {
		first = n < total ? total - n : 0;
		if (!n)
			first = total;
	} else if (has_last) {
		if (n < first)
			return 0; /* not a range at all */
		last = n;
	}
	if (first >= total)
		return -1;
	*ret_at = first;
	*ret_len = (last < total - 1 ? last : total - 1) - first + 1;
	return 1;
}

int request_range(const struct request *r, const char *etag, uint64_t total,
		  uint64_t *ret_at, uint64_t *ret_len)
{
	const char *range = request_header(r, "Range");
	const char *only = request_header(r, "If-Range");
	size_t len = strlen(etag);

	if (!range || strncasecmp(range, "bytes", 5))
		return 0;
	range += 5;
	range += strspn(range, " \t");
	if (*range++ != '=')
		return 0;
	range += strspn(range, " \t");
	if (only && (*only != '"' || strncmp(only + 1, etag, len) ||
		     strcmp(only + 1 + len, "\"") != 0))
		return 0;
	return one_range(range, total, ret_at, ret_len);
}
