/* Paths of the workspace, and who may walk them; see file_call_priv.h. */
#include "fd.h"
#include "file_call_priv.h"
#include "limits.h"
#include "loop.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORKSPACE     FILE_WORKSPACE
#define FOLDER_MODE   0755
#define RESOLVE_TRIES 8

/* Calls by number: a thread of its own has its own ids, which the C library
 * would set for all. */
int file_thread_drop(int id)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	if (syscall(SYS_setgroups, 0, NULL))
		return -errno;
	syscall(SYS_setfsgid, id);
	syscall(SYS_setfsuid, id);
	/* They answer the old id, also when they refuse. */
	if (syscall(SYS_setfsgid, id) != id || syscall(SYS_setfsuid, id) != id)
		return -EPERM;
	return syscall(SYS_capset, &head, none) ? -errno : 0;
}

int file_open_below(const struct file_root *r, const char *path, int flags)
{
	struct open_how how = {
		.flags = (uint64_t)(flags | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	/* EAGAIN: a folder on the way was moved meanwhile. */
	for (int i = 0; i < RESOLVE_TRIES; i++) {
		fd = syscall(SYS_openat2, r->fd, path, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	return fd < 0 ? -errno : (int)fd;
}

int file_look(int fd, struct statx *ret)
{
	if (statx(fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW,
		  STATX_BASIC_STATS | STATX_MNT_ID, ret))
		return -errno;
	return ret->stx_mask & STATX_MNT_ID ? 0 : -ENOSYS;
}

int file_root_open(struct file_root *r, const char *path)
{
	struct statx st;
	int fd, rc;

	r->fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (r->fd < 0)
		return -errno;
	fd = file_open_below(r, WORKSPACE, O_PATH | O_DIRECTORY);
	rc = fd < 0 ? fd : file_look(fd, &st);
	fd_close(&fd);
	if (rc)
		fd_close(&r->fd);
	else
		r->mount = st.stx_mnt_id;
	return rc;
}

/* -EXDEV: it is outside of the workspace. */
int file_open_inside(const struct file_root *r, const char *path, int flags,
		     struct statx *st)
{
	int fd = file_open_below(r, path, flags);
	int rc = fd < 0 ? fd : file_look(fd, st);

	if (!rc && st->stx_mnt_id != r->mount)
		rc = -EXDEV;
	if (rc)
		fd_close(&fd);
	return rc ? rc : fd;
}

bool file_is_late(const struct file_call *c)
{
	return loop_now_ns() >= c->deadline_ns;
}

/* mkdir -p of `path`: 0 or -errno; the path is whole again afterwards. */
static int folders_make(struct file_call *c, char *path)
{
	_cleanup_fd_ int at = -1;
	char *slash = path + sizeof(WORKSPACE) - 1;
	struct statx st;
	int rc = 0;

	at = file_open_inside(c->root, WORKSPACE, O_PATH | O_DIRECTORY, &st);
	if (at < 0)
		return at;
	while (!rc && *slash) {
		char *name = slash + 1;
		int next;

		slash = name + strcspn(name, "/");
		if (file_is_late(c))
			return -ETIME;
		char was = *slash;

		*slash = '\0';
		if (mkdirat(at, name, FOLDER_MODE) && errno != EEXIST)
			rc = -errno;
		next = rc ? rc
			  : file_open_inside(c->root, path,
					     O_PATH | O_DIRECTORY, &st);
		*slash = was;
		if (next < 0)
			return next;
		fd_close(&at);
		at = next;
	}
	return rc;
}

/* The folder that the path's last name is in; *ret_name points into the path.
 */
int file_parent_open(struct file_call *c, bool is_made, const char **ret_name)
{
	char *slash = strrchr(c->path, '/');
	struct statx st;
	int rc;

	if (!slash)
		return -EISDIR; /* the workspace itself */
	*slash = '\0';
	rc = file_open_inside(c->root, c->path, O_PATH | O_DIRECTORY, &st);
	if (rc == -ENOENT && is_made) {
		rc = folders_make(c, c->path);
		rc = rc ? rc
			: file_open_inside(c->root, c->path,
					   O_PATH | O_DIRECTORY, &st);
	}
	*slash = '/';
	*ret_name = slash + 1;
	return rc;
}
