/*
 * Runners: interpreters that wait for run(input, config).
 *
 * A runner is started before the snapshot, imports its libraries and says
 * that it waits.  RUN is one write on its channel (python, node) or a few
 * into files of its tmpfs folder and one byte (shell).  It serves one run and
 * is killed after it; another is started when the sandbox is idle.
 *
 * The channel is a stream socket at RUNNER_FD, private to the runner:
 *
 *   init -> runner   struct runner_request, then code, input, config, env
 *   runner -> init   struct runner_message, then `len` bytes
 *
 * User code shares the runner's process, so what comes back is as hostile as
 * user code: sizes are checked and a result must be JSON.
 */
#ifndef HUTCH_GUEST_RUNNER_H
#define HUTCH_GUEST_RUNNER_H

#include "command.h"
#include "ended.h"

#define RUNNER_REQUEST_RUN 1u
/* Wait on the lane; no bytes follow.  ARMED before it, WAITING when it is
 * closed again. */
#define RUNNER_REQUEST_ARM 2u
/* To a zygote: the tag, and with it the descriptors of stdout, stderr and
 * channel of a new runner. */
#define RUNNER_REQUEST_FORK 3u
/* To a spare (spare.h): descriptor of stdin; code_len bytes of strings, each
 * with its NUL: cwd, argc of argv, envc of env. */
#define RUNNER_REQUEST_EXEC 4u

struct runner_request {
	uint32_t kind; /* RUNNER_REQUEST_* */
	uint32_t code_len;
	union {
		uint32_t input_len;
		uint32_t argc; /* EXEC */
	};
	union {
		uint32_t config_len;
		uint32_t envc; /* EXEC */
	};
	uint32_t env_len; /* "NAME=value" strings, each NUL terminated */
	uint32_t tag;	  /* FORK: comes back in DIED */
};

struct runner_message {
	uint32_t kind, code, len;
};

/* A new runner; `done` when it ends before its run. 0 or -errno. */
int runner_start(struct guest *g, void (*done)(struct command *c));
/* The same program as a zygote; *ret is it. */
int runner_start_zygote(struct guest *g, void (*done)(struct command *c),
			struct command **ret);
/* A command that was not started after all. */
void runner_undo(struct command *c);
/* Both ends of its channel: ours is watched, *ret_theirs is owned. */
int runner_channel_make(struct command *c, int *ret_theirs);
/* RUN: c is QUEUED and gives way to a waiting runner, now or later. */
void runner_ask(struct command *c, const void *payload, size_t len);
/* EV_WARM: it waits, and is moved to a group of its own. */
void runner_warm(struct command *c);
/* EV_MOVED: ready for a run; gives it the oldest queued one. */
void runner_moved(struct command *c);
/* The process ended or is about to be killed: what its channel still holds. */
void runner_collect(struct command *c);
/* run()'s result as text, from channel or file; checked here. */
void runner_result(struct command *c, const void *text, size_t len);
/* Runners that nobody's run was given to: they wait, or are being made. */
unsigned runner_count(const struct guest *g);
enum runner_kind runner_kind_of(const char *name, size_t len);

/* One message taken from `in`: 1 and it was handled, 0 = more bytes needed,
 * -EPROTO = not a message. */
int runner_message_take(struct command *c);

#endif
