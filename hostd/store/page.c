/*
 * What requests carry to the store's thread: scopes; and pages of records,
 * which all tables give in one way (struct list_kind in op.h).
 */
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

/* ---- pages ----------------------------------------------------------------
 */

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

static void page_finish(struct store_page *p)
{
	drop(&p->environment);
	drop(&p->graph);
	drop(&p->cursor);
	drop(&p->sandbox);
	drop(&p->template_name);
	drop(&p->name);
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
	rc |= copy(&dst->name, src->name);
	if (rc)
		page_finish(dst);
	return rc;
}

/* ---- lists ----------------------------------------------------------------
 */

static void *rec_at(const struct list_op *l, size_t i)
{
	return (char *)l->recs + i * l->kind->rec_bytes;
}

static void list_clear(struct list_op *l)
{
	for (size_t i = 0; l->kind->finish && i < l->n; i++)
		l->kind->finish(rec_at(l, i));
	l->n = 0;
	l->has_more = false;
}

/* Where the page begins.  -EINVAL: the cursor names no row. */
static int list_begin(struct db *db, const struct list_op *l,
		      int64_t *ret_before)
{
	const struct store_page *p = &l->page;
	struct query q;
	int rc;

	*ret_before = INT64_MAX;
	if (!p->cursor)
		return 0;
	q = query(db, l->kind->cursor_sql);
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

static int list_rows(struct db *db, struct list_op *l, int64_t before,
		     char bad[ID_BYTES_MAX])
{
	struct query q = l->kind->query(db, &l->page, before);
	int rc;

	list_clear(l);
	while ((rc = q_row(&q)) > 0) {
		if (l->n == l->page.limit) {
			l->has_more = true;
			q_end(&q);
			return 0;
		}
		rc = l->kind->row(l, &q, rec_at(l, l->n));
		if (rc < 0) {
			snprintf(bad, ID_BYTES_MAX, "%s", q_text_at(&q, 0));
			q_end(&q);
			return rc;
		}
		l->n += rc == 0;
	}
	return rc;
}

static int list_exec(struct db *db, struct store_op *op)
{
	struct list_op *l = (struct list_op *)op;
	char bad[ID_BYTES_MAX];
	int64_t before;
	int rc = list_begin(db, l, &before);

	/* A damaged record is set aside and the page is read again. */
	while (!rc) {
		memset(bad, 0, sizeof(bad));
		rc = list_rows(db, l, before, bad);
		if (!rc || !*bad || rc == -ENOMEM)
			break;
		l->kind->set_aside(db, bad, rc);
		rc = 0;
	}
	return rc;
}

static void list_done(struct store_op *op)
{
	struct list_op *l = (struct list_op *)op;

	if (op->rc)
		list_clear(l);
	l->kind->tell(l);
	list_clear(l);
	free(l->recs);
	page_finish(&l->page);
	free(l);
}

int list_start(struct store *s, const struct store_page *p,
	       const struct list_op *what)
{
	struct list_op *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	*l = *what;
	if (page_copy(&l->page, p)) {
		free(l);
		return -ENOMEM;
	}
	l->recs = calloc(l->page.limit + 1, l->kind->rec_bytes);
	if (!l->recs) {
		page_finish(&l->page);
		free(l);
		return -ENOMEM;
	}
	l->op.exec = list_exec;
	l->op.done = list_done;
	l->op.is_read = true;
	store_submit(s, &l->op);
	return 0;
}

void *list_grown(void *list, size_t n, size_t *cap, size_t each)
{
	size_t more = *cap ? *cap * 2 : 16;
	void *p;

	if (n < *cap)
		return list;
	p = realloc(list, more * each);
	if (p)
		*cap = more;
	return p;
}
