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

	for (n = e->boxes.next; n != &e->boxes; n = n->next) {
		const struct box *b = container_of(n, struct box, node);
		bool is_same_env = !strcmp(b->rec.environment, s->environment);

		if (!b->holds_place)
			continue;
		h.environment += is_same_env;
		h.graph += is_same_env && !strcmp(b->rec.graph, s->graph);
		h.ram_bytes += b->ram_bytes;
		h.disk_bytes += b->disk_bytes;
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
		      const struct held *h, const struct box *b,
		      struct err *err)
{
	if (!fits(room->ram, h->ram_bytes, b->ram_bytes)) {
		err_set(err, ERR_CAPACITY, NULL,
			"The host has no memory for this sandbox now: %llu of "
			"%llu MiB are promised, the sandbox needs %llu MiB.",
			(unsigned long long)h->ram_bytes >> 20,
			(unsigned long long)room->ram >> 20,
			(unsigned long long)b->ram_bytes >> 20);
		return refuse(err, ERR_CAPACITY, ENGINE_RETRY_ROOM_S);
	}
	if (!fits(room->disk, h->disk_bytes, b->disk_bytes)) {
		err_set(err, ERR_CAPACITY, NULL,
			"The host has no disk for this sandbox now: %llu MiB "
			"are free beyond the reserve of %llu MiB, %llu MiB are "
			"promised, the sandbox needs %llu MiB.",
			(unsigned long long)room->disk >> 20,
			(unsigned long long)e->disk_reserve_bytes >> 20,
			(unsigned long long)h->disk_bytes >> 20,
			(unsigned long long)b->disk_bytes >> 20);
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

void box_places(struct box *b, const struct caller *who)
{
	b->environment_places = who->environment_places;
	b->graph_places = who->graph_places;
}

static int places_check(const struct engine *e, const struct box *b,
			const struct held *h, struct err *err)
{
	uint32_t graph = b->graph_places ? b->graph_places : e->graph_places;
	uint32_t environment = b->environment_places ? b->environment_places
						     : e->environment_places;

	if (h->graph >= graph) {
		err_set(err, ERR_LIMIT_REACHED, NULL,
			"The graph %s holds %u sandboxes, its limit is %u: "
			"wait until one ends, or delete one.",
			b->rec.graph, h->graph, graph);
		return refuse(err, ERR_LIMIT_REACHED, ENGINE_RETRY_PLACES_S);
	}
	if (h->environment >= environment) {
		err_set(err, ERR_LIMIT_REACHED, NULL,
			"The environment %s holds %u sandboxes, its limit is "
			"%u: wait until one ends, or delete one.",
			b->rec.environment, h->environment, environment);
		return refuse(err, ERR_LIMIT_REACHED, ENGINE_RETRY_PLACES_S);
	}
	return 0;
}

int admit(struct engine *e, struct box *b, struct err *err)
{
	struct held h = count(e, &b->rec);
	struct room room;

	vm_spec_cost(&b->spec, &b->ram_bytes, &b->disk_bytes);
	if (places_check(e, b, &h, err) || room_of(e, &room, err) ||
	    room_check(e, &room, &h, b, err))
		return -1;
	/* It fits.  Those who only wait give way, if they must: their memory
	 * is free long before this one's VM has touched as much. */
	if (!*b->from.id)
		pool_reserve(b);
	while (!pool_fits(e, &room, &h, b->ram_bytes, b->disk_bytes) &&
	       pool_evict(e))
		continue;
	b->holds_place = true;
	return 0;
}

/* ---- commands of a held sandbox ----------------------------------------- */

void err_not_running(struct err *err, const struct sandbox_rec *s)
{
	if (s->kind == SBX_KIND_ONE_CALL)
		err_set(err, ERR_NOT_RUNNING, "sandbox",
			"The sandbox %s is of a one-call run; commands, files, "
			"updates and snapshots are of sandboxes that are held.",
			s->id);
	else
		err_set(err, ERR_NOT_RUNNING, "sandbox",
			"The sandbox %s is %s: %s.", s->id,
			sandbox_status_name(s->status),
			s->status == SBX_STOPPED    ? "resume it first"
			: s->status == SBX_STARTING ? "wait until it runs"
			: s->status == SBX_STOPPING ? "wait until it is stopped"
						    : "make a new one");
	err->status = sandbox_status_name(s->status);
}

int admit_command(const struct cmd *c, struct err *err)
{
	const struct box *b = c->box;
	size_t n = 0, bytes = 0;

	if (b->rec.kind != SBX_KIND_HELD || b->rec.status > SBX_RUNNING) {
		err_not_running(err, &b->rec);
		return -1;
	}
	/* Also those whose first record is on its way. */
	for (struct list *m = b->cmds.next; m != &b->cmds; m = m->next) {
		const struct cmd *o = container_of(m, struct cmd, node);

		if (o == c || !*o->begin.key ||
		    command_status_is_final(o->rec.status))
			continue;
		n++;
		bytes += secrets_bytes(&o->secrets);
	}
	if (n >= ENGINE_COMMANDS_RUNNING_MAX + ENGINE_COMMANDS_WAITING_MAX) {
		err_set(err, ERR_LIMIT_REACHED, NULL,
			"The sandbox %s has %zu commands that have not ended, "
			"its limit: %d run, %d wait; wait until one ends, or "
			"cancel one.",
			b->rec.id, n, ENGINE_COMMANDS_RUNNING_MAX,
			ENGINE_COMMANDS_WAITING_MAX);
		return refuse(err, ERR_LIMIT_REACHED, ENGINE_RETRY_PLACES_S);
	}
	if (bytes &&
	    bytes + secrets_bytes(&c->secrets) > ENGINE_WAITING_BYTES_MAX) {
		err_set(err, ERR_LIMIT_REACHED, NULL,
			"The commands that wait in the sandbox %s have %zu "
			"bytes of code, input and stdin; at most %u may wait.",
			b->rec.id, bytes, ENGINE_WAITING_BYTES_MAX);
		return refuse(err, ERR_LIMIT_REACHED, ENGINE_RETRY_PLACES_S);
	}
	return 0;
}
