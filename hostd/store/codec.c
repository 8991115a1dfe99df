/* Records as CBOR maps, by table; see codec.h. */
#include "codec.h"
#include <assert.h>
#include <cbor.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define CODEC_HEAD_BYTES_MAX 9 /* of one CBOR item, without its string */
#define CODEC_KEY_MAX	     63

static_assert(sizeof(enum field_kind) == sizeof(uint32_t), "F_ENUM");

static bool text_is_plain(const void *text, size_t len)
{
	const uint8_t *p = text;

	for (size_t i = 0; i < len; i++)
		if (p[i] < 0x20 || p[i] > 0x7e)
			return false;
	return true;
}

/* ---- encoding ---------------------------------------------------------- */

static int put_uint(struct bytes *out, uint64_t v)
{
	int rc = bytes_reserve(out, CODEC_HEAD_BYTES_MAX);

	if (rc)
		return rc;
	out->len +=
		cbor_encode_uint(v, out->data + out->len, CODEC_HEAD_BYTES_MAX);
	return 0;
}

static int put_int(struct bytes *out, int64_t v)
{
	int rc = bytes_reserve(out, CODEC_HEAD_BYTES_MAX);

	if (rc)
		return rc;
	if (v >= 0)
		return put_uint(out, (uint64_t)v);
	out->len += cbor_encode_negint((uint64_t)(-1 - v), out->data + out->len,
				       CODEC_HEAD_BYTES_MAX);
	return 0;
}

static int put_string(struct bytes *out, bool is_text, const void *p,
		      size_t len)
{
	int rc = bytes_reserve(out, CODEC_HEAD_BYTES_MAX);
	uint8_t *at = out->data + out->len;

	if (rc)
		return rc;
	out->len += is_text ? cbor_encode_string_start(len, at,
						       CODEC_HEAD_BYTES_MAX)
			    : cbor_encode_bytestring_start(
				      len, at, CODEC_HEAD_BYTES_MAX);
	return bytes_append(out, p, len);
}

static int put_ranged(struct bytes *out, const struct field *f, uint64_t v)
{
	return v < f->min || v > f->max ? -EINVAL : put_uint(out, v);
}

static int put_list(struct bytes *out, const struct record_type *of,
		    const struct field *f, const void *at)
{
	struct record_list l;
	int rc;

	memcpy(&l, at, sizeof(l));
	if (l.n < f->min || l.n > f->max)
		return -EINVAL;
	rc = bytes_reserve(out, CODEC_HEAD_BYTES_MAX);
	if (rc)
		return rc;
	out->len += cbor_encode_array_start(l.n, out->data + out->len,
					    CODEC_HEAD_BYTES_MAX);
	for (size_t i = 0; !rc && i < l.n; i++)
		rc = codec_encode(of, (const char *)l.at + i * of->size, out);
	return rc;
}

static int put_field(struct bytes *out, const struct record_type *t,
		     const struct field *f, const void *at)
{
	const struct bytes *b = at;
	size_t len;
	int rc;

	switch (f->kind) {
	case F_U32:
	case F_ENUM:
		return put_ranged(out, f, *(const uint32_t *)at);
	case F_U64:
		return put_ranged(out, f, *(const uint64_t *)at);
	case F_I32:
		return put_int(out, *(const int32_t *)at);
	case F_I64:
		return put_int(out, *(const int64_t *)at);
	case F_BOOL:
		rc = bytes_reserve(out, 1);
		if (rc)
			return rc;
		out->len += cbor_encode_bool(*(const bool *)at,
					     out->data + out->len, 1);
		return 0;
	case F_TEXT:
		len = strnlen(at, f->max + 1);
		if (len > f->max || !text_is_plain(at, len))
			return -EINVAL;
		return put_string(out, true, at, len);
	case F_HASH:
		return put_string(out, false, at, f->max);
	case F_BYTES:
		if (b->len > f->max)
			return -EINVAL;
		return put_string(out, false, b->data, b->len);
	case F_LIST:
		return put_list(out, t->items, f, at);
	}
	return -EINVAL;
}

int codec_encode(const struct record_type *t, const void *rec,
		 struct bytes *out)
{
	size_t start = out->len;
	int rc = bytes_reserve(out, CODEC_HEAD_BYTES_MAX);

	if (rc)
		return rc;
	out->len += cbor_encode_map_start(t->n_fields + 1, out->data + out->len,
					  CODEC_HEAD_BYTES_MAX);
	rc = put_uint(out, 0);
	if (!rc)
		rc = put_uint(out, t->version);
	for (size_t i = 0; !rc && i < t->n_fields; i++) {
		const struct field *f = &t->fields[i];

		rc = put_uint(out, f->key);
		if (!rc)
			rc = put_field(out, t, f,
				       (const char *)rec + f->offset);
	}
	if (rc)
		out->len = start;
	return rc;
}

