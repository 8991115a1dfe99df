/*
 * Making one template snapshot: boot, prepare, pause, save, seal.
 *
 *   DISK     worker: the folder .new-<key>, an empty disk in it
 *   BOOT     hutch-vmm from the kernel; HELLO is awaited
 *   PREPARE  WELCOME and PREPARE were sent; READY is awaited
 *   ARM      it has a lane: the runner rehearses, the doorbell is awaited
 *   PAUSE    the guest is silent; vCPUs park, devices drain
 *   SNAPSHOT the VMM writes state and RAM
 *   QUIT     the VMM is killed: the disk stays as it was at the pause
 *   RUN      it has a lane: a VM is restored for a first run (first_run.c)
 *   COMMIT   worker: dig holes, hash, fsync, name the entry
 *
 * The disk that the guest mounted is the snapshot's disk itself, so nothing
 * has to be copied in the paused window.  Whatever fails, the folder is
 * removed, and the reason goes out with the end of the guest's boot log.
 */
#include "../clock.h"
#include "../image/disk.h"
#include "../image/sparse.h"
#include "boot_log.h"
#include "channel.h"
#include "fault.h"
#include "fd.h"
#include "first_run.h"
#include "gp_down.h"
#include "link_priv.h"
#include "log.h"
#include "template_priv.h"
#include "vmm.h"
#include "work.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define TICK_MS 1000
/* State file, the disk's first blocks, and room for the file system. */
#define MAKE_SPARE_BYTES (64ull << 20)

enum phase {
	MK_DISK = 0,
	MK_BOOT,
	MK_PREPARE,
	MK_ARM,
	MK_PAUSE,
	MK_SNAPSHOT,
	MK_QUIT,
	MK_RUN,
	MK_COMMIT,
	MK_N,
};

static const char *const phase_texts[] = {
	[MK_DISK] = "making its disk",
	[MK_BOOT] = "booting the guest kernel",
	[MK_PREPARE] = "preparing the guest",
	[MK_ARM] = "rehearsing a run",
	[MK_PAUSE] = "pausing the VM",
	[MK_SNAPSHOT] = "writing the snapshot",
	[MK_QUIT] = "ending the VM",
	[MK_RUN] = "looking at a first run",
	[MK_COMMIT] = "sealing the snapshot",
};
static_assert(sizeof(phase_texts) / sizeof(phase_texts[0]) == MK_N,
	      "a text for every phase");

struct maker {
	struct job job;
	struct link *link;
	struct template *t;
	enum phase phase;
	int64_t started_ms;
	struct cache cache;
	struct cache_making files;
	char key[KEY_HEX_BYTES];
	struct bytes manifest; /* owned copy, for the worker */
	struct vmm *vmm;
	struct first_run *first_run;
	struct channel channel;
	struct session session;
	struct loop_timer tick, deadline;
	struct boot_log log;
	char guest_text[GP_TEXT_BYTES_MAX + 1]; /* last PROGRESS */
	bool has_failed;
	struct err e; /* the first failure */
};

/* ---- failing ---------------------------------------------------------- */

static void maker_commit(struct maker *m);
static void maker_clean(struct maker *m);
static void maker_free(struct maker *m);

