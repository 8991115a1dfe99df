/*
 * A run by the express lane (api/lane.h): the request is handed to the VMM and
 * not to the guest's kernel, and the answer comes the same way.
 *
 *   ARMED      bound by its lane; the runner seeds itself.  READY makes it
 *              POOLED, parked; without READY in time it is paused and POOLED
 *              as a VM without a lane is
 *   SENDING    claimed, or restored, for one RUN: its frame goes to the VMM
 *              (vm_lane_give.c)
 *   GIVEN      the last one left; the VMM's reply is awaited
 *   OPEN       user code runs; the answer is awaited
 *   ADOPTING   it takes long, or shall be killed: ADOPT was asked for
 *   FINISHING  too late to adopt: the answer must come, by its time-out and a
 *              little more
 *   ANSWERING  some pieces of it came
 *
 * and then RUNNING: adopted, or answered and parked.  Pairs of state and
 * message that are not in the table below end the VM.
 *
 * From GIVEN on user code may have run: a VM that is lost is lost, no other is
 * restored in its place, unless its process ended with the last piece unread (a
 * process that is killed takes a while to end, and looks alive until then). The
 * frame stays in `early` until it was taken, and what is asked for meanwhile
 * (KILL, another command) behind it.
 *
 * The channel is silent until the run is adopted: the session is still at its
 * point before commands, so a frame that comes there breaks the rules.  The
 * answer's bytes go through that same session, so all that a guest may say is
 * checked in one place.  Deadlines are those of any command: the start's from
 * OPEN on, whether STARTED is to come by the lane or by the channel.
 */
#include "../clock.h"
#include "fault.h"
#include "gp_down.h"
#include "lane.h"
#include "log.h"
#include "vm_priv.h"
#include <errno.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))
enum lane_event {
	LEV_READY,
	LEV_ANSWER, /* a piece of it */
	LEV_RUN_TAKEN,
	LEV_RUN_REFUSED,
	LEV_ADOPTED,
	LEV_ADOPT_LATE, /* the answer is there, or on its way */
	LEV_ADOPT_FAILED,
	LEV_N,
};

static const char *const event_names[] = {
	[LEV_READY] = "a runner waits",
	[LEV_ANSWER] = "an answer",
	[LEV_RUN_TAKEN] = "a request was taken",
	[LEV_RUN_REFUSED] = "a request was refused",
	[LEV_ADOPTED] = "a run was adopted",
	[LEV_ADOPT_LATE] = "a run answered before it was adopted",
	[LEV_ADOPT_FAILED] = "a run cannot be adopted",
};
static_assert(N_OF(event_names) == LEV_N, "a name for every event");

bool vm_has_lane(const struct vm *vm)
{
	return vm->lane.is_ready;
}

bool vm_lane_is_open(const struct vm *vm)
{
	return vm->state == VM_LANE_OPEN || vm->state == VM_LANE_ADOPTING ||
	       vm->state == VM_LANE_FINISHING || vm->state == VM_LANE_ANSWERING;
}

bool vm_is_by_lane(const struct vm *vm, uint64_t cmd)
{
	return vm->lane.cmd == cmd;
}

bool vm_lane_is_unread(const struct vm *vm, const struct vmm_end *end)
{
	return vm->state == VM_LANE_GIVEN && end->has_unread &&
	       !vm->lane.is_bind;
}

/* ---- waiting at the doorbell ------------------------------------------ */

/* READY may be on its way, or the runner goes on seeding when the VM does. */
void vm_lane_unready(struct vm *vm)
{
	log_warn("%s vm=pooled lane=none: no runner was at its doorbell within "
		 "%lld ms",
		 vm->spec.sandbox, (long long)vm->link->times.lane_ms);
	vm->lane.is_late = !vm->lane.is_ready;
	vm->lane.is_ready = false;
	vm->bind_deadline_ms = clock_mono_ms() + vm->link->times.bind_ms;
	vm_pooled_pause(vm);
	vm_timer_arm(vm);
}

