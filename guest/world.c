/* Mounts; see world.h. */
#include "world.h"
#include "limits.h"
#include "port.h"
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/quota.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define ROOT		 WORLD_ROOT
#define MACHINE_ID_BYTES 33 /* 32 hex digits and a line feed */

struct mount_step {
	const char *source, *target, *type;
	unsigned long flags;
	const char *options;
	bool is_new; /* make the folder when the image lacks it */
};

static int fail(char *why, size_t why_cap, const char *what, const char *path)
{
	int rc = -errno;

	snprintf(why, why_cap, "%s %s: %s", what, path, strerror(-rc));
	return rc;
}

static int mounts_do(const struct mount_step *m, size_t n, char *why,
		     size_t why_cap)
{
	for (size_t i = 0; i < n; i++, m++) {
		if (m->is_new && mkdir(m->target, 0755) && errno != EEXIST)
			return fail(why, why_cap, "mkdir", m->target);
		if (mount(m->source, m->target, m->type, m->flags, m->options))
			return fail(why, why_cap, "mount", m->target);
	}
	return 0;
}

/* ---- init's own view --------------------------------------------------- */

/* Loopback works inside the sandbox; there is no other interface. */
static void loopback_up(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP};

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr))
		port_log("lo: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
}

struct setting {
	const char *path, *value;
};

static const struct setting settings[] = {
	/* No capability, also not through a namespace of one's own. */
	{"/proc/sys/user/max_user_namespaces", "0"},
	{"/proc/sys/kernel/dmesg_restrict", "1"},
	/* Fresh memory by 16 pages where it is too small for a huge one: a
	 * sixteenth of the page faults. */
	{"/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
	 "always"},
	/* Work that the kernel would do by itself, now and then: millions of
	 * instructions in the midst of somebody's run. */
	{"/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
	 "4000000000"},
	{"/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "0"},
	{"/proc/sys/vm/compaction_proactiveness", "0"},
	{"/proc/sys/vm/stat_interval", "60"},
};

static void setting_write(const struct setting *s)
{
	int fd = open(s->path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, s->value, strlen(s->value)) < 0)
		port_log("%s: %s", s->path, strerror(errno));
	if (fd >= 0)
		close(fd);
}

int world_early(char *why, size_t why_cap)
{
	static const struct mount_step steps[] = {
		{"proc", "/proc", "proc", MS_NOSUID | MS_NOEXEC | MS_NODEV,
		 NULL, false},
		{"sysfs", "/sys", "sysfs", MS_NOSUID | MS_NOEXEC | MS_NODEV,
		 NULL, false},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2",
		 MS_NOSUID | MS_NOEXEC | MS_NODEV, NULL, false},
		{"tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755",
		 false},
	};
	/* The kernel mounts /dev itself; with another one it may be empty. */
	if (access("/dev/null", F_OK) &&
	    mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL))
		return fail(why, why_cap, "mount", "/dev");
	for (int fd = 0; fd < 3; fd++) {
		close(fd);
		/* check-source: allow cloexec 0, 1 and 2 are inherited */
		if (open("/dev/null", O_RDWR) != fd)
			return fail(why, why_cap, "open", "/dev/null");
	}
	if (mounts_do(steps, ARRAY_LEN(steps), why, why_cap))
		return -1;
	loopback_up();
	for (size_t i = 0; i < ARRAY_LEN(settings); i++)
		setting_write(&settings[i]);
	return 0;
}

/* ---- the sandbox's tree ------------------------------------------------ */

static int dirs_make(const char *const *paths, size_t n, char *why,
		     size_t why_cap)
{
	for (size_t i = 0; i < n; i++)
		if (mkdir(paths[i], 0755) && errno != EEXIST)
			return fail(why, why_cap, "mkdir", paths[i]);
	return 0;
}

