/*
 * The hash that tells whether two requests with one Idempotency-Key are the
 * same request.
 *
 * HMAC-SHA256 under a key that only this daemon has (so that the stored hash
 * of a short secret input cannot be guessed offline) over, each with its
 * length in front: method, path, operation, graph, the id of the record that
 * the call is about (when it has one), and the body's members without wait_ms
 * and workflow (an attempt after a crash asks for the same), sorted by name,
 * each as name and raw bytes.  The order of the members does not matter, the
 * spelling of their values does.
 */
#ifndef HUTCHD_CANON_H
#define HUTCHD_CANON_H

#include "../store/record.h"
#include "json_raw.h"

#define CANON_KEY_BYTES	  32
#define CANON_MEMBERS_MAX 64

struct canon_request {
	const char *method, *path, *operation, *graph;
	const char *record;    /* id in the query that it is about, or NULL */
	struct json_span body; /* an object that passed json_check */
};

/* 0, -E2BIG (too many members) or -EIO (the crypto library failed). */
int canon_hash(const uint8_t key[CANON_KEY_BYTES],
	       const struct canon_request *r, uint8_t ret[HASH_BYTES]);

/* Read the key file, or make it (mode 0600) on the first start. */
int canon_key_load(const char *path, uint8_t ret[CANON_KEY_BYTES],
		   struct err *e);

#endif
