/*
 * The engine: sandboxes and commands, without HTTP and without JSON of ours.
 *
 * A surface decodes a request into the structs below, calls one function, and
 * gets one callback on the loop's thread.  Records handed to a callback are
 * borrowed for its duration.  Input, config and result are the user's JSON
 * text, carried byte for byte.
 *
 * Life of a one-call run: admit -> store_run_begin (key, sandbox `starting`,
 * command `queued`, durable) -> vm_create + vm_run -> bound, started: sandbox
 * `running`, command `running` -> ended -> store_update with output, durable
 * -> waiters answered -> vm_destroy, sandbox `destroying` -> gone: `destroyed`.
 * A run that starts and ends in one go is two commits, begin and end, and
 * `destroyed` goes with the next.
 */
#ifndef HUTCHD_ENGINE_H
#define HUTCHD_ENGINE_H

#include "../store/store.h"
#include "file_path.h"
#include "guest_proto.h"

struct link;
struct loop;
struct engine;

/* What a template may have, a call may. */
#define ENGINE_CODE_BYTES_MAX	  TEMPLATE_CODE_BYTES_MAX
#define ENGINE_JSON_BYTES_MAX	  TEMPLATE_CONFIG_BYTES_MAX /* input, too */
#define ENGINE_STDIN_BYTES_MAX	  (1u << 20)
#define ENGINE_ARGV_BYTES_MAX	  (128u << 10)
#define ENGINE_ARGV_WORDS_MAX	  1024
#define ENGINE_CWD_BYTES_MAX	  4095
#define ENGINE_WAIT_MS_MAX	  30000
#define ENGINE_TIMEOUT_MS_DEFAULT 60000
#define ENGINE_TIMEOUT_MS_MAX	  3600000
#define ENGINE_ENV_BYTES_MAX	  (128u << 10)
#define ENGINE_ENV_NAMES_MAX	  256

/* Of a held sandbox. */
#define ENGINE_IDLE_SECONDS_DEFAULT	  300
#define ENGINE_IDLE_SECONDS_MIN		  30
#define ENGINE_IDLE_SECONDS_MAX		  3600
#define ENGINE_EXPIRES_IN_SECONDS_DEFAULT 3600
#define ENGINE_EXPIRES_IN_SECONDS_MIN	  60
#define ENGINE_EXPIRES_IN_SECONDS_MAX	  604800
/* Of a snapshot, which need not expire. */
#define ENGINE_SNAPSHOT_SECONDS_MIN 60
#define ENGINE_SNAPSHOT_SECONDS_MAX 31536000
#define ENGINE_COMMANDS_RUNNING_MAX 8
#define ENGINE_COMMANDS_WAITING_MAX 32
#define ENGINE_FILES_WAITING_MAX    32
/* Files of graphs: uploads at once; those that a sandbox begins with. */
#define ENGINE_UPLOADS_MAX	  64
#define ENGINE_FILES_AT_START_MAX TEMPLATE_FILES_MAX
/* What a workspace takes, or gives, in a second, at the least. */
#define ENGINE_FILE_BYTES_PER_S (64u << 10)
/* Of a call on files: what the guest may take, and until it is answered; under
 * the 120 s after which clients call it lost. */
#define ENGINE_FILE_TIMEOUT_MS 75000
#define ENGINE_FILE_WAIT_MS    100000
/* Code, input, stdin ... of commands that wait, in the daemon's memory. */
#define ENGINE_WAITING_BYTES_MAX (16u << 20)

/* So many VMs of this template and these limits shall always wait. */
struct pool_want {
	char base[TEMPLATE_NAME_BYTES_MAX + 1];
	struct limits limits;
	uint32_t count;
};

