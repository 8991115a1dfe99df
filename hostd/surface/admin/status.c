/* The state of the daemon, and its live sandboxes. */
#include "../../../api/version.h"
#include "../../clock.h"
#include "../../config.h"
#include "../../http/server.h"
#include "admin.h"
#include <unistd.h>

static void put_engine(struct json_out *j, const struct engine_stats *s)
{
	json_out_begin(j, "engine", '{');
	json_out_u64(j, "sandboxes_live", s->sandboxes_live);
	json_out_u64(j, "commands_live", s->commands_live);
	json_out_u64(j, "runs_started", s->runs_started);
	json_out_u64(j, "runs_ended", s->runs_ended);
	json_out_u64(j, "runs_lost", s->runs_lost);
	json_out_u64(j, "vms_started", s->vms_started);
	json_out_u64(j, "ram_budget_bytes", s->ram_budget_bytes);
	json_out_u64(j, "ram_committed_bytes", s->ram_committed_bytes);
	json_out_u64(j, "disk_committed_bytes", s->disk_committed_bytes);
	json_out_end(j, '}');
}

static void put_paths(struct json_out *j, const struct config *c)
{
	json_out_begin(j, "paths", '{');
	json_out_str(j, "state", c->state_dir);
	json_out_str(j, "cache", c->cache_dir);
	json_out_str(j, "images", c->images_dir);
	json_out_str(j, "vmm", c->vmm_path);
	json_out_str(j, "init_image", c->init_image);
	json_out_end(j, '}');
}

void admin_status(struct request *r)
{
	const struct services *sv = r->services;
	struct engine_stats s;
	struct json_out j = {0};

	engine_stats(sv->engine, &s);
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "status");
	json_out_str(&j, "version", HUTCH_VERSION);
	json_out_i64(&j, "pid", getpid());
	json_out_str(&j, "state",
		     http_server_is_draining(sv->http) ? "draining"
						       : "running");
	json_out_time(&j, "started_at", sv->started_ms);
	json_out_time(&j, "now", clock_wall_ms());
	json_out_str(&j, "listen", http_server_address(sv->http));
	json_out_u64(&j, "lost_at_start", sv->n_lost);
	json_out_bool(&j, "confined", sv->config->is_confined);
	put_paths(&j, sv->config);
	put_engine(&j, &s);
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

static void put_live(void *ctx, const struct sandbox_rec *s,
		     const struct command_rec *c, int pid)
{
	struct json_out *j = ctx;

	json_out_begin(j, NULL, '{');
	json_out_str(j, "sandbox", s->id);
	json_out_str(j, "status", sandbox_status_name(s->status));
	json_out_str(j, "environment", s->environment);
	json_out_str(j, "graph", s->graph);
	json_out_str(j, "template", s->template_name);
	json_out_u64(j, "vcpus", s->limits.vcpus);
	json_out_u64(j, "memory_mib", s->limits.memory_mib);
	json_out_u64(j, "disk_mib", s->limits.disk_mib);
	json_out_time(j, "created_at", s->created_ms);
	json_out_time(j, "started_at", s->started_ms);
	json_out_str(j, "progress", *s->progress ? s->progress : NULL);
	json_out_str(j, "command", c ? c->id : NULL);
	json_out_str(j, "command_status",
		     c ? command_status_name(c->status) : NULL);
	if (pid)
		json_out_i64(j, "pid", pid);
	else
		json_out_null(j, "pid");
	json_out_end(j, '}');
}

void admin_ps(struct request *r)
{
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "list");
	json_out_begin(&j, "data", '[');
	engine_live_each(r->services->engine, put_live, &j);
	json_out_end(&j, ']');
	json_out_bool(&j, "has_more", false);
	json_out_null(&j, "next_cursor");
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}