/* ---- decoding ---------------------------------------------------------- */

/* One item as the streaming decoder reports it. */
struct item {
	enum {
		ITEM_NONE,
		ITEM_UINT,
		ITEM_NEGINT, /* value -1 - v */
		ITEM_BOOL,
		ITEM_TEXT,
		ITEM_BYTES,
		ITEM_MAP,   /* v pairs */
		ITEM_ARRAY, /* v items */
		ITEM_OTHER,
	} kind;
	uint64_t v;
	const uint8_t *p;
	size_t len;
};

static void on_uint8(void *ctx, uint8_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .v = v};
}
static void on_uint16(void *ctx, uint16_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .v = v};
}
static void on_uint32(void *ctx, uint32_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .v = v};
}
static void on_uint64(void *ctx, uint64_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_UINT, .v = v};
}
static void on_negint8(void *ctx, uint8_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_NEGINT, .v = v};
}
static void on_negint16(void *ctx, uint16_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_NEGINT, .v = v};
}
static void on_negint32(void *ctx, uint32_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_NEGINT, .v = v};
}
static void on_negint64(void *ctx, uint64_t v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_NEGINT, .v = v};
}
static void on_bool(void *ctx, bool v)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_BOOL, .v = v};
}
static void on_bytes(void *ctx, cbor_data p, size_t len)
{
	*(struct item *)ctx =
		(struct item){.kind = ITEM_BYTES, .p = p, .len = len};
}
static void on_text(void *ctx, cbor_data p, size_t len)
{
	*(struct item *)ctx =
		(struct item){.kind = ITEM_TEXT, .p = p, .len = len};
}
static void on_map(void *ctx, size_t n)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_MAP, .v = n};
}
static void on_array(void *ctx, size_t n)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_ARRAY, .v = n};
}
static void other(void *ctx)
{
	*(struct item *)ctx = (struct item){.kind = ITEM_OTHER};
}
static void other_u64(void *ctx, uint64_t v)
{
	(void)v;
	other(ctx);
}
static void other_float(void *ctx, float v)
{
	(void)v;
	other(ctx);
}
static void other_double(void *ctx, double v)
{
	(void)v;
	other(ctx);
}

static const struct cbor_callbacks callbacks = {
	.uint8 = on_uint8,
	.uint16 = on_uint16,
	.uint32 = on_uint32,
	.uint64 = on_uint64,
	.negint8 = on_negint8,
	.negint16 = on_negint16,
	.negint32 = on_negint32,
	.negint64 = on_negint64,
	.byte_string = on_bytes,
	.byte_string_start = other,
	.string = on_text,
	.string_start = other,
	.array_start = on_array,
	.indef_array_start = other,
	.map_start = on_map,
	.indef_map_start = other,
	.tag = other_u64,
	.float2 = other_float,
	.float4 = other_float,
	.float8 = other_double,
	.undefined = other,
	.null = other,
	.boolean = on_bool,
	.indef_break = other,
};

struct reader {
	const uint8_t *p;
	size_t left;
};

static int next(struct reader *r, struct item *ret)
{
	struct cbor_decoder_result res;

	ret->kind = ITEM_NONE;
	res = cbor_stream_decode(r->p, r->left, &callbacks, ret);
	if (res.status != CBOR_DECODER_FINISHED || ret->kind == ITEM_NONE ||
	    res.read > r->left)
		return -EBADMSG;
	r->p += res.read;
	r->left -= res.read;
	return 0;
}

static int take_int(const struct item *it, int64_t min, int64_t max,
		    int64_t *ret)
{
	int64_t v;

	if ((it->kind != ITEM_UINT && it->kind != ITEM_NEGINT) ||
	    it->v > INT64_MAX)
		return -EBADMSG;
	v = it->kind == ITEM_UINT ? (int64_t)it->v : -1 - (int64_t)it->v;
	if (v < min || v > max)
		return -EBADMSG;
	*ret = v;
	return 0;
}

