/*
 * Keep: a file of a workspace becomes a File of the graph, with the sandbox as
 * its origin.
 *
 * It is read in parts of at most GP_FILE_BYTES_MAX, each a call on files like
 * any other, so that other calls come in between and the daemon holds one part
 * at a time; the next is asked for when the disk has taken the last.  The guest
 * says with each of which state of which file it is (api/guest_proto.h): one
 * that changed in between is read again from its start, KEEP_TRIES times, then
 * refused.  What is kept is the file as it was at one moment, or nothing.
 */
#include "../http/utf8.h"
#include "engine_priv.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define KEEP_TRIES    3
#define KEEP_AGAIN_MS 150

static void read_on(struct move *m);

/* ---- the end ------------------------------------------------------------ */

static void failed(struct move *m, const struct err *err)
{
	intake_drop(&m->in, false);
	move_failed(m, err);
}

static void on_known(void *ctx, int rc, struct file_rec *r)
{
	struct move *m = ctx;
	struct engine *e = m->e;
	struct err err = {0};

	if (rc) {
		graph_file_error(&err, NULL, m->in.rec.sha256, m->graph, rc);
		move_failed(m, &err);
	} else {
		move_kept(m, r, false);
	}
	engine_op_end(e);
}

/* Another daemon's call with this key cannot be: the folder is locked. */
static void on_recorded(void *ctx, const struct err *err,
			const struct store_found *f, bool is_new,
			const struct file_rec *r)
{
	struct move *m = ctx;
	struct file_ref ref = {.id = ""};
	struct err none = {0};

	if (err) {
		move_failed(m, err);
	} else if (!f->is_found) {
		log_info("%s file=%s kept bytes=%llu", m->sandbox, r->id,
			 (unsigned long long)r->bytes);
		move_kept(m, r, is_new);
	} else {
		memcpy(ref.id, f->command, sizeof(ref.id));
		if (!store_file_get(m->e->store, m->environment, m->graph, &ref,
				    on_known, m)) {
			engine_op_begin(m->e);
			return;
		}
		file_disk_error(&none, -ENOMEM);
		move_failed(m, &none);
	}
}

/* Its last component; bytes that are no UTF-8 text are shown as U+FFFD. */
static int name_of_path(const struct file_path *p, struct bytes *ret)
{
	const char *slash = strrchr(p->text, '/');
	const uint8_t *at = (const uint8_t *)(slash ? slash + 1 : p->text);
	size_t len = strlen((const char *)at);
	int rc = 0;

	while (!rc && len) {
		uint32_t cp = 0;
		int n = utf8_next(at, len, &cp);
		size_t used = n > 0 ? (size_t)n : 1;
		bool is_good = n > 0 && cp >= 0x20 && cp != 0x7f;

		rc = is_good ? bytes_append(ret, at, used)
			     : bytes_append(ret, "\xef\xbf\xbd", 3);
		at += used;
		len -= used;
	}
	return rc;
}

static void seal(struct move *m)
{
	struct file_rec *r = &m->in.rec;
	struct err err = {0};
	int rc = r->name.len ? 0 : name_of_path(&m->path, &r->name);

	if (!rc)
		rc = bytes_append(&r->origin_path, m->path.text, m->path.len);
	memcpy(r->environment, m->environment, sizeof(r->environment));
	memcpy(r->graph, m->graph, sizeof(r->graph));
	memcpy(r->origin_sandbox, m->sandbox, sizeof(r->origin_sandbox));
	m->in.has_key = true;
	m->in.key = move_key(m);
	m->step = MOVE_SEALING;
	if (rc)
		file_disk_error(&err, rc);
	if (err.code || intake_end(&m->in, &err))
		failed(m, &err);
}

/* ---- parts -------------------------------------------------------------- */

/* It is read anew from its start. */
static void begin_again(struct move *m, struct err *err)
{
	intake_drop(&m->in, false);
	if (++m->n_tries >= KEEP_TRIES) {
		err_set(err, ERR_FILE_CHANGED, "source_path",
			"path /workspace/%s changed each time that it was "
			"read: keep it when nothing writes to it, or a copy.",
			log_quoted(m->path.text, m->path.len).s);
		move_failed(m, err);
	} else if (loop_timer_set(m->e->loop, &m->again, KEEP_AGAIN_MS)) {
		file_disk_error(err, -ENOMEM);
		move_failed(m, err);
	}
}

static bool is_other_state(struct move *m, const struct file_result *r)
{
	bool is_first = !m->offset;

	if (!r->stamp)
		return true;
	if (is_first)
		memcpy(m->stamp, r->stamp, sizeof(m->stamp));
	return memcmp(m->stamp, r->stamp, sizeof(m->stamp)) != 0 ||
	       r->size < m->offset + r->data_len ||
	       (!r->data_len && r->size != m->offset);
}

static void on_part(void *ctx, const struct err *e, const struct file_result *r)
{
	struct move *m = ctx;
	struct err err = {0};
	bool is_first = !m->offset;

	m->filing = NULL;
	if (e) {
		err = *e;
		if (!strcmp(err.param, "path"))
			snprintf(err.param, sizeof(err.param), "source_path");
		if (!strcmp(err.param, "sandbox"))
			snprintf(err.param, sizeof(err.param),
				 "source_sandbox");
		failed(m, &err);
		return;
	}
	if (is_other_state(m, r)) {
		begin_again(m, &err);
		return;
	}
	/* Now its size is known. */
	if (is_first) {
		intake_drop(&m->in, false);
		if (intake_begin(&m->in, m->e, r->size, &err)) {
			move_failed(m, &err);
			return;
		}
	}
	if (intake_write(&m->in, r->data, r->data_len, &err)) {
		failed(m, &err);
		return;
	}
	m->offset += r->data_len;
	m->size = r->size;
	if (m->offset == m->size)
		seal(m);
	else if (!blob_is_full(m->in.w))
		read_on(m);
}

static void on_room(void *ctx)
{
	struct move *m = ctx;

	/* What is wrong the next write tells. */
	if (!m->filing && m->step == MOVE_MOVING)
		read_on(m);
}

static void read_on(struct move *m)
{
	const struct caller who = move_caller(m);
	const struct file_spec spec = {.sandbox = m->sandbox,
				       .op = GP_FILE_READ,
				       .path = &m->path,
				       .offset = m->offset,
				       .limit = GP_FILE_BYTES_MAX};
	struct err err = {0};

	if (!engine_file(m->e, &who, &spec, on_part, m, &m->filing))
		return;
	m->filing = NULL;
	file_disk_error(&err, -ENOMEM);
	failed(m, &err);
}

static void from_start(struct move *m)
{
	m->offset = 0;
	m->in.e = m->e;
	list_init(&m->in.node);
	m->in.room = on_room;
	m->in.done = on_recorded;
	m->in.ctx = m;
	read_on(m);
}

static void on_again(struct loop_timer *t)
{
	from_start(container_of(t, struct move, again));
}

void keep_start(struct move *m)
{
	m->again.fn = on_again;
	from_start(m);
}

void keep_forget(struct move *m)
{
	struct err err = {0};

	if (m->filing)
		engine_file_abandon(m->e, m->filing);
	m->filing = NULL;
	err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	failed(m, &err);
}
