/* The engine's life and its counters; see engine.h. */
#include "../clock.h"
#include "engine_priv.h"
#include "fd.h"
#include "log.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void engine_op_begin(struct engine *e)
{
	e->n_pending++;
}

static void engine_free(struct engine *e)
{
	blobs_close(e->blobs);
	free(e->state_dir);
	free(e);
}

void engine_op_end(struct engine *e)
{
	if (!--e->n_pending && e->is_ending)
		engine_free(e);
}

/* ---- life -------------------------------------------------------------- */

static void boot_id_read(char ret[40])
{
	_cleanup_fd_ int fd =
		open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, ret, 36) : -1;

	ret[n > 0 ? n : 0] = 0;
}

static int configure(struct engine *e, const struct engine_config *cfg,
		     struct err *err)
{
	uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) *
		       (uint64_t)sysconf(_SC_PAGESIZE);

	if (!node_is_valid(cfg->node))
		return err_set(err, ERR_INTERNAL, "node",
			       "node is \"%.40s\"; it must be %d characters "
			       "of 0-9 and a-z.",
			       cfg->node ? cfg->node : "", NODE_BYTES);
	snprintf(e->node, sizeof(e->node), "%.4s", cfg->node);
	e->graph_places = cfg->graph_places;
	e->environment_places = cfg->environment_places;
	e->ram_budget_bytes =
		cfg->ram_budget_bytes ? cfg->ram_budget_bytes : ram / 4 * 3;
	if (e->ram_budget_bytes > ram)
		log_warn("ram_budget_mib = %llu is more than the %llu MiB of "
			 "this host: VMs that use it all are killed; 0 takes "
			 "three quarters of the host",
			 (unsigned long long)e->ram_budget_bytes >> 20,
			 (unsigned long long)ram >> 20);
	e->disk_reserve_bytes = cfg->disk_reserve_bytes;
	e->snapshots_max_bytes = cfg->snapshots_max_bytes;
	e->stopped_max_bytes = cfg->stopped_max_bytes;
	e->files_max_bytes = cfg->files_max_bytes;
	e->file_max_bytes = cfg->file_max_bytes;
	e->state_dir = strdup(cfg->state_dir);
	return e->state_dir ? 0 : err_set(err, ERR_INTERNAL, NULL, "no memory");
}

int engine_create(struct engine **ret, struct loop *loop, struct store *store,
		  struct link *link, const struct engine_config *cfg,
		  struct err *err)
{
	struct engine *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return err_set(err, ERR_INTERNAL, NULL, "no memory");
	e->loop = loop;
	e->store = store;
	e->link = link;
	list_init(&e->boxes);
	list_init(&e->waiters);
	list_init(&e->snaps);
	list_init(&e->intakes);
	list_init(&e->moves);
	snaps_expiry_init(e);
	pool_begin(&e->pool);
	boot_id_read(e->boot_id);
	if (configure(e, cfg, err) || graph_files_load(e, err) ||
	    pool_open(e, cfg, err)) {
		pool_close(e);
		engine_free(e);
		return -1;
	}
	rc = boxes_load(e);
	if (!rc)
		rc = snaps_load(e);
	if (!rc)
		snaps_expire(e);
	if (rc) {
		engine_destroy(e);
		return err_set(err, ERR_INTERNAL, NULL,
			       "cannot read stopped sandboxes and snapshots: "
			       "%s",
			       strerror(-rc));
	}
	*ret = e;
	return 0;
}

/* What runs is lost; a VM that was only being taken away takes nothing along:
 * its sandbox is destroyed, for the reason it has, if any. */
static void settle(struct box *b)
{
	bool is_over = b->rec.status == SBX_DESTROYING;

	/* Its files wait for the next daemon. */
	if (b->rec.status == SBX_STOPPED)
		return;
	if (b->is_kept) { /* they are all there */
		box_is_stopped(b);
		return;
	}
	if (b->is_resuming && !b->has_vm) {
		box_cannot_resume(b, "the daemon is stopping");
		return;
	}

	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		const struct cmd *c = container_of(n, struct cmd, node);

		is_over &= !c->is_durable ||
			   command_status_is_final(c->rec.status);
	}
	if (!is_over) {
		box_end(b, END_DAEMON_RESTART, "hutchd was stopped", true);
		return;
	}
	sandbox_set(&b->rec, SBX_EV_GONE, END_NONE, NULL, clock_wall_ms());
	box_write_stale(b);
}

