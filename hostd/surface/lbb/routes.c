/*
 * The routes of /v1.  api/openapi/lbb.yaml has the same rows; the check
 * api/openapi/check.py compares them.
 */
#include "lbb.h"

static const char *const p_none[] = {NULL};
static const char *const p_sandboxes[] = {
	"sandbox", "status", "template", "name", "limit", "cursor", NULL};
static const char *const p_sandbox[] = {"sandbox", NULL};
static const char *const p_snapshots[] = {"sandbox", "snapshot", "limit",
					  "cursor", NULL};
static const char *const p_snapshot[] = {"snapshot", NULL};
static const char *const p_commands[] = {"sandbox", "command", "wait_ms",
					 "limit",   "cursor",  NULL};
static const char *const p_command_get[] = {"command", "wait_ms", NULL};
static const char *const p_command[] = {"command", NULL};
static const char *const p_logs[] = {"command", "stream", "offset", "limit",
				     NULL};
static const char *const p_files[] = {"sandbox", "path",   "path_hex",
				      "limit",	 "cursor", NULL};
static const char *const p_file_read[] = {"sandbox", "path",  "path_hex",
					  "offset",  "limit", NULL};
static const char *const p_file[] = {"sandbox", "path", "path_hex", NULL};
static const char *const p_file_write[] = {"sandbox", "path", "path_hex",
					   "source_sha256", NULL};
static const char *const p_upload[] = {"name", "source_sandbox", "source_path",
				       "source_path_hex", NULL};
static const char *const p_graph_files[] = {"limit", "after", "name", NULL};
static const char *const p_graph_file[] = {"sha256", NULL};
static const char *const p_graph_file_delete[] = {"sha256", "confirm", NULL};
static const char *const p_templates[] = {"name",  "template", "versions",
					  "limit", "cursor",   NULL};
static const char *const p_template[] = {"name", "template", NULL};

/* Files of a graph are there also where sandboxes are not enabled; what keeps
 * one from a workspace is checked by its handler. */
#define V1 (ROUTE_KEY | ROUTE_GRAPH)
/* What reads, or ends something, is answered while the daemon drains. */
#define V1_END (V1 | ROUTE_ALWAYS)