struct engine_config {
	uint32_t graph_places, environment_places; /* 5, 10 */
	uint64_t ram_budget_bytes;   /* committed to VMs; 0 = 3/4 of the host */
	uint64_t disk_reserve_bytes; /* free space never to be used */
	/* That the files of all may take; 0 = what the disk has. */
	uint64_t snapshots_max_bytes, stopped_max_bytes;
	/* Of all Files of graphs, 0 = what the disk has; of one. */
	uint64_t files_max_bytes, file_max_bytes;
	const char *state_dir;
	const char *node; /* 4 characters of [0-9a-z] in every id */
	/* VMs that wait for a run; pool_max 0 = none at all. */
	uint32_t pool_max, pool_idle_seconds;
	const struct pool_want *pool_wants;
	size_t n_pool_wants;
	const char *proc_dir; /* NULL = /proc; tests have their own */
};

/* After store_recover: what the database calls live has no VM any more. */
int engine_create(struct engine **ret, struct loop *loop, struct store *store,
		  struct link *link, const struct engine_config *cfg,
		  struct err *e);
/*
 * Ends all runs: their commands are settled as lost when the store has closed,
 * who waits is told so.  No call and no vm callback after it; the VMs are
 * ended by link_destroy.  Order: engine_destroy, link_destroy, store_close.
 */
void engine_destroy(struct engine *e);

/* Who calls: from the API key and the query. */
struct caller {
	const char *environment;
	const char *graph;
	enum plan plan;
	bool is_enabled;
	uint32_t environment_places, graph_places; /* 0 = as configured */
};

/* A File of the graph that is copied into the workspace before anything runs
 * there. */
struct seed {
	struct file_ref file;
	struct file_path path;
};

struct run_spec {
	const char *key; /* Idempotency-Key, checked by the surface */
	uint8_t request_hash[HASH_BYTES]; /* HMAC of the canonical request */
	/* A base, a saved template's name or id; NULL = lbb/python. */
	const char *template_name;
	/* Each may be NULL; code and config: the template's, if it is saved. */
	const void *code, *input, *config;
	size_t code_len, input_len, config_len;
	struct limits limits;	/* each 0 = template's, or 1, 1024, 4096 */
	uint32_t timeout_ms;	/* 0 = the template's, or the default */
	const char *const *env; /* "NAME=value", NULL terminated or NULL */
	/* Beside those of a saved template; a path of both is the call's. */
	const struct seed *seeds;
	size_t n_seeds;
	uint32_t wait_ms;
	const struct origin *origin; /* NULL = none */
};

/* A sandbox that is held: it runs commands until it is deleted or expires. */
struct create_spec {
	const char *key;
	uint8_t request_hash[HASH_BYTES];
	const char *template_name; /* as of a run */
	struct limits limits;	   /* as of a run */
	/* NULL = from the template; else template and limits are its, and not
	 * given. */
	const char *snapshot;
	uint32_t idle_seconds, expires_in_seconds; /* 0 = default */
	const char *const *env;			   /* of all its commands */
	/* Printable ASCII; labels: a JSON object of strings.  NULL = none. */
	const char *name, *labels;
	const struct seed *seeds; /* as of a run */
	size_t n_seeds;
	uint32_t wait_ms;
	const struct origin *origin; /* NULL = none */
};

/* A command on a held sandbox: code, as of a one-call run, or argv. */
struct command_spec {
	const char *key;
	uint8_t request_hash[HASH_BYTES];
	const char *sandbox;
	const char *const *argv; /* NULL terminated; NULL = it is code */
	const char *cwd;	 /* NULL = /workspace */
	const void *stdin_data;
	size_t stdin_len;
	/* NULL: code, config and time-out of the sandbox's saved template. */
	const void *code, *input, *config;
	size_t code_len, input_len, config_len;
	uint32_t timeout_ms; /* 0 = default */
	const char *const *env;
	uint32_t wait_ms;
	const struct origin *origin; /* NULL = none */
};

/* A pending answer; valid until its callback ran. */
struct waiter;

/* e NULL = sbx and cmd are set; output is in cmd->out. */
typedef void (*engine_run_fn)(void *ctx, const struct err *e,
			      const struct sandbox_rec *sbx,
			      const struct command_rec *cmd);
