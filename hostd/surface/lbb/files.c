/*
 * Files of a held sandbox: list, read, write, delete (LBB-150 ... LBB-156).
 *
 * A path is text in `path`, or the bytes of one that is not UTF-8 in
 * `path_hex`; lists give the latter only where it is needed.  Contents are raw
 * bodies, both ways, of at most 4 MiB.  A write with source_sha256 is an import
 * (graph_files.c).
 */
#include "lbb.h"
#include "log.h"
#include <openssl/evp.h>
#include <string.h>

static const char *const type_names[] = {
	[GP_TYPE_FILE] = "file",       [GP_TYPE_DIRECTORY] = "directory",
	[GP_TYPE_SYMLINK] = "symlink", [GP_TYPE_FIFO] = "fifo",
	[GP_TYPE_SOCKET] = "socket",   [GP_TYPE_DEVICE] = "device",
};

static int path_of(struct request *r, bool is_needed, struct file_path *ret)
{
	return lbb_path(r, "path", "path_hex", is_needed, ret);
}

/* ---- answers ------------------------------------------------------------ */

static void put_entry(struct json_out *j, const struct file_path *folder,
		      const struct file_entry *e)
{
	char path[GP_FILE_PATH_BYTES_MAX + GP_FILE_NAME_BYTES_MAX + 2];
	const char *slash = strrchr(folder->text, '/');
	const void *name = e->name;
	size_t name_len = e->name_len, len = folder->len;
	char mode[8];

	memcpy(path, folder->text, len);
	if (name) {
		if (len)
			path[len++] = '/';
		memcpy(path + len, name, name_len);
		len += name_len;
	} else {
		name = slash ? slash + 1 : folder->text;
		name_len = strlen(name);
	}
	snprintf(mode, sizeof(mode), "%04o", e->mode);
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "file");
	lbb_put_path(j, path, len);
	json_out_text(j, "name", name, name_len);
	json_out_str(j, "type", type_names[e->type]);
	json_out_u64(j, "size", e->size);
	json_out_time(j, "modified_at", (int64_t)e->mtime_ms);
	json_out_str(j, "mode", mode);
	json_out_end(j, '}');
}

static void on_list(void *ctx, const struct err *e, const struct file_result *l)
{
	struct request *r = ctx;
	struct file_path folder = {0};
	char cursor[2 * GP_FILE_NAME_BYTES_MAX + 1] = "";
	struct json_out j = {0};

	r->abandon = NULL;
	if (e) {
		lbb_reply_err(r, e);
		return;
	}
	if (path_of(r, false, &folder))
		return; /* it was good before */
	lbb_list_begin(&j);
	for (size_t i = 0; i < l->n_entries; i++)
		put_entry(&j, &folder, &l->entries[i]);
	for (size_t i = 0; l->has_more && l->n_entries &&
			   i < l->entries[l->n_entries - 1].name_len;
	     i++)
		snprintf(cursor + 2 * i, 3, "%02x",
			 l->entries[l->n_entries - 1].name[i]);
	lbb_list_end(&j, *cursor, cursor);
	reply_json(r, 200, &j);
}

static void on_read(void *ctx, const struct err *e, const struct file_result *f)
{
	struct request *r = ctx;
	struct bytes body = {0};
	struct err none;

	r->abandon = NULL;
	if (e) {
		lbb_reply_err(r, e);
	} else if (bytes_append(&body, f->data_len ? (const void *)f->data : "",
				f->data_len)) {
		err_set(&none, ERR_UNAVAILABLE, NULL, "out of memory");
		reply_err(r, &none);
	} else {
		reply_bytes(r, 200, "application/octet-stream", &body);
	}
}

/* What was done, up to its path; false: it was not, and that is told. */
static bool done_begin(struct request *r, const struct err *e,
		       struct json_out *j)
{
	struct file_path path = {0};

	r->abandon = NULL;
	if (e) {
		lbb_reply_err(r, e);
		return false;
	}
	if (path_of(r, true, &path))
		return false; /* it was good before */
	json_out_begin(j, NULL, '{');
	json_out_str(j, "object", "file");
	lbb_put_path(j, path.text, path.len);
	return true;
}

