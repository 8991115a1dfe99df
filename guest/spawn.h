/*
 * Start one process of user code: what happens between clone and exec.
 *
 * The child shares the caller's memory until exec (CLONE_VM, CLONE_VFORK) on
 * a stack of its own, so no page is copied and the errno of a failed step is
 * simply there when the caller goes on.  It is born inside its control group.
 * Steps: own session, standard streams, lowest privileges, folder, exec.
 */
#ifndef HUTCH_GUEST_SPAWN_H
#define HUTCH_GUEST_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct spawn {
	char *const *argv;
	char *const *env;
	const char *cwd;
	int in, out, err;
	int channel;	     /* becomes RUNNER_FD; -1 = none */
	bool has_lane;	     /* these, and the right to ring it (lane.h) */
	int lane_page;	     /* becomes LANE_PAGE_FD */
	int lane_streams[2]; /* become LANE_STREAMS_FD and the next */
	int cgroup_dir;	     /* -1 = the caller's */
	int uid;	     /* also gid; -1 = keep (unit tests) */
	/* filled in when the start fails */
	int error;	  /* errno */
	const char *what; /* the step: "cwd", "exec" ... */
};

/* 0 and the pid, or a negative errno with s->error and s->what. */
int spawn_run(struct spawn *s, pid_t *ret_pid);

#endif
