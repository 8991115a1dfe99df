/* What operators and load balancers ask: health, version, room, metrics. */
#include "../../../api/version.h"
#include "../../http/server.h"
#include "../../link/space.h"
#include "../../link/template.h"
#include "lbb.h"
#include <inttypes.h>
#include <stdio.h>

/* Named by clients before they use a part (LBB-13). */
static const char *const capabilities[] = {
	"sandboxes",	       "sandboxes.run",	     "sandboxes.hold",
	"sandboxes.stop",      "sandboxes.commands", "sandboxes.logs",
	"sandboxes.snapshots", "sandboxes.files",    "sandboxes.templates",
	"sandboxes.update",    "sandboxes.mcp",	     "files",
	"sandboxes.grants",
};

static void put_status(struct request *r, int status, const char *word)
{
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "status", word);
	json_out_end(&j, '}');
	reply_json(r, status, &j);
}

/* The process answers. */
void service_health(struct request *r)
{
	put_status(r, 200, "ok");
}

/* It takes new work. */
void service_ready(struct request *r)
{
	if (http_server_is_draining(r->services->http))
		put_status(r, 503, "draining");
	else
		put_status(r, 200, "ready");
}

void service_version(struct request *r)
{
	struct json_out j = {0};

	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "version");
	json_out_str(&j, "name", "hutchd");
	json_out_str(&j, "version", HUTCH_VERSION);
	json_out_begin(&j, "capabilities", '[');
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(*capabilities);
	     i++)
		json_out_str(&j, NULL, capabilities[i]);
	json_out_end(&j, ']');
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

void service_capacity(struct request *r)
{
	struct engine_stats s;
	struct json_out j = {0};

	engine_stats(r->services->engine, &s);
	json_out_begin(&j, NULL, '{');
	json_out_str(&j, "object", "capacity");
	json_out_bool(&j, "accepts",
		      !http_server_is_draining(r->services->http));
	json_out_u64(&j, "sandboxes_live", s.sandboxes_live);
	json_out_u64(&j, "commands_live", s.commands_live);
	json_out_u64(&j, "ram_budget_bytes", s.ram_budget_bytes);
	json_out_u64(&j, "ram_committed_bytes", s.ram_committed_bytes);
	json_out_u64(&j, "ram_free_bytes",
		     minus(s.ram_budget_bytes, s.ram_committed_bytes));
	json_out_u64(&j, "disk_committed_bytes", s.disk_committed_bytes);
	json_out_end(&j, '}');
	reply_json(r, 200, &j);
}

/* ---- Prometheus text -------------------------------------------------- */

struct metric {
	const char *name, *type, *help;
	uint64_t value;
};

static void put_metrics(struct bytes *b, const struct metric *m, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes_printf(b,
			     "# HELP hutch_%s %s\n# TYPE hutch_%s %s\n"
			     "hutch_%s %" PRIu64 "\n",
			     m[i].name, m[i].help, m[i].name, m[i].type,
			     m[i].name, m[i].value);
}

static void put_engine(struct bytes *b, struct request *r)
{
	struct engine_stats s;

	engine_stats(r->services->engine, &s);
	put_metrics(b,
		    (const struct metric[]){
			    {"runs_started_total", "counter", "Runs begun.",
			     s.runs_started},
			    {"runs_ended_total", "counter", "Runs with an end.",
			     s.runs_ended},
			    {"runs_lost_total", "counter",
			     "Runs whose outcome is not known.", s.runs_lost},
			    {"vms_started_total", "counter",
			     "VMs given to runs.", s.vms_started},
			    {"sandboxes_live", "gauge",
			     "Sandboxes that hold a "
			     "place.",
			     s.sandboxes_live},
			    {"commands_live", "gauge", "Commands not ended.",
			     s.commands_live},
			    {"ram_budget_bytes", "gauge", "RAM for VMs.",
			     s.ram_budget_bytes},
			    {"ram_committed_bytes", "gauge",
			     "RAM promised to "
			     "VMs.",
			     s.ram_committed_bytes},
			    {"disk_committed_bytes", "gauge",
			     "Disk promised to VMs.", s.disk_committed_bytes},
			    {"store_commits_total", "counter",
			     "Transactions made durable.",
			     store_commits(r->services->store)},
		    },
		    10);
}

static void put_pool(struct bytes *b, struct request *r)
{
	struct engine_stats s;

	engine_stats(r->services->engine, &s);
	put_metrics(
		b,
		(const struct metric[]){
			{"pool_hits_total", "counter",
			 "Runs that were given a VM that waited.", s.pool_hits},
			{"pool_misses_total", "counter",
			 "Runs that had to restore one.", s.pool_misses},
			{"pool_refills_total", "counter", "VMs restored ahead.",
			 s.pool_refills},
			{"pool_failures_total", "counter",
			 "VMs lost before a run had them.", s.pool_failures},
			{"pool_evictions_total", "counter",
			 "VMs ended because a request needed their room.",
			 s.pool_evictions},
			{"pool_ready", "gauge", "VMs that wait.", s.pool_ready},
			{"pool_lanes_ready", "gauge",
			 "Of these, with a runner at its express lane.",
			 s.pool_lanes},
			{"pool_starting", "gauge", "VMs on their way there.",
			 s.pool_starting},
			{"pool_size_max", "gauge", "Most that may wait.",
			 s.pool_max},
			{"pool_ram_bytes", "gauge",
			 "RAM promised to VMs that wait; they give way.",
			 s.pool_ram_bytes},
			{"pool_disk_bytes", "gauge",
			 "Disk promised to VMs that wait; they give way.",
			 s.pool_disk_bytes},
			{"memory_short", "gauge",
			 "1: the host is short of memory, nothing waits.",
			 s.is_memory_short},
		},
		12);
}