static void on_written(void *ctx, const struct err *e,
		       const struct file_result *f)
{
	struct request *r = ctx;
	uint8_t sha256[HASH_BYTES];
	struct json_out j = {0};

	(void)f;
	if (!done_begin(r, e, &j))
		return;
	EVP_Digest(r->body.len ? (const void *)r->body.data : "", r->body.len,
		   sha256, NULL, EVP_sha256(), NULL);
	json_out_u64(&j, "size", r->body.len);
	json_out_hex(&j, "sha256", sha256, sizeof(sha256));
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

static void on_deleted(void *ctx, const struct err *e,
		       const struct file_result *f)
{
	struct request *r = ctx;
	struct json_out j = {0};

	(void)f;
	if (!done_begin(r, e, &j))
		return;
	json_out_bool(&j, "deleted", true);
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

/* ---- calls -------------------------------------------------------------- */

static void on_abandon(struct request *r)
{
	engine_file_abandon(r->services->engine, r->op);
	request_drop(r);
}

static void ask(struct request *r, struct file_spec *spec,
		const struct file_path *path, engine_file_fn fn)
{
	struct filing *f;
	int rc;

	if (lbb_id(r, "sandbox", "sbx_", ERR_SANDBOX_NOT_FOUND, &spec->sandbox))
		return;
	spec->path = path;
	rc = engine_file(r->services->engine, &r->caller, spec, fn, r, &f);
	if (rc) {
		lbb_engine_failed(r, rc);
		return;
	}
	r->op = f;
	r->abandon = on_abandon;
}

void lbb_files(struct request *r)
{
	const char *cursor = query_get(&r->query, "cursor");
	struct file_spec spec = {.op = GP_FILE_LIST};
	uint8_t after[GP_FILE_NAME_BYTES_MAX];
	int64_t n = cursor ? lbb_hex_bytes(cursor, after, sizeof(after)) : 0;
	struct file_path path;
	uint64_t limit;
	struct err e = {0};

	if (path_of(r, false, &path))
		return;
	if (query_u64(&r->query, "limit", 1, GP_FILE_ENTRIES_MAX,
		      GP_FILE_ENTRIES_MAX, &limit, &e) ||
	    n < 0 || (n && memchr(after, 0, (size_t)n))) {
		if (!e.code)
			err_set(&e, ERR_INVALID_REQUEST, "cursor",
				"cursor is not a next_cursor of this list");
		reply_err(r, &e);
		return;
	}
	spec.limit = (uint32_t)limit;
	spec.after = after;
	spec.after_len = (size_t)n;
	ask(r, &spec, &path, on_list);
}

void lbb_file_read(struct request *r)
{
	struct file_spec spec = {.op = GP_FILE_READ};
	struct file_path path;
	uint64_t limit;
	struct err e;

	if (path_of(r, true, &path))
		return;
	if (query_u64(&r->query, "offset", 0, LBB_FILE_OFFSET_MAX, 0,
		      &spec.offset, &e) ||
	    query_u64(&r->query, "limit", 1, GP_FILE_BYTES_MAX,
		      GP_FILE_BYTES_MAX, &limit, &e)) {
		reply_err(r, &e);
		return;
	}
	spec.limit = (uint32_t)limit;
	spec.is_whole = !query_get(&r->query, "offset") &&
			!query_get(&r->query, "limit");
	ask(r, &spec, &path, on_read);
}

void lbb_file_write(struct request *r)
{
	struct file_spec spec = {.op = GP_FILE_WRITE,
				 .limit = 1,
				 .data = r->body.data,
				 .data_len = r->body.len};
	struct file_path path;

	if (query_get(&r->query, "source_sha256"))
		lbb_file_import(r);
	else if (!path_of(r, true, &path))
		ask(r, &spec, &path, on_written);
}

void lbb_file_delete(struct request *r)
{
	struct file_spec spec = {.op = GP_FILE_DELETE, .limit = 1};
	struct file_path path;

	if (!path_of(r, true, &path))
		ask(r, &spec, &path, on_deleted);
}
