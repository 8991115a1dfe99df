/*
 * The records: what was asked and what came of it.
 *
 * Plain structs with owned strings; record.c encodes them as CBOR maps
 * (api/records.cddl) and decodes them under limits.  Enums are stored by
 * number: numbers never change.  Times are Unix milliseconds, 0 = not yet.
 * Values of env and stdin are never in a record: names and sizes only.
 */
#ifndef HUTCHD_RECORD_H
#define HUTCHD_RECORD_H

#include "bytes.h"
#include <stdbool.h>
#include <stdint.h>

#define ID_BYTES_MAX		  40 /* "sbx_" + 26, with room */
#define GRAPH_NAME_BYTES_MAX	  64
#define TEMPLATE_NAME_BYTES_MAX	  64
#define SNAPSHOT_NAME_BYTES_MAX	  64
#define SANDBOX_NAME_BYTES_MAX	  64
#define SANDBOX_LABELS_BYTES_MAX  4096 /* as ASCII JSON text */
#define TEMPLATE_CODE_BYTES_MAX	  (64u << 10)
#define TEMPLATE_CONFIG_BYTES_MAX (1u << 20)
#define TEMPLATE_FILES_MAX	  64
#define TEMPLATE_PATHS_BYTES_MAX  (16u << 10) /* of all its files */
#define FILE_NAME_BYTES_MAX	  1024
#define FILE_TYPE_BYTES_MAX	  255
#define FILE_PATH_BYTES_MAX	  4084 /* as the guest takes it */
#define ORIGIN_NAME_BYTES_MAX	  128
#define REASON_BYTES_MAX	  256
#define IDEMPOTENCY_KEY_BYTES_MAX 255
#define HASH_BYTES		  32
#define OUTPUT_HEAD_BYTES	  (48u << 10)
#define OUTPUT_TAIL_BYTES	  (48u << 10)

enum sandbox_status {
	SBX_STARTING = 1,
	SBX_RUNNING = 2,
	SBX_STOPPING = 3,
	SBX_STOPPED = 4,
	SBX_DESTROYING = 5,
	SBX_DESTROYED = 6, /* final */
	SBX_FAILED = 7,	   /* final: could not start */
	SBX_LOST = 8,	   /* final: the host lost it */
};

enum sandbox_kind { SBX_KIND_ONE_CALL = 1, SBX_KIND_HELD = 2 };

enum command_status {
	CMD_QUEUED = 1,
	CMD_RUNNING = 2,
	CMD_SUCCEEDED = 3, /* exit code 0 */
	CMD_FAILED = 4,	   /* exit code not 0, signal, oom, bad result */
	CMD_TIMED_OUT = 5,
	CMD_CANCELLED = 6,
	CMD_LOST = 7, /* outcome not known */
};

enum command_kind { CMD_KIND_RUN = 1, CMD_KIND_EXEC = 2 };

/* Why a command is not `succeeded`, for people and clients. */
enum end_reason {
	END_NONE = 0,
	END_EXIT_CODE = 1,
	END_SIGNAL = 2,
	END_TIMEOUT = 3,
	END_CANCELLED = 4,
	END_OOM = 5,
	END_NOT_STARTED = 6,
	END_RESULT_TOO_LARGE = 7,
	END_RESULT_NOT_JSON = 8,
	END_VM_LOST = 9,	 /* the VM died under it */
	END_DAEMON_RESTART = 10, /* hutchd was restarted */
	END_HOST_REBOOT = 11,
	END_GUEST_PROTOCOL = 12, /* the guest broke the protocol */
	END_PREPARE_FAILED = 13,
};

struct limits {
	uint32_t vcpus;
	uint32_t memory_mib;
	uint32_t disk_mib;
};

/* The step of a workflow that asked (LBB-45); workflow "" = none did. */
struct origin {
	char workflow[ORIGIN_NAME_BYTES_MAX + 1];
	char run[ORIGIN_NAME_BYTES_MAX + 1];  /* "" = not told, */
	char step[ORIGIN_NAME_BYTES_MAX + 1]; /* and so is this */
	uint64_t turn;			      /* 0 = not told, */
	uint32_t attempt;		      /* and so is this */
};

