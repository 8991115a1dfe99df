/* Strings of a checked JSON text; see json_str.h. */
#include "json_str.h"
#include "utf8.h"
#include <stdio.h>
#include <string.h>

int json_hex(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int32_t hex4(const uint8_t *p)
{
	return json_hex(p[0]) << 12 | json_hex(p[1]) << 8 |
	       json_hex(p[2]) << 4 | json_hex(p[3]);
}

static int32_t escaped(const uint8_t **p)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	int32_t cp, low;
	uint8_t c = *(*p)++;

	if (c != 'u')
		return to[strchr(from, c) - from];
	cp = hex4(*p);
	*p += 4;
	if (cp < 0xd800 || cp > 0xdbff || (*p)[0] != '\\' || (*p)[1] != 'u')
		return cp;
	low = hex4(*p + 2);
	if (low < 0xdc00 || low > 0xdfff)
		return cp;
	*p += 6;
	return 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
}

int32_t json_str_next(const uint8_t **p)
{
	uint32_t cp = 0;

	if (**p == '"')
		return -1;
	if (**p == '\\') {
		++*p;
		return escaped(p);
	}
	/* Checked text: a whole character is there. */
	*p += utf8_next(*p, 4, &cp);
	return (int32_t)cp;
}

uint64_t json_str_hash(const uint8_t *at, uint64_t seed)
{
	uint64_t h = 0xcbf29ce484222325ull ^ seed;
	int32_t cp;

	for (at++; (cp = json_str_next(&at)) >= 0;)
		h = (h ^ (uint64_t)cp) * 0x100000001b3ull;
	return h;
}

int json_str_cmp(const uint8_t *a, const uint8_t *b)
{
	int32_t ca, cb;

	a++;
	b++;
	do {
		ca = json_str_next(&a);
		cb = json_str_next(&b);
	} while (ca == cb && ca >= 0);
	return ca < cb ? -1 : ca > cb;
}

void json_str_print(char *dst, size_t cap, const uint8_t *at)
{
	const uint8_t *p = at + 1;
	const uint8_t *last = p;

	while (json_str_next(&p) >= 0 && (size_t)(p - at) + 5 < cap)
		last = p;
	snprintf(dst, cap, "%.*s%s", (int)(last - at), (const char *)at,
		 *last == '"' ? "\"" : "...\"");
}
