/* Lists of the daemon, read page by page to their end. */
#ifndef HUTCH_CLI_PAGES_H
#define HUTCH_CLI_PAGES_H

#include "client.h"

struct pages {
	/* Path of the page at `cursor`, NULL = the first; 0 or not. */
	int (*path)(void *ctx, const char *cursor, struct bytes *out);
	/* One item; false: enough. */
	bool (*item)(void *ctx, struct json_span v);
	void *ctx;
};

/* Items, or with --json the pages, a line each.  0 or -1 with `e`. */
int pages_read(struct cli *c, const struct pages *p, struct err *e);

#endif
