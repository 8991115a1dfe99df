/* Inside of the engine; nobody outside hostd/engine includes this. */
#ifndef HUTCHD_ENGINE_PRIV_H
#define HUTCHD_ENGINE_PRIV_H

#include "../blob/blob.h"
#include "../link/snapshot.h"
#include "../loop.h"
#include "engine.h"
#include "id.h"
#include "list.h"
#include "output.h"
#include "pool.h"

/* A run's end that cannot be written is tried again, ever more slowly. */
#define ENGINE_RETRY_MS_MIN 1000
#define ENGINE_RETRY_MS_MAX 30000
/* TERM first, KILL after; and how long a cancel call waits for the end. */
#define ENGINE_CANCEL_GRACE_MS 2000
#define ENGINE_CANCEL_WAIT_MS  20000
/* What a refused client is told to wait. */
#define ENGINE_RETRY_PLACES_S 2
#define ENGINE_RETRY_ROOM_S   5
#define ENGINE_RETRY_DISK_S   30
/* A channel or a table that is full: commands are given again after this. */
#define ENGINE_GIVE_AGAIN_MS 20
/* The guest's command numbers rise, also over a restart of the daemon, which
 * forgets them, and in sandboxes that begin from a snapshot: each incarnation
 * has a range of its own. */
#define ENGINE_NUMBERS_BITS 32

struct engine {
	struct loop *loop;
	struct store *store;
	struct link *link;
	uint32_t graph_places, environment_places;
	uint64_t ram_budget_bytes, disk_reserve_bytes;
	uint64_t snapshots_max_bytes, stopped_max_bytes;
	uint64_t files_max_bytes, file_max_bytes;
	struct blobs *blobs; /* owned */
	struct list intakes, moves;
	unsigned n_uploads;
	char *state_dir; /* owned */
	char node[NODE_BYTES + 1];
	char boot_id[40];
	struct list boxes, waiters, snaps;
	struct pool pool;
	unsigned n_pending; /* store operations on their way */
	bool is_ending;	    /* freed when the last of them came back */
	uint64_t n_started, n_ended, n_lost, n_vms;
	struct read_ask *verifying; /* a snapshot; NULL = none */
	struct loop_timer snap_expiry;
	struct {
		uint64_t n_taken, n_failed, n_expired, us, paused_us;
	} snap_stats;
};

/* What the guest gets and nobody else may keep: zeroed when freed. */
struct secrets {
	struct bytes code, input, config, env; /* env: NUL separated */
	struct bytes argv, cwd, stdin_data;    /* argv: NUL separated */
	bool has_input, has_config;
	const char **env_list, **argv_list; /* into them, NULL terminated */
};
/* A copy of what the command shall get.  `common`: the environment of all
 * commands of its sandbox (may be NULL); the command's own names win. */
int secrets_take(struct secrets *s, const struct command_spec *spec,
		 const char *const *common);
void secrets_finish(struct secrets *s);
size_t secrets_bytes(const struct secrets *s);

/* Of the monotonic clock, us; 0 = not reached.  Only for the log. */
struct run_times {
	int64_t taken_up, durable, ready, bound, ended;
	bool was_claimed;
};

/*
 * The first record of a sandbox, of a command, or of both (begin.c): its key,
 * and what admission said before the key was looked up.
 */
struct begin {
	struct box *box;
	struct cmd *cmd; /* NULL: a sandbox without a command */
	bool makes_box;
	const char *operation;
	char key[IDEMPOTENCY_KEY_BYTES_MAX + 1]; /* "" = none of its own */
	uint8_t request_hash[HASH_BYTES];
	struct err refusal;
	bool is_refused; /* whatever room there is, unless the key is known */
};

/*
 * A command in memory, from the request until its end is durable and told.
 * `rec` is what is so; `told` is what the database holds, and nothing else is
 * ever shown to a client; `sent` is the status that was last handed to the
 * store.
 */
