/*
 * Guest protocol, version 1: what hutchd and hutch-init say to each other.
 *
 * One reliable byte stream (virtio-vsock, port GP_PORT_AGENT of the host)
 * carries frames both ways.  A frame is a 16-byte header and a payload.  The
 * payload is one CBOR map with unsigned integer keys (shapes: api/guest.cddl),
 * except for GP_OUTPUT, whose payload is `struct gp_output_head` and raw
 * bytes, GP_FILE_DATA (`struct gp_file_head` and raw bytes), GP_FILE_PIECE (raw
 * bytes), and GP_PROGRESS, whose payload is UTF-8 text of at most
 * GP_TEXT_BYTES_MAX bytes.  All integers of headers are little endian.
 *
 * Trust: hutchd believes nothing that comes from the guest.  It bounds each
 * frame by GP_UP_BYTES_MAX before it reads the body, ignores unknown commands,
 * and takes the first end of a command only.  The guest trusts the host.
 *
 * Order of a life:
 *
 *   guest -> HELLO                 after boot, once per connection
 *   host  -> WELCOME, PREPARE      mount, start the waiting runner, warm up
 *   guest -> READY
 *   host  -> ARM                   when it has a lane (lane.h)
 *   --- snapshot, restore in a fresh process, same connection ---
 *   host  -> BIND, RUN | EXEC ...  BIND and the first command travel together
 *   guest -> BOUND, STARTED, OUTPUT*, ENDED
 *   host  -> ACK                   ENDED is durable on the host
 *
 * A sandbox that runs may be copied, and the copy bound to an identity of its
 * own; numbers of its commands are above all that the first one was given:
 *
 *   host  -> HOLD
 *   guest -> PONG                  nothing after it
 *   --- snapshot ---
 *   host  -> GO                    here it goes on; in a restored one BIND ...
 *
 * Files of the workspace, after BOUND, one call at a time; calls have numbers
 * of their own:
 *
 *   host  -> FILE                  list, read, write or delete
 *   guest -> FILE_ENTRY *          of a list, in the order of their bytes
 *   guest -> FILE_DATA *           of a read, without gaps
 *   guest -> FILE_MORE             of a write: the next piece is wanted
 *   host  -> FILE_PIECE            an empty one gives the write up
 *   guest -> FILE_DONE
 *
 * No user code runs before BOUND.  A command number starts at most once.
 * Plain C, standard headers only: both ends compile this file.
 */
#ifndef HUTCH_GUEST_PROTO_H
#define HUTCH_GUEST_PROTO_H

#include <assert.h>
#include <stdint.h>

#define GP_VERSION    1
#define GP_PORT_AGENT 1024 /* vsock port on the host, CID 2 */
#define GP_GUEST_CID  3

/* Largest payloads in bytes.  Down: code + input + config + stdin + env. */
#define GP_DOWN_BYTES_MAX (4u << 20)
#define GP_UP_BYTES_MAX	  (96u << 10)
/* Most stream bytes in one GP_OUTPUT frame. */
#define GP_OUTPUT_BYTES_MAX (48u << 10)
/* A result is JSON text of at most this many bytes. */
#define GP_RESULT_BYTES_MAX (48u << 10)
/* A message text (an error, a reason) in bytes. */
#define GP_TEXT_BYTES_MAX 512
/* Files.  A path is relative to the workspace, so that with "/workspace/"
 * before it the kernel takes it (PATH_MAX with its NUL); a name is one
 * component. */
#define GP_FILE_PATH_BYTES_MAX 4084
#define GP_FILE_NAME_BYTES_MAX 255
/* What one read gives, what one write takes; and the names of one list. */
#define GP_FILE_BYTES_MAX   (4u << 20)
#define GP_FILE_ENTRIES_MAX 1000
/* Of a write in one frame; of a read in one frame. */
#define GP_FILE_PIECE_BYTES_MAX (192u << 10)
#define GP_FILE_DATA_BYTES_MAX	(48u << 10)
/* What tells one state of a file from another. */
#define GP_FILE_STAMP_BYTES 32
/* For the kernel's generator: of PREPARE and of BIND. */
#define GP_ENTROPY_BYTES 64

