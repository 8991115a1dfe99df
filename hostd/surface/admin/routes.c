/* The routes of the admin socket. */
#include "admin.h"

static const char *const p_none[] = {NULL};
static const char *const p_key[] = {"name", NULL};
static const char *const p_budget[] = {"workflow", NULL};
static const char *const p_records[] = {"after", "since_ms", "until_ms",
					"format", NULL};

static const struct route routes[] = {
	{HTTP_POST, "/admin/keys", "createKey", ROUTE_ADMIN, ACCESS_OPEN,
	 ADMIN_BODY_BYTES_MAX, p_none, admin_key_create},
	{HTTP_GET, "/admin/keys", "listKeys", ROUTE_ADMIN | ROUTE_ALWAYS,
	 ACCESS_OPEN, 0, p_none, admin_key_list},
	{HTTP_DELETE, "/admin/keys", "revokeKey", ROUTE_ADMIN, ACCESS_OPEN, 0,
	 p_key, admin_key_revoke},
	{HTTP_POST, "/admin/environments", "createEnvironment", ROUTE_ADMIN,
	 ACCESS_OPEN, ADMIN_BODY_BYTES_MAX, p_none, admin_environment_create},
	{HTTP_GET, "/admin/environments", "listEnvironments",
	 ROUTE_ADMIN | ROUTE_ALWAYS, ACCESS_OPEN, 0, p_none,
	 admin_environment_list},
	{HTTP_PATCH, "/admin/environments", "setEnvironment", ROUTE_ADMIN,
	 ACCESS_OPEN, ADMIN_BODY_BYTES_MAX, p_none, admin_environment_set},
	{HTTP_DELETE, "/admin/environments", "deleteEnvironment", ROUTE_ADMIN,
	 ACCESS_OPEN, 0, p_none, admin_environment_delete},
	{HTTP_GET, "/admin/graphs", "listGraphs", ROUTE_ADMIN | ROUTE_ALWAYS,
	 ACCESS_OPEN, 0, p_none, admin_graph_list},
	{HTTP_PATCH, "/admin/graphs", "setGraph", ROUTE_ADMIN, ACCESS_OPEN,
	 ADMIN_BODY_BYTES_MAX, p_none, admin_graph_set},
	{HTTP_PUT, "/admin/budgets", "setBudget", ROUTE_ADMIN, ACCESS_OPEN,
	 ADMIN_BODY_BYTES_MAX, p_none, admin_budget_set},
	{HTTP_GET, "/admin/budgets", "listBudgets", ROUTE_ADMIN | ROUTE_ALWAYS,
	 ACCESS_OPEN, 0, p_none, admin_budget_list},
	{HTTP_DELETE, "/admin/budgets", "deleteBudget", ROUTE_ADMIN,
	 ACCESS_OPEN, 0, p_budget, admin_budget_delete},
	{HTTP_GET, "/admin/status", "status", ROUTE_ADMIN | ROUTE_ALWAYS,
	 ACCESS_OPEN, 0, p_none, admin_status},
	{HTTP_GET, "/admin/ps", "listLive", ROUTE_ADMIN | ROUTE_ALWAYS,
	 ACCESS_OPEN, 0, p_none, admin_ps},
	{HTTP_GET, "/admin/pool", "showPool", ROUTE_ADMIN | ROUTE_ALWAYS,
	 ACCESS_OPEN, 0, p_none, admin_pool},
	{HTTP_GET, "/admin/df", "showSpace", ROUTE_ADMIN | ROUTE_ALWAYS,
	 ACCESS_OPEN, 0, p_none, admin_df},
	{HTTP_GET, "/admin/records", "exportRecords",
	 ROUTE_ADMIN | ROUTE_ALWAYS, ACCESS_OPEN, 0, p_records, admin_records},
	{HTTP_POST, "/admin/prepare", "prepareTemplate", ROUTE_ADMIN,
	 ACCESS_OPEN, ADMIN_BODY_BYTES_MAX, p_none, admin_prepare},
};

const struct route_table admin_routes = {
	"admin",
	routes,
	sizeof(routes) / sizeof(*routes),
};
