/*
 * CBOR from the guest; see gp_up.h.
 *
 * libcbor's streaming decoder hands out one item at a time and copies
 * nothing; the callbacks below only note what the item was.  The loop decides
 * whether that item is allowed at that place.
 */
#include "gp_up.h"
#include <cbor.h>
#include <errno.h>
#include <string.h>

enum item_kind {
	ITEM_REFUSED = 0, /* anything that has no place in a payload */
	ITEM_UINT,
	ITEM_BYTES,
	ITEM_TEXT,
	ITEM_BOOL,
	ITEM_MAP,
};

struct item {
	enum item_kind kind;
	uint64_t u; /* number, bool, pairs of the map */
	const uint8_t *data;
	size_t len;
};

static void on_u8(void *ctx, uint8_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .u = v};
}

static void on_u16(void *ctx, uint16_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .u = v};
}

static void on_u32(void *ctx, uint32_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .u = v};
}

static void on_u64(void *ctx, uint64_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .u = v};
}

static void on_bytes(void *ctx, cbor_data data, size_t len)
{
	*(struct item *)ctx =
		(struct item){.kind = ITEM_BYTES, .data = data, .len = len};
}

static void on_text(void *ctx, cbor_data data, size_t len)
{
	*(struct item *)ctx =
		(struct item){.kind = ITEM_TEXT, .data = data, .len = len};
}

static void on_bool(void *ctx, bool v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_BOOL, .u = v};
}

static void on_map(void *ctx, size_t n)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_MAP, .u = n};
}

/* What is not named with a function of ours leaves the item REFUSED. */
static const struct cbor_callbacks callbacks = {
	.uint8 = on_u8,
	.uint16 = on_u16,
	.uint32 = on_u32,
	.uint64 = on_u64,
	.negint64 = cbor_null_negint64_callback,
	.negint32 = cbor_null_negint32_callback,
	.negint16 = cbor_null_negint16_callback,
	.negint8 = cbor_null_negint8_callback,
	.byte_string_start = cbor_null_byte_string_start_callback,
	.byte_string = on_bytes,
	.string = on_text,
	.string_start = cbor_null_string_start_callback,
	.indef_array_start = cbor_null_indef_array_start_callback,
	.array_start = cbor_null_array_start_callback,
	.indef_map_start = cbor_null_indef_map_start_callback,
	.map_start = on_map,
	.tag = cbor_null_tag_callback,
	.float2 = cbor_null_float2_callback,
	.float4 = cbor_null_float4_callback,
	.float8 = cbor_null_float8_callback,
	.undefined = cbor_null_undefined_callback,
	.null = cbor_null_null_callback,
	.boolean = on_bool,
	.indef_break = cbor_null_indef_break_callback,
};

static int item_next(const uint8_t **p, size_t *left, struct item *ret)
{
	struct cbor_decoder_result r;

	*ret = (struct item){.kind = ITEM_REFUSED};
	if (!*left)
		return -EPROTO;
	r = cbor_stream_decode(*p, *left, &callbacks, ret);
	if (r.status != CBOR_DECODER_FINISHED || r.read > *left)
		return -EPROTO;
	*p += r.read;
	*left -= r.read;
	return 0;
}

static const struct gp_rule *rule_of(const struct gp_rule *rules, size_t n,
				     uint64_t key)
{
	for (size_t i = 0; i < n; i++)
		if (rules[i].key == key)
			return &rules[i];
	return NULL;
}

/* The sentence that says what is wrong with `it` under `r`, or NULL. */
static const char *value_check(const struct gp_rule *r, const struct item *it)
{
	static const uint8_t kinds[] = {
		[GP_KIND_UINT] = ITEM_UINT,
		[GP_KIND_BYTES] = ITEM_BYTES,
		[GP_KIND_TEXT] = ITEM_TEXT,
		[GP_KIND_BOOL] = ITEM_BOOL,
	};
	uint64_t n = it->u;

	if (it->kind != kinds[r->kind])
		return "a value has the wrong kind";
	if (r->kind == GP_KIND_BOOL)
		return NULL;
	if (r->kind != GP_KIND_UINT)
		n = it->len;
	if (n < r->min || n > r->max)
		return r->kind == GP_KIND_UINT ? "a number is out of range"
					       : "a string is too long";
	if (r->kind == GP_KIND_TEXT && !gp_utf8_is_valid(it->data, it->len))
		return "a text is not UTF-8";
	return NULL;
}

