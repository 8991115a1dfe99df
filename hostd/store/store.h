/*
 * The store: SQLite in one thread, commits in groups.
 *
 * One connection, WAL, synchronous=FULL, locking_mode=EXCLUSIVE; a second
 * daemon on the same folder is refused.  A request is a struct store_op on
 * its owner's heap: `exec` runs on the store thread inside the group's
 * transaction (in a savepoint of its own), `done` on the loop's thread after
 * the COMMIT that made it durable.  When the commit fails, every op of the
 * group gets rc < 0 and nothing of it is there.
 *
 * Nothing outside hostd/store touches SQL; ops are made by the typed
 * functions below.  Every `fn` runs exactly once, on the loop's thread.
 */
#ifndef HUTCHD_STORE_H
#define HUTCHD_STORE_H

#include "err.h"
#include "record.h"

struct loop;
struct store;

int store_open(struct store **ret, struct loop *loop, const char *dir,
	       struct err *e);
void store_close(struct store *s); /* waits for the last commit */
/* COMMITs and fsync-equivalents so far, for /metrics and bench. */
uint64_t store_commits(const struct store *s);

/* ---- keys of environments ---------------------------------------------- */

enum plan { PLAN_FREE = 1, PLAN_FULL = 2 };

struct key_info {
	char environment[ID_BYTES_MAX];
	char name[64];
	enum plan plan;
	bool is_enabled; /* sandboxes enabled for the environment */
	bool is_revoked;
	bool is_test; /* begins with lbb_sk_test_ */
	/* Of an add: plan and is_enabled are for all keys of an environment
	 * that is there; else it keeps its own. */
	bool changes_environment;
};

typedef void (*store_rc_fn)(void *ctx, int rc);
/* Key hashes are kept in memory by the auth cache; this fills it at start
 * and after each change. */
typedef void (*store_key_fn)(void *ctx, int rc, const struct key_info *k,
			     const uint8_t hash[HASH_BYTES]);
int store_key_add(struct store *s, const struct key_info *k,
		  const uint8_t hash[HASH_BYTES], store_rc_fn fn, void *ctx);
int store_key_revoke(struct store *s, const char *environment, const char *name,
		     store_rc_fn fn, void *ctx);
/* Once per key, then once with k == NULL. */
int store_key_list(struct store *s, store_key_fn fn, void *ctx);

/* ---- environments and graphs (environment.c) ----------------------------- */

struct environment_info {
	char id[ID_BYTES_MAX];
	enum plan plan;
	bool is_enabled;
	uint32_t places, graph_places; /* 0 = as configured */
	int64_t created_ms;
};
/* What a change is to set. */
struct environment_change {
	bool has_plan, has_enabled, has_places, has_graph_places;
	struct environment_info to;
};
/* One that nothing was set of is as if it were not there: epoch 1, places 0. */
struct graph_info {
	char environment[ID_BYTES_MAX];
	char name[GRAPH_NAME_BYTES_MAX + 1];
	uint32_t places; /* 0 = as its environment says */
	uint64_t epoch;	 /* from 1 */
	int64_t created_ms;
};
struct graph_change {
	char environment[ID_BYTES_MAX];
	char name[GRAPH_NAME_BYTES_MAX + 1];
	bool has_places, is_new_epoch;
	uint32_t places;
};

/* -EEXIST. */
int store_environment_add(struct store *s, const struct environment_info *e,
			  store_rc_fn fn, void *ctx);
/* -ENOENT.  `c->to.id` names it. */
int store_environment_set(struct store *s, const struct environment_change *c,
			  store_rc_fn fn, void *ctx);
/* With its keys, graphs, budgets, grants.  -ENOENT; -ENOTEMPTY while records
 * are in it: nothing is erased before its time. */
int store_environment_delete(struct store *s, const char *id, store_rc_fn fn,
			     void *ctx);
/* Makes the graph when it is not there. */
int store_graph_set(struct store *s, const struct graph_change *c,
		    store_rc_fn fn, void *ctx);

/* All environments, and all graphs (`with_all_graphs`) or those of which
 * something was set.  Borrowed; by name. */
struct realm_rows {
	const struct environment_info *environments;
	const struct graph_info *graphs;
	size_t n_environments, n_graphs;
};
typedef void (*store_realm_fn)(void *ctx, int rc, const struct realm_rows *r);
int store_realm_load(struct store *s, bool with_all_graphs, store_realm_fn fn,
		     void *ctx);

/* ---- grants of steps (grant.c) ------------------------------------------- */

#define GRANT_OPERATION_BYTES_MAX 32
/* A grant that is over is remembered so long: it shows that an earlier attempt
 * is over, too (hostd/http/grants.h). */
