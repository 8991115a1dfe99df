/*
 * `files` of the calls that make a sandbox (LBB-71): Files of the graph that
 * are copied into its workspace before anything runs there.
 */
#include "../../image/filehash.h"
#include "work.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int seed_hash(void *ctx, const char *path, struct json_span v,
		     struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct seed *s = ctx;

	if (decode_string(path, v, &text, e))
		return -1;
	if (text.len != LBB_SHA256_CHARS ||
	    hash_from_hex((const char *)text.data, s->file.sha256))
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has %zu bytes; it must be the SHA-256 of a "
			       "File, 64 digits of 0-9 a-f",
			       path, text.len);
	return 0;
}

static int seed_id(void *ctx, const char *path, struct json_span v,
		   struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct seed *s = ctx;
	const char *id;

	if (decode_string(path, v, &text, e))
		return -1;
	id = (const char *)text.data;
	if (text.len >= ID_BYTES_MAX || text.len < 5 ||
	    strncmp(id, "fil_", 4) ||
	    strspn(id + 4, "0123456789abcdefghijklmnopqrstuvwxyz") !=
		    text.len - 4)
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s is not the id of a File: fil_...", path);
	snprintf(s->file.id, sizeof(s->file.id), "%s", id);
	return 0;
}

static int seed_path(void *ctx, const char *path, struct json_span v,
		     struct err *e)
{
	_cleanup_bytes_ struct bytes text = {0};
	struct seed *s = ctx;
	struct err why;

	if (decode_string(path, v, &text, e))
		return -1;
	if (file_path_clean(text.data, text.len, &s->path, &why))
		return err_set(e, ERR_PATH_INVALID, path, "%s: %.400s", path,
			       why.text);
	if (!s->path.len)
		return err_set(e, ERR_PATH_INVALID, path,
			       "%s names the workspace itself", path);
	return 0;
}

static const struct decode_field fields[] = {
	{"sha256", seed_hash},
	{"id", seed_id},
	{"path", seed_path},
};

static bool has(struct json_span v, const char *name)
{
	struct json_span m;

	return json_at(v, name, &m);
}

static int seed_add(struct work *w, const char *path, struct json_span v,
		    struct err *e)
{
	struct seed *s = &w->seeds[w->n_seeds];

	memset(s, 0, sizeof(*s));
	if (decode_object(s, path, v, fields, sizeof(fields) / sizeof(*fields),
			  e))
		return -1;
	if (has(v, "sha256") == has(v, "id"))
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s has either sha256 or id", path);
	if (!has(v, "path"))
		return err_set(e, ERR_INVALID_REQUEST, path,
			       "%s.path is missing", path);
	for (size_t i = 0; i < w->n_seeds; i++)
		if (!strcmp(w->seeds[i].path.text, s->path.text))
			return err_set(e, ERR_INVALID_REQUEST, path,
				       "%s has the path of an earlier one",
				       path);
	w->n_seeds++;
	return 0;
}

int work_files(void *ctx, const char *path, struct json_span v, struct err *e)
{
	struct work *w = ctx;
	struct json_member m;
	struct json_iter it;
	char one[48];

	if (decode_type(path, v, JSON_KIND_ARRAY, e))
		return -1;
	w->seeds = calloc(ENGINE_FILES_AT_START_MAX, sizeof(*w->seeds));
	if (!w->seeds)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	json_iter_begin(&it, v);
	while (json_iter_next(&it, &m)) {
		snprintf(one, sizeof(one), "%.20s[%zu]", path, w->n_seeds);
		if (w->n_seeds == ENGINE_FILES_AT_START_MAX)
			return err_set(e, ERR_INVALID_REQUEST, path,
				       "%s has more than %d Files", path,
				       ENGINE_FILES_AT_START_MAX);
		if (seed_add(w, one, m.value, e))
			return -1;
	}
	return 0;
}
