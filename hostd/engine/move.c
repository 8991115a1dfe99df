/*
 * Between a graph's Files and the workspace of a held sandbox: who asks, and
 * under which key.  keep.c and import.c do it.
 *
 *   ASKING   is the key known already?
 *   MOVING   bytes go, in calls on files like any other (file.c)
 *   SEALING  a File's record, or the key of what was done, is written
 *
 * Calls with one key meet in memory; older keys are in the store.  One goes on
 * to its end whoever waits for it: a client that waited too long asks again by
 * its key and finds it.  What a crash cuts off has no key, and is done again.
 */
#include "engine_priv.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* One call that waits for it, or that was refused. */
struct move_ask {
	struct list node; /* in move.asks, or alone */
	struct engine *e;
	struct loop *loop;
	engine_kept_fn kept; /* one of the two; both NULL: abandoned */
	engine_imported_fn imported;
	void *ctx;
	struct loop_timer timer;
	struct loop_call call;
	bool is_posted;
	struct err err;
};

static const char *const operations[] = {
	[MOVE_KEEP] = "keep", /* POST /v1/files */
	[MOVE_IMPORT] = "import",
};

/* ---- answers ------------------------------------------------------------ */

struct outcome {
	const struct err *err;
	const struct file_rec *rec;
	bool is_new;
	uint64_t bytes;
};

static void ask_answer(struct move_ask *a, const struct outcome *o)
{
	loop_timer_stop(a->loop, &a->timer);
	list_remove(&a->node);
	if (a->kept)
		a->kept(a->ctx, o->err, o->rec, o->is_new);
	else if (a->imported)
		a->imported(a->ctx, o->err, o->bytes);
	free(a);
}

static void on_refused(void *arg)
{
	struct move_ask *a = arg;
	const struct outcome o = {.err = &a->err};

	ask_answer(a, &o);
}

static void ask_refuse(struct move_ask *a)
{
	a->is_posted = true;
	a->call.fn = on_refused;
	a->call.arg = a;
	loop_post_call(a->loop, &a->call);
}

static void on_due(struct loop_timer *t)
{
	struct move_ask *a = container_of(t, struct move_ask, timer);
	const struct outcome o = {.err = &a->err};

	err_set(&a->err, ERR_UNAVAILABLE, NULL,
		"It is not done within %d s, and goes on: ask again with the "
		"same key.",
		ENGINE_FILE_WAIT_MS / 1000);
	a->err.retry_after_s = ENGINE_RETRY_PLACES_S;
	ask_answer(a, &o);
}

void engine_move_abandon(struct move_ask *a)
{
	a->kept = NULL;
	a->imported = NULL;
	if (a->is_posted)
		return;
	loop_timer_stop(a->loop, &a->timer);
	list_remove(&a->node);
	free(a);
}

/* It is out of the list first: a call from within begins anew. */
static void move_end(struct move *m, const struct outcome *o)
{
	list_remove(&m->node);
	loop_timer_stop(m->e->loop, &m->again);
	while (!list_is_empty(&m->asks))
		ask_answer(container_of(m->asks.next, struct move_ask, node),
			   o);
	file_rec_finish(&m->in.rec);
	free(m);
}

void move_failed(struct move *m, const struct err *err)
{
	const struct outcome o = {.err = err};

	move_end(m, &o);
}

void move_kept(struct move *m, const struct file_rec *r, bool is_new)
{
	const struct outcome o = {.rec = r, .is_new = is_new};

	move_end(m, &o);
}

void move_imported(struct move *m)
{
	const struct outcome o = {.bytes = m->bytes};

	move_end(m, &o);
}

static void store_failed(struct move *m, int rc)
{
	struct err err = {0};

	store_error(&err, ERR_GRAPH_FILE_NOT_FOUND, "file", m->key, rc);
	move_failed(m, &err);
}

/* ---- the key ------------------------------------------------------------ */

struct store_begin move_key(const struct move *m)
{
	struct store_begin b = {
		.environment = m->environment,
		.graph = m->graph,
		.operation = operations[m->kind],
		.key = m->key,
	};

	memcpy(b.request_hash, m->request_hash, HASH_BYTES);
	return b;
}

struct caller move_caller(const struct move *m)
{
	return (struct caller){.environment = m->environment,
			       .graph = m->graph,
			       .plan = m->plan,
			       .is_enabled = m->is_enabled};
}

static void on_kept_before(void *ctx, int rc, struct file_rec *r)
{
	struct move *m = ctx;
	struct engine *e = m->e;
	struct err err = {0};

	if (rc == -ENOENT)
		err_set(&err, ERR_GRAPH_FILE_NOT_FOUND, NULL,
			"The File that was kept with this key was deleted.");
	if (rc == -ENOENT)
		move_failed(m, &err);
	else if (rc)
		store_failed(m, rc);
	else
		move_kept(m, r, false);
	engine_op_end(e);
}

/* What it came to: of a keep the File, of an import its size. */
static void key_is_known(struct move *m, const struct store_found *f)
{
	struct file_ref ref = {.id = ""};
	struct err err = {0};
	int rc;

	if (!f->is_same_request) {
		key_conflict(&err, m->key, m->graph);
		move_failed(m, &err);
		return;
	}
	if (m->kind == MOVE_IMPORT) {
		m->bytes = strtoull(f->command, NULL, 10);
		move_imported(m);
		return;
	}
	memcpy(ref.id, f->command, sizeof(ref.id));
	rc = store_file_get(m->e->store, m->environment, m->graph, &ref,
			    on_kept_before, m);
	if (rc)
		store_failed(m, rc);
	else
		engine_op_begin(m->e);
}

