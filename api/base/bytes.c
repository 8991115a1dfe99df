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

/* The capacity for `more` bytes; 0 = it is there. */
static int cap_for(const struct bytes *b, size_t more, size_t *ret_cap)
{
	size_t need, cap = b->cap ? b->cap : 256;

	*ret_cap = 0;
	if (__builtin_add_overflow(b->len, more, &need))
		return -ENOMEM;
	if (need <= b->cap)
		return 0;
	while (cap < need)
		if (__builtin_mul_overflow(cap, (size_t)2, &cap))
			return -ENOMEM;
	*ret_cap = cap;
	return 0;
}

int bytes_reserve(struct bytes *b, size_t more)
{
	size_t cap;
	uint8_t *p;

	if (cap_for(b, more, &cap))
		return -ENOMEM;
	if (!cap)
		return 0;
	p = realloc(b->data, cap);
	if (!p)
		return -ENOMEM;
	b->data = p;
	b->cap = cap;
	return 0;
}

void bytes_finish_secret(struct bytes *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	bytes_finish(b);
}

/* realloc would leave the old copy where it was. */
static int reserve_secret(struct bytes *b, size_t more)
{
	struct bytes grown = {0};
	size_t cap;

	if (cap_for(b, more, &cap))
		return -ENOMEM;
	if (!cap)
		return 0;
	grown.data = malloc(cap);
	if (!grown.data)
		return -ENOMEM;
	grown.len = b->len;
	grown.cap = cap;
	if (b->len)
		memcpy(grown.data, b->data, b->len);
	bytes_finish_secret(b);
	*b = grown;
	return 0;
}

int bytes_append_secret(struct bytes *b, const void *src, size_t len)
{
	int rc = reserve_secret(b, len);

	return rc ? rc : bytes_append(b, src, len);
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