static void put_seconds(struct bytes *b, const char *name, const char *help,
			uint64_t us)
{
	bytes_printf(b,
		     "# HELP hutch_%s %s\n# TYPE hutch_%s counter\n"
		     "hutch_%s %.6f\n",
		     name, help, name, name, (double)us / 1e6);
}

static void put_snapshots(struct bytes *b, struct request *r)
{
	const struct space_use use =
		space_of(r->services->link, SPACE_SNAPSHOTS);
	struct engine_stats s;

	engine_stats(r->services->engine, &s);
	put_metrics(
		b,
		(const struct metric[]){
			{"snapshots", "gauge",
			 "Snapshots of sandboxes that are kept.", use.count},
			{"snapshots_bytes", "gauge",
			 "Bytes that their files take.", use.bytes},
			{"snapshots_taken_total", "counter",
			 "Snapshots of sandboxes taken.", s.snapshots_taken},
			{"snapshots_failed_total", "counter",
			 "Snapshots begun and not kept.", s.snapshots_failed},
			{"snapshots_expired_total", "counter",
			 "Snapshots deleted because they expired.",
			 s.snapshots_expired},
		},
		5);
	put_seconds(b, "snapshots_seconds_total",
		    "Time that the taken ones took.", s.snapshots_us);
	put_seconds(b, "snapshots_paused_seconds_total",
		    "Time that sandboxes stood still for it.",
		    s.snapshots_paused_us);
}

static void put_files(struct bytes *b, struct request *r)
{
	struct engine_stats s;

	engine_stats(r->services->engine, &s);
	put_metrics(b,
		    (const struct metric[]){
			    {"graph_files", "gauge",
			     "Files of graphs, each hash once.", s.files},
			    {"graph_files_bytes", "gauge", "Their bytes.",
			     s.files_bytes},
		    },
		    2);
}

static void put_link(struct bytes *b, struct request *r)
{
	struct link_stats s;

	link_stats(r->services->link, &s);
	put_metrics(b,
		    (const struct metric[]){
			    {"lane_runs_total", "counter",
			     "Runs given to a VM by its express lane.",
			     s.lane_runs},
			    {"lane_adopted_total", "counter",
			     "Those of them that took long.", s.lane_adopted},
			    {"template_snapshots_renewed_total", "counter",
			     "Snapshots of templates made anew by their age.",
			     s.renewed},
		    },
		    3);
}

static void put_http(struct bytes *b, struct request *r)
{
	struct http_stats s;

	http_server_stats(r->services->http, &s);
	put_metrics(
		b,
		(const struct metric[]){
			{"http_requests_total", "counter", "Requests.",
			 s.requests},
			{"http_connections_total", "counter", "Connections.",
			 s.connections},
			{"http_timeouts_total", "counter",
			 "Connections ended because the client was slow.",
			 s.timeouts},
			{"http_connections_evicted_total", "counter",
			 "Quiet connections ended to make room.", s.evicted},
			{"http_connections_refused_total", "counter",
			 "Connections refused because none was quiet or "
			 "no descriptor was left.",
			 s.refused},
			{"http_wrong_keys_total", "counter",
			 "Requests with a wrong API key.", s.wrong_keys},
			{"http_connections_open", "gauge",
			 "Connections open now.", s.open_connections},
			{"http_requests_working", "gauge",
			 "Requests not yet answered.", s.working},
			{"http_body_bytes", "gauge",
			 "Request bodies in memory.", s.body_bytes},
		},
		9);
	bytes_printf(b, "# HELP hutch_http_answers_total Answers by class.\n"
			"# TYPE hutch_http_answers_total counter\n");
	for (int i = 2; i < 6; i++)
		bytes_printf(b,
			     "hutch_http_answers_total{class=\"%dxx\"} "
			     "%" PRIu64 "\n",
			     i, s.by_class[i]);
}

void service_metrics(struct request *r)
{
	struct bytes b = {0};

	put_engine(&b, r);
	put_pool(&b, r);
	put_link(&b, r);
	put_snapshots(&b, r);
	put_files(&b, r);
	put_http(&b, r);
	bytes_printf(&b,
		     "# HELP hutch_start_time_seconds Unix time of the start."
		     "\n# TYPE hutch_start_time_seconds gauge\n"
		     "hutch_start_time_seconds %.3f\n",
		     (double)r->services->started_ms / 1000.0);
	reply_bytes(r, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}
