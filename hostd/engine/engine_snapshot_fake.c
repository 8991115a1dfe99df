/* The double of link/snapshot.h and link/space.h; see engine_test_util.h. */
#include "engine_test_util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static int snapshot_begin(const char *of, const char *id, snapshot_fn fn,
			  void *ctx)
{
	if (fake.snapshot_rc)
		return fake.snapshot_rc;
	assert_null(fake.snapshot_fn);
	snprintf(fake.snapshot, sizeof(fake.snapshot), "%s", id);
	snprintf(fake.snapshot_of, sizeof(fake.snapshot_of), "%s", of);
	fake.snapshot_fn = fn;
	fake.snapshot_ctx = ctx;
	return 0;
}

int vm_snapshot(struct vm *vm, const char *id, snapshot_fn fn, void *ctx)
{
	assert_false(vm->is_destroyed);
	vm->n_snapshots++;
	return snapshot_begin("vm", id, fn, ctx);
}

int stopped_snapshot(struct link *l, const char *sandbox, const char *id,
		     snapshot_fn fn, void *ctx)
{
	(void)l;
	return snapshot_begin(sandbox, id, fn, ctx);
}

void fake_snapshot(int rc, const char *error)
{
	const struct snapshot_result r = {.state_bytes = 4096,
					  .mem_bytes = 1 << 20,
					  .disk_bytes = 2 << 20,
					  .paused_us = 7000,
					  .sums = {.state = {1}, .init = {2}}};
	snapshot_fn fn = fake.snapshot_fn;

	assert_non_null(fn);
	fake.snapshot_fn = NULL;
	fn(fake.snapshot_ctx, rc, error, rc ? NULL : &r);
}

int snapshot_verify(struct link *l, const struct snapshot_from *from,
		    snapshot_verify_fn fn, void *ctx, struct err *e)
{
	(void)l;
	assert_null(fake.verify_fn);
	if (fake.create_error)
		return err_set(e, ERR_UNAVAILABLE, "snapshot", "%s",
			       fake.create_error);
	assert_int_equal(from->sums.state[0], 1);
	fake.verify_fn = fn;
	fake.verify_ctx = ctx;
	return 0;
}

void fake_verified(const struct err *e)
{
	snapshot_verify_fn fn = fake.verify_fn;

	assert_non_null(fn);
	fake.verify_fn = NULL;
	fn(fake.verify_ctx, e);
}

struct vm_space vm_space_of(const struct vm *vm)
{
	(void)vm;
	return fake.vm_space;
}

uint64_t stopped_bytes(const struct link *l, const char *sandbox)
{
	(void)l;
	(void)sandbox;
	return fake.stopped_bytes;
}

int vm_create_from(struct vm **ret, struct link *link,
		   const struct vm_spec *spec, const struct snapshot_from *from,
		   const struct vm_ops *ops, void *ctx, struct err *e)
{
	int rc = vm_create(ret, link, spec, ops, ctx, e);

	if (!rc) {
		(*ret)->is_from = true;
		(*ret)->from = *from;
	}
	return rc;
}

void snapshots_each(struct link *l, void (*fn)(void *ctx, const char *name),
		    void *ctx)
{
	(void)l;
	for (size_t i = 0; i < 4 && fake.folders[i]; i++)
		fn(ctx, fake.folders[i]);
}

void snapshot_remove(struct link *l, const char *name)
{
	size_t len = strlen(fake.snapshots_removed);

	(void)l;
	assert_false(fake.is_link_gone);
	snprintf(fake.snapshots_removed + len,
		 sizeof(fake.snapshots_removed) - len, "%s ", name);
}

struct space_use space_of(const struct link *l, enum space_kind k)
{
	(void)l;
	return (struct space_use){.bytes = fake.used_bytes[k]};
}
