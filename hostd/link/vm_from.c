/*
 * A VM that begins from a snapshot of a sandbox; see snapshot.h.
 *
 * Its files are opened at once, so that the snapshot may be removed from then
 * on.  A worker looks whether they are what was taken (snapshot_check.c) and
 * copies the disk; then the VM starts as one that was stopped
 * (vm_stop.c), but its memory may be mapped by many.
 */
#include "../image/disk.h"
#include "../image/filehash.h"
#include "../image/sparse.h"
#include "fault.h"
#include "fd.h"
#include "snapshot_priv.h"
#include "vm_priv.h"
#include "work.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct vm_from {
	struct job job;
	struct vm *vm; /* NULL: it ended */
	struct snapshot_from what;
	int file[SNAP_FILES]; /* owned; the disk is what is copied */
	int disk;	      /* owned; its own */
	bool is_with_worker;
	struct err e; /* code set: of the worker */
};

static void from_free(struct vm_from *f)
{
	for (int i = 0; i < SNAP_FILES; i++)
		fd_close(&f->file[i]);
	fd_close(&f->disk);
	free(f);
}

void vm_from_forget(struct vm *vm)
{
	struct vm_from *f = vm->from;

	vm->from = NULL;
	if (!f)
		return;
	f->vm = NULL;
	if (!f->is_with_worker)
		from_free(f);
}

int vm_from_take(struct vm *vm, int *ret_state, int *ret_mem, int *ret_disk,
		 struct err *e)
{
	struct vm_from *f = vm->from;
	uint8_t init[HASH_BYTES];
	int rc = file_hash(&vm->link->hashes, FILE_HASH_PLAIN, vm->t->init_fd,
			   false, init);

	if (rc)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot hash the image with init: %s",
			       strerror(-rc));
	if (memcmp(init, f->what.sums.init, HASH_BYTES))
		return err_set(e, ERR_UNAVAILABLE, NULL,
			       "the snapshot %s was taken with another image "
			       "of hutch-init",
			       f->what.id);
	*ret_state = fd_take(&f->file[SNAP_STATE]);
	*ret_mem = fd_take(&f->file[SNAP_MEM]);
	*ret_disk = fd_take(&f->disk);
	vm_from_forget(vm);
	return 0;
}

static void copy_run(struct job *j)
{
	struct vm_from *f = container_of(j, struct vm_from, job);
	int rc;

	if (snapshot_check(j->link, &f->what, f->file, false, &f->e))
		return;
	rc = disk_copy(f->file[SNAP_DISK], j->link->state_fd, &f->disk, NULL);
	if (rc)
		err_set(&f->e, rc == -ENOSPC ? ERR_CAPACITY : ERR_INTERNAL,
			NULL, "copying the snapshot's disk into %s: %s",
			j->link->state_dir, strerror(-rc));
	fault_point(FAULT_FROM_COPIED);
}

static void copy_done(struct job *j)
{
	struct vm_from *f = container_of(j, struct vm_from, job);
	struct vm *vm = f->vm;

	f->is_with_worker = false;
	if (!vm) {
		from_free(f);
		return;
	}
	if (!j->link || vm->state == VM_ENDING)
		return; /* vm_free is on the way */
	if (f->e.code)
		vm_end(vm, END_NOT_STARTED, "%s", f->e.text);
	else
		vm_await_template(vm);
}

int vm_create_from(struct vm **ret, struct link *link,
		   const struct vm_spec *spec, const struct snapshot_from *from,
		   const struct vm_ops *ops, void *ctx, struct err *e)
{
	struct vm_from *f = calloc(1, sizeof(*f));
	struct vm *vm;

	if (!f)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	f->what = *from;
	f->file[0] = f->file[1] = f->file[2] = f->disk = -1;
	vm = snapshot_open(link, from->id, f->file, e)
		     ? NULL
		     : vm_new_live(link, spec, ops, ctx, e);
	if (!vm) {
		from_free(f);
		return -1;
	}
	vm->from = f;
	f->vm = vm;
	fault_point(FAULT_FROM_OPENED);
	if (job_start(link, &f->job, copy_run, copy_done)) {
		vm_free(vm);
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	}
	f->is_with_worker = true;
	*ret = vm;
	return 0;
}