static void out_of_turn(struct vm *vm, enum lane_event ev)
{
	if (vm_is_ungiven(vm))
		vm_pooled_instead(vm);
	else
		vm_end(vm, END_VM_LOST,
		       "hutch-vmm spoke of its lane out of turn: %s",
		       event_names[ev]);
}

static void ready(struct vm *vm, const struct lane_said *said)
{
	if (said->at.lane != vm->lane.idx || vm->lane.is_ready) {
		out_of_turn(vm, LEV_READY);
		return;
	}
	vm->lane.is_ready = true;
	/* A vCPU may ring before the main thread has replied. */
	if (!vm->lane.is_resume_unsaid)
		vm_pooled_waits(vm);
}

void vm_lane_resumed(struct vm *vm)
{
	if (!vm->lane.is_resume_unsaid)
		return;
	vm->lane.is_resume_unsaid = false;
	if (vm->state == VM_ARMED && vm->lane.is_ready)
		vm_pooled_waits(vm);
}

/* The vCPUs run again, unless what came before failed (rc) or this does: then
 * the VM ends.  Did they? */
static bool go_on(struct vm *vm, int rc)
{
	if (!rc)
		rc = vmm_ask(vm->vmm, VMM_RESUME, NULL, 0);
	if (rc)
		vm_end(vm, END_VM_LOST, "the VM cannot go on: %s",
		       strerror(-rc));
	return !rc;
}

/* Its lane is of no use any more, also when it was claimed meanwhile: a runner
 * that goes on without a request closes it, and waits on init. */
static void ready_late(struct vm *vm, const struct lane_said *said)
{
	(void)said;
	if (!vm->lane.is_late) {
		out_of_turn(vm, LEV_READY);
		return;
	}
	vm->lane.is_late = false;
	if (vm->state == VM_RUNNING)
		go_on(vm, 0);
}

/* The first one of a VM for the pool; when BIND was given, one that is late. */
static void ready_restoring(struct vm *vm, const struct lane_said *said)
{
	if (vm->is_bind_given)
		ready_late(vm, said);
	else
		vm_bell_pooled(vm, said);
}

/* ---- the request (vm_lane_give.c) ------------------------------------- */

static void part_wanted(struct vm *vm, const struct lane_said *said)
{
	if (!vm_give_part_wanted(vm, said))
		out_of_turn(vm, LEV_READY);
}

/* ---- a run that takes long -------------------------------------------- */

void vm_lane_adopt(struct vm *vm)
{
	int rc;

	if (vm->state == VM_LANE_SENDING || vm->state == VM_LANE_GIVEN)
		vm->lane.is_adopt_wanted = true;
	if (vm->state != VM_LANE_OPEN)
		return;
	vm->state = VM_LANE_ADOPTING;
	vm->lane.adopt_at_ms = 0;
	vm->lane.is_adopt_unsaid = true;
	rc = vmm_lane_adopt(vm->vmm, vm->lane.idx);
	if (rc)
		vm_end(vm, END_VM_LOST, "hutch-vmm does not listen: %s",
		       strerror(-rc));
}

/* The guest goes on, and the run is a command as any other. */
static void adopted(struct vm *vm, const struct lane_said *said)
{
	struct session_cmd *c = session_cmd_find(&vm->session, vm->lane.cmd);
	int64_t left = vm_lane_left_ms(vm, c);
	int rc;

	(void)said;
	vm->state = VM_RUNNING;
	vm->session.state = vm->lane.is_bind ? SES_BINDING : SES_BOUND;
	vm->lane.is_adopt_unsaid = false;
	vm->link->stats.lane_adopted++;
	log_debug("%s vm=adopted after_ms=%lld", vm->spec.sandbox,
		  (long long)(clock_mono_ms() - vm->lane.given_ms));
	rc = gp_down_adopt(&vm->channel.out, c->cmd,
			   !c->timeout_ms ? 0
			   : left > 0	  ? (uint32_t)left
					  : 1);
	if (!rc)
		rc = vm_early_send(vm); /* what was asked for meanwhile */
	if (rc) {
		vm_end(vm, END_VM_LOST, "the host is out of memory");
		return;
	}
	for (size_t i = 0; i < SESSION_CMDS_MAX; i++) {
		c = &vm->session.cmds[i];
		if (c->state == CS_SENT && !c->is_cancelled)
			vm_cmd_deadline(vm, c, c->start_ms);
	}
	channel_flush(&vm->channel);
}