/*
 * Start, or find by key, and wait up to wait_ms for the end.  The callback
 * runs once, never before engine_run returned.  Refusals before a record
 * exists (bad limits, places, capacity, plan) burn no key.  What `who` and
 * `spec` point to stays until the callback, or engine_cancel_wait; so it is
 * with the other calls that have a waiter.
 */
int engine_run(struct engine *e, const struct caller *who,
	       const struct run_spec *spec, engine_run_fn fn, void *ctx,
	       struct waiter **ret_waiter);
/* The client went away: no callback any more; the run goes on. */
void engine_cancel_wait(struct engine *e, struct waiter *w);

typedef void (*engine_sandbox_fn)(void *ctx, const struct err *e,
				  const struct sandbox_rec *r);
/* As engine_run, and waits until the sandbox runs. */
int engine_sandbox_create(struct engine *e, const struct caller *who,
			  const struct create_spec *spec, engine_sandbox_fn fn,
			  void *ctx, struct waiter **ret_waiter);
/*
 * Stop: its commands end, its memory and disk are kept in files, its place is
 * free.  Resume: it goes on where it was.  Both wait for that, a while; one
 * that has been stopped, or runs, is answered at once.
 */
int engine_sandbox_stop(struct engine *e, const struct caller *who,
			const char *id, engine_sandbox_fn fn, void *ctx);
int engine_sandbox_resume(struct engine *e, const struct caller *who,
			  const char *id, engine_sandbox_fn fn, void *ctx);
/* What is not given stays: idle_seconds and expires_in_seconds 0, and name and
 * labels without has_; NULL with it = none from now on. */
struct update_spec {
	const char *sandbox;
	bool has_name, has_labels;
	const char *name, *labels;
	uint32_t idle_seconds;	     /* counts from now */
	uint32_t expires_in_seconds; /* from now */
};
/* Of a held one that has not ended; answered when it is durable. */
int engine_sandbox_update(struct engine *e, const struct caller *who,
			  const struct update_spec *spec, engine_sandbox_fn fn,
			  void *ctx);
/*
 * At most ENGINE_COMMANDS_RUNNING_MAX of a sandbox run, the next
 * ENGINE_COMMANDS_WAITING_MAX wait in their order; more are refused.  One for a
 * sandbox that starts waits, too.
 */
int engine_command_create(struct engine *e, const struct caller *who,
			  const struct command_spec *spec, engine_run_fn fn,
			  void *ctx, struct waiter **ret_waiter);

int engine_sandbox_get(struct engine *e, const struct caller *who,
		       const char *id, engine_sandbox_fn fn, void *ctx);
/* wait_ms > 0: until the command ended. */
int engine_command_get(struct engine *e, const struct caller *who,
		       const char *id, uint32_t wait_ms, engine_run_fn fn,
		       void *ctx, struct waiter **ret_waiter);
int engine_command_cancel(struct engine *e, const struct caller *who,
			  const char *id, engine_run_fn fn, void *ctx);
int engine_sandbox_delete(struct engine *e, const struct caller *who,
			  const char *id, engine_sandbox_fn fn, void *ctx);

typedef void (*engine_sandboxes_fn)(void *ctx, const struct err *e,
				    const struct sandbox_rec *r, size_t n,
				    bool has_more);
typedef void (*engine_commands_fn)(void *ctx, const struct err *e,
				   const struct command_rec *r, size_t n,
				   bool has_more);
int engine_sandbox_list(struct engine *e, const struct caller *who,
			const struct store_page *p, engine_sandboxes_fn fn,
			void *ctx);
int engine_command_list(struct engine *e, const struct caller *who,
			const struct store_page *p, engine_commands_fn fn,
			void *ctx);

/* ---- saved templates (template.c) ---- */

