/* Table `command` and the output of commands in `blob`: put, get, list. */
#include "../clock.h"
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rows
 * -------------------------------------------------------------------- */

static int changed(struct db *db, const struct command_rec *r, uint32_t from)
{
	const struct event_at at = {r->environment, r->graph, r->sandbox, r->id,
				    EVENT_COMMAND};
	struct event_rec ev = {
		.from = from, .to = r->status, .reason = r->reason};

	memcpy(ev.reason_text, r->reason_text, sizeof(ev.reason_text));
	return event_add(db, &at, &ev);
}

static int row_put(struct db *db, const struct command_rec *r)
{
	_cleanup_bytes_ struct bytes cbor = {0};
	struct query q;
	int rc = command_rec_encode(r, &cbor);

	if (rc)
		return rc;
	q = query(db,
		  "INSERT INTO command(id, sandbox, environment, graph, status,"
		  " kind, created_ms, ended_ms, rec) VALUES(?1, ?2, ?3, ?4,"
		  " ?5, ?6, ?7, ?8, ?9) ON CONFLICT(id) DO UPDATE SET"
		  " status = ?5, ended_ms = ?8, rec = ?9");
	q_text(&q, r->id);
	q_text(&q, r->sandbox);
	q_text(&q, r->environment);
	q_text(&q, r->graph);
	q_int(&q, r->status);
	q_int(&q, r->kind);
	q_int(&q, r->created_ms);
	q_int(&q, r->ended_ms);
	q_blob(&q, cbor.data, cbor.len);
	return q_run(&q);
}

static struct bytes *part_of(struct command_rec *r, int part)
{
	struct output_rec *o = &r->out[(part - 1) / 2];

	return part % 2 ? &o->head : &o->tail;
}

/* Output of a one-call run has a time of its own; other output stays as long
 * as the record. */
static int64_t output_expiry(struct db *db, const struct command_rec *r)
{
	struct query q = query(db, "SELECT kind FROM sandbox WHERE id = ?1");
	int64_t kind = 0;

	q_text(&q, r->sandbox);
	while (q_row(&q) > 0)
		kind = q_int_at(&q, 0);
	if (kind != SBX_KIND_ONE_CALL)
		return 0;
	return (r->ended_ms ? r->ended_ms : clock_wall_ms()) +
	       STORE_OUTPUT_KEPT_MS;
}

static int output_put(struct db *db, const struct command_rec *r)
{
	struct command_rec view = *r; /* borrows */
	int64_t expires_ms = output_expiry(db, r);
	int rc = 0;

	for (int part = 1; part <= 4 && !rc; part++) {
		const struct bytes *b = part_of(&view, part);
		struct query q =
			query(db, "INSERT OR REPLACE INTO blob(owner, part,"
				  " expires_ms, data) VALUES(?1, ?2, ?3, ?4)");

		if (!b->len)
			continue;
		q_text(&q, r->id);
		q_int(&q, part);
		q_int(&q, expires_ms);
		q_blob(&q, b->data, b->len);
		rc = q_run(&q);
	}
	return rc;
}

int command_put(struct db *db, const struct command_rec *r, bool with_output)
{
	struct query q = query(db, "SELECT status FROM command WHERE id = ?1");
	uint32_t from = 0;
	int rc;

	q_text(&q, r->id);
	while ((rc = q_row(&q)) > 0)
		from = (uint32_t)q_int_at(&q, 0);
	if (!rc && from && command_status_is_final(from) && from != r->status)
		rc = -EPERM;
	if (!rc)
		rc = row_put(db, r);
	if (!rc && with_output)
		rc = output_put(db, r);
	if (!rc && from != r->status)
		rc = changed(db, r, from);
	return rc;
}

void command_set_aside(struct db *db, const char *id, int why)
{
	const struct event_at at = {"", "", "", id, EVENT_QUARANTINE};
	const struct event_rec ev = {0};
	struct query q;

	log_error("store: the record of command %s cannot be read (%s); it is "
		  "set aside",
		  id, why == -ENOTSUP ? "unknown version" : "damaged");
	q = query(db, "UPDATE command SET is_quarantined = 1, status = CASE"
		      " WHEN status IN (1, 2) THEN 7 ELSE status END,"
		      " ended_ms = CASE WHEN ended_ms > 0 THEN ended_ms ELSE"
		      " ?2 END WHERE id = ?1 AND is_quarantined = 0");
	q_text(&q, id);
	q_int(&q, clock_wall_ms());
	if (!q_run(&q))
		event_add(db, &at, &ev);
}

static int output_read(struct db *db, struct command_rec *r)
{
	struct query q = query(db, "SELECT part, data FROM blob"
				   " WHERE owner = ?1");
	const void *p;
	size_t len;
	int rc;

	q_text(&q, r->id);
	while ((rc = q_row(&q)) > 0) {
		int64_t part = q_int_at(&q, 0);

		p = q_blob_at(&q, 1, &len);
		if (part < 1 || part > 4 ||
		    len > OUTPUT_HEAD_BYTES + OUTPUT_TAIL_BYTES)
			rc = -EBADMSG;
		else
			rc = bytes_append(part_of(r, (int)part), p, len);
		if (rc) {
			q_end(&q);
			return rc;
		}
	}
	return rc;
}

int command_read(struct db *db, const struct scope *at, bool with_output,
		 struct command_rec *r)
{
	struct query q = query(db, "SELECT rec, is_quarantined,"
				   " output_erased_ms FROM command WHERE"
				   " id = ?1 AND environment = ?2 AND"
				   " graph = ?3");
	bool is_aside, is_erased;
	const void *p;
	size_t len;
	int rc;

