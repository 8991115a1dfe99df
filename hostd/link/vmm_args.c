/*
 * The command line and the limits of a hutch-vmm process.
 *
 * Everything that the process may use is inherited: descriptors by number, no
 * path, no environment.
 */
#include "vmm_args.h"
#include "link_priv.h"
#include "spawn.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A sanitizer reserves terabytes of addresses: no limit on those then. */
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_LIMIT 0
#elif defined(__has_feature)
#define HAS_ADDRESS_LIMIT (!__has_feature(address_sanitizer))
#else
#define HAS_ADDRESS_LIMIT 1
#endif

/* Memory of the process beyond the guest's RAM: code, rings, stacks. */
#define VMM_OWN_BYTES_MAX  (256ull << 20)
#define VMM_DISK_BYTES_MAX (16ull << 30) /* disk and snapshot files */
#define VMM_THREADS_MAX	   64		 /* vCPUs, I/O, io_uring's workers */
#define VMM_FDS_MAX	   256
/* Before the daemon and the rest of the host, after nothing of ours. */
#define VMM_OOM_SCORE 800

#define ARGS_MAX  40
#define ARG_BYTES 160

struct command_line {
	char text[ARGS_MAX][ARG_BYTES];
	char *argv[ARGS_MAX + 1];
	size_t n;
	struct spawn_spec *spec;
};

static void arg(struct command_line *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void arg(struct command_line *c, const char *fmt, ...)
{
	va_list ap;

	if (c->n == ARGS_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(c->text[c->n], ARG_BYTES, fmt, ap);
	va_end(ap);
	c->argv[c->n] = c->text[c->n];
	c->argv[++c->n] = NULL;
}

/* The number that `fd` will have in the child. */
static int child_fd(struct command_line *c, int fd)
{
	c->spec->fds[c->spec->n_fds] = fd;
	return 3 + (int)c->spec->n_fds++;
}

static void args_fill(struct command_line *c, const struct link *l,
		      const struct vmm_args *a, int control_fd, uint32_t uid)
{
	char cap[40] = "", touched[40] = "";

	arg(c, "hutch-vmm");
	if (a->kernel_fd >= 0) {
		arg(c, "--kernel");
		arg(c, "fd:%d", child_fd(c, a->kernel_fd));
		arg(c, "--cmdline");
		arg(c, "%s", a->cmdline);
	} else {
		int state = child_fd(c, a->state_fd);

		arg(c, "--restore");
		if (a->touched_fd >= 0)
			snprintf(touched, sizeof(touched), ",touched=fd:%d",
				 child_fd(c, a->touched_fd));
		arg(c, "state=fd:%d,mem=fd:%d%s", state, child_fd(c, a->mem_fd),
		    touched);
	}
	arg(c, "--mem");
	arg(c, "%u", a->ram_mib);
	arg(c, "--vcpus");
	arg(c, "%u", a->vcpus);
	arg(c, "--disk");
	arg(c, "fd:%d,ro", child_fd(c, a->init_fd));
	arg(c, "--disk");
	arg(c, "fd:%d,ro", child_fd(c, a->root_fd));
	if (a->disk_cap_bytes)
		snprintf(cap, sizeof(cap), ",cap=%llu",
			 (unsigned long long)a->disk_cap_bytes);
	arg(c, "--disk");
	arg(c, "fd:%d,lazy%s", child_fd(c, a->disk_fd), cap);
	arg(c, "--control");
	arg(c, "fd:%d", child_fd(c, control_fd));
	arg(c, "--channel");
	arg(c, "fd:%d", child_fd(c, a->channel_fd));
	if (a->boot_log_fd >= 0) {
		arg(c, "--log");
		arg(c, "fd:%d", child_fd(c, a->boot_log_fd));
	}
	if (l->vmm_die_at) {
		arg(c, "--die-at");
		arg(c, "%s", l->vmm_die_at);
	}
	if (!l->is_confined) {
		arg(c, "--no-confine");
	} else if (geteuid() == 0) { /* only root can change ids */
		arg(c, "--uid");
		arg(c, "%u", uid);
		arg(c, "--gid");
		arg(c, "%u", uid);
	}
}

int vmm_spawn(const struct link *l, const struct vmm_args *a, int control_fd,
	      int log_fd, uint32_t uid, pid_t *ret_pid, int *ret_pidfd,
	      struct err *e)
{
	struct spawn_rlimit limits[] = {
		{RLIMIT_CORE, 0},
		{RLIMIT_NOFILE, VMM_FDS_MAX},
		{RLIMIT_NPROC, VMM_THREADS_MAX},
		{RLIMIT_FSIZE, VMM_DISK_BYTES_MAX},
		{RLIMIT_AS, ((rlim_t)a->ram_mib << 20) * 2 + VMM_OWN_BYTES_MAX},
	};
	struct spawn_spec spec = {
		.path = l->vmm_path,
		.log_fd = log_fd,
		.rlimits = limits,
		.n_rlimits = sizeof(limits) / sizeof(limits[0]) -
			     (HAS_ADDRESS_LIMIT ? 0 : 1),
		.oom_score_adj = VMM_OOM_SCORE,
	};
	struct command_line c = {.spec = &spec};
	const char *step;
	int rc;

	args_fill(&c, l, a, control_fd, uid);
	spec.argv = c.argv;
	rc = spawn_process(&spec, ret_pid, ret_pidfd, &step);
	if (rc < 0)
		return err_set(e, ERR_INTERNAL, NULL, "cannot start %s: %s: %s",
			       l->vmm_path, step, strerror(-rc));
	return 0;
}
