/* What requests carry to the store's thread: scopes and pages. */
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void scope_set(struct scope *at, const char *environment, const char *graph,
	       const char *id)
{
	memset(at, 0, sizeof(*at));
	/* A name that does not fit is the name of nothing. */
	if (strlen(environment) >= sizeof(at->environment) ||
	    strlen(graph) >= sizeof(at->graph) || strlen(id) >= sizeof(at->id))
		return;
	snprintf(at->environment, sizeof(at->environment), "%s", environment);
	snprintf(at->graph, sizeof(at->graph), "%s", graph);
	snprintf(at->id, sizeof(at->id), "%s", id);
}

int page_start(struct db *db, const char *sql, const struct store_page *p,
	       int64_t *ret_before)
{
	struct query q;
	int rc;

	*ret_before = INT64_MAX;
	if (!p->cursor)
		return 0;
	q = query(db, sql);
	q_text(&q, p->cursor);
	q_text(&q, p->environment);
	q_text(&q, p->graph);
	rc = q_row(&q);
	if (rc <= 0)
		return rc ? rc : -EINVAL;
	*ret_before = q_int_at(&q, 0);
	q_end(&q);
	return 0;
}

static int copy(const char **dst, const char *src)
{
	*dst = src ? strdup(src) : NULL;
	return src && !*dst ? -ENOMEM : 0;
}

static void drop(const char **s)
{
	free((void *)(uintptr_t)*s);
	*s = NULL;
}

void page_finish(struct store_page *p)
{
	drop(&p->environment);
	drop(&p->graph);
	drop(&p->cursor);
	drop(&p->sandbox);
	drop(&p->template_name);
}

static int page_copy(struct store_page *dst, const struct store_page *src)
{
	int rc = 0;

	memset(dst, 0, sizeof(*dst));
	dst->status = src->status;
	dst->limit = src->limit > STORE_LIST_RECORDS_MAX
			     ? STORE_LIST_RECORDS_MAX
			     : src->limit;
	rc |= copy(&dst->environment, src->environment);
	rc |= copy(&dst->graph, src->graph);
	rc |= copy(&dst->cursor, src->cursor);
	rc |= copy(&dst->sandbox, src->sandbox);
	rc |= copy(&dst->template_name, src->template_name);
	if (rc)
		page_finish(dst);
	return rc;
}

void *page_make(struct store_page *dst, const struct store_page *src,
		size_t rec_bytes)
{
	void *recs = NULL;

	if (page_copy(dst, src))
		return NULL;
	recs = calloc(dst->limit + 1, rec_bytes);
	if (!recs)
		page_finish(dst);
	return recs;
}