static void on_looked_up(void *ctx, int rc, const struct store_found *f)
{
	struct move *m = ctx;
	struct engine *e = m->e;
	struct err err = {0};

	if (rc) {
		store_failed(m, rc);
	} else if (f->is_found) {
		key_is_known(m, f);
	} else if (e->is_ending) {
		err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
		move_failed(m, &err);
	} else {
		m->step = MOVE_MOVING;
		if (m->kind == MOVE_KEEP)
			keep_start(m);
		else
			import_start(m);
	}
	engine_op_end(e);
}

/* ---- the calls ---------------------------------------------------------- */

static struct move *by_key(struct engine *e, const struct caller *who,
			   enum move_kind kind, const char *key)
{
	for (struct list *n = e->moves.next; n != &e->moves; n = n->next) {
		struct move *m = container_of(n, struct move, node);

		if (m->kind == kind && !strcmp(m->key, key) &&
		    !strcmp(m->environment, who->environment) &&
		    !strcmp(m->graph, who->graph))
			return m;
	}
	return NULL;
}

static struct move *move_new(struct engine *e, const struct caller *who,
			     struct move *what)
{
	struct move *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	*m = *what;
	memset(&what->in.rec, 0, sizeof(what->in.rec));
	m->e = e;
	snprintf(m->environment, sizeof(m->environment), "%s",
		 who->environment);
	snprintf(m->graph, sizeof(m->graph), "%s", who->graph);
	m->plan = who->plan;
	m->is_enabled = who->is_enabled;
	list_init(&m->asks);
	list_append(&e->moves, &m->node);
	return m;
}

static int begin(struct move *m)
{
	struct store_begin key = move_key(m);
	int rc = store_key_find(m->e->store, &key, on_looked_up, m);

	if (!rc) {
		engine_op_begin(m->e);
		return 0;
	}
	list_remove(&m->node);
	file_rec_finish(&m->in.rec);
	free(m);
	return rc;
}

/* `what`: kind, key and hash, and what is to be moved; its name is taken over
 * when it begins one. */
static int ask(struct engine *e, const struct caller *who, struct move *what,
	       const struct move_ask *how, struct move_ask **ret)
{
	struct move *m = by_key(e, who, what->kind, what->key);
	struct move_ask *a = calloc(1, sizeof(*a));
	int rc = a ? 0 : -ENOMEM;

	if (!rc) {
		*a = *how;
		a->e = e;
		a->loop = e->loop;
		a->timer.fn = on_due;
		list_init(&a->node);
		if (!a->err.code && e->is_ending)
			err_set(&a->err, ERR_UNAVAILABLE, NULL, NULL);
		if (!a->err.code)
			caller_check(who, &a->err);
		if (!a->err.code && m &&
		    memcmp(m->request_hash, what->request_hash, HASH_BYTES))
			key_conflict(&a->err, what->key, who->graph);
	}
	if (!rc && a->err.code) {
		ask_refuse(a);
		*ret = a;
		return 0;
	}
	if (!rc)
		rc = loop_timer_set(e->loop, &a->timer, ENGINE_FILE_WAIT_MS);
	if (!rc && !m) {
		m = move_new(e, who, what);
		rc = m ? begin(m) : -ENOMEM;
	}
	if (rc) {
		if (a)
			loop_timer_stop(e->loop, &a->timer);
		free(a);
		return -ENOMEM;
	}
	list_append(&m->asks, &a->node);
	*ret = a;
	return 0;
}

int engine_keep(struct engine *e, const struct caller *who,
		const struct keep_spec *spec, engine_kept_fn fn, void *ctx,
		struct move_ask **ret)
{
	struct move_ask how = {.kept = fn, .ctx = ctx};
	struct move what = {.kind = MOVE_KEEP, .path = *spec->path};
	int rc = 0;

	snprintf(what.key, sizeof(what.key), "%s", spec->key);
	memcpy(what.request_hash, spec->request_hash, HASH_BYTES);
	snprintf(what.sandbox, sizeof(what.sandbox), "%s", spec->sandbox);
	if (spec->name &&
	    !file_name_check(spec->name, strlen(spec->name), &how.err))
		rc = bytes_append(&what.in.rec.name, spec->name,
				  strlen(spec->name));
	if (!rc)
		rc = ask(e, who, &what, &how, ret);
	file_rec_finish(&what.in.rec);
	return rc;
}

int engine_import(struct engine *e, const struct caller *who,
		  const struct import_spec *spec, engine_imported_fn fn,
		  void *ctx, struct move_ask **ret)
{
	const struct move_ask how = {.imported = fn, .ctx = ctx};
	struct move what = {.kind = MOVE_IMPORT, .path = *spec->path};

	snprintf(what.key, sizeof(what.key), "%s", spec->key);
	memcpy(what.request_hash, spec->request_hash, HASH_BYTES);
	snprintf(what.sandbox, sizeof(what.sandbox), "%s", spec->sandbox);
	memcpy(what.sha256, spec->sha256, HASH_BYTES);
	return ask(e, who, &what, &how, ret);
}

/* Those that wait for the store, or for a worker, are gone when it answers. */
void moves_end(struct engine *e)
{
	struct list *n, *tmp;
	struct err err = {0};
	const struct outcome o = {.err = &err};

	err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	list_for_each_safe(n, tmp, &e->moves)
	{
		struct move *m = container_of(n, struct move, node);

		while (!list_is_empty(&m->asks))
			ask_answer(container_of(m->asks.next, struct move_ask,
						node),
				   &o);
		if (m->step != MOVE_MOVING)
			continue;
		if (m->kind == MOVE_KEEP)
			keep_forget(m);
		else
			import_forget(m);
	}
}
