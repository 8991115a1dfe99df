/*
 * A request is given to a lane: state SENDING of vm_lane.c, until user code may
 * run.
 *
 * It is the frame of one RUN, with that of BIND before it when the VM was
 * restored (vm_bell.c), in pieces as the socket takes them.  What is longer
 * than the area of the page goes in parts: the runner takes each out of the
 * page and rings for the next, before it has read any of it.  A guest that does
 * not ring is given up at the deadline of BIND, one that rings otherwise at
 * once; nothing ran in it.
 */
#include "../clock.h"
#include "fault.h"
#include "lane.h"
#include "log.h"
#include "vm_priv.h"
#include <errno.h>

/*
 * A run that has not answered by then becomes a command of init, which can
 * kill it and report its output while it goes on.  Far beyond what a short run
 * takes, and short for a person who waits for the first output.
 *
 * It is meant of a run that has a processor.  Where more go on than there are
 * processors, each waits for its turn as many times longer: adopted then, all
 * short runs of a burst would go on by the guest's kernel, which takes the time
 * that they lack.
 */
#define LANE_ADOPT_MS	  250
#define LANE_ADOPT_MS_MAX 5000 /* < start_ms of link.c */

bool vm_lane_takes(const struct vm *vm)
{
	const struct bytes *b = &vm->early;
	struct gp_head head;

	if (b->len < sizeof(head) || b->len > GP_DOWN_BYTES_MAX)
		return false;
	memcpy(&head, b->data, sizeof(head));
	return head.type == GP_RUN && head.len == b->len - sizeof(head);
}

static uint32_t part_end(const struct lane *a)
{
	uint32_t left = a->request_len - a->part;

	return a->part +
	       (left < LANE_REQUEST_BYTES_MAX ? left : LANE_REQUEST_BYTES_MAX);
}

/* All that the socket takes now, of this part; 0 or -errno. */
static int send_pieces(struct vm *vm)
{
	struct lane *a = &vm->lane;
	uint32_t end = part_end(a);
	bool is_last = end == a->request_len;

	while (a->sent < end) {
		struct vmm_lane l = {.lane = a->idx,
				     .offset = a->sent - a->part,
				     .total = end - a->part,
				     .flags = is_last ? 0 : VMM_LANE_IS_PART};
		size_t len = end - a->sent;
		int rc;

		if (len > VMM_LANE_PIECE_BYTES_MAX)
			len = VMM_LANE_PIECE_BYTES_MAX;
		rc = vmm_lane_run(vm->vmm, &l, vm->early.data + a->sent, len);
		if (rc)
			return rc == -EAGAIN ? 0 : rc;
		a->sent += (uint32_t)len;
	}
	if (!is_last)
		return 0;
	vm->is_claimed = false;
	vm->state = VM_LANE_GIVEN;
	a->given_ms = clock_mono_ms();
	return 0;
}

uint64_t vm_lane_command(const struct vm *vm)
{
	struct gp_head head;

	memcpy(&head, vm->early.data, sizeof(head));
	return head.cmd;
}

int vm_lane_give(struct vm *vm, uint64_t cmd)
{
	vm->state = VM_LANE_SENDING;
	vm->lane.is_ready = false;
	vm->lane.cmd = cmd;
	vm->lane.request_len = (uint32_t)vm->early.len;
	vm->lane.sent = vm->lane.part = 0;
	vm->lane.is_part_taken = vm->lane.is_part_wanted = false;
	return send_pieces(vm);
}

/* Nothing ran.  A restored VM is what would be tried next, and only once. */
static void not_taken(struct vm *vm)
{
	if (vm->lane.is_bind)
		vm_end(vm, END_VM_LOST,
		       "hutch-vmm did not take the run of the restored VM");
	else
		vm_pooled_instead(vm);
}

void vm_lane_writable(void *ctx)
{
	struct vm *vm = ctx;

	if (vm->state == VM_LANE_SENDING && send_pieces(vm))
		not_taken(vm);
}

/* The VMM's reply and the runner's bell come in either order. */
static void part_next(struct vm *vm)
{
	struct lane *a = &vm->lane;

	if (!a->is_part_taken || !a->is_part_wanted)
		return;
	a->is_part_taken = a->is_part_wanted = false;
	a->part = a->sent;
	if (send_pieces(vm))
		not_taken(vm);
}

void vm_give_part_taken(struct vm *vm, const struct lane_said *said)
{
	(void)said;
	vm->lane.is_part_taken = true;
	part_next(vm);
}

/* Only a part that was sent whole can be asked on from. */
bool vm_give_part_wanted(struct vm *vm, const struct lane_said *said)
{
	struct lane *a = &vm->lane;

	if (said->at.lane != a->idx || a->is_part_wanted ||
	    a->sent != part_end(a))
		return false;
	a->is_part_wanted = true;
	part_next(vm);
	return true;
}

/* The frame is where it belongs; what stands behind it stays. */
static int request_drop(struct vm *vm)
{
	struct bytes rest = {0};
	int rc = bytes_append_secret(&rest,
				     vm->early.data + vm->lane.request_len,
				     vm->early.len - vm->lane.request_len);

	bytes_finish_secret(&vm->early);
	vm->early = rest;
	return rc;
}

static bool is_by_lane(const struct vm *vm)
{
	return vm->state == VM_LANE_SENDING || vm->state == VM_LANE_GIVEN ||
	       vm_lane_is_open(vm);
}

/* So long after it was given, but not later than it times out, since init does
 * that. */
static int64_t adopt_at(struct vm *vm, int64_t ms)
{
	const struct session_cmd *c =
		session_cmd_find(&vm->session, vm->lane.cmd);

	return vm->lane.given_ms +
	       (c && c->timeout_ms && c->timeout_ms < ms ? c->timeout_ms : ms);
}

/* The first time is that of a run with a processor: how many there are is
 * looked at for those that take longer. */
void vm_lane_due(struct vm *vm, int64_t now)
{
	unsigned n = 0, n_cpus = vm->link->n_cpus;
	int64_t at, ms = LANE_ADOPT_MS;
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &vm->link->vms)
	{
		if (is_by_lane(container_of(pos, struct vm, node)))
			n++;
	}
	if (n > n_cpus)
		ms = ms * n / n_cpus;
	if (ms > LANE_ADOPT_MS_MAX)
		ms = LANE_ADOPT_MS_MAX;
	at = adopt_at(vm, ms);
	if (at > now)
		vm->lane.adopt_at_ms = at;
	else
		vm_lane_adopt(vm);
}

void vm_give_run_taken(struct vm *vm, const struct lane_said *said)
{
	(void)said;
	fault_point(FAULT_CLAIM_RESUMED);
	if (request_drop(vm)) {
		vm_end(vm, END_VM_LOST, "the host is out of memory");
		return;
	}
	vm->state = VM_LANE_OPEN;
	vm->link->stats.lane_runs++;
	vm->lane.adopt_at_ms = adopt_at(vm, LANE_ADOPT_MS);
	vm_bound(vm);
	if (vm->lane.is_adopt_wanted)
		vm_lane_adopt(vm);
}

/* Nothing has changed, says the contract: nothing ran. */
void vm_give_run_refused(struct vm *vm, const struct lane_said *said)
{
	log_warn("%s vm=lane_refused: %s", vm->spec.sandbox,
		 strerror(-said->status));
	not_taken(vm);
}
