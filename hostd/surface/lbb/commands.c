/* Commands: list, retrieve with a wait, cancel. */
#include "lbb.h"
#include <errno.h>

static void on_command(void *ctx, const struct err *e,
		       const struct sandbox_rec *s, const struct command_rec *c)
{
	struct request *r = ctx;
	struct json_out j = {0};

	(void)s;
	r->abandon = NULL;
	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	lbb_put_command(&j, c, true);
	reply_json(r, 200, &j);
}

static void on_abandon(struct request *r)
{
	engine_cancel_wait(r->services->engine, r->op);
	request_drop(r);
}

/* wait_ms; 0, or the request was answered and -1. */
static int wait_of(struct request *r, uint64_t *ret_ms)
{
	struct err e;

	if (!query_u64(&r->query, "wait_ms", 0, ENGINE_WAIT_MS_MAX, 0, ret_ms,
		       &e))
		return 0;
	reply_err(r, &e);
	return -1;
}

void lbb_command_get(struct request *r)
{
	struct waiter *waiter = NULL;
	uint64_t wait_ms;
	const char *id;
	int rc;

	if (lbb_id(r, "command", "cmd_", ERR_COMMAND_NOT_FOUND, &id) ||
	    wait_of(r, &wait_ms))
		return;
	rc = engine_command_get(r->services->engine, &r->caller, id,
				(uint32_t)wait_ms, on_command, r, &waiter);
	if (rc) {
		lbb_engine_failed(r, rc);
		return;
	}
	if (!waiter)
		return; /* one look at the record: it answers soon */
	r->op = waiter;
	r->abandon = on_abandon;
}

void lbb_command_cancel(struct request *r)
{
	const char *id;
	int rc;

	if (lbb_id(r, "command", "cmd_", ERR_COMMAND_NOT_FOUND, &id))
		return;
	rc = engine_command_cancel(r->services->engine, &r->caller, id,
				   on_command, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

static void on_commands(void *ctx, const struct err *e,
			const struct command_rec *c, size_t n, bool has_more)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	lbb_list_begin(&j);
	for (size_t i = 0; i < n; i++)
		lbb_put_command(&j, &c[i], false);
	lbb_list_end(&j, has_more, n ? c[n - 1].id : NULL);
	reply_json(r, 200, &j);
}

void lbb_commands(struct request *r)
{
	struct store_page page;
	uint64_t wait_ms;
	int rc;

	/* Checked, whichever of both it is. */
	if (lbb_page(r, &page) || wait_of(r, &wait_ms))
		return;
	if (query_get(&r->query, "command")) {
		lbb_command_get(r);
		return;
	}
	rc = engine_command_list(r->services->engine, &r->caller, &page,
				 on_commands, r);
	if (rc)
		lbb_engine_failed(r, rc);
}
