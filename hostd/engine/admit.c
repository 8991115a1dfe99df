/*
 * Admission: may one more sandbox hold a place, memory and disk?
 *
 * Memory and disk are counted by what is committed, not by what is used: a
 * guest may touch all of its RAM at any time, and free space on the disk is
 * promised to those who run already.  A run holds what it took from here until
 * its VM is gone.
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

static int disk_check(const struct engine *e, uint64_t held, uint64_t more,
		      struct err *err)
{
	uint64_t free_bytes, need;
	struct statvfs v;

	if (statvfs(e->state_dir, &v))
		return err_set(err, ERR_INTERNAL, NULL,
			       "cannot look at the free space of %s: %s",
			       e->state_dir, strerror(errno));
	free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
	if (__builtin_add_overflow(held, more, &need) ||
	    __builtin_add_overflow(need, e->disk_reserve_bytes, &need) ||
	    need > free_bytes) {
		err_set(err, ERR_CAPACITY, NULL,
			"The host has no disk for this sandbox now: %llu MiB "
			"are free, %llu MiB are promised or kept, the sandbox "
			"needs %llu MiB.",
			(unsigned long long)free_bytes >> 20,
			(unsigned long long)(held + e->disk_reserve_bytes) >>
				20,
			(unsigned long long)more >> 20);
		return refuse(err, ERR_CAPACITY, ENGINE_RETRY_DISK_S);
	}
	return 0;
}

int admit(struct engine *e, struct run *r, struct err *err)
{
	struct held h = count(e, &r->sbx);

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
	if (r->ram_bytes > e->ram_budget_bytes ||
	    h.ram_bytes > e->ram_budget_bytes - r->ram_bytes) {
		err_set(err, ERR_CAPACITY, NULL,
			"The host has no memory for this sandbox now: %llu of "
			"%llu MiB are promised, the sandbox needs %llu MiB.",
			(unsigned long long)h.ram_bytes >> 20,
			(unsigned long long)e->ram_budget_bytes >> 20,
			(unsigned long long)r->ram_bytes >> 20);
		return refuse(err, ERR_CAPACITY, ENGINE_RETRY_ROOM_S);
	}
	if (disk_check(e, h.disk_bytes, r->disk_bytes, err))
		return -1;
	r->holds_place = true;
	return 0;
}
