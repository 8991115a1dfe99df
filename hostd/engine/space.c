/*
 * May the files of snapshots and of stopped sandboxes take so much more?
 *
 * Asked before anything is touched, for the most that it may be: what lies
 * there already by what it takes, what is being written by what was promised.
 * Disk that is promised to sandboxes that run is theirs (admit.c).
 */
#include "../link/space.h"
#include "engine_priv.h"
#include <errno.h>
#include <sys/statvfs.h>

#define MIB(bytes) ((unsigned long long)((bytes) + (1u << 20) - 1) >> 20)

/* Snapshots that are being taken, without `but`. */
static uint64_t promised_bytes(const struct engine *e, const struct snap *but)
{
	uint64_t sum = 0;

	for (struct list *n = e->snaps.next; n != &e->snaps; n = n->next) {
		const struct snap *s = container_of(n, struct snap, node);

		if (s != but && s->step == SNAP_TAKING)
			sum += s->bytes;
	}
	return sum;
}

static uint64_t disks_bytes(const struct engine *e)
{
	uint64_t sum = 0;

	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		const struct box *b = container_of(n, struct box, node);

		sum += b->holds_place ? b->disk_bytes : 0;
	}
	return sum;
}

static int disk_check(const struct engine *e, uint64_t more, uint64_t promised,
		      const char *what, struct err *err)
{
	struct statvfs v;
	uint64_t room;

	if (statvfs(e->state_dir, &v))
		return err_set(err, ERR_INTERNAL, NULL,
			       "cannot look at the free space of %s: %s",
			       e->state_dir, strerror(errno));
	room = (uint64_t)v.f_bavail * v.f_frsize;
	room = room > e->disk_reserve_bytes ? room - e->disk_reserve_bytes : 0;
	promised += disks_bytes(e) + intakes_left(e);
	if (more <= room && promised <= room - more)
		return 0;
	err_set(err, ERR_CAPACITY, NULL,
		"The host has no disk for %s now: %llu MiB are free beyond the "
		"reserve (disk_reserve_mib) of %llu MiB, %llu MiB are "
		"promised, "
		"it may need %llu MiB.",
		what, MIB(room), MIB(e->disk_reserve_bytes), MIB(promised),
		MIB(more));
	err->retry_after_s = ENGINE_RETRY_DISK_S;
	return -1;
}

static int limit_check(uint64_t max, uint64_t has, uint64_t more,
		       const char *what, const char *setting, struct err *err)
{
	if (!max || (more <= max && has <= max - more))
		return 0;
	err_set(err, ERR_LIMIT_REACHED, NULL,
		"There is no room for %s: it may need %llu MiB, all of its "
		"kind take %llu MiB, their limit (%s) is %llu MiB; delete some "
		"first.",
		what, MIB(more), MIB(has), setting, MIB(max));
	err->retry_after_s = ENGINE_RETRY_DISK_S;
	return -1;
}

int space_for_snapshot(const struct snap *s, struct err *err)
{
	const struct engine *e = s->e;
	uint64_t promised = promised_bytes(e, s);
	uint64_t has = space_of(e->link, SPACE_SNAPSHOTS).bytes + promised;

	if (limit_check(e->snapshots_max_bytes, has, s->bytes, "a snapshot",
			"snapshots_max_mib", err))
		return -1;
	return disk_check(e, s->bytes, promised, "a snapshot", err);
}

/* Its disk is there already, and is promised. */
int space_for_stop(const struct box *b, struct err *err)
{
	const struct engine *e = b->e;
	struct vm_space vm;
	uint64_t has;

	if (!b->vm)
		return 0;
	vm = vm_space_of(b->vm);
	has = space_of(e->link, SPACE_STOPPED).bytes;

	if (limit_check(e->stopped_max_bytes, has,
			vm.mem_bytes + vm.disk_bytes + vm.named_disk_bytes,
			"a stopped sandbox", "stopped_max_mib", err))
		return -1;
	return disk_check(e, vm.mem_bytes, promised_bytes(e, NULL),
			  "a stopped sandbox", err);
}

int space_for_file(const struct engine *e, uint64_t more, struct err *err)
{
	uint64_t has = blobs_bytes(e->blobs);

	for (struct list *n = e->intakes.next; n != &e->intakes; n = n->next)
		has += container_of(n, struct intake, node)->promised_bytes;
	if (limit_check(e->files_max_bytes, has, more, "a File",
			"files_max_mib", err))
		return -1;
	return disk_check(e, more, promised_bytes(e, NULL), "a File", err);
}
