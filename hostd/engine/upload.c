/*
 * Uploads: Files that come from clients, as a stream of bytes.
 *
 * Nothing of one is known before its record is durable; a client that goes away
 * in the middle leaves nothing.  Whoever sends must wait while the disk is
 * behind (engine_upload_is_full).
 */
#include "../http/utf8.h"
#include "engine_priv.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct upload {
	struct intake in;
	struct engine *e;
	bool is_writing; /* the store, or a worker, will come back to it */
	engine_upload_room_fn room;
	engine_kept_fn fn; /* NULL: it was abandoned */
	void *ctx;
};

static void upload_free(struct upload *u)
{
	u->e->n_uploads--;
	file_rec_finish(&u->in.rec);
	free(u);
}

static void on_room(void *ctx)
{
	struct upload *u = ctx;

	if (u->fn)
		u->room(u->ctx);
}

static void on_done(void *ctx, const struct err *err,
		    const struct store_found *f, bool is_new,
		    const struct file_rec *r)
{
	struct upload *u = ctx;

	(void)f;
	if (u->fn && !u->e->is_ending)
		u->fn(u->ctx, err, r, is_new);
	upload_free(u);
}

int file_name_check(const char *name, size_t len, struct err *err)
{
	const char *what = NULL;

	if (!len)
		what = "is empty";
	else if (len > FILE_NAME_BYTES_MAX)
		what = "is too long";
	else if (!utf8_is_valid(name, len))
		what = "is not UTF-8";
	for (size_t i = 0; !what && i < len; i++)
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			what = "has a control character";
	if (!what)
		return 0;
	return err_set(err, ERR_INVALID_REQUEST, "name",
		       "name %.100s, of %zu bytes, %s; it must be 1 to %d "
		       "bytes of UTF-8 text without control characters.",
		       log_quoted(name, len).s, len, what, FILE_NAME_BYTES_MAX);
}

/* type/subtype, and what may follow it, in printable ASCII. */
static int type_check(const char *type, struct err *err)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789"
				    "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t len = strlen(type), n = strspn(type, token);
	size_t m = type[n] == '/' ? strspn(type + n + 1, token) : 0;
	const char *rest = m ? type + n + 1 + m : type;
	bool is_good = n && m && len <= FILE_TYPE_BYTES_MAX &&
		       (!*rest || *rest == ';' || *rest == ' ');

	for (const char *p = type; is_good && *p; p++)
		is_good = *p >= 0x20 && *p <= 0x7e;
	if (is_good)
		return 0;
	return err_set(err, ERR_INVALID_REQUEST, "Content-Type",
		       "Content-Type %.100s, of %zu bytes, is no media type: "
		       "type/subtype, of at most %d bytes of printable ASCII.",
		       log_quoted(type, len).s, len, FILE_TYPE_BYTES_MAX);
}

static int spec_check(const struct engine *e, const struct upload_spec *spec,
		      struct err *err)
{
	if (e->is_ending)
		return err_set(err, ERR_UNAVAILABLE, NULL, NULL);
	if (spec->name && file_name_check(spec->name, strlen(spec->name), err))
		return -1;
	if (spec->content_type && type_check(spec->content_type, err))
		return -1;
	if (e->n_uploads < ENGINE_UPLOADS_MAX)
		return 0;
	err_set(err, ERR_UNAVAILABLE, NULL,
		"%u Files are being uploaded, as many as the daemon takes at "
		"once.",
		e->n_uploads);
	err->retry_after_s = ENGINE_RETRY_PLACES_S;
	return -1;
}

int engine_upload_begin(struct engine *e, const struct caller *who,
			const struct upload_spec *spec,
			engine_upload_room_fn room, engine_kept_fn fn,
			void *ctx, struct upload **ret, struct err *err)
{
	struct upload *u;
	struct file_rec *r;

	if (spec_check(e, spec, err))
		return -1;
	u = calloc(1, sizeof(*u));
	if (!u)
		return err_set(err, ERR_UNAVAILABLE, NULL, "out of memory");
	e->n_uploads++;
	u->e = e;
	u->room = room;
	u->fn = fn;
	u->ctx = ctx;
	u->in.room = on_room;
	u->in.done = on_done;
	u->in.ctx = u;
	r = &u->in.rec;
	snprintf(r->environment, sizeof(r->environment), "%s",
		 who->environment);
	snprintf(r->graph, sizeof(r->graph), "%s", who->graph);
	snprintf(r->content_type, sizeof(r->content_type), "%s",
		 spec->content_type ? spec->content_type : "");
	if (spec->name &&
	    bytes_append(&r->name, spec->name, strlen(spec->name)))
		err_set(err, ERR_UNAVAILABLE, NULL, "out of memory");
	else if (!intake_begin(&u->in, e, spec->bytes, err)) {
		*ret = u;
		return 0;
	}
	upload_free(u);
	return -1;
}

int engine_upload_write(struct upload *u, const void *data, size_t len,
			struct err *err)
{
	return intake_write(&u->in, data, len, err);
}

bool engine_upload_is_full(const struct upload *u)
{
	return blob_is_full(u->in.w);
}

int engine_upload_end(struct upload *u, struct err *err)
{
	if (intake_end(&u->in, err))
		return -1;
	u->is_writing = true;
	return 0;
}

void engine_upload_abort(struct upload *u)
{
	u->fn = NULL;
	if (u->is_writing)
		return;
	intake_drop(&u->in, false);
	upload_free(u);
}
