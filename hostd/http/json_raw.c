/*
 * The checker: one pass, no recursion, no allocation but the member names of
 * the objects that are open.
 *
 * `open` remembers for each level whether it is an array or an object, and
 * `names` is a stack of the names seen so far; an object that ends sorts its
 * part of the stack and compares neighbours, so that an object of n members
 * costs n log n whatever the names are.
 */
#include "json_raw.h"
#include "json_str.h"
#include "utf8.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

struct name {
	uint64_t hash;
	const uint8_t *at; /* the opening quote */
};

struct scan {
	const uint8_t *start, *p, *end;
	struct name *names; /* owned */
	size_t n_names, names_cap;
	uint32_t names_base[JSON_DEPTH_MAX];
	uint8_t open[JSON_DEPTH_MAX]; /* '{' or '[' */
	unsigned depth, depth_max;
	uint64_t seed;
	struct err *e;
};

static int refuse(struct scan *s, const uint8_t *at, const char *what)
{
	return err_set(s->e, ERR_INVALID_JSON, NULL, "JSON, byte %zu: %s",
		       (size_t)(at - s->start), what);
}

static void skip_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' ||
				 *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static int scan_escape(struct scan *s)
{
	const uint8_t *at = s->p++;

	if (s->p == s->end)
		return refuse(s, at, "the string does not end");
	if (*s->p != 'u') {
		if (!memchr("\"\\/bfnrt", *s->p, 8))
			return refuse(s, at, "unknown escape");
		s->p++;
		return 0;
	}
	s->p++;
	for (int i = 0; i < 4; i++, s->p++)
		if (s->p == s->end || json_hex(*s->p) < 0)
			return refuse(s, at, "\\u needs four hex digits");
	return 0;
}

static int scan_string(struct scan *s)
{
	uint32_t cp;
	int n;

	for (s->p++; s->p < s->end && *s->p != '"';) {
		if (*s->p == '\\') {
			if (scan_escape(s))
				return -1;
			continue;
		}
		if (*s->p < 0x20)
			return refuse(s, s->p, "control character in a string");
		n = utf8_next(s->p, (size_t)(s->end - s->p), &cp);
		if (n <= 0)
			return refuse(s, s->p, "the text is not UTF-8");
		s->p += n;
	}
	if (s->p == s->end)
		return refuse(s, s->p, "the string does not end");
	s->p++;
	return 0;
}

static size_t scan_digits(struct scan *s)
{
	const uint8_t *from = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return (size_t)(s->p - from);
}

static int scan_number(struct scan *s)
{
	const uint8_t *at = s->p;
	size_t n;

	if (*s->p == '-')
		s->p++;
	if (s->p < s->end && *s->p == '0')
		s->p++, n = 1;
	else
		n = scan_digits(s);
	if (n && s->p < s->end && *s->p == '.') {
		s->p++;
		n = scan_digits(s);
	}
	if (n && s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
		s->p++;
		if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
			s->p++;
		n = scan_digits(s);
	}
	return n ? 0 : refuse(s, at, "malformed number");
}

static int scan_literal(struct scan *s)
{
	static const char *const words[] = {"true", "false", "null"};
	size_t left = (size_t)(s->end - s->p);

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		size_t n = strlen(words[i]);

		if (left >= n && !memcmp(s->p, words[i], n)) {
			s->p += n;
			return 0;
		}
	}
	return refuse(s, s->p,
		      left ? "expected a value"
			   : "the text ends before its value");
}

static int scan_name(struct scan *s)
{
	const uint8_t *at = s->p;

	if (s->p == s->end || *s->p != '"')
		return refuse(s, at, "expected a member name in quotes");
	if (scan_string(s))
		return -1;
	if (s->n_names == s->names_cap) {
		size_t cap = s->names_cap ? s->names_cap * 2 : 32;
		void *more = realloc(s->names, cap * sizeof(*s->names));

		if (!more)
			return err_set(s->e, ERR_INTERNAL, NULL,
				       "out of memory");
		s->names = more;
		s->names_cap = cap;
	}
	s->names[s->n_names++] =
		(struct name){.hash = json_str_hash(at, s->seed), .at = at};
	skip_space(s);
	if (s->p == s->end || *s->p != ':')
		return refuse(s, s->p, "expected ':' after a member name");
	s->p++;
	return 0;
}

