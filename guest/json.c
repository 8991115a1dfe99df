/* JSON syntax; see json.h.  One pass, no recursion, a bit a level. */
#include "json.h"
#include <stdint.h>
#include <string.h>

struct in {
	const uint8_t *p, *end;
};

static void skip_space(struct in *in)
{
	while (in->p < in->end && (*in->p == ' ' || *in->p == '\t' ||
				   *in->p == '\n' || *in->p == '\r'))
		in->p++;
}

static bool take(struct in *in, uint8_t c)
{
	if (in->p == in->end || *in->p != c)
		return false;
	in->p++;
	return true;
}

static bool word(struct in *in, const char *w)
{
	size_t n = strlen(w);

	if ((size_t)(in->end - in->p) < n || memcmp(in->p, w, n))
		return false;
	in->p += n;
	return true;
}

static bool digits(struct in *in)
{
	const uint8_t *from = in->p;

	while (in->p < in->end && *in->p >= '0' && *in->p <= '9')
		in->p++;
	return in->p > from;
}

static bool number(struct in *in)
{
	take(in, '-');
	if (!take(in, '0') && !digits(in))
		return false;
	if (take(in, '.') && !digits(in))
		return false;
	if (take(in, 'e') || take(in, 'E')) {
		if (!take(in, '+'))
			take(in, '-');
		return digits(in);
	}
	return true;
}

static bool utf8_rest(struct in *in, uint8_t first)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	int n = (first & 0xe0) == 0xc0	 ? 2
		: (first & 0xf0) == 0xe0 ? 3
		: (first & 0xf8) == 0xf0 ? 4
					 : 0;
	uint32_t c;

	if (!n || in->end - in->p < n - 1)
		return false;
	c = first & (0x7fu >> n);
	for (int i = 1; i < n; i++) {
		if ((*in->p & 0xc0) != 0x80)
			return false;
		c = c << 6 | (*in->p++ & 0x3f);
	}
	return c >= least[n] && c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000);
}

static bool escape(struct in *in)
{
	if (in->p == in->end)
		return false;
	if (*in->p != 'u')
		return *in->p && strchr("\"\\/bfnrt", *in->p++);
	in->p++;
	for (int i = 0; i < 4; i++, in->p++) {
		uint8_t c;

		if (in->p == in->end)
			return false;
		c = *in->p | 0x20;
		if (!((*in->p >= '0' && *in->p <= '9') ||
		      (c >= 'a' && c <= 'f')))
			return false;
	}
	return true;
}

static bool string(struct in *in)
{
	if (!take(in, '"'))
		return false;
	while (in->p < in->end) {
		uint8_t c = *in->p++;

		if (c == '"')
			return true;
		if (c < 0x20 || (c == '\\' && !escape(in)) ||
		    (c >= 0x80 && !utf8_rest(in, c)))
			return false;
	}
	return false;
}

static bool scalar(struct in *in)
{
	if (in->p == in->end)
		return false;
	switch (*in->p) {
	case '"':
		return string(in);
	case 't':
		return word(in, "true");
	case 'f':
		return word(in, "false");
	case 'n':
		return word(in, "null");
	default:
		return number(in);
	}
}

static bool member_name(struct in *in)
{
	skip_space(in);
	if (!string(in))
		return false;
	skip_space(in);
	return take(in, ':');
}

bool json_is_valid(const void *text, size_t len)
{
	struct in in = {text, (const uint8_t *)text + len};
	uint8_t is_object[JSON_DEPTH_MAX];
	size_t depth = 0;

	for (;;) {
		bool opened = false;

		/* A value, or the start of one. */
		skip_space(&in);
		if (in.p < in.end && (*in.p == '[' || *in.p == '{')) {
			if (depth == JSON_DEPTH_MAX)
				return false;
			is_object[depth++] = *in.p++ == '{';
			skip_space(&in);
			opened = true;
		} else if (!scalar(&in)) {
			return false;
		}
		/* What follows: ends of open values, or the next one. */
		for (;;) {
			skip_space(&in);
			if (!depth)
				return in.p == in.end;
			if (take(&in, is_object[depth - 1] ? '}' : ']')) {
				depth--;
				opened = false;
				continue;
			}
			if (!opened && !take(&in, ','))
				return false;
			if (is_object[depth - 1] && !member_name(&in))
				return false;
			break;
		}
	}
}
