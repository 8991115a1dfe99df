/*
 * One hutch-vmm process: its start, its control socket, its log, its end.
 *
 * vm.c and maker.c own one each.  Nothing here knows the guest protocol.  The
 * callbacks come on the loop's thread; `gone` is the last, exactly once, after
 * the process is reaped; the struct is freed after it.
 */
#ifndef HUTCHD_VMM_H
#define HUTCHD_VMM_H

#include "err.h"
#include "vmm_ctl.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct link;
struct vmm;

struct vmm_args {
	const char *name; /* for log lines: a sandbox id, a template */
	uint32_t vcpus, ram_mib;
	const char *cmdline;
	/* borrowed, duplicated into the child; -1 = none */
	int kernel_fd;	      /* cold boot */
	int state_fd, mem_fd; /* restore */
	int touched_fd;	      /* the same, and may be -1 all the same */
	int init_fd, root_fd, disk_fd;
	int channel_fd;
	int boot_log_fd;
	uint64_t disk_cap_bytes; /* allocated bytes of the disk; 0 = no cap */
	bool is_background;	 /* a low CPU weight until vmm_foreground */
};

struct vmm_end {
	bool was_killed; /* we asked for it: vmm_kill, vmm_quit */
	bool has_unread; /* it has not read all that we sent */
	int why;	 /* enum vmm_why, or -1 when it died without a word */
	char text[256];
};

struct vmm_ops {
	void (*started)(void *ctx, const struct vmm_started *s);
	/* Answer to vmm_ask: status 0 or a negative errno. */
	void (*replied)(void *ctx, enum vmm_type type, int status,
			const uint8_t *body, size_t len);
	/* Express lane: READY (no data) and ANSWER.  NULL: nothing of it may
	 * come. */
	void (*lane)(void *ctx, enum vmm_type type, const struct vmm_lane *l,
		     const uint8_t *data, size_t len);
	/* After -EAGAIN of vmm_lane_run: try again. */
	void (*writable)(void *ctx);
	void (*gone)(void *ctx, const struct vmm_end *end);
};

/* Takes a uid; -1 with `e` filled. */
int vmm_start(struct vmm **ret, struct link *link, const struct vmm_args *args,
	      const struct vmm_ops *ops, void *ctx, struct err *e);
/* PAUSE, RESUME, SNAPSHOT, STATS, LOG.  0 or -errno. */
int vmm_ask(struct vmm *v, enum vmm_type type, const int *fds, size_t n_fds);
/*
 * VMM_LANE_RUN: one piece of a request, `data` holding the bytes at l->offset.
 * `replied` tells how the last piece was taken, or that one was refused.
 * 0, -EAGAIN (the socket is full: `writable` follows) or another -errno.
 */
int vmm_lane_run(struct vmm *v, const struct vmm_lane *l, const void *data,
		 size_t len);
int vmm_lane_adopt(struct vmm *v, uint32_t lane);
/* SIGKILL; `gone` follows. */
void vmm_kill(struct vmm *v);
pid_t vmm_pid(const struct vmm *v);
/* From now on it has its usual share of the CPU. */
void vmm_foreground(struct vmm *v);
bool vmm_is_alive(const struct vmm *v); /* its process has not ended */
/* And there is nothing of it to be read. */
bool vmm_is_quiet(const struct vmm *v);
/* End it; its owner hears nothing more and may be freed. */
void vmm_forget(struct vmm *v);

/* For link_destroy.  All of the link's; then each: kill, wait, no callback,
 * free. */
void vmms_kill(struct link *link);
void vmms_forgotten_destroy(struct link *link);
void vmm_destroy(struct vmm *v);

#endif
