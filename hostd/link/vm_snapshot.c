/*
 * A snapshot of a VM that runs; see snapshot.h.
 *
 *   HOLDING      HOLD is in the channel; PONG says that the guest has read all
 *                that we sent, and says nothing more
 *   SNAP_PAUSING vCPUs are being parked
 *   SNAP_SAVING  hutch-vmm writes state and memory
 *   SNAP_COPYING (worker) the disk is copied, by reflink where that can be
 *
 * and it goes on: RUNNING.  What we have to say to the guest meanwhile waits in
 * `early`, so the channel of a sandbox that begins from the snapshot is empty
 * both ways.  Getting the files to the disk (snapshot.c) is no longer the VM's
 * business: it may end by then.
 *
 * What fails lets it go on, too.  Time-outs of its commands stand still from
 * HOLD on: the guest's own go on, and are told when it may speak.
 */
#include "../clock.h"
#include "../image/sparse.h"
#include "fault.h"
#include "fd.h"
#include "gp_down.h"
#include "log.h"
#include "snapshot_priv.h"
#include "vm_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

bool vm_is_snapping(const struct vm *vm)
{
	return vm->state == VM_HOLDING || vm->state == VM_SNAP_PAUSING ||
	       vm->state == VM_SNAP_SAVING || vm->state == VM_SNAP_COPYING;
}

static void phase(struct vm *vm, enum vm_state state, int64_t within_ms)
{
	vm->state = state;
	vm->bind_deadline_ms = within_ms ? clock_mono_ms() + within_ms : 0;
	vm_timer_arm(vm);
}

/* ---- going on ----------------------------------------------------------- */

static void go_on(struct vm *vm, bool is_paused)
{
	int64_t held_ms = clock_mono_ms() - vm->held_ms;
	int rc = is_paused ? vmm_ask(vm->vmm, VMM_RESUME, NULL, 0) : 0;

	vm->state = VM_RUNNING;
	vm->bind_deadline_ms = 0;
	for (size_t i = 0; i < SESSION_CMDS_MAX; i++)
		if (vm->session.cmds[i].deadline_ms)
			vm->session.cmds[i].deadline_ms += held_ms;
	if (vm->session.file.deadline_ms)
		vm->session.file.deadline_ms += held_ms;
	vm_timer_arm(vm);
	if (!rc)
		rc = gp_down_plain(&vm->channel.out, GP_GO, 0);
	if (!rc)
		rc = vm_early_send(vm);
	if (rc)
		vm_end(vm, END_VM_LOST, "the VM cannot go on: %s",
		       strerror(-rc));
	else
		channel_flush(&vm->channel);
}

static void failed(struct vm *vm, const char *what, int rc)
{
	struct snapping *s = vm->snapping;

	/* Its process has ended: that end is told soon, and says why. */
	if (rc == -EPIPE || rc == -ECONNRESET)
		return;
	go_on(vm, vm->state != VM_HOLDING && vm->state != VM_SNAP_PAUSING);
	snapping_fail(s, what, rc);
}

void vm_snapshot_forget(struct vm *vm)
{
	struct snapping *s = vm->snapping;

	vm->snapping = NULL;
	if (!s)
		return;
	s->vm = NULL;
	if (s->is_with_worker)
		return;
	if (s->link->is_stopping)
		snapping_drop(s);
	else
		snapping_fail(s, "its sandbox ended", -ESHUTDOWN);
}

bool vm_snapshot_is_late(struct vm *vm)
{
	if (vm->state != VM_HOLDING)
		return false;
	/* Busy, or of a kind that knows no HOLD: it is not hurt. */
	failed(vm, "the guest did not answer", -ETIMEDOUT);
	return true;
}

/* ---- step by step ------------------------------------------------------- */

int vm_snapshot(struct vm *vm, const char *id, snapshot_fn fn, void *ctx)
{
	struct snapping *s;
	int rc;

	if (vm->state != VM_RUNNING || vm->lane.is_late || vm->lane.is_parked ||
	    vm->session.state != SES_BOUND || vm->session.has_ping ||
	    vm->snapping)
		return -EAGAIN;
	rc = snapping_begin(vm->link, id, fn, ctx, &s);
	if (rc)
		return rc;
	s->from[SNAP_DISK] = fcntl(vm->disk_fd, F_DUPFD_CLOEXEC, 3);
	s->init = fcntl(vm->t->init_fd, F_DUPFD_CLOEXEC, 3);
	rc = s->from[SNAP_DISK] < 0 || s->init < 0 ? -errno : 0;
	if (!rc)
		rc = gp_down_plain(&vm->channel.out, GP_HOLD, 0);
	if (rc) {
		snapping_drop(s);
		return rc;
	}
	s->vm = vm;
	vm->snapping = s;
	vm->session.has_ping = true;
	vm->held_ms = clock_mono_ms();
	phase(vm, VM_HOLDING, vm->link->times.start_ms);
	channel_flush(&vm->channel);
	fault_point(FAULT_SNAP_ASKED);
	return 0;
}

