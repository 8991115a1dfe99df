/*
 * Names and labels of sandboxes.
 *
 * A name is for people: 1 to 64 printable ASCII characters, neither first nor
 * last a space; many sandboxes may have the same.  Labels are an object of up
 * to 16 strings.  They are kept as JSON text of ASCII only, so that a record
 * can hold them and every answer has them as they are; what a client gets back
 * is equal to what it sent, not spelled like it.
 */
#include "../../http/json_str.h"
#include "work.h"
#include <stdio.h>

#define LABELS_MAX	      16
#define LABEL_NAME_CHARS_MAX  64
#define LABEL_VALUE_CHARS_MAX 256

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, NULL, "out of memory");
}

int work_name(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;
	const char *s;
	size_t len;

	w->has_name = true;
	if (json_kind_of(v) == JSON_KIND_NULL)
		return 0;
	if (decode_string(path, v, &w->name, e))
		return -1;
	s = (const char *)w->name.data;
	len = w->name.len;
	for (size_t i = 0; i < len; i++)
		if (s[i] < 0x20 || s[i] > 0x7e)
			return err_set(e, ERR_INVALID_REQUEST, path,
				       "%s has other characters than printable "
				       "ASCII",
				       path);
	if (!len || len > SANDBOX_NAME_BYTES_MAX || *s == ' ' ||
	    s[len - 1] == ' ')
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has %zu characters; it must have 1 to %d, "
			       "the first and the last no space",
			       path, len, SANDBOX_NAME_BYTES_MAX);
	return 0;
}

/* ---- labels ----------------------------------------------------------- */

static int put_char(struct bytes *out, int32_t c)
{
	if (c == '"' || c == '\\')
		return bytes_printf(out, "\\%c", (int)c);
	if (c < 0x80)
		return bytes_printf(out, "%c", (int)c);
	if (c < 0x10000)
		return bytes_printf(out, "\\u%04x", (unsigned)c);
	c -= 0x10000;
	return bytes_printf(out, "\\u%04x\\u%04x",
			    0xd800u + (unsigned)(c >> 10),
			    0xdc00u + (unsigned)(c & 0x3ff));
}

static bool is_control(int32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

static bool is_name_char(int32_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-' ||
	       c == '/';
}

/* A string with its quotes; *ret_chars: how many it has.  NULL, or what is
 * wrong with it. */
static const char *put_string(struct bytes *out, struct json_span v,
			      bool is_name, size_t *ret_chars)
{
	const uint8_t *p = (const uint8_t *)v.at + 1;
	int rc = bytes_append(out, "\"", 1);
	int32_t c;

	*ret_chars = 0;
	while (!rc && (c = json_str_next(&p)) >= 0) {
		if (is_name && !is_name_char(c))
			return "characters other than A-Z a-z 0-9 . _ - /";
		if (is_control(c))
			return "control characters";
		if (c >= 0xd800 && c < 0xe000)
			return "a lone surrogate, which no UTF-8 text can hold";
		++*ret_chars;
		rc = put_char(out, c);
	}
	if (!rc)
		rc = bytes_append(out, "\"", 1);
	return rc ? "no memory" : NULL;
}

static int label(struct work *w, const char *path, const struct json_member *m,
		 struct err *e)
{
	char shown[LABEL_NAME_CHARS_MAX + 8], one[ERR_PARAM_BYTES_MAX];
	const char *wrong;
	size_t n;

	json_str_print(shown, sizeof(shown), (const uint8_t *)m->name.at);
	snprintf(one, sizeof(one), "%.16s.%.*s", path,
		 (int)strlen(shown) - 2 < 40 ? (int)strlen(shown) - 2 : 40,
		 shown + 1);
	wrong = put_string(&w->labels, m->name, true, &n);
	if (wrong)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s: the name %s has %s", path, shown, wrong);
	if (!n || n > LABEL_NAME_CHARS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s: a name has %zu characters; it must have 1 "
			       "to %d",
			       path, n, LABEL_NAME_CHARS_MAX);
	if (bytes_append(&w->labels, ":", 1))
		return no_memory(e);
	if (decode_type(one, m->value, JSON_KIND_STRING, e))
		return -1;
	wrong = put_string(&w->labels, m->value, false, &n);
	if (wrong)
		return err_set(e, ERR_INVALID_REQUEST, one, "%s has %s", one,
			       wrong);
	if (n > LABEL_VALUE_CHARS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, one,
			       "%s has %zu characters; at most %d", one, n,
			       LABEL_VALUE_CHARS_MAX);
	return 0;
}

int work_labels(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;
	struct json_member m;
	struct json_iter it;
	size_t n = 0;

	w->has_labels = true;
	if (json_kind_of(v) == JSON_KIND_NULL)
		return 0;
	if (decode_type(path, v, JSON_KIND_OBJECT, e))
		return -1;
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m)) {
		if (n == LABELS_MAX)
			return err_set(e, ERR_INVALID_REQUEST, path,
				       "%s has more than %d names", path,
				       LABELS_MAX);
		if (bytes_append(&w->labels, n++ ? "," : "{", 1))
			return no_memory(e);
		if (label(w, path, &m, e))
			return -1;
	}
	/* None: as if there were no object. */
	if (n && bytes_append(&w->labels, "}", 2))
		return no_memory(e);
	if (n && --w->labels.len > SANDBOX_LABELS_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has %zu bytes as JSON of ASCII alone; at "
			       "most %d",
			       path, w->labels.len, SANDBOX_LABELS_BYTES_MAX);
	return 0;
}
