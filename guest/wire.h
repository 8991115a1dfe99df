/*
 * CBOR payloads of the guest protocol (api/guest.cddl), both ways.
 *
 * Reading: a table of rules says which keys a payload may have; the decoder
 * copies nothing, so values point into the frame.  The host is trusted, but a
 * payload of another build must be refused by name, not half understood.
 *
 * Writing: a writer appends to a byte string and keeps its first error, so
 * encoders are straight lines.
 */
#ifndef HUTCH_GUEST_WIRE_H
#define HUTCH_GUEST_WIRE_H

#include "bytes.h"
#include <stdbool.h>

struct span {
	const uint8_t *data; /* borrowed */
	size_t len;
};

enum wire_kind { WIRE_UINT = 1, WIRE_BOOL, WIRE_BYTES, WIRE_TEXT, WIRE_LIST };

#define WIRE_KEY_MAX 15

struct wire_rule {
	uint8_t key;
	uint8_t kind; /* enum wire_kind; LIST = array of byte strings */
	bool is_required;
	const char *name; /* for messages */
};

struct wire_value {
	bool is_set;
	uint64_t u;    /* UINT, BOOL; LIST: number of items */
	struct span s; /* BYTES, TEXT; LIST: its encoded items */
};

struct wire_map {
	struct wire_value v[WIRE_KEY_MAX + 1]; /* by key */
};

/* 0, or -EPROTO with a sentence in `why`. */
int wire_decode(const void *payload, size_t len, const struct wire_rule *rules,
		size_t n_rules, struct wire_map *ret, char *why,
		size_t why_cap);

/* Takes the next byte string off a list that wire_decode accepted. */
bool wire_list_next(struct span *list, struct span *ret);

struct writer {
	struct bytes *out;
	int rc; /* first error */
};

void wire_put_map(struct writer *w, size_t n_pairs);
void wire_put_uint(struct writer *w, uint64_t key, uint64_t v);
void wire_put_bool(struct writer *w, uint64_t key, bool v);
void wire_put_bytes(struct writer *w, uint64_t key, const void *p, size_t len);
/* Text is made valid: bytes that are not UTF-8 become '?', and it is cut to
 * GP_TEXT_BYTES_MAX. */
void wire_put_text(struct writer *w, uint64_t key, const char *s);

#endif