void vm_snapshot_ponged(struct vm *vm)
{
	int rc;

	if (vm->state != VM_HOLDING)
		return;
	fault_point(FAULT_SNAP_HELD);
	phase(vm, VM_SNAP_PAUSING, vm->link->times.snapshot_ms);
	rc = vmm_ask(vm->vmm, VMM_PAUSE, NULL, 0);
	if (rc)
		failed(vm, "it cannot be paused", rc);
}

static void copy_run(struct job *j)
{
	snapping_copy(container_of(j, struct snapping, job));
}

static void copy_done(struct job *j)
{
	struct snapping *s = container_of(j, struct snapping, job);
	struct vm *vm = s->vm;

	if (!j->link) {
		snapping_free(s);
		return;
	}
	s->is_with_worker = false;
	if (s->rc && vm && vm->state != VM_ENDING) {
		failed(vm, "its disk cannot be copied", s->rc);
		return;
	}
	if (s->rc) {
		snapping_fail(s, "its disk cannot be copied", s->rc);
		return;
	}
	/* All of it was taken while it stood still: it is whole, whatever
	 * became of the VM. */
	s->result.paused_us = clock_mono_us() - s->paused_us;
	if (vm && vm->state != VM_ENDING) {
		log_info("%s vm=goes_on snapshot=%s paused_us=%lld",
			 vm->spec.sandbox, s->id,
			 (long long)s->result.paused_us);
		go_on(vm, true);
		fault_point(FAULT_SNAP_LET_GO);
	}
	snapping_seal(s);
}

static void copy(struct vm *vm)
{
	struct snapping *s = vm->snapping;
	int rc;

	phase(vm, VM_SNAP_COPYING, 0);
	rc = job_start(vm->link, &s->job, copy_run, copy_done);
	s->is_with_worker = !rc;
	if (rc)
		failed(vm, "its disk cannot be copied", rc);
}

void vm_snapshot_replied(struct vm *vm, enum vmm_type type, int status)
{
	struct snapping *s = vm->snapping;
	int rc;

	if (type == VMM_PAUSE && vm->state == VM_SNAP_PAUSING) {
		if (status) {
			failed(vm, "it cannot be paused", status);
			return;
		}
		fault_point(FAULT_SNAP_PAUSED);
		s->paused_us = clock_mono_us();
		phase(vm, VM_SNAP_SAVING, vm->link->times.snapshot_ms);
		rc = vmm_ask(vm->vmm, VMM_SNAPSHOT, s->file, 2);
		fault_point(FAULT_SNAP_FILES);
		if (rc)
			failed(vm, "its memory cannot be written", rc);
	} else if (type == VMM_SNAPSHOT && vm->state == VM_SNAP_SAVING) {
		fault_point(FAULT_SNAP_SAVED);
		if (status)
			failed(vm, "its memory cannot be written", status);
		else
			copy(vm);
	}
}

/* ---- how much ----------------------------------------------------------- */

/*
 * The disk as it is.  Of the memory: what was in the file that it began from,
 * and the pages that its process holds, of which some are the same ones.
 */
struct vm_space vm_space_of(const struct vm *vm)
{
	uint64_t ram = (uint64_t)vm->t->shape.ram_mib << 20;
	struct vm_space ret = {.mem_bytes = vm->base_mem_bytes};
	unsigned long pages = 0;
	uint64_t disk = 0;
	struct stat st;
	char path[40];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/statm", vm_pid(vm));
	f = fopen(path, "re");
	if (f && fscanf(f, "%*u %lu", &pages) == 1)
		ret.mem_bytes +=
			(uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
	else
		ret.mem_bytes = ram;
	if (f)
		fclose(f);
	if (ret.mem_bytes > ram)
		ret.mem_bytes = ram;
	if (vm->disk_fd >= 0 && !fstat(vm->disk_fd, &st)) {
		disk = sparse_allocated(vm->disk_fd);
		*(st.st_nlink ? &ret.named_disk_bytes : &ret.disk_bytes) = disk;
	}
	return ret;
}
