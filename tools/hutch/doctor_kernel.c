/* hutch doctor: io_uring, control groups, Landlock, seccomp. */
#include "doctor.h"
#include <errno.h>
#include <liburing.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CGROUP2_MAGIC	  0x63677270
#define LANDLOCK_ABI_GOOD 3 /* truncation is covered */

void doctor_io_uring(struct doctor *d)
{
	struct io_uring_params p = {.flags = IORING_SETUP_R_DISABLED};
	struct io_uring_restriction r = {
		.opcode = IORING_RESTRICTION_SQE_OP,
		.sqe_op = IORING_OP_READ,
	};
	struct io_uring ring;
	int rc = io_uring_queue_init_params(4, &ring, &p);

	if (rc < 0) {
		doctor_say(d, DOCTOR_FAIL, "io_uring",
			   rc == -EPERM ? "set kernel.io_uring_disabled=0, or "
					  "allow io_uring_setup in the "
					  "container's seccomp filter"
					: "a Linux kernel of 5.15 or newer is "
					  "needed",
			   "io_uring_setup: %s", strerror(-rc));
		return;
	}
	rc = io_uring_register_restrictions(&ring, &r, 1);
	if (!rc)
		rc = io_uring_enable_rings(&ring);
	io_uring_queue_exit(&ring);
	if (rc < 0)
		doctor_say(d, DOCTOR_FAIL, "io_uring",
			   "a Linux kernel of 5.15 or newer is needed",
			   "restrictions: %s", strerror(-rc));
	else
		doctor_say(d, DOCTOR_OK, "io_uring", NULL,
			   "works, restricted rings too");
}

void doctor_cgroup(struct doctor *d)
{
	static const char *const names[] = {"memory", "pids", "cpu"};
	char list[512], missing[64] = "", path[64];
	struct statfs fs;
	bool is_v2 =
		!statfs("/sys/fs/cgroup", &fs) && fs.f_type == CGROUP2_MAGIC;

	doctor_read("/sys/fs/cgroup/cgroup.controllers", list, sizeof(list));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		bool has;

		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", names[i]);
		has = is_v2 ? strstr(list, names[i]) != NULL
			    : !access(path, W_OK);
		if (!has)
			snprintf(missing + strlen(missing),
				 sizeof(missing) - strlen(missing), " %s",
				 names[i]);
	}
	if (missing[0])
		doctor_say(d, DOCTOR_WARN, "cgroup",
			   "mount and delegate them; VMs run without this "
			   "second fence",
			   "%s, missing or not writable:%s",
			   is_v2 ? "v2" : "v1", missing);
	else
		doctor_say(d, DOCTOR_OK, "cgroup", NULL,
			   "%s, memory pids cpu are there",
			   is_v2 ? "v2" : "v1");
}

void doctor_landlock(struct doctor *d)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
			   LANDLOCK_CREATE_RULESET_VERSION);

	if (abi >= LANDLOCK_ABI_GOOD)
		doctor_say(d, DOCTOR_OK, "landlock", NULL, "ABI %ld", abi);
	else if (abi > 0)
		doctor_say(d, DOCTOR_WARN, "landlock",
			   "Linux 6.2 has ABI 3; seccomp and user ids still "
			   "hold",
			   "ABI %ld", abi);
	else
		doctor_say(d, DOCTOR_WARN, "landlock",
			   "boot with lsm=landlock,...; seccomp and user ids "
			   "still hold",
			   "not available: %s", strerror(errno));
}

void doctor_seccomp(struct doctor *d)
{
	uint32_t action = SECCOMP_RET_KILL_PROCESS;

	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action))
		doctor_say(d, DOCTOR_FAIL, "seccomp",
			   "a kernel with CONFIG_SECCOMP_FILTER is needed",
			   "KILL_PROCESS: %s", strerror(errno));
	else
		doctor_say(d, DOCTOR_OK, "seccomp", NULL,
			   "filters, with KILL_PROCESS");
}
