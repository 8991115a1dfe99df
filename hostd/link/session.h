/*
 * The guest protocol as hutchd plays it: bytes in, checked events out.
 *
 * A session knows no descriptor, no process and no clock: the channel feeds
 * it, its owner (vm.c, maker.c, a test, a fuzzer) hears of events.  All that
 * the guest says is checked here, and no event breaks these promises:
 *
 *   started   at most once a command, only for commands that were added
 *   output    after started, before ended; offsets grow and fit `total`;
 *             without gaps up to the head cap
 *   ended     at most once a command; numbers in range; a result only of a
 *             RUN that exited with 0, and then it is JSON of bounded size
 *
 *   file      events of the one call under way, by its op: entries in the order
 *             of their names and no more than asked for, bytes without a gap
 *             and no more than asked for, a next piece only while there is one;
 *             file_done once, and last
 *
 * A rule break ends the session: session_feed returns -EPROTO, `why` says
 * what was wrong, nothing more is read.  Frames of unknown or ended commands,
 * and those that say nothing (PONG without PING, output without a byte), are
 * dropped and counted, and break the rules only when there are very many.
 */
#ifndef HUTCHD_SESSION_H
#define HUTCHD_SESSION_H

#include "frame.h"
#include "vm.h"

/* Commands not yet acknowledged: 8 run, 32 wait, and their ends. */
#define SESSION_CMDS_MAX   64
#define SESSION_STRAYS_MAX 1000
/* While a template is prepared: more than one a millisecond for minutes.  A
 * bound guest may say it, too, between the ends of commands: it makes a runner.
 */
#define SESSION_PROGRESS_MAX 100000
#define SESSION_COUNT_MAX    (1ull << 53) /* bytes, microseconds */

enum session_state {
	SES_BOOTING = 0,   /* HELLO is awaited */
	SES_PREPARING = 1, /* READY is awaited */
	SES_PREPARED = 2,  /* the snapshot point: the guest is silent */
	SES_BINDING = 3,   /* BOUND is awaited */
	SES_BOUND = 4,	   /* commands */
	SES_CLOSED = 5,
	SES_N,
};

struct session_ops {
	void (*hello)(void *ctx, const char *kernel, const char *init);
	void (*progress)(void *ctx, const char *text);
	void (*ready)(void *ctx, const char *error); /* NULL = ok */
	void (*bound)(void *ctx, const char *error); /* NULL = ok */
	void (*started)(void *ctx, uint64_t cmd);
	void (*output)(void *ctx, uint64_t cmd, int stream, uint64_t offset,
		       uint64_t total, const uint8_t *data, size_t len);
	void (*ended)(void *ctx, uint64_t cmd, const struct vm_end *end);
	void (*pong)(void *ctx); /* once for each has_ping */
	void (*file_entry)(void *ctx, uint64_t number,
			   const struct vm_file_entry *e);
	void (*file_data)(void *ctx, uint64_t number, const uint8_t *data,
			  size_t len);
	/* `max`: of the next piece; it must be given, or an empty one. */
	void (*file_more)(void *ctx, uint64_t number, size_t max);
	void (*file_done)(void *ctx, uint64_t number,
			  const struct vm_file_end *end);
};

/* The call on files that is under way. */
struct session_file {
	uint64_t number; /* 0 = none */
	enum gp_file_op op;
	uint64_t offset, limit; /* of a read; limit also of a list */
	uint64_t got;		/* bytes, entries */
	uint64_t left;		/* of a write: still to be given */
	bool is_alone;		/* the entry is the path itself */
	uint8_t last[GP_FILE_NAME_BYTES_MAX]; /* name of an entry */
	size_t last_len;
	int64_t deadline_ms; /* the owner's; 0 = none */
};

enum cmd_state { CS_FREE = 0, CS_SENT, CS_STARTED, CS_ENDED };

struct session_cmd {
	uint64_t cmd;
	enum cmd_state state;
	bool is_run;
	uint32_t timeout_ms;
	struct {
		uint64_t next, total;
	} out[2];
	int64_t deadline_ms; /* the owner's; 0 = none */
	int64_t start_ms;    /* the owner's: from sent to STARTED */
	bool is_cancelled;   /* the owner's: KILL was sent */
};

struct session {
	enum session_state state;
	const struct session_ops *ops;
	void *ctx;
	struct frame_reader reader;
	struct session_cmd cmds[SESSION_CMDS_MAX];
	struct session_file file;
	bool has_ping; /* the owner's: PING was sent, PONG is awaited */
	uint64_t n_frames, n_strays, n_progress;
	uint32_t n_lanes; /* with READY */
	char why[160];	  /* of the rule break */
};

void session_init(struct session *s, enum session_state state,
		  const struct session_ops *ops, void *ctx);
void session_finish(struct session *s);
/*
 * Another process takes the guest's place: what came so far is forgotten, the
 * commands that were added stay.  Not after a command started.
 */
void session_restart(struct session *s, enum session_state state);
/* Has a part of a frame come? */
bool session_is_mid_frame(const struct session *s);
/* No event follows, also when called from within one. */
void session_close(struct session *s);

/* 0 or -EPROTO, -ENOMEM.  Events come from within. */
int session_feed(struct session *s, const void *data, size_t len);

/* A command number was sent.  -EEXIST, -ENOSPC, -EINVAL (number 0). */
int session_cmd_add(struct session *s, uint64_t cmd, bool is_run,
		    uint32_t timeout_ms);
/* NULL when there is none. */
struct session_cmd *session_cmd_find(struct session *s, uint64_t cmd);
/* The owner settled the command itself: what follows of it is a stray. */
void session_cmd_end(struct session_cmd *c);
/* Forget it: its number is unknown from now on. */
void session_cmd_free(struct session_cmd *c);

/* A call was sent, with `given` bytes of a write.  -EBUSY: another is under
 * way. */
int session_file_begin(struct session *s, uint64_t number,
		       const struct vm_file *f, size_t given);

const char *session_state_name(enum session_state s);

#endif