void engine_destroy(struct engine *e)
{
	struct list *n, *tmp;
	struct err err;

	if (!e)
		return;
	e->is_ending = true;
	engine_op_begin(e);
	pool_close(e);
	snaps_end(e);
	moves_end(e);
	snap_verify_end(e);
	loop_timer_stop(e->loop, &e->snap_expiry);
	err_set(&err, ERR_UNAVAILABLE, NULL, NULL);
	list_for_each_safe(n, tmp, &e->boxes)
		box_files_refuse(container_of(n, struct box, node), &err);
	list_for_each_safe(n, tmp, &e->boxes)
	{
		struct box *b = container_of(n, struct box, node);

		/* Not durable: the store's answer finds is_ending. */
		if (b->is_durable && !sandbox_status_is_final(b->rec.status))
			settle(b);
		b->vm = NULL; /* link_destroy's from here on */
		b->has_vm = false;
		loop_timer_stop(e->loop, &b->expiry);
		loop_timer_stop(e->loop, &b->retry);
		loop_timer_stop(e->loop, &b->note);
		loop_timer_stop(e->loop, &b->idle);
	}
	waiters_refuse_all(e, &err);
	list_for_each_safe(n, tmp, &e->boxes)
		box_maybe_free(container_of(n, struct box, node));
	engine_op_end(e);
}

/* ---- numbers
 * -----------------------------------------------------------------------------
 */

static uint32_t n_live(const struct box *b)
{
	uint32_t n_cmds = 0;

	for (struct list *n = b->cmds.next; n != &b->cmds; n = n->next) {
		const struct cmd *c = container_of(n, struct cmd, node);

		n_cmds += c->is_durable &&
			  !command_status_is_final(c->rec.status);
	}
	return n_cmds;
}

void engine_stats(const struct engine *e, struct engine_stats *ret)
{
	*ret = (struct engine_stats){
		.runs_started = e->n_started,
		.runs_ended = e->n_ended,
		.runs_lost = e->n_lost,
		.vms_started = e->n_vms,
		.ram_budget_bytes = e->ram_budget_bytes,
		.pool_max = e->pool.max,
		.pool_hits = e->pool.n_hits,
		.pool_misses = e->pool.n_misses,
		.pool_refills = e->pool.n_refills,
		.pool_failures = e->pool.n_failures,
		.pool_evictions = e->pool.n_evictions,
		.is_memory_short = e->pool.is_short,
		.snapshots_taken = e->snap_stats.n_taken,
		.snapshots_failed = e->snap_stats.n_failed,
		.snapshots_expired = e->snap_stats.n_expired,
		.snapshots_us = e->snap_stats.us,
		.snapshots_paused_us = e->snap_stats.paused_us,
		.files = blobs_count(e->blobs),
		.files_bytes = blobs_bytes(e->blobs),
	};
	pool_held(e, &ret->pool_ram_bytes, &ret->pool_disk_bytes);
	for (struct list *n = e->pool.classes.next; n != &e->pool.classes;
	     n = n->next) {
		const struct pool_class *c =
			container_of(n, struct pool_class, node);

		ret->pool_ready += c->n_ready;
		ret->pool_starting += c->n_starting;
		ret->pool_lanes += pool_lanes(&e->pool, c);
	}
	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		const struct box *b = container_of(n, struct box, node);

		ret->commands_live += n_live(b);
		if (!b->holds_place)
			continue;
		ret->sandboxes_live++;
		ret->ram_committed_bytes += b->ram_bytes;
		ret->disk_committed_bytes += b->disk_bytes;
	}
}

void engine_live_each(struct engine *e, engine_live_fn fn, void *ctx)
{
	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		const struct box *b = container_of(n, struct box, node);
		const struct cmd *c =
			list_is_empty(&b->cmds)
				? NULL
				: container_of(b->cmds.prev, struct cmd, node);

		if (b->is_durable && b->holds_place)
			fn(ctx, &b->told, c && c->is_durable ? &c->told : NULL,
			   b->vm ? vm_pid(b->vm) : 0);
	}
}
