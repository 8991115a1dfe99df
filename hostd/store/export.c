/*
 * Every record, in the order of its last change: what `hutch records export`
 * reads.
 *
 * Table `event` is the thread that all kinds hang on.  A page walks it upward
 * from `after`; an event gives its record when it is the newest of that record,
 * else it is passed over.  So a walk from 0 meets each record once, a walk that
 * goes on later meets what is new and what has changed, and one number says
 * where it stopped.  Of a command, whose status never comes back, the event
 * with the status of the row is the newest; of others the events that follow
 * are looked at, up to the next one of the same thing.
 *
 * Records leave as the bytes that are stored.  They are decoded first; one that
 * cannot be is set aside, and its name comes where it was.  The events of a
 * page and its bytes are bounded, because the store's thread does nothing else
 * meanwhile.
 */
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct export_op {
	struct store_op op;
	struct store_export ask; /* owned strings */
	struct export_page page; /* owned */
	store_export_fn fn;
	void *ctx;
};

/* A row of `event`, and what is asked of its record's row. */
struct event_row {
	uint64_t seq;
	int64_t at_ms;
	enum event_kind kind;
	char sandbox[ID_BYTES_MAX], command[GRAPH_NAME_BYTES_MAX + 1];
	uint32_t to; /* status; 0 = not known */
};

struct record_row {
	const void *cbor; /* until the query ends */
	size_t len;
	bool is_aside;
	uint32_t status;
	const char *environment, *graph;
	int64_t created_ms, revoked_ms;
};

/* ---- one record ---------------------------------------------------------- */

/* ?1 the event's `sandbox`, ?2 its `command`. */
static struct query record_query(struct db *db, enum export_kind kind)
{
	switch (kind) {
	case EXPORT_SANDBOX:
		return query(db, "SELECT rec, is_quarantined, status,"
				 " environment, graph, created_ms, 0 FROM"
				 " sandbox WHERE id = ?1 AND ?2 = ''");
	case EXPORT_COMMAND:
		return query(db, "SELECT rec, is_quarantined, status,"
				 " environment, graph, created_ms, 0 FROM"
				 " command WHERE id = ?2 AND"
				 " (?1 = '' OR sandbox = ?1)");
	case EXPORT_SNAPSHOT:
		return query(db, "SELECT rec, 0, 0, environment, graph,"
				 " created_ms, 0 FROM snapshot WHERE id = ?1"
				 " AND ?2 = ''");
	case EXPORT_KEY:
		break;
	}
	return query(db, "SELECT rec, 0, 0, environment, '', created_ms,"
			 " revoked_ms FROM \"key\" WHERE environment = ?1 AND"
			 " name = ?2");
}

/* False: the event is of nothing that is exported. */
static bool kind_of(const struct event_row *ev, enum export_kind *ret)
{
	switch (ev->kind) {
	case EVENT_SANDBOX:
		*ret = EXPORT_SANDBOX;
		return true;
	case EVENT_COMMAND:
		*ret = EXPORT_COMMAND;
		return true;
	case EVENT_QUARANTINE:
		*ret = *ev->command ? EXPORT_COMMAND : EXPORT_SANDBOX;
		return true;
	case EVENT_SNAPSHOT:
		*ret = EXPORT_SNAPSHOT;
		return true;
	case EVENT_KEY:
		*ret = EXPORT_KEY;
		return true;
	case EVENT_DAEMON:
		break;
	}
	return false;
}

static int is_wanted(const struct export_op *x, const struct record_row *r)
{
	const struct store_export *a = &x->ask;

	return (!a->environment || !strcmp(a->environment, r->environment)) &&
	       (!a->graph || !strcmp(a->graph, r->graph)) &&
	       r->created_ms >= a->since_ms &&
	       (!a->until_ms || r->created_ms < a->until_ms);
}

