/*
 * Limits of the host's control groups around each VMM process.
 *
 * Memory: the VM's RAM and what the process needs beside it; CPU: its vCPUs
 * and one more for its I/O thread; processes: its threads.  These are a second
 * fence: RAM is bounded by the mapping, threads and address space by resource
 * limits.  So where no group can be made, the daemon says so once, loudly, and
 * works without.
 *
 * v1: a folder hutch/<daemon's pid>-<number> in the memory, pids and cpu
 * hierarchies, and hutch/<pid>-daemon in the last.  Unified: the daemon moves
 * itself to a leaf "daemon" of its own group (delegated to it by its service
 * manager) and makes leaves for VMs beside that.  A process joins when its
 * vCPUs run already: creating a VM inside a group is slow.
 */
#include "fd.h"
#include "link_priv.h"
#include "log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CGROUP_OWN_BYTES (256ull << 20) /* VMM and page cache of its disk */
#define CGROUP_TASKS_MAX 64
#define CGROUP_PERIOD_US 100000
/*
 * v1 weights; an ordinary group or session has 1024.  All VMs are in one
 * group: with the weight of one, a compiler beside them starves a soft host's
 * guests so that they do little but their timer ticks (measured: no progress
 * for 10 minutes).  The daemon is in a group beside them, and so are its VMMs
 * until their vCPUs run: or busy VMs would starve those that start (measured:
 * restore to BOUND 455 ms in place of 75).
 */
#define CGROUP_V1_SHARES_ALL	"8192"
#define CGROUP_V1_SHARES_DAEMON "8192"
/*
 * The weight of a VM that is restored for the pool.  Not the least that there
 * is: with that a VMM on a busy host stood still for seconds with a lock of the
 * host's kernel in its hand, and the daemon with it (measured: 2.6 s).  For the
 * same reason its process starts like any other, beside the daemon.
 */
#define CGROUP_V1_SHARES_BACKGROUND "128"
#define CGROUP_V1_SHARES_USUAL	    "1024"
#define CGROUP_V2_WEIGHT_BACKGROUND "12"
#define CGROUP_V2_WEIGHT_USUAL	    "100"

static int value_write(int dir, const char *file, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fd_write_all(fd, text, strlen(text));
}

static int folder_open(int at, const char *path)
{
	return openat(at, path,
		      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Leaves of daemons that are no more.  False: one is not empty, because its VM
 * is still about to end. */
static bool sweep(int dir)
{
	int fd = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	bool is_swept = true;

	if (d)
		rewinddir(d); /* the two share where the last sweep ended */
	while (d && (de = readdir(d))) {
		int pid;

		if (sscanf(de->d_name, "%d-", &pid) == 1 && pid > 0 &&
		    pid != getpid() && kill(pid, 0) && errno == ESRCH &&
		    unlinkat(dir, de->d_name, AT_REMOVEDIR))
			is_swept = false;
	}
	if (d)
		closedir(d);
	return is_swept;
}

/* Again, when a VM starts or has ended, until there is nothing left to sweep.
 */
static void sweep_rest(struct cgroups *c)
{
	bool is_swept = true;

	if (c->is_swept)
		return;
	for (int i = 0; i < c->n_dirs; i++)
		is_swept &= sweep(c->dirs[i]);
	c->is_swept = is_swept;
}

static void v1_daemon_join(int cpu)
{
	_cleanup_fd_ int leaf = -1;
	char name[48];

	snprintf(name, sizeof(name), "%d-daemon", (int)getpid());
	if (mkdirat(cpu, name, 0755) && errno != EEXIST)
		return;
	leaf = folder_open(cpu, name);
	if (leaf < 0 ||
	    value_write(leaf, "cpu.shares", CGROUP_V1_SHARES_DAEMON) ||
	    value_write(leaf, "cgroup.procs", "0"))
		unlinkat(cpu, name, AT_REMOVEDIR);
}

static bool v1_open(struct cgroups *c)
{
	static const char *const names[] = {"memory", "pids", "cpu"};
	char path[80];

	for (int i = 0; i < 3; i++) {
		int fd;

		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", names[i]);
		if (access(path, F_OK))
			break;
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/hutch",
			 names[i]);
		if (mkdir(path, 0755) && errno != EEXIST)
			break;
		fd = folder_open(AT_FDCWD, path);
		if (fd < 0)
			break;
		c->dirs[c->n_dirs++] = fd;
	}
	if (c->n_dirs != 3)
		return false;
	value_write(c->dirs[2], "cpu.shares", CGROUP_V1_SHARES_ALL);
	v1_daemon_join(c->dirs[2]);
	return true;
}

/* This process's group in the unified tree: "0::/path". */
static int v2_own_group(void)
{
	char line[512], path[600];
	FILE *f = fopen("/proc/self/cgroup", "re");
	int fd = -1;

	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "0::/", 4) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s", line + 3);
		fd = folder_open(AT_FDCWD, path);
	}
	if (f)
		fclose(f);
	return fd;
}

static bool v2_open(struct cgroups *c)
{
	_cleanup_fd_ int own = -1, leaf = -1;

	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK))
		return false;
	own = v2_own_group();
	if (own < 0 || (mkdirat(own, "daemon", 0755) && errno != EEXIST))
		return false;
	leaf = folder_open(own, "daemon");
	if (leaf < 0 || value_write(leaf, "cgroup.procs", "0") ||
	    value_write(own, "cgroup.subtree_control", "+memory +pids +cpu")) {
		/* Not delegated, or others live here: as it was. */
		value_write(own, "cgroup.procs", "0");
		unlinkat(own, "daemon", AT_REMOVEDIR);
		return false;
	}
	c->dirs[c->n_dirs++] = fd_take(&own);
	c->is_v2 = true;
	return true;
}

