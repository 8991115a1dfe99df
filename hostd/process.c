/* The process and its host; see process.h. */
#include "process.h"
#include "fd.h"
#include "log.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* A VM's process is the better one to kill: its run ends `lost`, by name. */
#define OOM_SCORE_ADJ "-500"

static void raise_descriptors(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l))
		return;
	l.rlim_cur = l.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &l))
		log_warn("cannot raise RLIMIT_NOFILE to %llu: %s",
			 (unsigned long long)l.rlim_max, strerror(errno));
}

static void lower_oom_score(void)
{
	_cleanup_fd_ int fd =
		open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, OOM_SCORE_ADJ, strlen(OOM_SCORE_ADJ)) < 0)
		log_debug("cannot set oom_score_adj %s: %s", OOM_SCORE_ADJ,
			  strerror(errno)); /* usual in a container */
}

/* The limit alone would not stop a core_pattern that is a pipe. */
static void refuse_core(void)
{
	const struct rlimit none = {0, 0};

	if (setrlimit(RLIMIT_CORE, &none) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))
		log_warn("cannot refuse core files: %s", strerror(errno));
}

void process_prepare(void)
{
	signal(SIGPIPE, SIG_IGN);
	raise_descriptors();
	lower_oom_score();
	refuse_core(); /* last: /proc/self is root's from here on */
}

int process_signals(struct err *e)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return err_set(e, ERR_INTERNAL, NULL, "sigprocmask: %m");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "signalfd: %m");
	return fd;
}

int process_exe_dir(char *dst, size_t cap, struct err *e)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	const char *dir;

	if (n < 0)
		return err_set(e, ERR_INTERNAL, NULL, "/proc/self/exe: %m");
	path[n] = 0;
	dir = dirname(path);
	if (strlen(dir) >= cap)
		return err_set(e, ERR_INTERNAL, NULL, "path too long: %s", dir);
	memcpy(dst, dir, strlen(dir) + 1);
	return 0;
}

int process_boot_id(char *dst, size_t cap, struct err *e)
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, dst, cap - 1);

	if (n < 36)
		return err_set(e, ERR_INTERNAL, NULL, "cannot read %s", path);
	dst[n] = 0;
	dst[strcspn(dst, "\n")] = 0;
	return 0;
}
