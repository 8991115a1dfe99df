/*
 * Fuzz: a request body, from bytes to spans, strings and the request hash.
 *
 * Held against jansson: what it takes (with duplicates refused), the checker
 * must take too; the other way round it is stricter by design about numbers
 * and surrogates only.  Of an accepted text every span must be a JSON text of
 * its own, and every string must survive decoding and writing.
 */
#include "../../hostd/http/canon.h"
#include "../../hostd/http/json_out.h"
#include "../../hostd/http/json_raw.h"
#include "fuzz.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(x)                                                             \
	do {                                                                   \
		if (!(x))                                                      \
			abort();                                               \
	} while (0)

/* Enough to see each kind; the whole tree would be quadratic. */
#define SPANS_CHECKED_MAX 64

/* A text refused behind this many bytes exercised more than its beginning. */
#define REACH_BYTES 8

static const uint8_t key[CANON_KEY_BYTES];
static unsigned n_checked;

static void check_string(struct json_span v)
{
	struct bytes a = {0}, b = {0};
	struct json_out j = {0};
	struct json_span again;
	struct err e;
	int rc = json_text(v, &a);

	REQUIRE(!rc || rc == -EILSEQ);
	if (!rc) {
		REQUIRE(!json_out_text(&j, NULL, a.data, a.len) && !j.rc);
		REQUIRE(!json_check(j.buf.data, j.buf.len, 1, &again, &e));
		REQUIRE(!json_text(again, &b));
		REQUIRE(a.len == b.len &&
			(!a.len || !memcmp(a.data, b.data, a.len)));
	}
	json_out_finish(&j);
	bytes_finish(&a);
	bytes_finish(&b);
}

static void check_span(struct json_span v, unsigned depth)
{
	struct json_span again;
	struct json_member m;
	struct json_iter it;
	struct err e;
	int64_t n;

	REQUIRE(v.len && depth <= JSON_DEPTH_MAX);
	if (n_checked++ < SPANS_CHECKED_MAX) {
		REQUIRE(!json_check(v.at, v.len, JSON_DEPTH_MAX, &again, &e));
		REQUIRE(again.at == v.at && again.len == v.len);
		REQUIRE(json_depth(v) <= JSON_DEPTH_MAX);
	}
	switch (json_kind_of(v)) {
	case JSON_KIND_STRING:
		check_string(v);
		return;
	case JSON_KIND_NUMBER:
		json_int(v, &n);
		return;
	case JSON_KIND_NULL:
	case JSON_KIND_BOOL:
		return;
	case JSON_KIND_ARRAY:
	case JSON_KIND_OBJECT:
		break;
	}
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m)) {
		REQUIRE(m.value.at > v.at &&
			m.value.at + m.value.len < v.at + v.len);
		if (m.name.at)
			check_string(m.name);
		check_span(m.value, depth + 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	json_t *other = json_loadb((const char *)data, len,
				   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY |
					   JSON_ALLOW_NUL,
				   NULL);
	struct canon_request r = {
		"POST", "/v1/sandboxes", "createSandbox", "main", NULL, {0}};
	uint8_t hash[HASH_BYTES];
	struct json_span root;
	size_t at;
	struct err e = {0};
	int rc;

	fuzz_begin();
	rc = json_check(data, len, JSON_DEPTH_MAX, &root, &e);
	/* jansson skips a NUL byte behind a number. */
	if (other && rc && !memchr(data, 0, len))
		REQUIRE(strstr(e.text, "nested deeper"));
	json_decref(other);
	if (rc) {
		REQUIRE(e.code == ERR_INVALID_JSON);
		REQUIRE(sscanf(e.text, "JSON, byte %zu:", &at) == 1);
		REQUIRE(at <= len);
		if (at >= REACH_BYTES)
			fuzz_reach();
		return 0;
	}
	fuzz_reach();
	n_checked = 0;
	check_span(root, 0);
	if (json_kind_of(root) == JSON_KIND_OBJECT) {
		r.body = root;
		rc = canon_hash(key, &r, hash);
		REQUIRE(!rc || rc == -E2BIG);
	}
	return 0;
}
