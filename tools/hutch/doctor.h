/*
 * hutch doctor: what this host offers, line by line.
 *
 * A check calls doctor_say once or more.  `fail`: sandboxes cannot run so;
 * `warn`: they run, slower or less fenced; every warn and fail says what to
 * do.  Checks only look: they change nothing and leave nothing behind.
 */
#ifndef HUTCH_CLI_DOCTOR_H
#define HUTCH_CLI_DOCTOR_H

#include "client.h"

enum doctor_grade { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor {
	const struct cli *cli; /* state_dir is resolved */
	bool is_json;
	struct json_out json;
	unsigned n[3]; /* by grade */
};

/* `advice`: what to do, NULL when ok. */
void doctor_say(struct doctor *d, enum doctor_grade grade, const char *what,
		const char *advice, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* doctor_kvm.c */
void doctor_kvm(struct doctor *d);
/* doctor_kernel.c: io_uring, control groups, Landlock, seccomp */
void doctor_io_uring(struct doctor *d);
void doctor_cgroup(struct doctor *d);
void doctor_landlock(struct doctor *d);
void doctor_seccomp(struct doctor *d);
/* doctor_host.c: user ids, memory, limits, huge pages, neighbours */
void doctor_user(struct doctor *d);
void doctor_memory(struct doctor *d);
void doctor_limits(struct doctor *d);
void doctor_sharing(struct doctor *d);
/* doctor_files.c: folders, images, programs */
void doctor_folders(struct doctor *d);
void doctor_images(struct doctor *d);
void doctor_programs(struct doctor *d);

/* First line of a small file, "" when it cannot be read. */
void doctor_read(const char *path, char *dst, size_t cap);

#endif
