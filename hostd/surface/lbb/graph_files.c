/*
 * Files of a graph: upload, keep, list, read, delete, and import into a
 * workspace (LBB-154, LBB-157 to LBB-159).
 *
 * A File is named by its hash.  An upload is a stream that goes to the disk as
 * it comes; the same route without a body keeps a workspace's file.
 */
#include "../../image/filehash.h"
#include "work.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- parameters --------------------------------------------------------- */

static int hash_of(struct request *r, const char *param,
		   uint8_t ret[HASH_BYTES])
{
	const char *hex = query_get(&r->query, param);
	struct err e;

	if (hex && strlen(hex) == LBB_SHA256_CHARS && !hash_from_hex(hex, ret))
		return 0;
	if (hex)
		err_set(&e, ERR_INVALID_REQUEST, param,
			"%s is \"%.80s\"; it must be a SHA-256, 64 digits of "
			"0-9 a-f",
			param, hex);
	else
		err_set(&e, ERR_INVALID_REQUEST, param,
			"the query parameter %s is missing", param);
	reply_err(r, &e);
	return -1;
}

/* What the call is about is in its query: that is hashed, with the key. */
static int hash_request(struct request *r, const char *sandbox,
			const struct file_path *path, const char *what,
			uint8_t ret[HASH_BYTES], struct err *e)
{
	const struct json_span none = {0};
	_cleanup_bytes_ struct bytes record = {0};

	if (bytes_printf(&record, "%s %zu %s %s", sandbox, path->len,
			 path->text, what ? what : "") ||
	    bytes_append(&record, "", 1))
		return err_set(e, ERR_UNAVAILABLE, NULL, "out of memory");
	return work_hash(r, none, (const char *)record.data, ret, e);
}

/* ---- upload ------------------------------------------------------------- */

static void on_kept(void *ctx, const struct err *e, const struct file_rec *f,
		    bool is_new)
{
	struct request *r = ctx;
	struct json_out j = {0};

	r->abandon = NULL;
	if (e) {
		reply_err(r, e);
		return;
	}
	json_out_begin(&j, NULL, '{');
	json_out_bool(&j, "created", is_new);
	lbb_put_file(&j, "file", f);
	json_out_end(&j, '}');
	reply_json(r, is_new ? 201 : 200, &j);
}

static void on_room(void *ctx)
{
	request_body_more(ctx);
}

static int upload_take(struct request *r, const void *data, size_t len,
		       struct err *e)
{
	if (!engine_upload_write(r->op, data, len, e))
		return engine_upload_is_full(r->op);
	engine_upload_abort(r->op);
	return -1;
}

static void upload_cut(struct request *r)
{
	engine_upload_abort(r->op);
}

static void upload_abandon(struct request *r)
{
	engine_upload_abort(r->op);
	request_drop(r);
}

static void upload_end(struct request *r)
{
	struct err e;

	if (!engine_upload_end(r->op, &e)) {
		r->abandon = upload_abandon;
		return;
	}
	engine_upload_abort(r->op);
	reply_err(r, &e);
}

static const struct body_sink upload_sink = {upload_take, upload_end,
					     upload_cut};

static void upload(struct request *r)
{
	const struct upload_spec spec = {
		.name = query_get(&r->query, "name"),
		.content_type = request_header(r, "Content-Type"),
		.bytes = request_body_bytes(r),
	};
	struct upload *u;
	struct err e;

	if (engine_upload_begin(r->services->engine, &r->caller, &spec, on_room,
				on_kept, r, &u, &e)) {
		reply_err(r, &e);
		return;
	}
	r->op = u;
	r->sink = &upload_sink;
}

/* ---- keep --------------------------------------------------------------- */

static void move_abandon(struct request *r)
{
	engine_move_abandon(r->op);
	request_drop(r);
}

static void moving(struct request *r, int rc, struct move_ask *a)
{
	if (rc) {
		lbb_engine_failed(r, rc);
		return;
	}
	r->op = a;
	r->abandon = move_abandon;
}

static int no_body(struct request *r, const void *data, size_t len,
		   struct err *e)
{
	(void)r;
	(void)data;
	return err_set(e, ERR_INVALID_REQUEST, NULL,
		       "with source_sandbox there is no body; this one has %zu "
		       "bytes or more",
		       len);
}

static void nothing(struct request *r)
{
	(void)r;
}

static void keep(struct request *r)
{
	struct keep_spec spec = {.key = r->idempotency_key,
				 .name = query_get(&r->query, "name")};
	struct move_ask *a = NULL;
	struct file_path path;
	struct err e;
	int rc;

	if (lbb_id(r, "source_sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND,
		   &spec.sandbox) ||
	    lbb_path(r, "source_path", "source_path_hex", true, &path))
		return;
	spec.path = &path;
	if (hash_request(r, spec.sandbox, &path, spec.name, spec.request_hash,
			 &e)) {
		reply_err(r, &e);
		return;
	}
	rc = engine_keep(r->services->engine, &r->caller, &spec, on_kept, r,
			 &a);
	moving(r, rc, a);
}

static const struct body_sink keep_sink = {no_body, keep, nothing};

static bool is_keep(const struct request *r)
{
	return query_get(&r->query, "source_sandbox") ||
	       query_get(&r->query, "source_path") ||
	       query_get(&r->query, "source_path_hex");
}

void lbb_upload(struct request *r)
{
	struct err e;

	if (!is_keep(r))
		upload(r);
	else if (request_key(r, &e))
		reply_err(r, &e);
	else
		r->sink = &keep_sink;
}

/* ---- import ------------------------------------------------------------- */

