/*
 * The name of a snapshot: a hash over everything that it depends on.
 *
 * A snapshot holds CPU state, so it fits only the same kind of KVM on a CPU
 * with the same features; it holds a kernel, init and an interpreter in the
 * middle of their work, so it fits only the same files under them.
 */
#ifndef HUTCHD_KEY_H
#define HUTCHD_KEY_H

#include "bytes.h"
#include "template.h"
#include <stdbool.h>

#define KEY_HEX_BYTES 65

struct key_inputs {
	bool is_soft;
	uint8_t vmm[HASH_BYTES], kernel[HASH_BYTES], init[HASH_BYTES],
		root[HASH_BYTES];
	const char *cmdline, *runner;
	bool has_preload;
	struct shape shape;
};

/*
 * Lines "name=value" in `out` (for meta.json: a person can see why two keys
 * differ) and their SHA-256 in hex.  0 or -errno.
 */
int key_make(const struct key_inputs *in, struct bytes *out,
	     char ret_hex[KEY_HEX_BYTES]);

#endif
