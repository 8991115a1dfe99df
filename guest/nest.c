/*
 * Both ends of the nest; see nest.h.  The first half runs in init, the second
 * in the nest itself.
 */
#include "nest.h"
#include "dying.h"
#include "fd.h"
#include "port.h"
#include "spawn.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_PER_START 7
/* Received descriptors move up here, out of the way of 0, 1, 2, RUNNER_FD. */
#define FD_FLOOR     (RUNNER_FD + 1)
#define CHILDREN_MAX 128

/* What the nest knows about the processes that it was asked to start. */
struct child {
	pid_t pid;
	uint64_t tag;
	bool is_told; /* its end */
	bool is_foster;
};

struct inside {
	int sock, sigfd;
	const struct cgroups *cg;
	char *strings;
	struct child children[CHILDREN_MAX];
	size_t n_children;
	char **pointers; /* argv and env of a start */
};

/* ---- init's side ------------------------------------------------------- */

static void on_tell(struct watch *w, uint32_t events)
{
	struct nest *n = container_of(w, struct nest, watch);
	struct nest_tell t;
	ssize_t len;

	(void)events;
	len = fd_recv(w->fd, &t, sizeof(t), NULL, NULL, MSG_DONTWAIT);
	if (len == -EAGAIN)
		return;
	if (len != sizeof(t)) {
		loop_unwatch(n->loop, w);
		n->died(n->ctx);
		return;
	}
	if (t.type == NEST_STARTED || t.type == NEST_FAILED)
		n->is_busy = false;
	n->tell(n->ctx, &t);
}

void nest_begin(struct nest *n, struct nest_strings *s)
{
	*s = (struct nest_strings){.at = n->strings,
				   .end = n->strings + NEST_STRINGS_BYTES_MAX};
}

void nest_add(struct nest_strings *s, const void *p, size_t len)
{
	if (!s->rc && (len + 1 > (size_t)(s->end - s->at) ||
		       s->n >= NEST_STRINGS_MAX - 2))
		s->rc = -E2BIG;
	if (!s->rc && memchr(p, 0, len))
		s->rc = -EINVAL;
	if (s->rc)
		return;
	memcpy(s->at, p, len);
	s->at[len] = '\0';
	s->at += len + 1;
	s->n++;
}

int nest_send(struct nest *n, const struct nest_ask *a, const int *fds,
	      size_t n_fds)
{
	int rc = fd_send(n->watch.fd, a, sizeof(*a), fds, n_fds);

	if (!rc && a->type == NEST_START)
		n->is_busy = true;
	return rc;
}

void nest_kill(struct nest *n)
{
	if (n->pid > 0)
		kill(n->pid, SIGKILL);
}

/* ---- inside the nest --------------------------------------------------- */

static void tell(struct inside *in, const struct nest_tell *t)
{
	if (fd_send(in->sock, t, sizeof(*t), NULL, 0))
		_exit(1); /* init is gone, and with it the guest */
}

static void child_ended(struct inside *in, struct child *c, int status)
{
	struct nest_tell t = {.type = NEST_EXITED,
			      .pid = c->pid,
			      .tag = c->tag,
			      .status = status};

	if (!c->is_told)
		tell(in, &t);
	c->is_told = true;
}

static void children_reap(struct inside *in)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		for (size_t i = 0; i < in->n_children; i++) {
			if (in->children[i].pid != pid)
				continue;
			child_ended(in, &in->children[i], status);
			in->children[i] = in->children[--in->n_children];
			break;
		}
	}
}

static void on_probe(struct inside *in, uint64_t tag)
{
	int status;

	for (size_t i = 0; i < in->n_children; i++) {
		struct child *c = &in->children[i];

		if (c->tag == tag && !c->is_told &&
		    process_is_dying(c->pid, &status))
			child_ended(in, c, status);
	}
}