static int by_name(const void *va, const void *vb)
{
	const struct name *a = va, *b = vb;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return json_str_cmp(a->at, b->at);
}

/* The object on top ends: its names must differ. */
static int check_names(struct scan *s)
{
	size_t base = s->names_base[s->depth - 1], n = s->n_names - base;
	struct name *names = s->names + base;

	s->n_names = base;
	if (n < 2)
		return 0;
	qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 1; i < n; i++) {
		const uint8_t *a = names[i - 1].at, *b = names[i].at;
		char text[64];

		if (by_name(&names[i - 1], &names[i]))
			continue;
		json_str_print(text, sizeof(text), a);
		return err_set(s->e, ERR_INVALID_JSON, NULL,
			       "JSON, byte %zu: duplicate key %s",
			       (size_t)((a > b ? a : b) - s->start), text);
	}
	return 0;
}

static int push(struct scan *s)
{
	if (s->depth == s->depth_max)
		return err_set(s->e, ERR_INVALID_JSON, NULL,
			       "JSON, byte %zu: nested deeper than %u in all; "
			       "a value of yours may have %d levels",
			       (size_t)(s->p - s->start), s->depth_max,
			       JSON_USER_DEPTH_MAX);
	s->names_base[s->depth] = (uint32_t)s->n_names;
	s->open[s->depth++] = *s->p++;
	skip_space(s);
	return 0;
}

static bool is_at_close(const struct scan *s)
{
	return s->p < s->end &&
	       *s->p == (s->open[s->depth - 1] == '{' ? '}' : ']');
}

static int pop(struct scan *s)
{
	s->p++;
	if (s->open[s->depth - 1] == '{' && check_names(s))
		return -1;
	s->depth--;
	return 0;
}

/* A value begins.  1 = it is whole, 0 = a container is open and its first
 * value begins, -1 = refused. */
static int scan_value(struct scan *s)
{
	int c = s->p < s->end ? *s->p : -1;

	if (c == '{' || c == '[') {
		if (push(s))
			return -1;
		if (is_at_close(s))
			return pop(s) ? -1 : 1;
		if (c == '{')
			return scan_name(s);
		return 0;
	}
	if (c == '"')
		return scan_string(s) ? -1 : 1;
	if (c == '-' || (c >= '0' && c <= '9'))
		return scan_number(s) ? -1 : 1;
	return scan_literal(s) ? -1 : 1;
}

/* A value ended inside a container.  1 = the container ended too, 0 = its
 * next value begins, -1 = refused. */
static int scan_after(struct scan *s)
{
	bool is_object = s->open[s->depth - 1] == '{';

	if (is_at_close(s))
		return pop(s) ? -1 : 1;
	if (s->p == s->end || *s->p != ',')
		return refuse(s, s->p,
			      is_object ? "expected ',' or '}' in an object"
					: "expected ',' or ']' in an array");
	s->p++;
	skip_space(s);
	return is_object ? scan_name(s) : 0;
}

static int scan_all(struct scan *s)
{
	int rc = 0;

	do {
		skip_space(s);
		rc = scan_value(s);
		while (rc == 1 && s->depth) {
			skip_space(s);
			rc = scan_after(s);
		}
	} while (rc == 0);
	return rc == 1 ? 0 : -1;
}

int json_check(const void *text, size_t len, unsigned depth_max,
	       struct json_span *ret_root, struct err *e)
{
	struct scan s = {.start = text, .e = e, .depth_max = depth_max};
	const uint8_t *root;
	size_t root_len;
	int rc;

	if (len > UINT32_MAX || depth_max > JSON_DEPTH_MAX)
		return err_set(e, ERR_INTERNAL, NULL, "JSON: bad limits");
	s.p = s.start;
	s.end = s.start + len;
	if (getrandom(&s.seed, sizeof(s.seed), 0) != sizeof(s.seed))
		return err_set(e, ERR_INTERNAL, NULL, "no random bytes");
	skip_space(&s);
	root = s.p;
	rc = scan_all(&s);
	root_len = (size_t)(s.p - root);
	if (!rc) {
		skip_space(&s);
		if (s.p != s.end)
			rc = refuse(&s, s.p, "text after the value");
	}
	free(s.names);
	if (!rc)
		*ret_root = (struct json_span){(const char *)root, root_len};
	return rc;
}
