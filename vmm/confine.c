/*
 * Confinement of the process, stage by stage; see confine.h.
 *
 * The stages are a table, run in order.  They overlap on purpose: a file is
 * out of reach because the root is empty, because Landlock denies it, because
 * the uid may not, and because seccomp kills on open().  Each alone would do.
 */
#include "confine.h"
#include "io.h"
#include "log.h"
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* At least the ring's table of registered files, which it bounds too. */
#define FDS_MAX		 (IO_FILES_MAX + 64)
#define OWN_FDS_MAX	 (16 + DISKS_MAX)
#define FILE_BYTES_SLACK (64ull << 20) /* a snapshot's state and headers */
#define PIDS_MAX	 64

static int fail(struct err *e, const char *what)
{
	return err_set(e, ERR_INTERNAL, NULL, "confine: %s: %s", what,
		       strerror(errno));
}

static int compare_ints(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* 0-2 always exist, so that no file of ours ever gets their numbers. */
static int stage_fds(const struct options *o, struct err *e)
{
	int own[OWN_FDS_MAX];
	unsigned n = 0, from = 3;
	int fd;

	while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd <= 2)
		;
	if (fd < 0)
		return fail(e, "/dev/null");
	close(fd);
	own[n++] = o->kernel.fd;
	own[n++] = o->trace.fd;
	own[n++] = o->state.fd;
	own[n++] = o->memory.fd;
	own[n++] = o->touched.fd;
	own[n++] = o->control;
	own[n++] = o->channel;
	own[n++] = o->log;
	own[n++] = o->kvm;
	own[n++] = o->pagemap;
	for (unsigned i = 0; i < o->n_disks; i++)
		own[n++] = o->disk[i].src.fd;
	qsort(own, n, sizeof(own[0]), compare_ints);
	for (unsigned i = 0; i < n; i++) {
		if (own[i] < (int)from)
			continue;
		if (own[i] > (int)from &&
		    close_range(from, (unsigned)own[i] - 1, 0) < 0)
			return fail(e, "close_range");
		from = (unsigned)own[i] + 1;
	}
	if (close_range(from, ~0u, 0) < 0)
		return fail(e, "close_range");
	return 0;
}

static int limit(int what, rlim_t max, const char *name, struct err *e)
{
	struct rlimit r = {.rlim_cur = max, .rlim_max = max}, now;

	if (getrlimit(what, &now) == 0 && now.rlim_max < max)
		r.rlim_cur = r.rlim_max = now.rlim_max;
	return setrlimit(what, &r) < 0 ? fail(e, name) : 0;
}

static int stage_limits(const struct options *o, struct err *e)
{
	rlim_t bytes = (rlim_t)o->mem_mib << 20;

	for (unsigned i = 0; i < o->n_disks; i++)
		if (o->disk[i].bytes > bytes)
			bytes = o->disk[i].bytes;
	if (limit(RLIMIT_CORE, 0, "RLIMIT_CORE", e) < 0 ||
	    limit(RLIMIT_NOFILE, FDS_MAX, "RLIMIT_NOFILE", e) < 0 ||
	    limit(RLIMIT_MSGQUEUE, 0, "RLIMIT_MSGQUEUE", e) < 0)
		return -1;
	/* A trace may grow; without one, no file needs more than a disk. */
	if (!o->trace.is_given && limit(RLIMIT_FSIZE, bytes + FILE_BYTES_SLACK,
					"RLIMIT_FSIZE", e) < 0)
		return -1;
	/* Counted per uid, so only with a uid that is this VM's own. */
	if (o->has_ids && limit(RLIMIT_NPROC, PIDS_MAX, "RLIMIT_NPROC", e) < 0)
		return -1;
	return 0;
}

/* An empty read-only root.  pivot_root cannot leave an initramfs; chroot can,
 * and nothing here can undo it once the capabilities are gone. */
static int empty_root(struct err *e)
{
	const unsigned long flags =
		MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;

	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fail(e, "private mounts");
	if (mount("hutch", "/proc", "tmpfs", flags, "size=4k,mode=555") < 0 ||
	    chdir("/proc") < 0)
		return fail(e, "empty root");
	if (syscall(SYS_pivot_root, ".", ".") == 0) {
		if (umount2(".", MNT_DETACH) < 0)
			return fail(e, "leave the old root");
	} else if (errno != EINVAL || chroot(".") < 0) {
		return fail(e, "pivot_root");
	}
	return chdir("/") < 0 ? fail(e, "chdir /") : 0;
}