static int take_field(const struct field *f, const struct item *it, void *at)
{
	int64_t v = 0;
	int rc;

	switch (f->kind) {
	case F_U32:
	case F_ENUM:
	case F_U64:
		if (it->kind != ITEM_UINT || it->v < f->min || it->v > f->max)
			return -EBADMSG;
		if (f->kind == F_U64)
			*(uint64_t *)at = it->v;
		else if (it->v > UINT32_MAX)
			return -EBADMSG;
		else
			*(uint32_t *)at = (uint32_t)it->v;
		return 0;
	case F_I32:
		rc = take_int(it, INT32_MIN, INT32_MAX, &v);
		if (!rc)
			*(int32_t *)at = (int32_t)v;
		return rc;
	case F_I64:
		rc = take_int(it, INT64_MIN, INT64_MAX, &v);
		if (!rc)
			*(int64_t *)at = v;
		return rc;
	case F_BOOL:
		if (it->kind != ITEM_BOOL)
			return -EBADMSG;
		*(bool *)at = it->v;
		return 0;
	case F_TEXT:
		if (it->kind != ITEM_TEXT || it->len > f->max ||
		    !text_is_plain(it->p, it->len))
			return -EBADMSG;
		if (it->len)
			memcpy(at, it->p, it->len);
		((char *)at)[it->len] = 0;
		return 0;
	case F_HASH:
		if (it->kind != ITEM_BYTES || it->len != f->max)
			return -EBADMSG;
		memcpy(at, it->p, it->len);
		return 0;
	case F_BYTES:
		if (it->kind != ITEM_BYTES || it->len > f->max)
			return -EBADMSG;
		return bytes_append(at, it->p, it->len);
	case F_LIST:
		return -EBADMSG;
	}
	return -EBADMSG;
}

static int decode_pairs(const struct record_type *t, void *rec,
			struct reader *r, uint64_t n_pairs);

/* `it` is its head.  What was taken of one that ends early is freed with the
 * record. */
static int take_list(const struct record_type *of, const struct field *f,
		     const struct item *it, struct reader *r, void *at)
{
	struct record_list l = {NULL, 0};
	struct item head;
	int rc = 0;

	if (it->kind != ITEM_ARRAY || it->v < f->min || it->v > f->max)
		return -EBADMSG;
	if (it->v)
		l.at = calloc(it->v, of->size);
	if (it->v && !l.at)
		return -ENOMEM;
	while (!rc && l.n < it->v) {
		void *rec = (char *)l.at + l.n++ * of->size;

		rc = next(r, &head);
		if (!rc && head.kind != ITEM_MAP)
			rc = -EBADMSG;
		if (!rc)
			rc = decode_pairs(of, rec, r, head.v);
	}
	memcpy(at, &l, sizeof(l));
	/* It is no other version of the record that it is in. */
	return rc == -ENOTSUP ? -EBADMSG : rc;
}

static int decode_pairs(const struct record_type *t, void *rec,
			struct reader *r, uint64_t n_pairs)
{
	uint64_t seen = 0; /* bit = key */
	struct item key, val;
	size_t i;
	int rc;

	/* Every field once and the version: no more, no less.  An unlike
	 * count is looked at last, so that another version is told as such. */
	for (uint64_t k = 0; k < n_pairs; k++) {
		rc = next(r, &key);
		if (!rc)
			rc = next(r, &val);
		if (rc)
			return rc;
		if (key.kind != ITEM_UINT || key.v > CODEC_KEY_MAX ||
		    (seen & UINT64_C(1) << key.v))
			return -EBADMSG;
		seen |= UINT64_C(1) << key.v;
		if (key.v == 0) {
			if (val.kind != ITEM_UINT)
				return -EBADMSG;
			if (val.v != t->version)
				return -ENOTSUP;
			continue;
		}
		for (i = 0; i < t->n_fields && t->fields[i].key != key.v; i++)
			;
		if (i == t->n_fields)
			return -EBADMSG;
		rc = t->fields[i].kind == F_LIST
			     ? take_list(t->items, &t->fields[i], &val, r,
					 (char *)rec + t->fields[i].offset)
			     : take_field(&t->fields[i], &val,
					  (char *)rec + t->fields[i].offset);
		if (rc)
			return rc;
	}
	return (seen & 1) && n_pairs == t->n_fields + 1 ? 0 : -EBADMSG;
}

int codec_decode(const struct record_type *t, void *rec, const void *cbor,
		 size_t len)
{
	struct reader r = {cbor, len};
	struct item head;
	int rc;

	memset(rec, 0, t->size);
	rc = len ? next(&r, &head) : -EBADMSG;
	if (!rc && head.kind != ITEM_MAP)
		rc = -EBADMSG;
	if (!rc)
		rc = decode_pairs(t, rec, &r, head.v);
	if (!rc && r.left)
		rc = -EBADMSG;
	if (rc)
		codec_finish(t, rec);
	return rc;
}

static void list_finish(const struct record_type *of, const void *at)
{
	struct record_list l;

	memcpy(&l, at, sizeof(l));
	for (size_t i = 0; i < l.n; i++)
		codec_finish(of, (char *)l.at + i * of->size);
	free(l.at);
}

void codec_finish(const struct record_type *t, void *rec)
{
	for (size_t i = 0; i < t->n_fields; i++) {
		const struct field *f = &t->fields[i];
		char *at = (char *)rec + f->offset;

		if (f->kind == F_BYTES)
			bytes_finish((struct bytes *)at);
		else if (f->kind == F_LIST)
			list_finish(t->items, at);
	}
	memset(rec, 0, t->size);
}
