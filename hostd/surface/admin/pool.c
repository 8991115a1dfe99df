/* The VMs that wait for a run, by template and limits. */
#include "../lbb/lbb.h"
#include "admin.h"

static void put_class(void *ctx, const struct pool_view *v)
{
	struct json_out *j = ctx;

	json_out_begin(j, NULL, '{');
	json_out_str(j, "template", v->base);
	json_out_u64(j, "vcpus", v->limits.vcpus);
	json_out_u64(j, "memory_mib", v->limits.memory_mib);
	json_out_u64(j, "disk_mib", v->limits.disk_mib);
	json_out_u64(j, "minimum", v->min);
	json_out_u64(j, "target", v->target);
	json_out_u64(j, "ready", v->n_ready);
	json_out_u64(j, "lanes", v->n_lanes);
	json_out_u64(j, "starting", v->n_starting);
	json_out_u64(j, "ram_bytes_each", v->ram_bytes);
	json_out_u64(j, "disk_bytes_each", v->disk_bytes);
	json_out_u64(j, "hits", v->n_hits);
	json_out_u64(j, "misses", v->n_misses);
	json_out_u64(j, "refills", v->n_refills);
	json_out_u64(j, "failures", v->n_failures);
	json_out_end(j, '}');
}

void admin_pool(struct request *r)
{
	struct engine_stats s;
	struct json_out j = {0};

	engine_stats(r->services->engine, &s);
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "pool");
	json_out_u64(&j, "maximum", s.pool_max);
	json_out_u64(&j, "ready", s.pool_ready);
	json_out_u64(&j, "lanes", s.pool_lanes);
	json_out_u64(&j, "starting", s.pool_starting);
	json_out_bool(&j, "memory_short", s.is_memory_short);
	json_out_u64(&j, "ram_bytes", s.pool_ram_bytes);
	json_out_u64(&j, "disk_bytes", s.pool_disk_bytes);
	json_out_u64(&j, "hits", s.pool_hits);
	json_out_u64(&j, "misses", s.pool_misses);
	json_out_u64(&j, "refills", s.pool_refills);
	json_out_u64(&j, "failures", s.pool_failures);
	json_out_u64(&j, "evictions", s.pool_evictions);
	json_out_begin(&j, "classes", '[');
	engine_pool_each(r->services->engine, put_class, &j);
	json_out_end(&j, ']');
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}
