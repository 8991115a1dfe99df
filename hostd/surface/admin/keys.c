/*
 * API keys: create, list, revoke.
 *
 * The key itself is in the answer of its creation and nowhere else.  Plan and
 * `sandboxes_enabled` are the environment's: the first key sets them, a later
 * one has them from there.  Another value changes every key of the environment
 * and is refused unless `change_environment` says that this is meant.
 */
#include "../../http/auth.h"
#include "../lbb/decode.h"
#include "admin.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>

struct key_op {
	struct key_info info;
	struct auth_new made;
	bool has_plan, has_enabled;
};

static void op_free(struct key_op *op)
{
	OPENSSL_cleanse(op, sizeof(*op));
	free(op);
}

void admin_put_key(struct json_out *j, const struct key_info *k,
		   const char *secret)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "key");
	json_out_str(j, "environment", k->environment);
	json_out_str(j, "name", k->name);
	json_out_str(j, "plan", admin_plan_name(k->plan));
	json_out_bool(j, "sandboxes_enabled", k->is_enabled);
	json_out_str(j, "mode", k->is_test ? "test" : "live");
	json_out_bool(j, "revoked", k->is_revoked);
	if (secret)
		json_out_str(j, "key", secret);
	json_out_end(j, '}');
}

/* ---- create ----------------------------------------------------------- */

static int key_environment(void *ctx, const char *path, struct json_span v,
			   struct err *e)
{
	struct key_op *op = ctx;

	return admin_decode_environment(op->info.environment, path, v, e);
}

static int key_name(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct key_op *op = ctx;

	if (decode_string(path, v, &text, e))
		return -1;
	if (text.len > ADMIN_KEY_NAME_BYTES_MAX ||
	    !auth_graph_is_valid((const char *)text.data))
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "name \"%.64s\" is not 1 to %d characters A-Z "
			       "a-z 0-9 . _ -",
			       (const char *)text.data,
			       ADMIN_KEY_NAME_BYTES_MAX);
	memcpy(op->info.name, text.data, text.len + 1);
	return 0;
}

static int key_plan(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	struct key_op *op = ctx;

	op->has_plan = true;
	return admin_decode_plan(&op->info.plan, path, v, e);
}

/* A mark that people see in the key: both may do the same. */
static int key_mode(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct key_op *op = ctx;

	if (decode_string(path, v, &text, e))
		return -1;
	op->info.is_test = !strcmp((const char *)text.data, "test");
	if (op->info.is_test || !strcmp((const char *)text.data, "live"))
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, path,
		       "mode \"%.40s\" is neither live nor test",
		       (const char *)text.data);
}

static int key_enabled(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct key_op *op = ctx;

	op->has_enabled = true;
	return decode_bool(path, v, &op->info.is_enabled, e);
}

static int key_change(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct key_op *op = ctx;

	return decode_bool(path, v, &op->info.changes_environment, e);
}

static const struct decode_field fields[] = {
	{"environment", key_environment},
	{"name", key_name},
	{"plan", key_plan},
	{"mode", key_mode},
	{"sandboxes_enabled", key_enabled},
	{"change_environment", key_change},
};

/* What the environment has already, if there is one. */
static int keep_environment(const struct auth *a, struct key_op *op,
			    struct err *e)
{
	const struct environment_info *k =
		realm_environment(auth_realm(a), op->info.environment);
	static const char advice[] =
		"the new value would be for all its keys: leave the field out, "
		"or send \"change_environment\": true (hutch key create "
		"--change-environment)";

	if (!k)
		return 0;
	if (!op->has_plan)
		op->info.plan = k->plan;
	if (!op->has_enabled)
		op->info.is_enabled = k->is_enabled;
	if (op->info.changes_environment)
		return 0;
	if (op->info.plan != k->plan)
		return err_set(e, ERR_INVALID_REQUEST, "plan",
			       "environment %s has plan %s, not %s; %s", k->id,
			       admin_plan_name(k->plan),
			       admin_plan_name(op->info.plan), advice);
	if (op->info.is_enabled != k->is_enabled)
		return err_set(e, ERR_INVALID_REQUEST, "sandboxes_enabled",
			       "environment %s has sandboxes_enabled %s; %s",
			       k->id, k->is_enabled ? "true" : "false", advice);
	return 0;
}

