/*
 * How many VMs of each class shall wait; see pool.h.
 *
 * Wanted is what the configuration says, or the number of runs that began in
 * the busiest second of late, whichever is more.  The sum is cut to the
 * maximum: first everybody's minimum, then demand, the newest first.
 *
 * While the host is short of memory nothing waits.  Two things say so: little
 * is available, or tasks stood still for want of it (PSI).  Each has a second
 * bound for the end of the shortage, so that the pool does not come and go.
 */
#include "../clock.h"
#include "engine_priv.h"
#include "log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shares of the host's memory that must be available. */
#define SHORT_BELOW_SHARE 8
#define AMPLE_ABOVE_SHARE 6
/* Percent of the last 10 s in which some task waited for memory. */
#define SHORT_PRESSURE 10.0
#define AMPLE_PRESSURE 5.0

/* ---- memory ----------------------------------------------------------- */

static FILE *proc_open(const struct pool *p, const char *name)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", p->proc_dir, name);
	return fopen(path, "re");
}

static void meminfo_read(struct pool *p)
{
	FILE *f = proc_open(p, "meminfo");
	unsigned long long kib;
	char line[128];

	p->mem_total_bytes = p->mem_available_bytes = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemTotal: %llu", &kib) == 1)
			p->mem_total_bytes = kib << 10;
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			p->mem_available_bytes = kib << 10;
	}
	if (f)
		fclose(f);
}

/* 0 where the kernel does not say. */
static double pressure_read(const struct pool *p)
{
	FILE *f = proc_open(p, "pressure/memory");
	double avg10 = 0;

	if (f && fscanf(f, "some avg10=%lf", &avg10) != 1)
		avg10 = 0;
	if (f)
		fclose(f);
	return avg10;
}

static void memory_look(struct pool *p)
{
	bool was_short = p->is_short;
	double pressure = pressure_read(p);
	uint64_t below, above;

	meminfo_read(p);
	below = p->mem_total_bytes / SHORT_BELOW_SHARE;
	above = p->mem_total_bytes / AMPLE_ABOVE_SHARE;
	if (p->mem_available_bytes < below || pressure >= SHORT_PRESSURE)
		p->is_short = true;
	else if (p->mem_available_bytes >= above && pressure < AMPLE_PRESSURE)
		p->is_short = false;
	if (p->is_short != was_short)
		log_info("pool memory=%s available_mib=%llu total_mib=%llu "
			 "pressure=%.2f",
			 p->is_short ? "short" : "ample",
			 (unsigned long long)p->mem_available_bytes >> 20,
			 (unsigned long long)p->mem_total_bytes >> 20,
			 pressure);
}

bool pool_has_memory(const struct pool *p, const struct pool_class *c)
{
	return !p->is_short &&
	       p->mem_available_bytes >=
		       p->mem_total_bytes / SHORT_BELOW_SHARE + c->ram_bytes;
}

/* ---- demand ----------------------------------------------------------- */

void pool_demand(struct pool *p, struct pool_class *c)
{
	int64_t now = clock_mono_ms();

	if (c->second != now / 1000) {
		c->second = now / 1000;
		c->n_now = 0;
	}
	c->n_now++;
	c->used_ms = now;
	if (c->n_now >= c->peak) {
		c->peak = c->n_now < p->max ? c->n_now : p->max;
		c->peak_at_ms = now;
	}
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void demand_age(const struct pool *p, struct pool_class *c, int64_t now)
{
	if (!c->peak || now - c->peak_at_ms < p->idle_ms)
		return;
	c->peak--;
	c->peak_at_ms = now;
}

/* Classes stand in the order of their newest run. */
void pool_targets(struct pool *p)
{
	uint32_t left = p->max;
	int64_t now = clock_mono_ms();
	struct list *n;

	memory_look(p);
	for (n = p->classes.next; n != &p->classes; n = n->next) {
		struct pool_class *c = container_of(n, struct pool_class, node);

		demand_age(p, c, now);
		c->target = p->is_short ? 0 : smaller(c->min, left);
		left -= c->target;
	}
	for (n = p->classes.next; !p->is_short && n != &p->classes;
	     n = n->next) {
		struct pool_class *c = container_of(n, struct pool_class, node);
		uint32_t more = c->peak > c->target ? c->peak - c->target : 0;

		more = smaller(more, left);
		c->target += more;
		left -= more;
	}
}