static const struct route routes[] = {
	{HTTP_POST, "/v1/sandboxes", "createSandbox", V1 | ROUTE_IDEMPOTENT,
	 ACCESS_RUN, LBB_RUN_BODY_BYTES_MAX, p_none, lbb_create},
	{HTTP_GET, "/v1/sandboxes", "listSandboxes", V1_END, ACCESS_READ, 0,
	 p_sandboxes, lbb_sandboxes},
	{HTTP_GET, "/v1/sandboxes/get", "getSandbox", V1_END, ACCESS_READ, 0,
	 p_sandbox, lbb_sandbox_get},
	{HTTP_PATCH, "/v1/sandboxes", "updateSandbox", V1, ACCESS_MANAGE,
	 LBB_UPDATE_BODY_BYTES_MAX, p_sandbox, lbb_sandbox_update},
	{HTTP_DELETE, "/v1/sandboxes", "deleteSandbox", V1_END, ACCESS_MANAGE,
	 0, p_sandbox, lbb_sandbox_delete},
	{HTTP_POST, "/v1/sandboxes/stop", "stopSandbox", V1_END, ACCESS_MANAGE,
	 1024, p_sandbox, lbb_sandbox_stop},
	{HTTP_POST, "/v1/sandboxes/resume", "resumeSandbox", V1, ACCESS_RESUME,
	 1024, p_sandbox, lbb_sandbox_resume},
	{HTTP_POST, "/v1/sandboxes/snapshots", "createSnapshot",
	 V1 | ROUTE_IDEMPOTENT, ACCESS_WRITE, 1024, p_sandbox,
	 lbb_snapshot_create},
	{HTTP_GET, "/v1/sandboxes/snapshots", "listSnapshots", V1_END,
	 ACCESS_READ, 0, p_snapshots, lbb_snapshots},
	{HTTP_GET, "/v1/sandboxes/snapshots/get", "getSnapshot", V1_END,
	 ACCESS_READ, 0, p_snapshot, lbb_snapshot_get},
	{HTTP_POST, "/v1/sandboxes/snapshots/verify", "verifySnapshot", V1_END,
	 ACCESS_READ, 1024, p_snapshot, lbb_snapshot_verify},
	{HTTP_DELETE, "/v1/sandboxes/snapshots", "deleteSnapshot", V1_END,
	 ACCESS_MANAGE, 0, p_snapshot, lbb_snapshot_delete},
	{HTTP_POST, "/v1/sandboxes/commands", "createCommand",
	 V1 | ROUTE_IDEMPOTENT, ACCESS_COMMAND, LBB_COMMAND_BODY_BYTES_MAX,
	 p_sandbox, lbb_command_create},
	{HTTP_GET, "/v1/sandboxes/commands", "listCommands", V1_END,
	 ACCESS_READ, 0, p_commands, lbb_commands},
	{HTTP_GET, "/v1/sandboxes/commands/get", "getCommand", V1_END,
	 ACCESS_READ, 0, p_command_get, lbb_command_get},
	{HTTP_GET, "/v1/sandboxes/commands/logs", "readCommandLogs", V1_END,
	 ACCESS_READ, 0, p_logs, lbb_command_logs},
	{HTTP_POST, "/v1/sandboxes/commands/cancel", "cancelCommand", V1_END,
	 ACCESS_MANAGE, 1024, p_command, lbb_command_cancel},
	{HTTP_GET, "/v1/sandboxes/files", "listFiles", V1_END, ACCESS_READ, 0,
	 p_files, lbb_files},
	{HTTP_DELETE, "/v1/sandboxes/files", "deleteFile", V1_END,
	 ACCESS_MANAGE, 0, p_file, lbb_file_delete},
	{HTTP_GET, "/v1/sandboxes/files/content", "readFile", V1_END,
	 ACCESS_READ, 0, p_file_read, lbb_file_read},
	{HTTP_PUT, "/v1/sandboxes/files/content", "writeFile", V1 | ROUTE_RAW,
	 ACCESS_WRITE, GP_FILE_BYTES_MAX, p_file_write, lbb_file_write},
	{HTTP_POST, "/v1/files", "uploadFile", V1 | ROUTE_STREAM, ACCESS_OPEN,
	 LBB_UPLOAD_BYTES_MAX, p_upload, lbb_upload},
	{HTTP_GET, "/v1/files", "listGraphFiles", V1_END, ACCESS_OPEN, 0,
	 p_graph_files, lbb_graph_files},
	{HTTP_GET, "/v1/files/record", "getGraphFile", V1_END, ACCESS_OPEN, 0,
	 p_graph_file, lbb_graph_file_record},
	{HTTP_GET, "/v1/files/content", "readGraphFile", V1_END, ACCESS_OPEN, 0,
	 p_graph_file, lbb_graph_file_content},
	{HTTP_DELETE, "/v1/files", "deleteGraphFile", V1_END, ACCESS_OPEN, 0,
	 p_graph_file_delete, lbb_graph_file_delete},
	{HTTP_POST, "/v1/sandboxes/grants", "createGrant", V1, ACCESS_GRANT,
	 LBB_GRANT_BODY_BYTES_MAX, p_none, lbb_grant_create},
	{HTTP_POST, "/v1/sandboxes/templates", "createTemplate",
	 V1 | ROUTE_IDEMPOTENT, ACCESS_WRITE, LBB_RUN_BODY_BYTES_MAX, p_none,
	 lbb_template_save},
	{HTTP_GET, "/v1/sandboxes/templates", "listTemplates", V1_END,
	 ACCESS_READ, 0, p_templates, lbb_templates},
	{HTTP_GET, "/v1/sandboxes/templates/get", "getTemplate", V1_END,
	 ACCESS_READ, 0, p_template, lbb_template_get},
};

const struct route_table lbb_routes = {
	"lbb",
	routes,
	sizeof(routes) / sizeof(*routes),
};

static const struct route service[] = {
	{HTTP_GET, "/healthz", "health", ROUTE_ALWAYS, ACCESS_OPEN, 0, p_none,
	 service_health},
	{HTTP_GET, "/readyz", "ready", ROUTE_ALWAYS, ACCESS_OPEN, 0, p_none,
	 service_ready},
	{HTTP_GET, "/version", "version", ROUTE_ALWAYS, ACCESS_OPEN, 0, p_none,
	 service_version},
	{HTTP_GET, "/capacity", "capacity", ROUTE_ALWAYS | ROUTE_METRICS,
	 ACCESS_OPEN, 0, p_none, service_capacity},
	{HTTP_GET, "/metrics", "metrics", ROUTE_ALWAYS | ROUTE_METRICS,
	 ACCESS_OPEN, 0, p_none, service_metrics},
	{HTTP_GET, "/errors", "errors", ROUTE_ALWAYS, ACCESS_OPEN, 0, p_none,
	 service_errors},
};

const struct route_table service_routes = {
	"service",
	service,
	sizeof(service) / sizeof(*service),
};
