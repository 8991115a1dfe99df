/* Inside of the engine; nobody outside hostd/engine includes this. */
#ifndef HUTCHD_ENGINE_PRIV_H
#define HUTCHD_ENGINE_PRIV_H

#include "../link/vm.h"
#include "../loop.h"
#include "engine.h"
#include "id.h"
#include "list.h"
#include "output.h"
#include "pool.h"

/* A run's end that cannot be written is tried again, ever more slowly. */
#define ENGINE_RETRY_MS_MIN		  1000
#define ENGINE_RETRY_MS_MAX		  30000
#define ENGINE_IDLE_SECONDS_DEFAULT	  300
#define ENGINE_EXPIRES_IN_SECONDS_DEFAULT 3600
/* TERM first, KILL after; and how long a cancel call waits for the end. */
#define ENGINE_CANCEL_GRACE_MS 2000
#define ENGINE_CANCEL_WAIT_MS  20000
/* What a refused client is told to wait. */
#define ENGINE_RETRY_PLACES_S 2
#define ENGINE_RETRY_ROOM_S   5
#define ENGINE_RETRY_DISK_S   30
/* Number of a one-call run's command in its VM. */
#define ENGINE_CMD 1

struct engine {
	struct loop *loop;
	struct store *store;
	struct link *link;
	uint32_t graph_places, environment_places;
	uint64_t ram_budget_bytes, disk_reserve_bytes;
	char *state_dir; /* owned */
	char node[NODE_BYTES + 1];
	char boot_id[40];
	struct list runs, waiters;
	struct pool pool;
	unsigned n_pending; /* store operations on their way */
	bool is_ending;	    /* freed when the last of them came back */
	uint64_t n_started, n_ended, n_lost, n_vms;
};

/* What the guest gets and nobody else may keep: zeroed when freed. */
struct secrets {
	struct bytes code, input, config, env; /* env: NUL separated */
	bool has_input, has_config;
	const char **env_list; /* into env, NULL terminated */
};
int secrets_take(struct secrets *s, const struct run_spec *spec);
void secrets_finish(struct secrets *s);

/* Of the monotonic clock, us; 0 = not reached.  Only for the log. */
struct run_times {
	int64_t taken_up, durable, ready, bound, ended;
	bool was_claimed;
};

/*
 * A one-call run in memory: from the request until its last state is durable
 * and told.  `sbx` and `cmd` are what is so; `told_*` is what the database
 * holds, and nothing else is ever shown to a client.
 */
struct run {
	struct list node; /* in engine.runs */
	struct engine *e;
	char key[IDEMPOTENCY_KEY_BYTES_MAX + 1];
	uint8_t request_hash[HASH_BYTES];
	struct sandbox_rec sbx, told_sbx;
	struct command_rec cmd;	     /* owned; output is in `out` */
	struct command_rec told_cmd; /* borrows from cmd */
	struct output out[2];
	struct secrets secrets; /* until the VM has them */
	struct vm_spec spec;
	uint64_t ram_bytes, disk_bytes;
	struct vm *vm;	       /* NULL: none, or it was told to end */
	bool has_vm;	       /* `gone` is still to come */
	bool holds_place;      /* counted by admission */
	struct pooled *pooled; /* reserved for it */
	bool is_looked_up;     /* the database does not know the key */
	bool is_durable;       /* key and records are on disk */
	bool is_end_durable;   /* the command's end is, too */
	bool is_cancelling;
	struct err refusal; /* of admission, before the lookup */
	struct list waiters;
	struct loop_timer expiry, retry;
	struct loop_timer note; /* its start is to be written */
	int64_t retry_ms;
	struct run_times times;
	uint64_t n_writes;  /* store_update calls so far */
	unsigned n_pending; /* store operations that hold this run */
};

/* ---- limits.c, admit.c
 * ---------------------------------------------------------- */

/* Who may run, and is the request inside its limits?  Fills in defaults in
 * *ret_limits and *ret_timeout_ms; 0, or -1 with err. */
int run_spec_check(const struct caller *who, const struct run_spec *spec,
		   struct limits *ret_limits, uint32_t *ret_timeout_ms,
		   struct err *err);
/* Places, memory, disk; 0 takes them, -1 with err. */
int admit(struct engine *e, struct run *r, struct err *err);
/* Is there room for a VM that waits?  It holds what it takes by being there. */
bool admit_pooled(const struct engine *e, uint64_t ram_bytes,
		  uint64_t disk_bytes);

/* ---- run.c: from the request to the VM
 * -------------------------------------------- */

struct run *run_by_key(struct engine *e, const struct caller *who,
		       const char *key);
struct run *run_by_sandbox(struct engine *e, const struct caller *who,
			   const char *id);
struct run *run_by_command(struct engine *e, const struct caller *who,
			   const char *id);
/* Before its record is written: the sandbox gets this id. */
void run_rename(struct run *r, const char *sandbox);
/* When nothing holds it any more. */
void run_maybe_free(struct run *r);

/* ---- live.c: from the VM to the end
 * ------------------------------------------------ */

void run_start_vm(struct run *r);
/* Write the present state; waiters are woken when it is on disk. */
void run_write(struct run *r);
/* End it now: the command becomes `ev` if it is not over, the VM dies. */
void run_end(struct run *r, enum end_reason why, const char *text,
	     bool is_lost);
/* Tell its VM to end, if it has one; `gone` comes later. */
void run_vm_end(struct run *r);
/* What clients are shown, with the output kept so far when it is told. */
struct command_rec run_told_command(const struct run *r);

/* ---- wait.c: who waits for an answer
 * ------------------------------------------------ */

enum wait_for { WAIT_COMMAND_END, WAIT_SANDBOX_DESTROYING, WAIT_NOTHING };

struct waiter {
	struct list node; /* in run.waiters, or alone */
	struct list all;  /* in engine.waiters */
	struct engine *e;
	struct loop *loop; /* also when the engine is gone */
	struct run *run;   /* NULL: answered from the store, or refused */
	enum wait_for what;
	engine_run_fn run_fn; /* one of the two */
	engine_sandbox_fn sandbox_fn;
	void *ctx;
	struct loop_timer timer;
	bool is_due; /* its time is over: the present state will do */
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
/* Wait for the run up to wait_ms. */
void waiter_join(struct waiter *w, struct run *r, enum wait_for what,
		 uint32_t wait_ms);
/* Read a command and its sandbox, or only a sandbox, and answer. */
void waiter_read_command(struct waiter *w, const char *environment,
			 const char *graph, const char *command);
void waiter_read_sandbox(struct waiter *w, const char *environment,
			 const char *graph, const char *sandbox);
/* Answer those whose condition holds (or, with err, all). */
void run_wake(struct run *r);
void waiters_refuse_all(struct engine *e, const struct err *err);
void run_refuse_all(struct run *r, const struct err *err);
/* All of the run's waiters, with these records. */
void run_answer_all(struct run *r, const struct sandbox_rec *sbx,
		    const struct command_rec *cmd);

/* The error for a failed store operation on `what` ("sandbox", "command"). */
void store_error(struct err *err, enum err_code not_found, const char *what,
		 const char *id, int rc);

/* ---- engine.c
 * ------------------------------------------------------------------------ */

void engine_op_begin(struct engine *e);
void engine_op_end(struct engine *e); /* may free e */

#endif
