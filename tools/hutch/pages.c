/* See pages.h. */
#include "pages.h"
#include <stdio.h>

/* The longest one is a file's name in hexadecimal. */
#define CURSOR_BYTES 512

/* false: enough. */
static bool items_tell(const struct pages *p, struct json_span root)
{
	struct json_member m;
	struct json_span data;
	struct json_iter it;

	if (!json_at(root, "data", &data))
		return true;
	json_iter_begin(&it, data);
	while (json_iter_next(&it, &m))
		if (!p->item(p->ctx, m.value))
			return false;
	return true;
}

int pages_read(struct cli *c, const struct pages *p, struct err *e)
{
	char cursor[CURSOR_BYTES] = "";
	bool has_more = true;

	while (has_more) {
		_cleanup_bytes_ struct bytes path = {0};
		_cleanup_answer_ struct answer a = {0};

		if (p->path(p->ctx, *cursor ? cursor : NULL, &path))
			return err_set(e, ERR_INTERNAL, NULL, "no memory");
		if (cli_call(c, "GET", (char *)path.data, NULL, NULL, &a, e))
			return -1;
		if (c->is_json)
			printf("%.*s\n", (int)a.root.len, a.root.at);
		else if (!items_tell(p, a.root))
			return 0;
		answer_text(a.root, "next_cursor", cursor, sizeof(cursor), "");
		has_more = answer_bool(a.root, "has_more") && *cursor;
	}
	return 0;
}