int64_t vm_lane_left_ms(const struct vm *vm, const struct session_cmd *c)
{
	int64_t left = c->timeout_ms - (clock_mono_ms() - vm->lane.given_ms);

	return left > 0 ? left : 0;
}

/*
 * That it ends is the run's word: user code can write it into the page and go
 * on.  Its time-out holds all the same, by the host; a KILL does, too.
 */
static void finishing(struct vm *vm)
{
	struct session_cmd *c = session_cmd_find(&vm->session, vm->lane.cmd);
	int64_t left = 0;

	vm->state = VM_LANE_FINISHING;
	if (!c)
		return;
	if (!c->is_cancelled && c->timeout_ms)
		left = vm_lane_left_ms(vm, c);
	vm_cmd_deadline(vm, c, left + vm->link->times.finish_ms);
}

static void adopt_late(struct vm *vm, const struct lane_said *said)
{
	(void)said;
	if (!vm->lane.is_adopt_unsaid)
		out_of_turn(vm, LEV_ADOPT_LATE);
	else if (vm->state == VM_LANE_ADOPTING)
		finishing(vm);
	vm->lane.is_adopt_unsaid = false;
}

/* After the answer no request is open, and that is well. */
static void adopt_failed(struct vm *vm, const struct lane_said *said)
{
	if (said->status == -ENOENT && vm->state != VM_LANE_ADOPTING)
		adopt_late(vm, said);
	else
		vm_end(vm, END_VM_LOST, "a run cannot be adopted: %s",
		       strerror(-said->status));
}

/* ---- the answer ------------------------------------------------------- */

/* Nobody runs in there until there is more to do. */
void vm_lane_unpark(struct vm *vm)
{
	vm->lane.is_parked = false;
	if (go_on(vm, vm_early_send(vm)))
		channel_flush(&vm->channel);
}

static void answered(struct vm *vm)
{
	bool has_more = vm->session.file.number != 0;

	vm->state = VM_RUNNING;
	vm->lane.is_parked = true;
	for (size_t i = 0; i < SESSION_CMDS_MAX; i++)
		has_more |= vm->session.cmds[i].state == CS_SENT;
	if (has_more)
		vm_lane_unpark(vm);
	else
		bytes_finish_secret(&vm->early); /* KILL of what has ended */
}

/* NULL = as api/vmm_ctl.h has it. */
static const char *piece_check(const struct vm *vm, const struct lane_said *s)
{
	const struct lane *a = &vm->lane;

	if (s->at.lane != a->idx)
		return "it is of another lane";
	if (s->at.total != a->total || a->total > LANE_ANSWER_BYTES_MAX)
		return "its length is wrong";
	if (s->at.offset != a->at || !s->len != !a->total ||
	    s->len > a->total - a->at)
		return "a piece is out of its place";
	return NULL;
}

bool vm_lane_piece(struct vm *vm, const struct lane_said *said)
{
	const char *wrong = piece_check(vm, said);
	struct lane *a = &vm->lane;
	int rc;

	if (wrong) {
		vm_end(vm, END_VM_LOST, "hutch-vmm sent a wrong answer: %s",
		       wrong);
		return false;
	}
	a->at += (uint32_t)said->len;
	rc = session_feed(&vm->session, said->data, said->len);
	if (rc == -ENOMEM)
		vm_end(vm, END_VM_LOST, "the host is out of memory");
	else if (rc)
		vm_end(vm, END_GUEST_PROTOCOL, "%s", vm->session.why);
	return vm->state != VM_ENDING && a->at == a->total;
}