struct template_spec {
	const char *key;
	uint8_t request_hash[HASH_BYTES];
	const char *name;	   /* 1 to 64 of a-z 0-9 . _ - */
	const char *base;	   /* a base template */
	const void *code, *config; /* NULL = none; config: JSON */
	size_t code_len, config_len;
	struct limits limits;	  /* each 0 = default */
	uint32_t timeout_ms;	  /* 0 = default */
	const struct seed *seeds; /* the Files that its sandboxes begin with */
	size_t n_seeds;
};
typedef void (*engine_template_fn)(void *ctx, const struct err *e,
				   const struct template_rec *r);
typedef void (*engine_templates_fn)(void *ctx, const struct err *e,
				    const struct template_rec *r, size_t n,
				    bool has_more);
/* The next version of its name, or what its key has saved before.  `fn` is
 * called once, when it is durable, or at once with what is wrong with the
 * request.  rc < 0: it will not be called.  Copies what it needs. */
int engine_template_save(struct engine *e, const struct caller *who,
			 const struct template_spec *spec,
			 engine_template_fn fn, void *ctx);
/* By id, or the newest version of a name; is_name: a name only. */
int engine_template_get(struct engine *e, const struct caller *who,
			const char *which, bool is_name, engine_template_fn fn,
			void *ctx);
/* Newest versions, newest first; page.name: all versions of that one.  Without
 * code and config. */
int engine_template_list(struct engine *e, const struct caller *who,
			 const struct store_page *p, engine_templates_fn fn,
			 void *ctx);

/* ---- snapshots of held sandboxes ---- */

struct snapshot_spec {
	const char *key;
	uint8_t request_hash[HASH_BYTES];
	const char *sandbox;
	const char *name;	     /* NULL = none */
	uint32_t expires_in_seconds; /* 0 = never */
};
typedef void (*engine_snapshot_fn)(void *ctx, const struct err *e,
				   const struct snapshot_rec *r);
typedef void (*engine_snapshots_fn)(void *ctx, const struct err *e,
				    const struct snapshot_rec *r, size_t n,
				    bool has_more);
/*
 * Of one that runs, which is paused for it and goes on, or of a stopped one.
 * `fn` is called once, when it is durable, or at once with what is wrong with
 * the request.  rc < 0: it will not be called.
 */
int engine_snapshot_create(struct engine *e, const struct caller *who,
			   const struct snapshot_spec *spec,
			   engine_snapshot_fn fn, void *ctx);
int engine_snapshot_get(struct engine *e, const struct caller *who,
			const char *id, engine_snapshot_fn fn, void *ctx);
/* Sandboxes that began from it go on. */
int engine_snapshot_delete(struct engine *e, const struct caller *who,
			   const char *id, engine_snapshot_fn fn, void *ctx);
/* All of its files are read; one at a time in all.  Damage is
 * ERR_SNAPSHOT_DAMAGED. */
int engine_snapshot_verify(struct engine *e, const struct caller *who,
			   const char *id, engine_snapshot_fn fn, void *ctx);
/* page.sandbox: of that one only. */
int engine_snapshot_list(struct engine *e, const struct caller *who,
			 const struct store_page *p, engine_snapshots_fn fn,
			 void *ctx);

/* ---- files of held sandboxes (file.c) ---- */

struct file_spec {
	const char *sandbox;
	enum gp_file_op op;
	const struct file_path *path;
	uint64_t offset; /* of a read */
	uint32_t limit;	 /* bytes of a read, entries of a list; not 0 */
	bool is_whole;	 /* a read: a larger file is refused */
	const void *after;
	size_t after_len; /* a list: names behind this one; 0 = from the first
			   */
	/* Of a write; borrowed until it is answered or abandoned. */
	const void *data;
	size_t data_len;
	/* Of a write without data: so many bytes, which `piece` asks for, the
	 * next `len` of them: engine_file_piece, or abandon it. */
	uint64_t more;
	void (*piece)(void *ctx, size_t len);
};

