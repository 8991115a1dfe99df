/*
 * What is written together: a begin (idempotency key, sandbox and command in
 * one transaction), later states of both, and the reading back of
 * both.  Table `idempotency` lives here.  x'a10001' is the CBOR record {0: 1}:
 * version 1 with nothing but its columns.
 */
#include "op.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- begin, find
 * -------------------------------------------------------------- */

struct begin_op {
	struct store_op op;
	struct scope at; /* environment and graph */
	char operation[32], key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t hash[HASH_BYTES];
	struct sandbox_rec sbx;
	bool has_cmd;
	struct command_rec cmd; /* owned */
	struct store_found found;
	store_begin_fn fn;
	void *ctx;
};

int key_find_row(struct db *db, const struct key_row *k, struct store_found *f)
{
	struct query q =
		query(db, "SELECT request_hash, sandbox, command FROM"
			  " idempotency WHERE environment = ?1 AND graph = ?2"
			  " AND operation = ?3 AND \"key\" = ?4");
	const void *hash;
	size_t len;
	int rc;

	memset(f, 0, sizeof(*f));
	q_text(&q, k->environment);
	q_text(&q, k->graph);
	q_text(&q, k->operation);
	q_text(&q, k->key);
	while ((rc = q_row(&q)) > 0) {
		f->is_found = true;
		hash = q_blob_at(&q, 0, &len);
		f->is_same_request =
			len == HASH_BYTES && !memcmp(hash, k->hash, HASH_BYTES);
		snprintf(f->sandbox, sizeof(f->sandbox), "%s",
			 q_text_at(&q, 1));
		snprintf(f->command, sizeof(f->command), "%s",
			 q_text_at(&q, 2));
	}
	return rc;
}

int key_add_row(struct db *db, const struct key_row *k)
{
	struct query q =
		query(db, "INSERT INTO idempotency(environment, graph,"
			  " operation, \"key\", request_hash, sandbox, command,"
			  " created_ms, rec) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7,"
			  " ?8, x'a10001')");

	q_text(&q, k->environment);
	q_text(&q, k->graph);
	q_text(&q, k->operation);
	q_text(&q, k->key);
	q_blob(&q, k->hash, HASH_BYTES);
	q_text(&q, k->sandbox);
	q_text(&q, k->command);
	q_int(&q, k->created_ms);
	return q_run(&q);
}

static struct key_row row_of(const struct begin_op *b)
{
	return (struct key_row){
		.environment = b->at.environment,
		.graph = b->at.graph,
		.operation = b->operation,
		.key = b->key,
		.hash = b->hash,
		.sandbox = b->sbx.id,
		.command = b->cmd.id,
		.created_ms =
			b->has_cmd ? b->cmd.created_ms : b->sbx.created_ms,
	};
}

static int find(struct db *db, struct begin_op *b)
{
	struct key_row row = row_of(b);

	return key_find_row(db, &row, &b->found);
}

static int find_exec(struct db *db, struct store_op *op)
{
	return find(db, (struct begin_op *)op);
}

static int begin_exec(struct db *db, struct store_op *op)
{
	struct begin_op *b = (struct begin_op *)op;
	struct key_row row;
	int rc = find(db, b);

	if (rc || b->found.is_found)
		return rc;
	if (b->has_cmd)
		rc = budget_take(db, b->sbx.environment, b->cmd.origin.workflow,
				 b->cmd.created_ms, &b->found.spent);
	if (rc == -EDQUOT)
		b->found.retry_at_ms =
			b->found.spent.began_ms + b->found.spent.window_ms;
	if (!rc)
		rc = graph_put(db, b->sbx.environment, b->sbx.graph);
	if (!rc)
		rc = sandbox_put(db, &b->sbx);
	if (!rc && b->has_cmd)
		rc = command_put(db, &b->cmd, false);
	if (rc)
		return rc;
	row = row_of(b);
	return key_add_row(db, &row);
}

static void begin_done(struct store_op *op)
{
	struct begin_op *b = (struct begin_op *)op;

	b->fn(b->ctx, op->rc, &b->found);
	command_rec_finish(&b->cmd);
	free(b);
}

static struct begin_op *begin_new(const struct store_begin *b,
				  store_begin_fn fn, void *ctx)
{
	struct begin_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->op.done = begin_done;
	op->fn = fn;
	op->ctx = ctx;
	scope_set(&op->at, b->environment, b->graph, "");
	snprintf(op->operation, sizeof(op->operation), "%s", b->operation);
	snprintf(op->key, sizeof(op->key), "%s", b->key);
	memcpy(op->hash, b->request_hash, HASH_BYTES);
	return op;
}

