/*
 * Snapshots of held sandboxes: an extension of the surface (api/README.md).
 *
 * One is taken by POST with the sandbox in the query, and given as `snapshot`
 * to POST /v1/sandboxes (held.c).
 */
#include "work.h"
#include <stdlib.h>

/* ---- take --------------------------------------------------------------- */

struct asked {
	struct bytes name;
	uint32_t expires_in_seconds;
};

static int name(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct asked *a = ctx;

	return decode_string(path, v, &a->name, e);
}

static int expires(void *ctx, const char *path, struct json_span v,
		   struct err *e)
{
	struct asked *a = ctx;

	return decode_u32(path, v, ENGINE_SNAPSHOT_SECONDS_MIN,
			  ENGINE_SNAPSHOT_SECONDS_MAX, ERR_INVALID_REQUEST,
			  &a->expires_in_seconds, e);
}

static const struct decode_field fields[] = {
	{"name", name},
	{"expires_in_seconds", expires},
};

static void on_snapshot(void *ctx, const struct err *e,
			const struct snapshot_rec *s, int status)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	lbb_put_snapshot(&j, s);
	reply_json(r, status, &j);
}

static void on_created(void *ctx, const struct err *e,
		       const struct snapshot_rec *s)
{
	on_snapshot(ctx, e, s, 201);
}

static void on_one(void *ctx, const struct err *e, const struct snapshot_rec *s)
{
	on_snapshot(ctx, e, s, 200);
}

void lbb_snapshot_create(struct request *r)
{
	struct asked a = {0};
	struct snapshot_spec spec = {.key = r->idempotency_key};
	struct json_span body;
	struct err e;
	int rc;

	if (lbb_id(r, "sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND,
		   &spec.sandbox) ||
	    request_object(r, &body))
		return;
	if (decode_object(&a, "", body, fields,
			  sizeof(fields) / sizeof(*fields), &e) ||
	    work_hash(r, body, spec.sandbox, spec.request_hash, &e)) {
		bytes_finish(&a.name);
		reply_err(r, &e);
		return;
	}
	spec.name = (const char *)a.name.data;
	spec.expires_in_seconds = a.expires_in_seconds;
	rc = engine_snapshot_create(r->services->engine, &r->caller, &spec,
				    on_created, r);
	bytes_finish(&a.name);
	if (rc)
		lbb_engine_failed(r, rc);
}

/* ---- read, verify, delete ------------------------------------------------ */

static void one(struct request *r,
		int (*call)(struct engine *e, const struct caller *who,
			    const char *id, engine_snapshot_fn fn, void *ctx))
{
	const char *id;
	int rc;

	if (lbb_id(r, "snapshot", "snp_", ERR_SNAPSHOT_NOT_FOUND, &id))
		return;
	rc = call(r->services->engine, &r->caller, id, on_one, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

void lbb_snapshot_get(struct request *r)
{
	one(r, engine_snapshot_get);
}

void lbb_snapshot_verify(struct request *r)
{
	one(r, engine_snapshot_verify);
}

void lbb_snapshot_delete(struct request *r)
{
	one(r, engine_snapshot_delete);
}

static void on_list(void *ctx, const struct err *e,
		    const struct snapshot_rec *s, size_t n, bool has_more)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	lbb_list_begin(&j);
	for (size_t i = 0; i < n; i++)
		lbb_put_snapshot(&j, &s[i]);
	lbb_list_end(&j, has_more, n ? s[n - 1].id : NULL);
	reply_json(r, 200, &j);
}

void lbb_snapshots(struct request *r)
{
	struct store_page page;
	int rc;

	/* Checked, whichever of both it is. */
	if (lbb_page(r, &page))
		return;
	if (query_get(&r->query, "snapshot")) {
		lbb_snapshot_get(r);
		return;
	}
	rc = engine_snapshot_list(r->services->engine, &r->caller, &page,
				  on_list, r);
	if (rc)
		lbb_engine_failed(r, rc);
}
