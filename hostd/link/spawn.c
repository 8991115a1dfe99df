/*
 * vfork and exec; see spawn.h.
 *
 * vfork rather than fork: hutchd may have much memory mapped, and a copy of
 * its page tables per VM is time and page faults for nothing.  Until exec the
 * child runs on the parent's stack and memory with the parent's thread
 * stopped, so it only makes system calls and writes to `struct child`, which
 * is how the failing step comes back.
 *
 * pidfd_open after vfork has no race: the child is not reaped before its
 * parent waits for it.
 */
#include "spawn.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPAWN_FD_FIRST 3

struct child {
	const struct spawn_spec *spec;
	pid_t parent;
	int null_fd;
	char oom[16];
	volatile bool is_oom_denied;
	const char *volatile step;
	volatile int error;
};

/*
 * Each source goes above the targets first, so that no dup3 overwrites a
 * source that is still needed.
 */
static int child_fds(const struct spawn_spec *s, int null_fd)
{
	int base = SPAWN_FD_FIRST + SPAWN_FDS_MAX + 3;
	int high[SPAWN_FDS_MAX], log, null;

	null = fcntl(null_fd, F_DUPFD_CLOEXEC, base);
	log = s->log_fd < 0 ? null : fcntl(s->log_fd, F_DUPFD_CLOEXEC, base);
	if (null < 0 || log < 0)
		return -1;
	for (size_t i = 0; i < s->n_fds; i++) {
		high[i] = fcntl(s->fds[i], F_DUPFD_CLOEXEC, base);
		if (high[i] < 0)
			return -1;
	}
	if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(log, 2) < 0)
		return -1;
	for (size_t i = 0; i < s->n_fds; i++)
		if (dup2(high[i], SPAWN_FD_FIRST + (int)i) < 0)
			return -1;
	return close_range(SPAWN_FD_FIRST + (unsigned)s->n_fds, ~0u, 0);
}

static int child_limits(const struct spawn_spec *s)
{
	for (size_t i = 0; i < s->n_rlimits; i++) {
		struct rlimit r = {.rlim_cur = s->rlimits[i].max,
				   .rlim_max = s->rlimits[i].max};

		if (setrlimit((__rlimit_resource_t)s->rlimits[i].resource, &r))
			return -1;
	}
	return 0;
}

static int oom_score_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = write(fd, text, strlen(text));
	close(fd);
	return n < 0 ? -1 : 0;
}

/* The daemon is not dumpable, and neither is the child until its exec: its
 * /proc is root's.  A daemon that is not root writes it after that. */
static int child_oom_score(struct child *c)
{
	if (!oom_score_write("/proc/self/oom_score_adj", c->oom))
		return 0;
	c->is_oom_denied = errno == EACCES;
	return c->is_oom_denied ? 0 : -1;
}

/* Each step in order; returns only when one of them failed. */
static void child_run(struct child *c)
{
	static char *const env[] = {NULL};
	sigset_t none;

	c->step = "signal mask";
	sigemptyset(&none);
	signal(SIGPIPE, SIG_DFL);
	if (sigprocmask(SIG_SETMASK, &none, NULL))
		goto fail;
	c->step = "setsid";
	if (setsid() < 0)
		goto fail;
	c->step = "death signal";
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		goto fail;
	if (getppid() != c->parent) {
		errno = ESRCH;
		goto fail;
	}
	c->step = "oom score";
	if (child_oom_score(c))
		goto fail;
	c->step = "descriptors";
	if (child_fds(c->spec, c->null_fd))
		goto fail;
	c->step = "resource limits";
	if (child_limits(c->spec))
		goto fail;
	c->step = "exec";
	execve(c->spec->path, c->spec->argv, env);
fail:
	c->error = errno;
}

int spawn_process(const struct spawn_spec *spec, pid_t *ret_pid, int *ret_pidfd,
		  const char **ret_step)
{
	struct child c = {.spec = spec, .parent = getpid(), .step = ""};
	_cleanup_fd_ int null_fd = -1, pidfd = -1;
	sigset_t all, old;
	char path[48];
	pid_t pid;
	int error;

	*ret_step = "arguments";
	if (spec->n_fds > SPAWN_FDS_MAX)
		return -EINVAL;
	*ret_step = "open /dev/null";
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0)
		return -errno;
	snprintf(c.oom, sizeof(c.oom), "%d", spec->oom_score_adj);

	/* No handler of ours may run on the shared memory in the child. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = vfork();
	if (pid == 0) {
		child_run(&c);
		_exit(127);
	}
	error = errno;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	*ret_step = "vfork";
	if (pid < 0)
		return -error;
	if (c.error) {
		waitpid(pid, NULL, 0);
		*ret_step = c.step;
		return -c.error;
	}
	if (c.is_oom_denied) {
		snprintf(path, sizeof(path), "/proc/%d/oom_score_adj",
			 (int)pid);
		(void)oom_score_write(path, c.oom);
	}
	*ret_step = "pidfd_open";
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* is O_CLOEXEC */
	if (pidfd < 0) {
		error = errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return -error;
	}
	*ret_pid = pid;
	*ret_pidfd = fd_take(&pidfd);
	*ret_step = NULL;
	return 0;
}
