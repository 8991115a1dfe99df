/*
 * Table `event`: every change of a status, in order, with its reason; and that
 * a snapshot or a key was made or changed.  export.c finds records by it.
 */
#include "../clock.h"
#include "op.h"

int event_add(struct db *db, const struct event_at *at,
	      const struct event_rec *rec)
{
	_cleanup_bytes_ struct bytes cbor = {0};
	struct query q;
	int rc = event_rec_encode(rec, &cbor);

	if (rc)
		return rc;
	q = query(db, "INSERT INTO event(at_ms, environment, graph, sandbox,"
		      " command, kind, rec) VALUES(?1, ?2, ?3, ?4, ?5, ?6,"
		      " ?7)");
	q_int(&q, clock_wall_ms());
	q_text(&q, at->environment);
	q_text(&q, at->graph);
	q_text(&q, at->sandbox);
	q_text(&q, at->command);
	q_int(&q, at->kind);
	q_blob(&q, cbor.data, cbor.len);
	return q_run(&q);
}

int event_add_bare(struct db *db, const struct event_at *at)
{
	const struct event_rec rec = {0};

	return event_add(db, at, &rec);
}

int event_erase(struct db *db, const char *sandbox)
{
	struct query q = query(db, "DELETE FROM event WHERE sandbox = ?1");

	q_text(&q, sandbox);
	return q_run(&q);
}