	memset(r, 0, sizeof(*r));
	q_text(&q, at->id);
	q_text(&q, at->environment);
	q_text(&q, at->graph);
	rc = q_row(&q);
	if (rc <= 0)
		return rc ? rc : -ENOENT;
	p = q_blob_at(&q, 0, &len);
	is_aside = q_int_at(&q, 1);
	is_erased = q_int_at(&q, 2) > 0;
	rc = is_aside ? -EBADMSG : command_rec_decode(r, p, len);
	q_end(&q);
	if (!rc) {
		r->out[0].is_expired = r->out[1].is_expired = is_erased;
		if (with_output)
			rc = output_read(db, r);
	}
	if ((rc == -EBADMSG || rc == -ENOTSUP) && !is_aside)
		command_set_aside(db, at->id, rc);
	if (rc)
		command_rec_finish(r);
	return rc == -ENOTSUP ? -EBADMSG : rc;
}

int command_copy_for_store(struct command_rec *dst,
			   const struct command_rec *src, bool with_output)
{
	struct command_rec view = *src; /* borrows */

	for (int part = 1; part <= 4 && !with_output; part++)
		memset(part_of(&view, part), 0, sizeof(struct bytes));
	return command_rec_copy(dst, &view);
}

/* ---- get
 * --------------------------------------------------------------------- */

struct get_op {
	struct store_op op;
	struct scope at;
	bool with_output;
	struct command_rec rec;
	store_command_fn fn;
	void *ctx;
};

static int get_exec(struct db *db, struct store_op *op)
{
	struct get_op *g = (struct get_op *)op;

	return command_read(db, &g->at, g->with_output, &g->rec);
}

static void get_done(struct store_op *op)
{
	struct get_op *g = (struct get_op *)op;

	g->fn(g->ctx, op->rc, op->rc ? NULL : &g->rec);
	command_rec_finish(&g->rec);
	free(g);
}

int store_command_get(struct store *s, const char *environment,
		      const char *graph, const char *id, bool with_output,
		      store_command_fn fn, void *ctx)
{
	struct get_op *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->op.exec = get_exec;
	g->op.done = get_done;
	g->op.is_read = true;
	g->with_output = with_output;
	g->fn = fn;
	g->ctx = ctx;
	scope_set(&g->at, environment, graph, id);
	store_submit(s, &g->op);
	return 0;
}

/* ---- list
 * -------------------------------------------------------------------- */

static const char list_graph_sql[] =
	"SELECT id, rec, output_erased_ms FROM command WHERE environment = ?1"
	" AND graph = ?2 AND seq < ?3 AND (?4 = 0 OR status = ?4)"
	" AND is_quarantined = 0 ORDER BY seq DESC LIMIT ?5";
static const char list_sandbox_sql[] =
	"SELECT id, rec, output_erased_ms FROM command WHERE sandbox = ?6"
	" AND (?1 IS NULL OR environment = ?1) AND (?2 IS NULL OR graph = ?2)"
	" AND seq < ?3 AND (?4 = 0 OR status = ?4) AND is_quarantined = 0"
	" ORDER BY seq DESC LIMIT ?5";
static const char list_all_sql[] =
	"SELECT id, rec, output_erased_ms FROM command WHERE"
	" (?1 IS NULL OR environment = ?1) AND (?2 IS NULL OR graph = ?2)"
	" AND seq < ?3 AND (?4 = 0 OR status = ?4) AND is_quarantined = 0"
	" ORDER BY seq DESC LIMIT ?5";

static struct query list_query(struct db *db, const struct store_page *p,
			       int64_t before)
{
	struct query q = query(db, p->sandbox ? list_sandbox_sql
				   : p->environment && p->graph ? list_graph_sql
								: list_all_sql);

	q_text(&q, p->environment);
	q_text(&q, p->graph);
	q_int(&q, before);
	q_int(&q, p->status);
	q_int(&q, (int64_t)p->limit + 1);
	if (p->sandbox)
		q_text(&q, p->sandbox);
	return q;
}

static int list_row(const struct list_op *l, const struct query *q, void *rec)
{
	struct command_rec *r = rec;
	size_t len;
	const void *cbor = q_blob_at(q, 1, &len);
	int rc = command_rec_decode(r, cbor, len);

	(void)l;
	if (rc)
		return rc;
	r->out[0].is_expired = r->out[1].is_expired = q_int_at(q, 2) > 0;
	bytes_finish(&r->result); /* a page is not for results */
	return 0;
}

static void list_finish(void *rec)
{
	command_rec_finish(rec);
}

static void list_tell(const struct list_op *l)
{
	l->fn.commands(l->ctx, l->op.rc, l->recs, l->n, l->has_more);
}

static const struct list_kind list_kind = {
	.rec_bytes = sizeof(struct command_rec),
	.cursor_sql = "SELECT seq FROM command WHERE id = ?1 AND"
		      " (?2 IS NULL OR environment = ?2) AND"
		      " (?3 IS NULL OR graph = ?3)",
	.query = list_query,
	.row = list_row,
	.set_aside = command_set_aside,
	.finish = list_finish,
	.tell = list_tell,
};

int store_command_list(struct store *s, const struct store_page *p,
		       store_commands_fn fn, void *ctx)
{
	const struct list_op what = {
		.kind = &list_kind, .fn.commands = fn, .ctx = ctx};

	return list_start(s, p, &what);
}
