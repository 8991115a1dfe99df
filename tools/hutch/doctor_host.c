/* hutch doctor: user ids, memory, limits, what neighbours can see. */
#include "doctor.h"
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define UID_BASE	64000 /* hutchd's default uid_base */
#define UIDS		1000
#define NOFILE_GOOD	8192
#define MIB		(1024 * 1024ull)
#define RAM_MIB_GOOD	2048
#define MEMLOCK_MIB_MIN 1

/* Someone who would share a user id with a VMM. */
static const struct passwd *find_user_in_range(void)
{
	const struct passwd *p, *found = NULL;

	setpwent();
	while (!found && (p = getpwent()))
		if (p->pw_uid >= UID_BASE && p->pw_uid < UID_BASE + UIDS)
			found = p;
	endpwent();
	return found;
}

void doctor_user(struct doctor *d)
{
	const struct passwd *p = find_user_in_range();

	if (geteuid())
		doctor_say(d, DOCTOR_FAIL, "user",
			   "run as root: each VMM gets a user id of its own",
			   "uid %u", geteuid());
	else
		doctor_say(d, DOCTOR_OK, "user", NULL, "root");
	if (p)
		doctor_say(d, DOCTOR_WARN, "user ids",
			   "set another uid_base in hutchd.conf",
			   "%s has uid %u, in the range of the VMMs (%u to "
			   "%u)",
			   p->pw_name, p->pw_uid, UID_BASE,
			   UID_BASE + UIDS - 1);
	else
		doctor_say(d, DOCTOR_OK, "user ids", NULL,
			   "%u to %u are free for VMMs", UID_BASE,
			   UID_BASE + UIDS - 1);
}

/* A line "NAME:   N kB" of /proc/meminfo, in MiB. */
static uint64_t meminfo_mib(const char *name)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	uint64_t kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			kib = strtoull(line + strlen(name), NULL, 10);
	if (f)
		fclose(f);
	return kib / 1024;
}

void doctor_memory(struct doctor *d)
{
	uint64_t total = meminfo_mib("MemTotal:");
	uint64_t available = meminfo_mib("MemAvailable:");
	char overcommit[16], thp[128];

	doctor_say(d, available < RAM_MIB_GOOD ? DOCTOR_WARN : DOCTOR_OK,
		   "memory",
		   available < RAM_MIB_GOOD
			   ? "a default sandbox commits 1 GiB; free some"
			   : NULL,
		   "%llu MiB available of %llu", (unsigned long long)available,
		   (unsigned long long)total);
	doctor_read("/proc/sys/vm/overcommit_memory", overcommit,
		    sizeof(overcommit));
	if (!strcmp(overcommit, "2"))
		doctor_say(d, DOCTOR_WARN, "overcommit",
			   "sysctl vm.overcommit_memory=0",
			   "strict (2): guest memory counts before it is "
			   "used");
	else
		doctor_say(d, DOCTOR_OK, "overcommit", NULL, "mode %s",
			   overcommit);
	doctor_read("/sys/kernel/mm/transparent_hugepage/enabled", thp,
		    sizeof(thp));
	if (strstr(thp, "[never]") || !thp[0])
		doctor_say(d, DOCTOR_WARN, "huge pages",
			   "echo madvise > "
			   "/sys/kernel/mm/transparent_hugepage/enabled",
			   "transparent huge pages are off: first touches of "
			   "guest memory cost more");
	else
		doctor_say(d, DOCTOR_OK, "huge pages", NULL, "transparent: %s",
			   thp);
}

void doctor_limits(struct doctor *d)
{
	struct rlimit files, lock;

	getrlimit(RLIMIT_NOFILE, &files);
	getrlimit(RLIMIT_MEMLOCK, &lock);
	if (files.rlim_max < NOFILE_GOOD)
		doctor_say(d, DOCTOR_WARN, "open files",
			   "ulimit -Hn 65536, or LimitNOFILE= in the unit",
			   "at most %llu: some dozens of VMs and clients",
			   (unsigned long long)files.rlim_max);
	else
		doctor_say(d, DOCTOR_OK, "open files", NULL, "at most %llu",
			   (unsigned long long)files.rlim_max);
	if (lock.rlim_max != RLIM_INFINITY &&
	    lock.rlim_max < MEMLOCK_MIB_MIN * MIB)
		doctor_say(d, DOCTOR_WARN, "memlock",
			   "ulimit -Hl unlimited, or LimitMEMLOCK= in the "
			   "unit",
			   "at most %llu KiB: io_uring on an old kernel may "
			   "fail",
			   (unsigned long long)lock.rlim_max / 1024);
	else
		doctor_say(d, DOCTOR_OK, "memlock", NULL, "enough");
}

/* What lets one tenant learn about another. */
void doctor_sharing(struct doctor *d)
{
	char ksm[16], smt[16];
	uint64_t swap = meminfo_mib("SwapTotal:");

	doctor_read("/sys/kernel/mm/ksm/run", ksm, sizeof(ksm));
	if (!strcmp(ksm, "1"))
		doctor_say(d, DOCTOR_WARN, "ksm",
			   "echo 2 > /sys/kernel/mm/ksm/run",
			   "same pages of processes are merged: timing tells "
			   "of others' memory");
	if (swap)
		doctor_say(d, DOCTOR_WARN, "swap",
			   "swapoff -a, or an encrypted swap",
			   "%llu MiB: guest memory may reach a disk",
			   (unsigned long long)swap);
	doctor_read("/sys/devices/system/cpu/smt/active", smt, sizeof(smt));
	if (!strcmp(smt, "1"))
		doctor_say(d, DOCTOR_WARN, "smt",
			   "echo off > /sys/devices/system/cpu/smt/control, "
			   "where tenants do not trust each other",
			   "on: sibling threads share caches");
	if (strcmp(ksm, "1") && !swap && strcmp(smt, "1"))
		doctor_say(d, DOCTOR_OK, "sharing", NULL,
			   "no page merging, no swap, no SMT");
}