struct sandbox_rec {
	char id[ID_BYTES_MAX];
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	enum sandbox_status status;
	enum sandbox_kind kind;
	char template_name[TEMPLATE_NAME_BYTES_MAX + 1]; /* "lbb/python" */
	char template_id[ID_BYTES_MAX]; /* sbt_..., "" for a base */
	uint32_t template_version;	/* 0 for a base */
	char template_base[TEMPLATE_NAME_BYTES_MAX + 1];
	char snapshot[ID_BYTES_MAX];	  /* that it began from; "" = none */
	uint8_t image_sha256[HASH_BYTES]; /* of the root image */
	uint8_t kernel_sha256[HASH_BYTES];
	struct limits limits;
	uint32_t idle_seconds, expires_in_seconds;
	int64_t created_ms, started_ms, stopped_ms, ended_ms, last_active_ms,
		expires_ms;
	enum end_reason reason;
	char reason_text[REASON_BYTES_MAX];
	char progress[REASON_BYTES_MAX]; /* while starting; not stored */
	uint64_t incarnation;		 /* of the VM, grows with each start */
	char host_boot_id[40];
	char command[ID_BYTES_MAX];	       /* one-call: its command */
	char name[SANDBOX_NAME_BYTES_MAX + 1]; /* "" = none */
	/* A JSON object of strings, as ASCII text; "" = none. */
	char labels[SANDBOX_LABELS_BYTES_MAX + 1];
	struct origin origin;
};

struct output_rec {
	uint64_t total;	   /* bytes the stream has had */
	struct bytes head; /* first OUTPUT_HEAD_BYTES at most */
	struct bytes tail; /* last bytes after the head, [tail_at, total) */
	uint64_t tail_at;
	bool is_expired; /* erased by retention */
};

struct command_rec {
	char id[ID_BYTES_MAX];
	char sandbox[ID_BYTES_MAX];
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	/* Of its sandbox; "" in a record of version 1. */
	char template_name[TEMPLATE_NAME_BYTES_MAX + 1];
	char template_id[ID_BYTES_MAX];
	uint32_t template_version;
	char template_base[TEMPLATE_NAME_BYTES_MAX + 1];
	enum command_kind kind;
	enum command_status status;
	enum end_reason reason;
	char reason_text[REASON_BYTES_MAX];
	int32_t exit_code; /* -1 = none */
	int32_t signal;	   /* 0 = none */
	uint32_t timeout_ms;
	int64_t created_ms, started_ms, ended_ms;
	uint8_t code_sha256[HASH_BYTES], input_sha256[HASH_BYTES],
		config_sha256[HASH_BYTES];
	uint64_t code_bytes, input_bytes, config_bytes, stdin_bytes;
	struct bytes env_names; /* NUL separated */
	struct bytes argv;	/* EXEC: NUL separated */
	bool has_result;
	struct bytes result; /* JSON text as the guest gave it */
	uint64_t user_us, sys_us, rss_bytes;
	struct output_rec out[2]; /* 0 stdout, 1 stderr */
	struct origin origin;
};

/* SHA-256 of a snapshot's files; zeros = not known (a record of version 1). */
struct snapshot_sums {
	uint8_t state[HASH_BYTES];
	/* sparse_hash: wherever the holes are. */
	uint8_t mem[HASH_BYTES], disk[HASH_BYTES];
	uint8_t init[HASH_BYTES]; /* of the image with init */
};

/* What a sandbox was at a moment: memory, devices, disk (hostd/link). */
struct snapshot_rec {
	char id[ID_BYTES_MAX]; /* snp_... */
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	char name[SNAPSHOT_NAME_BYTES_MAX + 1]; /* "" = none */
	char sandbox[ID_BYTES_MAX];		/* of which it was taken */
	/* As in the sandbox's record. */
	char template_name[TEMPLATE_NAME_BYTES_MAX + 1];
	char template_id[ID_BYTES_MAX];
	uint32_t template_version;
	char template_base[TEMPLATE_NAME_BYTES_MAX + 1];
	char snapshot[ID_BYTES_MAX];
	uint8_t image_sha256[HASH_BYTES];
	uint8_t kernel_sha256[HASH_BYTES];
	struct limits limits;
	int64_t created_ms, expires_ms; /* 0 = never */
	uint64_t incarnation;		/* of the sandbox's VM */
	/* Bytes that the files take. */
	uint64_t state_bytes, mem_bytes, disk_bytes;
	struct snapshot_sums sums;
};

