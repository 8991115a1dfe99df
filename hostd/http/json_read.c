/* Reading a checked JSON text by spans; see json_raw.h. */
#include "json_raw.h"
#include "json_str.h"
#include "utf8.h"
#include <errno.h>

enum json_kind json_kind_of(struct json_span v)
{
	switch (*v.at) {
	case '{':
		return JSON_KIND_OBJECT;
	case '[':
		return JSON_KIND_ARRAY;
	case '"':
		return JSON_KIND_STRING;
	case 't':
	case 'f':
		return JSON_KIND_BOOL;
	case 'n':
		return JSON_KIND_NULL;
	default:
		return JSON_KIND_NUMBER;
	}
}

const char *json_kind_name(enum json_kind t)
{
	static const char *const names[] = {
		[JSON_KIND_NULL] = "null",
		[JSON_KIND_BOOL] = "a boolean",
		[JSON_KIND_NUMBER] = "a number",
		[JSON_KIND_STRING] = "a string",
		[JSON_KIND_ARRAY] = "an array",
		[JSON_KIND_OBJECT] = "an object",
	};

	return names[t];
}

static const char *string_end(const char *p)
{
	for (p++; *p != '"'; p++)
		if (*p == '\\')
			p++;
	return p + 1;
}

unsigned json_depth(struct json_span v)
{
	const char *end = v.at + v.len;
	unsigned depth = 0, most = 0;

	for (const char *p = v.at; p < end;) {
		if (*p == '"') {
			p = string_end(p);
			continue;
		}
		if (*p == '{' || *p == '[') {
			if (++depth > most)
				most = depth;
		} else if (*p == '}' || *p == ']') {
			depth--;
		}
		p++;
	}
	return most;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && is_space(*p))
		p++;
	return p;
}

static const char *value_end(const char *p, const char *end)
{
	unsigned depth = 0;

	if (*p != '"' && *p != '{' && *p != '[') {
		while (p < end && !is_space(*p) && *p != ',' && *p != '}' &&
		       *p != ']')
			p++;
		return p;
	}
	do {
		if (*p == '"') {
			p = string_end(p);
			continue;
		}
		if (*p == '{' || *p == '[')
			depth++;
		else if (*p == '}' || *p == ']')
			depth--;
		p++;
	} while (depth);
	return p;
}

void json_iter_begin(struct json_iter *it, struct json_span v)
{
	it->is_object = *v.at == '{';
	it->p = v.at + 1;
	it->end = v.at + v.len - 1; /* the closing bracket */
}

bool json_iter_next(struct json_iter *it, struct json_member *ret)
{
	const char *p = skip_space(it->p, it->end);

	*ret = (struct json_member){0};
	if (p == it->end)
		return false;
	if (*p == ',')
		p = skip_space(p + 1, it->end);
	if (it->is_object) {
		const char *name_end = string_end(p);

		ret->name = (struct json_span){p, (size_t)(name_end - p)};
		p = skip_space(name_end, it->end);
		p = skip_space(p + 1, it->end); /* ':' */
	}
	it->p = value_end(p, it->end);
	ret->value = (struct json_span){p, (size_t)(it->p - p)};
	return true;
}

static bool name_is(struct json_span name, const char *ascii, size_t len)
{
	const uint8_t *p = (const uint8_t *)name.at + 1;

	for (size_t i = 0; i < len; i++)
		if (json_str_next(&p) != (unsigned char)ascii[i])
			return false;
	return json_str_next(&p) < 0;
}

bool json_name_is(struct json_span name, const char *ascii)
{
	return name_is(name, ascii, strlen(ascii));
}

static bool get(struct json_span v, const char *name, size_t len,
		struct json_span *ret)
{
	struct json_member m;
	struct json_iter it;

	if (json_kind_of(v) != JSON_KIND_OBJECT)
		return false;
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m)) {
		if (!name_is(m.name, name, len))
			continue;
		*ret = m.value;
		return true;
	}
	return false;
}

bool json_at(struct json_span v, const char *path, struct json_span *ret)
{
	while (*path) {
		size_t len = strcspn(path, ".");

		if (!get(v, path, len, &v))
			return false;
		path += len + (path[len] == '.');
	}
	*ret = v;
	return true;
}

int json_text(struct json_span v, struct bytes *out)
{
	const uint8_t *p = (const uint8_t *)v.at + 1;
	int32_t cp;
	int rc;

	if (json_kind_of(v) != JSON_KIND_STRING)
		return -EINVAL;
	/* No escape is shorter than what it stands for. */
	rc = bytes_reserve(out, v.len + 4);
	if (rc)
		return rc;
	while ((cp = json_str_next(&p)) >= 0) {
		if (cp >= 0xd800 && cp <= 0xdfff)
			return -EILSEQ;
		out->len += utf8_put(out->data + out->len, (uint32_t)cp);
	}
	return 0;
}

int json_int(struct json_span v, int64_t *ret)
{
	bool is_negative = *v.at == '-';
	int64_t n = 0;

	if (json_kind_of(v) != JSON_KIND_NUMBER)
		return -EINVAL;
	for (size_t i = is_negative; i < v.len; i++)
		if (v.at[i] < '0' || v.at[i] > '9')
			return -EINVAL;
	for (size_t i = is_negative; i < v.len; i++) {
		int digit = v.at[i] - '0';

		if (__builtin_mul_overflow(n, (int64_t)10, &n) ||
		    __builtin_sub_overflow(n, (int64_t)digit, &n))
			return -ERANGE;
	}
	if (!is_negative && __builtin_sub_overflow((int64_t)0, n, &n))
		return -ERANGE;
	*ret = n;
	return 0;
}

int json_bool(struct json_span v, bool *ret)
{
	if (json_kind_of(v) != JSON_KIND_BOOL)
		return -EINVAL;
	*ret = *v.at == 't';
	return 0;
}