/* 1: no later event is of the same thing; 0, or -errno. */
static int is_newest(struct db *db, const struct event_row *ev)
{
	struct query q = query(db, "SELECT 1 FROM event WHERE sandbox = ?1 AND"
				   " seq > ?2 AND command = ?3 AND kind = ?4"
				   " LIMIT 1");
	int rc;

	q_text(&q, ev->sandbox);
	q_int(&q, (int64_t)ev->seq);
	q_text(&q, ev->command);
	q_int(&q, ev->kind);
	rc = q_row(&q);
	if (rc > 0)
		q_end(&q);
	return rc < 0 ? rc : rc == 0;
}

static int decode_check(enum export_kind kind, const void *cbor, size_t len)
{
	struct command_rec command = {0};
	union {
		struct sandbox_rec sandbox;
		struct snapshot_rec snapshot;
		struct key_info key;
	} u;
	int rc = -EBADMSG;

	switch (kind) {
	case EXPORT_SANDBOX:
		rc = sandbox_rec_decode(&u.sandbox, cbor, len);
		break;
	case EXPORT_COMMAND:
		rc = command_rec_decode(&command, cbor, len);
		command_rec_finish(&command);
		break;
	case EXPORT_SNAPSHOT:
		rc = snapshot_rec_decode(&u.snapshot, cbor, len);
		break;
	case EXPORT_KEY:
		rc = key_rec_decode(&u.key, cbor, len);
		break;
	}
	return rc;
}

/* ---- a page ---------------------------------------------------------------
 */

/* Its bytes, or that it is set aside; -errno. */
static int take(struct export_op *x, const struct event_row *ev,
		enum export_kind kind, const struct record_row *r)
{
	struct export_page *p = &x->page;
	struct export_item *it = &p->items[p->n];
	int rc = r->is_aside ? -EBADMSG : decode_check(kind, r->cbor, r->len);

	if (rc == -ENOMEM)
		return rc;
	*it = (struct export_item){
		.seq = ev->seq,
		.at_ms = ev->at_ms,
		.revoked_ms = r->revoked_ms,
		.kind = kind,
		.is_set_aside = rc != 0,
		.why = r->is_aside ? 0 : rc,
		.at = p->cbor.len,
	};
	snprintf(it->id, sizeof(it->id), "%s",
		 kind == EXPORT_COMMAND || kind == EXPORT_KEY ? ev->command
							      : ev->sandbox);
	if (!rc) {
		rc = bytes_append(&p->cbor, r->cbor, r->len);
		if (rc)
			return rc;
		it->len = r->len;
	}
	p->n++;
	return 0;
}

/* One that is quarantined is told by its own event. */
static int is_told_here(struct db *db, const struct event_row *ev,
			const struct record_row *r)
{
	if (ev->kind == EVENT_QUARANTINE)
		return r->is_aside ? is_newest(db, ev) : 0;
	if (r->is_aside)
		return 0;
	if (ev->to && r->status && ev->to != r->status)
		return 0;
	return ev->kind == EVENT_COMMAND && ev->to ? 1 : is_newest(db, ev);
}

static int visit(struct db *db, struct export_op *x, const struct event_row *ev)
{
	enum export_kind kind;
	struct record_row r;
	struct query q;
	int rc;

	if (!kind_of(ev, &kind))
		return 0;
	q = record_query(db, kind);
	q_text(&q, ev->sandbox);
	q_text(&q, ev->command);
	rc = q_row(&q);
	if (rc <= 0)
		return rc; /* it was erased since */
	r.cbor = q_blob_at(&q, 0, &r.len);
	r.is_aside = q_int_at(&q, 1);
	r.status = (uint32_t)q_int_at(&q, 2);
	r.environment = q_text_at(&q, 3);
	r.graph = q_text_at(&q, 4);
	r.created_ms = q_int_at(&q, 5);
	r.revoked_ms = q_int_at(&q, 6);
	rc = is_wanted(x, &r) ? is_told_here(db, ev, &r) : 0;
	if (rc > 0)
		rc = take(x, ev, kind, &r);
	q_end(&q);
	return rc;
}

