/* Growable byte string; see bytes.h. */
#include "bytes.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void bytes_finish(struct bytes *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}

int bytes_reserve(struct bytes *b, size_t more)
{
	size_t need, cap = b->cap ? b->cap : 256;
	uint8_t *p;

	if (__builtin_add_overflow(b->len, more, &need))
		return -ENOMEM;
	if (need <= b->cap)
		return 0;
	while (cap < need)
		if (__builtin_mul_overflow(cap, (size_t)2, &cap))
			return -ENOMEM;
	p = realloc(b->data, cap);
	if (!p)
		return -ENOMEM;
	b->data = p;
	b->cap = cap;
	return 0;
}

int bytes_append(struct bytes *b, const void *src, size_t len)
{
	int rc = bytes_reserve(b, len);

	if (rc)
		return rc;
	if (len)
		memcpy(b->data + b->len, src, len);
	b->len += len;
	return 0;
}

int bytes_printf(struct bytes *b, const char *fmt, ...)
{
	va_list ap;
	int n, rc;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	rc = bytes_reserve(b, (size_t)n + 1);
	if (rc)
		return rc;
	va_start(ap, fmt);
	vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

void bytes_consume(struct bytes *b, size_t n)
{
	if (n > b->len)
		n = b->len;
	if (!n)
		return;
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
}
