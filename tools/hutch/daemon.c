/* A daemon of our own, when none runs; see daemon.h. */
#include "daemon.h"
#include "../../hostd/state_dir.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS_MAX	30000
#define STOP_MS_MAX	20000
#define START_SLICE_MS	10
#define LOG_SHOWN_BYTES 2000
#define LOG_BYTES_MAX	(1 << 20)

int daemon_folder(char dst[CLI_PATH_BYTES_MAX], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", dst, CLI_PATH_BYTES_MAX - 1);

	if (n < 0)
		return err_set(e, ERR_INTERNAL, NULL, "/proc/self/exe: %s",
			       strerror(errno));
	dst[n] = 0;
	*strrchr(dst, '/') = 0;
	return 0;
}

int daemon_program(const char *name, char *dst, size_t cap, struct err *e)
{
	static const char *const places[] = {"", "/../libexec/hutch"};
	char self[CLI_PATH_BYTES_MAX];
	int n;

	if (daemon_folder(self, e))
		return -1;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		n = snprintf(dst, cap, "%s%s/%s", self, places[i], name);
		if (n > 0 && (size_t)n < cap && !access(dst, X_OK))
			return 0;
	}
	return err_set(e, ERR_UNAVAILABLE, NULL, "%s is not in %s: run make",
		       name, self);
}

int daemon_make_state(const struct cli *c, struct err *e)
{
	char path[CLI_PATH_BYTES_MAX];

	snprintf(path, sizeof(path), "%s", c->state_dir);
	for (char *p = path + 1;; p++) {
		char was = *p;

		if (was && was != '/')
			continue;
		*p = 0;
		if (mkdir(path, was ? 0755 : 0700) && errno != EEXIST)
			return err_set(e, ERR_INTERNAL, "state", "%s: %s", path,
				       strerror(errno));
		*p = was;
		if (!was)
			return 0;
	}
}

static int open_in_state(const struct cli *c, const char *name, int flags)
{
	char path[CLI_PATH_BYTES_MAX + 32];

	snprintf(path, sizeof(path), "%s/%s", c->state_dir, name);
	return open(path, flags | O_CLOEXEC, 0600);
}

/* The daemon's pid as the kernel knows it, 0 = unknown. */
static pid_t peer_pid(int sock)
{
	struct ucred u;
	socklen_t len = sizeof(u);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &u, &len))
		return 0;
	return u.pid;
}

static bool is_ours(const struct cli *c, pid_t pid)
{
	_cleanup_fd_ int fd = open_in_state(c, "started-by-hutch", O_RDONLY);
	char text[32] = "";

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return false;
	return pid > 0 && strtol(text, NULL, 10) == pid;
}

static void mark_ours(const struct cli *c, pid_t pid)
{
	_cleanup_fd_ int fd = open_in_state(c, "started-by-hutch",
					    O_WRONLY | O_CREAT | O_TRUNC);

	if (fd >= 0)
		dprintf(fd, "%d\n", pid);
}

/* What the daemon wrote since `from`, when it did not come up. */
static int start_failed(const struct cli *c, int log, off_t from,
			const char *what, struct err *e)
{
	char text[LOG_SHOWN_BYTES];
	off_t size = lseek(log, 0, SEEK_END);
	ssize_t n;

	if (size - from > LOG_SHOWN_BYTES)
		from = size - LOG_SHOWN_BYTES;
	n = pread(log, text, sizeof(text), from);
	if (n > 0)
		fprintf(stderr, "%.*s", (int)n, text);
	return err_set(e, ERR_UNAVAILABLE, NULL,
		       "hutchd %s; its log: %s/hutchd.log", what, c->state_dir);
}

static void exec_daemon(const struct cli *c, const char *program, int log)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	dup2(null, STDIN_FILENO);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	/* It serves one command: nothing would claim what waits. */
	execl(program, "hutchd", "--state", c->state_dir, "--listen", "none",
	      "--set", "pool_max=0", (char *)NULL);
	_exit(127);
}

static int wait_until_up(struct cli *c, pid_t pid, int log, off_t from,
			 struct err *e)
{
	for (int ms = 0; ms < START_MS_MAX; ms += START_SLICE_MS) {
		if (!http_connect(&c->http)) {
			c->is_daemon_ours = true;
			return 0;
		}
		if (waitpid(pid, NULL, WNOHANG) == pid)
			return start_failed(c, log, from, "ended at its start",
					    e);
		usleep(START_SLICE_MS * 1000);
	}
	kill(pid, SIGTERM);
	return start_failed(c, log, from, "did not come up in 30 s", e);
}

