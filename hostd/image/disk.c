/* Sandbox disks; see disk.h. */
#include "disk.h"
#include "fd.h"
#include "sparse.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DISK_UUID      "6b756368-6874-4000-8000-000000000000"
#define DISK_HASH_SEED "6b756368-6874-4000-8000-000000000001"

static const char *const mke2fs_paths[] = {"/usr/sbin/mke2fs", "/sbin/mke2fs"};

/* Features one by one, and no configuration file: the host's defaults shall
 * not reach into the guest. */
static const char *const mke2fs_args[] = {
	"mke2fs",
	"-q",
	"-F",
	"-O",
	"none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,"
	"sparse_super2,large_file,huge_file,dir_nlink,extra_isize,quota",
	"-E",
	"num_backup_sb=0,assume_storage_prezeroed=1,lazy_itable_init=0,"
	"packed_meta_blocks=1,root_owner=0:0,quotatype=usrquota,"
	"hash_seed=" DISK_HASH_SEED,
	"-U",
	DISK_UUID,
	"-G",
	"128",
	"-I",
	"256",
	"-i",
	"16384",
	"-b",
	"4096",
	"-m",
	"0",
	"-J",
	"size=4",
	"-e",
	"continue",
};
static const char *const mke2fs_env[] = {
	"MKE2FS_CONFIG=/dev/null", "E2FSPROGS_FAKE_TIME=1", "PATH=/bin", NULL};

#define N_ARGS (sizeof(mke2fs_args) / sizeof(mke2fs_args[0]))

/* Its output goes nowhere: without a configuration file it complains. */
static int mke2fs_spawn(char *path, pid_t *ret_pid)
{
	posix_spawn_file_actions_t fa;
	const char *argv[N_ARGS + 2];
	int rc = ENOENT;

	memcpy(argv, mke2fs_args, sizeof(mke2fs_args));
	argv[N_ARGS] = path;
	argv[N_ARGS + 1] = NULL;
	posix_spawn_file_actions_init(&fa);
	for (int fd = 0; fd < 3; fd++)
		posix_spawn_file_actions_addopen(&fa, fd, "/dev/null", O_RDWR,
						 0);
	posix_spawn_file_actions_addclosefrom_np(&fa, 3);
	for (size_t i = 0; rc == ENOENT && i < 2; i++)
		rc = posix_spawn(ret_pid, mke2fs_paths[i], &fa, NULL,
				 (char *const *)(uintptr_t)argv,
				 (char *const *)(uintptr_t)mke2fs_env);
	posix_spawn_file_actions_destroy(&fa);
	return -rc;
}

static int mke2fs_run(char *path, struct err *e)
{
	int status = 0, rc;
	pid_t pid;

	rc = mke2fs_spawn(path, &pid);
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot run mke2fs (package e2fsprogs): %s",
			       strerror(-rc));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_set(e, ERR_INTERNAL, NULL,
				       "waiting for mke2fs: %s",
				       strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "mke2fs on %s ended with status %#x (1.47 or "
			       "newer is needed)",
			       path, (unsigned)status);
	return 0;
}

/* Its folder is locked: `tmp` is nobody else's, at most one that died left
 * it. */
static int disk_make(const char *path, struct err *e)
{
	char tmp[PATH_MAX + 64];
	_cleanup_fd_ int fd = -1;
	int rc;

	if (snprintf(tmp, sizeof(tmp), "%s.new", path) >= (int)sizeof(tmp))
		return err_set(e, ERR_INTERNAL, NULL, "%s: path too long",
			       path);
	unlink(tmp);
	fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)DISK_VIRTUAL_BYTES))
		return err_set(e, ERR_INTERNAL, NULL, "cannot make %s: %s", tmp,
			       strerror(errno));
	rc = mke2fs_run(tmp, e);
	if (!rc && (sparse_dig(fd, NULL) || fsync(fd) || fchmod(fd, 0444) ||
		    rename(tmp, path)))
		rc = err_set(e, ERR_INTERNAL, NULL, "cannot finish %s: %s",
			     path, strerror(errno));
	if (rc)
		unlink(tmp);
	return rc;
}

/* 1 when it is there, 0 when not. */
static int disk_look(const char *path, int *ret_fd)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size != (off_t)DISK_VIRTUAL_BYTES)
		return 0;
	*ret_fd = fd_take(&fd);
	return 1;
}

/* Threads of this daemon and other daemons meet here: one makes the disk. */
static int folder_lock(const char *path, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	int rc;

	if (mkdir(path, 0755) && errno != EEXIST)
		return err_set(e, ERR_INTERNAL, NULL, "cannot make %s: %s",
			       path, strerror(errno));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while ((rc = fd < 0 ? -1 : flock(fd, LOCK_EX)) < 0 && errno == EINTR)
		continue;
	if (rc < 0)
		return err_set(e, ERR_INTERNAL, NULL, "cannot lock %s: %s",
			       path, strerror(errno));
	return fd_take(&fd);
}

int disk_template_open(const char *cache_dir, int *ret_fd, struct err *e)
{
	char folder[PATH_MAX], path[PATH_MAX + sizeof(DISK_FORMAT) + 1];
	_cleanup_fd_ int locked = -1;

	if (snprintf(folder, sizeof(folder), "%s/disks", cache_dir) >=
	    (int)sizeof(folder))
		return err_set(e, ERR_INTERNAL, NULL, "%s: path too long",
			       cache_dir);
	snprintf(path, sizeof(path), "%s/" DISK_FORMAT, folder);
	if (disk_look(path, ret_fd))
		return 0;
	locked = folder_lock(folder, e);
	if (locked < 0)
		return -1;
	if (disk_look(path, ret_fd))
		return 0;
	if (disk_make(path, e))
		return -1;
	if (disk_look(path, ret_fd))
		return 0;
	return err_set(e, ERR_INTERNAL, NULL, "%s is not a disk of %llu bytes",
		       path, DISK_VIRTUAL_BYTES);
}

/* Some file systems have no O_TMPFILE: a name for an instant then. */
static int nameless_open(int dir_fd)
{
	static atomic_uint n_made; /* several threads copy at once */
	int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char name[40];

	if (fd >= 0 || errno != EOPNOTSUPP)
		return fd;
	snprintf(name, sizeof(name), ".disk-%d-%u", (int)getpid(),
		 atomic_fetch_add(&n_made, 1));
	fd = openat(dir_fd, name,
		    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		unlinkat(dir_fd, name, 0);
	return fd;
}

int disk_copy(int src, int dir_fd, int *ret_fd, uint64_t *ret_copied)
{
	_cleanup_fd_ int fd = nameless_open(dir_fd);
	int rc;

	if (fd < 0)
		return -errno;
	rc = sparse_copy(src, fd, ret_copied);
	if (!rc)
		*ret_fd = fd_take(&fd);
	return rc;
}
