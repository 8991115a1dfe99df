/*
 * Calls on files: the host's half of guest/files.c; see vm.h.
 *
 * The call's frame takes the way of a command's (vm_command.c): a VM that is
 * parked after a run by its lane is woken up, a run that goes by it is adopted
 * first.  A write goes in pieces, each when the guest has asked for it, so that
 * it never stands in the way of a KILL; they are there from the start, or come
 * when they are asked for, from a disk.
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
	vm->file.is_piecewise = f->more != 0;
	vm->file.is_given_up = false;
	vm->file.awaited = 0;
	vm->session.file.deadline_ms =
		clock_mono_ms() + f->timeout_ms + vm->link->times.overrun_ms;
	vm_timer_arm(vm);
	vm_queue_sent(vm);
	return 0;
}

/* It was asked for once, and is bounded: the queue takes it also when it is
 * long. */
static void piece_put(struct vm *vm, uint64_t number, const void *data,
		      size_t len)
{
	struct bytes *out =
		vm->state == VM_RUNNING ? &vm->channel.out : &vm->early;

	vm->file.awaited = 0;
	if (gp_down_file_piece(out, number, data, len)) {
		vm_end(vm, END_VM_LOST, "the host is out of memory");
		return;
	}
	vm->file.sent += len;
	vm_queue_sent(vm);
}

void vm_file_give_up(struct vm *vm)
{
	vm->file.data = NULL;
	vm->file.is_given_up = true;
	if (vm->file.awaited && vm->state != VM_ENDING)
		piece_put(vm, vm->session.file.number, NULL, 0);
}

int vm_file_piece(struct vm *vm, uint64_t number, const void *data, size_t len)
{
	if (vm->state == VM_ENDING)
		return -ESHUTDOWN;
	if (!len || len != vm->file.awaited ||
	    number != vm->session.file.number)
		return -EINVAL;
	piece_put(vm, number, data, len);
	return 0;
}

void vm_file_more(void *ctx, uint64_t number, size_t max)
{
	struct vm *vm = ctx;

	if (vm->file.is_given_up) {
		piece_put(vm, number, NULL, 0);
	} else if (vm->file.is_piecewise) {
		vm->file.awaited = max;
		vm->ops->file_more(vm->ctx, number, max);
	} else {
		piece_put(vm, number, vm->file.data + vm->file.sent, max);
	}
}
