/*
 * Environments: create, list, set, delete.
 *
 * What is set is in force at the next request (realm.h).  What runs goes on:
 * a plan or an environment that is switched off refuses calls, and idle time
 * and expiry end what it holds.
 */
#include "../../config.h"
#include "../../http/auth.h"
#include "../lbb/decode.h"
#include "../lbb/lbb.h"
#include "admin.h"
#include <errno.h>
#include <stdlib.h>

/* ---- as JSON ---------------------------------------------------------- */

void admin_put_places(struct json_out *j, const char *name, uint32_t own,
		      uint64_t otherwise)
{
	char own_name[32];

	snprintf(own_name, sizeof(own_name), "own_%s", name);
	json_out_u64(j, name, own ? own : otherwise);
	if (own)
		json_out_u64(j, own_name, own);
	else
		json_out_null(j, own_name);
}

static void put_environment(struct json_out *j, const struct request *r,
			    const struct environment_info *e)
{
	const struct config *c = r->services->config;
	const struct key_info *k;
	uint64_t n_keys = 0;

	for (size_t i = 0; (k = auth_key(r->services->auth, i)); i++)
		n_keys += !k->is_revoked && !strcmp(k->environment, e->id);
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "environment");
	json_out_str(j, "name", e->id);
	json_out_str(j, "plan", admin_plan_name(e->plan));
	json_out_bool(j, "sandboxes_enabled", e->is_enabled);
	admin_put_places(j, "places", e->places, c->environment_places);
	admin_put_places(j, "graph_places", e->graph_places, c->graph_places);
	json_out_u64(j, "places_held", admin_places_held(r, e->id, NULL));
	json_out_u64(j, "keys", n_keys);
	json_out_time(j, "created_at", e->created_ms);
	json_out_end(j, '}');
}

static int not_found(const struct request *r, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "environment",
		       "there is no environment %s", r->environment);
}

static void reply_environment(struct request *r, int status, const char *id)
{
	const struct environment_info *e =
		realm_environment(auth_realm(r->services->auth), id);
	struct json_out j = {0};
	struct err err;

	if (!e) { /* removed meanwhile */
		not_found(r, &err);
		reply_err(r, &err);
		return;
	}
	put_environment(&j, r, e);
	reply_json(r, status, &j);
}

/* ---- create, set ------------------------------------------------------ */

static int env_name(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	struct environment_change *c = ctx;

	return admin_decode_environment(c->to.id, path, v, e);
}

static int env_plan(void *ctx, const char *path, struct json_span v,
		    struct err *e)
{
	struct environment_change *c = ctx;

	c->has_plan = true;
	return admin_decode_plan(&c->to.plan, path, v, e);
}

static int env_enabled(void *ctx, const char *path, struct json_span v,
		       struct err *e)
{
	struct environment_change *c = ctx;

	c->has_enabled = true;
	return decode_bool(path, v, &c->to.is_enabled, e);
}

static int env_places(void *ctx, const char *path, struct json_span v,
		      struct err *e)
{
	struct environment_change *c = ctx;

	c->has_places = true;
	return decode_u32(path, v, 0, ADMIN_PLACES_MAX, ERR_INVALID_REQUEST,
			  &c->to.places, e);
}

static int env_graph_places(void *ctx, const char *path, struct json_span v,
			    struct err *e)
{
	struct environment_change *c = ctx;

	c->has_graph_places = true;
	return decode_u32(path, v, 0, ADMIN_PLACES_MAX, ERR_INVALID_REQUEST,
			  &c->to.graph_places, e);
}

/* `name` is of a create alone. */
static const struct decode_field fields[] = {
	{"name", env_name},
	{"plan", env_plan},
	{"sandboxes_enabled", env_enabled},
	{"places", env_places},
	{"graph_places", env_graph_places},
};
#define FIELDS (sizeof(fields) / sizeof(*fields))

