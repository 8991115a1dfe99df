/*
 * POST /v1/sandboxes/grants: a grant for one attempt of a workflow's step
 * (LBB-221, LBB-263, LBB-264; api/adr/0005).
 *
 * Asked for with an environment's key, or by the operator on the admin socket;
 * never with a grant.  The answer has the form of the vendor's execution
 * credential, and is the only place that has the token.
 */
#include "../../clock.h"
#include "../../http/auth.h"
#include "decode.h"
#include "lbb.h"
#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

struct grant_op {
	struct grant_row row;
	uint32_t ttl_ms; /* 0 = not given */
	char token[GRANT_TOKEN_BYTES];
};

static void op_free(struct grant_op *op)
{
	OPENSSL_cleanse(op, sizeof(*op));
	free(op);
}

/* ---- the body --------------------------------------------------------- */

static int grant_workflow(void *ctx, const char *path, struct json_span v,
			  struct err *e)
{
	struct grant_op *op = ctx;

	return lbb_origin_name(op->row.origin.workflow, path, v, e);
}

static int grant_run(void *ctx, const char *path, struct json_span v,
		     struct err *e)
{
	struct grant_op *op = ctx;

	return lbb_origin_run(op->row.origin.run, path, v, e);
}

static int grant_step(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct grant_op *op = ctx;

	return lbb_origin_name(op->row.origin.step, path, v, e);
}

static int grant_turn(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct grant_op *op = ctx;

	return lbb_origin_turn(&op->row.origin.turn, path, v, e);
}

static int grant_attempt(void *ctx, const char *path, struct json_span v,
			 struct err *e)
{
	struct grant_op *op = ctx;

	return decode_u32(path, v, 1, UINT32_MAX, ERR_INVALID_REQUEST,
			  &op->row.origin.attempt, e);
}

static int grant_ttl(void *ctx, const char *path, struct json_span v,
		     struct err *e)
{
	struct grant_op *op = ctx;

	return decode_u32(path, v, GRANT_TTL_MS_MIN, GRANT_TTL_MS_MAX,
			  ERR_INVALID_REQUEST, &op->ttl_ms, e);
}

static int operation_unknown(const char *path, const char *given, struct err *e)
{
	char names[160] = "";
	size_t n = 0;

	for (int a = 0; a < ACCESS_N; a++) {
		char name[GRANT_OPERATION_BYTES_MAX];

		snprintf(name, sizeof(name), "sandbox_%s",
			 route_access_name((enum route_access)a));
		if (route_access_of_operation(name) != ACCESS_OPEN)
			n += (size_t)snprintf(names + n, sizeof(names) - n,
					      "%s%s", n ? ", " : "", name);
	}
	return err_set(e, ERR_INVALID_REQUEST, path,
		       "%s \"%.40s\" is none of %s", path, given, names);
}

static int grant_operation(void *ctx, const char *path, struct json_span v,
			   struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct grant_op *op = ctx;
	const char *name;

	if (decode_string(path, v, &text, e))
		return -1;
	name = (const char *)text.data;
	if (text.len >= sizeof(op->row.operation) ||
	    route_access_of_operation(name) == ACCESS_OPEN)
		return operation_unknown(path, name, e);
	memcpy(op->row.operation, name, text.len + 1);
	return 0;
}

static const struct decode_field fields[] = {
	{"workflow", grant_workflow},	{"run", grant_run},
	{"step", grant_step},		{"turn", grant_turn},
	{"attempt", grant_attempt},	{"ttl_ms", grant_ttl},
	{"operation", grant_operation},
};

static int missing(const struct grant_op *op, struct err *e)
{
	const struct origin *o = &op->row.origin;
	const char *name = !*o->workflow	 ? "workflow"
			   : !*o->run		 ? "run"
			   : !*o->step		 ? "step"
			   : !o->attempt	 ? "attempt"
			   : !*op->row.operation ? "operation"
						 : NULL;

	if (!name)
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, name, "the field %s is missing",
		       name);
}

static int decode(const struct request *r, struct grant_op *op,
		  struct json_span body, struct err *e)
{
	struct auth *auth = r->services->auth;
	struct grant_row *row = &op->row;

	if (decode_object(op, "", body, fields, N_OF(fields), e) ||
	    missing(op, e))
		return -1;
	if (!row->origin.turn)
		row->origin.turn = 1;
	memcpy(row->environment, r->environment, sizeof(row->environment));
	memcpy(row->graph, r->graph, sizeof(row->graph));
	row->epoch = realm_epoch(auth_realm(auth), r->environment, r->graph);
	row->issued_ms = clock_wall_ms();
	row->expires_ms =
		row->issued_ms + (op->ttl_ms ? op->ttl_ms : GRANT_TTL_MS_MAX);
	if (grants_may_issue(auth_grants(auth), row, row->issued_ms, e))
		return -1;
	if (grants_make(row, op->token))
		return err_set(e, ERR_INTERNAL, NULL, "no random bytes");
	return 0;
}

/* ---- the answer ------------------------------------------------------- */

static void put_grant(struct json_out *j, const struct grant_op *op)
{
	const struct grant_row *g = &op->row;
	char epoch[24];

	snprintf(epoch, sizeof(epoch), "%" PRIu64, g->epoch);
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "grant");
	json_out_str(j, "token", op->token);
	json_out_str(j, "graph_id", g->graph);
	json_out_str(j, "graph_epoch", epoch);
	json_out_str(j, "workflow_id", g->origin.workflow);
	json_out_u64(j, "turn", g->origin.turn);
	json_out_u64(j, "attempt", g->origin.attempt);
	json_out_str(j, "run_id", g->origin.run);
	json_out_str(j, "step", g->origin.step);
	json_out_begin(j, "operations", '[');
	json_out_str(j, NULL, g->operation);
	json_out_end(j, ']');
	json_out_i64(j, "issued_at_ms", g->issued_ms);
	json_out_i64(j, "expires_at_ms", g->expires_ms);
	json_out_end(j, '}');
}

static void on_added(void *ctx, int rc)
{
	struct request *r = ctx;
	struct grant_op *op = r->op;
	struct json_out j = {0};
	struct err e;

	r->op = NULL;
	if (!rc)
		rc = grants_add(auth_grants(r->services->auth), &op->row,
				clock_wall_ms());
	if (rc) {
		err_set(&e, rc == -ENOSPC ? ERR_CAPACITY : ERR_INTERNAL, NULL,
			"cannot store the grant: %s", strerror(-rc));
		reply_err(r, &e);
	} else {
		put_grant(&j, op);
		reply_json(r, 201, &j);
	}
	op_free(op);
}

void lbb_grant_create(struct request *r)
{
	struct json_span body;
	struct grant_op *op;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	op = calloc(1, sizeof(*op));
	if (!op) {
		lbb_engine_failed(r, -ENOMEM);
		return;
	}
	if (decode(r, op, body, &e)) {
		op_free(op);
		reply_err(r, &e);
		return;
	}
	r->op = op;
	rc = store_grant_add(r->services->store, &op->row, on_added, r);
	if (rc)
		on_added(r, rc);
}
