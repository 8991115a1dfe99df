/*
 * Commands: processes that the host asked for, from start to acknowledged
 * end.  A waiting runner is a command that has no number yet.
 *
 *   QUEUED    asked for; the nest is busy, or no runner waits
 *   STARTING  the nest makes its process
 *   WARM      a runner or a spare waits: its process, pipes and group are
 *             ready
 *   ARMED     a waiting runner whose run comes by the express lane: it may run
 *             user code, or be dead, before ADOPT makes it a command
 *   RUNNING   user code runs
 *   STOPPING  its tree was told to end (time-out, KILL)
 *   DRAINING  its process ended; someone may still hold its pipes
 *   ENDED     ENDED was sent and is kept until the host acks it
 *
 * Moves are rows of one table in command.c; a pair that is not listed is
 * ignored (a late time-out, a second KILL).  What the host hears is made by
 * report.c, processes by exec.c and runner.c.
 */
#ifndef HUTCH_GUEST_COMMAND_H
#define HUTCH_GUEST_COMMAND_H

#include "list.h"
#include "loop.h"
#include "nest.h"
#include "stream.h"

struct guest;

enum cmd_state {
	CMD_QUEUED,
	CMD_STARTING,
	CMD_WARM,
	CMD_ARMED,
	CMD_RUNNING,
	CMD_STOPPING,
	CMD_DRAINING,
	CMD_ENDED,
	CMD_STATES_N
};

enum cmd_event {
	EV_START,   /* handed to the nest */
	EV_STARTED, /* its process exists */
	EV_FAILED,  /* it could not be started */
	EV_WARM,    /* the runner waits */
	EV_MOVED,   /* it is in its own control group */
	EV_RUN,	    /* the waiting runner got a request */
	EV_ARM,	    /* it is told to wait on its lane */
	EV_ADOPT,   /* the run that came by its lane is a command now */
	EV_SERVED,  /* that run was answered by the lane, or never was */
	EV_ANSWER,  /* the runner told how run() ended */
	EV_EXIT,    /* the process ended */
	EV_KILL,    /* the host said KILL */
	EV_TIMEOUT, /* its deadline (of STOPPING: of dying) passed */
	EV_CLOSED,  /* both pipes are at their end */
	EV_GRACE,   /* time for holders of its pipes is over */
	EV_N
};

enum cmd_kind { CMD_EXEC, CMD_RUNNER };

/* How run() ended, as the runner says. */
struct answer {
	bool is_set;
	enum gp_end how;
	int code;
	struct bytes text; /* JSON, or the reason */
};

struct channel {
	struct watch watch; /* fd -1 = none */
	struct bytes in, out;
	bool is_unread; /* it ended, and not all that was sent was read */
};

struct command {
	struct list node;
	struct guest *g;
	uint64_t number; /* 0 = not the host's (yet) */
	uint64_t tag;	 /* of the nest */
	enum cmd_kind kind;
	enum cmd_state state;
	bool is_over;	 /* freed at the end of the turn */
	bool is_foreign; /* of the sandbox that this one is a copy of */
	int slot;	 /* -1 = none */
	bool is_in_prep; /* lives in /prep, not (yet) in its slot */
	bool was_armed;	 /* WARM: by its own word, after ARMED */
	bool is_zygote;	 /* a runner that only makes others (zygote.h) */
	bool is_forked;	 /* a runner that one made */
	bool is_spare;	 /* an interpreter that waited for it (spare.h) */
	pid_t pid;	 /* as the nest sees it */
	int stat_fd;	 /* of one that waits (dying.h), or -1; owned */

	struct stream out[2];
	struct watch watch[2];
	struct timer deadline, flush, pause, holders, probe;
	uint64_t probe_ms;   /* from the last probe to the next */
	uint64_t tail_at_ns; /* earliest next send of the tail */
	uint64_t timeout_ms, grace_ms;

	struct bytes request; /* QUEUED, or a spare that may not have read it:
			       * the payload */
	struct channel channel;
	struct answer answer;
	enum gp_end stop_how; /* 0, or why it was stopped */
	bool is_killed;	      /* its group got SIGKILL */
	bool has_exited;
	int status; /* of wait(2) */
	char error[GP_TEXT_BYTES_MAX];
	struct bytes ended; /* payload of ENDED */
	/* Not the host's: whom to tell instead. */
	void (*done)(struct command *c);
};

struct commands {
	struct list all;
	size_t n;
	uint64_t last_number, last_tag;
};

const char *cmd_state_name(enum cmd_state s);

/* NULL without memory. */
struct command *command_new(struct guest *g, enum cmd_kind kind,
			    uint64_t number);
struct command *command_by_number(struct guest *g, uint64_t number);
struct command *command_by_tag(struct guest *g, uint64_t tag);
void command_event(struct command *c, enum cmd_event ev);
/* End that never started: NOT_STARTED with a reason. */
void command_refuse(struct command *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void command_on_tell(struct guest *g, const struct nest_tell *t);
void command_ack(struct command *c);
/* Between turns: free what is over. */
void commands_sweep(struct guest *g);
/* They go on, but nobody asked for them here: no time-out, no report. */
void commands_disown(struct guest *g);
/* All of them end at once: power-off. */
void commands_kill_all(struct guest *g);

#endif
