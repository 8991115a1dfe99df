/* Files of a runner; see runner_files.h. */
#include "runner_files.h"
#include "fd.h"
#include "guest.h"
#include "runner.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_DIR	  "/lib/runner/"
#define PROGRAM_BYTES_MAX (96u << 10)

struct runner_type {
	const char *program;	 /* its name in both folders */
	const char *const *argv; /* before the program's path */
	const char *const *env;
	const char *lane;  /* library for its express lane, or NULL */
	const char *spare; /* library of interpreters that wait, or NULL */
};

/* Heap of python: grow in large steps and keep what was once touched, because
 * a page fault costs milliseconds where the guest's kernel is slow.  The
 * runner takes these out of os.environ. */
static const struct runner_type types[] = {
	[RUNNER_PYTHON] =
		{
			"python.py",
			(const char *const[]){"python3", "-I", "-B", NULL},
			(const char *const[]){
				"MALLOC_TOP_PAD_=4194304",
				"MALLOC_TRIM_THRESHOLD_=536870912",
				"MALLOC_MMAP_THRESHOLD_=4194304", NULL},
			"lane.so",
			"spare.so",
		},
	[RUNNER_NODE] =
		{
			"node.js",
			(const char *const[]){
				"node", "--experimental-vm-modules",
				"--disable-warning=ExperimentalWarning", NULL},
			(const char *const[]){NULL},
			"lane.node",
			NULL,
		},
	[RUNNER_SHELL] =
		{
			"shell.sh",
			(const char *const[]){"bash", NULL},
			(const char *const[]){
				"RUN_INPUT=" RUNNER_DIR "input",
				"RUN_CONFIG=" RUNNER_DIR "config",
				"RUN_RESULT=" RUNNER_DIR "out/result", NULL},
			NULL,
			NULL,
		},
};

enum shell_file { FILE_CODE, FILE_INPUT, FILE_CONFIG, FILE_ENV, FILES_N };
static const char *const file_names[FILES_N] = {"code", "input", "config",
						"env"};
/* One shell waits at a time: its files. */
static int files[FILES_N] = {-1, -1, -1, -1};
static int out_dir = -1;

static int file_make(int dir, const char *name, mode_t mode)
{
	int fd;

	if (unlinkat(dir, name, 0) && errno != ENOENT)
		return -errno;
	fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	return fd < 0 ? -errno : fd;
}

static int program_copy(int dir, const char *name)
{
	static char text[PROGRAM_BYTES_MAX];
	_cleanup_fd_ int from = -1, to = -1;
	char path[64];
	ssize_t n;

	if (!faccessat(dir, name, F_OK, 0))
		return 0;
	snprintf(path, sizeof(path), PROGRAM_DIR "%s", name);
	from = open(path, O_RDONLY | O_CLOEXEC);
	if (from < 0)
		return -errno;
	n = read(from, text, sizeof(text));
	if (n < 0 || (size_t)n == sizeof(text))
		return n < 0 ? -errno : -EFBIG;
	to = file_make(dir, name, 0444);
	return to < 0 ? to : fd_write_all(to, text, (size_t)n);
}

static int shell_files_make(int dir)
{
	int fd;

	for (int i = 0; i < FILES_N; i++) {
		fd_close(&files[i]);
		files[i] = file_make(dir, file_names[i], 0444);
		if (files[i] < 0)
			return files[i];
	}
	if (mkdirat(dir, "out", 0755) && errno != EEXIST)
		return -errno;
	if (out_dir < 0)
		out_dir = openat(dir, "out", O_DIRECTORY | O_CLOEXEC);
	if (out_dir < 0 || fchown(out_dir, USER_ID, USER_ID))
		return -errno;
	fd = file_make(out_dir, "result", 0644);
	if (fd < 0)
		return fd;
	if (fchown(fd, USER_ID, USER_ID)) {
		close(fd);
		return -errno;
	}
	close(fd);
	return 0;
}

bool runner_files_know_lane(enum runner_kind kind)
{
	return kind != RUNNER_NONE && types[kind].lane;
}

int runner_files_make(struct guest *g)
{
	const struct runner_type *t = &types[g->prepare.runner];
	int rc = program_copy(g->world.run_dir, t->program);

	if (!rc && g->lane.fd >= 0)
		rc = program_copy(g->world.run_dir, t->lane);
	if (!rc && t->spare)
		rc = program_copy(g->world.run_dir, t->spare);
	if (!rc && g->prepare.runner == RUNNER_SHELL)
		rc = shell_files_make(g->world.run_dir);
	return rc;
}

