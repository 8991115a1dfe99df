/* Control groups; see cgroup.h. */
#include "cgroup.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX 4096

bool cgroup_value(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n')) {
		if (*p == '\n')
			p++;
		if (strncmp(p, key, n) || p[n] != ' ')
			continue;
		*ret = strtoull(p + n + 1, NULL, 10);
		return true;
	}
	return false;
}

static int file_write(int dir, const char *name, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fd_write_all(fd, text, strlen(text));
}

static int number_write(int fd, uint64_t v)
{
	char text[24];
	int n = snprintf(text, sizeof(text), "%" PRIu64, v);

	return fd_pwrite_all(fd, text, (size_t)n, 0);
}

/* Text of an open file from its start; NUL terminated, cut at `cap`. */
static ssize_t text_read(int fd, char *text, size_t cap)
{
	ssize_t n = pread(fd, text, cap - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return n < 0 ? -errno : n;
}

static int dir_make(int parent, const char *name)
{
	int fd;

	if (mkdirat(parent, name, 0755) && errno != EEXIST)
		return -errno;
	fd = openat(parent, name, O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_file(int dir, const char *name, int flags, int *ret)
{
	*ret = openat(dir, name, flags | O_CLOEXEC);
	return *ret < 0 ? -errno : 0;
}

static int slot_make(struct cgroups *c, struct slot *s, size_t idx)
{
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "c%zu", idx);
	s->dir = dir_make(c->user, name);
	if (s->dir < 0)
		return s->dir;
	rc = file_write(s->dir, "memory.oom.group", "1");
	rc = rc ? rc : open_file(s->dir, "cgroup.procs", O_RDWR, &s->procs);
	rc = rc ? rc : open_file(s->dir, "cgroup.kill", O_WRONLY, &s->kill);
	rc = rc ? rc : open_file(s->dir, "cgroup.events", O_RDONLY, &s->events);
	rc = rc ? rc
		: open_file(s->dir, "memory.events", O_RDONLY, &s->mem_events);
	rc = rc ? rc : open_file(s->dir, "memory.peak", O_RDWR, &s->mem_peak);
	rc = rc ? rc : open_file(s->dir, "cpu.stat", O_RDONLY, &s->cpu);
	return rc;
}

static int user_make(struct cgroups *c)
{
	int rc = file_write(c->root, "cgroup.subtree_control",
			    "+cpu +memory +pids");

	if (rc)
		return rc;
	c->prep = dir_make(c->root, "prep");
	c->user = dir_make(c->root, "user");
	if (c->prep < 0 || c->user < 0)
		return c->prep < 0 ? c->prep : c->user;
	/* The idle class: any other task of the guest goes first at once.  A
	 * runner that is being made has no more than what runs. */
	rc = file_write(c->user, "cpu.idle", "1");
	rc = rc ? rc : file_write(c->prep, "cpu.idle", "1");
	rc = rc ? rc : file_write(c->user, "cgroup.subtree_control", "+memory");
	rc = rc ? rc
		: open_file(c->prep, "cgroup.kill", O_WRONLY, &c->prep_kill);
	rc = rc ? rc : open_file(c->user, "memory.max", O_RDWR, &c->memory_max);
	rc = rc ? rc : open_file(c->user, "pids.max", O_RDWR, &c->pids_max);
	return rc;
}

int cgroups_init(struct cgroups *c, const char *root, size_t n_slots, char *why,
		 size_t why_cap)
{
	int rc;

	memset(c, 0, sizeof(*c));
	c->root = open(root, O_DIRECTORY | O_CLOEXEC);
	if (c->root < 0) {
		rc = -errno;
		snprintf(why, why_cap, "%s: %s", root, strerror(errno));
		return rc;
	}
	rc = user_make(c);
	if (rc) {
		snprintf(why, why_cap, "control groups under %s: %s", root,
			 strerror(-rc));
		return rc;
	}
	for (size_t i = 0; i < n_slots && i < SLOTS_MAX; i++) {
		rc = slot_make(c, &c->slots[i], i);
		if (rc) {
			snprintf(why, why_cap, "control group user/c%zu: %s", i,
				 strerror(-rc));
			return rc;
		}
		c->n_slots++;
	}
	return 0;
}

int cgroups_kill_prep(struct cgroups *c)
{
	return fd_pwrite_all(c->prep_kill, "1", 1, 0);
}

int cgroups_limit(struct cgroups *c, uint64_t mem_bytes, uint64_t pids)
{
	int rc = number_write(c->memory_max, mem_bytes);

	return rc ? rc : number_write(c->pids_max, pids);
}

bool slot_is_empty(const struct slot *s)
{
	char text[FILE_BYTES_MAX];
	uint64_t populated;

	if (text_read(s->events, text, sizeof(text)) < 0)
		return false;
	return cgroup_value(text, "populated", &populated) && !populated;
}

int slot_take(struct cgroups *c)
{
	for (size_t i = 0; i < c->n_slots; i++) {
		if (c->slots[i].state == SLOT_FREE) {
			c->slots[i].state = SLOT_USED;
			return (int)i;
		}
	}
	for (size_t i = 0; i < c->n_slots; i++) {
		struct slot *s = &c->slots[i];

		if (s->state == SLOT_LEFT && slot_is_empty(s)) {
			s->state = SLOT_USED;
			return (int)i;
		}
	}
	return -EAGAIN;
}

void slot_leave(struct slot *s)
{
	s->state = SLOT_LEFT;
}

uint64_t slot_oom_kills(const struct slot *s)
{
	char text[FILE_BYTES_MAX];
	uint64_t n = 0;

	if (text_read(s->mem_events, text, sizeof(text)) > 0)
		cgroup_value(text, "oom_kill", &n);
	return n;
}

static void cpu_read(const struct slot *s, uint64_t *ret_user,
		     uint64_t *ret_sys)
{
	char text[FILE_BYTES_MAX];

	*ret_user = *ret_sys = 0;
	if (text_read(s->cpu, text, sizeof(text)) <= 0)
		return;
	cgroup_value(text, "user_usec", ret_user);
	cgroup_value(text, "system_usec", ret_sys);
}

void slot_mark_cpu(struct slot *s)
{
	cpu_read(s, &s->user_us, &s->sys_us);
}

void slot_mark(struct slot *s)
{
	s->oom_kills = slot_oom_kills(s);
	slot_mark_cpu(s);
	/* The peak as seen through this descriptor starts anew (6.12). */
	if (pwrite(s->mem_peak, "0", 1, 0) < 0)
		return;
}

struct slot_use slot_read(const struct slot *s)
{
	struct slot_use u = {0};
	char text[32];

	cpu_read(s, &u.user_us, &u.sys_us);
	u.user_us -= s->user_us < u.user_us ? s->user_us : u.user_us;
	u.sys_us -= s->sys_us < u.sys_us ? s->sys_us : u.sys_us;
	if (text_read(s->mem_peak, text, sizeof(text)) > 0)
		u.rss_bytes = strtoull(text, NULL, 10);
	return u;
}

int slot_kill(struct slot *s)
{
	return fd_pwrite_all(s->kill, "1", 1, 0);
}

void slot_signal(struct slot *s, int sig)
{
	char text[FILE_BYTES_MAX];
	char *p = text, *end;

	if (text_read(s->procs, text, sizeof(text)) <= 0)
		return;
	/* A number without its line feed was cut: it may name another. */
	while ((end = strchr(p, '\n'))) {
		long pid = strtol(p, NULL, 10);

		if (pid > 1)
			kill((pid_t)pid, sig);
		p = end + 1;
	}
}

pid_t slot_process(const struct slot *s)
{
	char text[FILE_BYTES_MAX];

	if (text_read(s->procs, text, sizeof(text)) <= 0)
		return 0;
	return (pid_t)strtol(text, NULL, 10);
}