#define GRANT_REMEMBERED_MS 60000

struct grant_row {
	uint8_t hash[HASH_BYTES]; /* of the token, which is not stored */
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	struct origin origin;
	char operation[GRANT_OPERATION_BYTES_MAX];
	uint64_t epoch;
	int64_t issued_ms, expires_ms;
};
/* Forgets some of those that were over GRANT_REMEMBERED_MS before it. */
int store_grant_add(struct store *s, const struct grant_row *g, store_rc_fn fn,
		    void *ctx);
/* Those that are to be remembered at `now_ms`; borrowed. */
typedef void (*store_grants_fn)(void *ctx, int rc, const struct grant_row *g,
				size_t n);
int store_grant_load(struct store *s, int64_t now_ms, store_grants_fn fn,
		     void *ctx);

/* ---- budgets (budget.c) -------------------------------------------------- */

/* So many runs in each window, which begins with its first run.  workflow "":
 * all runs of the environment. */
struct budget_row {
	char environment[ID_BYTES_MAX];
	char workflow[ORIGIN_NAME_BYTES_MAX + 1];
	uint32_t runs_max;
	int64_t window_ms;
	int64_t began_ms; /* 0 = no window yet */
	uint32_t runs;	  /* in that window */
};
/* What was counted stays. */
int store_budget_set(struct store *s, const struct budget_row *b,
		     store_rc_fn fn, void *ctx);
/* -ENOENT. */
int store_budget_delete(struct store *s, const char *environment,
			const char *workflow, store_rc_fn fn, void *ctx);
/* environment NULL = all; borrowed. */
typedef void (*store_budgets_fn)(void *ctx, int rc, const struct budget_row *b,
				 size_t n);
int store_budget_list(struct store *s, const char *environment,
		      store_budgets_fn fn, void *ctx);

/* ---- sandboxes and commands -------------------------------------------- */

/*
 * One transaction: idempotency key, sandbox and command.  When the key is
 * there already nothing is written and *found tells which command it names
 * and whether the request hash is the same.  cmd NULL: the key is of a sandbox
 * alone.  A command's sandbox may be there already: then its record is written
 * again.  A command is counted in the budgets of its environment and workflow;
 * where one is spent nothing is written: -EDQUOT, and when it begins anew.
 */
struct store_begin {
	const char *environment, *graph, *operation, *key;
	uint8_t request_hash[HASH_BYTES];
};
struct store_found {
	bool is_found, is_same_request;
	char sandbox[ID_BYTES_MAX], command[ID_BYTES_MAX];
	/* -EDQUOT: */
	int64_t retry_at_ms;
	struct budget_row spent;
};
typedef void (*store_begin_fn)(void *ctx, int rc, const struct store_found *f);
/* Look only: what store_run_begin would find. */
int store_key_find(struct store *s, const struct store_begin *b,
		   store_begin_fn fn, void *ctx);
/* Copies everything it needs before it returns. */
int store_run_begin(struct store *s, const struct store_begin *b,
		    const struct sandbox_rec *sbx,
		    const struct command_rec *cmd, store_begin_fn fn,
		    void *ctx);
/* Write the present state of either (NULL = leave out) in one transaction;
 * `with_output` also writes cmd->out. */
int store_update(struct store *s, const struct sandbox_rec *sbx,
		 const struct command_rec *cmd, bool with_output,
		 store_rc_fn fn, void *ctx);
/* The same, not before there is something else to write, or for a second: for
 * what a restart finds out by itself. */
int store_update_later(struct store *s, const struct sandbox_rec *sbx,
		       const struct command_rec *cmd, store_rc_fn fn,
		       void *ctx);
/*
 * What an op may fail with, beside -ENOMEM: -ENOSPC and -EIO (nothing of it is
 * there, later ones may work), -EPERM (a final status is not changed),
 * -EINVAL (a value cannot be stored; a cursor names nothing).  A damaged
 * record is set aside, told in the log once, and is -EBADMSG from then on.
 */

typedef void (*store_sandbox_fn)(void *ctx, int rc, struct sandbox_rec *r);
typedef void (*store_command_fn)(void *ctx, int rc, struct command_rec *r);
/* -ENOENT when there is none in that graph.  The callee takes nothing. */
int store_sandbox_get(struct store *s, const char *environment,
		      const char *graph, const char *id, store_sandbox_fn fn,
		      void *ctx);
int store_command_get(struct store *s, const char *environment,
		      const char *graph, const char *id, bool with_output,
		      store_command_fn fn, void *ctx);
/* A command and its sandbox. */
typedef void (*store_run_fn)(void *ctx, int rc, struct sandbox_rec *sbx,
			     struct command_rec *cmd);