/* A File of the graph, as it was when a template that begins with it was
 * saved. */
struct template_file {
	char id[ID_BYTES_MAX]; /* fil_... */
	uint8_t sha256[HASH_BYTES];
	uint64_t bytes;
	struct bytes path; /* below the workspace */
};

struct template_files {
	struct template_file *at; /* owned; NULL = none */
	size_t n;
};

/* A saved template: one version of a name.  Nothing of it ever changes. */
struct template_rec {
	char id[ID_BYTES_MAX]; /* sbt_... */
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	char name[TEMPLATE_NAME_BYTES_MAX + 1];
	uint32_t version; /* of its name in its graph: 1, 2, ... */
	char base[TEMPLATE_NAME_BYTES_MAX + 1]; /* "lbb/python" */
	struct limits limits;
	uint32_t timeout_ms;
	int64_t created_ms;
	bool has_code, has_config;
	uint64_t code_bytes, config_bytes;
	uint8_t code_sha256[HASH_BYTES], config_sha256[HASH_BYTES];
	struct template_files files;
	/* Stored apart, and not read for lists.  config: JSON as it came. */
	struct bytes code, config;
};

void template_rec_finish(struct template_rec *t);
void template_files_finish(struct template_files *f);
/* Deep copies; -ENOMEM. */
int template_rec_copy(struct template_rec *dst, const struct template_rec *src);
int template_files_copy(struct template_files *dst,
			const struct template_files *src);
/* A File of a graph.  Its bytes are the host's, by their hash (hostd/blob). */
struct file_rec {
	char id[ID_BYTES_MAX]; /* fil_... */
	char environment[ID_BYTES_MAX];
	char graph[GRAPH_NAME_BYTES_MAX + 1];
	uint8_t sha256[HASH_BYTES];
	uint64_t bytes;
	int64_t uploaded_ms;
	char content_type[FILE_TYPE_BYTES_MAX + 1];
	struct bytes name; /* UTF-8 without control characters */
	/* Of one that was kept from a workspace; "" = it was not. */
	char origin_sandbox[ID_BYTES_MAX];
	struct bytes origin_path; /* below the workspace, any bytes */
	uint64_t seq;		  /* of its row: newer ones have larger ones */
};

void file_rec_finish(struct file_rec *r);
/* Deep copy; -ENOMEM. */
int file_rec_copy(struct file_rec *dst, const struct file_rec *src);
void command_rec_finish(struct command_rec *c);
/* Deep copy; -ENOMEM. */
int command_rec_copy(struct command_rec *dst, const struct command_rec *src);

const char *sandbox_status_name(enum sandbox_status s);
const char *command_status_name(enum command_status s);
const char *end_reason_name(enum end_reason r);
bool sandbox_status_is_final(enum sandbox_status s);
bool command_status_is_final(enum command_status s);

/* CBOR; 0 or -errno.  Output bytes are encoded apart (output_*). */
int sandbox_rec_encode(const struct sandbox_rec *r, struct bytes *out);
int sandbox_rec_decode(struct sandbox_rec *r, const void *cbor, size_t len);
int command_rec_encode(const struct command_rec *r, struct bytes *out);
int command_rec_decode(struct command_rec *r, const void *cbor, size_t len);
int snapshot_rec_encode(const struct snapshot_rec *r, struct bytes *out);
int snapshot_rec_decode(struct snapshot_rec *r, const void *cbor, size_t len);
/* Without code and config. */
int template_rec_encode(const struct template_rec *r, struct bytes *out);
int template_rec_decode(struct template_rec *r, const void *cbor, size_t len);
int file_rec_encode(const struct file_rec *r, struct bytes *out);
int file_rec_decode(struct file_rec *r, const void *cbor, size_t len);

/* The wall clock may be set back (K18): what came later is not told as earlier
 * than its beginning. */
static inline int64_t record_time(int64_t now_ms, int64_t not_before_ms)
{
	return now_ms > not_before_ms ? now_ms : not_before_ms;
}

/* started_ms: 0 = it never was. */
static inline int64_t record_end_time(int64_t now_ms, int64_t created_ms,
				      int64_t started_ms)
{
	return record_time(now_ms, started_ms ? started_ms : created_ms);
}

#endif
