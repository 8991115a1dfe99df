/*
 * One microVM as the engine sees it: start, run, kill, and what it says.
 *
 * vm.c owns the hutch-vmm process (pidfd), its control socket and the frames
 * of the channel.  All functions and callbacks: loop thread.  Everything the
 * guest says is checked here (sizes, order, unknown commands, first end wins)
 * before a callback sees it.
 */
#ifndef HUTCHD_VM_H
#define HUTCHD_VM_H

#include "../store/record.h"
#include "err.h"
#include "guest_proto.h"

struct loop;
struct link; /* paths, templates, uids: one per daemon */
struct vm;

/* What to start from: a base template and a shape.  RAM classes and vCPU
 * counts are rounded up to what snapshots exist for (template.h). */
struct vm_spec {
	char base[TEMPLATE_NAME_BYTES_MAX + 1]; /* "lbb/python" */
	struct limits limits;			/* exact, of the sandbox */
	char sandbox[ID_BYTES_MAX];		/* for logs and hostname */
};

struct vm_run {
	const void *code, *input, *config; /* input, config: NULL = null */
	size_t code_len, input_len, config_len;
	uint32_t timeout_ms;
	const char *const *env; /* "NAME=value", NULL terminated, may be NULL */
};

struct vm_exec {
	const char *const *argv; /* NULL terminated */
	const char *cwd;	 /* NULL = /workspace */
	const void *stdin_data;
	size_t stdin_len;
	uint32_t timeout_ms;
	const char *const *env;
};

struct vm_end {
	enum gp_end how;
	int code, signal;
	const uint8_t *result; /* NULL = none; JSON syntax checked */
	size_t result_len;
	const char *error; /* printable, at most GP_TEXT_BYTES_MAX */
	uint64_t stdout_bytes, stderr_bytes, user_us, sys_us, rss_bytes;
};

/* One call on the workspace. */
struct vm_file {
	enum gp_file_op op;
	const void *path; /* relative, GP_FILE_PATH_BYTES_MAX; may be empty */
	size_t path_len;
	uint64_t offset;   /* of a read */
	uint32_t limit;	   /* bytes of a read, entries of a list; not 0 */
	bool is_whole;	   /* a read: a larger file is refused */
	const void *after; /* of a list: names behind this one; or NULL */
	size_t after_len;
	const void *data; /* of a write; borrowed until it is done */
	size_t data_len;
	/* Of a write without data: bytes that file_more asks for. */
	uint64_t more;
	uint32_t timeout_ms; /* the guest gives up then */
};

struct vm_file_entry {
	const uint8_t *name; /* any bytes but NUL and '/' */
	size_t name_len;     /* 0: the path itself, and nothing else */
	enum gp_file_type type;
	uint64_t size, mtime_ms;
	uint32_t mode;
};

struct vm_file_end {
	enum gp_file_how how;
	const char *error; /* printable; of no meaning with GP_FILE_OK */
	uint64_t size;	   /* of the file */
	bool has_more;	   /* names follow those of the list */
	/* Of a read: the file's state, when it did not change meanwhile. */
	bool has_stamp;
	uint8_t stamp[GP_FILE_STAMP_BYTES];
};

struct vm_ops {
	/* Preparing a template for the first time: text for people. */
	void (*progress)(void *ctx, const char *text);
	/* The guest has its identity: user code may run from now on. */
	void (*bound)(void *ctx);
	void (*started)(void *ctx, uint64_t cmd);
	/* stream 0 stdout, 1 stderr; bytes [offset, offset+len); total so far
	 */
	void (*output)(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		       uint64_t total, const uint8_t *data, size_t len);
	void (*ended)(void *ctx, uint64_t cmd, const struct vm_end *end);
	/* What vm_stop came to: NULL = all is in files, and the VM may be
	 * destroyed; else it goes on, and that is why. */
	void (*stopped)(void *ctx, const char *error);
	/* Of the call on files that is under way: names or bytes, checked
	 * against what was asked for, then its end. */
	void (*file_entry)(void *ctx, uint64_t number,
			   const struct vm_file_entry *e);
	void (*file_data)(void *ctx, uint64_t number, const uint8_t *data,
			  size_t len);
	/* `len` bytes of a write are wanted: vm_file_piece, or
	 * vm_file_give_up. */
	void (*file_more)(void *ctx, uint64_t number, size_t len);
	void (*file_done)(void *ctx, uint64_t number,
			  const struct vm_file_end *end);
	/* Last callback, exactly once, also after vm_destroy: the process is
	 * reaped and its files are gone. */
	void (*gone)(void *ctx, enum end_reason why, const char *text);
};

