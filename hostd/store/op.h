/*
 * Inside of the store: operations, the thread, and what each table's file
 * offers to the others.  Nobody outside hostd/store includes this.
 */
#ifndef HUTCHD_STORE_OP_H
#define HUTCHD_STORE_OP_H

#include "db.h"
#include "list.h"
#include "record_cbor.h"
#include "store.h"

/* Ops of one transaction: bounds the memory held and the time to COMMIT. */
#define STORE_GROUP_OPS_MAX    256
#define STORE_LATER_MS	       1000
#define STORE_LIST_RECORDS_MAX 1000
#define STORE_OUTPUT_KEPT_MS   (7 * INT64_C(86400000))
#define STORE_RECORDS_KEPT_MS  (30 * INT64_C(86400000))
/* Rows erased in one transaction. */
#define STORE_ERASE_MAX 100
/* Versions of all names in a graph: they stay for ever. */
#define STORE_TEMPLATES_MAX 10000

/*
 * Embedded at the start of each kind of op, on the heap.  exec: store thread,
 * 0 or -errno, in a savepoint unless is_read (which writes nothing but that a
 * record was set aside).  done: loop thread, after the COMMIT; calls the
 * owner's function and frees the op.
 */
struct store_op {
	struct list node;
	int (*exec)(struct db *db, struct store_op *op);
	void (*done)(struct store_op *op);
	struct store *store;
	int rc;
	bool is_read;
};

/* Hand over; done() runs exactly once. */
void store_submit(struct store *s, struct store_op *op);
/* The same with the next op that is handed over, or after STORE_LATER_MS: for
 * what nobody waits for and a crash may forget. */
void store_submit_later(struct store *s, struct store_op *op);
bool store_is_closing(const struct store *s);
/* Run it and wait; for the start, before the loop runs. op->rc tells. */
void store_run_now(struct store *s, struct store_op *op);

/* An id in its environment and graph; "" matches nothing. */
struct scope {
	char environment[ID_BYTES_MAX], graph[GRAPH_NAME_BYTES_MAX + 1],
		id[ID_BYTES_MAX];
};
void scope_set(struct scope *at, const char *environment, const char *graph,
	       const char *id);

/* ---- tables
 * ------------------------------------------------------------------ */

enum event_kind {
	EVENT_SANDBOX = 1,
	EVENT_COMMAND = 2,
	EVENT_DAEMON = 3,
	EVENT_QUARANTINE = 4,
	EVENT_SNAPSHOT = 5, /* made; `sandbox` is its id */
	EVENT_KEY = 6,	    /* made, revoked; environment and name */
};
struct event_at {
	const char *environment, *graph, *sandbox, *command;
	enum event_kind kind;
};
int event_add(struct db *db, const struct event_at *at,
	      const struct event_rec *rec);
/* One that tells no status: that the thing changed. */
int event_add_bare(struct db *db, const struct event_at *at);
int event_erase(struct db *db, const char *sandbox);

/* Insert or update, with the event when the status changed.  -EPERM: the
 * stored status is final and another one was given. */
int sandbox_put(struct db *db, const struct sandbox_rec *r);
/* -ENOENT, or -EBADMSG when the record cannot be read (it is set aside). */
int sandbox_read(struct db *db, const char *id, struct sandbox_rec *r);
void sandbox_set_aside(struct db *db, const char *id, int why);

int command_put(struct db *db, const struct command_rec *r, bool with_output);
/* The caller finishes r; -ENOENT, -EBADMSG as above. */
int command_read(struct db *db, const struct scope *at, bool with_output,
		 struct command_rec *r);
void command_set_aside(struct db *db, const char *id, int why);
/* Copy without output bytes. */
int command_copy_for_store(struct command_rec *dst,
			   const struct command_rec *src, bool with_output);

/* One run more in each budget it falls under; -EDQUOT: `ret_spent` is. */
int budget_take(struct db *db, const char *environment, const char *workflow,
		int64_t now_ms, struct budget_row *ret_spent);

/* Room for one more of a growing list; NULL = no memory, it is as it was. */
void *list_grown(void *list, size_t n, size_t *cap, size_t each);

/* It is there from now on. */
int graph_put(struct db *db, const char *environment, const char *name);

/* A row of `idempotency`. */
struct key_row {
	const char *environment, *graph, *operation, *key;
	const uint8_t *hash;
	const char *sandbox, *command;
	int64_t created_ms;
};
/* What the key names already, if anything. */
int key_find_row(struct db *db, const struct key_row *k,
		 struct store_found *ret);
int key_add_row(struct db *db, const struct key_row *k);
/* Cut names would make two keys one. */
bool begin_fits(const struct store_begin *b);

/*
 * A page of a table's records, newest first; page.c has the way of it, and the
 * table's file a list_kind.
 */
struct list_op;
struct list_kind {
	size_t rec_bytes;
	/* The number of the cursor's row: ?1 id, ?2 environment, ?3 graph. */
	const char *cursor_sql;
	/* The rows below `before`; column 0 is the id. */
	struct query (*query)(struct db *db, const struct store_page *p,
			      int64_t before);
	/* 0 = taken, 1 = left out, -errno: it cannot be read. */
	int (*row)(const struct list_op *l, const struct query *q, void *rec);
	/* What cannot be read, unless `row` leaves it out; the page is read
	 * again then. */
	void (*set_aside)(struct db *db, const char *id, int why);
	void (*finish)(void *rec); /* NULL = it owns nothing */
	void (*tell)(const struct list_op *l);
};
struct list_op {
	struct store_op op;
	const struct list_kind *kind;
	struct store_page page; /* owned strings */
	void *recs;		/* owned: page.limit and one more */
	size_t n;
	bool has_more;
	union {
		store_sandboxes_fn sandboxes;
		store_commands_fn commands;
		store_snapshots_fn snapshots;
		store_templates_fn templates;
		store_files_fn files;
	} fn;
	void *ctx;
};
/* `what` has kind, fn and ctx.  0 or -ENOMEM. */
int list_start(struct store *s, const struct store_page *p,
	       const struct list_op *what);

#endif
