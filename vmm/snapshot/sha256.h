/*
 * SHA-256 (FIPS 180-4).
 *
 * Our own, against the rule of using libraries, because of one measurement:
 * a process linked with OpenSSL's libcrypto has 3.4 MiB more private memory
 * than one without, more than twice what a whole VMM may have.  Uses the
 * processor's SHA instructions where it has them.
 */
#ifndef HUTCH_SHA256_H
#define HUTCH_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES	   32
#define SHA256_BLOCK_BYTES 64

struct sha256 {
	uint32_t h[8];
	uint64_t total; /* bytes so far */
	uint8_t part[SHA256_BLOCK_BYTES];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
void sha256_end(struct sha256 *s, uint8_t ret[SHA256_BYTES]);

#endif
