/*
 * What the tests of the engine share: a real loop and a real store, and VMs
 * that do what the test says (link/vm.h with a double behind it; the real ones
 * are met by the system tests).
 */
#ifndef HUTCHD_ENGINE_TEST_UTIL_H
#define HUTCHD_ENGINE_TEST_UTIL_H

#include "../link/space.h"
#include "../store/store_test_util.h"
#include "engine_priv.h"

#define FAKE_VMS_MAX 512

/* A VM of the double, in the order of vm_create. */
struct vm {
	const struct vm_ops *ops;
	void *ctx;
	struct vm_spec spec;
	bool is_created, is_destroyed, is_gone;
	int n_runs, n_execs, n_kills, n_acks, n_stops;
	bool is_resumed, is_from;
	struct snapshot_from from;
	int n_snapshots;
	/* The last call on files; n_given_up: vm_file_give_up. */
	struct vm_file file;
	char file_path[64];
	uint64_t file_number; /* 0 = none is under way */
	int n_files, n_given_up;
	size_t awaited;		 /* of the piece that was asked for */
	struct bytes file_bytes; /* all pieces of all calls */
	uint64_t cmd, killed;	 /* the last one each */
	/* Copies of vm_run's, and of the last vm_exec's. */
	struct bytes code, input, config, env, argv;
	bool has_input;
	uint32_t timeout_ms;
	struct loop_call gone;
	/* Of the pool, until it is claimed. */
	const struct vm_pool_ops *pool_ops;
	bool is_stale, is_claimed, has_lane;
};

struct fake {
	struct loop *loop;
	struct vm vms[FAKE_VMS_MAX];
	int n_vms;
	const char *create_error; /* vm_create refuses with it */
	int hashes_rc;		  /* of template_hashes */
	uint8_t image_more;	  /* another image than at first */
	int run_rc;
	uint64_t ram_bytes, disk_bytes; /* cost of each */
	bool is_slow_to_go;		/* gone only by fake_gone */
	const char *pool_error;		/* vm_create_pooled refuses with it */
	enum err_code pool_error_code;
	bool is_link_gone;
	int stop_rc;	     /* of vm_stop */
	int file_rc;	     /* of vm_file */
	bool are_files_gone; /* of stopped sandboxes */
	char removed[ID_BYTES_MAX];
	/* A sweep asks for this one. */
	char asked[ID_BYTES_MAX];
	int n_sweeps;
	bool is_last_kept;
	/* The snapshot that is being taken: of a VM or of a stopped one. */
	char snapshot[ID_BYTES_MAX], snapshot_of[ID_BYTES_MAX];
	snapshot_fn snapshot_fn;
	void *snapshot_ctx;
	int snapshot_rc; /* of vm_snapshot and stopped_snapshot */
	/* Folders there at the start, and those removed: "name name ". */
	const char *folders[4];
	char snapshots_removed[512];
	struct vm_space vm_space;
	snapshot_verify_fn verify_fn; /* it is being read */
	void *verify_ctx;
	uint64_t stopped_bytes, used_bytes[SPACE_KINDS];
};
extern struct fake fake;

void fake_bound(int vm);
void fake_output(int vm, int stream, const char *text);
void fake_started(int vm, uint64_t cmd);
void fake_end_of(int vm, uint64_t cmd, enum gp_end how, int code,
		 const char *result);
/* Of the last command. */
void fake_end(int vm, enum gp_end how, int code, const char *result);
/* The call on files that is under way ends. */
void fake_file_done(int vm, enum gp_file_how how, const char *text);
void fake_stopped(int vm, const char *error);
/* What the snapshot came to. */
void fake_snapshot(int rc, const char *error);
/* It was read: NULL, or what is wrong with it. */
void fake_verified(const struct err *e);
/* A VM of the pool waits now. */
void fake_waiting(int vm);
void fake_gone(int vm, enum end_reason why, const char *text);

/* ---- the engine under test
 * ---------------------------------------------------- */

struct env {
	struct fixture f; /* loop, store */
	struct engine *e;
	struct engine_config cfg;
	struct caller who;
};
extern struct env env;

void env_init(void);
void env_start(void); /* store, recovery, engine */
void env_stop(void);  /* as main does: engine, VMs, store */
void env_finish(void);
/* setup and teardown of a test: env_init; a calm disk, the real clock,
 * env_finish. */
int env_setup(void **state);
int env_teardown(void **state);
/* The clock stands so much ahead from now on. */
void env_pass(int64_t ms);
/* Let the loop run until nothing more happens for a moment. */
void env_settle(void);
void env_loop_for(int64_t ms); /* without a store operation of ours */

/* One pending call and what it was answered. */
struct call {
	int n_answers;
	bool is_inside; /* engine_run has not returned */
	struct err err;
	struct sandbox_rec sbx;
	struct command_rec cmd; /* copy, owned */
	struct waiter *w;
};
void call_finish(struct call *c);
/* Run `code` under `key`; spec may be NULL for the defaults. */
void call_run(struct call *c, const char *key, const struct run_spec *spec,
	      uint32_t wait_ms);
void call_get(struct call *c, const char *command, uint32_t wait_ms);
void call_cancel(struct call *c, const char *command);
void call_delete(struct call *c, const char *sandbox);
void call_wait(struct call *c); /* until it is answered */
void on_call_run(void *ctx, const struct err *e, const struct sandbox_rec *s,
		 const struct command_rec *cmd);
void on_call_sandbox(void *ctx, const struct err *e,
		     const struct sandbox_rec *s);
/* The sum example with its key and hash filled in. */
struct run_spec sum_spec(const char *key, uint32_t wait_ms);
/* From call to answer, with the given end. */
void run_through(struct call *c, const char *key);

#endif