/* Quota of user code works when the file system was made for it. */
static bool quota_probe(void)
{
	struct dqblk q;
	int fd = open("/disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool ok = fd >= 0 && !syscall(SYS_quotactl_fd, fd,
				      QCMD(Q_GETQUOTA, USRQUOTA), USER_ID, &q);

	if (fd >= 0)
		close(fd);
	return ok;
}

static int disk_mount(struct world *w, char *why, size_t why_cap)
{
	static const char *const dirs[] = {"/disk/upper", "/disk/work",
					   "/disk/workspace"};
	unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOATIME;

	/* With quota where the file system has it, else without. */
	if (mount("/dev/vdc", "/disk", "ext4", flags, "usrquota") &&
	    mount("/dev/vdc", "/disk", "ext4", flags, NULL))
		return fail(why, why_cap, "mount /dev/vdc at", "/disk");
	w->has_disk = true;
	w->has_quota = quota_probe();
	return dirs_make(dirs, ARRAY_LEN(dirs), why, why_cap);
}

static int ram_mount(char *why, size_t why_cap)
{
	static const char *const dirs[] = {"/disk/upper", "/disk/work",
					   "/disk/workspace"};

	if (mount("tmpfs", "/disk", "tmpfs", MS_NOSUID | MS_NODEV,
		  "mode=755,size=50%"))
		return fail(why, why_cap, "mount", "/disk");
	return dirs_make(dirs, ARRAY_LEN(dirs), why, why_cap);
}

struct node {
	const char *path;
	mode_t mode;
	unsigned major, minor;
};