bool begin_fits(const struct store_begin *b)
{
	return strlen(b->environment) < ID_BYTES_MAX &&
	       strlen(b->graph) <= GRAPH_NAME_BYTES_MAX &&
	       strlen(b->operation) <
		       sizeof(((struct begin_op *)0)->operation) &&
	       strlen(b->key) <= IDEMPOTENCY_KEY_BYTES_MAX;
}

int store_key_find(struct store *s, const struct store_begin *b,
		   store_begin_fn fn, void *ctx)
{
	struct begin_op *op;

	if (!begin_fits(b))
		return -EINVAL;
	op = begin_new(b, fn, ctx);
	if (!op)
		return -ENOMEM;
	op->op.exec = find_exec;
	op->op.is_read = true;
	store_submit(s, &op->op);
	return 0;
}

int store_run_begin(struct store *s, const struct store_begin *b,
		    const struct sandbox_rec *sbx,
		    const struct command_rec *cmd, store_begin_fn fn, void *ctx)
{
	struct begin_op *op;
	int rc;

	if (!begin_fits(b))
		return -EINVAL;
	op = begin_new(b, fn, ctx);
	if (!op)
		return -ENOMEM;
	op->op.exec = begin_exec;
	op->sbx = *sbx;
	op->has_cmd = cmd != NULL;
	rc = cmd ? command_copy_for_store(&op->cmd, cmd, false) : 0;
	if (rc) {
		free(op);
		return rc;
	}
	store_submit(s, &op->op);
	return 0;
}

/* ---- update
 * -------------------------------------------------------------------- */

struct update_op {
	struct store_op op;
	bool has_sbx, has_cmd, with_output;
	struct sandbox_rec sbx;
	struct command_rec cmd; /* owned */
	store_rc_fn fn;
	void *ctx;
};

static int update_exec(struct db *db, struct store_op *op)
{
	struct update_op *u = (struct update_op *)op;
	int rc = u->has_sbx ? sandbox_put(db, &u->sbx) : 0;

	if (!rc && u->has_cmd)
		rc = command_put(db, &u->cmd, u->with_output);
	return rc;
}

static void update_done(struct store_op *op)
{
	struct update_op *u = (struct update_op *)op;

	u->fn(u->ctx, op->rc);
	command_rec_finish(&u->cmd);
	free(u);
}

static struct update_op *update_new(const struct sandbox_rec *sbx,
				    const struct command_rec *cmd,
				    bool with_output, store_rc_fn fn, void *ctx)
{
	struct update_op *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->op.exec = update_exec;
	u->op.done = update_done;
	u->has_sbx = sbx != NULL;
	u->has_cmd = cmd != NULL;
	u->with_output = with_output;
	u->fn = fn;
	u->ctx = ctx;
	if (sbx)
		u->sbx = *sbx;
	if (cmd && command_copy_for_store(&u->cmd, cmd, with_output)) {
		free(u);
		return NULL;
	}
	return u;
}

int store_update(struct store *s, const struct sandbox_rec *sbx,
		 const struct command_rec *cmd, bool with_output,
		 store_rc_fn fn, void *ctx)
{
	struct update_op *u = update_new(sbx, cmd, with_output, fn, ctx);

	if (!u)
		return -ENOMEM;
	store_submit(s, &u->op);
	return 0;
}

int store_update_later(struct store *s, const struct sandbox_rec *sbx,
		       const struct command_rec *cmd, store_rc_fn fn, void *ctx)
{
	struct update_op *u = update_new(sbx, cmd, false, fn, ctx);

	if (!u)
		return -ENOMEM;
	store_submit_later(s, &u->op);
	return 0;
}

/* ---- read both
 * ------------------------------------------------------------------ */

struct run_op {
	struct store_op op;
	struct scope at;
	bool with_output;
	struct sandbox_rec sbx;
	struct command_rec cmd; /* owned */
	store_run_fn fn;
	void *ctx;
};

static int run_exec(struct db *db, struct store_op *op)
{
	struct run_op *r = (struct run_op *)op;
	int rc = command_read(db, &r->at, r->with_output, &r->cmd);

	return rc ? rc : sandbox_read(db, r->cmd.sandbox, &r->sbx);
}

static void run_done(struct store_op *op)
{
	struct run_op *r = (struct run_op *)op;

	r->fn(r->ctx, op->rc, op->rc ? NULL : &r->sbx, op->rc ? NULL : &r->cmd);
	command_rec_finish(&r->cmd);
	free(r);
}

int store_run_get(struct store *s, const char *environment, const char *graph,
		  const char *command, bool with_output, store_run_fn fn,
		  void *ctx)
{
	struct run_op *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->op.exec = run_exec;
	r->op.done = run_done;
	r->op.is_read = true;
	r->with_output = with_output;
	r->fn = fn;
	r->ctx = ctx;
	scope_set(&r->at, environment, graph, command);
	store_submit(s, &r->op);
	return 0;
}