struct file_entry {
	const uint8_t *name; /* NULL: the path itself */
	size_t name_len;
	enum gp_file_type type;
	uint64_t size, mtime_ms;
	uint32_t mode;
};

/* Borrowed; what the op gives. */
struct file_result {
	const struct file_entry *entries;
	size_t n_entries;
	bool has_more;
	const uint8_t *data;
	size_t data_len;
	uint64_t size;	      /* of the file */
	const uint8_t *stamp; /* of a read: its state; NULL = it changes */
};

struct filing; /* a pending call; valid until its callback ran */
typedef void (*engine_file_fn)(void *ctx, const struct err *e,
			       const struct file_result *r);
/*
 * One call at a time is with a sandbox, ENGINE_FILES_WAITING_MAX wait in their
 * order, also for one that starts, all up to ENGINE_FILE_WAIT_MS.  `fn` is
 * called once, never from within.  -ENOMEM: it will not be called.
 */
int engine_file(struct engine *e, const struct caller *who,
		const struct file_spec *spec, engine_file_fn fn, void *ctx,
		struct filing **ret);
/* No callback any more, and the data of a write is gone. */
void engine_file_abandon(struct engine *e, struct filing *f);

/* What `piece` asked for.  -errno: the VM does not want it any more; the end of
 * the call follows. */
int engine_file_piece(struct filing *f, const void *data, size_t len);
/* There are no more: the file is not written, and the end of the call says so.
 */
void engine_file_give_up(struct filing *f);

/* ---- Files of graphs (upload.c, move.c, graph_file.c) ---- */

/* The record as it is now; is_new: the graph had not these bytes before. */
typedef void (*engine_kept_fn)(void *ctx, const struct err *e,
			       const struct file_rec *r, bool is_new);

struct upload;
struct upload_spec {
	const char *name, *content_type; /* NULL: not given */
	uint64_t bytes;			 /* UINT64_MAX = not known */
};
typedef void (*engine_upload_room_fn)(void *ctx);
/* -1 with `err`: refused.  `fn` is called once, after engine_upload_end. */
int engine_upload_begin(struct engine *e, const struct caller *who,
			const struct upload_spec *spec,
			engine_upload_room_fn room, engine_kept_fn fn,
			void *ctx, struct upload **ret, struct err *err);
/* Copies.  -1 with `err`: it cannot go on, and is to be aborted. */
int engine_upload_write(struct upload *u, const void *data, size_t len,
			struct err *err);
/* The disk is behind: `room` is called when it is not, or when something went
 * wrong, which the next write tells. */
bool engine_upload_is_full(const struct upload *u);
int engine_upload_end(struct upload *u, struct err *err);
/* No callback any more. */
void engine_upload_abort(struct upload *u);

/*
 * Keep: a file of a held sandbox becomes a File of the graph.  Import: the
 * other way round, whole or not at all.  Each by its key, and to its end,
 * whoever waits for it: calls with the same key wait for the same one.  `fn` is
 * called once, never from within.  -ENOMEM: it will not be called.
 */
struct keep_spec {
	const char *key;
	uint8_t request_hash[HASH_BYTES];
	const char *sandbox;
	const struct file_path *path;
	const char *name; /* NULL: the last one of the path */
};
struct import_spec {
	const char *key;
	uint8_t request_hash[HASH_BYTES];
	const char *sandbox;
	const struct file_path *path;
	uint8_t sha256[HASH_BYTES];
};
typedef void (*engine_imported_fn)(void *ctx, const struct err *e,
				   uint64_t bytes);
struct move_ask; /* a pending call; valid until its callback ran */
int engine_keep(struct engine *e, const struct caller *who,
		const struct keep_spec *spec, engine_kept_fn fn, void *ctx,
		struct move_ask **ret);
int engine_import(struct engine *e, const struct caller *who,
		  const struct import_spec *spec, engine_imported_fn fn,
		  void *ctx, struct move_ask **ret);
void engine_move_abandon(struct move_ask *a);

