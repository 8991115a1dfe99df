/*
 * Who calls: API keys.
 *
 * A key is "lbb_sk_live_" or "lbb_sk_test_" (a mark for people: both may do
 * the same) and 64 hex digits, 256 random bits; only its SHA-256 is stored
 * (there is nothing to guess, so no slow hash is needed). All keys are kept in
 * memory, read from the store at start and after each change.  The lookup
 * compares the hash with every key in constant time each.
 */
#ifndef HUTCHD_AUTH_H
#define HUTCHD_AUTH_H

#include "grants.h"
#include "realm.h"

#define AUTH_KEY_BYTES_MAX 128 /* of the text, as accepted */
#define AUTH_KEYS_MAX	   100000

struct auth;

int auth_create(struct auth **ret, struct store *s);
void auth_destroy(struct auth *a);

/*
 * Read environments, graphs and keys anew, then put them in the place of the
 * old ones; `done` once,
 * rc 0 or -errno (the old ones stay).  At start, and after each change that
 * the store made: who is told of a change finds it in force.
 */
int auth_load(struct auth *a, void (*done)(void *ctx, int rc), void *ctx);

/* The grants that the last daemon gave, once at the start; as auth_load. */
int auth_load_grants(struct auth *a, void (*done)(void *ctx, int rc),
		     void *ctx);
struct grants *auth_grants(struct auth *a);
/* Is it one? */
bool auth_is_grant(const char *header);
/* As auth_check, of a grant; its errors are those of grants_check. */
int auth_check_grant(const struct auth *a, const char *header, int64_t now_ms,
		     struct grant *ret, struct err *e);

/*
 * Check the value of an Authorization header (NULL = none).  0 and *ret, or
 * -1 with `e` (ERR_UNAUTHORIZED).  *ret is borrowed until the next change.
 */
int auth_check(const struct auth *a, const char *header,
	       const struct key_info **ret, struct err *e);

const struct realm *auth_realm(const struct auth *a);

struct auth_new {
	char text[AUTH_KEY_BYTES_MAX]; /* the key, told once */
	uint8_t hash[HASH_BYTES];
};
int auth_new_key(struct auth_new *ret, bool is_test);

/* All keys, for the list; NULL behind the last. */
const struct key_info *auth_key(const struct auth *a, size_t idx);
bool auth_has(const struct auth *a, const char *environment, const char *name);

/* Names: 1 to ID_BYTES_MAX - 1 of a-z 0-9 _ - for an environment. */
bool auth_environment_is_valid(const char *name);
/* 1 to 64 of A-Z a-z 0-9 . _ - for a graph. */
bool auth_graph_is_valid(const char *name);

#endif
