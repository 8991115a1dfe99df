/* Start of one process; see spawn.h. */
#include "spawn.h"
#include "lane.h"
#include "limits.h"
#include "path.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHILD_STACK_BYTES (128u << 10)

static char child_stack[CHILD_STACK_BYTES] __attribute__((aligned(4096)));

/*
 * The child starts in fn(arg) on the stack of `args`, so it never returns into
 * a frame that it shares with the parent.
 */
static long clone3_call(struct clone_args *args, void (*fn)(void *), void *arg)
{
	long ret;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %[arg], %%rdi\n\t"
			 "call *%[fn]\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(ret)
			 : "a"(SYS_clone3), "D"(args),
			   "S"(sizeof(*args)), [fn] "r"(fn), [arg] "r"(arg)
			 : "rcx", "r11", "memory");
	return ret;
}

static bool step(struct spawn *s, const char *what, bool has_failed)
{
	if (has_failed) {
		s->error = errno;
		s->what = what;
	}
	return has_failed;
}

/* A descriptor at its place in the child, without close-on-exec. */
static bool place(int from, int to)
{
	if (from == to)
		return fcntl(to, F_SETFD, 0) == 0;
	return dup2(from, to) == to;
}

static bool streams_place(const struct spawn *s)
{
	/* The sources are above RUNNER_FD (nest.c), so no step overwrites
	 * the source of a later one. */
	return place(s->in, 0) && place(s->out, 1) && place(s->err, 2) &&
	       (s->channel < 0 || place(s->channel, RUNNER_FD)) &&
	       (!s->has_lane ||
		(place(s->lane_page, LANE_PAGE_FD) &&
		 place(s->lane_streams[0], LANE_STREAMS_FD) &&
		 place(s->lane_streams[1], LANE_STREAMS_FD + 1)));
}

/* Kept over exec and in children: the runner takes it from those. */
static bool lane_allow(const struct spawn *s)
{
	return !s->has_lane || !ioperm(HUTCH_PORT_LANE_RING, 4, 1);
}

/* Init is spared by the OOM killer; what it starts is not. */
static bool oom_reset(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, "0", 1) == 1;

	if (fd >= 0)
		close(fd);
	return ok;
}

/* Raw calls: the C library would tell "all threads", and memory is shared. */
static bool privileges_drop(int id)
{
	return !syscall(SYS_setgroups, 0, NULL) &&
	       !syscall(SYS_setresgid, id, id, id) &&
	       !syscall(SYS_setresuid, id, id, id);
}

static void child_main(void *arg)
{
	static const struct sigaction dfl = {.sa_handler = SIG_DFL};
	struct spawn *s = arg;
	sigset_t none;

	sigemptyset(&none);
	if (step(s, "session", setsid() < 0) ||
	    step(s, "streams", !streams_place(s)) ||
	    step(s, "lane", !lane_allow(s)) ||
	    (s->uid >= 0 && (step(s, "oom_score_adj", !oom_reset()) ||
			     step(s, "user", !privileges_drop(s->uid)))) ||
	    step(s, "cwd", chdir(s->cwd) < 0))
		_exit(127);
	umask(022);
	sigaction(SIGPIPE, &dfl, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	path_exec(s->argv, s->env);
	step(s, "exec", true);
	_exit(127);
}

int spawn_run(struct spawn *s, pid_t *ret_pid)
{
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)child_stack,
		.stack_size = sizeof(child_stack),
	};
	sigset_t all, old;
	long pid;

	if (s->cgroup_dir >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)s->cgroup_dir;
	}
	s->error = 0;
	s->what = NULL;
	/* No handler of ours may run in the child, on shared memory. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = clone3_call(&args, child_main, s);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0) {
		s->error = (int)-pid;
		s->what = "clone";
	}
	if (s->error)
		return -s->error;
	*ret_pid = (pid_t)pid;
	return 0;
}
