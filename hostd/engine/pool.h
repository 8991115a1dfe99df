/*
 * The pool: VMs that are restored ahead and wait, paused, for a run.
 *
 * A class is a template and the limits of a sandbox; only a run with just
 * these is given a VM of it, so that a claimed VM is in nothing different from
 * a restored one.  A VM is bound, when it begins to wait, to the name of a
 * sandbox that does not exist yet: the run that gets it takes that name before
 * its record is written.  pool.c owns the VMs, pool_target.c says how many.
 *
 * Admission counts a waiting VM's memory and disk (pool_held), but a request
 * that needs them gets them: pool_evict ends one at once.  A run reserves a VM
 * when it is admitted, so that the two are counted once, and claims it when
 * its record is durable.  Everything here may fail silently: a run without a
 * pooled VM restores one.
 */
#ifndef HUTCHD_POOL_H
#define HUTCHD_POOL_H

#include "../link/template.h"
#include "../link/vm.h"
#include "../loop.h"
#include "engine.h"
#include "list.h"

/* Classes remembered; the one longest without a run is forgotten. */
#define POOL_CLASSES_MAX 32
/* From an event to the refill: a short run that just began ends first. */
#define POOL_REFILL_DELAY_MS 200
#define POOL_TICK_MS	     1000
/* No VM waits longer: clocks drift, seeds age. */
#define POOL_AGE_S_MAX 1800
/* A class whose VM could not be restored rests: doubled up to the maximum. */
#define POOL_REST_MS_MIN 500
#define POOL_REST_MS_MAX 60000

struct box;

struct pool_class {
	struct list node; /* in pool.classes */
	char base[TEMPLATE_NAME_BYTES_MAX + 1];
	struct limits limits;
	uint64_t ram_bytes, disk_bytes;
	uint32_t min; /* by the configuration */
	/* Demand: runs of the busiest second, one less after each idle time. */
	uint32_t peak, n_now;
	int64_t second, peak_at_ms, used_ms;
	uint32_t target; /* pool_target.c */
	uint32_t n_ready, n_starting;
	int64_t rest_until_ms, rest_ms;
	uint64_t n_hits, n_misses, n_refills, n_failures;
};

struct pool {
	struct list classes, vms;
	uint32_t max;
	int64_t idle_ms;
	char *proc_dir; /* owned */
	bool is_short;	/* of memory: nothing waits */
	uint64_t mem_total_bytes, mem_available_bytes;
	/* Of all classes, also of those forgotten. */
	uint64_t n_hits, n_misses, n_refills, n_failures, n_evictions;
	struct loop_timer work, tick;
};

void pool_begin(struct pool *p);
int pool_open(struct engine *e, const struct engine_config *cfg,
	      struct err *err);
/* The VMs are link_destroy's from here on. */
void pool_close(struct engine *e);

/* Memory and disk of the VMs that wait and that no run has reserved. */
void pool_held(const struct engine *e, uint64_t *ret_ram_bytes,
	       uint64_t *ret_disk_bytes);
/* End the one that is missed least; false when there is none. */
bool pool_evict(struct engine *e);
/* A waiting VM for this run, if there is one (box.pooled). */
void pool_reserve(struct box *b);
/* Without one: nothing.  The name is free when it is in no record. */
void pool_release(struct box *b, bool is_name_free);
/* The run's VM out of the pool: box.vm; false = it has to restore one. */
bool pool_claim(struct box *b, const struct vm_ops *ops);
/* How many of a class wait with their express lane ready. */
uint32_t pool_lanes(const struct pool *p, const struct pool_class *c);
/* Something changed: refill soon. */
void pool_kick(struct engine *e);

/* ---- pool_target.c ---------------------------------------------------- */

void pool_demand(struct pool *p, struct pool_class *c);
/* Look at the host's memory and set every class's target. */
void pool_targets(struct pool *p);
/* Is there memory for one more of this class, beyond what is promised? */
bool pool_has_memory(const struct pool *p, const struct pool_class *c);

#endif
