/*
 * A runner's end of its express lane (api/lane.h): lane.so.
 *
 * Made for interpreters that can call C: python loads it by ctypes.  One run a
 * process, one thread.  A run on the lane needs hardly a system call: the
 * request is read and the answer written in memory that the monitor shares,
 * the doorbell is one port write.  What is left are the reads of the run's own
 * two pipes and getrusage(2).
 *
 *   lane_open      once, before the snapshot
 *   lane_rehearse  a run that the monitor does not see, to touch what one
 *                  touches; lane_finish belongs to it as to a real one
 *   lane_wait      READY; comes back with a run, or closed.  Before BIND init
 *                  rings in its place (lane_bell.h) and it sleeps meanwhile
 *   lane_finish    the answer, unless the run was adopted
 *
 * Children: a fork has neither the page nor, when the C library made it, the
 * right to ring.  A program started by vfork or clone keeps that right; all it
 * can do with it is to disturb its own sandbox, as the run itself can.
 */
#ifndef HUTCH_GUEST_RUNNER_LANE_CALL_H
#define HUTCH_GUEST_RUNNER_LANE_CALL_H

#include <stddef.h>
#include <stdint.h>

#define LANE_API __attribute__((visibility("default")))

struct lane_part {
	const void *data; /* borrowed: until lane_finish */
	size_t len;
};

/* As on the channel (runner.h): env is "NAME=value" strings, each with a NUL.
 */
struct lane_run {
	struct lane_part code, input, config, env;
	/* Not 0: BIND came since the call of lane_wait, so what was seeded
	 * before is shared with all clones. */
	uint32_t was_unbound;
};

enum lane_end {
	LANE_END_CLOSED = 0,   /* wait: the channel is to be read */
	LANE_END_RUN = 1,      /* wait: here is one */
	LANE_END_TOLD = 2,     /* finish: answered; nothing is left to do */
	LANE_END_ADOPTED = 3,  /* finish: the channel gets the answer */
	LANE_END_NOT_MINE = 4, /* finish: this is a fork of the runner */
	LANE_END_BOUND = 5,    /* wait: BIND came alone; seed, and wait again */
};

/*
 * Maps the page and takes over the two read ends: those of the process's own
 * standard output and error.  The descriptors given are closed.  0 or -errno.
 */
LANE_API int lane_open(uint32_t lane, int page_fd, int out_fd, int err_fd);
LANE_API int lane_rehearse(const void *code, size_t code_len, const void *input,
			   size_t input_len, struct lane_run *ret);
/* LANE_END_CLOSED, _RUN, _BOUND, or _TOLD: a request that cannot be read. */
LANE_API int lane_wait(struct lane_run *ret);
/* kind, code, text: as a message on the channel (enum runner_message_kind). */
LANE_API int lane_finish(uint32_t kind, uint32_t code, const void *text,
			 size_t len);

#endif