enum gp_type {
	/* guest to host */
	GP_HELLO = 1,
	GP_READY = 2,	/* answer to PREPARE */
	GP_BOUND = 3,	/* answer to BIND */
	GP_STARTED = 4, /* the command's process exists */
	GP_OUTPUT = 5,
	GP_ENDED = 6, /* after the last OUTPUT of both streams */
	GP_PONG = 7,
	GP_PROGRESS = 8, /* text: what PREPARE is doing */
	GP_FILE_ENTRY = 9,
	GP_FILE_DATA = 10,
	GP_FILE_MORE = 11,
	GP_FILE_DONE = 12, /* once a call, and its last */
	/* host to guest */
	GP_WELCOME = 65,
	GP_PREPARE = 66,
	GP_BIND = 67,
	GP_RUN = 68,
	GP_EXEC = 69,
	GP_KILL = 70,
	GP_ACK = 71,
	GP_PING = 72,
	GP_POWEROFF = 73,
	/* Express lane (lane.h).  ARM: the waiting runner makes a rehearsal,
	 * then it (or init, before BIND) rings READY; nothing is answered on
	 * the channel.
	 * ADOPT: the run that it was given by the lane is command `cmd` of
	 * init from now on; answered as RUN is. */
	GP_ARM = 74,
	GP_ADOPT = 75,
	/* HOLD: PONG is init's last word until GO or BIND, so that a snapshot
	 * of the VM cuts no frame.  GO: all goes on.  BIND instead of it: this
	 * is another sandbox now; commands that init knows go on without a
	 * time-out, and nobody is told of them any more; those that have no
	 * process yet are forgotten. */
	GP_HOLD = 76,
	GP_GO = 77,
	/* head.cmd is the call's number in these and in their answers. */
	GP_FILE = 78,
	GP_FILE_PIECE = 79,
};

struct gp_head {
	uint32_t len; /* of the payload, in bytes */
	uint16_t type;
	uint16_t reserved; /* 0 */
	uint64_t cmd;	   /* command number, from 1; 0 = the session */
};
static_assert(sizeof(struct gp_head) == 16, "wire");

enum gp_stream { GP_STDOUT = 1, GP_STDERR = 2 };

/*
 * offset: of the first byte in the whole stream.  Up to the command's head cap
 * the frames are gapless.  After that the guest keeps the last tail-cap bytes
 * only and sends them when the command ends, and at most once a second while
 * it runs; total says how many bytes the stream has had so far.
 */
struct gp_output_head {
	uint64_t offset;
	uint64_t total;
	uint8_t stream;
	uint8_t pad[7];
};
static_assert(sizeof(struct gp_output_head) == 24, "wire");

/* Of GP_FILE_DATA; offset: of the first byte in the file. */
struct gp_file_head {
	uint64_t offset;
};
static_assert(sizeof(struct gp_file_head) == 8, "wire");

enum gp_file_op {
	GP_FILE_LIST = 1,
	GP_FILE_READ = 2,
	GP_FILE_WRITE = 3, /* whole, by rename; folders on the way are made */
	GP_FILE_DELETE = 4,
};

enum gp_file_type {
	GP_TYPE_FILE = 1,
	GP_TYPE_DIRECTORY = 2,
	GP_TYPE_SYMLINK = 3,
	GP_TYPE_FIFO = 4,
	GP_TYPE_SOCKET = 5,
	GP_TYPE_DEVICE = 6,
};

/* What a call came to (key 1 of FILE_DONE). */
enum gp_file_how {
	GP_FILE_OK = 1,
	GP_FILE_NOT_FOUND = 2,
	GP_FILE_OUTSIDE = 3,	/* a link leads out of the workspace */
	GP_FILE_WRONG_TYPE = 4, /* a folder, a FIFO, a device ... */
	GP_FILE_NOT_EMPTY = 5,
	GP_FILE_DENIED = 6,
	GP_FILE_FULL = 7, /* the disk, or the user's share of it */
	GP_FILE_TOO_LARGE = 8,
	GP_FILE_BAD_NAME = 9,
	GP_FILE_TIMED_OUT = 10,
	GP_FILE_GIVEN_UP = 11, /* by an empty piece, or by BIND */
	GP_FILE_FAILED = 12,
};

/* How a command ended (key 1 of ENDED). */
enum gp_end {
	GP_END_EXITED = 1,    /* code: 0..255 */
	GP_END_SIGNALED = 2,  /* signal */
	GP_END_TIMED_OUT = 3, /* its own time-out; the whole tree was killed */
	GP_END_CANCELLED = 4, /* KILL by the host */
	GP_END_OOM = 5,	      /* killed by the memory limit */
	GP_END_NOT_STARTED = 6, /* error text says why (ENOENT, E2BIG ...) */
	GP_END_RESULT_TOO_LARGE = 7,
	GP_END_RESULT_NOT_JSON = 8, /* run() gave what JSON cannot hold */
};

