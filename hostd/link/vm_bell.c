/*
 * A restored VM gets its identity.
 *
 *   BELL       its process starts; is there a lane, and a VM that waits at its
 *              bell?  What is asked for meanwhile stays in `early`
 *   BINDING    of the pool: BIND went by the lane, BOUND is awaited there
 *
 * A snapshot with a lane was taken at its bell (api/lane.h), so READY is the
 * first that is heard of such a VM, which does nothing until it is answered:
 *
 *   one RUN             BIND and RUN go by the lane, in one request (SENDING);
 *                       BOUND is the first frame of the answer, or comes by the
 *                       channel when the run was adopted
 *   of the pool         BIND alone, then RESUME: the runner seeds itself and
 *                       rings again (ARMED)
 *   anything else,      BIND and what was asked for go by the channel, then
 *   or lane = off       RESUME: the guest closes its lane
 *
 * Without a lane the VM runs already, and BIND goes by the channel.  Until BIND
 * was given the session lets no frame through.
 */
#include "../clock.h"
#include "fault.h"
#include "lane.h"
#include "vm_priv.h"
#include <errno.h>

static void not_heard(struct vm *vm, int rc)
{
	vm_end(vm, END_VM_LOST, "the VM cannot be given its identity: %s",
	       strerror(-rc));
}

/* ---- by the channel ---------------------------------------------------- */

/* BIND and the early commands, in one write. */
static void by_channel(struct vm *vm)
{
	int rc = vm_bind_put(vm, &vm->channel.out);

	vm->is_bind_given = true;
	if (!rc)
		rc = vm_early_send(vm);
	bytes_finish_secret(&vm->early); /* also when BIND failed */
	if (rc) {
		not_heard(vm, rc);
		return;
	}
	vm->session.state = SES_BINDING;
	if (vm->state == VM_BELL)
		vm->state = VM_RUNNING;
	channel_flush(&vm->channel);
	fault_point(FAULT_START_GIVEN);
}

void vm_bell_none(struct vm *vm)
{
	if (vm->state == VM_BELL || vm->state == VM_RESTORING)
		by_channel(vm);
}

static void resume(struct vm *vm)
{
	int rc = vmm_ask(vm->vmm, VMM_RESUME, NULL, 0);

	if (rc)
		not_heard(vm, rc);
}

static void by_channel_resume(struct vm *vm)
{
	by_channel(vm);
	if (vm->state != VM_ENDING)
		resume(vm);
}

/* ---- by the lane ------------------------------------------------------- */

/* `early` becomes BIND and what it was. */
static int bind_before(struct vm *vm)
{
	struct bytes both = {0};
	int rc = vm_bind_put(vm, &both);

	if (!rc)
		rc = bytes_append_secret(&both, vm->early.data, vm->early.len);
	bytes_finish_secret(&vm->early);
	vm->early = both;
	return rc;
}

/* Is it one of its lanes? */
static bool lane_is_known(struct vm *vm, const struct lane_said *said)
{
	vm->lane.idx = said->at.lane;
	if (said->at.lane < vm->lane.n)
		return true;
	vm_end(vm, END_VM_LOST, "hutch-vmm spoke of lane %u of %u",
	       said->at.lane, vm->lane.n);
	return false;
}

void vm_bell_run(struct vm *vm, const struct lane_said *said)
{
	uint64_t cmd;
	int rc;

	if (!lane_is_known(vm, said))
		return;
	vm->ready_us = clock_mono_us();
	if (!vm->link->has_lane || !vm_lane_takes(vm)) {
		by_channel_resume(vm);
		return;
	}
	cmd = vm_lane_command(vm);
	vm->is_bind_given = vm->lane.is_bind = true;
	rc = bind_before(vm);
	if (!rc)
		rc = vm_lane_give(vm, cmd);
	fault_point(FAULT_START_GIVEN);
	if (rc)
		not_heard(vm, rc);
}

/* ---- of the pool ------------------------------------------------------- */

void vm_bell_pooled(struct vm *vm, const struct lane_said *said)
{
	struct vmm_lane l = {.lane = said->at.lane};
	struct bytes bind = {0};
	int rc;

	if (!lane_is_known(vm, said))
		return;
	if (!vm->link->has_lane) {
		by_channel_resume(vm);
		return;
	}
	vm->lane.at = vm->lane.total = 0;
	vm->is_bind_given = vm->lane.is_bind = true;
	rc = vm_bind_put(vm, &bind);
	l.total = (uint32_t)bind.len;
	if (!rc)
		rc = vmm_lane_run(vm->vmm, &l, bind.data, bind.len);
	bytes_finish_secret(&bind);
	fault_point(FAULT_START_GIVEN);
	vm->state = VM_BINDING;
	if (rc)
		not_heard(vm, rc);
}

void vm_bell_taken(struct vm *vm, const struct lane_said *said)
{
	(void)vm;
	(void)said;
}

void vm_bell_refused(struct vm *vm, const struct lane_said *said)
{
	not_heard(vm, said->status);
}

void vm_bell_answer(struct vm *vm, const struct lane_said *said)
{
	if (!vm->lane.at) {
		vm->lane.total = said->at.total;
		vm->session.state = SES_BINDING;
	}
	if (!vm_lane_piece(vm, said))
		return;
	if (vm->session.state != SES_PREPARED ||
	    session_is_mid_frame(&vm->session)) {
		vm_end(vm, END_GUEST_PROTOCOL,
		       "guest broke the protocol: BIND was not answered by "
		       "BOUND in its lane");
		return;
	}
	vm->state = VM_ARMED;
	vm->bind_deadline_ms = clock_mono_ms() + vm->link->times.lane_ms;
	vm_timer_arm(vm);
	vm->lane.is_resume_unsaid = true;
	resume(vm);
}
