/* The VMs of the pool; see pool.h. */
#include "pool.h"
#include "../clock.h"
#include "engine_priv.h"
#include "fault.h"
#include "log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pooled {
	struct list node; /* in pool.vms */
	struct engine *e;
	struct pool_class *class;
	struct vm *vm;
	char sandbox[ID_BYTES_MAX]; /* the name it is bound to */
	struct box *box;	    /* has reserved it */
	bool is_ready;		    /* it waits */
	bool is_dropped;	    /* told to end; counts no more */
	int64_t since_us;	    /* its start */
};

/* ---- classes ---------------------------------------------------------- */

static bool is_of(const struct pool_class *c, const char *base,
		  const struct limits *l)
{
	return c->limits.vcpus == l->vcpus &&
	       c->limits.memory_mib == l->memory_mib &&
	       c->limits.disk_mib == l->disk_mib && !strcmp(c->base, base);
}

static bool class_is_empty(const struct pool *p, const struct pool_class *c)
{
	for (struct list *n = p->vms.next; n != &p->vms; n = n->next)
		if (container_of(n, struct pooled, node)->class == c)
			return false;
	return true;
}

/* The last one that nobody needs makes room. */
static void class_forget_one(struct pool *p)
{
	struct list *n;
	unsigned count = 0;

	for (n = p->classes.next; n != &p->classes; n = n->next)
		count++;
	for (n = p->classes.prev; count > POOL_CLASSES_MAX && n != &p->classes;
	     n = n->prev) {
		struct pool_class *c = container_of(n, struct pool_class, node);

		if (c->min || !class_is_empty(p, c))
			continue;
		list_remove(&c->node);
		free(c);
		return;
	}
}

/* By the exact limits: a VM is bound to them.  NULL: an unknown base, no
 * memory. */
