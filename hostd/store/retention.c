/*
 * Erasing what is past its time: output of one-call runs 7 days after their
 * end, a sandbox with all that belongs to it 30 days after its end.
 *
 * In bites of STORE_ERASE_MAX rows (with the output that belongs to them), each
 * an operation of its own, so that neither a large backlog nor one sandbox with
 * many commands holds up the requests behind it.  A daemon that dies in between
 * goes on with the next start.
 */
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct erase_op {
	struct store_op op;
	int64_t now_ms;
	bool has_more;
	store_rc_fn fn;
	void *ctx;
};

static int run_for_id(struct db *db, const char *sql, const char *id,
		      int64_t now_ms)
{
	struct query q = query(db, sql);

	q_text(&q, id);
	if (now_ms)
		q_int(&q, now_ms);
	return q_run(&q);
}

/* One id that is due; 1, 0 or -errno. */
static int due(struct db *db, const char *sql, int64_t before_ms,
	       char id[ID_BYTES_MAX])
{
	struct query q = query(db, sql);
	int rc;

	q_int(&q, before_ms);
	rc = q_row(&q);
	if (rc > 0) {
		snprintf(id, ID_BYTES_MAX, "%s", q_text_at(&q, 0));
		q_end(&q);
	}
	return rc;
}

static int erase_output(struct db *db, const char *command, int64_t now_ms)
{
	int rc = run_for_id(db,
			    "UPDATE command SET output_erased_ms = ?2 WHERE"
			    " id = ?1",
			    command, now_ms);

	return rc ? rc
		  : run_for_id(db, "DELETE FROM blob WHERE owner = ?1", command,
			       0);
}

/*
 * What belongs to a sandbox, in the order in which it goes, at most ?2 rows of
 * each at once: a held one may have had any number of commands.  Output first,
 * so that none is left without the command that owns it.
 */
static const char *const parts[] = {
	("DELETE FROM blob WHERE owner IN (SELECT id FROM command WHERE"
	 " sandbox = ?1 ORDER BY seq LIMIT ?2)"),
	("DELETE FROM command WHERE seq IN (SELECT seq FROM command WHERE"
	 " sandbox = ?1 ORDER BY seq LIMIT ?2)"),
	("DELETE FROM event WHERE seq IN (SELECT seq FROM event WHERE"
	 " sandbox = ?1 ORDER BY seq LIMIT ?2)"),
	/* The keys that found it: they live as long as it does. */
	("DELETE FROM idempotency WHERE (environment, graph, operation,"
	 " \"key\") IN (SELECT environment, graph, operation, \"key\" FROM"
	 " idempotency WHERE sandbox = ?1 LIMIT ?2)"),
};

/* Takes what it erased from *left; 1 = all of it is gone, 0 = more is there. */
static int erase_sandbox(struct db *db, const char *id, int *left)
{
	int rc;

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		struct query q = query(db, parts[i]);

		q_text(&q, id);
		q_int(&q, *left);
		rc = q_run(&q);
		if (rc)
			return rc;
		/* Blobs come with the commands that are counted next. */
		*left -= i ? sqlite3_changes(db->h) : 0;
		if (*left <= 0)
			return 0;
	}
	rc = run_for_id(db, "DELETE FROM sandbox WHERE id = ?1", id, 0);
	(*left)--;
	return rc ? rc : 1;
}

static int erase_exec(struct db *db, struct store_op *op)
{
	struct erase_op *e = (struct erase_op *)op;
	char id[ID_BYTES_MAX];
	int left = STORE_ERASE_MAX, rc = 0;

	while (left > 0 &&
	       (rc = due(db,
			 "SELECT owner FROM blob WHERE expires_ms > 0"
			 " AND expires_ms <= ?1 LIMIT 1",
			 e->now_ms, id)) > 0) {
		rc = erase_output(db, id, e->now_ms);
		if (rc)
			return rc;
		left--;
	}
	while (left > 0 && !rc &&
	       (rc = due(db,
			 "SELECT id FROM sandbox WHERE ended_ms > 0 AND"
			 " ended_ms <= ?1 LIMIT 1",
			 e->now_ms - STORE_RECORDS_KEPT_MS, id)) > 0) {
		rc = erase_sandbox(db, id, &left);
		if (rc < 0)
			return rc;
		rc = 0;
	}
	e->has_more = left <= 0;
	return rc > 0 ? 0 : rc;
}

static void erase_done(struct store_op *op)
{
	struct erase_op *e = (struct erase_op *)op;

	if (!op->rc && e->has_more && !store_is_closing(op->store)) {
		store_submit(op->store, op);
		return;
	}
	e->fn(e->ctx, op->rc);
	free(e);
}

int store_retention(struct store *s, int64_t now_ms, store_rc_fn fn, void *ctx)
{
	struct erase_op *e = calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	e->op.exec = erase_exec;
	e->op.done = erase_done;
	e->now_ms = now_ms;
	e->fn = fn;
	e->ctx = ctx;
	store_submit(s, &e->op);
	return 0;
}
