/*
 * The nest: process 1 of the sandbox's own pid and mount namespaces.
 *
 * All user code is below it.  It starts processes for init, reaps whatever
 * ends in the sandbox and reports the ends of the processes it was asked to
 * start.  It exists so that init itself never waits: exec of a large program
 * takes seconds where the guest's kernel is slow, and the starter has to wait
 * for it (vfork: no page table is copied).  Init forks it once, early; it
 * holds the mount tree of user code, in which init's own folders do not exist.
 *
 *   init -> nest   struct nest_ask (SOCK_SEQPACKET), descriptors with it;
 *                  the strings of a start lie in memory that both share
 *   nest -> init   struct nest_tell
 *
 * FOSTER names a process that the nest did not start and may inherit: from then
 * on it is like one that it did.
 *
 * PROBE is answered only when the process is dying (dying.h): EXITED comes then
 * and not again.
 *
 * One start at a time: the shared memory belongs to the nest from the ask to
 * its STARTED or FAILED.
 */
#ifndef HUTCH_GUEST_NEST_H
#define HUTCH_GUEST_NEST_H

#include "cgroup.h"
#include "loop.h"
#include "wire.h"

/* argv and env of one start; the kernel's own limit is lower. */
#define NEST_STRINGS_BYTES_MAX (4u << 20)
#define NEST_STRINGS_MAX       65536 /* pointers, argv and env together */

enum nest_ask_type { NEST_START = 1, NEST_MOVE, NEST_PROBE, NEST_FOSTER };

/* START carries descriptors: stdin, stdout, stderr; with has_channel, a
 * runner's channel; with has_lane after that, its lane's page and streams
 * (spawn.h). */
struct nest_ask {
	uint32_t type;
	uint32_t slot;	  /* START, MOVE: the control group's number */
	uint64_t tag;	  /* comes back in nest_tell; PROBE: whose */
	int32_t pid;	  /* MOVE, FOSTER: the process, as the nest sees it */
	uint32_t in_prep; /* START: /prep in place of a slot */
	uint32_t has_channel, has_lane;
	uint32_t n_argv, n_env;
};

enum nest_tell_type {
	NEST_READY = 1,
	NEST_STARTED,
	NEST_FAILED,
	NEST_EXITED,
	NEST_MOVED,
};

struct nest_tell {
	uint32_t type;
	int32_t pid;
	uint64_t tag;
	int32_t error;	/* FAILED: errno; READY, MOVED: 0 or errno */
	int32_t status; /* EXITED: as of wait(2) */
	char what[64];	/* FAILED, READY: the step that failed */
};

struct nest {
	struct watch watch;
	struct loop *loop;
	pid_t pid;
	char *strings; /* shared: cwd, argv, env, each NUL terminated */
	bool is_busy;  /* a START is under way */
	void (*tell)(void *ctx, const struct nest_tell *t);
	void (*died)(void *ctx);
	void *ctx;
};

/*
 * Fork it.  `enter` runs in the nest inside its new namespaces and builds the
 * view of the sandbox; 0 or -errno with the failing step in its argument.
 */
int nest_start(struct nest *n, struct loop *loop, const struct cgroups *cg,
	       int (*enter)(const char **ret_what), char *why, size_t why_cap);
void nest_kill(struct nest *n);

/* Strings of the next start; nest_begin, then cwd, argv..., env.... */
struct nest_strings {
	char *at, *end;
	size_t n;
	int rc; /* -E2BIG: too much; -EINVAL: a NUL inside a string */
};
void nest_begin(struct nest *n, struct nest_strings *s);
void nest_add(struct nest_strings *s, const void *p, size_t len);
int nest_send(struct nest *n, const struct nest_ask *a, const int *fds,
	      size_t n_fds);

#endif