/* cwd, argv and env as pointers into the shared strings. */
static const char *strings_take(struct inside *in, const struct nest_ask *a,
				char ***ret_argv, char ***ret_env)
{
	char *at = in->strings, *cwd = at;
	char **p = in->pointers;

	at += strlen(at) + 1;
	*ret_argv = p;
	for (uint32_t i = 0; i < a->n_argv; i++, at += strlen(at) + 1)
		*p++ = at;
	*p++ = NULL;
	*ret_env = p;
	for (uint32_t i = 0; i < a->n_env; i++, at += strlen(at) + 1)
		*p++ = at;
	*p = NULL;
	return cwd;
}

/* A dead one is not ours to reap: its parent, the zygote, lives. */
static void fosters_forget_dead(struct inside *in)
{
	for (size_t i = in->n_children; i-- > 0;)
		if (in->children[i].is_foster && kill(in->children[i].pid, 0))
			in->children[i] = in->children[--in->n_children];
}

static void on_foster(struct inside *in, const struct nest_ask *a)
{
	struct child c = {.pid = a->pid, .tag = a->tag, .is_foster = true};

	fosters_forget_dead(in);
	if (a->pid > 1 && in->n_children < CHILDREN_MAX && !kill(a->pid, 0))
		in->children[in->n_children++] = c;
	else
		child_ended(in, &c, SIGKILL);
}

static int fd_lift(int *fd)
{
	int up;

	if (*fd >= FD_FLOOR)
		return 0;
	up = fcntl(*fd, F_DUPFD_CLOEXEC, FD_FLOOR);
	if (up < 0)
		return -errno;
	close(*fd);
	*fd = up;
	return 0;
}

static size_t fds_of(const struct nest_ask *a)
{
	return a->has_lane ? 7 : a->has_channel ? 4 : 3;
}

static int spawn_ask(struct inside *in, const struct nest_ask *a, int *fds,
		     struct spawn *s, pid_t *ret_pid)
{
	char **argv, **env;

	s->cwd = strings_take(in, a, &argv, &env);
	s->argv = argv;
	s->env = env;
	for (size_t i = 0; i < fds_of(a); i++) {
		int rc = fd_lift(&fds[i]);

		if (rc) {
			s->error = -rc;
			s->what = "descriptors";
			return rc;
		}
	}
	s->in = fds[0];
	s->out = fds[1];
	s->err = fds[2];
	s->channel = a->has_channel ? fds[3] : -1;
	s->has_lane = a->has_lane;
	if (a->has_lane) {
		s->lane_page = fds[4];
		s->lane_streams[0] = fds[5];
		s->lane_streams[1] = fds[6];
	}
	s->cgroup_dir = a->in_prep ? in->cg->prep : in->cg->slots[a->slot].dir;
	s->uid = USER_ID;
	if (in->n_children == CHILDREN_MAX) {
		s->error = EAGAIN;
		s->what = "too many processes";
		return -EAGAIN;
	}
	return spawn_run(s, ret_pid);
}

static void on_start(struct inside *in, const struct nest_ask *a, int *fds,
		     size_t n_fds)
{
	struct nest_tell t = {.type = NEST_FAILED, .tag = a->tag};
	struct spawn s = {.error = EINVAL, .what = "descriptors"};
	pid_t pid = 0;

	if (n_fds == fds_of(a) && !spawn_ask(in, a, fds, &s, &pid)) {
		in->children[in->n_children++] =
			(struct child){.pid = pid, .tag = a->tag};
		t.type = NEST_STARTED;
		t.pid = pid;
	} else {
		t.error = s.error;
		snprintf(t.what, sizeof(t.what), "%s", s.what);
	}
	for (size_t i = 0; i < n_fds; i++)
		fd_close(&fds[i]);
	tell(in, &t);
}

