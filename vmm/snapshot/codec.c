/*
 * See codec.h.  libcbor's streaming decoder reads one token at a time; the
 * tables say what must come, so the decoder keeps no state of its own.
 */
#include "codec.h"
#include <cbor.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define HEAD_BYTES_MAX 9

/* ---- encode ---- */

static int put_head(struct bytes *out,
		    size_t (*encode)(size_t, unsigned char *, size_t),
		    size_t value)
{
	unsigned char head[HEAD_BYTES_MAX];
	size_t n = encode(value, head, sizeof(head));

	return bytes_append(out, head, n);
}

static int put_uint(struct bytes *out, uint64_t value)
{
	unsigned char head[HEAD_BYTES_MAX];
	size_t n = cbor_encode_uint(value, head, sizeof(head));

	return bytes_append(out, head, n);
}

static int put_bytes(struct bytes *out, const void *data, size_t len)
{
	int r = put_head(out, cbor_encode_bytestring_start, len);

	return r < 0 ? r : bytes_append(out, data, len);
}

static uint32_t count_at(const void *base, const struct codec_field *f)
{
	uint32_t n;

	memcpy(&n, (const uint8_t *)base + f->n, sizeof(n));
	return n;
}

static int put_list(struct bytes *out, const struct codec_field *f,
		    const uint8_t *items, uint32_t n)
{
	int r = put_head(out, cbor_encode_array_start, n);

	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = codec_encode(out, f->item, items + i * f->stride);
	return r;
}

static int put_field(struct bytes *out, const struct codec_field *f,
		     const void *base)
{
	const uint8_t *at = (const uint8_t *)base + f->at;
	uint64_t v = 0;

	switch (f->kind) {
	case CODEC_UINT:
		memcpy(&v, at, f->size); /* little endian */
		return put_uint(out, v);
	case CODEC_FIXED:
		return put_bytes(out, at, f->size);
	case CODEC_BYTES:
		return put_bytes(out, at, count_at(base, f));
	case CODEC_LIST:
		return put_list(out, f, at, count_at(base, f));
	case CODEC_END:
		break;
	}
	return -EINVAL;
}

static size_t n_fields(const struct codec_field *table)
{
	size_t n = 0;

	while (table[n].kind != CODEC_END)
		n++;
	return n;
}

int codec_encode(struct bytes *out, const struct codec_field *table,
		 const void *from)
{
	size_t n = n_fields(table);
	int r = put_head(out, cbor_encode_map_start, n);

	for (size_t i = 0; r == 0 && i < n; i++) {
		r = put_uint(out, table[i].key);
		if (r == 0)
			r = put_field(out, &table[i], from);
	}
	return r;
}

/* ---- decode ---- */

enum token_kind { TOKEN_OTHER, TOKEN_UINT, TOKEN_BYTES, TOKEN_LIST, TOKEN_MAP };

struct token {
	enum token_kind kind;
	uint64_t value; /* or the count of a list or map */
	const uint8_t *data;
	size_t len;
};

struct reader {
	const uint8_t *data;
	size_t len;
	const char *field; /* being read */
};

static void on_uint8(void *ctx, uint8_t v)
{
	*(struct token *)ctx = (struct token){.kind = TOKEN_UINT, .value = v};
}

static void on_uint16(void *ctx, uint16_t v)
{
	*(struct token *)ctx = (struct token){.kind = TOKEN_UINT, .value = v};
}

static void on_uint32(void *ctx, uint32_t v)
{
	*(struct token *)ctx = (struct token){.kind = TOKEN_UINT, .value = v};
}

static void on_uint64(void *ctx, uint64_t v)
{
	*(struct token *)ctx = (struct token){.kind = TOKEN_UINT, .value = v};
}

static void on_bytes(void *ctx, cbor_data data, size_t len)
{
	*(struct token *)ctx =
		(struct token){.kind = TOKEN_BYTES, .data = data, .len = len};
}

