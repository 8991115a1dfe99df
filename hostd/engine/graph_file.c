/*
 * Files of graphs: read, listed, deleted, swept.
 *
 * Coming is bytes, then record (intake.c); going is record, then bytes, and
 * those only when no other graph has them.  So bytes without a record are of no
 * use to anybody, and are removed at the start.
 */
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- bytes without a record --------------------------------------------- */

struct unused_ask {
	struct engine *e;
	uint8_t sha256[HASH_BYTES];
};

static void on_unused(void *ctx, int rc, bool is_last)
{
	struct unused_ask *a = ctx;
	struct engine *e = a->e;

	if (!rc && is_last && !e->is_ending)
		blob_remove(e->blobs, a->sha256);
	free(a);
	engine_op_end(e);
}

/* Whatever fails here: the next start sweeps. */
static void on_orphan(void *ctx, const uint8_t sha256[HASH_BYTES])
{
	struct engine *e = ctx;
	struct unused_ask *a = e->is_ending ? NULL : calloc(1, sizeof(*a));

	if (!a)
		return;
	a->e = e;
	memcpy(a->sha256, sha256, HASH_BYTES);
	if (store_file_unused(e->store, sha256, on_unused, a))
		free(a);
	else
		engine_op_begin(e);
}

struct load {
	struct engine *e;
	unsigned n_gone;
};

static int on_hash(void *ctx, const uint8_t sha256[HASH_BYTES])
{
	struct load *l = ctx;

	l->n_gone += blobs_mark(l->e->blobs, sha256) != 0;
	return 0;
}

int graph_files_load(struct engine *e, struct err *err)
{
	struct load l = {.e = e};
	size_t n;
	int rc;

	if (blobs_open(&e->blobs, e->loop, e->state_dir, err))
		return -1;
	rc = store_file_hashes(e->store, on_hash, &l);
	if (rc)
		return err_set(err, ERR_INTERNAL, NULL,
			       "cannot read the records of Files: %s",
			       strerror(-rc));
	if (l.n_gone)
		log_error("files: the bytes of %u Files are not in %s/%s; they "
			  "cannot be read",
			  l.n_gone, e->state_dir, BLOB_FOLDER);
	n = blobs_sweep(e->blobs);
	if (n)
		log_info("files: swept=%zu: they have no record", n);
	blobs_on_orphan(e->blobs, on_orphan, e);
	return 0;
}

/* ---- one ---------------------------------------------------------------- */

int graph_file_bytes(const struct engine *e, const struct file_rec *r)
{
	int fd = blob_open(e->blobs, r->sha256);
	struct stat st;

	if (fd == -ENOENT)
		return -EBADMSG;
	if (fd >= 0 && (fstat(fd, &st) || (uint64_t)st.st_size != r->bytes)) {
		close(fd);
		return -EBADMSG;
	}
	return fd;
}