static void on_imported(void *ctx, const struct err *e, uint64_t bytes)
{
	struct request *r = ctx;
	struct json_out j = {0};
	struct file_path path;

	r->abandon = NULL;
	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	if (lbb_path(r, "path", "path_hex", true, &path))
		return; /* it was good before */
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "file");
	lbb_put_path(&j, path.text, path.len);
	json_out_u64(&j, "size", bytes);
	json_out_str(&j, "sha256", query_get(&r->query, "source_sha256"));
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

void lbb_file_import(struct request *r)
{
	struct import_spec spec = {0};
	struct move_ask *a = NULL;
	struct file_path path;
	struct err e = {0};
	int rc;

	if (r->body.len)
		err_set(&e, ERR_INVALID_REQUEST, "source_sha256",
			"with source_sha256 there is no body; this one has "
			"%zu bytes",
			r->body.len);
	if (e.code || request_key(r, &e)) {
		reply_err(r, &e);
		return;
	}
	if (lbb_id(r, "sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND,
		   &spec.sandbox) ||
	    lbb_path(r, "path", "path_hex", true, &path) ||
	    hash_of(r, "source_sha256", spec.sha256))
		return;
	spec.key = r->idempotency_key;
	spec.path = &path;
	if (hash_request(r, spec.sandbox, &path,
			 query_get(&r->query, "source_sha256"),
			 spec.request_hash, &e)) {
		reply_err(r, &e);
		return;
	}
	rc = engine_import(r->services->engine, &r->caller, &spec, on_imported,
			   r, &a);
	moving(r, rc, a);
}

/* ---- read --------------------------------------------------------------- */

static void on_list(void *ctx, const struct err *e, const struct file_rec *f,
		    size_t n, bool has_more)
{
	struct request *r = ctx;
	struct json_out j = {0};
	char next[24];

	if (e) {
		reply_err(r, e);
		return;
	}
	json_out_begin(&j, NULL, '{');
	json_out_begin(&j, "files", '[');
	for (size_t i = 0; i < n; i++)
		lbb_put_file(&j, NULL, &f[i]);
	json_out_end(&j, ']');
	if (has_more && n) {
		snprintf(next, sizeof(next), "%llu",
			 (unsigned long long)f[n - 1].seq);
		json_out_str(&j, "next", next);
	}
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

void lbb_graph_files(struct request *r)
{
	struct store_page page = {.name = query_get(&r->query, "name"),
				  .cursor = query_get(&r->query, "after")};
	uint64_t limit, after;
	struct err e;
	int rc;

	if (query_u64(&r->query, "limit", 1, LBB_FILES_PAGE_MAX,
		      LBB_FILES_PAGE_DEFAULT, &limit, &e) ||
	    query_u64(&r->query, "after", 1, INT64_MAX, 1, &after, &e)) {
		if (!strcmp(e.param, "after"))
			err_set(&e, ERR_INVALID_REQUEST, "after",
				"after is not the next of a list of Files");
		reply_err(r, &e);
		return;
	}
	page.limit = (unsigned)limit;
	rc = engine_graph_file_list(r->services->engine, &r->caller, &page,
				    on_list, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

static void on_record(void *ctx, const struct err *e, const struct file_rec *f)
{
	struct request *r = ctx;
	struct json_out j = {0};

	if (e) {
		reply_err(r, e);
		return;
	}
	lbb_put_file(&j, NULL, f);
	reply_json(r, 200, &j);
}

void lbb_graph_file_record(struct request *r)
{
	uint8_t sha256[HASH_BYTES];
	int rc;

	if (hash_of(r, "sha256", sha256))
		return;
	rc = engine_graph_file_get(r->services->engine, &r->caller, sha256,
				   on_record, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

static void on_open(void *ctx, const struct err *e, const struct file_rec *f,
		    int fd)
{
	struct request *r = ctx;
	struct reply_bytes_of b = {.fd = fd};
	int range;

	if (e) {
		reply_err(r, e);
		return;
	}
	b.len = b.total = f->bytes;
	b.content_type = f->content_type;
	b.etag = query_get(&r->query, "sha256");
	range = request_range(r, b.etag, b.total, &b.at, &b.len);
	if (range < 0) {
		close(fd);
		reply_no_range(r, b.total);
		return;
	}
	b.is_part = range;
	reply_file(r, &b);
}

void lbb_graph_file_content(struct request *r)
{
	uint8_t sha256[HASH_BYTES];
	int rc;

	if (hash_of(r, "sha256", sha256))
		return;
	rc = engine_graph_file_open(r->services->engine, &r->caller, sha256,
				    on_open, r);
	if (rc)
		lbb_engine_failed(r, rc);
}

/* ---- delete ------------------------------------------------------------- */

static void on_deleted(void *ctx, const struct err *e, const struct file_rec *f)
{
	struct request *r = ctx;
	struct json_out j = {0};

	(void)f;
	if (e) {
		reply_err(r, e);
		return;
	}
	json_out_begin(&j, NULL, '{');
	json_out_bool(&j, "deleted", true);
	json_out_str(&j, "sha256", query_get(&r->query, "sha256"));
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

void lbb_graph_file_delete(struct request *r)
{
	const char *confirm = query_get(&r->query, "confirm");
	uint8_t sha256[HASH_BYTES];
	struct err e;
	int rc;

	if (hash_of(r, "sha256", sha256))
		return;
	if (!confirm || strcmp(confirm, query_get(&r->query, "sha256")) != 0) {
		err_set(&e, ERR_INVALID_REQUEST, "confirm",
			"confirm must repeat sha256: a delete cannot be "
			"undone");
		reply_err(r, &e);
		return;
	}
	rc = engine_graph_file_delete(r->services->engine, &r->caller, sha256,
				      on_deleted, r);
	if (rc)
		lbb_engine_failed(r, rc);
}