struct cmd {
	struct list node; /* in box.cmds, oldest first */
	struct box *box;
	struct begin begin;	 /* of a command on a held sandbox */
	uint64_t number;	 /* in its VM; 0 = not given to it */
	struct command_rec rec;	 /* owned; output is in `out` */
	struct command_rec told; /* borrows from rec */
	enum command_status sent;
	struct output out[2];
	struct secrets secrets; /* until the VM has them */
	bool is_durable;	/* its first record is on disk */
	bool is_end_durable;
	bool is_cancelling;
	struct run_times times;
	unsigned n_pending; /* store operations that hold it */
	unsigned n_waiters;
};

/*
 * A sandbox in memory, from the request until its last state is durable and
 * told.  One of a one-call run has one command; a held one has any number.
 */
struct box {
	struct list node; /* in engine.boxes */
	struct engine *e;
	struct begin begin;
	struct sandbox_rec rec, told;
	enum sandbox_status sent;
	struct list cmds;
	struct list files; /* calls on them, oldest first (file.c) */
	uint64_t last_file;
	/* Updates of it by clients (update.c): how many, and how many of them
	 * are on disk. */
	uint64_t n_updates, n_updates_told;
	struct secrets common; /* env of all commands */
	struct vm_spec spec;
	uint64_t ram_bytes, disk_bytes;
	struct vm *vm; /* NULL: none, or it was told to end */
	uint64_t last_number;
	bool has_vm;	  /* `gone` is still to come */
	bool holds_place; /* counted by admission */
	/* Of its environment and graph when it was asked for; 0 = default. */
	uint32_t environment_places, graph_places;
	struct pooled *pooled; /* reserved for it */
	bool is_durable;       /* key and record are on disk */
	bool is_saving;	       /* vm_stop was asked */
	bool is_kept;	       /* all is in files; `gone` makes it stopped */
	bool is_resuming;      /* starting, from files */
	bool has_files;	       /* it was stopped once: they are removed */
	struct snap *snap;     /* being taken of it; stop and resume wait */
	struct snapshot_from from; /* that it begins from; id "" = none */
	struct fill *fill;	   /* owned: Files that it begins with */
	struct list waiters;	   /* of the sandbox and of its commands */
	struct loop_timer expiry, retry, idle;
	struct loop_timer note; /* starts are to be written, commands given */
	int64_t retry_ms;
	unsigned n_pending; /* store operations that hold this box */
};

/* ---- limits.c, admit.c
 * ---------------------------------------------------------- */

/* Who may run, and is the request inside its limits?  `spec`, of a base
 * template, and its command get the defaults; 0, or -1 with err. */
int run_spec_check(const struct caller *who, struct run_spec *spec,
		   struct command_spec *work, struct err *err);
/* The same of a held sandbox, of a command on one, which may be without code
 * unless that is needed, and of a template. */
int create_spec_check(const struct caller *who, struct create_spec *spec,
		      struct err *err);
int command_spec_check(const struct caller *who, struct command_spec *spec,
		       bool needs_code, struct err *err);
int template_spec_check(const struct caller *who, struct template_spec *spec,
			struct err *err);
int update_spec_check(const struct update_spec *spec, struct err *err);
int caller_check(const struct caller *who, struct err *err);
int env_check(const char *const *env, struct err *err);

/* Places, memory, disk; 0 takes them, -1 with err. */
int admit(struct engine *e, struct box *b, struct err *err);
/* Before that: as many as who asks may hold. */
void box_places(struct box *b, const struct caller *who);
/* One more command on a held sandbox? */
int admit_command(const struct cmd *c, struct err *err);
void err_not_running(struct err *err, const struct sandbox_rec *s);
/* Is there room for a VM that waits?  It holds what it takes by being there. */
bool admit_pooled(const struct engine *e, uint64_t ram_bytes,
		  uint64_t disk_bytes);

/* ---- box.c: sandboxes and commands in memory ----------------------------- */

struct box *box_new(struct engine *e, const struct caller *who,
		    enum sandbox_kind kind, const char *template_name,
		    const struct limits *limits);
/* One that the database has, and that has no VM. */
struct box *box_of_record(struct engine *e, const struct sandbox_rec *rec);
/* At the end of box.cmds; NULL = no memory. */
struct cmd *cmd_new(struct box *b, const struct command_spec *spec);
/* By the key of the operation that made it; NULL = none in memory. */
struct begin *begin_by_key(struct engine *e, const struct caller *who,
			   const char *operation, const char *key);
