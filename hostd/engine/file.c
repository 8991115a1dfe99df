/*
 * Calls on the files of a held sandbox.
 *
 *   waiting   for the sandbox to run, or for the calls before it
 *   given     the VM has it, one at a time: its thread has one, too
 *   answered  its time was over: the VM still has it, nobody is told
 *
 * There is no record of one: what a write did is the file.  A call is activity
 * of its sandbox, like a command.  One that stops takes no more of them and
 * waits for the one that is given; one that ends answers all at once, and of a
 * write that was given nothing is known then, but the file is gone, too.
 *
 * The bytes of a write stay with the caller.  When they go (its client was
 * given up) before the guest has all of them, the guest gives the write up.
 * Those of a large one come when the guest asks for them (import.c).
 */
#include "../clock.h"
#include "engine_priv.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct filing {
	struct list node; /* in box.files, oldest first; or alone */
	struct engine *e;
	struct box *box;
	struct waiter *refusal; /* NULL: it is the box's */
	engine_file_fn fn;	/* NULL: it was answered */
	void (*piece)(void *ctx, size_t len);
	void *ctx;
	struct vm_file spec; /* its texts are the next two */
	struct file_path path;
	uint8_t after[GP_FILE_NAME_BYTES_MAX];
	uint64_t number; /* in its VM; 0 = not given */
	struct loop_timer timer;
	struct bytes data;    /* what was read */
	struct bytes entries; /* struct file_entry; names point into `names` */
	struct bytes names;
	bool has_no_memory;
};

static void filing_free(struct filing *f)
{
	loop_timer_stop(f->e->loop, &f->timer);
	list_remove(&f->node);
	bytes_finish(&f->data);
	bytes_finish(&f->entries);
	bytes_finish(&f->names);
	free(f);
}

static void answer(struct filing *f, const struct err *err,
		   const struct file_result *r)
{
	engine_file_fn fn = f->fn;

	f->fn = NULL;
	if (fn)
		fn(f->ctx, err, r);
}

/* ---- refused before anything was done ----------------------------------- */

static void on_refused(void *ctx, const struct err *err,
		       const struct sandbox_rec *rec)
{
	struct filing *f = ctx;

	(void)rec;
	answer(f, err, NULL);
	filing_free(f);
}

static void refuse(struct filing *f, const struct err *err)
{
	waiter_refuse(f->refusal, err);
}

/* ---- the end of one -------------------------------------------------------
 */

static const struct {
	enum gp_file_how how;
	enum err_code code;
} errors[] = {
	{GP_FILE_NOT_FOUND, ERR_FILE_NOT_FOUND},
	{GP_FILE_OUTSIDE, ERR_PATH_INVALID},
	{GP_FILE_WRONG_TYPE, ERR_PATH_INVALID},
	{GP_FILE_NOT_EMPTY, ERR_PATH_INVALID},
	{GP_FILE_DENIED, ERR_PATH_INVALID},
	{GP_FILE_BAD_NAME, ERR_PATH_INVALID},
	{GP_FILE_FULL, ERR_DISK_FULL},
	{GP_FILE_TOO_LARGE, ERR_FILE_TOO_LARGE},
	{GP_FILE_TIMED_OUT, ERR_UNAVAILABLE},
	{GP_FILE_GIVEN_UP, ERR_UNAVAILABLE},
	{GP_FILE_FAILED, ERR_UNAVAILABLE},
};

void file_end_error(struct err *err, const struct file_path *path,
		    uint32_t limit, const struct vm_file_end *end)
{
	enum err_code code = ERR_UNAVAILABLE;

	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		if (errors[i].how == end->how)
			code = errors[i].code;
	if (code == ERR_FILE_TOO_LARGE)
		err_set(err, code, "path",
			"path /workspace/%s has more than %u bytes, what one "
			"read gives: read it in parts, with offset and limit.",
			log_quoted(path->text, path->len).s, limit);
	else
		err_set(err, code, code == ERR_UNAVAILABLE ? NULL : "path",
			"path /workspace/%s: %.200s.",
			log_quoted(path->text, path->len).s, end->error);
}

/* Names are told by pointers when they do not move any more. */
static void names_set(struct filing *f, struct file_result *r)
{
	struct file_entry *e = (void *)f->entries.data;
	size_t n = f->entries.len / sizeof(*e), at = 0;

	for (size_t i = 0; i < n; i++) {
		e[i].name = e[i].name_len ? f->names.data + at : NULL;
		at += e[i].name_len;
	}
	r->entries = e;
	r->n_entries = n;
}

static struct filing *given(const struct box *b)
{
	struct filing *f =
		list_is_empty(&b->files)
			? NULL
			: container_of(b->files.next, struct filing, node);

	return f && f->number ? f : NULL;
}

bool box_has_file_given(const struct box *b)
{
	return given(b) != NULL;
}

static void touch(struct box *b)
{
	b->rec.last_active_ms =
		record_time(clock_wall_ms(), b->rec.last_active_ms);
	box_idle_arm(b);
}