static void on_list(void *ctx, size_t n)
{
	*(struct token *)ctx = (struct token){.kind = TOKEN_LIST, .value = n};
}

static void on_map(void *ctx, size_t n)
{
	*(struct token *)ctx = (struct token){.kind = TOKEN_MAP, .value = n};
}

/* The next token, which must be of `kind`. */
static int next(struct reader *r, enum token_kind kind, struct token *ret)
{
	struct cbor_callbacks cb = cbor_empty_callbacks;
	struct cbor_decoder_result d;

	cb.uint8 = on_uint8;
	cb.uint16 = on_uint16;
	cb.uint32 = on_uint32;
	cb.uint64 = on_uint64;
	cb.byte_string = on_bytes;
	cb.array_start = on_list;
	cb.map_start = on_map;
	*ret = (struct token){.kind = TOKEN_OTHER};
	d = cbor_stream_decode(r->data, r->len, &cb, ret);
	if (d.status != CBOR_DECODER_FINISHED || ret->kind != kind)
		return -EPROTO;
	r->data += d.read;
	r->len -= d.read;
	return 0;
}

static int decode_map(struct reader *r, const struct codec_field *table,
		      void *to);

static int get_list(struct reader *r, const struct codec_field *f,
		    uint8_t *items, uint32_t *ret_n)
{
	struct token t;

	if (next(r, TOKEN_LIST, &t) < 0 || t.value > f->size)
		return -EPROTO;
	for (uint64_t i = 0; i < t.value; i++)
		if (decode_map(r, f->item, items + i * f->stride) < 0)
			return -EPROTO;
	*ret_n = (uint32_t)t.value;
	return 0;
}

static int get_bytes(struct reader *r, const struct codec_field *f,
		     uint8_t *dst, uint32_t *ret_n)
{
	struct token t;

	if (next(r, TOKEN_BYTES, &t) < 0 || t.len > f->size)
		return -EPROTO;
	memcpy(dst, t.data, t.len);
	*ret_n = (uint32_t)t.len;
	return 0;
}

static int get_field(struct reader *r, const struct codec_field *f, void *to)
{
	uint8_t *at = (uint8_t *)to + f->at;
	uint32_t n = 0;
	struct token t;

	switch (f->kind) {
	case CODEC_UINT:
		if (next(r, TOKEN_UINT, &t) < 0 ||
		    (f->size < 8 && t.value >> (8 * f->size)))
			return -EPROTO;
		memcpy(at, &t.value, f->size);
		return 0;
	case CODEC_FIXED:
		if (get_bytes(r, f, at, &n) < 0 || n != f->size)
			return -EPROTO;
		return 0;
	case CODEC_BYTES:
		if (get_bytes(r, f, at, &n) < 0)
			return -EPROTO;
		break;
	case CODEC_LIST:
		if (get_list(r, f, at, &n) < 0)
			return -EPROTO;
		break;
	case CODEC_END:
		return -EPROTO;
	}
	memcpy((uint8_t *)to + f->n, &n, sizeof(n));
	return 0;
}

static int decode_map(struct reader *r, const struct codec_field *table,
		      void *to)
{
	size_t n = n_fields(table);
	struct token t;

	if (next(r, TOKEN_MAP, &t) < 0 || t.value != n)
		return -EPROTO;
	for (size_t i = 0; i < n; i++) {
		r->field = table[i].name;
		if (next(r, TOKEN_UINT, &t) < 0 || t.value != table[i].key ||
		    get_field(r, &table[i], to) < 0)
			return -EPROTO;
	}
	return 0;
}

int codec_decode(const void *data, size_t len, const struct codec_field *table,
		 void *to, const char **ret_field)
{
	struct reader r = {.data = data, .len = len, .field = "start"};
	int ret = decode_map(&r, table, to);

	if (ret == 0 && r.len)
		ret = -EPROTO;
	*ret_field = r.field;
	return ret;
}
