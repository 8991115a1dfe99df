/* Sandboxes: list, retrieve, stop, resume, delete; and what all of the surface
 * shares. */
#include "lbb.h"
#include "log.h"
#include <errno.h>

void lbb_reply_err(struct request *r, const struct err *e)
{
	const char *what = e->code == ERR_COMMAND_NOT_FOUND    ? "command"
			   : e->code == ERR_SANDBOX_NOT_FOUND  ? "sandbox"
			   : e->code == ERR_SNAPSHOT_NOT_FOUND ? "snapshot"
							       : NULL;
	const char *id = what ? query_get(&r->query, what) : NULL;
	struct err named;

	if (!id) {
		reply_err(r, e);
		return;
	}
	err_set(&named, e->code, what,
		"There is no %s %.64s in graph %s of environment %s.", what,
		log_text(id, strlen(id)).s, r->graph, r->environment);
	reply_err(r, &named);
}

int lbb_id(struct request *r, const char *param, const char *prefix,
	   enum err_code missing, const char **ret)
{
	const char *id = query_get(&r->query, param);
	size_t len = id ? strlen(id) : 0;
	struct err e;

	*ret = id;
	if (!id) {
		err_set(&e, ERR_INVALID_REQUEST, param,
			"the query parameter %s is missing", param);
	} else if (strncmp(id, prefix, 4) || len >= ID_BYTES_MAX ||
		   strspn(id + 4, "0123456789abcdefghijklmnopqrstuvwxyz") !=
			   len - 4) {
		err_set(&e, missing, param, NULL);
	} else {
		return 0;
	}
	lbb_reply_err(r, &e);
	return -1;
}

int lbb_page(struct request *r, struct store_page *ret)
{
	uint64_t limit;
	struct err e;

	if (query_u64(&r->query, "limit", 1, LBB_PAGE_MAX, LBB_PAGE_DEFAULT,
		      &limit, &e)) {
		reply_err(r, &e);
		return -1;
	}
	*ret = (struct store_page){
		.environment = r->environment,
		.graph = r->graph,
		.cursor = query_get(&r->query, "cursor"),
		.limit = (unsigned)limit,
	};
	if (ret->cursor && strlen(ret->cursor) >= ID_BYTES_MAX) {
		err_set(&e, ERR_INVALID_REQUEST, "cursor",
			"cursor is not a next_cursor of this list");
		reply_err(r, &e);
		return -1;
	}
	return query_get(&r->query, "sandbox")
		       ? lbb_id(r, "sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND,
				&ret->sandbox)
		       : 0;
}

void lbb_engine_failed(struct request *r, int rc)
{
	struct err e;

	if (rc == -ENOMEM)
		err_set(&e, ERR_UNAVAILABLE, NULL, "out of memory");
	else
		err_set(&e, ERR_INTERNAL, NULL, "the engine refused: %s",
			strerror(-rc));
	reply_err(r, &e);
}

static void on_sandbox(void *ctx, const struct err *e,
		       const struct sandbox_rec *s)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	lbb_put_sandbox(&j, s);
	reply_json(r, 200, &j);
}

/* A call on one, answered by what it is. */
static void one(struct request *r,
		int (*call)(struct engine *e, const struct caller *who,
			    const char *id, engine_sandbox_fn fn, void *ctx))
{
	const char *id;
	int rc;

	if (lbb_id(r, "sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND, &id))
		return;
	rc = call(r->services->engine, &r->caller, id, on_sandbox, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

void lbb_sandbox_get(struct request *r)
{
	one(r, engine_sandbox_get);
}

void lbb_sandbox_delete(struct request *r)
{
	one(r, engine_sandbox_delete);
}

void lbb_sandbox_stop(struct request *r)
{
	one(r, engine_sandbox_stop);
}

void lbb_sandbox_resume(struct request *r)
{
	one(r, engine_sandbox_resume);
}

static void on_sandboxes(void *ctx, const struct err *e,
			 const struct sandbox_rec *s, size_t n, bool has_more)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	lbb_list_begin(&j);
	for (size_t i = 0; i < n; i++)
		lbb_put_sandbox(&j, &s[i]);
	lbb_list_end(&j, has_more, n ? s[n - 1].id : NULL);
	reply_json(r, 200, &j);
}

static int status_by_name(const char *name)
{
	for (int s = SBX_STARTING; s <= SBX_LOST; s++)
		if (!strcmp(name, sandbox_status_name((enum sandbox_status)s)))
			return s;
	return -1;
}

void lbb_sandboxes(struct request *r)
{
	const char *status = query_get(&r->query, "status");
	struct store_page page;
	struct err e;
	int rc;

	/* All are checked, whether one is retrieved or a list. */
	if (lbb_page(r, &page))
		return;
	page.template_name = query_get(&r->query, "template");
	page.name = query_get(&r->query, "name");
	page.status = status ? status_by_name(status) : 0;
	if (page.status < 0) {
		err_set(&e, ERR_INVALID_REQUEST, "status",
			"status \"%.40s\" is none of starting, running, "
			"stopping, stopped, destroying, destroyed, failed, "
			"lost",
			status);
		reply_err(r, &e);
		return;
	}
	if (page.name && !*page.name) {
		err_set(&e, ERR_INVALID_REQUEST, "name", "name is empty");
		reply_err(r, &e);
		return;
	}
	if (page.sandbox) {
		lbb_sandbox_get(r);
		return;
	}
	rc = engine_sandbox_list(r->services->engine, &r->caller, &page,
				 on_sandboxes, r);
	if (rc)
		lbb_engine_failed(r, rc);
}
