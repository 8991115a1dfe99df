/* The state folder; see state_dir.h. */
#include "state_dir.h"
#include "fd.h"
#include "log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
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

/*
 * What may lie in a state folder: the daemon's, the hutch command's, and logs
 * that are opened before the daemon starts.  A name that ends in '*' stands
 * for all that begin with it.
 */
static const char *const own_names[] = {
	".",
	"..",
	"lock",
	"node*", /* and node.new, by state_dir_write */
	"request.key*",
	"listen*",
	"admin.sock",
	"hutch.db*",
	"files",   /* bytes of Files of graphs (blob/) */
	"stopped", /* memory and disks of stopped sandboxes */
	"vm",
	"start.lock",
	"users.lock",
	"started-by-hutch",
	"hutchd.log",
	"daemon.log",
	"lost+found",
};

static bool is_own(const char *name)
{
	for (size_t i = 0; i < sizeof(own_names) / sizeof(*own_names); i++) {
		size_t len = strlen(own_names[i]);

		if (own_names[i][len - 1] == '*'
			    ? !strncmp(name, own_names[i], len - 1)
			    : !strcmp(name, own_names[i]))
			return true;
	}
	return false;
}

/* Does it hold hutch.db, and the first name that is not ours ("" = none). */
static int look(const char *dir, bool *ret_has_db, char *ret_foreign,
		size_t cap, struct err *e)
{
	DIR *d = opendir(dir);
	struct dirent *ent;

	*ret_has_db = false;
	*ret_foreign = 0;
	if (!d)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot read the state folder %s: %m", dir);
	while ((ent = readdir(d))) {
		if (!strcmp(ent->d_name, "hutch.db"))
			*ret_has_db = true;
		if (!*ret_foreign && !is_own(ent->d_name))
			snprintf(ret_foreign, cap, "%s", ent->d_name);
	}
	closedir(d);
	return 0;
}

/*
 * May the folder be filled and closed to others: a new one, an empty one, a
 * state.  /tmp or a home given by mistake is none of these.
 */
static int check(const char *dir, mode_t mode, struct err *e)
{
	char foreign[NAME_MAX + 1];
	bool has_db;

	if (look(dir, &has_db, foreign, sizeof(foreign), e))
		return -1;
	if (*foreign && !has_db)
		return err_set(e, ERR_INVALID_REQUEST, "state_dir",
			       "the state folder %s is not empty and no hutch "
			       "state: it holds \"%.64s\" and no hutch.db; "
			       "name an empty or a new folder, e.g. %s/hutch",
			       dir, log_text(foreign, strlen(foreign)).s, dir);
	if ((mode & 077) && *foreign)
		return err_set(e, ERR_INVALID_REQUEST, "state_dir",
			       "the state folder %s is open to other users "
			       "(mode %04o) and holds \"%.64s\", which is not "
			       "hutch's: move that away, or run chmod 700 %s",
			       dir, mode & 07777,
			       log_text(foreign, strlen(foreign)).s, dir);
	return 0;
}

int state_dir_check(const char *dir, struct err *e)
{
	struct stat st;

	return stat(dir, &st) ? 0 : check(dir, st.st_mode, e);
}

static int claim(const char *dir, mode_t mode, struct err *e)
{
	if (check(dir, mode, e))
		return -1;
	if ((mode & 077) && chmod(dir, 0700))
		return err_set(e, ERR_INTERNAL, NULL,
			       "the state folder %s: chmod 0700: %m", dir);
	return 0;
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
	return claim(dir, st.st_mode, e);
}

/* Who holds the lock wrote its pid into it. */
static int in_use(const char *dir, int fd, struct err *e)
{
	char pid[24] = "";
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

	pid[n > 0 ? n : 0] = 0;
	pid[strspn(pid, "0123456789")] = 0;
	return err_set(e, ERR_INTERNAL, NULL,
		       "another hutchd (pid %s) uses the state folder %s; stop "
		       "it (kill PID), or give this one its own folder with "
		       "--state",
		       *pid ? pid : "unknown", dir);
}

int state_dir_open(const char *dir, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char path[4096], pid[24];
	int n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

	if (make(dir, e) || state_dir_path(dir, "lock", path, sizeof(path), e))
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, ERR_INTERNAL, NULL, "%s: %m", path);
	if (flock(fd, LOCK_EX | LOCK_NB))
		return in_use(dir, fd, e);
	if (ftruncate(fd, 0) || pwrite(fd, pid, (size_t)n, 0) != n)
		return err_set(e, ERR_INTERNAL, NULL, "cannot write %s: %m",
			       path);
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
