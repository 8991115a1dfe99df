/* Ids of records; see id.h. */
#include "id.h"
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

bool node_is_valid(const char *node)
{
	return node && strlen(node) == NODE_BYTES &&
	       strspn(node, "0123456789abcdefghijklmnopqrstuvwxyz") ==
		       NODE_BYTES;
}

int id_make(char ret[ID_BYTES_MAX], const char *prefix, const char *node)
{
	static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
	uint8_t random[ID_RANDOM_CHARS];
	size_t n;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	n = (size_t)snprintf(ret, ID_BYTES_MAX, "%.4s%.4s", prefix, node);
	for (size_t i = 0; i < ID_RANDOM_CHARS; i++)
		ret[n++] = base32[random[i] & 31];
	ret[n] = 0;
	return 0;
}
