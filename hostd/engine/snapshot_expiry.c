/*
 * Snapshots that expire: the record first, then the files, as when one is
 * deleted.  Sandboxes that began from it go on.
 *
 * The store tells one at a time, and when the next is due; the wall clock may
 * be moved meanwhile, so it is asked again every ENGINE_EXPIRY_LOOK_MS at the
 * latest.
 */
#include "../clock.h"
#include "engine_priv.h"
#include "log.h"

#define ENGINE_EXPIRY_LOOK_MS 3600000

static void arm(struct engine *e, int64_t next_ms)
{
	int64_t left = next_ms - clock_wall_ms();

	if (left < 1)
		left = 1;
	if (left > ENGINE_EXPIRY_LOOK_MS)
		left = ENGINE_EXPIRY_LOOK_MS;
	loop_timer_set(e->loop, &e->snap_expiry, left);
}

static void on_expired(void *ctx, int rc, const char *id, int64_t next_ms)
{
	struct engine *e = ctx;

	if (rc)
		log_error("expired snapshots cannot be removed: %s",
			  strerror(-rc));
	if (id && !e->is_ending) {
		log_info("%s snapshot=expired", id);
		e->snap_stats.n_expired++;
		snapshot_remove(e->link, id);
	}
	/* At once, if that was this one. */
	if (!e->is_ending && (rc || next_ms))
		arm(e, rc ? INT64_MAX : next_ms);
	engine_op_end(e);
}

void snaps_expire(struct engine *e)
{
	if (store_snapshot_expire(e->store, clock_wall_ms(), on_expired, e))
		arm(e, INT64_MAX);
	else
		engine_op_begin(e);
}

static void on_expiry(struct loop_timer *t)
{
	snaps_expire(container_of(t, struct engine, snap_expiry));
}

void snaps_expiry_init(struct engine *e)
{
	e->snap_expiry.fn = on_expiry;
}