/* Only what is durable: before, nobody has been told the ids. */
struct box *box_by_id(struct engine *e, const struct caller *who,
		      const char *id);
struct cmd *cmd_by_id(struct engine *e, const struct caller *who,
		      const char *id);
struct cmd *cmd_by_number(struct box *b, uint64_t number);
/* The command of a one-call run; NULL for a held sandbox. */
struct cmd *box_only_cmd(const struct box *b);
/* Before its record is written: the sandbox gets this id. */
void box_rename(struct box *b, const char *sandbox);
/* Zeros without bytes (p NULL). */
void sha256_of(uint8_t ret[HASH_BYTES], const void *p, size_t len);
/* When nothing holds it any more; also commands of it that are over. */
void box_maybe_free(struct box *b);
/* Not yet known to anybody: no waiter, no write. */
void box_discard(struct box *b);
void cmd_discard(struct cmd *c);

#define box_each_cmd(b, n, tmp) list_for_each_safe(n, tmp, &(b)->cmds)

enum wait_for {
	WAIT_COMMAND_END,
	WAIT_SANDBOX_STARTED,
	WAIT_SANDBOX_STOPPED,
	WAIT_SANDBOX_DESTROYING,
	WAIT_SANDBOX_UPDATED,
	WAIT_NOTHING
};

/* ---- run.c, from.c: calls that start something --------------------------- */

/* One that has to read a record first. */
struct from {
	enum {
		FROM_SNAPSHOT,
		FROM_TEMPLATE_RUN,
		FROM_TEMPLATE_CREATE,
		FROM_TEMPLATE_COMMAND,
	} kind;
	const char *which; /* name or id of the record */
	union {
		struct run_spec run;
		struct create_spec create; /* also SNAPSHOT: checked */
		struct command_spec command;
	};
};
/* Is it no base template? */
bool template_is_saved(const char *name);
/* Reads it, and goes on below; the waiter is refused when it cannot. */
void from_read(struct engine *e, const struct caller *who,
	       const struct from *what, struct waiter *w);
void template_error(struct err *err, const struct caller *who,
		    const char *which, int rc);
/* The rest of the calls.  `t`: the saved template that they name, or NULL. */
void run_go(struct engine *e, const struct caller *who,
	    const struct run_spec *spec, const struct template_rec *t,
	    struct waiter *w);
void create_go(struct engine *e, const struct caller *who,
	       const struct create_spec *spec, const struct template_rec *t,
	       struct waiter *w);
void command_go(struct engine *e, const struct caller *who,
		const struct command_spec *spec, const struct template_rec *t,
		struct waiter *w);
/* In memory, not begun; NULL = no memory. */
struct box *held_new(struct engine *e, const struct caller *who,
		     const struct create_spec *spec,
		     const struct template_rec *t);
/* Joined by the waiter, and begun; b NULL = there was no memory for it. */
void box_begin(struct box *b, struct waiter *w, enum wait_for what,
	       uint32_t wait_ms);
/* A call with this key is in memory: joined, or refused as another one. */
bool call_is_joined(struct engine *e, const struct caller *who,
		    const char *operation, const char *key,
		    const uint8_t request_hash[HASH_BYTES], struct waiter *w,
		    enum wait_for what, uint32_t wait_ms);
void refuse_no_memory(struct waiter *w);

/* ---- begin.c: keys and first records ------------------------------------- */

#define OPERATION_SANDBOX "run" /* POST /v1/sandboxes, with and without run */
#define OPERATION_COMMAND "command"

/* The waiters hang on it already; they are not answered from in here. */
void begin_start(struct begin *g);
void key_conflict(struct err *err, const char *key, const char *graph);
struct store_begin begin_in_store(const struct begin *g);

/* ---- write.c: what is so becomes what is told ---------------------------- */

/* Write the sandbox and, unless NULL, the command; waiters are woken when it
 * is on disk. */
