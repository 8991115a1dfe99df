/* Ends that wait(2) does not tell yet; see dying.h. */
#include "dying.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of /proc/PID/stat (proc_pid_stat(5)): numbers of fields.  State is the third,
 * the first behind the name. */
#define STAT_FIRST_FIELD 3
#define STAT_FLAGS	 9
#define STAT_PENDING	 31
#define STAT_EXIT_CODE	 52
#define STAT_BYTES_MAX	 1024

/* Of the kernel's include/linux/sched.h. */
#define PF_EXITING  0x4u
#define PF_SIGNALED 0x400u

int process_stat_open(pid_t pid)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

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

/* Its text as it is now; false: it is gone. */
static bool stat_read(int fd, char ret[STAT_BYTES_MAX])
{
	ssize_t n = fd < 0 ? -1 : pread(fd, ret, STAT_BYTES_MAX - 1, 0);

	ret[n > 0 ? n : 0] = '\0';
	return n > 0;
}

static bool field_read(const char *text, int number, long *ret)
{
	/* The name, in brackets, may hold anything. */
	const char *p = strrchr(text, ')');

	for (int i = STAT_FIRST_FIELD - 1; p && i < number; i++)
		p = strchr(p + 1, ' ');
	if (!p)
		return false;
	*ret = strtol(p + 1, NULL, 10);
	return true;
}

static bool status_read(pid_t pid, int *ret)
{
	_cleanup_fd_ int fd = process_stat_open(pid);
	char text[STAT_BYTES_MAX];
	long code;

	if (!stat_read(fd, text) || !field_read(text, STAT_EXIT_CODE, &code))
		return false;
	*ret = (int)code;
	return true;
}

bool process_is_dying(pid_t pid, int *ret_status)
{
	return has_let_go(pid) && status_read(pid, ret_status);
}

bool process_was_killed(int stat_fd)
{
	char text[STAT_BYTES_MAX];
	long flags = 0, pending = 0;

	if (stat_fd < 0)
		return false;
	if (!stat_read(stat_fd, text))
		return true;
	field_read(text, STAT_FLAGS, &flags);
	field_read(text, STAT_PENDING, &pending);
	return (unsigned long)flags & (PF_EXITING | PF_SIGNALED) ||
	       pending & 1L << (SIGKILL - 1);
}
