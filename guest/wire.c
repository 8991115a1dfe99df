/* CBOR payloads; see wire.h. */
#include "wire.h"
#include "guest_proto.h"
#include <cbor.h>
#include <errno.h>
#include <stdio.h>

enum item_kind {
	ITEM_REFUSED = 0,
	ITEM_UINT,
	ITEM_BYTES,
	ITEM_TEXT,
	ITEM_BOOL,
	ITEM_MAP,
	ITEM_ARRAY,
};

struct item {
	enum item_kind kind;
	uint64_t u;
	struct span s;
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

static void on_bytes(void *ctx, cbor_data p, size_t len)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_BYTES, .s = {p, len}};
}

static void on_text(void *ctx, cbor_data p, size_t len)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_TEXT, .s = {p, len}};
}

static void on_bool(void *ctx, bool v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_BOOL, .u = v};
}

static void on_map(void *ctx, size_t n)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_MAP, .u = n};
}

static void on_array(void *ctx, size_t n)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_ARRAY, .u = n};
}

/* Items without a function of ours leave the item REFUSED. */
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
	.array_start = on_array,
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

static int item_next(struct span *in, struct item *ret)
{
	struct cbor_decoder_result r;

	*ret = (struct item){.kind = ITEM_REFUSED};
	if (!in->len)
		return -EPROTO;
	r = cbor_stream_decode(in->data, in->len, &callbacks, ret);
	if (r.status != CBOR_DECODER_FINISHED || r.read > in->len)
		return -EPROTO;
	in->data += r.read;
	in->len -= r.read;
	return 0;
}

bool wire_list_next(struct span *list, struct span *ret)
{
	struct item it;

	if (item_next(list, &it) || it.kind != ITEM_BYTES)
		return false;
	*ret = it.s;
	return true;
}

/* The items of an array: walks over them, leaves `in` after them. */
static int list_take(struct span *in, uint64_t n, struct span *ret)
{
	const uint8_t *start = in->data;
	struct span item;

	for (uint64_t i = 0; i < n; i++)
		if (!wire_list_next(in, &item))
			return -EPROTO;
	*ret = (struct span){start, (size_t)(in->data - start)};
	return 0;
}

static int value_take(struct span *in, const struct wire_rule *rule,
		      struct wire_value *ret)
{
	static const uint8_t kinds[] = {
		[WIRE_UINT] = ITEM_UINT,   [WIRE_BOOL] = ITEM_BOOL,
		[WIRE_BYTES] = ITEM_BYTES, [WIRE_TEXT] = ITEM_TEXT,
		[WIRE_LIST] = ITEM_ARRAY,
	};
	struct item it;

	if (item_next(in, &it) || it.kind != kinds[rule->kind])
		return -EPROTO;
	*ret = (struct wire_value){.is_set = true, .u = it.u, .s = it.s};
	if (rule->kind == WIRE_LIST)
		return list_take(in, it.u, &ret->s);
	return 0;
}

static const struct wire_rule *rule_of(const struct wire_rule *rules, size_t n,
				       uint64_t key)
{
	for (size_t i = 0; i < n; i++)
		if (rules[i].key == key)
			return &rules[i];
	return NULL;
}

int wire_decode(const void *payload, size_t len, const struct wire_rule *rules,
		size_t n_rules, struct wire_map *ret, char *why, size_t why_cap)
{
	struct span in = {payload, len};
	struct item it;

	memset(ret, 0, sizeof(*ret));
	if (!len)
		goto required; /* a frame without a payload: the empty map */
	if (item_next(&in, &it) || it.kind != ITEM_MAP) {
		snprintf(why, why_cap, "the payload is not a CBOR map");
		return -EPROTO;
	}
	for (uint64_t left = it.u; left; left--) {
		const struct wire_rule *r;

		if (item_next(&in, &it) || it.kind != ITEM_UINT) {
			snprintf(why, why_cap, "a key is not a number");
			return -EPROTO;
		}
		r = rule_of(rules, n_rules, it.u);
		if (!r || ret->v[r->key].is_set) {
			snprintf(why, why_cap, "%s key %llu",
				 r ? "repeated" : "unknown",
				 (unsigned long long)it.u);
			return -EPROTO;
		}
		if (value_take(&in, r, &ret->v[r->key])) {
			snprintf(why, why_cap, "%s: not of the kind expected",
				 r->name);
			return -EPROTO;
		}
	}
	if (in.len) {
		snprintf(why, why_cap, "%zu bytes after the map", in.len);
		return -EPROTO;
	}
required:
	for (size_t i = 0; i < n_rules; i++) {
		if (!rules[i].is_required || ret->v[rules[i].key].is_set)
			continue;
		snprintf(why, why_cap, "%s is missing", rules[i].name);
		return -EPROTO;
	}
	return 0;
}

static void put_raw(struct writer *w, const void *p, size_t len)
{
	if (!w->rc)
		w->rc = bytes_append(w->out, p, len);
}

static void put_number(struct writer *w, uint64_t v)
{
	uint8_t b[9];

	put_raw(w, b, cbor_encode_uint(v, b, sizeof(b)));
}

void wire_put_map(struct writer *w, size_t n_pairs)
{
	uint8_t b[9];

	put_raw(w, b, cbor_encode_map_start(n_pairs, b, sizeof(b)));
}

void wire_put_uint(struct writer *w, uint64_t key, uint64_t v)
{
	put_number(w, key);
	put_number(w, v);
}

void wire_put_bool(struct writer *w, uint64_t key, bool v)
{
	uint8_t b[1];

	put_number(w, key);
	put_raw(w, b, cbor_encode_bool(v, b, sizeof(b)));
}

void wire_put_bytes(struct writer *w, uint64_t key, const void *p, size_t len)
{
	uint8_t b[9];

	put_number(w, key);
	put_raw(w, b, cbor_encode_bytestring_start(len, b, sizeof(b)));
	put_raw(w, p, len);
}

/* Length of the valid UTF-8 character at p, or 0. */
static size_t utf8_len(const uint8_t *p, size_t left)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t n = p[0] < 0x80		   ? 1
		   : (p[0] & 0xe0) == 0xc0 ? 2
		   : (p[0] & 0xf0) == 0xe0 ? 3
		   : (p[0] & 0xf8) == 0xf0 ? 4
					   : 0;
	uint32_t c;

	if (n < 2 || n > left)
		return n == 1 ? 1 : 0;
	c = p[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

void wire_put_text(struct writer *w, uint64_t key, const char *s)
{
	uint8_t text[GP_TEXT_BYTES_MAX], b[9];
	const uint8_t *p = (const uint8_t *)s;
	size_t left = strlen(s), len = 0;

	while (left) {
		size_t n = utf8_len(p, left), used = n ? n : 1;

		if (len + used > sizeof(text))
			break;
		if (n)
			memcpy(text + len, p, n);
		else
			text[len] = '?';
		len += used;
		p += used;
		left -= used;
	}
	put_number(w, key);
	put_raw(w, b, cbor_encode_string_start(len, b, sizeof(b)));
	put_raw(w, text, len);
}
