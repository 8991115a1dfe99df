/*
 * Calls on files: the host's half of guest/files.c; see vm.h.
 *
 * The call's frame takes the way of a command's (vm_command.c): a VM that is
 * parked after a run by its lane is woken up, a run that goes by it is adopted
 * first.  A write goes in pieces, each when the guest has asked for it, so that
 * it never stands in the way of a KILL.
 *
 * A guest that does not end a call is not trusted any more, as with a command
 * that it does not end.
 */
#include "../clock.h"
#include "gp_down.h"
#include "vm_priv.h"
#include <errno.h>

static size_t piece_of(size_t left)
{
	return left < GP_FILE_PIECE_BYTES_MAX ? left : GP_FILE_PIECE_BYTES_MAX;
}

int vm_file(struct vm *vm, uint64_t number, const struct vm_file *f)
{
	size_t first = piece_of(f->data_len);
	struct bytes *out;
	int rc;

	if (vm->state == VM_ENDING)
		return -ESHUTDOWN;
	if (vm->session.file.number)
		return -EBUSY;
	out = vm_queue(vm);
	rc = out ? gp_down_file(out, number, f, first) : -ENOBUFS;
	if (!rc)
		rc = session_file_begin(&vm->session, number, f, first);
	if (rc)
		return rc;
	vm->file.data = f->data;
	vm->file.sent = first;
	vm->session.file.deadline_ms =
		clock_mono_ms() + f->timeout_ms + vm->link->times.overrun_ms;
	vm_timer_arm(vm);
	vm_queue_sent(vm);
	return 0;
}

void vm_file_give_up(struct vm *vm)
{
	vm->file.data = NULL;
}

/* It was asked for once, and is bounded: the queue takes it also when it is
 * long. */
void vm_file_more(void *ctx, uint64_t number, size_t max)
{
	struct vm *vm = ctx;
	struct bytes *out =
		vm->state == VM_RUNNING ? &vm->channel.out : &vm->early;
	const uint8_t *data = vm->file.data;

	if (gp_down_file_piece(out, number, data ? data + vm->file.sent : NULL,
			       data ? max : 0)) {
		vm_end(vm, END_VM_LOST, "the host is out of memory");
		return;
	}
	vm->file.sent += max;
	vm_queue_sent(vm);
}