static int event_row_read(const struct query *q, struct event_row *ev)
{
	struct event_rec rec;
	const void *cbor;
	size_t len;
	int rc;

	ev->seq = (uint64_t)q_int_at(q, 0);
	ev->at_ms = q_int_at(q, 1);
	ev->kind = (enum event_kind)q_int_at(q, 2);
	snprintf(ev->sandbox, sizeof(ev->sandbox), "%s", q_text_at(q, 3));
	snprintf(ev->command, sizeof(ev->command), "%s", q_text_at(q, 4));
	cbor = q_blob_at(q, 5, &len);
	rc = event_rec_decode(&rec, cbor, len);
	ev->to = rc ? 0 : rec.to;
	return rc == -ENOMEM ? rc : 0;
}

static int walk(struct db *db, struct export_op *x)
{
	struct export_page *p = &x->page;
	struct query q = query(db, "SELECT seq, at_ms, kind, sandbox, command,"
				   " rec FROM event WHERE seq > ?1 ORDER BY seq"
				   " LIMIT ?2");
	struct event_row ev;
	unsigned n = 0;
	int rc;

	q_int(&q, (int64_t)x->ask.after);
	q_int(&q, STORE_EXPORT_EVENTS_MAX);
	while ((rc = q_row(&q)) > 0) {
		rc = event_row_read(&q, &ev);
		if (!rc)
			rc = visit(db, x, &ev);
		if (rc) {
			q_end(&q);
			return rc;
		}
		p->next = ev.seq;
		n++;
		if (p->cbor.len >= STORE_EXPORT_BYTES) {
			p->has_more = true;
			q_end(&q);
			return 0;
		}
	}
	p->has_more = n == STORE_EXPORT_EVENTS_MAX;
	return rc;
}

/* What this walk found to be damaged has an event now, later on: told there. */
static void set_aside_found(struct db *db, struct export_page *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		const struct export_item *it = &p->items[i];
		bool is_found = it->is_set_aside && it->why;

		if (is_found && it->kind == EXPORT_SANDBOX)
			sandbox_set_aside(db, it->id, it->why);
		else if (is_found && it->kind == EXPORT_COMMAND)
			command_set_aside(db, it->id, it->why);
		else
			is_found = false;
		if (is_found)
			p->has_more = true;
		else
			p->items[n++] = *it;
	}
	p->n = n;
}

static int newest(struct db *db, uint64_t *ret)
{
	struct query q = query(db, "SELECT max(seq) FROM event");
	int rc;

	while ((rc = q_row(&q)) > 0)
		*ret = (uint64_t)q_int_at(&q, 0);
	return rc;
}

static int export_exec(struct db *db, struct store_op *op)
{
	struct export_op *x = (struct export_op *)op;
	int rc;

	x->page.next = x->ask.after;
	rc = newest(db, &x->page.newest);
	if (!rc && x->ask.after > x->page.newest)
		return -EINVAL;
	if (!rc)
		rc = walk(db, x);
	if (!rc)
		set_aside_found(db, &x->page);
	return rc;
}

static void export_free(struct export_op *x)
{
	bytes_finish(&x->page.cbor);
	free(x->page.items);
	free((void *)(uintptr_t)x->ask.environment);
	free((void *)(uintptr_t)x->ask.graph);
	free(x);
}

static void export_done(struct store_op *op)
{
	struct export_op *x = (struct export_op *)op;

	x->fn(x->ctx, op->rc, op->rc ? NULL : &x->page);
	export_free(x);
}

int store_export_page(struct store *s, const struct store_export *ask,
		      store_export_fn fn, void *ctx)
{
	struct export_op *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->op.exec = export_exec;
	x->op.done = export_done;
	x->op.is_read = true;
	x->ask = *ask;
	x->ask.environment = ask->environment ? strdup(ask->environment) : NULL;
	x->ask.graph = ask->graph ? strdup(ask->graph) : NULL;
	x->page.items = calloc(STORE_EXPORT_EVENTS_MAX, sizeof(*x->page.items));
	if (!x->page.items || (ask->environment && !x->ask.environment) ||
	    (ask->graph && !x->ask.graph)) {
		export_free(x);
		return -ENOMEM;
	}
	x->fn = fn;
	x->ctx = ctx;
	store_submit(s, &x->op);
	return 0;
}