static void maker_fail(struct maker *m, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void maker_fail(struct maker *m, const char *fmt, ...)
{
	char text[ERR_TEXT_BYTES_MAX / 2], tail[BOOT_LOG_TAIL_BYTES] = "";
	va_list ap;

	if (m->has_failed)
		return;
	m->has_failed = true;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (m->phase <= MK_ARM)
		boot_log_tail(&m->log, tail);
	err_set(&m->e, ERR_INTERNAL, NULL, "while %s: %s%s%s%s",
		phase_texts[m->phase], text,
		tail[0] ? "; the guest's log ended with \"" : "", tail,
		tail[0] ? "\"" : "");
	session_close(&m->session);
	channel_close(&m->channel);
	if (m->vmm)
		vmm_kill(m->vmm); /* the rest happens when it is gone */
}

static void maker_end(struct maker *m)
{
	struct template *t = m->t;
	struct err e = m->e;
	bool has_failed = m->has_failed;
	char shape[128];

	maker_clean(m);
	maker_free(m);
	if (has_failed) {
		shape_text(&t->shape, shape, sizeof(shape));
		err_wrap(&e, "preparing %s", shape);
	}
	template_made(t, has_failed ? &e : NULL);
}

static void maker_phase(struct maker *m, enum phase p, int64_t deadline_ms)
{
	log_info("template=%s vcpus=%u ram_mib=%u phase=\"%s\" after_ms=%lld",
		 m->t->shape.base, m->t->shape.vcpus, m->t->shape.ram_mib,
		 phase_texts[p], (long long)(clock_mono_ms() - m->started_ms));
	m->phase = p;
	m->guest_text[0] = '\0';
	if (deadline_ms)
		loop_timer_set(m->link->loop, &m->deadline, deadline_ms);
	else
		loop_timer_stop(m->link->loop, &m->deadline);
	template_progress(m->t, "%s", phase_texts[p]);
}

static void on_tick(struct loop_timer *t)
{
	struct maker *m = container_of(t, struct maker, tick);

	template_progress(m->t, "%s",
			  m->guest_text[0] ? m->guest_text
					   : phase_texts[m->phase]);
	loop_timer_set(m->link->loop, t, TICK_MS);
}

static void on_deadline(struct loop_timer *t)
{
	struct maker *m = container_of(t, struct maker, deadline);

	maker_fail(m, "no progress in time, after %lld s in all",
		   (long long)(clock_mono_ms() - m->started_ms) / 1000);
}

/* ---- what the guest says ---------------------------------------------- */

static void on_hello(void *ctx, const char *kernel, const char *init)
{
	uint8_t entropy[GP_ENTROPY_BYTES];
	struct maker *m = ctx;
	int rc;

	fault_point(FAULT_MAKE_BOOTED);
	log_info("template=%s kernel=\"%s\" init=\"%s\"", m->t->shape.base,
		 log_quoted(kernel, strlen(kernel)).s,
		 log_quoted(init, strlen(init)).s);
	if (getrandom(entropy, sizeof(entropy), 0) != sizeof(entropy)) {
		maker_fail(m, "getrandom: %s", strerror(errno));
		return;
	}
	rc = gp_down_welcome(&m->channel.out);
	if (!rc)
		rc = gp_down_prepare(
			&m->channel.out, base_runner(m->t->shape.base),
			shape_has_preload(&m->t->shape), true, entropy);
	explicit_bzero(entropy, sizeof(entropy));
	if (rc) {
		maker_fail(m, "out of memory");
		return;
	}
	maker_phase(m, MK_PREPARE, m->link->times.prepare_ms);
	channel_flush(&m->channel);
}

static void on_progress(void *ctx, const char *text)
{
	struct maker *m = ctx;

	memcpy(m->guest_text, text, strlen(text) + 1);
	template_progress(m->t, "%s", m->guest_text);
}

static void ask(struct maker *m, enum vmm_type type, const int *fds, size_t n)
{
	int rc = vmm_ask(m->vmm, type, fds, n);

	/* Its process has ended: that is told soon, and says why. */
	if (rc && rc != -EPIPE && rc != -ECONNRESET)
		maker_fail(m, "asking the VMM: %s", strerror(-rc));
}

/* At its bell the VM is parked already, and this changes nothing. */
static void pause_ask(struct maker *m)
{
	maker_phase(m, MK_PAUSE, m->link->times.snapshot_ms);
	ask(m, VMM_PAUSE, NULL, 0);
}

static void on_ready(void *ctx, const char *error)
{
	struct maker *m = ctx;

	if (error) {
		maker_fail(m, "the guest says: %s", error);
		return;
	}
	if (!m->session.n_lanes) {
		pause_ask(m);
		return;
	}
	maker_phase(m, MK_ARM, m->link->times.snapshot_ms);
	if (gp_down_plain(&m->channel.out, GP_ARM, 0))
		maker_fail(m, "out of memory");
	else
		channel_flush(&m->channel);
}

/* The session lets none of these through before BIND. */
static const struct session_ops session_ops = {
	.hello = on_hello,
	.progress = on_progress,
	.ready = on_ready,
};

static void on_channel_end(struct channel *c, int rc)
{
	struct maker *m = container_of(c, struct maker, channel);

	if (rc == -EPROTO)
		maker_fail(m, "%s", m->session.why);
	/* End of file: the process is about to say more. */
}

/* ---- what the VMM says ------------------------------------------------ */

static void on_started(void *ctx, const struct vmm_started *s)
{
	struct maker *m = ctx;

	if ((s->is_soft != 0) != m->link->is_soft)
		log_warn("template=%s hutch-vmm finds a %s KVM, the CPU flags "
			 "say %s",
			 m->t->shape.base, s->is_soft ? "soft" : "stock",
			 m->link->is_soft ? "soft" : "stock");
}

static void on_reply(void *ctx, enum vmm_type type, int status,
		     const uint8_t *body, size_t len)
{
	struct maker *m = ctx;
	int fds[2] = {m->files.state_fd, m->files.mem_fd};

	if (m->has_failed)
		return;
	if (status < 0) {
		maker_fail(m, "the VMM refused: %s: %s", strerror(-status),
			   log_text(body, len).s);
	} else if (type == VMM_PAUSE && m->phase == MK_PAUSE) {
		fault_point(FAULT_MAKE_PAUSED);
		maker_phase(m, MK_SNAPSHOT, m->link->times.snapshot_ms);
		ask(m, VMM_SNAPSHOT, fds, 2);
	} else if (type == VMM_SNAPSHOT && m->phase == MK_SNAPSHOT) {
		fault_point(FAULT_MAKE_SAVED);
		maker_phase(m, MK_QUIT, 0);
		vmm_kill(m->vmm);
	}
}

static void on_lane(void *ctx, enum vmm_type type, const struct vmm_lane *l,
		    const uint8_t *data, size_t len)
{
	struct maker *m = ctx;

	(void)data;
	(void)len;
	if (m->has_failed)
		return;
	if (m->phase == MK_ARM && type == VMM_LANE_READY && !l->lane)
		pause_ask(m);
	else
		maker_fail(m, "the VMM spoke of lane %u out of turn", l->lane);
}

static void on_first_run(void *ctx)
{
	struct maker *m = ctx;

	m->first_run = NULL;
	maker_commit(m);
}

/* It only makes later runs faster: without it all goes on. */
static void first_run(struct maker *m)
{
	struct err e = {0};

	channel_close(&m->channel); /* it has said all */
	if (m->session.n_lanes && base_first_run(m->t->shape.base)) {
		maker_phase(m, MK_RUN, 0);
		if (!first_run_start(&m->first_run, m->t, &m->files,
				     on_first_run, m, &e))
			return;
		log_warn("template=%s touched=none: %s", m->t->shape.base,
			 e.text);
	}
	maker_commit(m);
}

static void on_gone(void *ctx, const struct vmm_end *end)
{
	struct maker *m = ctx;

	fault_point(FAULT_MAKE_QUIT);
	m->vmm = NULL;
	loop_timer_stop(m->link->loop, &m->deadline);
	boot_log_drain(&m->log); /* its last words */
	if (!m->has_failed && m->phase != MK_QUIT)
		maker_fail(m, "%s", end->text);
	if (m->has_failed)
		maker_end(m);
	else
		first_run(m);
}

static const struct vmm_ops vmm_ops = {
	.started = on_started,
	.replied = on_reply,
	.lane = on_lane,
	.gone = on_gone,
};

/* ---- work ------------------------------------------------------------- */

static void commit_run(struct job *j)
{
	struct maker *m = container_of(j, struct maker, job);

	if (cache_making_commit(&m->cache, m->key, &m->files,
				(const char *)m->manifest.data,
				(clock_mono_ms() - m->started_ms) / 1000,
				&m->e))
		m->has_failed = true;
}

static void commit_done(struct job *j)
{
	struct maker *m = container_of(j, struct maker, job);

	if (!j->link) {
		maker_free(m);
		return;
	}
	if (!m->has_failed)
		log_info("template=%s vcpus=%u ram_mib=%u key=%.16s made_in_s="
			 "%lld",
			 m->t->shape.base, m->t->shape.vcpus,
			 m->t->shape.ram_mib, m->key,
			 (long long)(clock_mono_ms() - m->started_ms) / 1000);
	maker_end(m);
}

static void maker_commit(struct maker *m)
{
	maker_phase(m, MK_COMMIT, 0);
	if (job_start(m->link, &m->job, commit_run, commit_done)) {
		maker_fail(m, "out of memory");
		maker_end(m);
	}
}

static void disk_run(struct job *j)
{
	struct maker *m = container_of(j, struct maker, job);
	uint64_t need =
		((uint64_t)m->t->shape.ram_mib << 20) + MAKE_SPARE_BYTES;
	_cleanup_fd_ int disk = -1;
	uint64_t room;
	int rc;

	m->has_failed = true;
	cache_prune(&m->cache, need);
	room = cache_free_bytes(&m->cache);
	if (room < need) {
		err_set(&m->e, ERR_CAPACITY, NULL,
			"the cache folder %s has %llu MiB free and %llu MiB "
			"are needed",
			m->link->cache_dir, (unsigned long long)room >> 20,
			(unsigned long long)need >> 20);
		return;
	}
	if (cache_making_begin(&m->cache, m->key, &m->files, &m->e) ||
	    disk_template_open(m->link->cache_dir, &disk, &m->e))
		return;
	rc = sparse_copy(disk, m->files.disk_fd, NULL);
	if (rc) {
		err_set(&m->e, ERR_INTERNAL, NULL, "copying the disk: %s",
			strerror(-rc));
		return;
	}
	fault_point(FAULT_MAKE_DISK);
	m->has_failed = false;
}

/* -1 with m->e filled. */
static int boot(struct maker *m)
{
	struct template *t = m->t;
	_cleanup_fd_ int peer = -1, log_end = -1;
	int rc;
	char name[160];
	struct vmm_args a = {
		.vcpus = t->shape.vcpus,
		.ram_mib = t->shape.ram_mib,
		.cmdline = LINK_CMDLINE,
		.kernel_fd = t->kernel_fd,
		.state_fd = -1,
		.mem_fd = -1,
		.touched_fd = -1,
		.init_fd = t->init_fd,
		.root_fd = t->root_fd,
		.disk_fd = m->files.disk_fd,
		.is_background = t->made != NULL,
	};

	rc = channel_open(&m->channel, m->link->loop, &m->session,
			  on_channel_end, &peer);
	if (rc)
		return err_set(&m->e, ERR_INTERNAL, NULL, "channel: %s",
			       strerror(-rc));
	rc = boot_log_open(&m->log, m->link->loop, &log_end);
	if (rc)
		return err_set(&m->e, ERR_INTERNAL, NULL, "boot log: %s",
			       strerror(-rc));
	snprintf(name, sizeof(name), "template=%s", t->shape.base);
	a.name = name;
	a.channel_fd = peer;
	a.boot_log_fd = log_end;
	return vmm_start(&m->vmm, m->link, &a, &vmm_ops, m, &m->e);
}

static void disk_done(struct job *j)
{
	struct maker *m = container_of(j, struct maker, job);

	if (!j->link) {
		maker_free(m);
		return;
	}
	if (!m->has_failed) {
		maker_phase(m, MK_BOOT, m->link->times.hello_ms);
		if (boot(m))
			m->has_failed = true;
	}
	if (m->has_failed)
		maker_end(m);
}

/* ---- life ------------------------------------------------------------- */

int maker_start(struct maker **ret, struct template *t, struct err *e)
{
	struct maker *m = calloc(1, sizeof(*m));
	struct link *l = t->link;

	if (!m ||
	    bytes_append(&m->manifest, t->manifest.data, t->manifest.len) ||
	    bytes_append(&m->manifest, "", 1)) {
		free(m);
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	}
	m->link = l;
	m->t = t;
	m->started_ms = clock_mono_ms();
	m->cache = (struct cache){l->cache_fd, &l->hashes};
	m->files = (struct cache_making)CACHE_MAKING_NONE;
	memcpy(m->key, t->key, sizeof(m->key));
	session_init(&m->session, SES_BOOTING, &session_ops, m);
	m->tick.fn = on_tick;
	m->deadline.fn = on_deadline;
	boot_log_init(&m->log);
	if (job_start(l, &m->job, disk_run, disk_done)) {
		bytes_finish(&m->manifest);
		free(m);
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	}
	maker_phase(m, MK_DISK, 0);
	loop_timer_set(l->loop, &m->tick, TICK_MS);
	*ret = m;
	return 0;
}

/* What holds the loop or a process; may run twice. */
void maker_stop(struct maker *m)
{
	if (!m)
		return;
	if (m->vmm)
		vmm_destroy(m->vmm);
	m->vmm = NULL;
	first_run_destroy(m->first_run);
	m->first_run = NULL;
	loop_timer_stop(m->link->loop, &m->tick);
	loop_timer_stop(m->link->loop, &m->deadline);
	channel_close(&m->channel);
	boot_log_close(&m->log);
}

static void maker_free(struct maker *m)
{
	session_finish(&m->session);
	bytes_finish(&m->manifest);
	free(m);
}

/* Ends it and removes its files. */
static void maker_clean(struct maker *m)
{
	maker_stop(m);
	cache_making_end(&m->cache, m->key, &m->files);
}

void maker_destroy(struct maker *m)
{
	if (!m)
		return;
	maker_clean(m);
	/* With a job its `done` is still to come and frees the memory. */
	if (m->phase != MK_DISK && m->phase != MK_COMMIT)
		maker_free(m);
}
