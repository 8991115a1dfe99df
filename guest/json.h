/*
 * Is this text one JSON value (RFC 8259)?  User code writes results, so what
 * claims to be JSON is checked before it goes to the host.
 */
#ifndef HUTCH_GUEST_JSON_H
#define HUTCH_GUEST_JSON_H

#include <stdbool.h>
#include <stddef.h>

#define JSON_DEPTH_MAX 4096

/* Valid UTF-8 is required; escapes may be lone surrogates. */
bool json_is_valid(const void *text, size_t len);

#endif