static int stage_namespaces(const struct options *o, struct err *e)
{
	(void)o;
	if (geteuid() != 0)
		return 0; /* needs root: the other stages still hold */
	if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) <
	    0)
		return fail(e, "own namespaces");
	return empty_root(e);
}

static int stage_ids(const struct options *o, struct err *e)
{
	int r;

	capng_clear(CAPNG_SELECT_ALL);
	if (o->has_ids) {
		r = capng_change_id((int)o->uid, (int)o->gid,
				    CAPNG_DROP_SUPP_GRP | CAPNG_CLEAR_BOUNDING |
					    CAPNG_CLEAR_AMBIENT);
		if (r != 0)
			return err_set(e, ERR_INTERNAL, NULL,
				       "confine: uid %u gid %u: error %d",
				       o->uid, o->gid, r);
		capng_clear(CAPNG_SELECT_ALL);
	}
	/* Without CAP_SETPCAP the bounding set stays; it gives nothing to a
	 * process that may never gain privileges. */
	r = geteuid() == 0 ? capng_apply(CAPNG_SELECT_ALL)
			   : capng_apply(CAPNG_SELECT_CAPS);
	if (r != 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "confine: capabilities: error %d", r);
	return 0;
}

static int stage_privileges(const struct options *o, struct err *e)
{
	(void)o;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fail(e, "no new privileges");
	return 0;
}

/* All file system rights known to each ABI of Landlock, by index ABI - 1. */
static const uint64_t landlock_fs[] = {0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff};
#define LANDLOCK_NET_BITS   0x3ull /* bind and connect TCP, from ABI 4 */
#define LANDLOCK_SCOPE_BITS 0x3ull /* abstract sockets, signals, from ABI 6 */

static int stage_landlock(const struct options *o, struct err *e)
{
	struct {
		uint64_t fs, net, scope;
	} rules = {0};
	size_t n = sizeof(landlock_fs) / sizeof(landlock_fs[0]);
	size_t len = sizeof(rules.fs);
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
			   LANDLOCK_CREATE_RULESET_VERSION);
	int fd, r;

	(void)o;
	if (abi < 0 && (errno == ENOSYS || errno == EOPNOTSUPP)) {
		log_warn("confine: this kernel has no Landlock; seccomp and "
			 "the empty root hold without it");
		return 0;
	}
	if (abi < 1)
		return fail(e, "Landlock");
	rules.fs = landlock_fs[(size_t)abi > n ? n - 1 : (size_t)abi - 1];
	if (abi >= 4) {
		rules.net = LANDLOCK_NET_BITS;
		len += sizeof(rules.net);
	}
	if (abi >= 6) {
		rules.scope = LANDLOCK_SCOPE_BITS;
		len += sizeof(rules.scope);
	}
	fd = (int)syscall(SYS_landlock_create_ruleset, &rules, len, 0);
	if (fd < 0)
		return fail(e, "Landlock rules");
	r = (int)syscall(SYS_landlock_restrict_self, fd, 0);
	if (r < 0)
		fail(e, "Landlock");
	close(fd);
	return r < 0 ? -1 : 0;
}

static int stage_dump(const struct options *o, struct err *e)
{
	(void)o;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return fail(e, "not dumpable");
	return 0;
}

static const struct {
	const char *name;
	int (*run)(const struct options *o, struct err *e);
} stages[] = {
	{"fds", stage_fds},
	{"limits", stage_limits},
	{"namespaces", stage_namespaces},
	{"ids", stage_ids},
	{"privileges", stage_privileges},
	{"landlock", stage_landlock},
	{"dump", stage_dump},
};

int confine_process(const struct options *o, struct err *e)
{
	if (!o->is_confined) {
		log_warn("NOT CONFINED (--no-confine): for tests only");
		confine_threads_off();
		return 0;
	}
	for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++)
		if (stages[i].run(o, e) < 0)
			return err_wrap(e, "stage %s", stages[i].name);
	return 0;
}