int gp_map_decode(const void *payload, size_t len, const struct gp_rule *rules,
		  size_t n_rules, struct gp_map *ret, const char **ret_why)
{
	const uint8_t *p = payload;
	struct gp_map m;
	struct item it;
	uint64_t pairs;

	memset(&m, 0, sizeof(m));
	*ret_why = "the payload is not one CBOR map";
	if (item_next(&p, &len, &it) || it.kind != ITEM_MAP)
		return -EPROTO;
	pairs = it.u;
	if (pairs > n_rules) {
		*ret_why = "the map has too many keys";
		return -EPROTO;
	}
	for (uint64_t i = 0; i < pairs; i++) {
		const struct gp_rule *r;
		struct gp_value *v;
		const char *why;

		*ret_why = "the map is cut short or holds a refused item";
		if (item_next(&p, &len, &it) || it.kind != ITEM_UINT)
			return -EPROTO;
		r = rule_of(rules, n_rules, it.u);
		if (!r) {
			*ret_why = "unknown key";
			return -EPROTO;
		}
		v = &m.v[r->key];
		if (v->is_set) {
			*ret_why = "repeated key";
			return -EPROTO;
		}
		if (item_next(&p, &len, &it))
			return -EPROTO;
		why = value_check(r, &it);
		if (why) {
			*ret_why = why;
			return -EPROTO;
		}
		*v = (struct gp_value){.is_set = true,
				       .u = it.u,
				       .data = it.data,
				       .len = it.len};
	}
	for (size_t i = 0; i < n_rules; i++) {
		if (rules[i].is_required && !m.v[rules[i].key].is_set) {
			*ret_why = "a required key is missing";
			return -EPROTO;
		}
	}
	if (len) {
		*ret_why = "bytes after the map";
		return -EPROTO;
	}
	*ret = m;
	*ret_why = NULL;
	return 0;
}

/* Length of the UTF-8 character at p (1..4) and its number, or 0. */
static size_t utf8_next(const uint8_t *p, size_t len, uint32_t *ret)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n;
	uint32_t c;

	if (p[0] < 0x80) {
		*ret = p[0];
		return 1;
	}
	if ((p[0] & 0xe0) == 0xc0)
		n = 2;
	else if ((p[0] & 0xf0) == 0xe0)
		n = 3;
	else if ((p[0] & 0xf8) == 0xf0)
		n = 4;
	else
		return 0;
	if (n > len)
		return 0;
	c = p[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*ret = c;
	return n;
}

bool gp_utf8_is_valid(const void *src, size_t len)
{
	const uint8_t *p = src;

	while (len) {
		uint32_t c;
		size_t n = utf8_next(p, len, &c);

		if (!n)
			return false;
		p += n;
		len -= n;
	}
	return true;
}

/* Marks that reorder or hide text on a terminal or a web page. */
static bool is_shown_safely(uint32_t c)
{
	return c >= 0x20 && !(c >= 0x7f && c < 0xa0) &&
	       !(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e) &&
	       !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff;
}

void gp_text_clean(char *dst, size_t cap, const void *src, size_t len,
		   bool keep_lines)
{
	const uint8_t *p = src;
	size_t at = 0;

	while (len) {
		uint32_t c = 0;
		size_t n = utf8_next(p, len, &c);
		bool is_kept = n && (is_shown_safely(c) ||
				     (keep_lines && (c == '\n' || c == '\t')));
		size_t out = is_kept ? n : 1;

		if (at + out >= cap)
			break;
		if (is_kept)
			memcpy(dst + at, p, n);
		else
			dst[at] = '?';
		at += out;
		p += n ? n : 1;
		len -= n ? n : 1;
	}
	dst[at] = '\0';
}