void box_write(struct box *b, struct cmd *c);
/* The same when there is something else to write. */
void box_write_later(struct box *b);
/* All states that the store has not been given. */
void box_write_stale(struct box *b);
/* What clients are shown, with the output kept so far when it is told. */
struct command_rec cmd_told(const struct cmd *c);

/* ---- settle.c: how a command ended --------------------------------------- */

void cmd_settle(struct cmd *c, const struct vm_end *end, int64_t now_ms);

/* ---- live.c: from the VM to the end -------------------------------------- */

void box_start_vm(struct box *b);
/* End it now: commands that are not over are cancelled or lost, the VM dies. */
void box_end(struct box *b, enum end_reason why, const char *text,
	     bool is_lost);
/* Tell its VM to end, if it has one; `gone` comes later. */
void box_vm_end(struct box *b);
/* A command that became durable, or a VM that is ready: give what may run. */
void box_give(struct box *b);
void cmd_cancel(struct cmd *c);
void box_timers_init(struct box *b);
void box_expiry_arm(struct box *b);
extern const struct vm_ops *const box_vm_ops;

/* ---- stop.c: stop, resume, idle ------------------------------------------ */

void box_idle_arm(struct box *b); /* something happened just now */
void box_on_idle(struct loop_timer *t);
void box_stop(struct box *b);
/* Its next step, if all its commands have ended. */
void box_stop_on(struct box *b);
void box_cancel_waiting(struct box *b);
void box_on_stopped(struct box *b, const char *error);
/* It was kept, and its VM is gone. */
void box_is_stopped(struct box *b);
/* That it starts again is on disk: it may. */
void box_resume_vm(struct box *b);
void box_cannot_resume(struct box *b, const char *why);
/* Those that were stopped when the last daemon ended. */
int boxes_load(struct engine *e);

/* ---- file.c -------------------------------------------------------------- */

/* Its state changed: give the next call, or refuse those that wait. */
void box_files(struct box *b);
void box_files_refuse(struct box *b, const struct err *err);
bool box_has_file_given(const struct box *b);
void box_on_file_entry(struct box *b, uint64_t number,
		       const struct vm_file_entry *e);
void box_on_file_data(struct box *b, uint64_t number, const uint8_t *data,
		      size_t len);
void box_on_file_more(struct box *b, uint64_t number, size_t len);
void box_on_file_done(struct box *b, uint64_t number,
		      const struct vm_file_end *end);
/* What the guest said of a call on `path`. */
void file_end_error(struct err *err, const struct file_path *path,
		    uint32_t limit, const struct vm_file_end *end);
/* That a call of so many bytes may take in a VM. */
uint32_t file_timeout_ms(uint64_t bytes);

/* ---- fill.c: Files of the graph that a sandbox begins with ----------------
 */

/* A call's, and those of its template (NULL = none) whose paths the call has
 * not; more than a sandbox may begin with: -1 with `err`. */
int fill_fits(const struct seed *seeds, size_t n, const struct template_rec *t,
	      struct err *err);
/* Box.fill: a copy of these, or NULL when there are none.  -ENOMEM. */
int fill_make(struct box *b, const struct seed *seeds, size_t n,
	      const struct template_rec *t);
void fill_free(struct fill *f); /* NULL does nothing */
/* Opened, before the first record; then begin_start. */
void fill_open(struct box *b);
/* One cannot be had: -1 with `err`. */
int fill_check(const struct box *b, struct err *err);
/* The VM has its identity.  True: wait, box_filled or box_not_filled comes. */
bool fill_start(struct box *b);
/* files[i] of a call is not to be had. */
void fill_error(struct err *err, size_t i, const struct file_ref *ref,
		const char *graph, int rc);
bool fill_has_call(const struct box *b, uint64_t number);
void fill_on_more(struct box *b, size_t len);
void fill_on_done(struct box *b, const struct vm_file_end *end);
/* live.c */
void box_filled(struct box *b);
void box_not_filled(struct box *b, const char *why);

/* ---- intake.c: a File on its way into a graph -----------------------------
 */