static struct pool_class *class_get(struct pool *p, const char *base,
				    const struct limits *limits)
{
	struct vm_spec spec = {.limits = *limits};
	struct pool_class *c;
	struct shape shape;

	if (shape_for(base, limits, &shape, NULL))
		return NULL;
	for (struct list *n = p->classes.next; n != &p->classes; n = n->next) {
		c = container_of(n, struct pool_class, node);
		if (is_of(c, base, &spec.limits))
			return c;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	snprintf(c->base, sizeof(c->base), "%s", base);
	memcpy(spec.base, c->base, sizeof(spec.base));
	c->limits = spec.limits;
	vm_spec_cost(&spec, &c->ram_bytes, &c->disk_bytes);
	list_append(p->classes.next, &c->node); /* first */
	class_forget_one(p);
	return c;
}

/* ---- VMs that leave --------------------------------------------------- */

static void count(struct pooled *v, int by)
{
	uint32_t *n = v->is_ready ? &v->class->n_ready : &v->class->n_starting;

	*n += (uint32_t)by;
}

/* `gone` comes later and frees it. */
static void drop(struct pooled *v, const char *why)
{
	if (v->is_dropped)
		return;
	log_info("pool template=%s vcpus=%u memory_mib=%u dropped pid=%d "
		 "why=\"%s\"",
		 v->class->base, v->class->limits.vcpus,
		 v->class->limits.memory_mib, vm_pid(v->vm), why);
	if (v->box)
		v->box->pooled = NULL;
	v->box = NULL;
	count(v, -1);
	v->is_dropped = true;
	vm_destroy(v->vm);
}

static void pooled_free(struct pooled *v)
{
	list_remove(&v->node);
	free(v);
}

static void rest(struct pool_class *c)
{
	c->rest_ms = c->rest_ms ? c->rest_ms * 2 : POOL_REST_MS_MIN;
	if (c->rest_ms > POOL_REST_MS_MAX)
		c->rest_ms = POOL_REST_MS_MAX;
	c->rest_until_ms = clock_mono_ms() + c->rest_ms;
}

static void on_gone(void *ctx, enum end_reason why, const char *text)
{
	struct pooled *v = ctx;
	struct engine *e = v->e;

	(void)why;
	if (!v->is_dropped) {
		log_warn("pool template=%s a waiting VM was lost: %s",
			 v->class->base, text);
		v->class->n_failures++;
		e->pool.n_failures++;
		rest(v->class);
		count(v, -1);
		if (v->box)
			v->box->pooled = NULL;
	}
	pooled_free(v);
	pool_kick(e);
}

static void on_waiting(void *ctx)
{
	struct pooled *v = ctx;

	count(v, -1);
	v->is_ready = true;
	count(v, 1);
	v->class->rest_ms = 0;
	pool_kick(v->e);
}

static const struct vm_pool_ops vm_ops = {
	.waiting = on_waiting,
	.gone = on_gone,
};

/* ---- refilling -------------------------------------------------------- */

/* A run that is on its way to its VM: its CPU and disk come first. */
static bool is_any_run_starting(const struct engine *e)
{
	for (struct list *n = e->boxes.next; n != &e->boxes; n = n->next) {
		const struct box *b = container_of(n, struct box, node);

		if (b->holds_place && b->rec.status == SBX_STARTING)
			return true;
	}
	return false;
}

static struct pool_class *class_to_fill(struct pool *p)
{
	struct pool_class *best = NULL;
	int64_t now = clock_mono_ms();
	uint32_t most = 0;

	for (struct list *n = p->classes.next; n != &p->classes; n = n->next) {
		struct pool_class *c = container_of(n, struct pool_class, node);
		uint32_t missing =
			c->target > c->n_ready + c->n_starting
				? c->target - c->n_ready - c->n_starting
				: 0;

		if (c->n_starting)
			return NULL; /* one at a time */
		if (missing > most && now >= c->rest_until_ms &&
		    pool_has_memory(p, c)) {
			most = missing;
			best = c;
		}
	}
	return best;
}

static void fill(struct engine *e, struct pool_class *c)
{
	struct vm_spec spec = {.limits = c->limits};
	struct pooled *v = calloc(1, sizeof(*v));
	struct err err = {0};

	if (!v)
		return;
	memcpy(spec.base, c->base, sizeof(spec.base));
	if (id_make(v->sandbox, "sbx_", e->node)) {
		free(v);
		return;
	}
	memcpy(spec.sandbox, v->sandbox, sizeof(spec.sandbox));
	v->e = e;
	v->class = c;
	v->since_us = clock_mono_us();
	list_append(&e->pool.vms, &v->node);
	if (vm_create_pooled(&v->vm, e->link, &spec, &vm_ops, v, &err)) {
		pooled_free(v);
		rest(c);
		if (err.code == ERR_UNAVAILABLE) {
			log_debug("pool template=%s: %s", c->base, err.text);
			return;
		}
		c->n_failures++;
		e->pool.n_failures++;
		log_warn("pool template=%s: %s", c->base, err.text);
		return;
	}
	c->n_refills++;
	e->pool.n_refills++;
	count(v, 1);
}

static void on_work(struct loop_timer *t)
{
	struct engine *e = container_of(t, struct engine, pool.work);
	struct pool_class *c;

	if (is_any_run_starting(e))
		return; /* its next step kicks again */
	c = class_to_fill(&e->pool);
	if (c && admit_pooled(e, c->ram_bytes, c->disk_bytes))
		fill(e, c);
}

void pool_kick(struct engine *e)
{
	if (e->is_ending || !e->pool.max || e->pool.work.heap_idx)
		return;
	loop_timer_set(e->loop, &e->pool.work, POOL_REFILL_DELAY_MS);
}

/* ---- shrinking -------------------------------------------------------- */

static struct pooled *least(struct pool *p, bool only_surplus)
{
	struct pooled *found = NULL;

	for (struct list *n = p->vms.next; n != &p->vms; n = n->next) {
		struct pooled *v = container_of(n, struct pooled, node);
		const struct pool_class *c = v->class;

		if (v->is_dropped || v->box ||
		    (only_surplus && c->n_ready + c->n_starting <= c->target))
			continue;
		if (!found || c->used_ms < found->class->used_ms)
			found = v;
	}
	return found;
}

static void stale_drop(struct pool *p)
{
	int64_t now = clock_mono_us();
	struct list *n, *tmp;

	list_for_each_safe(n, tmp, &p->vms)
	{
		struct pooled *v = container_of(n, struct pooled, node);

		if (!v->is_ready || v->is_dropped || v->box)
			continue;
		if (!vm_is_current(v->vm))
			drop(v, "its snapshot was removed or made anew");
		else if (now - v->since_us > POOL_AGE_S_MAX * 1000000ll)
			drop(v, "it waited long enough");
	}
}

/* Once a second; one VM at a time, so that a short squeeze costs little. */
static void on_tick(struct loop_timer *t)
{
	struct engine *e = container_of(t, struct engine, pool.tick);
	struct pooled *v;

	pool_targets(&e->pool);
	stale_drop(&e->pool);
	v = least(&e->pool, true);
	if (v)
		drop(v,
		     e->pool.is_short ? "the host is short of memory" : "idle");
	pool_kick(e);
	loop_timer_set(e->loop, t, POOL_TICK_MS);
}

/* ---- for admission and runs ------------------------------------------- */

void pool_held(const struct engine *e, uint64_t *ret_ram_bytes,
	       uint64_t *ret_disk_bytes)
{
	*ret_ram_bytes = *ret_disk_bytes = 0;
	for (struct list *n = e->pool.vms.next; n != &e->pool.vms;
	     n = n->next) {
		const struct pooled *v = container_of(n, struct pooled, node);

		if (v->is_dropped || v->box)
			continue;
		*ret_ram_bytes += v->class->ram_bytes;
		*ret_disk_bytes += v->class->disk_bytes;
	}
}

bool pool_evict(struct engine *e)
{
	struct pooled *v = least(&e->pool, false);

	if (!v)
		return false;
	e->pool.n_evictions++;
	drop(v, "a request needs its room");
	return true;
}

static struct pooled *find_ready(struct pool *p, const struct pool_class *c)
{
	for (struct list *n = p->vms.next; n != &p->vms; n = n->next) {
		struct pooled *v = container_of(n, struct pooled, node);

		if (v->class == c && v->is_ready && !v->is_dropped && !v->box)
			return v;
	}
	return NULL;
}

void pool_reserve(struct box *b)
{
	struct pool *p = &b->e->pool;
	struct pool_class *c;

	if (!p->max || b->pooled || b->is_durable)
		return;
	c = class_get(p, b->spec.base, &b->spec.limits);
	b->pooled = c ? find_ready(p, c) : NULL;
	if (!b->pooled)
		return;
	b->pooled->box = b;
	box_rename(b, b->pooled->sandbox);
	fault_point(FAULT_CLAIM_RESERVED);
}

void pool_release(struct box *b, bool is_name_free)
{
	struct pooled *v = b->pooled;

	if (!v)
		return;
	v->box = NULL;
	b->pooled = NULL;
	if (!is_name_free)
		drop(v, "its request was given up");
}

bool pool_claim(struct box *b, const struct vm_ops *ops)
{
	struct pool *p = &b->e->pool;
	struct pooled *v = b->pooled;
	struct pool_class *c;

	pool_release(b, true);
	c = p->max ? class_get(p, b->spec.base, &b->spec.limits) : NULL;
	if (!c)
		return false;
	pool_demand(p, c);
	list_remove(&c->node);
	list_append(p->classes.next, &c->node); /* first */
	if (v && !vm_claim(v->vm, ops, b)) {
		b->vm = v->vm;
		count(v, -1);
		pooled_free(v);
		c->n_hits++;
		p->n_hits++;
		return true;
	}
	if (v)
		drop(v, "its snapshot was removed or made anew");
	c->n_misses++;
	p->n_misses++;
	return false;
}

uint32_t pool_lanes(const struct pool *p, const struct pool_class *c)
{
	uint32_t n = 0;

	for (struct list *at = p->vms.next; at != &p->vms; at = at->next) {
		const struct pooled *v = container_of(at, struct pooled, node);

		n += v->class == c && v->is_ready && !v->is_dropped &&
		     vm_has_lane(v->vm);
	}
	return n;
}

/* ---- life, numbers ---------------------------------------------------- */

void pool_begin(struct pool *p)
{
	list_init(&p->classes);
	list_init(&p->vms);
	p->work.fn = on_work;
	p->tick.fn = on_tick;
}

int pool_open(struct engine *e, const struct engine_config *cfg,
	      struct err *err)
{
	struct pool *p = &e->pool;

	p->max = cfg->pool_max;
	p->idle_ms = (int64_t)cfg->pool_idle_seconds * 1000;
	p->proc_dir = strdup(cfg->proc_dir ? cfg->proc_dir : "/proc");
	if (!p->proc_dir)
		return err_set(err, ERR_INTERNAL, NULL, "no memory");
	if (!p->max)
		return 0;
	for (size_t i = 0; i < cfg->n_pool_wants; i++) {
		const struct pool_want *w = &cfg->pool_wants[i];
		struct pool_class *c = class_get(p, w->base, &w->limits);

		if (c)
			c->min += w->count;
	}
	loop_timer_set(e->loop, &p->tick, 1);
	return 0;
}

void pool_close(struct engine *e)
{
	struct pool *p = &e->pool;
	struct list *n, *tmp;

	loop_timer_stop(e->loop, &p->work);
	loop_timer_stop(e->loop, &p->tick);
	list_for_each_safe(n, tmp, &p->vms)
	{
		struct pooled *v = container_of(n, struct pooled, node);

		if (v->box)
			v->box->pooled = NULL;
		pooled_free(v);
	}
	list_for_each_safe(n, tmp, &p->classes)
	{
		list_remove(n);
		free(container_of(n, struct pool_class, node));
	}
	free(p->proc_dir);
	p->proc_dir = NULL;
	p->max = 0;
}

void engine_pool_each(struct engine *e, engine_pool_fn fn, void *ctx)
{
	for (struct list *n = e->pool.classes.next; n != &e->pool.classes;
	     n = n->next) {
		const struct pool_class *c =
			container_of(n, struct pool_class, node);

		fn(ctx, &(const struct pool_view){
				.base = c->base,
				.limits = c->limits,
				.min = c->min,
				.target = c->target,
				.n_ready = c->n_ready,
				.n_starting = c->n_starting,
				.n_lanes = pool_lanes(&e->pool, c),
				.ram_bytes = c->ram_bytes,
				.disk_bytes = c->disk_bytes,
				.n_hits = c->n_hits,
				.n_misses = c->n_misses,
				.n_refills = c->n_refills,
				.n_failures = c->n_failures,
			});
	}
}
