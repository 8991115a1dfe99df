/*
 * VMs that wait, bound and paused, until somebody claims them; see vm.h.
 *
 *   RESTORING  the process starts; BIND by its lane (vm_bell.c), or by the
 *              channel and after BOUND, PAUSE
 *   POOLED     paused: vCPUs parked, devices drained, the channel held
 *   STARTING   claimed; a call is posted
 *   RESUMING   RESUME was asked for; its answer is awaited
 *
 * Why bound ahead: BIND costs a guest as much as a short run does (on a soft
 * host about 55,000 interpreted instructions, also when it is repeated), and
 * nothing of it is the run's own.  Each VM has an identity that no other has
 * or will get, and has confirmed it before it can be claimed.  The guest's
 * clocks go on while it is paused, so its wall clock stays right.
 *
 * After BOUND a VM may say nothing until it has a command: its session is then
 * at a point where every frame breaks the rules.  The command is given to it
 * when it has said that it was resumed, not before: one that is dead by then
 * (a process that is killed ends some time later), does not answer, refuses,
 * or has spoken, is replaced by a restored one, which costs time and nothing
 * else.
 */
#include "../clock.h"
#include "fault.h"
#include "fd.h"
#include "log.h"
#include "vm_priv.h"
#include <errno.h>
#include <sys/socket.h>

/* ---- waiting ---------------------------------------------------------- */

void vm_pooled_pause(struct vm *vm)
{
	int rc = vmm_ask(vm->vmm, VMM_PAUSE, NULL, 0);

	vm->state = VM_RESTORING;
	if (rc)
		vm_end(vm, END_VM_LOST, "the VM cannot be paused: %s",
		       strerror(-rc));
}

/* By the channel.  The deadline of BOUND serves for the pause, too. */
void vm_pooled_bound(struct vm *vm)
{
	fault_point(FAULT_POOL_BOUND);
	vm->session.state = SES_PREPARED;
	vm_pooled_pause(vm);
}

void vm_pooled_waits(struct vm *vm)
{
	fault_point(FAULT_POOL_PAUSED);
	vm->state = VM_POOLED;
	vm->bind_deadline_ms = 0;
	vm_timer_arm(vm);
	log_info("%s vm=pooled pid=%d lane=%s after_us=%lld", vm->spec.sandbox,
		 vm_pid(vm), vm->lane.is_ready ? "ready" : "none",
		 (long long)(clock_mono_us() - vm->created_us));
	vm->pool_ops->waiting(vm->ctx);
}

int vm_create_pooled(struct vm **ret, struct link *link,
		     const struct vm_spec *spec, const struct vm_pool_ops *ops,
		     void *ctx, struct err *e)
{
	struct vm *vm = vm_new(link, spec, ctx, e);

	if (!vm)
		return -1;
	vm->pool_ops = ops;
	vm->state = VM_RESTORING;
	if (!template_is_current(vm->t)) {
		template_recheck(vm->t);
		vm_free(vm);
		return err_set(e, ERR_UNAVAILABLE, NULL,
			       "its snapshot is not there");
	}
	if (vm_begin_process(vm, e)) {
		vm_free(vm);
		return -1;
	}
	*ret = vm;
	return 0;
}

bool vm_is_current(const struct vm *vm)
{
	return vm->generation == vm->t->generation &&
	       template_is_current(vm->t);
}

/* ---- claiming --------------------------------------------------------- */

int vm_claim(struct vm *vm, const struct vm_ops *ops, void *ctx)
{
	if (vm->state != VM_POOLED || !vm_is_current(vm))
		return -ESTALE;
	log_info("%s vm=claimed pid=%d waited_ms=%lld", vm->spec.sandbox,
		 vm_pid(vm),
		 (long long)(clock_mono_us() - vm->created_us) / 1000);
	vm->ops = ops;
	vm->pool_ops = NULL;
	vm->ctx = ctx;
	vm->created_us = clock_mono_us();
	vm->is_claimed = true;
	vm->words_deadline_ms = 0;
	loop_timer_stop(vm->link->loop, &vm->timer);
	vm_start_post(vm);
	fault_point(FAULT_CLAIM_TAKEN);
	return 0;
}