static int weight_write(const struct cgroups *c, int leaf, bool is_background)
{
	static const char *const weights[2][2] = {
		{CGROUP_V1_SHARES_USUAL, CGROUP_V1_SHARES_BACKGROUND},
		{CGROUP_V2_WEIGHT_USUAL, CGROUP_V2_WEIGHT_BACKGROUND},
	};

	return value_write(leaf, c->is_v2 ? "cpu.weight" : "cpu.shares",
			   weights[c->is_v2][is_background]);
}

void cgroups_open(struct cgroups *c)
{
	memset(c, 0, sizeof(*c));
	if (v2_open(c) || v1_open(c)) {
		sweep_rest(c);
		return;
	}
	cgroups_close(c);
	log_warn("cgroup limits unavailable: VMs run without the host's "
		 "memory, CPU and process groups; run as a service with "
		 "Delegate=yes, or as root with the memory, pids and cpu "
		 "hierarchies mounted");
}

void cgroups_close(struct cgroups *c)
{
	for (int i = 0; i < c->n_dirs; i++) {
		sweep(c->dirs[i]); /* of those that died while we ran */
		fd_close(&c->dirs[i]);
	}
	c->n_dirs = 0;
}

struct limit {
	int dir; /* index in cgroups.dirs */
	const char *file;
	char text[48];
};

static int limits_write(int leaf, int dir, const struct limit *lim, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int rc = lim[i].dir == dir
				 ? value_write(leaf, lim[i].file, lim[i].text)
				 : 0;

		if (rc)
			return rc;
	}
	return 0;
}

static int leaf_make(const struct cgroups *c, int i, const char *name,
		     uint32_t vcpus, uint32_t ram_mib)
{
	unsigned long long bytes =
		((unsigned long long)ram_mib << 20) + CGROUP_OWN_BYTES;
	unsigned quota = (vcpus + 1) * CGROUP_PERIOD_US;
	struct limit v1[] = {{0, "memory.limit_in_bytes", ""},
			     {1, "pids.max", ""},
			     {2, "cpu.cfs_quota_us", ""}};
	struct limit v2[] = {
		{0, "memory.max", ""}, {0, "pids.max", ""}, {0, "cpu.max", ""}};
	struct limit *lim = c->is_v2 ? v2 : v1;
	_cleanup_fd_ int leaf = -1;
	int rc;

	snprintf(lim[0].text, sizeof(lim[0].text), "%llu", bytes);
	snprintf(lim[1].text, sizeof(lim[1].text), "%d", CGROUP_TASKS_MAX);
	snprintf(lim[2].text, sizeof(lim[2].text), c->is_v2 ? "%u %d" : "%u",
		 quota, CGROUP_PERIOD_US);
	if (mkdirat(c->dirs[i], name, 0755))
		return -errno;
	leaf = folder_open(c->dirs[i], name);
	rc = leaf < 0 ? -errno : limits_write(leaf, i, lim, 3);
	if (rc)
		unlinkat(c->dirs[i], name, AT_REMOVEDIR);
	return rc;
}

static void leaf_name(uint64_t number, char name[48])
{
	snprintf(name, 48, "%d-%llu", (int)getpid(),
		 (unsigned long long)number);
}

/* Without it a VM only takes more of the CPU than it should. */
static void leaf_weight(struct link *l, uint64_t number, bool is_background)
{
	const struct cgroups *c = &l->cgroups;
	_cleanup_fd_ int leaf = -1;
	char name[48];

	if (!number || !c->n_dirs)
		return;
	leaf_name(number, name);
	leaf = folder_open(c->dirs[c->n_dirs - 1], name);
	if (leaf >= 0)
		(void)weight_write(c, leaf, is_background);
}

void link_cgroup_foreground(struct link *l, uint64_t number)
{
	leaf_weight(l, number, false);
}

uint64_t link_cgroup_make(struct link *l, uint32_t vcpus, uint32_t ram_mib,
			  bool is_background)
{
	struct cgroups *c = &l->cgroups;
	char name[48];

	if (!c->n_dirs)
		return 0;
	sweep_rest(c);
	leaf_name(++l->cgroup_next, name);
	for (int i = 0; i < c->n_dirs; i++) {
		int rc = leaf_make(c, i, name, vcpus, ram_mib);

		if (!rc)
			continue;
		log_warn("cgroup limits unavailable from now on: making %s: %s",
			 name, strerror(-rc));
		while (i-- > 0)
			unlinkat(c->dirs[i], name, AT_REMOVEDIR);
		cgroups_close(c);
		return 0;
	}
	if (is_background)
		leaf_weight(l, l->cgroup_next, true);
	return l->cgroup_next;
}

void link_cgroup_join(struct link *l, uint64_t number, pid_t pid)
{
	char path[80], name[48], text[16];

	if (!number)
		return;
	leaf_name(number, name);
	snprintf(path, sizeof(path), "%s/cgroup.procs", name);
	snprintf(text, sizeof(text), "%d", (int)pid);
	for (int i = 0; i < l->cgroups.n_dirs; i++) {
		int rc = value_write(l->cgroups.dirs[i], path, text);

		if (rc && rc != -ESRCH)
			log_warn("pid=%d cannot join %s: %s", (int)pid, path,
				 strerror(-rc));
	}
}

void link_cgroup_leave(struct link *l, uint64_t number)
{
	char name[48];

	if (!number)
		return;
	leaf_name(number, name);
	for (int i = 0; i < l->cgroups.n_dirs; i++)
		unlinkat(l->cgroups.dirs[i], name, AT_REMOVEDIR);
	sweep_rest(&l->cgroups);
}