typedef void (*engine_graph_file_fn)(void *ctx, const struct err *e,
				     const struct file_rec *r);
typedef void (*engine_graph_files_fn)(void *ctx, const struct err *e,
				      const struct file_rec *r, size_t n,
				      bool has_more);
/* fd: its bytes, to be read; the callee's. */
typedef void (*engine_graph_open_fn)(void *ctx, const struct err *e,
				     const struct file_rec *r, int fd);
int engine_graph_file_get(struct engine *e, const struct caller *who,
			  const uint8_t sha256[HASH_BYTES],
			  engine_graph_file_fn fn, void *ctx);
int engine_graph_file_open(struct engine *e, const struct caller *who,
			   const uint8_t sha256[HASH_BYTES],
			   engine_graph_open_fn fn, void *ctx);
/* Its bytes are removed when no graph has them any more. */
int engine_graph_file_delete(struct engine *e, const struct caller *who,
			     const uint8_t sha256[HASH_BYTES],
			     engine_graph_file_fn fn, void *ctx);
/* page.name: of this name only; page.cursor: seq of the last one. */
int engine_graph_file_list(struct engine *e, const struct caller *who,
			   const struct store_page *p, engine_graph_files_fn fn,
			   void *ctx);

/* Bytes [offset, offset+limit) of a stream as far as they are kept. */
struct log_slice {
	uint64_t offset; /* of the first byte given (>= asked when the
			    middle was dropped) */
	const uint8_t *data;
	size_t len;
	uint64_t next_offset; /* ask from here next */
	uint64_t total;
	bool is_eof;	   /* the command ended and nothing follows */
	bool is_truncated; /* bytes between head and tail were dropped */
};
typedef void (*engine_log_fn)(void *ctx, const struct err *e,
			      const struct log_slice *s);
int engine_log_read(struct engine *e, const struct caller *who,
		    const char *command, int stream, uint64_t offset,
		    size_t limit, engine_log_fn fn, void *ctx);

struct engine_stats {
	uint64_t runs_started, runs_ended, runs_lost, vms_started;
	uint32_t sandboxes_live, commands_live;
	uint64_t ram_committed_bytes, ram_budget_bytes;
	uint64_t disk_committed_bytes;
	/* VMs that wait; they give way, so they are in none of the above. */
	uint32_t pool_ready, pool_starting, pool_max;
	uint32_t pool_lanes; /* of those that are ready, with their lane */
	uint64_t pool_ram_bytes, pool_disk_bytes;
	uint64_t pool_hits, pool_misses, pool_refills, pool_failures;
	uint64_t pool_evictions;
	bool is_memory_short;
	/* Snapshots of sandboxes: taken, begun and not kept, expired; the time
	 * of the taken ones, and for how long VMs stood still for them. */
	uint64_t snapshots_taken, snapshots_failed, snapshots_expired;
	uint64_t snapshots_us, snapshots_paused_us;
	/* Files of graphs, each hash once. */
	uint64_t files, files_bytes;
};
void engine_stats(const struct engine *e, struct engine_stats *ret);

/* One class of waiting VMs: all runs with these limits, rounded up to the
 * shape, may claim one. */
struct pool_view {
	const char *base;
	struct limits limits;
	uint32_t min, target, n_ready, n_starting, n_lanes;
	uint64_t ram_bytes, disk_bytes; /* of each */
	uint64_t n_hits, n_misses, n_refills, n_failures;
};
typedef void (*engine_pool_fn)(void *ctx, const struct pool_view *v);
void engine_pool_each(struct engine *e, engine_pool_fn fn, void *ctx);

/* Every sandbox that has or is getting a VM, of all environments, for
 * `hutch ps`; cmd is its newest command in memory or NULL, pid 0 while there
 * is no process. */
typedef void (*engine_live_fn)(void *ctx, const struct sandbox_rec *sbx,
			       const struct command_rec *cmd, int pid);
void engine_live_each(struct engine *e, engine_live_fn fn, void *ctx);

#endif