bool vm_is_ungiven(const struct vm *vm)
{
	return vm->is_claimed && vm->state != VM_ENDING;
}

/* The posted call, one that is on its way or a new one, becomes a start. */
void vm_pooled_instead(struct vm *vm)
{
	log_warn("%s vm=restored_instead: the claimed one was dead, late or "
		 "had spoken",
		 vm->spec.sandbox);
	vm->is_claimed = false;
	vm->bind_deadline_ms = vm->words_deadline_ms = 0;
	loop_timer_stop(vm->link->loop, &vm->timer);
	if (vm->vmm)
		vmm_forget(vm->vmm);
	vm->vmm = NULL;
	fd_close(&vm->disk_fd);
	channel_close(&vm->channel);
	session_restart(&vm->session, SES_PREPARED);
	memset(&vm->lane, 0, sizeof(vm->lane));
	vm->is_bind_given = false;
	if (!vm->is_posted)
		vm_start_post(vm);
}

/* Silent since BOUND, and nothing of it unread. */
static bool is_untouched(const struct vm *vm)
{
	uint8_t byte;

	return vm->vmm && vmm_is_alive(vm->vmm) && vm->channel.watch.fd >= 0 &&
	       vm->session.state == SES_PREPARED &&
	       !session_is_mid_frame(&vm->session) &&
	       recv(vm->channel.watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <
		       0 &&
	       errno == EAGAIN;
}

void vm_pooled_resume(struct vm *vm)
{
	int rc;

	/* Parked, it has nothing to say on either socket. */
	if (!is_untouched(vm) || !vmm_is_quiet(vm->vmm)) {
		vm_pooled_instead(vm);
		return;
	}
	vm->state = VM_RESUMING;
	vm->ready_us = clock_mono_us();
	vm->bind_deadline_ms = clock_mono_ms() + vm->link->times.bind_ms;
	vm_timer_arm(vm);
	vmm_foreground(vm->vmm);
	rc = vm->lane.is_ready && vm_lane_takes(vm)
		     ? vm_lane_give(vm, vm_lane_command(vm))
		     : vmm_ask(vm->vmm, VMM_RESUME, NULL, 0);
	fault_point(FAULT_CLAIM_GIVEN);
	if (rc)
		vm_pooled_instead(vm);
}

/* It runs: from here on it is as any other VM that is bound. */
static void resumed(struct vm *vm)
{
	fault_point(FAULT_CLAIM_RESUMED);
	vm->is_claimed = false;
	vm->state = VM_RUNNING;
	vm->session.state = SES_BOUND;
	if (vm_early_send(vm)) {
		vm_end(vm, END_NOT_STARTED, "out of memory");
		return;
	}
	channel_flush(&vm->channel);
	vm_bound(vm);
}

void vm_pooled_replied(struct vm *vm, enum vmm_type type, int status)
{
	if (type == VMM_PAUSE && vm->state == VM_RESTORING) {
		if (status)
			vm_end(vm, END_VM_LOST, "the VM cannot be paused: %s",
			       strerror(-status));
		else if (vm->session.state == SES_PREPARED)
			vm_pooled_waits(vm);
	} else if (type == VMM_RESUME && vm->state == VM_RESUMING) {
		if (status || !is_untouched(vm))
			vm_pooled_instead(vm);
		else
			resumed(vm);
	} else if (type == VMM_RESUME && status) {
		vm_end(vm, END_VM_LOST, "the VM cannot go on: %s",
		       strerror(-status));
	} else if (type == VMM_RESUME) {
		vm_lane_resumed(vm);
	}
}