struct intake {
	struct list node; /* in engine.intakes, while it takes */
	struct engine *e;
	struct blob_writer *w;
	uint64_t promised_bytes;
	struct file_rec rec; /* the owner's; hash, size, id and time are set */
	bool has_key;
	struct store_begin key; /* borrows from the owner */
	void (*room)(void *ctx);
	/* Once after intake_end, and the last. */
	void (*done)(void *ctx, const struct err *err,
		     const struct store_found *f, bool is_new,
		     const struct file_rec *r);
	void *ctx;
};
/* bytes: UINT64_MAX = not known.  -1 with `err`: nothing is to be dropped. */
int intake_begin(struct intake *in, struct engine *e, uint64_t bytes,
		 struct err *err);
int intake_write(struct intake *in, const void *data, size_t len,
		 struct err *err);
int intake_end(struct intake *in, struct err *err);
/* Not between intake_end and `done`. */
void intake_drop(struct intake *in, bool is_kept);
/* Promised to those on their way, and not written yet. */
uint64_t intakes_left(const struct engine *e);
void file_disk_error(struct err *err, int rc);
int file_name_check(const char *name, size_t len, struct err *err);

/* ---- move.c, keep.c, import.c: between graph and workspace -----------------
 */

enum move_kind { MOVE_KEEP, MOVE_IMPORT };
struct move {
	struct list node; /* in engine.moves */
	struct engine *e;
	enum move_kind kind;
	enum { MOVE_ASKING, MOVE_MOVING, MOVE_SEALING } step;
	char environment[ID_BYTES_MAX], graph[GRAPH_NAME_BYTES_MAX + 1];
	char key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t request_hash[HASH_BYTES];
	char sandbox[ID_BYTES_MAX];
	struct file_path path;
	struct list asks;
	struct filing *filing; /* the call that is under way */
	enum plan plan;
	bool is_enabled;
	/* keep */
	struct intake in;
	uint8_t stamp[GP_FILE_STAMP_BYTES];
	uint64_t offset, size;
	unsigned n_tries;
	struct loop_timer again;
	/* import */
	uint8_t sha256[HASH_BYTES];
	uint64_t bytes;
	struct blob_reader *reader;
	struct err in_err; /* of the File's bytes */
};
struct store_begin move_key(const struct move *m);
struct caller move_caller(const struct move *m);
/* All who asked are answered, and it is gone. */
void move_failed(struct move *m, const struct err *err);
void move_kept(struct move *m, const struct file_rec *r, bool is_new);
void move_imported(struct move *m);
void keep_start(struct move *m);
void keep_forget(struct move *m);
void import_start(struct move *m);
void import_forget(struct move *m);
void moves_end(struct engine *e); /* the engine ends */

/* ---- graph_file.c ----------------------------------------------------------
 */

/* The folder, without what has no record. */
int graph_files_load(struct engine *e, struct err *err);
/* Its bytes, or -errno; -EBADMSG: they are not what they were. */
int graph_file_bytes(const struct engine *e, const struct file_rec *r);
void graph_file_error(struct err *err, const char *param,
		      const uint8_t sha256[HASH_BYTES], const char *graph,
		      int rc);

/* ---- read.c, for lists --------------------------------------------------- */

void list_error(struct err *err, int rc);
/* A client sees its own graph only, whatever the page says. */
struct store_page page_of(const struct caller *who, const struct store_page *p);

/* ---- snapshot_ask.c, snapshot.c, snapshot_read.c ------------------------- */

/* A snapshot from the request until its record is durable. */
struct snap {
	struct list node; /* in engine.snaps, oldest first */
	struct engine *e;
	struct box *box; /* TAKING: held by it */
	enum { SNAP_ASKING, SNAP_WAITING, SNAP_TAKING, SNAP_WRITING } step;
	struct snapshot_rec rec; /* environment, graph, sandbox: from the start
				  */
	char key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t request_hash[HASH_BYTES];
	struct list askers;
	uint32_t expires_in_seconds; /* 0 = never */
	uint64_t bytes;		     /* TAKING: that it may take */
	int64_t began_us;	     /* TAKING, monotonic */
};
/* Of the box with the id in its record, now or when that is free. */
void snap_take(struct snap *s);
/* All who asked are answered, and it is gone. */
void snap_end(struct snap *s, const struct err *err,
	      const struct snapshot_rec *rec);
