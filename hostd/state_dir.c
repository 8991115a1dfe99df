/* The state folder; see state_dir.h. */
#include "state_dir.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int state_dir_path(const char *dir, const char *name, char *dst, size_t cap,
		   struct err *e)
{
	if ((size_t)snprintf(dst, cap, "%s/%s", dir, name) < cap)
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, "state_dir",
		       "state folder %s: the path is too long", dir);
}

/* Its parents with the usual mode, itself for us only. */
static int make(const char *dir, struct err *e)
{
	char part[4096];
	struct stat st;

	if (strlen(dir) >= sizeof(part))
		return err_set(e, ERR_INVALID_REQUEST, "state_dir",
			       "state folder: the path is too long");
	snprintf(part, sizeof(part), "%s", dir);
	for (char *p = part + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		mkdir(part, 0755);
		*p = '/';
	}
	if (mkdir(dir, 0700) && errno != EEXIST)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot make the state folder %s: %m", dir);
	if (stat(dir, &st) || !S_ISDIR(st.st_mode))
		return err_set(e, ERR_INTERNAL, NULL,
			       "the state folder %s is no folder", dir);
	if (st.st_uid != geteuid())
		return err_set(e, ERR_INTERNAL, NULL,
			       "the state folder %s belongs to user %u, not to "
			       "user %u",
			       dir, st.st_uid, geteuid());
	if ((st.st_mode & 077) && chmod(dir, 0700))
		return err_set(e, ERR_INTERNAL, NULL,
			       "the state folder %s: chmod 0700: %m", dir);
	return 0;
}

int state_dir_open(const char *dir, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char path[4096];

	if (make(dir, e) || state_dir_path(dir, "lock", path, sizeof(path), e))
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "%s: %m", path);
	if (flock(fd, LOCK_EX | LOCK_NB))
		return err_set(e, ERR_INTERNAL, NULL,
			       "another hutchd uses the state folder %s", dir);
	return fd_take(&fd);
}

int state_dir_write(const char *dir, const char *name, const char *text,
		    struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char path[4096], tmp[4104];

	if (state_dir_path(dir, name, path, sizeof(path), e))
		return -1;
	if (!text) {
		unlink(path);
		return 0;
	}
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		  0600);
	if (fd < 0 || fd_write_all(fd, text, strlen(text)) || fsync(fd) ||
	    rename(tmp, path))
		return err_set(e, ERR_INTERNAL, NULL, "cannot write %s: %m",
			       path);
	return 0;
}

static int node_read(const char *dir, char node[NODE_BYTES + 1], struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char path[4096];

	if (state_dir_path(dir, "node", path, sizeof(path), e))
		return -1;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fd_read_all(fd, node, NODE_BYTES) ||
	    strspn(node, "0123456789abcdefghijklmnopqrstuvwxyz") != NODE_BYTES)
		return err_set(e, ERR_INTERNAL, NULL,
			       "%s: expected %d characters of 0-9 a-z", path,
			       NODE_BYTES);
	return 0;
}

int state_dir_node(const char *dir, char node[NODE_BYTES + 1], struct err *e)
{
	static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
	unsigned char raw[NODE_BYTES];

	if (*node)
		return 0;
	memset(node, 0, NODE_BYTES + 1);
	if (node_read(dir, node, e))
		return -1;
	if (*node)
		return 0;
	if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
		return err_set(e, ERR_INTERNAL, NULL, "getrandom: %m");
	for (int i = 0; i < NODE_BYTES; i++)
		node[i] = digits[raw[i] % (sizeof(digits) - 1)];
	return state_dir_write(dir, "node", node, e);
}
