/*
 * Commands of a VM: frames into its channel; see vm.h.
 *
 * A VM that does not run yet keeps them in `early`; the first write into its
 * channel takes them along.  One that is busy with its express lane does so,
 * too: its run is adopted first.
 */
#include "gp_down.h"
#include "vm_priv.h"
#include <errno.h>

int vm_early_send(struct vm *vm)
{
	int rc = bytes_append_secret(&vm->channel.out, vm->early.data,
				     vm->early.len);

	bytes_finish_secret(&vm->early);
	return rc;
}

/* A command's deadline runs: it is with the guest. */
static bool is_given(const struct vm *vm)
{
	return vm->session.state == SES_BOUND || vm_lane_is_open(vm);
}

/* The frame is in its queue: on its way with it. */
void vm_queue_sent(struct vm *vm)
{
	if (vm->state != VM_RUNNING)
		vm_lane_adopt(vm);
	else if (vm->lane.is_parked)
		vm_lane_unpark(vm);
	else
		channel_flush(&vm->channel);
}

/* Where frames go now, or NULL when there is no room. */
struct bytes *vm_queue(struct vm *vm)
{
	if (vm->state == VM_RUNNING)
		return channel_room(&vm->channel) ? &vm->channel.out : NULL;
	return vm->early.len < CHANNEL_OUT_BYTES_MAX ? &vm->early : NULL;
}

static int cmd_begin(struct vm *vm, uint64_t cmd, bool is_run,
		     uint32_t timeout_ms, struct bytes **ret_out)
{
	if (vm->state == VM_ENDING)
		return -ESHUTDOWN;
	*ret_out = vm_queue(vm);
	if (!*ret_out)
		return -ENOBUFS;
	return session_cmd_add(&vm->session, cmd, is_run, timeout_ms);
}

static int cmd_sent(struct vm *vm, uint64_t cmd, int rc)
{
	struct session_cmd *c = session_cmd_find(&vm->session, cmd);

	if (rc) {
		session_cmd_free(c);
		return rc;
	}
	/* One runner waits in a snapshot; the guest makes another for each run
	 * after the first, which imports its libraries anew. */
	c->start_ms = c->is_run && vm->had_run ? vm->link->times.runner_ms
					       : vm->link->times.start_ms;
	vm->had_run |= c->is_run;
	if (is_given(vm))
		vm_cmd_deadline(vm, c, c->start_ms);
	vm_queue_sent(vm);
	return 0;
}

int vm_run(struct vm *vm, uint64_t cmd, const struct vm_run *run)
{
	struct bytes *out;
	int rc = cmd_begin(vm, cmd, true, run->timeout_ms, &out);

	return rc ? rc : cmd_sent(vm, cmd, gp_down_run(out, cmd, run));
}

int vm_exec(struct vm *vm, uint64_t cmd, const struct vm_exec *exec)
{
	struct bytes *out;
	int rc = cmd_begin(vm, cmd, false, exec->timeout_ms, &out);

	return rc ? rc : cmd_sent(vm, cmd, gp_down_exec(out, cmd, exec));
}

int vm_kill(struct vm *vm, uint64_t cmd, uint32_t grace_ms)
{
	struct session_cmd *c = session_cmd_find(&vm->session, cmd);
	struct bytes *out;
	int rc;

	if (!c || c->state == CS_ENDED || vm->state == VM_ENDING)
		return -ESRCH;
	out = vm_queue(vm);
	if (!out)
		return -ENOBUFS;
	rc = gp_down_kill(out, cmd, grace_ms);
	if (rc)
		return rc;
	c->is_cancelled = true;
	if (vm->state == VM_LANE_FINISHING)
		vm_cmd_deadline(vm, c, vm->link->times.finish_ms);
	else if (is_given(vm))
		vm_cmd_deadline(vm, c,
				(int64_t)grace_ms + vm->link->times.overrun_ms);
	vm_queue_sent(vm);
	return 0;
}

void vm_ack(struct vm *vm, uint64_t cmd)
{
	struct session_cmd *c = session_cmd_find(&vm->session, cmd);

	if (!c || c->state != CS_ENDED)
		return;
	session_cmd_free(c);
	if (vm_is_snapping(vm)) {
		/* Later, with all else that it is told then. */
		(void)gp_down_plain(&vm->early, GP_ACK, cmd);
		return;
	}
	/* Init knows nothing of a run that answered by its lane. */
	if (vm->state == VM_RUNNING && !vm->lane.is_parked &&
	    channel_room(&vm->channel) &&
	    !gp_down_plain(&vm->channel.out, GP_ACK, cmd))
		channel_flush(&vm->channel);
}