void runner_files_argv(struct guest *g, struct nest_strings *s,
		       const char *role, uint32_t *ret_n)
{
	const struct runner_type *t = &types[g->prepare.runner];
	const char *preload = g->prepare.has_preload ? "preload" : "plain";
	char path[64];

	for (const char *const *a = t->argv; *a; a++, ++*ret_n)
		nest_add(s, *a, strlen(*a));
	snprintf(path, sizeof(path), RUNNER_DIR "%s", t->program);
	nest_add(s, path, strlen(path));
	nest_add(s, preload, strlen(preload));
	*ret_n += 2;
	if (role) {
		nest_add(s, role, strlen(role));
		++*ret_n;
	}
}

void runner_files_env(struct guest *g, struct nest_strings *s, uint32_t *ret_n)
{
	for (const char *const *e = types[g->prepare.runner].env; *e;
	     e++, ++*ret_n)
		nest_add(s, *e, strlen(*e));
}

int runner_files_stdin(struct guest *g)
{
	int fd;

	if (g->prepare.runner != RUNNER_SHELL)
		fd = fcntl(g->null_fd, F_DUPFD_CLOEXEC, 0);
	else /* not a copy of ours: it has an offset of its own */
		fd = openat(g->world.run_dir, file_names[FILE_INPUT],
			    O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* ---- the shell's run --------------------------------------------------- */

static bool is_shell_name(const uint8_t *p, size_t len)
{
	if (!len || isdigit(p[0]))
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum(p[i]) && p[i] != '_')
			return false;
	return true;
}

int runner_files_env_text(struct span list, struct bytes *ret)
{
	struct span item;
	int rc = 0;

	while (!rc && wire_list_next(&list, &item)) {
		const uint8_t *eq = memchr(item.data, '=', item.len);
		size_t n = eq ? (size_t)(eq - item.data) : 0;

		if (!is_shell_name(item.data, n))
			continue;
		rc = bytes_printf(ret, "export %.*s='", (int)n, item.data);
		for (size_t i = n + 1; !rc && i < item.len; i++)
			rc = item.data[i] == '\''
				     ? bytes_append(ret, "'\\''", 4)
				     : bytes_append(ret, item.data + i, 1);
		rc = rc ? rc : bytes_append(ret, "'\n", 2);
	}
	return rc;
}

static int file_write(enum shell_file f, const struct wire_value *v,
		      const char *absent)
{
	if (v->is_set)
		return fd_pwrite_all(files[f], v->s.data, v->s.len, 0);
	return fd_pwrite_all(files[f], absent, strlen(absent), 0);
}

int runner_files_request(struct command *c, const struct wire_map *m)
{
	_cleanup_bytes_ struct bytes env = {0};
	int rc = runner_files_env_text(m->v[GP_RUN_ENV].s, &env);

	rc = rc ? rc : file_write(FILE_CODE, &m->v[GP_RUN_CODE], "");
	rc = rc ? rc : file_write(FILE_INPUT, &m->v[GP_RUN_INPUT], "null");
	rc = rc ? rc : file_write(FILE_CONFIG, &m->v[GP_RUN_CONFIG], "null");
	if (!rc && env.len)
		rc = fd_pwrite_all(files[FILE_ENV], env.data, env.len, 0);
	if (!rc && send(c->channel.watch.fd, "r", 1, MSG_NOSIGNAL) < 0 &&
	    errno != EPIPE)
		rc = -errno;
	return rc;
}

void runner_files_result(struct command *c)
{
	static char text[GP_RESULT_BYTES_MAX + 4096];
	int fd = openat(out_dir, "result",
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n = 0;
	size_t from = 0;

	/* Only a run that ended well has a result; anything but a file the
	 * script itself put in its place. */
	if (fd < 0 || !WIFEXITED(c->status) || WEXITSTATUS(c->status) ||
	    fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		fd_close(&fd);
		return;
	}
	n = read(fd, text, sizeof(text));
	close(fd);
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		n--;
	while ((ssize_t)from < n && isspace((unsigned char)text[from]))
		from++;
	if ((ssize_t)from < n)
		runner_result(c, text + from, (size_t)n - from);
}
