/*
 * Files of the graph that a sandbox begins with.
 *
 *   fill_open    before the first record: each is looked up and opened, so that
 *                one that is not there refuses the request, and one that is
 *                deleted from now on is there all the same
 *   fill_start   the VM has its identity: one after another is written into the
 *                workspace, as import.c does; the sandbox is `starting` all the
 *                while, and no code has run
 *   box_filled   all are there
 *
 * Those of a saved template come behind the call's own.  Its record has their
 * hashes, not their bytes: one whose File was deleted since refuses the request
 * as one of the call's does.
 *
 * One that cannot be written is the sandbox's failure, with the reason.
 */
#include "engine_priv.h"
#include "fd.h"
#include "log.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct fill {
	struct box *box;
	struct seed *seeds; /* owned */
	struct file_rec *recs;
	int *fds;
	size_t n, at;
	size_t n_own;	/* of the call; what follows is the template's: */
	size_t *places; /* owned; in its record, of seeds[n_own + i] */
	struct err err;
	uint64_t number; /* of the call that is under way; 0 = none */
	struct blob_reader *reader;
	struct err read_err;
	bool is_done;
};

static_assert(FILE_PATH_BYTES_MAX <= GP_FILE_PATH_BYTES_MAX, "as a seed's");

static bool is_own(const struct seed *seeds, size_t n, const struct bytes *path)
{
	for (size_t i = 0; i < n; i++)
		if (seeds[i].path.len == path->len &&
		    !memcmp(seeds[i].path.text, path->data, path->len))
			return true;
	return false;
}

static size_t count(const struct seed *seeds, size_t n,
		    const struct template_rec *t)
{
	size_t all = n;

	for (size_t i = 0; t && i < t->files.n; i++)
		all += !is_own(seeds, n, &t->files.at[i].path);
	return all;
}

int fill_fits(const struct seed *seeds, size_t n, const struct template_rec *t,
	      struct err *err)
{
	size_t all = count(seeds, n, t);

	if (all <= ENGINE_FILES_AT_START_MAX)
		return 0;
	return err_set(err, ERR_INVALID_REQUEST, "files",
		       "files: %zu of the call and %zu of the template %s have "
		       "%zu paths; a sandbox begins with at most %d Files.",
		       n, t ? t->files.n : 0, t ? t->name : "-", all,
		       ENGINE_FILES_AT_START_MAX);
}

static void add_of(struct fill *f, const struct template_rec *t)
{
	size_t n = f->n_own;

	for (size_t i = 0; t && i < t->files.n; i++) {
		const struct template_file *from = &t->files.at[i];
		struct seed *s = &f->seeds[n];

		if (is_own(f->seeds, f->n_own, &from->path))
			continue;
		memcpy(s->file.sha256, from->sha256, HASH_BYTES);
		memcpy(s->path.text, from->path.data, from->path.len);
		s->path.len = from->path.len;
		f->places[n++ - f->n_own] = i;
	}
}

int fill_make(struct box *b, const struct seed *seeds, size_t n,
	      const struct template_rec *t)
{
	const size_t all = count(seeds, n, t);
	struct fill *f;

	if (!all)
		return 0;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->n = all;
	f->n_own = n;
	f->seeds = calloc(all, sizeof(*f->seeds));
	f->recs = calloc(all, sizeof(*f->recs));
	f->fds = calloc(all, sizeof(*f->fds));
	f->places = calloc(all - n + 1, sizeof(*f->places));
	for (size_t i = 0; f->fds && i < all; i++)
		f->fds[i] = -1;
	if (!f->seeds || !f->recs || !f->fds || !f->places) {
		fill_free(f);
		return -ENOMEM;
	}
	if (n)
		memcpy(f->seeds, seeds, n * sizeof(*seeds));
	add_of(f, t);
	b->fill = f;
	return 0;
}

void fill_free(struct fill *f)
{
	if (!f)
		return;
	blob_reader_free(f->reader);
	for (size_t i = 0; f->fds && i < f->n; i++)
		fd_close(&f->fds[i]);
	for (size_t i = 0; f->recs && i < f->n; i++)
		file_rec_finish(&f->recs[i]);
	free(f->seeds);
	free(f->recs);
	free(f->fds);
	free(f->places);
	free(f);
}

/* ---- opened ------------------------------------------------------------- */

void fill_error(struct err *err, size_t i, const struct file_ref *ref,
		const char *graph, int rc)
{
	char param[ERR_PARAM_BYTES_MAX];

	snprintf(param, sizeof(param), "files[%zu].%s", i,
		 *ref->id ? "id" : "sha256");
	if (*ref->id && rc == -ENOENT)
		err_set(err, ERR_GRAPH_FILE_NOT_FOUND, param,
			"There is no File %s in graph %s.", ref->id, graph);
	else
		graph_file_error(err, param, ref->sha256, graph, rc);
}

static void not_found(struct fill *f, size_t i, int rc)
{
	const struct seed *s = &f->seeds[i];
	const struct sandbox_rec *r = &f->box->rec;

	if (i < f->n_own) {
		fill_error(&f->err, i, &s->file, r->graph, rc);
		return;
	}
	graph_file_error(&f->err, "template", s->file.sha256, r->graph, rc);
	err_wrap(&f->err, "files[%zu] of the template %s, %s",
		 f->places[i - f->n_own], r->template_name,
		 log_quoted(s->path.text, s->path.len).s);
}