static void on_created(void *ctx, int rc)
{
	struct request *r = ctx;
	struct environment_info *made = r->op;
	struct err e;

	r->op = NULL;
	if (rc == -EEXIST) {
		err_set(&e, ERR_CONFLICT, "name",
			"there is an environment %s already", made->id);
		reply_err(r, &e);
	} else if (rc) {
		admin_failed(r, "the environment", rc);
	} else {
		reply_environment(r, 201, made->id);
	}
	free(made);
}

static void on_added(void *ctx, int rc)
{
	admin_reload(ctx, rc, on_created);
}

void admin_environment_create(struct request *r)
{
	struct environment_change c = {
		.to = {.plan = PLAN_FULL, .is_enabled = true}};
	struct environment_info *made;
	struct json_span body;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	if (decode_object(&c, "", body, fields, FIELDS, &e)) {
		reply_err(r, &e);
		return;
	}
	if (!*c.to.id) {
		err_set(&e, ERR_INVALID_REQUEST, "name",
			"the field name is missing");
		reply_err(r, &e);
		return;
	}
	made = malloc(sizeof(*made));
	if (!made) {
		lbb_engine_failed(r, -ENOMEM);
		return;
	}
	*made = c.to;
	r->op = made;
	rc = store_environment_add(r->services->store, made, on_added, r);
	if (rc)
		on_created(r, rc);
}

static void on_changed(void *ctx, int rc)
{
	struct request *r = ctx;
	struct err e;

	if (rc == -ENOENT) {
		not_found(r, &e);
		reply_err(r, &e);
	} else if (rc) {
		admin_failed(r, "the environment", rc);
	} else {
		reply_environment(r, 200, r->environment);
	}
}

static void on_set(void *ctx, int rc)
{
	admin_reload(ctx, rc, on_changed);
}

void admin_environment_set(struct request *r)
{
	struct environment_change c = {0};
	struct json_span body;
	struct err e;
	int rc;

	if (request_object(r, &body))
		return;
	if (decode_object(&c, "", body, fields + 1, FIELDS - 1, &e)) {
		reply_err(r, &e);
		return;
	}
	memcpy(c.to.id, r->environment, sizeof(c.to.id));
	rc = store_environment_set(r->services->store, &c, on_set, r);
	if (rc)
		on_changed(r, rc);
}

/* ---- list, delete ----------------------------------------------------- */

void admin_environment_list(struct request *r)
{
	const struct realm *realm = auth_realm(r->services->auth);
	const char *only = query_get(&r->query, "environment");
	struct json_out j = {0};
	struct err e;

	if (only && !realm_environment(realm, only)) {
		not_found(r, &e);
		reply_err(r, &e);
		return;
	}
	lbb_list_begin(&j);
	for (size_t i = 0; i < realm->n_environments; i++)
		if (!only || !strcmp(only, realm->environments[i].id))
			put_environment(&j, r, &realm->environments[i]);
	lbb_list_end(&j, false, NULL);
	reply_json(r, 200, &j);
}

static void on_gone(void *ctx, int rc)
{
	struct request *r = ctx;
	struct json_out j = {0};
	struct err e;

	if (rc == -ENOENT) {
		not_found(r, &e);
		reply_err(r, &e);
	} else if (rc == -ENOTEMPTY) {
		err_set(&e, ERR_CONFLICT, "environment",
			"environment %s has records, which are kept until "
			"their time is over (30 days after the end of a "
			"sandbox): switch it off instead, or delete its "
			"snapshots, templates and files and wait",
			r->environment);
		reply_err(r, &e);
	} else if (rc) {
		admin_failed(r, "that the environment is gone", rc);
	} else {
		json_out_begin(&j, NULL, '{');
		json_out_str(&j, "object", "environment");
		json_out_str(&j, "name", r->environment);
		json_out_bool(&j, "deleted", true);
		json_out_end(&j, '}');
		reply_json(r, 200, &j);
	}
}

static void on_deleted(void *ctx, int rc)
{
	admin_reload(ctx, rc, on_gone);
}

void admin_environment_delete(struct request *r)
{
	int rc = store_environment_delete(r->services->store, r->environment,
					  on_deleted, r);

	if (rc)
		on_gone(r, rc);
}
