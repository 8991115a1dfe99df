/* Decoding our own fields; see decode.h. */
#include "decode.h"
#include "../../http/json_str.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES_MAX 96
/* Of a wrong value, in a message. */
#define SHOWN_BYTES_MAX 40

/* A value as it is written in the body, cut. */
static const char *shown(struct json_span v, char dst[SHOWN_BYTES_MAX + 4])
{
	int n = v.len < SHOWN_BYTES_MAX ? (int)v.len : SHOWN_BYTES_MAX;

	snprintf(dst, SHOWN_BYTES_MAX + 4, "%.*s%s", n, v.at,
		 v.len > SHOWN_BYTES_MAX ? "..." : "");
	return dst;
}

int decode_object(void *ctx, const char *prefix, struct json_span v,
		  const struct decode_field *fields, size_t n, struct err *e)
{
	char name[PATH_BYTES_MAX / 2], path[PATH_BYTES_MAX];
	struct json_member m;
	struct json_iter it;

	if (decode_type(prefix, v, JSON_KIND_OBJECT, e))
		return -1;
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m)) {
		const struct decode_field *f = NULL;

		for (size_t i = 0; i < n && !f; i++)
			if (json_name_is(m.name, fields[i].name))
				f = &fields[i];
		json_str_print(name, sizeof(name), (const uint8_t *)m.name.at);
		snprintf(path, sizeof(path), "%s%s%.*s", prefix,
			 *prefix ? "." : "", (int)strlen(name) - 2, name + 1);
		if (!f)
			return err_set(e, ERR_INVALID_REQUEST, path,
				       "unknown field %s", path);
		if (f->decode(ctx, path, m.value, e))
			return -1;
	}
	return 0;
}

int decode_type(const char *path, struct json_span v, enum json_kind want,
		struct err *e)
{
	if (json_kind_of(v) == want)
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, path, "%s is %s; it must be %s",
		       path, json_kind_name(json_kind_of(v)),
		       json_kind_name(want));
}

int decode_u32(const char *path, struct json_span v, uint32_t min, uint32_t max,
	       enum err_code code, uint32_t *ret, struct err *e)
{
	char text[SHOWN_BYTES_MAX + 4];
	int64_t n;

	if (json_int(v, &n) || n < min || n > max)
		return err_set(e, code, path,
			       "%s is %s; it must be a whole number from %u "
			       "to %u",
			       path, shown(v, text), min, max);
	*ret = (uint32_t)n;
	return 0;
}

int decode_string(const char *path, struct json_span v, struct bytes *ret,
		  struct err *e)
{
	int rc;

	if (decode_type(path, v, JSON_KIND_STRING, e))
		return -1;
	ret->len = 0;
	rc = json_text(v, ret);
	if (!rc && memchr(ret->data, 0, ret->len))
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has a NUL character", path);
	if (rc == -EILSEQ)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has a lone surrogate, which no UTF-8 text "
			       "can hold",
			       path);
	if (rc || bytes_append(ret, "", 1))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	ret->len--;
	return 0;
}

int decode_bool(const char *path, struct json_span v, bool *ret, struct err *e)
{
	if (decode_type(path, v, JSON_KIND_BOOL, e))
		return -1;
	return json_bool(v, ret);
}