void box_on_file_done(struct box *b, uint64_t number,
		      const struct vm_file_end *end)
{
	struct filing *f = given(b);
	struct file_result r = {0};
	struct err err = {0};

	if (fill_has_call(b, number)) {
		fill_on_done(b, end);
		return;
	}
	if (!f || f->number != number)
		return;
	if (end->how != GP_FILE_OK)
		file_end_error(&err, &f->path, f->spec.limit, end);
	else if (f->has_no_memory)
		err_set(&err, ERR_UNAVAILABLE, NULL, "out of memory");
	r.data = f->data.data;
	r.data_len = f->data.len;
	r.size = end->size;
	r.stamp = end->has_stamp ? end->stamp : NULL;
	r.has_more = end->has_more;
	names_set(f, &r);
	b->n_pending++;
	list_remove(&f->node);
	answer(f, err.code ? &err : NULL, &r);
	filing_free(f);
	touch(b);
	box_files(b);
	box_stop_on(b);
	b->n_pending--;
	box_maybe_free(b);
}

void box_on_file_entry(struct box *b, uint64_t number,
		       const struct vm_file_entry *e)
{
	struct filing *f = given(b);
	struct file_entry entry = {
		.name_len = e->name_len,
		.type = e->type,
		.size = e->size,
		.mtime_ms = e->mtime_ms,
		.mode = e->mode,
	};

	if (!f || f->number != number || !f->fn)
		return;
	if (bytes_append(&f->names, e->name, e->name_len) ||
	    bytes_append(&f->entries, &entry, sizeof(entry)))
		f->has_no_memory = true;
}

void box_on_file_data(struct box *b, uint64_t number, const uint8_t *data,
		      size_t len)
{
	struct filing *f = given(b);

	if (!f || f->number != number || !f->fn)
		return;
	if (bytes_append(&f->data, data, len))
		f->has_no_memory = true;
}

void box_on_file_more(struct box *b, uint64_t number, size_t len)
{
	struct filing *f = given(b);

	if (fill_has_call(b, number))
		fill_on_more(b, len);
	else if (f && f->number == number && f->fn && f->piece)
		f->piece(f->ctx, len);
	else
		vm_file_give_up(b->vm);
}

int engine_file_piece(struct filing *f, const void *data, size_t len)
{
	return f->number && f->box->vm
		       ? vm_file_piece(f->box->vm, f->number, data, len)
		       : -ESHUTDOWN;
}

void engine_file_give_up(struct filing *f)
{
	if (f->number && f->box->vm)
		vm_file_give_up(f->box->vm);
}

/* ---- given in order -------------------------------------------------------
 */

void box_files_refuse(struct box *b, const struct err *err)
{
	b->n_pending++;
	while (!list_is_empty(&b->files)) {
		struct filing *f =
			container_of(b->files.next, struct filing, node);

		list_remove(&f->node);
		answer(f, err, NULL);
		filing_free(f);
	}
	b->n_pending--;
}

/* Those that the VM does not have. */
static void refuse_waiting(struct box *b, const struct err *err)
{
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &b->files)
	{
		struct filing *f = container_of(n, struct filing, node);

		if (f->number)
			continue;
		answer(f, err, NULL);
		filing_free(f);
	}
}

static void give(struct box *b)
{
	struct filing *f;
	int rc;

	if (list_is_empty(&b->files) || given(b))
		return;
	f = container_of(b->files.next, struct filing, node);
	rc = vm_file(b->vm, b->last_file + 1, &f->spec);
	if (!rc)
		f->number = ++b->last_file;
	else if (rc != -ESHUTDOWN) /* else its end is told soon */
		loop_timer_set(b->e->loop, &b->note, ENGINE_GIVE_AGAIN_MS);
}

void box_files(struct box *b)
{
	struct err err = {0};

	if (list_is_empty(&b->files))
		return;
	if (b->rec.status == SBX_RUNNING && b->vm) {
		give(b);
	} else if (b->rec.status != b->told.status) {
		/* A client that looks after the refusal sees what it says. */
	} else if (b->rec.status == SBX_STOPPING && b->vm) {
		err_not_running(&err, &b->rec);
		refuse_waiting(b, &err);
	} else if (b->rec.status > SBX_RUNNING) {
		err_set(&err, ERR_NOT_RUNNING, "sandbox",
			"The sandbox %s is %s: it ended before the call on its "
			"files was answered.",
			b->rec.id, sandbox_status_name(b->rec.status));
		err.status = sandbox_status_name(b->rec.status);
		if (b->rec.status == SBX_STOPPED)
			err_not_running(&err, &b->rec);
		box_files_refuse(b, &err);
	}
}

/* ---- the calls ------------------------------------------------------------
 */

