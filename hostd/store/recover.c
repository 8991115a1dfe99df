/*
 * After a restart: no VM outlived the daemon, so what was not over is lost.
 *
 * One transaction over all live rows (they have indexes of their own), so a
 * crash in here leaves the next start the same work.  A sandbox that was being
 * destroyed is destroyed: its command's end was written before.  A stopped one
 * holds no VM and stays.
 */
#include "log.h"
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct recover_op {
	struct store_op op;
	char boot_id[40];
	int64_t now_ms;
	unsigned n_lost;
};

static void end_sandbox(struct sandbox_rec *r, const struct recover_op *rec)
{
	r->ended_ms =
		record_end_time(rec->now_ms, r->created_ms, r->started_ms);
	if (r->status == SBX_DESTROYING) {
		r->status = SBX_DESTROYED;
		return;
	}
	r->status = SBX_LOST;
	r->reason = strcmp(r->host_boot_id, rec->boot_id) ? END_HOST_REBOOT
							  : END_DAEMON_RESTART;
	snprintf(r->reason_text, sizeof(r->reason_text), "%s",
		 r->reason == END_HOST_REBOOT
			 ? "the host was restarted while the sandbox ran"
			 : "hutchd was restarted while the sandbox ran");
}

/* The next live id in `id`; 1, 0, -errno.  One at a time: the rows change. */
static int next_id(struct db *db, const char *sql, char id[ID_BYTES_MAX])
{
	struct query q = query(db, sql);
	int rc = q_row(&q);

	if (rc > 0) {
		snprintf(id, ID_BYTES_MAX, "%s", q_text_at(&q, 0));
		q_end(&q);
	}
	return rc;
}

static int recover_sandboxes(struct db *db, struct recover_op *rec)
{
	char id[ID_BYTES_MAX];
	struct sandbox_rec r;
	int rc;

	while ((rc = next_id(db,
			     "SELECT id FROM sandbox WHERE status NOT IN"
			     " (6, 7, 8) AND status <> 4 LIMIT 1",
			     id)) > 0) {
		rc = sandbox_read(db, id, &r);
		if (rc == -EBADMSG) {
			/* Set aside by now; its columns say lost. */
			rec->n_lost++;
			continue;
		}
		if (rc)
			return rc;
		end_sandbox(&r, rec);
		rec->n_lost += r.status == SBX_LOST;
		rc = sandbox_put(db, &r);
		if (rc)
			return rc;
	}
	return rc;
}

static int end_command(struct db *db, const char *id,
		       const struct recover_op *rec)
{
	struct sandbox_rec sbx;
	struct command_rec cmd;
	struct scope at = {0};
	struct query q = query(db, "SELECT environment, graph FROM command"
				   " WHERE id = ?1");
	int rc;

	q_text(&q, id);
	rc = q_row(&q);
	if (rc <= 0)
		return rc;
	scope_set(&at, q_text_at(&q, 0), q_text_at(&q, 1), id);
	q_end(&q);
	rc = command_read(db, &at, false, &cmd);
	if (rc)
		return rc == -EBADMSG ? 0 : rc;
	cmd.status = CMD_LOST;
	cmd.ended_ms =
		record_end_time(rec->now_ms, cmd.created_ms, cmd.started_ms);
	cmd.reason = END_DAEMON_RESTART;
	if (!sandbox_read(db, cmd.sandbox, &sbx) && sbx.status == SBX_LOST)
		cmd.reason = sbx.reason;
	snprintf(cmd.reason_text, sizeof(cmd.reason_text), "%s",
		 cmd.reason == END_HOST_REBOOT
			 ? "the host was restarted while the command ran"
			 : "hutchd was restarted while the command ran");
	rc = command_put(db, &cmd, false);
	command_rec_finish(&cmd);
	return rc;
}

static int recover_commands(struct db *db, struct recover_op *rec)
{
	char id[ID_BYTES_MAX];
	int rc;

	while ((rc = next_id(db,
			     "SELECT id FROM command WHERE status IN (1, 2)"
			     " LIMIT 1",
			     id)) > 0) {
		rc = end_command(db, id, rec);
		if (rc)
			return rc;
	}
	return rc;
}

static int recover_exec(struct db *db, struct store_op *op)
{
	struct recover_op *rec = (struct recover_op *)op;
	int rc = recover_sandboxes(db, rec);

	return rc ? rc : recover_commands(db, rec);
}

int store_recover(struct store *s, const char *boot_id, int64_t now_ms,
		  unsigned *ret_n_lost, struct err *e)
{
	struct recover_op rec = {.op.exec = recover_exec, .now_ms = now_ms};

	snprintf(rec.boot_id, sizeof(rec.boot_id), "%s", boot_id);
	store_run_now(s, &rec.op);
	if (rec.op.rc)
		return err_set(e, ERR_INTERNAL, NULL,
			       "the records of the last run cannot be settled: "
			       "%s",
			       strerror(-rec.op.rc));
	*ret_n_lost = rec.n_lost;
	return 0;
}