/*
 * Start one.  Returns at once; when the template's snapshot is not there yet
 * it is made first (progress).  Commands may be given at once: they travel
 * with BIND.  -1 with `e` filled when it cannot even begin (unknown base,
 * no room on disk).
 */
int vm_create(struct vm **ret, struct link *link, const struct vm_spec *spec,
	      const struct vm_ops *ops, void *ctx, struct err *e);
/* cmd: numbers from 1, unique in this VM.  Copies what it needs. */
int vm_run(struct vm *vm, uint64_t cmd, const struct vm_run *run);
int vm_exec(struct vm *vm, uint64_t cmd, const struct vm_exec *exec);
int vm_kill(struct vm *vm, uint64_t cmd, uint32_t grace_ms);
/* The end of `cmd` is durable: the guest may forget it. */
void vm_ack(struct vm *vm, uint64_t cmd);
/*
 * A call on files (vm_file.c): `file_done` follows, or `gone`.  number: from 1,
 * of its own.  0, -EBUSY (another is under way), -ENOBUFS (not now),
 * -ESHUTDOWN.
 */
int vm_file(struct vm *vm, uint64_t number, const struct vm_file *f);
/* What file_more asked for, exactly.  0, -ESHUTDOWN, or -EINVAL: it did not ask
 * for so many. */
int vm_file_piece(struct vm *vm, uint64_t number, const void *data, size_t len);
/* The bytes of a write are not there any more: what has not got its name yet
 * never gets it.  `file_done` follows all the same. */
void vm_file_give_up(struct vm *vm);
/* SIGKILL; `gone` follows.  The VM must not be used after. */
void vm_destroy(struct vm *vm);
/*
 * Keep memory, devices and disk as files of its sandbox (vm_stop.c); `stopped`
 * follows.  No command may be known to it: all have ended and were
 * acknowledged, no call on files is under way, and none is given until then. 0,
 * or -EBUSY, -EAGAIN (not now), another -errno.
 */
int vm_stop(struct vm *vm);
/* As vm_create, from the files of spec's sandbox.  END_NOT_STARTED and
 * END_PREPARE_FAILED: it did not go on, and the files are what they were. */
int vm_create_stopped(struct vm **ret, struct link *link,
		      const struct vm_spec *spec, const struct vm_ops *ops,
		      void *ctx, struct err *e);
bool vm_stopped_is_there(const struct link *link, const char *sandbox);
/* Remove its files, if there are any; not while its VM lives. */
void vm_stopped_remove(struct link *link, const char *sandbox);
/* Those of all sandboxes that are not kept. */
void vm_stopped_sweep(struct link *link,
		      bool (*is_kept)(void *ctx, const char *sandbox),
		      void *ctx);

int vm_pid(const struct vm *vm); /* 0 while there is none */
/* Since when its vCPUs run for it, monotonic us; 0 = not yet.  For a claimed
 * VM that is its resumption. */
/* Was this command given by the express lane?  It runs since `bound`, and
 * `started` comes when it answers or is adopted. */
bool vm_is_by_lane(const struct vm *vm, uint64_t cmd);
int64_t vm_ready_us(const struct vm *vm);

/*
 * A VM that is restored ahead, takes its identity (fresh entropy, machine id,
 * `sandbox` of the spec as its host name, the limits) and confirms it, and then
 * waits, paused, for a sandbox of that very name.
 */
struct vm_pool_ops {
	void (*waiting)(void *ctx); /* it can be claimed */
	/* Last callback unless it is claimed, once, also after vm_destroy. */
	void (*gone)(void *ctx, enum end_reason why, const char *text);
};
/*
 * Never makes a template: -1 with ERR_UNAVAILABLE when the snapshot is not
 * known to be there (it is looked for, so a later call may find it).
 */
int vm_create_pooled(struct vm **ret, struct link *link,
		     const struct vm_spec *spec, const struct vm_pool_ops *ops,
		     void *ctx, struct err *e);
/* Its snapshot is still the one that a new VM would be restored from. */
bool vm_is_current(const struct vm *vm);
/* Its runner waits at the doorbell of the express lane (api/lane.h). */
bool vm_has_lane(const struct vm *vm);
/*
 * From now on it is the VM that vm_create would give for its spec: commands may
 * be given at once, `bound` follows.  One that turns out to be dead or to have
 * spoken out of turn is ended, and another is restored in its place: nothing
 * was given to it.  0, or -ESTALE (not waiting, or of an old snapshot): then it
 * is the caller's as before.
 */
int vm_claim(struct vm *vm, const struct vm_ops *ops, void *ctx);

/* Bytes of RAM and disk this VM commits on the host (its class, not the
 * limit asked for), for admission. */
void vm_spec_cost(const struct vm_spec *spec, uint64_t *ret_ram_bytes,
		  uint64_t *ret_disk_bytes);

#endif
