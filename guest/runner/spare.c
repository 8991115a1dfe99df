/*
 * A Python that waits for its command line: spare.so, preloaded into an
 * ordinary start of the interpreter (guest/spare.h).
 *
 * What makes a start slow is the interpreter's own set-up, and nothing of it
 * depends on argv.  So main() is taken over: the interpreter is set up, as
 * Py_BytesMain would (docs.python.org/3/c-api/init_config.html), a request is
 * awaited, argv and what was computed from it are given to the interpreter,
 * and Py_RunMain goes on as in any start: from there no line of Python or C is
 * ours.  The process has executed nothing but its own program, has no thread,
 * no child and no library imported.
 *
 * Whatever a start could have done otherwise (another program of that name in
 * PATH, variables that the loader, the C library or the interpreter's set-up
 * read, packages of the user) is not imitated: the process executes the program
 * as a starter would, which is right by itself and merely slow.
 *
 *   spare -> init   RUNNER_WAITING
 *   init -> spare   RUNNER_REQUEST_EXEC with stdin; cwd, argv, env
 *   spare -> init   RUNNER_FAILED: errno and the step; else the channel's end
 *
 * Differences that remain are told in guest/README.md.
 */
#include "../spare.h"
#include "../limits.h"
#include "../path.h"
#include "../runner.h"
#include "fd.h"
#include "spare_python.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what the start was given ------------------------------------------ */

/* Strings of argv or env on the stack, back to back: what /proc shows. */
struct area {
	char *at;
	size_t len;
};

static struct {
	struct area args, env;
	char **env_kept; /* its own, less what made it a spare */
} own;

static struct area area_of(char *const *strings)
{
	struct area a = {.at = strings[0]};

	while (*strings && *strings == a.at + a.len)
		a.len += strlen(*strings++) + 1;
	return a;
}

/* A pad is what makes an area large enough for another command line. */
static bool is_ours(const char *pair)
{
	return !strncmp(pair, "LD_PRELOAD=", 11) ||
	       !strncmp(pair, SPARE_PAD "=", sizeof(SPARE_PAD));
}

static bool own_keep(char **argv, char **env)
{
	size_t n = 0;

	own.args = area_of(argv);
	own.env = area_of(env);
	while (env[n])
		n++;
	own.env_kept = calloc(n + 1, sizeof(*own.env_kept));
	if (!own.env_kept)
		return false;
	for (size_t to = 0; *env; env++)
		if (!is_ours(*env) && !(own.env_kept[to++] = strdup(*env)))
			return false;
	environ = own.env_kept;
	return true;
}

/* The strings as far as they fit. */
static void area_fill(const struct area *a, char *const *strings)
{
	size_t at = 0;

	memset(a->at, 0, a->len);
	for (; *strings; strings++) {
		size_t len = strlen(*strings) + 1, room = a->len - at;

		memcpy(a->at + at, *strings, len < room ? len : room - 1);
		if (len >= room)
			break;
		at += len;
	}
}

/* ---- the request ------------------------------------------------------- */

struct request {
	const char *cwd;
	char **argv, **env;
	int stdin_fd;
};

static char **strings_split(char **at, char *end, uint32_t n)
{
	char **list = calloc(n + 1, sizeof(*list));

	for (uint32_t i = 0; list && i < n; i++) {
		if (*at >= end)
			return NULL;
		list[i] = *at;
		*at += strlen(*at) + 1;
	}
	return list;
}

/* 0 or -errno; -ENODATA: init gave this one up. */
static int request_take(struct request *ret)
{
	struct runner_request h;
	char *text, *at, *end;
	size_t n_fds = 1;
	ssize_t n;
	int rc;

	do
		n = fd_recv(RUNNER_FD, &h, sizeof(h), &ret->stdin_fd, &n_fds,
			    0);
	while (n == -EINTR);
	if (n != sizeof(h) || n_fds != 1 || h.kind != RUNNER_REQUEST_EXEC)
		return n < 0 ? (int)n : -ENODATA;
	text = calloc(1, h.code_len + 1);
	rc = text ? fd_read_all(RUNNER_FD, text, h.code_len) : -ENOMEM;
	if (rc)
		return rc;
	at = text;
	end = text + h.code_len;
	ret->cwd = at;
	at += strlen(at) + 1;
	ret->argv = strings_split(&at, end, h.argc);
	ret->env = strings_split(&at, end, h.envc);
	return ret->argv && ret->env && ret->argv[0] ? 0 : -EPROTO;
}

static _Noreturn void fail(const char *step)
{
	struct runner_message m = {RUNNER_FAILED, (uint32_t)errno,
				   (uint32_t)strlen(step)};
	char text[sizeof(m) + 64];

	memcpy(text, &m, sizeof(m));
	memcpy(text + sizeof(m), step, m.len);
	fd_write_all(RUNNER_FD, text, sizeof(m) + m.len);
	_exit(127);
}

/* ---- would a start have been the same? --------------------------------- */

