/*
 * Admission: may one more sandbox hold a place, memory and disk?
 *
 * Memory and disk are counted by what is committed, not by what is used: a
 * guest may touch all of its RAM at any time, and free space on the disk is
 * promised to those who run already.  A run holds what it took from here until
 * its VM is gone.  VMs of the pool hold theirs only until a run needs it.
 */
#include "engine_priv.h"
#include <errno.h>
#include <sys/statvfs.h>

struct held {
	uint32_t graph, environment;
	uint64_t ram_bytes, disk_bytes;
};

static struct held count(const struct engine *e, const struct sandbox_rec *s)
{
	struct held h = {0};
	struct list *n;

	for (n = e->runs.next; n != &e->runs; n = n->next) {
		const struct run *r = container_of(n, struct run, node);
		bool is_same_env = !strcmp(r->sbx.environment, s->environment);

		if (!r->holds_place)
			continue;
		h.environment += is_same_env;
		h.graph += is_same_env && !strcmp(r->sbx.graph, s->graph);
		h.ram_bytes += r->ram_bytes;
		h.disk_bytes += r->disk_bytes;
	}
	return h;
}

static int refuse(struct err *err, enum err_code code, int retry_after_s)
{
	err->code = code;
	err->retry_after_s = retry_after_s;
	return -1;
}

struct room {
	uint64_t ram, disk; /* bytes that may be committed */
};

static int room_of(const struct engine *e, struct room *ret, struct err *err)
{
	uint64_t free_bytes;
	struct statvfs v;

	if (statvfs(e->state_dir, &v))
		return err_set(err, ERR_INTERNAL, NULL,
			       "cannot look at the free space of %s: %s",
			       e->state_dir, strerror(errno));
	free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	ret->ram = e->ram_budget_bytes;
	ret->disk = free_bytes > e->disk_reserve_bytes
			    ? free_bytes - e->disk_reserve_bytes
			    : 0;
	return 0;
}

static bool fits(uint64_t room, uint64_t held, uint64_t more)
{
	return more <= room && held <= room - more;
}

static int room_check(const struct engine *e, const struct room *room,
		      const struct held *h, const struct run *r,
		      struct err *err)
{
	if (!fits(room->ram, h->ram_bytes, r->ram_bytes)) {
		err_set(err, ERR_CAPACITY, NULL,
			"The host has no memory for this sandbox now: %llu of "
			"%llu MiB are promised, the sandbox needs %llu MiB.",
			(unsigned long long)h->ram_bytes >> 20,
			(unsigned long long)room->ram >> 20,
			(unsigned long long)r->ram_bytes >> 20);
		return refuse(err, ERR_CAPACITY, ENGINE_RETRY_ROOM_S);
	}
	if (!fits(room->disk, h->disk_bytes, r->disk_bytes)) {
		err_set(err, ERR_CAPACITY, NULL,
			"The host has no disk for this sandbox now: %llu MiB "
			"are free beyond the reserve of %llu MiB, %llu MiB are "
			"promised, the sandbox needs %llu MiB.",
			(unsigned long long)room->disk >> 20,
			(unsigned long long)e->disk_reserve_bytes >> 20,
			(unsigned long long)h->disk_bytes >> 20,
			(unsigned long long)r->disk_bytes >> 20);
		return refuse(err, ERR_CAPACITY, ENGINE_RETRY_DISK_S);
	}
	return 0;
}

static bool pool_fits(const struct engine *e, const struct room *room,
		      const struct held *h, uint64_t ram, uint64_t disk)
{
	uint64_t pool_ram, pool_disk;

	pool_held(e, &pool_ram, &pool_disk);
	return fits(room->ram, h->ram_bytes + pool_ram, ram) &&
	       fits(room->disk, h->disk_bytes + pool_disk, disk);
}

bool admit_pooled(const struct engine *e, uint64_t ram_bytes,
		  uint64_t disk_bytes)
{
	static const struct sandbox_rec nobody;
	struct held h = count(e, &nobody);
	struct err err = {0};
	struct room room;

	return !room_of(e, &room, &err) &&
	       pool_fits(e, &room, &h, ram_bytes, disk_bytes);
}

int admit(struct engine *e, struct run *r, struct err *err)
{
	struct held h = count(e, &r->sbx);
	struct room room;

	vm_spec_cost(&r->spec, &r->ram_bytes, &r->disk_bytes);
	if (h.graph >= e->graph_places) {
		err_set(err, ERR_LIMIT_REACHED, NULL,
			"The graph %s holds %u sandboxes, its limit: wait "
			"until one ends, or delete one.",
			r->sbx.graph, h.graph);
		return refuse(err, ERR_LIMIT_REACHED, ENGINE_RETRY_PLACES_S);
	}
	if (h.environment >= e->environment_places) {
		err_set(err, ERR_LIMIT_REACHED, NULL,
			"The environment %s holds %u sandboxes, its limit: "
			"wait until one ends, or delete one.",
			r->sbx.environment, h.environment);
		return refuse(err, ERR_LIMIT_REACHED, ENGINE_RETRY_PLACES_S);
	}
	if (room_of(e, &room, err) || room_check(e, &room, &h, r, err))
		return -1;
	/* It fits.  Those who only wait give way, if they must: their memory
	 * is free long before this one's VM has touched as much. */
	pool_reserve(r);
	while (!pool_fits(e, &room, &h, r->ram_bytes, r->disk_bytes) &&
	       pool_evict(e))
		continue;
	r->holds_place = true;
	return 0;
}