int store_run_get(struct store *s, const char *environment, const char *graph,
		  const char *command, bool with_output, store_run_fn fn,
		  void *ctx);

/* Newest first; `cursor` = id of the last one of the page before or NULL;
 * status 0 = any; sandbox NULL = any; environment or graph NULL = any (for the
 * administrator).  At most 1000 records; commands come without the bytes of
 * results and output.  template_name: also the id of a saved one. */
struct store_page {
	const char *environment, *graph, *cursor, *sandbox, *template_name;
	const char *name;
	int status;
	unsigned limit;
};
typedef void (*store_sandboxes_fn)(void *ctx, int rc, struct sandbox_rec *r,
				   size_t n, bool has_more);
typedef void (*store_commands_fn)(void *ctx, int rc, struct command_rec *r,
				  size_t n, bool has_more);
int store_sandbox_list(struct store *s, const struct store_page *p,
		       store_sandboxes_fn fn, void *ctx);
int store_command_list(struct store *s, const struct store_page *p,
		       store_commands_fn fn, void *ctx);

/* ---- snapshots of sandboxes --------------------------------------------- */

typedef void (*store_snapshot_fn)(void *ctx, int rc, struct snapshot_rec *r);
typedef void (*store_snapshots_fn)(void *ctx, int rc, struct snapshot_rec *r,
				   size_t n, bool has_more);
/* One transaction: the key, which names it in store_found.command, and its
 * record.  As store_run_begin: nothing is written when the key is there. */
int store_snapshot_add(struct store *s, const struct store_begin *b,
		       const struct snapshot_rec *r, store_begin_fn fn,
		       void *ctx);
int store_snapshot_get(struct store *s, const char *environment,
		       const char *graph, const char *id, store_snapshot_fn fn,
		       void *ctx);
/* `sandbox` of the page: of this one only. */
int store_snapshot_list(struct store *s, const struct store_page *p,
			store_snapshots_fn fn, void *ctx);
/* `fn` gets what it was; its key stays.  -ENOENT. */
int store_snapshot_delete(struct store *s, const char *environment,
			  const char *graph, const char *id,
			  store_snapshot_fn fn, void *ctx);
/* Deletes the record of one that has expired: `id`, or NULL when none has, and
 * `next_ms` when the next one will (0 = none that does). */
typedef void (*store_expired_fn)(void *ctx, int rc, const char *id,
				 int64_t next_ms);
int store_snapshot_expire(struct store *s, int64_t now_ms, store_expired_fn fn,
			  void *ctx);

/* ---- saved templates ---------------------------------------------------- */

/*
 * One transaction: the key, which names it in store_found.command, its record,
 * code and config, as the next version of its name; `r` has no version yet, and
 * is copied.  `fn` gets the record that the key has: this one, or, with the
 * same request, an earlier one; NULL when the request is another (found) or rc
 * is not 0.  -EDQUOT: the graph has as many as it may.
 */
typedef void (*store_saved_fn)(void *ctx, int rc, const struct store_found *f,
			       struct template_rec *r);
int store_template_save(struct store *s, const struct store_begin *b,
			const struct template_rec *r, store_saved_fn fn,
			void *ctx);
typedef void (*store_template_fn)(void *ctx, int rc, struct template_rec *r);
typedef void (*store_templates_fn)(void *ctx, int rc, struct template_rec *r,
				   size_t n, bool has_more);
/* By id, or the newest version of a name (only that: is_name); with code and
 * config.  -ENOENT. */
int store_template_get(struct store *s, const char *environment,
		       const char *graph, const char *which, bool is_name,
		       store_template_fn fn, void *ctx);
/* The same for a call with the key `b`: what the key names already, or, when it
 * names nothing, the template.  rc is of what was looked for last. */
int store_template_use(struct store *s, const struct store_begin *b,
		       const char *which, store_saved_fn fn, void *ctx);
/* The newest version of each name; page.name: all versions of this one.  One
 * that cannot be read is told in the log and left out. */
int store_template_list(struct store *s, const struct store_page *p,
			store_templates_fn fn, void *ctx);

/* ---- Files of graphs ---------------------------------------------------- */

/* By its hash, or, when `id` is not empty, by that. */
struct file_ref {
	char id[ID_BYTES_MAX];
	uint8_t sha256[HASH_BYTES];
};
typedef void (*store_file_fn)(void *ctx, int rc, struct file_rec *r);
typedef void (*store_files_fn)(void *ctx, int rc, struct file_rec *r, size_t n,
			       bool has_more);
