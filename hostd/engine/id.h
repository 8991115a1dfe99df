/* Ids of records: kind, node, and 110 random bits nobody can guess. */
#ifndef HUTCHD_ID_H
#define HUTCHD_ID_H

#include "../store/record.h"
#include <stdbool.h>

#define NODE_BYTES	4
#define ID_RANDOM_CHARS 22

/* 4 characters of [0-9a-z]? */
bool node_is_valid(const char *node);
/* "sbx_" + node + 22 characters of [a-z2-7]; 0 or -EIO (no randomness). */
int id_make(char ret[ID_BYTES_MAX], const char *prefix, const char *node);

#endif
