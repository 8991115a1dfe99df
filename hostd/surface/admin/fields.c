/* What several of the admin calls decode, and how a change is told. */
#include "../../http/auth.h"
#include "../lbb/decode.h"
#include "admin.h"
#include <errno.h>

const char *admin_plan_name(enum plan plan)
{
	return plan == PLAN_FREE ? "free" : "full";
}

int admin_decode_environment(char dst[ID_BYTES_MAX], const char *path,
			     struct json_span v, struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};

	if (decode_string(path, v, &text, e))
		return -1;
	if (!auth_environment_is_valid((const char *)text.data))
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s \"%.64s\" is not a name of 1 to %d "
			       "characters a-z 0-9 _ -",
			       path, (const char *)text.data, ID_BYTES_MAX - 1);
	memcpy(dst, text.data, text.len + 1);
	return 0;
}

int admin_decode_plan(enum plan *dst, const char *path, struct json_span v,
		      struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};

	if (decode_string(path, v, &text, e))
		return -1;
	if (!strcmp((const char *)text.data, "free"))
		*dst = PLAN_FREE;
	else if (!strcmp((const char *)text.data, "full"))
		*dst = PLAN_FULL;
	else
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "plan \"%.40s\" is neither free nor full",
			       (const char *)text.data);
	return 0;
}

void admin_reload(struct request *r, int rc, store_rc_fn fn)
{
	if (!rc)
		rc = auth_load(r->services->auth, fn, r);
	if (rc)
		fn(r, rc);
}

void admin_failed(struct request *r, const char *what, int rc)
{
	struct err e;

	if (rc == -ENOSPC)
		err_set(&e, ERR_CAPACITY, NULL,
			"The daemon's disk is full; %s was not stored.", what);
	else
		err_set(&e, ERR_INTERNAL, NULL, "cannot store %s: %s", what,
			strerror(-rc));
	reply_err(r, &e);
}

struct places_held {
	const char *environment, *graph; /* graph NULL = any */
	uint32_t n;
};

static void count_held(void *ctx, const struct sandbox_rec *s,
		       const struct command_rec *c, int pid)
{
	struct places_held *h = ctx;

	(void)c;
	(void)pid;
	h->n += !strcmp(s->environment, h->environment) &&
		(!h->graph || !strcmp(s->graph, h->graph));
}

uint32_t admin_places_held(const struct request *r, const char *environment,
			   const char *graph)
{
	struct places_held h = {environment, graph, 0};

	engine_live_each(r->services->engine, count_held, &h);
	return h.n;
}
