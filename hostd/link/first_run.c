/* See first_run.h. */
#include "first_run.h"
#include "../image/disk.h"
#include "fd.h"
#include "gp_down.h"
#include "link_priv.h"
#include "log.h"
#include "vmm.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUN_PIDS	   64
#define RUN_TIMEOUT_MS	   60000
#define RUN_DISK_CAP_BYTES (64ull << 20)

struct first_run {
	struct template *t; /* borrowed */
	struct link *link;
	int touched_fd; /* borrowed */
	int channel_fd; /* owned: nobody speaks there */
	struct vmm *vmm;
	struct loop_timer deadline;
	bool is_asked, is_written; /* for the pages; they were */
	void (*done)(void *ctx);
	void *ctx;
	char why[160]; /* the first failure */
};

static void give_up(struct first_run *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void give_up(struct first_run *f, const char *fmt, ...)
{
	va_list ap;

	if (!f->why[0]) {
		va_start(ap, fmt);
		vsnprintf(f->why, sizeof(f->why), fmt, ap);
		va_end(ap);
	}
	if (f->vmm)
		vmm_kill(f->vmm); /* the rest happens when it is gone */
}

static void on_deadline(struct loop_timer *t)
{
	give_up(container_of(t, struct first_run, deadline),
		"it did not answer in time");
}

static int request_make(const struct first_run *f, struct bytes *out)
{
	const struct limits limits = {.memory_mib = f->t->shape.ram_mib};
	struct gp_identity id;
	struct vm_run run = {
		.code = base_first_run(f->t->shape.base),
		.input = "[1,2,3]",
		.input_len = 7,
		.timeout_ms = RUN_TIMEOUT_MS,
	};
	int rc = link_identity("first-run", &limits, &id);

	run.code_len = strlen(run.code);
	id.pids = RUN_PIDS;
	rc = rc ? rc : gp_down_bind(out, &id);
	explicit_bzero(&id, sizeof(id));
	return rc ? rc : gp_down_run(out, 1, &run);
}

static void request_give(struct first_run *f)
{
	struct bytes b = {0};
	int rc = request_make(f, &b);

	/* It is one piece, and the first: the socket has room for it. */
	if (!rc)
		rc = vmm_lane_run(f->vmm,
				  &(struct vmm_lane){.total = (uint32_t)b.len},
				  b.data, b.len);
	bytes_finish_secret(&b);
	if (rc)
		give_up(f, "it cannot be given its run: %s", strerror(-rc));
}

/* ---- what the VMM says ----------------------------------------------------
 */

static void on_started(void *ctx, const struct vmm_started *s)
{
	if (!s->n_lanes)
		give_up(ctx, "it has no lane");
}

static void on_lane(void *ctx, enum vmm_type type, const struct vmm_lane *l,
		    const uint8_t *data, size_t len)
{
	struct first_run *f = ctx;
	int rc;

	(void)data;
	if (type == VMM_LANE_READY && !l->lane && !f->is_asked) {
		request_give(f);
	} else if (type != VMM_LANE_ANSWER || !l->total || f->is_asked) {
		give_up(f, "it broke the rules of its lane");
	} else if (l->offset + len == l->total) {
		f->is_asked = true;
		rc = vmm_ask(f->vmm, VMM_TOUCHED, &f->touched_fd, 1);
		if (rc)
			give_up(f, "asking for its pages: %s", strerror(-rc));
	}
}

static void on_reply(void *ctx, enum vmm_type type, int status,
		     const uint8_t *body, size_t len)
{
	struct first_run *f = ctx;

	if (status < 0)
		give_up(f, "the VMM refused: %s: %s", strerror(-status),
			log_text(body, len).s);
	else if (type == VMM_TOUCHED && f->is_asked && !f->why[0]) {
		f->is_written = true;
		vmm_kill(f->vmm);
	}
}

static void first_run_free(struct first_run *f)
{
	loop_timer_stop(f->link->loop, &f->deadline);
	fd_close(&f->channel_fd);
	free(f);
}

static void on_gone(void *ctx, const struct vmm_end *end)
{
	struct first_run *f = ctx;
	void (*done)(void *ctx) = f->done;
	void *its = f->ctx;

	f->vmm = NULL;
	if (!f->is_written) {
		give_up(f, "%.150s", end->text);
		log_warn("template=%s touched=none: %s", f->t->shape.base,
			 f->why);
		if (ftruncate(f->touched_fd, 0))
			log_warn("template=%s touched=torn: %s",
				 f->t->shape.base, strerror(errno));
	}
	first_run_free(f);
	done(its);
}

static const struct vmm_ops vmm_ops = {
	.started = on_started,
	.replied = on_reply,
	.lane = on_lane,
	.gone = on_gone,
};

/* ---- life -----------------------------------------------------------------
 */

static int spawn(struct first_run *f, const struct cache_making *files,
		 struct err *e)
{
	_cleanup_fd_ int state = -1, mem = -1, disk = -1, peer = -1;
	int sv[2], rc;
	struct vmm_args a = {
		.name = "first_run",
		.vcpus = f->t->shape.vcpus,
		.ram_mib = f->t->shape.ram_mib,
		.kernel_fd = -1,
		.touched_fd = -1,
		.boot_log_fd = -1,
		.init_fd = f->t->init_fd,
		.root_fd = f->t->root_fd,
		.disk_cap_bytes = RUN_DISK_CAP_BYTES,
		.is_background = f->t->made != NULL, /* it is renewed */
	};

	rc = disk_copy(files->disk_fd, f->link->state_fd, &disk, NULL);
	if (!rc)
		rc = link_reopen(files->state_fd, &state);
	if (!rc)
		rc = link_reopen(files->mem_fd, &mem);
	if (!rc && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		rc = -errno;
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL, "its files: %s",
			       strerror(-rc));
	f->channel_fd = sv[0];
	peer = sv[1];
	a.state_fd = state;
	a.mem_fd = mem;
	a.disk_fd = disk;
	a.channel_fd = peer;
	return vmm_start(&f->vmm, f->link, &a, &vmm_ops, f, e);
}

int first_run_start(struct first_run **ret, struct template *t,
		    const struct cache_making *files, void (*done)(void *ctx),
		    void *ctx, struct err *e)
{
	struct first_run *f = calloc(1, sizeof(*f));

	if (!f)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	f->t = t;
	f->link = t->link;
	f->touched_fd = files->touched_fd;
	f->channel_fd = -1;
	f->done = done;
	f->ctx = ctx;
	f->deadline.fn = on_deadline;
	if (spawn(f, files, e)) {
		first_run_free(f);
		return -1;
	}
	loop_timer_set(f->link->loop, &f->deadline, f->link->times.bind_ms);
	*ret = f;
	return 0;
}

void first_run_destroy(struct first_run *f)
{
	if (!f)
		return;
	if (f->vmm)
		vmm_destroy(f->vmm);
	first_run_free(f);
}