static void on_ask(struct inside *in)
{
	struct nest_ask a;
	int fds[FDS_PER_START];
	size_t n_fds = FDS_PER_START;
	ssize_t len = fd_recv(in->sock, &a, sizeof(a), fds, &n_fds, 0);

	if (len != sizeof(a))
		_exit(1);
	if (a.type == NEST_START) {
		on_start(in, &a, fds, n_fds);
	} else if (a.type == NEST_MOVE) {
		struct nest_tell t = {.type = NEST_MOVED, .tag = a.tag};
		char text[16];
		int n = snprintf(text, sizeof(text), "%d", a.pid);

		if (pwrite(in->cg->slots[a.slot].procs, text, (size_t)n, 0) < 0)
			t.error = errno;
		tell(in, &t);
	} else if (a.type == NEST_PROBE) {
		on_probe(in, a.tag);
	} else if (a.type == NEST_FOSTER) {
		on_foster(in, &a);
	}
}

/* Nothing else of init's may stay open here, above all not the channel. */
static bool is_wanted(const struct inside *in, int fd)
{
	const struct cgroups *cg = in->cg;

	if (fd == in->sock || fd == cg->prep)
		return true;
	for (size_t i = 0; i < cg->n_slots; i++)
		if (fd == cg->slots[i].dir || fd == cg->slots[i].procs)
			return true;
	return false;
}

static _Noreturn void inside_main(struct inside *in,
				  int (*enter)(const char **ret_what))
{
	struct nest_tell t = {.type = NEST_READY};
	const char *what = "";
	struct pollfd p[2];
	sigset_t chld;

	for (int fd = 3; fd < 256; fd++)
		if (!is_wanted(in, fd))
			close(fd);
	/* User code would inherit the monitor's ports, also through exec. */
	port_close();
	/* The starter and reaper is an ordinary process, before user code. */
	setpriority(PRIO_PROCESS, 0, -5);
	t.error = -enter(&what);
	snprintf(t.what, sizeof(t.what), "%s", what);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_SETMASK, &chld, NULL);
	in->sigfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	in->pointers = malloc(NEST_STRINGS_MAX * sizeof(char *));
	if (!t.error && (in->sigfd < 0 || !in->pointers))
		t.error = errno;
	tell(in, &t);
	p[0] = (struct pollfd){.fd = in->sigfd, .events = POLLIN};
	p[1] = (struct pollfd){.fd = in->sock, .events = POLLIN};
	for (;;) {
		struct signalfd_siginfo si;

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents && read(in->sigfd, &si, sizeof(si)) > 0)
			children_reap(in);
		if (p[1].revents)
			on_ask(in);
	}
}

/* ---- the fork ---------------------------------------------------------- */

int nest_start(struct nest *n, struct loop *loop, const struct cgroups *cg,
	       int (*enter)(const char **ret_what), char *why, size_t why_cap)
{
	static struct inside in;
	struct clone_args args = {
		.flags = CLONE_NEWPID | CLONE_NEWNS,
		.exit_signal = SIGCHLD,
	};
	struct nest_tell t;
	int pair[2];
	long pid;

	n->strings =
		mmap(NULL, NEST_STRINGS_BYTES_MAX + 1, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (n->strings == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
		snprintf(why, why_cap, "nest: %s", strerror(errno));
		return -errno;
	}
	in = (struct inside){.sock = pair[1], .cg = cg, .strings = n->strings};
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		inside_main(&in, enter);
	close(pair[1]);
	if (pid < 0) {
		snprintf(why, why_cap, "clone of the nest: %s",
			 strerror(errno));
		close(pair[0]);
		return -errno;
	}
	n->pid = (pid_t)pid;
	n->loop = loop;
	n->watch = (struct watch){.fd = pair[0], .fn = on_tell};
	if (fd_recv(pair[0], &t, sizeof(t), NULL, NULL, 0) != sizeof(t)) {
		snprintf(why, why_cap, "the nest ended at its start");
		return -EPIPE;
	}
	if (t.error) {
		snprintf(why, why_cap, "nest: %s: %s", t.what,
			 strerror(t.error));
		return -t.error;
	}
	return loop_watch(loop, &n->watch, EPOLLIN);
}