static int start(struct cli *c, struct err *e)
{
	_cleanup_fd_ int log = -1;
	char program[CLI_PATH_BYTES_MAX];
	off_t from;
	pid_t pid;

	if (daemon_program("hutchd", program, sizeof(program), e))
		return -1;
	log = open_in_state(c, "hutchd.log", O_RDWR | O_CREAT | O_APPEND);
	if (log < 0)
		return err_set(e, ERR_INTERNAL, "state", "%s/hutchd.log: %s",
			       c->state_dir, strerror(errno));
	from = lseek(log, 0, SEEK_END);
	if (from > LOG_BYTES_MAX && !ftruncate(log, 0))
		from = 0;
	pid = fork();
	if (pid < 0)
		return err_set(e, ERR_INTERNAL, NULL, "fork: %s",
			       strerror(errno));
	if (pid == 0)
		exec_daemon(c, program, log);
	mark_ours(c, pid);
	return wait_until_up(c, pid, log, from, e);
}

int daemon_connect(struct cli *c, enum cli_need need, struct err *e)
{
	_cleanup_fd_ int start_lock = -1;
	char path[CLI_PATH_BYTES_MAX + 16];

	c->user_lock = -1;
	snprintf(path, sizeof(path), "%s/admin.sock", c->state_dir);
	if (strlen(path) >= sizeof(c->http.socket))
		return err_set(e, ERR_INVALID_REQUEST, "state",
			       "%s: %zu bytes, a socket's path has at most "
			       "%zu; choose a shorter --state",
			       path, strlen(path), sizeof(c->http.socket) - 1);
	http_init_socket(&c->http, path);
	if (need == CLI_FOR_RECORDS && access(c->state_dir, F_OK))
		return err_set(e, ERR_UNAVAILABLE, NULL,
			       "no daemon, and no records yet in %s",
			       c->state_dir);
	if (need == CLI_FOR_KEYS && http_connect(&c->http))
		return err_set(e, ERR_UNAVAILABLE, NULL,
			       "no daemon answers on %s: start one (hutch "
			       "serve), or name another state folder with "
			       "--state or HUTCH_STATE",
			       c->state_dir);
	if (state_dir_check(c->state_dir, e) || daemon_make_state(c, e))
		return -1;
	/* One at a time decides whether to start or to end a daemon. */
	start_lock = open_in_state(c, "start.lock", O_RDWR | O_CREAT);
	c->user_lock = open_in_state(c, "users.lock", O_RDWR | O_CREAT);
	if (start_lock < 0 || c->user_lock < 0 || flock(start_lock, LOCK_EX) ||
	    flock(c->user_lock, LOCK_SH)) {
		err_set(e, ERR_INTERNAL, "state", "%s: cannot lock: %s",
			c->state_dir, strerror(errno));
		fd_close(&c->user_lock);
		return -1;
	}
	if (!http_connect(&c->http)) {
		c->is_daemon_ours = is_ours(c, peer_pid(c->http.fd));
		return 0;
	}
	if (!start(c, e))
		return 0;
	fd_close(&c->user_lock);
	return -1;
}

/* A command that has not ended, whoever waits for it; its id goes to `id`. */
static bool has_command(struct cli *c, char *id, size_t cap)
{
	_cleanup_answer_ struct answer a = {0};
	struct json_member m;
	struct json_span data;
	struct json_iter it;
	char status[32];
	struct err ignored;

	if (cli_call(c, "GET", "/admin/ps", NULL, NULL, &a, &ignored) ||
	    !json_at(a.root, "data", &data))
		return false;
	json_iter_begin(&it, data);
	while (json_iter_next(&it, &m)) {
		answer_text(m.value, "command_status", status, sizeof(status),
			    "");
		if (strcmp(status, "queued") && strcmp(status, "running"))
			continue;
		answer_text(m.value, "command", id, cap, "");
		return true;
	}
	return false;
}

void daemon_release(struct cli *c)
{
	_cleanup_fd_ int start_lock = -1, pidfd = -1;
	char command[64];
	pid_t pid;

	if (!c->is_daemon_ours || http_connect(&c->http))
		goto out;
	start_lock = open_in_state(c, "start.lock", O_RDWR);
	if (start_lock < 0 || flock(start_lock, LOCK_EX) ||
	    flock(c->user_lock, LOCK_EX | LOCK_NB))
		goto out; /* another hutch still uses it */
	if (has_command(c, command, sizeof(command))) {
		fprintf(stderr, "hutch: %s has not ended; its daemon goes on\n",
			command);
		goto out;
	}
	if (http_connect(&c->http))
		goto out;
	pid = peer_pid(c->http.fd);
	if (!is_ours(c, pid))
		goto out;
	pidfd = pidfd_open(pid, 0);
	http_finish(&c->http);
	if (pidfd >= 0 && !pidfd_send_signal(pidfd, SIGTERM, NULL, 0)) {
		struct pollfd p = {.fd = pidfd, .events = POLLIN};

		poll(&p, 1, STOP_MS_MAX);
		waitpid(pid, NULL, WNOHANG);
	}
out:
	fd_close(&c->user_lock);
}
