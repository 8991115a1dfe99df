/* Strict UTF-8; see utf8.h. */
#include "utf8.h"

int utf8_next(const uint8_t *p, size_t len, uint32_t *ret_cp)
{
	uint8_t lo = 0x80, hi = 0xbf;
	uint32_t cp;
	size_t need;

	if (!len)
		return 0;
	if (p[0] < 0x80) {
		*ret_cp = p[0];
		return 1;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return -1;
	need = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	cp = p[0] & (0xffu >> (need + 1));
	/* The second byte's range excludes overlong forms and surrogates. */
	if (p[0] == 0xe0)
		lo = 0xa0;
	else if (p[0] == 0xed)
		hi = 0x9f;
	else if (p[0] == 0xf0)
		lo = 0x90;
	else if (p[0] == 0xf4)
		hi = 0x8f;
	for (size_t i = 1; i < need; i++) {
		if (i == len)
			return 0;
		if (p[i] < lo || p[i] > hi)
			return -1;
		cp = cp << 6 | (p[i] & 0x3f);
		lo = 0x80;
		hi = 0xbf;
	}
	*ret_cp = cp;
	return (int)need;
}

size_t utf8_put(uint8_t dst[4], uint32_t cp)
{
	if (cp < 0x80) {
		dst[0] = (uint8_t)cp;
		return 1;
	}
	if (cp < 0x800) {
		dst[0] = (uint8_t)(0xc0 | cp >> 6);
		dst[1] = (uint8_t)(0x80 | (cp & 0x3f));
		return 2;
	}
	if (cp < 0x10000) {
		dst[0] = (uint8_t)(0xe0 | cp >> 12);
		dst[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
		dst[2] = (uint8_t)(0x80 | (cp & 0x3f));
		return 3;
	}
	dst[0] = (uint8_t)(0xf0 | cp >> 18);
	dst[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
	dst[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
	dst[3] = (uint8_t)(0x80 | (cp & 0x3f));
	return 4;
}

bool utf8_is_valid(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t cp;

	while (len) {
		int n = utf8_next(p, len, &cp);

		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

size_t utf8_cut_bytes(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t cp;

	for (size_t n = 1; n <= 3 && n <= len; n++) {
		if ((p[len - n] & 0xc0) == 0x80)
			continue;
		return utf8_next(p + len - n, n, &cp) == 0 ? n : 0;
	}
	return 0;
}