/* Until it is answered: what it may take, and as long as others wait. */
static int64_t wait_ms(const struct filing *f)
{
	return (int64_t)f->spec.timeout_ms + ENGINE_FILE_WAIT_MS -
	       ENGINE_FILE_TIMEOUT_MS;
}

static void on_due(struct loop_timer *t)
{
	struct filing *f = container_of(t, struct filing, timer);
	struct box *b = f->box;
	struct err err = {0};

	if (f->number)
		err_set(&err, ERR_UNAVAILABLE, NULL,
			"The sandbox %s did not end the call on its files "
			"within %d s%s.",
			b->rec.id, (int)(wait_ms(f) / 1000),
			f->spec.op == GP_FILE_WRITE ||
					f->spec.op == GP_FILE_DELETE
				? "; whether it was done is not known, and it "
				  "may be sent again"
				: "");
	else
		err_set(&err, ERR_UNAVAILABLE, NULL,
			"The sandbox %s is %s, and the call on its files was "
			"not begun within %d s.",
			b->rec.id, sandbox_status_name(b->rec.status),
			(int)(wait_ms(f) / 1000));
	err.retry_after_s = ENGINE_RETRY_ROOM_S;
	answer(f, &err, NULL);
	if (!f->number) {
		filing_free(f);
		box_maybe_free(b);
		return;
	}
	if (b->vm)
		vm_file_give_up(b->vm);
}

uint32_t file_timeout_ms(uint64_t bytes)
{
	uint64_t ms =
		ENGINE_FILE_TIMEOUT_MS + bytes * 1000 / ENGINE_FILE_BYTES_PER_S;

	return ms < INT32_MAX ? (uint32_t)ms : INT32_MAX;
}

static struct filing *filing_new(struct engine *e, const struct file_spec *spec,
				 engine_file_fn fn, void *ctx)
{
	struct filing *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	list_init(&f->node);
	f->e = e;
	f->fn = fn;
	f->piece = spec->piece;
	f->ctx = ctx;
	f->path = *spec->path;
	if (spec->after_len)
		memcpy(f->after, spec->after, spec->after_len);
	f->spec = (struct vm_file){
		.op = spec->op,
		.path = f->path.text,
		.path_len = f->path.len,
		.offset = spec->offset,
		.limit = spec->limit,
		.is_whole = spec->is_whole,
		.after = f->after,
		.after_len = spec->after_len,
		.data = spec->data,
		.data_len = spec->data_len,
		.more = spec->more,
		.timeout_ms = file_timeout_ms(spec->more),
	};
	f->timer.fn = on_due;
	f->refusal = waiter_new(e, NULL, on_refused, f);
	if (f->refusal)
		return f;
	free(f);
	return NULL;
}

/* 0: the box takes it; -1 with `err`. */
static int admit_file(const struct box *b, struct err *err)
{
	size_t n = 0;

	if (b->rec.kind != SBX_KIND_HELD || b->rec.status > SBX_RUNNING) {
		err_not_running(err, &b->rec);
		return -1;
	}
	for (struct list *m = b->files.next; m != &b->files; m = m->next)
		n++;
	if (n <= ENGINE_FILES_WAITING_MAX)
		return 0;
	err_set(err, ERR_LIMIT_REACHED, NULL,
		"The sandbox %s has %zu calls on its files that have not "
		"ended, its limit: one is served at a time; wait until one "
		"ends.",
		b->rec.id, n);
	err->retry_after_s = ENGINE_RETRY_PLACES_S;
	return -1;
}

int engine_file(struct engine *e, const struct caller *who,
		const struct file_spec *spec, engine_file_fn fn, void *ctx,
		struct filing **ret)
{
	struct filing *f = filing_new(e, spec, fn, ctx);
	struct box *b = box_by_id(e, who, spec->sandbox);
	struct err err = {0};

	if (!f)
		return -ENOMEM;
	*ret = f;
	if (e->is_ending)
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	else if (spec->op == GP_FILE_WRITE)
		caller_check(who, &err);
	if (!err.code && !b) {
		waiter_refuse_over(f->refusal, who->environment, who->graph,
				   spec->sandbox);
		return 0;
	}
	if (!err.code)
		admit_file(b, &err);
	if (err.code) {
		refuse(f, &err);
		return 0;
	}
	engine_cancel_wait(e, f->refusal);
	f->refusal = NULL;
	f->box = b;
	list_append(&b->files, &f->node);
	/* Without a timer it would wait without an end. */
	if (loop_timer_set(e->loop, &f->timer, wait_ms(f))) {
		filing_free(f);
		return -ENOMEM;
	}
	touch(b);
	box_files(b);
	return 0;
}

void engine_file_abandon(struct engine *e, struct filing *f)
{
	struct box *b = f->box;

	f->fn = NULL;
	if (f->refusal) {
		engine_cancel_wait(e, f->refusal);
		filing_free(f);
		return;
	}
	if (f->number) {
		if (b->vm)
			vm_file_give_up(b->vm);
		return;
	}
	filing_free(f);
	box_maybe_free(b);
}
