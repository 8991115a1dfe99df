/* Wrong keys by address; see wrong_keys.h. */
#include "wrong_keys.h"
#include "../clock.h"
#include <errno.h>
#include <netinet/in.h>
#include <openssl/sha.h>
#include <string.h>
#include <sys/random.h>

int wrong_keys_init(struct wrong_keys *w)
{
	memset(w, 0, sizeof(*w));
	return getrandom(w->secret, sizeof(w->secret), 0) == sizeof(w->secret)
		       ? 0
		       : -EIO;
}

/* The bytes that one party cannot change at will. */
static void peer_bytes(const struct sockaddr *peer, uint8_t ret[8])
{
	memset(ret, 0, 8);
	if (peer->sa_family == AF_INET) {
		struct sockaddr_in v4;

		memcpy(&v4, peer, sizeof(v4));
		memcpy(ret, &v4.sin_addr, sizeof(v4.sin_addr));
	} else if (peer->sa_family == AF_INET6) {
		struct sockaddr_in6 v6;

		memcpy(&v6, peer, sizeof(v6));
		if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
			memcpy(ret, v6.sin6_addr.s6_addr + 12, 4);
		else
			memcpy(ret, v6.sin6_addr.s6_addr, 8);
	}
}

static unsigned bucket_of(const struct wrong_keys *w,
			  const struct sockaddr *peer)
{
	uint8_t text[sizeof(w->secret) + 8], hash[SHA256_DIGEST_LENGTH];
	uint32_t n;

	memcpy(text, w->secret, sizeof(w->secret));
	peer_bytes(peer, text + sizeof(w->secret));
	SHA256(text, sizeof(text), hash);
	memcpy(&n, hash, sizeof(n));
	return n % WRONG_KEYS_BUCKETS;
}

/* A bucket is the time at which it is full again: each try moves it on. */
int wrong_keys_note(struct wrong_keys *w, const struct sockaddr *peer)
{
	const int64_t room = (int64_t)WRONG_KEYS_BURST * WRONG_KEYS_REFILL_MS;
	int64_t *full_at = &w->peers[bucket_of(w, peer)].full_at_ms;
	int64_t now = clock_mono_ms(), next, over;

	next = (*full_at > now ? *full_at : now) + WRONG_KEYS_REFILL_MS;
	over = next - now - room;
	if (over > 0)
		return (int)((over + 999) / 1000);
	*full_at = next;
	return 0;
}
