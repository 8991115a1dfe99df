/*
 * What the files of hostd/link share: one struct link per daemon.
 * Loop thread only, except where a comment says "worker".
 */
#ifndef HUTCHD_LINK_PRIV_H
#define HUTCHD_LINK_PRIV_H

#include "../image/filehash.h"
#include "../image/images.h"
#include "../loop.h"
#include "list.h"
#include "template.h"
#include <sys/types.h>

/* Kernel parameters beyond the VMM's own defaults: where init is. */
#define LINK_CMDLINE "quiet"

/*
 * Time limits.  A soft host interprets the guest's kernel: a boot takes 20 s
 * there, minutes when the machine is busy, so its limits are far from what is
 * normal and only end what hangs.
 */
struct link_times {
	int64_t hello_ms;    /* process start to HELLO */
	int64_t prepare_ms;  /* PREPARE to READY */
	int64_t bind_ms;     /* process start to BOUND of a restored VM */
	int64_t start_ms;    /* RUN or EXEC sent, bound, to STARTED */
	int64_t runner_ms;   /* the same of a RUN for which no runner waits */
	int64_t overrun_ms;  /* past a command's own time-out or grace */
	int64_t snapshot_ms; /* PAUSE or SNAPSHOT to its reply */
	int64_t lane_ms;     /* ARM to the runner at its doorbell */
	int64_t finish_ms;   /* a run says that it ends, to its answer */
};

struct gp_identity;

struct cgroups {
	int n_dirs;
	int dirs[3]; /* memory, pids, cpu; or one of the unified tree */
	bool is_v2;
	bool is_swept; /* nothing of daemons that are no more is there */
};

struct link {
	struct loop *loop;
	char *state_dir, *cache_dir, *vmm_path, *init_path, *images_dir;
	char *vmm_die_at;	/* NULL = nowhere */
	int state_fd, cache_fd; /* folders */
	bool is_confined, is_soft, is_stopping, has_lane;
	unsigned n_cpus; /* that the daemon may use, >= 1 */
	struct link_stats stats;
	uint32_t uid_base;
	uint64_t uid_used[(LINK_UIDS + 63) / 64];
	uint32_t uid_next;
	struct link_times times;
	struct cgroups cgroups;
	uint64_t cgroup_next;
	struct file_hashes hashes; /* also workers */
	struct images_cache images;
	struct list vmms;      /* struct vmm */
	struct list vms;       /* struct vm */
	struct list templates; /* struct template */
	struct list jobs;      /* struct job */
	unsigned n_making;
	struct loop_timer renew_timer; /* renew.c */
	int64_t renew_ms;
	struct renewal *renewal; /* owned; the one under way, or NULL */
};

/* vm_start.c.  The same file read-only, with a description of its own: a shared
 * one would let a VMM that was taken over move the offset or set locks and
 * flags for all other VMs.  0 or -errno. */
int link_reopen(int fd, int *ret_fd);
/* A fresh identity for a VM of that name (vm_start.c).  0 or -EIO; the caller
 * wipes it. */
int link_identity(const char *name, const struct limits *limits,
		  struct gp_identity *ret);

/* Slot >= 0 and its uid, or -1 when all are in use. */
int link_uid_take(struct link *l, uint32_t *ret_uid);
void link_uid_give(struct link *l, int slot);

/* cgroup.c.  Number of the new folders, 0 = none: limits unavailable. */
void cgroups_open(struct cgroups *c);
void cgroups_close(struct cgroups *c);
uint64_t link_cgroup_make(struct link *l, uint32_t vcpus, uint32_t ram_mib,
			  bool is_background);
void link_cgroup_join(struct link *l, uint64_t number, pid_t pid);
void link_cgroup_leave(struct link *l, uint64_t number);
/* A group in the background has a low CPU weight until this. */
void link_cgroup_foreground(struct link *l, uint64_t number);

#endif