/*
 * Adds it; one with its bytes that the graph has already stays, with its id and
 * time, and takes over the name, the content type and the origin that are given
 * (a name without bytes, a type without characters, no sandbox: not given).
 * `b` NULL = without a key.  With one, in the same transaction: is_found and
 * nothing else when it is there, command = id of the File.  `r` of the callback
 * is the record as it is now, NULL with is_found.  Copies what it needs.
 */
typedef void (*store_file_put_fn)(void *ctx, int rc,
				  const struct store_found *f, bool is_new,
				  struct file_rec *r);
int store_file_put(struct store *s, const struct store_begin *b,
		   const struct file_rec *r, store_file_put_fn fn, void *ctx);
/* -ENOENT; -EBADMSG: the record cannot be read. */
int store_file_get(struct store *s, const char *environment, const char *graph,
		   const struct file_ref *ref, store_file_fn fn, void *ctx);
/* All of them, in this order; -ENOENT: n = place of the first that is not
 * there. */
int store_file_find(struct store *s, const char *environment, const char *graph,
		    const struct file_ref *refs, size_t n, store_files_fn fn,
		    void *ctx);
/* is_last: nobody has these bytes any more. */
typedef void (*store_file_gone_fn)(void *ctx, int rc, bool is_last);
int store_file_delete(struct store *s, const char *environment,
		      const char *graph, const uint8_t sha256[HASH_BYTES],
		      store_file_gone_fn fn, void *ctx);
/* Looks only: rc 0, and is_last as above. */
int store_file_unused(struct store *s, const uint8_t sha256[HASH_BYTES],
		      store_file_gone_fn fn, void *ctx);
/* Newest first; `name` of the page: of this name only; its cursor is the seq of
 * the last one, in decimal. */
int store_file_list(struct store *s, const struct store_page *p,
		    store_files_fn fn, void *ctx);
/* At the start: hashes that have a File, each once.  Synchronous; a negative
 * value of `fn` ends it.  0 or -errno. */
int store_file_hashes(struct store *s,
		      int (*fn)(void *ctx, const uint8_t sha256[HASH_BYTES]),
		      void *ctx);
/* The key alone: what was done under it is in `sandbox`, and `value` (shorter
 * than an id) comes back as store_found.command. */
int store_key_put(struct store *s, const struct store_begin *b,
		  const char *sandbox, const char *value, store_begin_fn fn,
		  void *ctx);

/* ---- all records, for the administrator ---------------------------------- */

enum export_kind {
	EXPORT_SANDBOX = 1,
	EXPORT_COMMAND = 2,
	EXPORT_SNAPSHOT = 3,
	EXPORT_KEY = 4,
};
/* Events that a page walks over, and the bytes after which it ends (the last
 * record is whole): what the store's thread does before its next work. */
#define STORE_EXPORT_EVENTS_MAX 500
#define STORE_EXPORT_BYTES	(256u << 10)

struct store_export {
	const char *environment, *graph; /* NULL = any; keys have no graph */
	int64_t since_ms, until_ms;	 /* created; until_ms 0 = no end */
	uint64_t after;			 /* seq; 0 = from the first */
};
struct export_item {
	uint64_t seq;	    /* of its last change */
	int64_t at_ms;	    /* of that change */
	int64_t revoked_ms; /* of a key, 0 = it is not */
	enum export_kind kind;
	char id[GRAPH_NAME_BYTES_MAX + 1]; /* of a key: its name */
	bool is_set_aside;		   /* it cannot be read: no bytes */
	int why;			   /* -errno, when found just now */
	size_t at, len;			   /* of its bytes in `cbor` */
};
struct export_page {
	struct export_item *items;
	size_t n;
	struct bytes cbor; /* records as they are stored, one after another */
	uint64_t next;	   /* `after` of the next page */
	uint64_t newest;   /* the last change that there is */
	bool has_more;
};
/* `p` until `fn` returns.  -EINVAL: nothing is as new as `after`. */
typedef void (*store_export_fn)(void *ctx, int rc, const struct export_page *p);
int store_export_page(struct store *s, const struct store_export *ask,
		      store_export_fn fn, void *ctx);

/*
 * At start, before anything else runs: every sandbox and command that is not
 * final ends `lost` with `reason` (END_DAEMON_RESTART or, where the record's
 * host boot id differs from `boot_id`, END_HOST_REBOOT).  A sandbox that was
 * `destroying` is `destroyed`, a `stopped` one has no VM and stays.
 * Synchronous.
 */
int store_recover(struct store *s, const char *boot_id, int64_t now_ms,
		  unsigned *ret_n_lost, struct err *e);
/* Erase what is past its time: output of one-call runs (7 days after the
 * end), records (30 days).  Idempotency keys go with their record. */
int store_retention(struct store *s, int64_t now_ms, store_rc_fn fn, void *ctx);

#endif