/* Map keys of each payload; shapes in guest.cddl. */
enum gp_hello_key {
	GP_HELLO_VERSION = 1,
	GP_HELLO_KERNEL = 2,
	GP_HELLO_INIT = 3
};
enum gp_welcome_key { GP_WELCOME_VERSION = 1 };
enum gp_prepare_key {
	GP_PREPARE_RUNNER = 1,	/* "python" "node" "shell" or "none" */
	GP_PREPARE_PRELOAD = 2, /* bool: import the heavy libraries */
	GP_PREPARE_DISK = 3,	/* bool: mount /dev/vdc */
	GP_PREPARE_ENTROPY = 4, /* bytes, 64 */
};
enum gp_ready_key {
	GP_READY_OK = 1,
	GP_READY_ERROR = 2,
	GP_READY_LANES = 3, /* express lanes of the waiting runners */
};
enum gp_bind_key {
	GP_BIND_ENTROPY = 1,	/* bytes, 64 */
	GP_BIND_WALL_NS = 2,	/* CLOCK_REALTIME, ns */
	GP_BIND_HOSTNAME = 3,	/* text */
	GP_BIND_MACHINE_ID = 4, /* text, 32 hex */
	GP_BIND_MEM_BYTES = 5,	/* limit of user code, all of it together */
	GP_BIND_PIDS = 6,	/* processes and threads of user code */
	GP_BIND_DISK_BYTES = 7, /* 0 = no limit beyond the disk */
};
/* GP_ADOPT has TIMEOUT_MS (what is left), HEAD_MAX and TAIL_MAX of GP_RUN. */
enum gp_bound_key { GP_BOUND_OK = 1, GP_BOUND_ERROR = 2 };
/* RUN; EXEC has the same numbers where they mean the same. */
enum gp_run_key {
	GP_RUN_CODE = 1,   /* bytes, UTF-8 source */
	GP_RUN_INPUT = 2,  /* bytes, JSON text; absent = null */
	GP_RUN_CONFIG = 3, /* bytes, JSON text; absent = null */
	GP_RUN_TIMEOUT_MS = 4,
	GP_RUN_ENV = 5,	     /* array of "NAME=value" byte strings */
	GP_RUN_HEAD_MAX = 6, /* output caps per stream, bytes */
	GP_RUN_TAIL_MAX = 7,
	GP_EXEC_ARGV = 8,   /* array of byte strings, 1 or more */
	GP_EXEC_CWD = 9,    /* text; absent = /workspace */
	GP_EXEC_STDIN = 10, /* bytes */
};
enum gp_file_key {
	GP_FILE_KEY_OP = 1,
	GP_FILE_KEY_PATH = 2,	/* bytes; empty = the workspace itself */
	GP_FILE_KEY_OFFSET = 3, /* of a read */
	GP_FILE_KEY_LIMIT = 4,	/* bytes of a read, names of a list */
	GP_FILE_KEY_WHOLE = 5,	/* bool: a file of more than LIMIT is refused */
	GP_FILE_KEY_SIZE = 6,	/* of a write: all of it */
	GP_FILE_KEY_DATA = 7,	/* of a write: its first piece */
	GP_FILE_KEY_AFTER = 8,	/* of a list: names behind this one */
	GP_FILE_KEY_TIMEOUT_MS = 9,
};
enum gp_file_entry_key {
	GP_ENTRY_NAME = 1, /* bytes; absent: the path itself, alone */
	GP_ENTRY_TYPE = 2,
	GP_ENTRY_SIZE = 3,
	GP_ENTRY_MTIME_MS = 4, /* since 1970; 0 = before that */
	GP_ENTRY_MODE = 5,     /* 0..07777 */
};
enum gp_file_done_key {
	GP_DONE_HOW = 1,
	GP_DONE_ERROR = 2,
	GP_DONE_SIZE = 3, /* of the file that was read or written */
	GP_DONE_MORE = 4, /* bool: names follow those of the list */
	/* bytes: of the file that was read, the same before and after; absent:
	 * it changed meanwhile, or did so just before.  Reads with one stamp
	 * are of one state of one file. */
	GP_DONE_STAMP = 5,
};
enum gp_kill_key {
	GP_KILL_GRACE_MS = 1 /* TERM first, KILL after; 0 = KILL */
};
enum gp_ended_key {
	GP_ENDED_HOW = 1, /* enum gp_end */
	GP_ENDED_CODE = 2,
	GP_ENDED_SIGNAL = 3,
	GP_ENDED_RESULT = 4, /* bytes, JSON text; absent = no result */
	GP_ENDED_ERROR = 5,  /* text */
	GP_ENDED_STDOUT_BYTES = 6,
	GP_ENDED_STDERR_BYTES = 7,
	GP_ENDED_USER_US = 8, /* CPU time of the tree */
	GP_ENDED_SYS_US = 9,
	GP_ENDED_RSS_BYTES = 10, /* peak of the cgroup */
};

#endif