void graph_file_error(struct err *err, const char *param,
		      const uint8_t sha256[HASH_BYTES], const char *graph,
		      int rc)
{
	char hex[2 * HASH_BYTES + 1];

	for (size_t i = 0; i < HASH_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", sha256[i]);
	if (rc == -ENOENT)
		err_set(err, ERR_GRAPH_FILE_NOT_FOUND, param,
			"There is no File %s in graph %s.", hex, graph);
	else if (rc == -EBADMSG)
		err_set(err, ERR_INTERNAL, NULL,
			"The File %s of graph %s is damaged on the daemon's "
			"disk; delete it and upload it anew.",
			hex, graph);
	else
		err_set(err, ERR_INTERNAL, NULL,
			"The File %s of graph %s cannot be read now: %s.", hex,
			graph, strerror(-rc));
}

struct one_ask {
	struct engine *e;
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	uint8_t sha256[HASH_BYTES];
	engine_graph_file_fn fn; /* one of these */
	engine_graph_open_fn open_fn;
	engine_graph_files_fn list_fn;
	void *ctx;
};

static struct one_ask *ask_new(struct engine *e, const struct caller *who,
			       const uint8_t *sha256, void *ctx)
{
	struct one_ask *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->e = e;
	a->ctx = ctx;
	snprintf(a->graph, sizeof(a->graph), "%s", who->graph);
	if (sha256)
		memcpy(a->sha256, sha256, HASH_BYTES);
	return a;
}

/* rc: of the store's function, which calls back if it is 0. */
static int asked(struct one_ask *a, int rc)
{
	if (rc)
		free(a);
	else
		engine_op_begin(a->e);
	return rc;
}

static void on_one(void *ctx, int rc, struct file_rec *r)
{
	struct one_ask a = *(struct one_ask *)ctx;
	struct err err = {0};
	int fd = -1;

	free(ctx);
	if (!rc && a.open_fn) {
		fd = a.e->is_ending ? -ESHUTDOWN : graph_file_bytes(a.e, r);
		rc = fd < 0 ? fd : 0;
	}
	if (rc)
		graph_file_error(&err, "sha256", a.sha256, a.graph, rc);
	if (a.open_fn)
		a.open_fn(a.ctx, rc ? &err : NULL, rc ? NULL : r, rc ? -1 : fd);
	else
		a.fn(a.ctx, rc ? &err : NULL, r);
	engine_op_end(a.e);
}

static int one(struct engine *e, const struct caller *who,
	       const uint8_t sha256[HASH_BYTES], engine_graph_file_fn fn,
	       engine_graph_open_fn open_fn, void *ctx)
{
	struct one_ask *a = ask_new(e, who, sha256, ctx);
	struct file_ref ref = {.id = ""};

	if (!a)
		return -ENOMEM;
	a->fn = fn;
	a->open_fn = open_fn;
	memcpy(ref.sha256, sha256, HASH_BYTES);
	return asked(a, store_file_get(e->store, who->environment, who->graph,
				       &ref, on_one, a));
}

int engine_graph_file_get(struct engine *e, const struct caller *who,
			  const uint8_t sha256[HASH_BYTES],
			  engine_graph_file_fn fn, void *ctx)
{
	return one(e, who, sha256, fn, NULL, ctx);
}

int engine_graph_file_open(struct engine *e, const struct caller *who,
			   const uint8_t sha256[HASH_BYTES],
			   engine_graph_open_fn fn, void *ctx)
{
	return one(e, who, sha256, NULL, fn, ctx);
}

/* ---- deleted ------------------------------------------------------------ */

static void on_deleted(void *ctx, int rc, bool is_last)
{
	struct one_ask a = *(struct one_ask *)ctx;
	struct err err = {0};

	free(ctx);
	if (!rc)
		fault_point(FAULT_FILE_DELETED);
	if (!rc && is_last && !a.e->is_ending)
		blob_remove(a.e->blobs, a.sha256);
	if (rc)
		graph_file_error(&err, "sha256", a.sha256, a.graph, rc);
	a.fn(a.ctx, rc ? &err : NULL, NULL);
	engine_op_end(a.e);
}

int engine_graph_file_delete(struct engine *e, const struct caller *who,
			     const uint8_t sha256[HASH_BYTES],
			     engine_graph_file_fn fn, void *ctx)
{
	struct one_ask *a = ask_new(e, who, sha256, ctx);

	if (!a)
		return -ENOMEM;
	a->fn = fn;
	return asked(a, store_file_delete(e->store, who->environment,
					  who->graph, sha256, on_deleted, a));
}

/* ---- listed ------------------------------------------------------------- */

static void on_list(void *ctx, int rc, struct file_rec *r, size_t n,
		    bool has_more)
{
	struct one_ask a = *(struct one_ask *)ctx;
	struct err err = {0};

	free(ctx);
	if (rc)
		list_error(&err, rc);
	a.list_fn(a.ctx, rc ? &err : NULL, r, n, has_more);
	engine_op_end(a.e);
}

int engine_graph_file_list(struct engine *e, const struct caller *who,
			   const struct store_page *p, engine_graph_files_fn fn,
			   void *ctx)
{
	struct one_ask *a = ask_new(e, who, NULL, ctx);
	struct store_page mine = page_of(who, p);

	if (!a)
		return -ENOMEM;
	a->list_fn = fn;
	return asked(a, store_file_list(e->store, &mine, on_list, a));
}