static void on_found(void *ctx, int rc, struct file_rec *r, size_t n,
		     bool has_more)
{
	struct box *b = ctx;
	struct fill *f = b->fill;
	struct engine *e = b->e;

	(void)has_more;
	if (!rc && e->is_ending)
		err_set(&f->err, ERR_UNAVAILABLE, NULL, NULL);
	for (size_t i = 0; !rc && !f->err.code && i < n; i++) {
		int fd = graph_file_bytes(e, &r[i]);

		if (fd < 0) {
			memcpy(f->seeds[i].file.sha256, r[i].sha256,
			       HASH_BYTES);
			f->seeds[i].file.id[0] = 0;
			not_found(f, i, fd);
			break;
		}
		f->fds[i] = fd;
		if (file_rec_copy(&f->recs[i], &r[i]))
			err_set(&f->err, ERR_UNAVAILABLE, NULL,
				"out of memory");
	}
	if (rc && !f->err.code)
		not_found(f, n < f->n ? n : 0, rc);
	/* A key that is known is answered all the same. */
	begin_start(&b->begin);
	b->n_pending--;
	box_maybe_free(b);
	engine_op_end(e);
}

void fill_open(struct box *b)
{
	struct fill *f = b->fill;
	struct file_ref *refs = calloc(f->n, sizeof(*refs));
	int rc = refs ? 0 : -ENOMEM;

	f->box = b;
	for (size_t i = 0; refs && i < f->n; i++)
		refs[i] = f->seeds[i].file;
	if (!rc)
		rc = store_file_find(b->e->store, b->rec.environment,
				     b->rec.graph, refs, f->n, on_found, b);
	free(refs);
	if (!rc) {
		b->n_pending++;
		engine_op_begin(b->e);
		return;
	}
	err_set(&f->err, ERR_UNAVAILABLE, NULL, "out of memory");
	begin_start(&b->begin);
}

int fill_check(const struct box *b, struct err *err)
{
	if (!b->fill || !b->fill->err.code)
		return 0;
	*err = b->fill->err;
	return -1;
}

/* ---- written ------------------------------------------------------------ */

static void next(struct fill *f);

static void cannot(struct fill *f, const char *why)
{
	char text[REASON_BYTES_MAX];

	f->is_done = true;
	f->number = 0;
	if (f->at < f->n_own)
		snprintf(text, sizeof(text), "files[%zu]: %.220s", f->at, why);
	else
		snprintf(text, sizeof(text),
			 "files[%zu] of the template: %.200s",
			 f->places[f->at - f->n_own], why);
	box_not_filled(f->box, text);
}

static void on_read(void *ctx, int rc, const uint8_t *data, size_t len)
{
	struct fill *f = ctx;
	struct box *b = f->box;

	if (!f->number || !b->vm)
		return;
	if (!rc) {
		(void)vm_file_piece(b->vm, f->number, data, len);
		return;
	}
	graph_file_error(&f->read_err, NULL, f->recs[f->at].sha256,
			 b->rec.graph, rc);
	vm_file_give_up(b->vm);
}

bool fill_has_call(const struct box *b, uint64_t number)
{
	return b->fill && b->fill->number && b->fill->number == number;
}

void fill_on_more(struct box *b, size_t len)
{
	if (blob_read(b->fill->reader, len))
		vm_file_give_up(b->vm);
}

void fill_on_done(struct box *b, const struct vm_file_end *end)
{
	struct fill *f = b->fill;
	struct err err = f->read_err;

	f->number = 0;
	blob_reader_free(f->reader);
	f->reader = NULL;
	if (end->how != GP_FILE_OK && !err.code)
		file_end_error(&err, &f->seeds[f->at].path, 1, end);
	if (err.code) {
		cannot(f, err.text);
		return;
	}
	f->at++;
	next(f);
}

static void next(struct fill *f)
{
	struct box *b = f->box;
	const struct file_rec *r;
	struct vm_file file;
	int rc;

	if (f->at == f->n) {
		log_info("%s files=%zu are in the workspace", b->rec.id, f->n);
		b->fill = NULL;
		fill_free(f);
		box_filled(b);
		return;
	}
	r = &f->recs[f->at];
	file = (struct vm_file){.op = GP_FILE_WRITE,
				.path = f->seeds[f->at].path.text,
				.path_len = f->seeds[f->at].path.len,
				.limit = 1,
				.more = r->bytes,
				.timeout_ms = file_timeout_ms(r->bytes)};
	rc = blob_reader_new(&f->reader, b->e->loop, fd_take(&f->fds[f->at]),
			     r->bytes, r->sha256, on_read, f);
	if (!rc) {
		f->number = ++b->last_file;
		rc = vm_file(b->vm, f->number, &file);
	}
	if (rc)
		cannot(f, strerror(-rc));
}

bool fill_start(struct box *b)
{
	struct fill *f = b->fill;

	/* A resumed one has them since it began. */
	if (!f || f->is_done || b->rec.status != SBX_STARTING)
		return false;
	next(f);
	return true;
}
