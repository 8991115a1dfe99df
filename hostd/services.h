/*
 * What the daemon consists of, for the handlers of all surfaces.  Filled by
 * main in the order of a start; all borrowed.
 */
#ifndef HUTCHD_SERVICES_H
#define HUTCHD_SERVICES_H

#include "http/canon.h"
#include <stdint.h>

struct auth;
struct config;
struct engine;
struct http_server;
struct link;
struct loop;
struct store;

struct services {
	struct loop *loop;
	struct store *store;
	struct link *link;
	struct engine *engine;
	struct auth *auth;
	struct http_server *http;
	const struct config *config;
	uint8_t request_key[CANON_KEY_BYTES];
	int64_t started_ms; /* wall */
	unsigned n_lost;    /* commands found open at the start */
};

#endif