/* Read by the loader, the C library or the interpreter before main's code. */
static bool is_read_at_start(const char *pair)
{
	static const char *const names[] = {
		"PYTHON*",
		"LD_*",
		"LC_*",
		"LANG=",
		"LANGUAGE=",
		"MALLOC_*",
		"GLIBC_TUNABLES=",
		"LOCPATH=",
		"GCONV_PATH=",
		"TZ=",
		"TZDIR=",
		"HOME=",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t n = strlen(names[i]);

		n -= names[i][n - 1] == '*';
		if (!strncmp(pair, names[i], n))
			return true;
	}
	return false;
}

static bool has(char *const *list, const char *pair)
{
	for (; *list; list++)
		if (!strcmp(*list, pair))
			return true;
	return false;
}

/* All of `a` that is read at a start is in `b`. */
static bool is_within(char *const *a, char *const *b)
{
	for (; *a; a++)
		if (is_read_at_start(*a) && !has(b, *a))
			return false;
	return true;
}

/* Packages of the user are looked for at a start (PEP 370). */
static bool has_user_site(char *const *env)
{
	const char *home = path_env_get(env, "HOME");
	char path[PATH_BYTES_MAX];
	struct stat st;

	return !home ||
	       snprintf(path, sizeof(path), "%s/.local/lib/python%d.%d", home,
			SPARE_PYTHON_MAJOR,
			SPARE_PYTHON_MINOR) >= (int)sizeof(path) ||
	       !stat(path, &st);
}

/*
 * This very program, under a name in its own folder: from another folder it
 * would find another prefix, as in a virtual environment.
 */
static bool is_this_program(const char *path)
{
	char self[PATH_BYTES_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *slash = strrchr(path, '/');
	struct stat a, b;
	size_t dir;

	if (n < 0 || !slash)
		return false;
	self[n] = '\0';
	dir = (size_t)(strrchr(self, '/') - self);
	return (size_t)(slash - path) == dir && !strncmp(path, self, dir) &&
	       !stat(path, &a) && !stat("/proc/self/exe", &b) &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* What the starter would execute, when that is sure; false else. */
static bool program_find(const struct request *r, char ret[PATH_BYTES_MAX])
{
	struct path_search s;
	struct stat st;

	if (strchr(r->argv[0], '/'))
		return snprintf(ret, PATH_BYTES_MAX, "%s", r->argv[0]) <
			       PATH_BYTES_MAX &&
		       is_this_program(ret);
	path_search_init(&s, r->argv[0], r->env);
	while (path_search_next(&s, ret))
		if (!stat(ret, &st) || errno != ENOENT)
			return is_this_program(ret);
	return false;
}

/* Options are the interpreter's set-up: only the forms without any. */
static bool is_plain_form(char *const *argv)
{
	if (!argv[1] || argv[1][0] != '-' || !argv[1][1])
		return true;
	return (!strcmp(argv[1], "-c") || !strcmp(argv[1], "-m")) && argv[2];
}

/* ---- go ---------------------------------------------------------------- */

static bool become(const struct request *r)
{
	char program[PATH_BYTES_MAX];

	if (!is_plain_form(r->argv) || !is_within(r->env, own.env_kept) ||
	    !is_within(own.env_kept, r->env) || has_user_site(r->env) ||
	    !program_find(r, program))
		return false;
	if (!spare_python_environ(r->env) ||
	    !spare_python_argv(r->argv, program))
		return false;
	environ = r->env;
	area_fill(&own.args, r->argv);
	area_fill(&own.env, r->env);
	prctl(PR_SET_NAME, strrchr(program, '/') + 1);
	program_invocation_name = r->argv[0];
	program_invocation_short_name = basename(r->argv[0]);
	return true;
}

static int spare_main(int argc, char **argv, char **env)
{
	struct runner_message waits = {.kind = RUNNER_WAITING};
	struct request r = {.stdin_fd = -1};

	(void)argc;
	if (fcntl(RUNNER_FD, F_SETFD, FD_CLOEXEC) || !own_keep(argv, env) ||
	    has_user_site(environ) || !spare_python_set_up(argv[0]) ||
	    fd_write_all(RUNNER_FD, &waits, sizeof(waits)))
		_exit(127);
	if (request_take(&r))
		_exit(0);
	if (chdir(r.cwd))
		fail("cwd");
	if (dup2(r.stdin_fd, 0) < 0)
		fail("stdin");
	close(r.stdin_fd);
	if (!become(&r)) {
		/* The interpreter ignores these; a new program would not. */
		signal(SIGPIPE, SIG_DFL);
		signal(SIGXFSZ, SIG_DFL);
		path_exec(r.argv, r.env);
		fail("exec");
	}
	close(RUNNER_FD);
	return spare_python_run();
}

typedef int main_fn(int argc, char **argv, char **env);
typedef int start_fn(main_fn *entry, int argc, char **argv, void (*init)(void),
		     void (*fini)(void), void (*rtld_fini)(void), void *stack);

/* In place of the C library's, which the program's first code calls. */
__attribute__((visibility("default"))) start_fn __libc_start_main;

int __libc_start_main(main_fn *entry, int argc, char **argv, void (*init)(void),
		      void (*fini)(void), void (*rtld_fini)(void), void *stack)
{
	start_fn *real;

	(void)entry;
	*(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
	return real(spare_main, argc, argv, init, fini, rtld_fini, stack);
}