void snap_store_failed(struct snap *s, int rc); /* the same */
void snap_free(struct snap *s);
struct store_begin snap_key(const struct snap *s);
/* Sweeps what the last daemon left. */
int snaps_load(struct engine *e);
void snaps_end(struct engine *e); /* the engine ends */
struct snapshot_from snapshot_from_of(const struct snapshot_rec *r);
void snap_verify_end(struct engine *e); /* the same */

/* ---- snapshot_expiry.c --------------------------------------------------- */

/* At the start, and when there is one more that expires. */
void snaps_expire(struct engine *e);
void snaps_expiry_init(struct engine *e);

/* ---- space.c: may files take so much more? --------------------------------
 */

/* 0, or -1 with `err`, which names limit and value. */
int space_for_snapshot(const struct snap *s, struct err *err);
int space_for_stop(const struct box *b, struct err *err);
int space_for_file(const struct engine *e, uint64_t more, struct err *err);

/* ---- wait.c: who waits for an answer
 * ------------------------------------------------ */

struct waiter {
	struct list node; /* in box.waiters, or alone */
	struct list all;  /* in engine.waiters */
	struct engine *e;
	struct loop *loop; /* also when the engine is gone */
	struct box *box;   /* NULL: answered from the store, or refused */
	struct cmd *cmd;   /* NULL: it is about the sandbox alone */
	enum wait_for what;
	uint64_t update;      /* UPDATED: the number of it */
	engine_run_fn run_fn; /* one of the two */
	engine_sandbox_fn sandbox_fn;
	void *ctx;
	struct loop_timer timer;
	bool is_due;	 /* its time is over: the present state will do */
	bool is_refused; /* with `err`, when the box's state is told */
	bool is_cancelled;
	bool is_answering; /* its function runs */
	bool is_posted;	   /* `call` is on its way */
	bool is_reading;   /* a store operation will come back to it */
	struct loop_call call;
	struct err err;
};

struct waiter *waiter_new(struct engine *e, engine_run_fn run_fn,
			  engine_sandbox_fn sandbox_fn, void *ctx);
/* Answer with `err`, later. */
void waiter_refuse(struct waiter *w, const struct err *err);
/* Wait for the command, or with c NULL the sandbox, up to wait_ms. */
void waiter_join(struct waiter *w, struct box *b, struct cmd *c,
		 enum wait_for what, uint32_t wait_ms);
/* Read a command and its sandbox, or only a sandbox, and answer. */
void waiter_read_command(struct waiter *w, const char *environment,
			 const char *graph, const char *command);
void waiter_read_sandbox(struct waiter *w, const char *environment,
			 const char *graph, const char *sandbox);
/* Answer those whose condition holds. */
void box_wake(struct box *b);
void waiters_refuse_all(struct engine *e, const struct err *err);
/* Those of a first record: of the command, if that is what it is about. */
void begin_refuse_all(struct begin *g, const struct err *err);
void begin_answer_all(struct begin *g, const struct sandbox_rec *sbx,
		      const struct command_rec *cmd);
/* A command for a sandbox that is not in memory: answered by the records of its
 * key, or refused because of what became of the sandbox. */
void waiter_read_by_key(struct waiter *w, const struct store_begin *key,
			const char *sandbox);
/* A sandbox that is not in memory has ended, or is not there. */
void waiter_refuse_over(struct waiter *w, const char *environment,
			const char *graph, const char *sandbox);
/* All that wait for this, once what is so is told: a client that looks after
 * the refusal sees what it says. */
void box_refuse_all(struct box *b, enum wait_for what, const struct err *err);
/* The error for a failed store operation on `what` ("sandbox", "command"). */
void store_error(struct err *err, enum err_code not_found, const char *what,
		 const char *id, int rc);

/* ---- engine.c
 * ------------------------------------------------------------------------ */

void engine_op_begin(struct engine *e);
void engine_op_end(struct engine *e); /* may free e */

#endif
