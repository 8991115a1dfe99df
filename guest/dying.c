/* Ends that wait(2) does not tell yet; see dying.h. */
#include "dying.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of /proc/PID/stat (proc_pid_stat(5)): state is the third field, exit_code
 * the last, 52nd. */
#define STAT_FIELDS	 52
#define STAT_FIRST_FIELD 3

/*
 * process_mrelease(2) asks for just what is wanted here: EINVAL of a process
 * that has memory and was not killed, ESRCH when no thread has any left.  One
 * that was killed and has its memory still loses it here rather than a moment
 * later in its own exit.
 */
static bool has_let_go(pid_t pid)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	return fd >= 0 && syscall(SYS_process_mrelease, fd, 0) &&
	       errno == ESRCH;
}

static bool status_read(pid_t pid, int *ret)
{
	_cleanup_fd_ int fd = -1;
	char path[32], text[1024];
	const char *p;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	/* The name, in brackets, may hold anything. */
	p = strrchr(text, ')');
	for (int i = STAT_FIRST_FIELD - 1; p && i < STAT_FIELDS; i++)
		p = strchr(p + 1, ' ');
	if (!p)
		return false;
	*ret = (int)strtol(p + 1, NULL, 10);
	return true;
}

bool process_is_dying(pid_t pid, int *ret_status)
{
	return has_let_go(pid) && status_read(pid, ret_status);
}