static int dev_fill(char *why, size_t why_cap)
{
	static const struct node nodes[] = {
		{ROOT "/dev/null", 0666, 1, 3},
		{ROOT "/dev/zero", 0666, 1, 5},
		{ROOT "/dev/full", 0666, 1, 7},
		{ROOT "/dev/random", 0666, 1, 8},
		{ROOT "/dev/urandom", 0666, 1, 9},
		{ROOT "/dev/tty", 0666, 5, 0},
	};
	static const char *const links[][2] = {
		{"/proc/self/fd", ROOT "/dev/fd"},
		{"/proc/self/fd/0", ROOT "/dev/stdin"},
		{"/proc/self/fd/1", ROOT "/dev/stdout"},
		{"/proc/self/fd/2", ROOT "/dev/stderr"},
		{"pts/ptmx", ROOT "/dev/ptmx"},
	};
	static const struct mount_step steps[] = {
		{"devpts", ROOT "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		 "newinstance,ptmxmode=0666,mode=0620", true},
		{"shm", ROOT "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV,
		 "mode=1777,size=30%", true},
	};
	mode_t old = umask(0);

	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		if (mknod(nodes[i].path, S_IFCHR | nodes[i].mode,
			  makedev(nodes[i].major, nodes[i].minor)))
			return fail(why, why_cap, "mknod", nodes[i].path);
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (symlink(links[i][0], links[i][1]))
			return fail(why, why_cap, "symlink", links[i][1]);
	umask(old);
	return mounts_do(steps, ARRAY_LEN(steps), why, why_cap);
}

static int machine_id_bind(struct world *w, char *why, size_t why_cap)
{
	static const char unset[MACHINE_ID_BYTES + 1] =
		"00000000000000000000000000000000\n";
	const char *target = ROOT "/etc/machine-id";
	int fd;

	w->machine_id =
		open("/run/machine-id", O_RDWR | O_CREAT | O_CLOEXEC, 0444);
	if (w->machine_id < 0 ||
	    write(w->machine_id, unset, MACHINE_ID_BYTES) != MACHINE_ID_BYTES)
		return fail(why, why_cap, "write", "/run/machine-id");
	fd = open(target, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
	if (fd < 0)
		return fail(why, why_cap, "create", target);
	close(fd);
	if (mount("/run/machine-id", target, NULL, MS_BIND, NULL))
		return fail(why, why_cap, "bind", target);
	return 0;
}

static int run_dir_make(struct world *w, char *why, size_t why_cap)
{
	const char *path = ROOT "/run/hutch";

	if (mkdir(path, 0755))
		return fail(why, why_cap, "mkdir", path);
	w->run_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return w->run_dir < 0 ? fail(why, why_cap, "open", path) : 0;
}

int world_build(struct world *w, bool want_disk, char *why, size_t why_cap)
{
	static const struct mount_step root[] = {
		{"/dev/vdb", "/template", "erofs",
		 MS_RDONLY | MS_NOSUID | MS_NODEV, NULL, false},
	};
	static const struct mount_step tree[] = {
		{"overlay", ROOT, "overlay", MS_NOSUID | MS_NODEV | MS_NOATIME,
		 "lowerdir=/template,upperdir=/disk/upper,workdir=/disk/work",
		 false},
		{"/disk/workspace", ROOT "/workspace", NULL, MS_BIND, NULL,
		 true},
		{"tmpfs", ROOT "/dev", "tmpfs", MS_NOSUID, "mode=755,size=64k",
		 true},
		{"tmpfs", ROOT "/tmp", "tmpfs", MS_NOSUID | MS_NODEV,
		 "mode=1777,size=30%", true},
		{"tmpfs", ROOT "/run", "tmpfs", MS_NOSUID | MS_NODEV,
		 "mode=755,size=8m", true},
		{"sysfs", ROOT "/sys", "sysfs",
		 MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
	};
	int rc = mounts_do(root, ARRAY_LEN(root), why, why_cap);

	rc = rc		 ? rc
	     : want_disk ? disk_mount(w, why, why_cap)
			 : ram_mount(why, why_cap);
	if (!rc && chown("/disk/workspace", USER_ID, USER_ID))
		rc = fail(why, why_cap, "chown", "/disk/workspace");
	rc = rc ? rc : mounts_do(tree, ARRAY_LEN(tree), why, why_cap);
	rc = rc ? rc : dev_fill(why, why_cap);
	rc = rc ? rc : machine_id_bind(w, why, why_cap);
	rc = rc ? rc : run_dir_make(w, why, why_cap);
	if (!rc && mkdir(ROOT "/proc", 0555) && errno != EEXIST)
		rc = fail(why, why_cap, "mkdir", ROOT "/proc");
	return rc;
}

int world_enter(const char **ret_what)
{
	static const char *const what[] = {"private mounts", "proc", "chdir",
					   "pivot_root", "detach"};
	int i = 0;

	if (!mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) && ++i &&
	    !mount("proc", ROOT "/proc", "proc",
		   MS_NOSUID | MS_NOEXEC | MS_NODEV, NULL) &&
	    ++i && !chdir(ROOT) && ++i && !syscall(SYS_pivot_root, ".", ".") &&
	    ++i && !umount2(".", MNT_DETACH) && !chdir("/"))
		return 0;
	*ret_what = what[i];
	return -errno;
}

/* ---- later ------------------------------------------------------------- */

int world_disk_limit(const struct world *w, unsigned long long bytes)
{
	struct dqblk q = {.dqb_valid = QIF_BLIMITS};
	int fd, rc = 0;

	if (!w->has_quota)
		return bytes ? -EOPNOTSUPP : 0;
	q.dqb_bhardlimit = bytes / 1024; /* blocks of 1 KiB */
	fd = open("/disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (syscall(SYS_quotactl_fd, fd, QCMD(Q_SETQUOTA, USRQUOTA), USER_ID,
		    &q))
		rc = -errno;
	close(fd);
	return rc;
}

void world_close(const struct world *w)
{
	sync();
	/* With everything mounted below it; the nest's copies went with it. */
	if (umount2(ROOT, MNT_DETACH))
		port_log("umount " ROOT ": %s", strerror(errno));
	if (!w->has_disk || !umount2("/disk", 0))
		return;
	port_log("umount /disk: %s", strerror(errno));
	if (mount(NULL, "/disk", NULL, MS_REMOUNT | MS_RDONLY, NULL))
		port_log("remount of /disk: %s", strerror(errno));
	sync();
}
