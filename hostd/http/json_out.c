/* Writing JSON; see json_out.h. */
#include "json_out.h"
#include "utf8.h"
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

void json_out_finish(struct json_out *j)
{
	bytes_finish(&j->buf);
}

static void put(struct json_out *j, const void *data, size_t len)
{
	int rc = j->rc ? j->rc : bytes_append(&j->buf, data, len);

	j->rc = rc;
}

static void put_text(struct json_out *j, const char *text)
{
	put(j, text, strlen(text));
}

static bool put_string(struct json_out *j, const void *text, size_t len)
{
	const uint8_t *p = text, *end = p + len;
	const uint8_t *plain = p; /* not yet copied from here */
	bool is_replaced = false;
	uint32_t cp;

	put(j, "\"", 1);
	while (p < end) {
		int n = utf8_next(p, (size_t)(end - p), &cp);
		char esc[8];

		if (n > 0 && cp >= 0x20 && cp != '"' && cp != '\\') {
			p += n;
			continue;
		}
		put(j, plain, (size_t)(p - plain));
		if (n <= 0) {
			is_replaced = true;
			put(j, "\xef\xbf\xbd", 3);
		} else if (cp == '"' || cp == '\\') {
			esc[0] = '\\';
			esc[1] = (char)cp;
			put(j, esc, 2);
		} else if (cp == '\n' || cp == '\t' || cp == '\r') {
			esc[0] = '\\';
			esc[1] = cp == '\n' ? 'n' : cp == '\t' ? 't' : 'r';
			put(j, esc, 2);
		} else {
			snprintf(esc, sizeof(esc), "\\u%04x", cp & 0xff);
			put(j, esc, 6);
		}
		plain = ++p;
	}
	put(j, plain, (size_t)(p - plain));
	put(j, "\"", 1);
	return is_replaced;
}

static void put_key(struct json_out *j, const char *key)
{
	if (j->needs_comma)
		put(j, ",", 1);
	j->needs_comma = true;
	if (!key)
		return;
	put_string(j, key, strlen(key));
	put(j, ":", 1);
}

void json_out_begin(struct json_out *j, const char *key, char bracket)
{
	put_key(j, key);
	put(j, &bracket, 1);
	j->needs_comma = false;
}

void json_out_end(struct json_out *j, char bracket)
{
	put(j, &bracket, 1);
	j->needs_comma = true;
}

void json_out_null(struct json_out *j, const char *key)
{
	put_key(j, key);
	put_text(j, "null");
}

void json_out_str(struct json_out *j, const char *key, const char *text)
{
	if (text)
		json_out_text(j, key, text, strlen(text));
	else
		json_out_null(j, key);
}

bool json_out_text(struct json_out *j, const char *key, const void *text,
		   size_t len)
{
	put_key(j, key);
	return put_string(j, text, len);
}

void json_out_i64(struct json_out *j, const char *key, int64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, n);
	put_key(j, key);
	put_text(j, text);
}

void json_out_u64(struct json_out *j, const char *key, uint64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, n);
	put_key(j, key);
	put_text(j, text);
}

void json_out_bool(struct json_out *j, const char *key, bool is)
{
	put_key(j, key);
	put_text(j, is ? "true" : "false");
}

void json_out_raw(struct json_out *j, const char *key, const void *json,
		  size_t len)
{
	put_key(j, key);
	put(j, json, len);
}

void json_out_time(struct json_out *j, const char *key, int64_t wall_ms)
{
	time_t s = wall_ms / 1000;
	char day[32], text[48];
	struct tm tm;

	if (wall_ms <= 0 || !gmtime_r(&s, &tm)) {
		json_out_null(j, key);
		return;
	}
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text, sizeof(text), "%s.%03dZ", day, (int)(wall_ms % 1000));
	json_out_str(j, key, text);
}

void json_out_hex(struct json_out *j, const char *key, const uint8_t *data,
		  size_t len)
{
	static const char digits[] = "0123456789abcdef";

	put_key(j, key);
	put(j, "\"", 1);
	for (size_t i = 0; i < len; i++) {
		char two[2] = {digits[data[i] >> 4], digits[data[i] & 15]};

		put(j, two, 2);
	}
	put(j, "\"", 1);
}

void json_out_base64(struct json_out *j, const char *key, const void *data,
		     size_t len)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	const uint8_t *p = data;

	put_key(j, key);
	put(j, "\"", 1);
	for (size_t i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t v = (uint32_t)p[i] << 16;
		char four[4] = {0, 0, '=', '='};

		if (n > 1)
			v |= (uint32_t)p[i + 1] << 8;
		if (n > 2)
			v |= p[i + 2];
		for (size_t k = 0; k <= n; k++)
			four[k] = digits[v >> (18 - 6 * k) & 63];
		put(j, four, 4);
	}
	put(j, "\"", 1);
}
