/*
 * Erasing what is past its time: output of one-call runs 7 days after their
 * end, a sandbox with all that belongs to it 30 days after its end.
 *
 * In bites of STORE_ERASE_MAX, each a transaction of its own, so that a large
 * backlog does not hold up the requests behind it.
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

static int erase_sandbox(struct db *db, const char *id)
{
	static const char *const steps[] = {
		("DELETE FROM blob WHERE owner IN"
		 " (SELECT id FROM command WHERE sandbox = ?1)"),
		"DELETE FROM command WHERE sandbox = ?1",
		"DELETE FROM idempotency WHERE sandbox = ?1",
		"DELETE FROM event WHERE sandbox = ?1",
		"DELETE FROM sandbox WHERE id = ?1",
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(steps) / sizeof(*steps); i++)
		rc = run_for_id(db, steps[i], id, 0);
	return rc;
}

static int erase_exec(struct db *db, struct store_op *op)
{
	struct erase_op *e = (struct erase_op *)op;
	char id[ID_BYTES_MAX];
	int left = STORE_ERASE_MAX, rc = 0;

	while (left && (rc = due(db,
				 "SELECT owner FROM blob WHERE expires_ms > 0"
				 " AND expires_ms <= ?1 LIMIT 1",
				 e->now_ms, id)) > 0) {
		rc = erase_output(db, id, e->now_ms);
		if (rc)
			return rc;
		left--;
	}
	while (left && !rc &&
	       (rc = due(db,
			 "SELECT id FROM sandbox WHERE ended_ms > 0 AND"
			 " ended_ms <= ?1 LIMIT 1",
			 e->now_ms - STORE_RECORDS_KEPT_MS, id)) > 0) {
		rc = erase_sandbox(db, id);
		if (rc)
			return rc;
		left--;
	}
	e->has_more = !left;
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
