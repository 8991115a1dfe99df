/*
 * Spares: interpreters that wait for their command line.
 *
 * `python` as a command takes the interpreter's own start, which is most of a
 * short script's time, and 8 to 28 seconds where the guest's kernel is
 * interpreted.  So some interpreters are started ahead: the very program, run
 * by the nest as any command is, stopped between its set-up and its main
 * (runner/spare.c).  A command that names it becomes one of them; a command
 * that it cannot be is executed by that process, or, when none waits, started
 * by the nest.
 *
 *   spare -> init   WAITING, as a runner does; it is moved to its own group
 *   init -> spare   RUNNER_REQUEST_EXEC: stdin with it; cwd, argv, env
 *   spare -> init   the channel's end: started; or FAILED, errno and step
 *
 * It is the command's process in all: child of the nest, its own session, pipes
 * and group, nobody's fork.  It shares the uid of user code, which can end it:
 * one that was killed is not taken (dying.h), and a command that one was sent
 * and did not read is asked for again.
 */
#ifndef HUTCH_GUEST_SPARE_H
#define HUTCH_GUEST_SPARE_H

#include "command.h"

/* Of the request: cwd, argv and env with their NULs.  Far below what execve(2)
 * takes; more is left to it. */
#define SPARE_STRINGS_BYTES_MAX (64u << 10)

/* An argument and a variable of this length make room for the command line and
 * the environment that /proc shows later. */
#define SPARE_PAD	"HUTCH_PAD"
#define SPARE_PAD_BYTES 1000

struct spares {
	unsigned wanted; /* that shall wait */
	unsigned ends;	 /* how many ended before they waited */
};

/* Those that wait, or are being made. */
unsigned spare_count(const struct guest *g);
bool spare_is_coming(const struct guest *g);
bool spare_is_wanted(const struct guest *g);
/* One more; 0 or -errno. */
int spare_start(struct guest *g);

/* EXEC, the payload and what it says: c gives way to a spare; false: none can
 * be it. */
bool spare_take(struct command *c, const struct wire_map *m,
		const void *payload, size_t len);

/* What came on its channel: FAILED, and the end. */
void spare_failed(struct command *c, uint32_t error, const void *step,
		  size_t len);
void spare_closed(struct command *c);

#endif
