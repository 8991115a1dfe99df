/*
 * Budgets of runs: set, list, delete.  Counting is the store's, in the commit
 * that begins a run (store/budget.c).
 */
#include "../lbb/decode.h"
#include "../lbb/lbb.h"
#include "admin.h"
#include <errno.h>

#define RUNS_MAX	   1000000000u
#define WINDOW_SECONDS_MAX (366u * 86400u)

static void put_budget(struct json_out *j, const struct budget_row *b)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "budget");
	json_out_str(j, "environment", b->environment);
	json_out_str(j, "workflow", *b->workflow ? b->workflow : NULL);
	json_out_u64(j, "runs", b->runs_max);
	json_out_i64(j, "window_seconds", b->window_ms / 1000);
	json_out_u64(j, "runs_used", b->runs);
	json_out_time(j, "window_began_at", b->began_ms);
	json_out_time(j, "window_ends_at",
		      b->began_ms ? b->began_ms + b->window_ms : 0);
	json_out_end(j, '}');
}

static void on_budgets(void *ctx, int rc, const struct budget_row *b, size_t n)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (rc) {
		admin_failed(r, "nothing: the budgets cannot be read", rc);
		return;
	}
	lbb_list_begin(&j);
	for (size_t i = 0; i < n; i++)
		put_budget(&j, &b[i]);
	lbb_list_end(&j, false, NULL);
	reply_json(r, 200, &j);
}

void admin_budget_list(struct request *r)
{
	int rc = store_budget_list(r->services->store,
				   query_get(&r->query, "environment"),
				   on_budgets, r);

	if (rc)
		lbb_engine_failed(r, rc);
}

/* ---- set, delete ------------------------------------------------------ */

struct budget_set {
	struct budget_row row;
	uint32_t window_seconds;
};

static int budget_workflow(void *ctx, const char *path, struct json_span v,
			   struct err *e)
{
	struct budget_set *s = ctx;

	return lbb_origin_name(s->row.workflow, path, v, e);
}

static int budget_runs(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct budget_set *s = ctx;

	return decode_u32(path, v, 1, RUNS_MAX, ERR_INVALID_REQUEST,
			  &s->row.runs_max, e);
}

static int budget_window(void *ctx, const char *path, struct json_span v,
			 struct err *e)
{
	struct budget_set *s = ctx;

	return decode_u32(path, v, 1, WINDOW_SECONDS_MAX, ERR_INVALID_REQUEST,
			  &s->window_seconds, e);
}

static const struct decode_field fields[] = {
	{"workflow", budget_workflow},
	{"runs", budget_runs},
	{"window_seconds", budget_window},
};

static void on_set(void *ctx, int rc)
{
	struct request *r = ctx;

	if (rc)
		admin_failed(r, "the budget", rc);
	else
		admin_budget_list(r);
}

void admin_budget_set(struct request *r)
{
	struct budget_set s = {0};
	struct json_span body;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	if (decode_object(&s, "", body, fields,
			  sizeof(fields) / sizeof(*fields), &e)) {
		reply_err(r, &e);
		return;
	}
	if (!s.row.runs_max || !s.window_seconds) {
		err_set(&e, ERR_INVALID_REQUEST,
			s.row.runs_max ? "window_seconds" : "runs",
			"runs and window_seconds are both needed");
		reply_err(r, &e);
		return;
	}
	s.row.window_ms = (int64_t)s.window_seconds * 1000;
	memcpy(s.row.environment, r->environment, sizeof(s.row.environment));
	rc = store_budget_set(r->services->store, &s.row, on_set, r);
	if (rc)
		on_set(r, rc);
}

static void on_deleted(void *ctx, int rc)
{
	struct request *r = ctx;
	const char *workflow = query_get(&r->query, "workflow");
	struct err e;

	if (rc != -ENOENT) {
		on_set(r, rc);
		return;
	}
	err_set(&e, ERR_NOT_FOUND, "workflow",
		"environment %s has no budget %s%.64s", r->environment,
		workflow ? "of workflow " : "of its own",
		workflow ? workflow : "");
	reply_err(r, &e);
}

void admin_budget_delete(struct request *r)
{
	const char *workflow = query_get(&r->query, "workflow");
	int rc = store_budget_delete(r->services->store, r->environment,
				     workflow ? workflow : "", on_deleted, r);

	if (rc)
		on_deleted(r, rc);
}
