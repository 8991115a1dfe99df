/*
 * Ends of commands: the payload of ENDED, and what a runner's words about
 * run() come to.
 *
 * Made in two places by the same rules: by init from what it saw (report.c),
 * and by a runner that answers through its express lane (runner/lane.c).
 */
#ifndef HUTCH_GUEST_ENDED_H
#define HUTCH_GUEST_ENDED_H

#include "guest_proto.h"
#include "wire.h"

struct ended {
	enum gp_end how;
	int code, signal;
	struct span result; /* data NULL = none */
	const char *error;  /* NULL = none */
	uint64_t stream_bytes[2];
	uint64_t user_us, sys_us, rss_bytes;
};

/* Appends the payload; 0 or -ENOMEM. */
int ended_put(struct bytes *out, const struct ended *e);

/* What a runner tells: its channel's messages (runner.h) and its lane. */
enum runner_message_kind {
	RUNNER_PROGRESS = 1, /* text: what is being prepared */
	RUNNER_WAITING = 2,
	RUNNER_RESULT = 3,    /* JSON text; code = exit code, 0 */
	RUNNER_FAILED = 4,    /* code = exit code; details are on stderr */
	RUNNER_NOT_JSON = 5,  /* text says why */
	RUNNER_TOO_LARGE = 6, /* text says how large */
	RUNNER_ARMED = 7,     /* ARM was heeded: about to wait on the lane */
	RUNNER_BORN = 8,      /* of a fork (zygote.h): code = its pid */
	RUNNER_DIED = 9,      /* of a zygote: code = tag, text = its status */
};

struct verdict {
	enum gp_end how;
	int code;
	struct span text; /* JSON or the reason; in `why` or as given */
	char why[96];
};

/* One of the last four kinds above; user code speaks, so it is checked.
 * False = another kind: says nothing about an end. */
bool ended_judge(uint32_t kind, uint32_t code, const void *text, size_t len,
		 struct verdict *ret);

#endif
