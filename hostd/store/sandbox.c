/* Table `sandbox`: put, get, list. */
#include "../clock.h"
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rows
 * -------------------------------------------------------------------- */

static int changed(struct db *db, const struct sandbox_rec *r, uint32_t from)
{
	const struct event_at at = {r->environment, r->graph, r->id, "",
				    EVENT_SANDBOX};
	struct event_rec ev = {
		.from = from, .to = r->status, .reason = r->reason};

	memcpy(ev.reason_text, r->reason_text, sizeof(ev.reason_text));
	return event_add(db, &at, &ev);
}

int sandbox_put(struct db *db, const struct sandbox_rec *r)
{
	_cleanup_bytes_ struct bytes cbor = {0};
	uint32_t from = 0;
	struct query q;
	int rc = sandbox_rec_encode(r, &cbor);

	if (rc)
		return rc;
	q = query(db, "SELECT status FROM sandbox WHERE id = ?1");
	q_text(&q, r->id);
	while ((rc = q_row(&q)) > 0)
		from = (uint32_t)q_int_at(&q, 0);
	if (rc)
		return rc;
	if (from && sandbox_status_is_final(from) && from != r->status)
		return -EPERM;
	q = query(db,
		  "INSERT INTO sandbox(id, environment, graph, status, kind,"
		  " template_name, incarnation, created_ms, ended_ms,"
		  " expires_ms, rec, name, template_id) VALUES(?1, ?2, ?3, ?4,"
		  " ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT(id)"
		  " DO UPDATE SET status = ?4, incarnation = ?7,"
		  " ended_ms = ?9, expires_ms = ?10, rec = ?11, name = ?12");
	q_text(&q, r->id);
	q_text(&q, r->environment);
	q_text(&q, r->graph);
	q_int(&q, r->status);
	q_int(&q, r->kind);
	q_text(&q, r->template_name);
	q_int(&q, (int64_t)r->incarnation);
	q_int(&q, r->created_ms);
	q_int(&q, r->ended_ms);
	q_int(&q, r->expires_ms);
	q_blob(&q, cbor.data, cbor.len);
	q_text(&q, r->name);
	q_text(&q, r->template_id);
	rc = q_run(&q);
	if (!rc && from != r->status)
		rc = changed(db, r, from);
	return rc;
}

void sandbox_set_aside(struct db *db, const char *id, int why)
{
	const struct event_at at = {"", "", id, "", EVENT_QUARANTINE};
	const struct event_rec ev = {0};
	struct query q;

	log_error("%s store: the sandbox record cannot be read (%s); it is "
		  "set aside",
		  id, why == -ENOTSUP ? "unknown version" : "damaged");
	/* Its VM, if it had one, is gone with the daemon that knew it. */
	q = query(db, "UPDATE sandbox SET is_quarantined = 1, status = CASE"
		      " WHEN status IN (6, 7, 8) THEN status ELSE 8 END,"
		      " ended_ms = CASE WHEN ended_ms > 0 THEN ended_ms ELSE"
		      " ?2 END WHERE id = ?1 AND is_quarantined = 0");
	q_text(&q, id);
	q_int(&q, clock_wall_ms());
	if (!q_run(&q))
		event_add(db, &at, &ev);
}

int sandbox_read(struct db *db, const char *id, struct sandbox_rec *r)
{
	struct query q = query(db, "SELECT rec, is_quarantined FROM sandbox"
				   " WHERE id = ?1");
	bool is_aside = false;
	const void *p;
	size_t len;
	int rc;

	q_text(&q, id);
	rc = q_row(&q);
	if (rc <= 0)
		return rc ? rc : -ENOENT;
	p = q_blob_at(&q, 0, &len);
	is_aside = q_int_at(&q, 1);
	rc = is_aside ? -EBADMSG : sandbox_rec_decode(r, p, len);
	q_end(&q);
	if (rc && !is_aside)
		sandbox_set_aside(db, id, rc);
	return rc ? -EBADMSG : 0;
}

/* ---- get
 * --------------------------------------------------------------------- */

