/*
 * Control groups (version 2) that keep user code in bounds.
 *
 *   /            init, kernel threads: no limit, real-time or normal class
 *   /prep        the waiting runner while it starts; its memory stays charged
 *                here, so the sandbox's limit counts what user code adds
 *   /user        memory.max, pids.max, cpu.idle: all user code together
 *   /user/cN     one command each: cgroup.kill ends its whole tree, and
 *                memory.events says whether the memory limit did
 *
 * Making a group costs a second where the guest's kernel is slow, so a set of
 * slots is made and its files opened before the snapshot.  A slot is used
 * again when nothing lives in it any more.
 *
 * The root folder is a parameter: tests use an ordinary folder.
 */
#ifndef HUTCH_GUEST_CGROUP_H
#define HUTCH_GUEST_CGROUP_H

#include "limits.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum slot_state {
	SLOT_FREE, /* nothing lives in it */
	SLOT_USED, /* a command that has not ended */
	SLOT_LEFT, /* its command ended; something may still live in it */
};

struct slot {
	enum slot_state state;
	int dir;			     /* all owned */
	int procs, kill;		     /* cgroup.procs, cgroup.kill */
	int events;			     /* cgroup.events: populated */
	int mem_events, mem_peak, cpu;	     /* memory.events .peak, cpu.stat */
	uint64_t oom_kills, user_us, sys_us; /* at the command's start */
};

struct cgroups {
	int root, user, prep; /* directories, owned */
	int prep_kill;
	int memory_max, pids_max; /* of /user */
	struct slot slots[SLOTS_MAX];
	size_t n_slots;
};

struct slot_use {
	uint64_t oom_kills, user_us, sys_us, rss_bytes;
};

/* 0, or -errno with what failed in `why`. */
int cgroups_init(struct cgroups *c, const char *root, size_t n_slots, char *why,
		 size_t why_cap);
/* Ends what still starts or warms up; user code never lives there. */
int cgroups_kill_prep(struct cgroups *c);
int cgroups_limit(struct cgroups *c, uint64_t mem_bytes, uint64_t pids);

/* Index of a slot that is SLOT_USED from now on, or -EAGAIN. */
int slot_take(struct cgroups *c);
/* Figures from here on are the command's own. */
void slot_mark(struct slot *s);
/* The same for its CPU time alone. */
void slot_mark_cpu(struct slot *s);
/* What the command used since slot_mark. */
struct slot_use slot_read(const struct slot *s);
uint64_t slot_oom_kills(const struct slot *s);
void slot_leave(struct slot *s);
bool slot_is_empty(const struct slot *s);
int slot_kill(struct slot *s); /* SIGKILL to all that live in it */
void slot_signal(struct slot *s, int sig);
/* The first of its processes, as init sees it; 0 = none. */
pid_t slot_process(const struct slot *s);

/* Value of "key N" in a flat keyed file's text; false = no such key. */
bool cgroup_value(const char *text, const char *key, uint64_t *ret);

#endif
