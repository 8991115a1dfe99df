/* Listening sockets.  They return the descriptor or -1 with `e`. */
#ifndef HUTCHD_LISTEN_H
#define HUTCHD_LISTEN_H

#include "err.h"
#include <stddef.h>

/* 0 when it has the form of an address and a port, else -1 with `e`. */
int listen_check(const char *where, struct err *e);
/* "127.0.0.1:7400", "[::1]:0"; *ret_address gets the real port. */
int listen_tcp(const char *where, char *ret_address, size_t cap,
	       bool *ret_is_loopback, struct err *e);
/* Mode 0600; a socket file that is left over is replaced. */
int listen_unix(const char *path, struct err *e);

#endif
