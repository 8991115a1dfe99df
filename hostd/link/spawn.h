/*
 * Starting one process with exactly what it is given.
 *
 * The child gets a session of its own, /dev/null as standard input and output,
 * the log pipe as standard error, the descriptors named here at the numbers
 * named here and no other, resource limits, an oom score, and SIGKILL when its
 * parent's thread ends (loop thread only: the signal is tied to the thread
 * that called).  Nothing of the environment is inherited.
 */
#ifndef HUTCHD_SPAWN_H
#define HUTCHD_SPAWN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define SPAWN_FDS_MAX 16

struct spawn_rlimit {
	int resource;
	rlim_t max; /* soft and hard */
};

struct spawn_spec {
	const char *path;
	char *const *argv; /* NULL terminated */
	/* fds[i] becomes descriptor 3 + i of the child; borrowed */
	int fds[SPAWN_FDS_MAX];
	size_t n_fds;
	int log_fd; /* standard error; -1 = /dev/null */
	const struct spawn_rlimit *rlimits;
	size_t n_rlimits;
	int oom_score_adj;
};

/*
 * 0, or a negative errno: of the step that failed in the child, too (then
 * *ret_step names it).  *ret_pidfd is O_CLOEXEC and the caller's.
 */
int spawn_process(const struct spawn_spec *spec, pid_t *ret_pid, int *ret_pidfd,
		  const char **ret_step);

#endif