static void answer(struct vm *vm, const struct lane_said *said)
{
	struct lane *a = &vm->lane;
	struct session_cmd *c;

	if (vm->state != VM_LANE_ANSWERING) {
		vm->state = VM_LANE_ANSWERING;
		vm->session.state = a->is_bind ? SES_BINDING : SES_BOUND;
		a->adopt_at_ms = 0;
		a->at = 0;
		a->total = said->at.total;
	}
	if (!vm_lane_piece(vm, said))
		return;
	c = session_cmd_find(&vm->session, a->cmd);
	if ((c && c->state != CS_ENDED) || session_is_mid_frame(&vm->session))
		vm_end(vm, END_GUEST_PROTOCOL,
		       "guest broke the protocol: the answer in its lane has "
		       "no end");
	else
		answered(vm);
}

/* ---- what may come when ----------------------------------------------- */

static const struct {
	enum vm_state state;
	enum lane_event ev;
	void (*fn)(struct vm *vm, const struct lane_said *said);
} rules[] = {
	{VM_BELL, LEV_READY, vm_bell_run},
	{VM_RESTORING, LEV_READY, ready_restoring},
	{VM_BINDING, LEV_RUN_TAKEN, vm_bell_taken},
	{VM_BINDING, LEV_RUN_REFUSED, vm_bell_refused},
	{VM_BINDING, LEV_ANSWER, vm_bell_answer},
	{VM_ARMED, LEV_READY, ready},
	{VM_RUNNING, LEV_READY, ready_late},
	{VM_LANE_SENDING, LEV_READY, part_wanted},
	{VM_LANE_SENDING, LEV_RUN_TAKEN, vm_give_part_taken},
	{VM_LANE_SENDING, LEV_RUN_REFUSED, vm_give_run_refused},
	{VM_LANE_GIVEN, LEV_RUN_REFUSED, vm_give_run_refused},
	{VM_LANE_GIVEN, LEV_RUN_TAKEN, vm_give_run_taken},
	{VM_LANE_OPEN, LEV_ANSWER, answer},
	{VM_LANE_ADOPTING, LEV_ANSWER, answer},
	{VM_LANE_FINISHING, LEV_ANSWER, answer},
	{VM_LANE_ANSWERING, LEV_ANSWER, answer},
	{VM_LANE_ADOPTING, LEV_ADOPTED, adopted},
	{VM_LANE_ADOPTING, LEV_ADOPT_LATE, adopt_late},
	{VM_LANE_ANSWERING, LEV_ADOPT_LATE, adopt_late},
	{VM_RUNNING, LEV_ADOPT_LATE, adopt_late},
	{VM_LANE_ADOPTING, LEV_ADOPT_FAILED, adopt_failed},
	{VM_LANE_ANSWERING, LEV_ADOPT_FAILED, adopt_failed},
	{VM_RUNNING, LEV_ADOPT_FAILED, adopt_failed},
};

static void said(struct vm *vm, enum lane_event ev, const struct lane_said *s)
{
	if (vm->state == VM_ENDING)
		return;
	for (size_t i = 0; i < N_OF(rules); i++) {
		if (rules[i].state != vm->state || rules[i].ev != ev)
			continue;
		rules[i].fn(vm, s);
		return;
	}
	out_of_turn(vm, ev);
}

void vm_lane_said(void *ctx, enum vmm_type type, const struct vmm_lane *l,
		  const uint8_t *data, size_t len)
{
	struct lane_said s = {.at = *l, .data = data, .len = len};

	said(ctx, type == VMM_LANE_READY ? LEV_READY : LEV_ANSWER, &s);
}

void vm_lane_replied(struct vm *vm, enum vmm_type type, int status)
{
	struct lane_said s = {.status = status};

	if (type == VMM_LANE_RUN)
		said(vm, status ? LEV_RUN_REFUSED : LEV_RUN_TAKEN, &s);
	else if (type == VMM_LANE_ADOPT)
		said(vm,
		     !status		   ? LEV_ADOPTED
		     : status == -EALREADY ? LEV_ADOPT_LATE
					   : LEV_ADOPT_FAILED,
		     &s);
}
