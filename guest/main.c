/*
 * hutch-init: process 1 of the guest.
 *
 * Stages, top to bottom: ports, mounts of its own, protection against user
 * code, the channel; then one loop for ever.  Everything after that is asked
 * for by frames (session.c).  See README.md for the whole picture.
 *
 * It never exits: the kernel would panic.  What cannot be set up is logged to
 * the monitor and ends in power-off.
 */
#include "bind.h"
#include "guest.h"
#include "port.h"
#include "prepare.h"
#include "session.h"
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPEN_FILES_MAX 4096

static struct guest guest;

static _Noreturn void die(const char *what, const char *why)
{
	port_log("%s: %s", what, why);
	port_power_off();
}

/* Limits that all processes of the guest inherit. */
static void rlimits_set(void)
{
	static const struct rlimit no_core = {0, 0};
	static const struct rlimit files = {OPEN_FILES_MAX, OPEN_FILES_MAX};

	if (setrlimit(RLIMIT_CORE, &no_core) ||
	    setrlimit(RLIMIT_NOFILE, &files))
		port_log("setrlimit: %s", strerror(errno));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		port_log("no_new_privs: %s", strerror(errno));
}

/*
 * Above user code whatever it does: real time, so that a busy CPU is given
 * up at once (children start as ordinary processes again), and no target of
 * the OOM killer.
 */
static void priority_set(void)
{
	struct sched_param p = {.sched_priority = 1};
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p))
		port_log("real-time class: %s", strerror(errno));
	if (fd < 0 || write(fd, "-1000", 5) != 5)
		port_log("oom_score_adj: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* Freed heap stays: touching it again would fault page by page. */
static void heap_keep(void)
{
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TOP_PAD, 256 << 10);
}

static void guest_init(struct guest *g)
{
	if (loop_init(&g->loop))
		die("epoll", strerror(errno));
	list_init(&g->commands.all);
	prepare_init(g);
	g->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	g->link.up = session_up;
	g->link.room = session_room;
	g->link.frame = session_frame;
	g->link.ctx = g;
	if (g->null_fd < 0 || link_init(&g->link, &g->loop))
		die("start", strerror(errno));
}

static _Noreturn void serve(struct guest *g)
{
	link_connect(&g->link);
	for (;;) {
		int rc = loop_turn(&g->loop);

		if (rc)
			die("epoll_wait", strerror(-rc));
		link_flush(&g->link);
		commands_sweep(g);
	}
}

int main(void)
{
	char why[256];

	if (getpid() != 1) {
		fprintf(stderr, "hutch-init: runs only as process 1\n");
		return 1;
	}
	port_open();
	port_mark(HUTCH_MARK_INIT);
	umask(022);
	if (world_early(why, sizeof(why)))
		die("start", why);
	signal(SIGPIPE, SIG_IGN);
	rlimits_set();
	priority_set();
	heap_keep();
	bind_init();
	bind_unset_clock();
	guest_init(&guest);
	serve(&guest);
}