struct get_op {
	struct store_op op;
	struct scope at;
	struct sandbox_rec rec;
	store_sandbox_fn fn;
	void *ctx;
};

static int get_exec(struct db *db, struct store_op *op)
{
	struct get_op *g = (struct get_op *)op;
	struct query q = query(db, "SELECT 1 FROM sandbox WHERE id = ?1 AND"
				   " environment = ?2 AND graph = ?3");
	int rc;

	q_text(&q, g->at.id);
	q_text(&q, g->at.environment);
	q_text(&q, g->at.graph);
	rc = q_row(&q);
	if (rc <= 0)
		return rc ? rc : -ENOENT;
	q_end(&q);
	return sandbox_read(db, g->at.id, &g->rec);
}

static void get_done(struct store_op *op)
{
	struct get_op *g = (struct get_op *)op;

	g->fn(g->ctx, op->rc, op->rc ? NULL : &g->rec);
	free(g);
}

int store_sandbox_get(struct store *s, const char *environment,
		      const char *graph, const char *id, store_sandbox_fn fn,
		      void *ctx)
{
	struct get_op *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->op.exec = get_exec;
	g->op.done = get_done;
	g->op.is_read = true;
	g->fn = fn;
	g->ctx = ctx;
	scope_set(&g->at, environment, graph, id);
	store_submit(s, &g->op);
	return 0;
}

/* ---- list
 * -------------------------------------------------------------------- */

/* Of one graph; of every graph for the administrator. */
static const char list_graph_sql[] =
	"SELECT id, rec FROM sandbox WHERE environment = ?1 AND graph = ?2"
	" AND seq < ?3 AND (?4 = 0 OR status = ?4)"
	" AND (?5 IS NULL OR template_name = ?5 OR"
	" template_id = nullif(?5, ''))"
	" AND (?6 IS NULL OR name = ?6) AND is_quarantined = 0"
	" ORDER BY seq DESC LIMIT ?7";
static const char list_all_sql[] =
	"SELECT id, rec FROM sandbox WHERE (?1 IS NULL OR environment = ?1)"
	" AND (?2 IS NULL OR graph = ?2) AND seq < ?3"
	" AND (?4 = 0 OR status = ?4)"
	" AND (?5 IS NULL OR template_name = ?5 OR"
	" template_id = nullif(?5, ''))"
	" AND (?6 IS NULL OR name = ?6) AND is_quarantined = 0"
	" ORDER BY seq DESC LIMIT ?7";

static struct query list_query(struct db *db, const struct store_page *p,
			       int64_t before)
{
	struct query q = query(db, p->environment && p->graph ? list_graph_sql
							      : list_all_sql);

	q_text(&q, p->environment);
	q_text(&q, p->graph);
	q_int(&q, before);
	q_int(&q, p->status);
	q_text(&q, p->template_name);
	q_text(&q, p->name);
	q_int(&q, (int64_t)p->limit + 1);
	return q;
}

static int list_row(const struct list_op *l, const struct query *q, void *rec)
{
	size_t len;
	const void *cbor = q_blob_at(q, 1, &len);

	(void)l;
	return sandbox_rec_decode(rec, cbor, len);
}

static void list_tell(const struct list_op *l)
{
	l->fn.sandboxes(l->ctx, l->op.rc, l->recs, l->n, l->has_more);
}

static const struct list_kind list_kind = {
	.rec_bytes = sizeof(struct sandbox_rec),
	.cursor_sql = "SELECT seq FROM sandbox WHERE id = ?1 AND"
		      " (?2 IS NULL OR environment = ?2) AND"
		      " (?3 IS NULL OR graph = ?3)",
	.query = list_query,
	.row = list_row,
	.set_aside = sandbox_set_aside,
	.tell = list_tell,
};

int store_sandbox_list(struct store *s, const struct store_page *p,
		       store_sandboxes_fn fn, void *ctx)
{
	const struct list_op what = {
		.kind = &list_kind, .fn.sandboxes = fn, .ctx = ctx};

	return list_start(s, p, &what);
}