static int name_taken(const struct key_op *op, struct err *e)
{
	return err_set(e, ERR_INVALID_REQUEST, "name",
		       "environment %s has a key %s; take another name, or "
		       "revoke that one first",
		       op->info.environment, op->info.name);
}

static int decode(struct request *r, struct key_op *op, struct json_span body,
		  struct err *e)
{
	memcpy(op->info.environment, r->environment, sizeof(r->environment));
	op->info.plan = PLAN_FULL;
	op->info.is_enabled = true;
	if (decode_object(op, "", body, fields,
			  sizeof(fields) / sizeof(*fields), e))
		return -1;
	if (!*op->info.name)
		return err_set(e, ERR_INVALID_REQUEST, "name",
			       "the field name is missing");
	if (auth_has(r->services->auth, op->info.environment, op->info.name))
		return name_taken(op, e);
	if (keep_environment(r->services->auth, op, e))
		return -1;
	if (auth_new_key(&op->made, op->info.is_test))
		return err_set(e, ERR_INTERNAL, NULL, "no random bytes");
	return 0;
}

static void on_made(void *ctx, int rc)
{
	struct request *r = ctx;
	struct key_op *op = r->op;
	struct json_out j = {0};
	struct err e;

	r->op = NULL;
	if (rc == -EEXIST)
		name_taken(op, &e);
	else if (rc)
		err_set(&e, ERR_INTERNAL, NULL, "cannot store the key: %s",
			strerror(-rc));
	else
		admin_put_key(&j, &op->info, op->made.text);
	op_free(op);
	if (rc)
		reply_err(r, &e);
	else
		reply_json(r, 201, &j);
}

static void on_added(void *ctx, int rc)
{
	admin_reload(ctx, rc, on_made);
}

void admin_key_create(struct request *r)
{
	struct json_span body;
	struct key_op *op;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	op = calloc(1, sizeof(*op));
	if (!op) {
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
		reply_err(r, &e);
		return;
	}
	if (decode(r, op, body, &e)) {
		op_free(op);
		reply_err(r, &e);
		return;
	}
	r->op = op;
	rc = store_key_add(r->services->store, &op->info, op->made.hash,
			   on_added, r);
	if (rc)
		on_added(r, rc);
}

/* ---- list, revoke ----------------------------------------------------- */

void admin_key_list(struct request *r)
{
	bool is_all = !query_get(&r->query, "environment");
	const struct key_info *k;
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "list");
	json_out_begin(&j, "data", '[');
	for (size_t i = 0; (k = auth_key(r->services->auth, i)); i++)
		if (is_all || !strcmp(k->environment, r->environment))
			admin_put_key(&j, k, NULL);
	json_out_end(&j, ']');
	json_out_bool(&j, "has_more", false);
	json_out_null(&j, "next_cursor");
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

static void on_revoke_known(void *ctx, int rc)
{
	struct request *r = ctx;
	const char *name = query_get(&r->query, "name");
	struct json_out j = {0};
	struct err e;

	if (rc == -ENOENT) {
		err_set(&e, ERR_NOT_FOUND, "name",
			"environment %s has no key \"%.64s\"", r->environment,
			name);
		reply_err(r, &e);
		return;
	}
	if (rc) {
		err_set(&e, ERR_INTERNAL, NULL, "cannot revoke the key: %s",
			strerror(-rc));
		reply_err(r, &e);
		return;
	}
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "key");
	json_out_str(&j, "environment", r->environment);
	json_out_str(&j, "name", name);
	json_out_bool(&j, "revoked", true);
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

static void on_revoked(void *ctx, int rc)
{
	admin_reload(ctx, rc, on_revoke_known);
}

void admin_key_revoke(struct request *r)
{
	const char *name = query_get(&r->query, "name");
	struct err e;
	int rc;

	if (!name) {
		err_set(&e, ERR_INVALID_REQUEST, "name",
			"the query parameter name is missing");
		reply_err(r, &e);
		return;
	}
	rc = store_key_revoke(r->services->store, r->environment, name,
			      on_revoked, r);
	if (rc)
		on_revoked(r, rc);
}
