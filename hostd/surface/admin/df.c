/* What takes space, by kind, and the limits. */
#include "../../config.h"
#include "../../link/space.h"
#include "../lbb/lbb.h"
#include "admin.h"

static uint64_t limit_bytes(const struct config *c, enum space_kind k)
{
	if (k == SPACE_SNAPSHOTS)
		return c->snapshots_max_mib << 20;
	if (k == SPACE_FILES)
		return c->files_max_mib << 20;
	return k == SPACE_STOPPED ? c->stopped_max_mib << 20 : 0;
}

static void put_kind(struct json_out *j, enum space_kind k,
		     const struct space_use *u, uint64_t max)
{
	json_out_begin(j, NULL, '{');
	json_out_str(j, "kind", space_kind_name(k));
	json_out_u64(j, "count", u->count);
	json_out_u64(j, "bytes", u->bytes);
	if (max)
		json_out_u64(j, "limit_bytes", max);
	else
		json_out_null(j, "limit_bytes");
	json_out_end(j, '}');
}

static void put_folder(struct json_out *j, const char *key, const char *path,
		       uint64_t free_bytes, uint64_t total_bytes)
{
	json_out_begin(j, key, '{');
	json_out_str(j, "path", path);
	json_out_u64(j, "free_bytes", free_bytes);
	json_out_u64(j, "total_bytes", total_bytes);
	json_out_end(j, '}');
}

static void on_space(void *ctx, const struct space *s)
{
	struct request *r = ctx;
	const struct config *c = r->services->config;
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "space");
	json_out_begin(&j, "kinds", '[');
	for (int k = 0; k < SPACE_KINDS; k++)
		put_kind(&j, (enum space_kind)k, &s->of[k],
			 limit_bytes(c, (enum space_kind)k));
	json_out_end(&j, ']');
	put_folder(&j, "state", c->state_dir, s->state_free_bytes,
		   s->state_total_bytes);
	put_folder(&j, "cache", c->cache_dir, s->cache_free_bytes,
		   s->cache_total_bytes);
	json_out_u64(&j, "disk_reserve_bytes", c->disk_reserve_mib << 20);
	json_out_end(&j, '}');
	r->abandon = NULL;
	reply_json(r, 200, &j);
}

static void on_abandon(struct request *r)
{
	space_forget(r->op);
	request_drop(r);
}

void admin_df(struct request *r)
{
	struct measuring *m;
	int rc = space_measure(r->services->link, on_space, r, &m);

	if (rc) {
		lbb_engine_failed(r, rc);
		return;
	}
	r->op = m;
	r->abandon = on_abandon;
}
