/*
 * How many wrong API keys one address may try (K6, LBB-10).
 *
 * A key has 256 random bits: nobody guesses one.  But who tries thousands a
 * second costs processor time and log lines, so after WRONG_KEYS_BURST a wrong
 * key answers 429 with Retry-After in place of 401, until a token is back.
 *
 * A right key is looked up first and never comes here: whoever shares an
 * address (a proxy, an office) with somebody who tries wrong ones is served.
 *
 * Memory is fixed.  An address (IPv6: its first 64 bits) falls into one of
 * WRONG_KEYS_BUCKETS by a secret hash; two that fall into one share it, which
 * costs a caller with a wrong key a 429 too early and others nothing.
 */
#ifndef HUTCHD_WRONG_KEYS_H
#define HUTCHD_WRONG_KEYS_H

#include <stdint.h>
#include <sys/socket.h>

#define WRONG_KEYS_BURST     30
#define WRONG_KEYS_REFILL_MS 2000 /* one more each */
#define WRONG_KEYS_BUCKETS   4096

struct wrong_keys {
	uint8_t secret[16];
	struct {
		int64_t full_at_ms; /* monotonic; the past = all tokens */
	} peers[WRONG_KEYS_BUCKETS];
};

/* -EIO without random bytes. */
int wrong_keys_init(struct wrong_keys *w);

/*
 * `peer` sent a wrong key: 0 = tell it so, or the seconds after which it may
 * try again.  Loop thread.
 */
int wrong_keys_note(struct wrong_keys *w, const struct sockaddr *peer);

#endif
