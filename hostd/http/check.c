/*
 * What a header must be, before any body is read.
 *
 * The order is from the outside in: framing (nothing that two readers could
 * frame differently), the host, the route, the state of the daemon, the
 * caller, the query, the body's type and length, the idempotency key; at last
 * the graph's epoch, of what is whole.
 */
#include "../clock.h"
#include "../store/record.h"
#include "auth.h"
#include "server_priv.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ENVIRONMENT_LOCAL "env_local"

static const char *const graph_params[] = {"graph", "stack",
					   "expected_graph_epoch", NULL};
/* The admin socket speaks for any environment. */
static const char *const admin_params[] = {
	"graph", "stack", "expected_graph_epoch", "environment", NULL};

/* Fields that mean one thing and may come once. */
static const char *const single[] = {
	"Content-Length",  "Transfer-Encoding", "Host",
	"Origin",	   "Authorization",	"Content-Type",
	"Idempotency-Key", "Content-Encoding",
};
#define SINGLES (sizeof(single) / sizeof(*single))

struct framing {
	unsigned n, seen[SINGLES];
	bool is_bad;
};

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind,
				    const char *key, size_t key_len,
				    const char *value, size_t value_len)
{
	struct framing *f = cls;

	(void)kind;
	f->n++;
	for (size_t i = 0; i < key_len; i++)
		if (key[i] <= ' ' || key[i] == 0x7f)
			f->is_bad = true;
	for (size_t i = 0; i < value_len; i++)
		if ((unsigned char)value[i] < ' ' && value[i] != '\t')
			f->is_bad = true;
	for (size_t i = 0; i < SINGLES; i++)
		if (!strcasecmp(key, single[i]))
			f->seen[i]++;
	return MHD_YES;
}

const char *check_header(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

uint64_t request_body_bytes(const struct request *r)
{
	return r->priv->mhd ? check_body_length(r->priv->mhd) : 0;
}

uint64_t check_body_length(struct MHD_Connection *c)
{
	const char *length = check_header(c, "Content-Length");

	if (check_header(c, "Transfer-Encoding"))
		return UINT64_MAX;
	/* MHD has refused what is not a number. */
	return length ? strtoull(length, NULL, 10) : 0;
}

int check_framing(struct MHD_Connection *c, struct err *e)
{
	const char *encoding = check_header(c, "Transfer-Encoding");
	struct framing f = {0};

	MHD_get_connection_values_n(c, MHD_HEADER_KIND, count_header, &f);
	if (f.n > HTTP_HEADERS_MAX)
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "%u header fields; at most %d", f.n,
			       HTTP_HEADERS_MAX);
	if (f.is_bad)
		return err_set(e, ERR_INVALID_REQUEST, NULL,
			       "a header field has a control character");
	for (size_t i = 0; i < SINGLES; i++)
		if (f.seen[i] > 1)
			return err_set(e, ERR_INVALID_REQUEST, single[i],
				       "the header field %s comes %u times",
				       single[i], f.seen[i]);
	if (f.seen[0] && encoding)
		return err_set(e, ERR_INVALID_REQUEST, "Transfer-Encoding",
			       "Content-Length and Transfer-Encoding together "
			       "are refused");
	if (encoding && strcasecmp(encoding, "chunked"))
		return err_set(e, ERR_INVALID_REQUEST, "Transfer-Encoding",
			       "Transfer-Encoding %.40s is not supported; "
			       "chunked is",
			       encoding);
	return 0;
}

/* ---- host ------------------------------------------------------------- */

static bool is_same_host(const char *a, size_t a_len, const char *b)
{
	return strlen(b) == a_len && !strncasecmp(a, b, a_len);
}

/* Length of the host in "host[:port]"; brackets stay. */
static size_t host_len(const char *host)
{
	const char *close = *host == '[' ? strchr(host, ']') : NULL;

	return close ? (size_t)(close + 1 - host) : strcspn(host, ":/");
}

static bool is_host_allowed(const struct http_server *s, const char *host)
{
	static const char *const always[] = {"localhost", "127.0.0.1", "[::1]"};
	const char *more = s->cfg.allowed_hosts;
	size_t len = host_len(host);

	for (size_t i = 0; i < sizeof(always) / sizeof(*always); i++)
		if (is_same_host(host, len, always[i]))
			return true;
	if (len == host_len(s->address) && !strncasecmp(host, s->address, len))
		return true;
	while (*more) {
		size_t n = strcspn(more, ", ");

		if (n == len && !strncasecmp(more, host, n))
			return true;
		more += n;
		more += strspn(more, ", ");
	}
	return false;
}

/*
 * A page in a browser can reach a loopback port, under a name that its owner
 * points at 127.0.0.1 (DNS rebinding) or as a foreign origin.  Both show in
 * the header.
 */
static int check_host(const struct request *r, struct MHD_Connection *c,
		      struct err *e)
{
	const struct http_listener *l = r->priv->listener;
	const char *host = check_header(c, "Host");
	const char *origin = check_header(c, "Origin"), *from;

	if (!l->is_loopback)
		return 0;
	if (host && !is_host_allowed(l->server, host))
		return err_set(e, ERR_HOST_REFUSED, "Host",
			       "Host %.100s is not this loopback port "
			       "(allowed_hosts in the config adds names)",
			       host);
	if (!origin)
		return 0;
	from = strstr(origin, "://");
	if (!from || !is_host_allowed(l->server, from + 3))
		return err_set(e, ERR_HOST_REFUSED, "Origin",
			       "requests of origin %.100s are not answered",
			       origin);
	return 0;
}

/* ---- route, caller, query --------------------------------------------- */

static int check_route(struct request *r, unsigned *ret_allow, struct err *e)
{
	const struct http_config *cfg = &r->priv->server->cfg;
	const struct route *route = route_find(cfg->tables, r->method, r->path,
					       r->is_admin, ret_allow);
	bool is_star = !strcmp(r->path, "*");

	if (route && (!(route->flags & ROUTE_METRICS) || r->is_admin ||
		      cfg->is_metrics_open)) {
		r->route = route;
		return 0;
	}
	if (r->method == HTTP_OPTIONS && (*ret_allow || is_star)) {
		if (is_star)
			*ret_allow = 1u << HTTP_GET | 1u << HTTP_HEAD |
				     1u << HTTP_POST | 1u << HTTP_PUT |
				     1u << HTTP_DELETE | 1u << HTTP_OPTIONS;
		memset(e, 0, sizeof(*e));
		return -1;
	}
	if (*ret_allow) {
		char allow[64];

		route_allow(*ret_allow, allow, sizeof(allow));
		return err_set(e, ERR_METHOD, NULL, "%.200s takes %s", r->path,
			       allow);
	}
	return err_set(e, ERR_NO_ROUTE, NULL, "no route for %s %.200s",
		       http_method_name(r->method), r->path);
}

static int check_admin(struct request *r, struct err *e)
{
	const char *environment = query_get(&r->query, "environment");

	if (r->priv->conn->is_refused)
		return err_set(e, ERR_UNAUTHORIZED, NULL,
			       "the admin socket takes calls of root and of "
			       "the daemon's own user only");
	if (environment && !auth_environment_is_valid(environment))
		return err_set(e, ERR_INVALID_REQUEST, "environment",
			       "environment \"%.64s\" is not a name of 1 to %d "
			       "characters a-z 0-9 _ -",
			       environment, ID_BYTES_MAX - 1);
	snprintf(r->environment, sizeof(r->environment), "%s",
		 environment ? environment : ENVIRONMENT_LOCAL);
	r->caller.plan = PLAN_FULL;
	r->caller.is_enabled = true;
	return 0;
}

/* `e` has the reason; too many of them are told to wait instead. */
static int wrong_key(struct request *r, struct MHD_Connection *c, struct err *e)
{
	struct http_server *s = r->priv->server;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	int wait_s;

	s->stats.wrong_keys++;
	wait_s = wrong_keys_note(&s->wrong_keys, info->client_addr);
	if (!wait_s)
		return -1;
	err_set(e, ERR_RATE_LIMITED, NULL,
		"too many requests with wrong API keys come from this address; "
		"the next is looked at in %d s",
		wait_s);
	e->retry_after_s = wait_s;
	return -1;
}

static int grant_denied(const struct request *r, struct err *e)
{
	return err_set(e, ERR_GRANT_DENIED, NULL,
		       "the grant is for sandbox_%s; %s %s is sandbox_%s",
		       route_access_name(r->grant.access),
		       http_method_name(r->method), r->path,
		       route_access_name(r->route->access));
}

/* One route is of two kinds: its handler, which knows the body, looks again. */
static bool is_granted(const struct request *r)
{
	enum route_access own = r->grant.access, access = r->route->access;

	return own == access || (access == ACCESS_RUN && own == ACCESS_CREATE);
}

/* Before a byte of the body and before any key is looked at (LBB-69, 70). */
static int check_access(const struct request *r, struct err *e)
{
	enum route_access access = r->route->access;

	if (access == ACCESS_OPEN)
		return r->has_grant ? grant_denied(r, e) : 0;
	if (r->has_grant && !is_granted(r))
		return grant_denied(r, e);
	if (!r->caller.is_enabled)
		return err_set(e, ERR_NOT_ENABLED, NULL, NULL);
	if (route_access_needs_plan(access) && r->caller.plan != PLAN_FULL)
		return err_set(e, ERR_PLAN_UNAVAILABLE, NULL,
			       "the plan of environment %s is free: it lists, "
			       "reads, stops, updates and deletes; what starts "
			       "or writes needs another plan",
			       r->environment);
	return 0;
}

/* A grant in place of a key. */
static int check_grant(struct request *r, struct MHD_Connection *c,
		       const char *header, struct err *e)
{
	const struct auth *auth = r->services->auth;
	const struct environment_info *env;

	if (auth_check_grant(auth, header, clock_wall_ms(), &r->grant, e))
		return e->code == ERR_UNAUTHORIZED ? wrong_key(r, c, e) : -1;
	r->has_grant = true;
	snprintf(r->environment, sizeof(r->environment), "%s",
		 r->grant.environment);
	/* One of the operator's own has every right. */
	env = realm_environment(auth_realm(auth), r->environment);
	r->caller.plan = env ? env->plan : PLAN_FULL;
	r->caller.is_enabled = env ? env->is_enabled : true;
	return check_access(r, e);
}

static int check_caller(struct request *r, struct MHD_Connection *c,
			struct err *e)
{
	const char *header = check_header(c, "Authorization");
	const struct key_info *key;

	if (r->is_admin)
		return check_admin(r, e);
	if (!(r->route->flags & ROUTE_KEY))
		return 0;
	if (auth_is_grant(header))
		return check_grant(r, c, header, e);
	if (auth_check(r->services->auth, header, &key, e))
		return header ? wrong_key(r, c, e) : -1;
	snprintf(r->environment, sizeof(r->environment), "%s",
		 key->environment);
	r->caller.plan = key->plan;
	r->caller.is_enabled = key->is_enabled;
	return check_access(r, e);
}

static bool has_graph(const struct request *r)
{
	return r->is_admin || r->route->flags & ROUTE_KEY;
}

/* That of the grant, and the one that the caller expects. */
static int check_epoch(const struct request *r, struct err *e)
{
	const char *expected = query_get(&r->query, "expected_graph_epoch");
	uint64_t epoch, asked;

	if (!has_graph(r))
		return 0;
	epoch = realm_epoch(auth_realm(r->services->auth), r->environment,
			    r->graph);
	if (r->has_grant && r->grant.epoch != epoch)
		return err_set(e, ERR_EPOCH, "graph",
			       "the grant is of epoch %llu of graph %s, which "
			       "is at %llu",
			       (unsigned long long)r->grant.epoch, r->graph,
			       (unsigned long long)epoch);
	if (!expected)
		return 0;
	if (query_u64(&r->query, "expected_graph_epoch", 0, UINT64_MAX, 0,
		      &asked, e))
		return -1;
	if (asked != epoch)
		return err_set(e, ERR_EPOCH, "expected_graph_epoch",
			       "graph %s is at epoch %llu, not at %llu",
			       r->graph, (unsigned long long)epoch,
			       (unsigned long long)asked);
	return 0;
}

static void take_places(struct request *r)
{
	const struct realm *realm = auth_realm(r->services->auth);
	struct realm_places p = realm_places(realm, r->environment, r->graph);

	r->caller.environment_places = p.environment;
	r->caller.graph_places = p.graph;
}

static int check_query(struct request *r, struct err *e)
{
	const char *graph = query_get(&r->query, "graph");
	const char *const *common = NULL;

	if (r->is_admin)
		common = admin_params;
	else if (r->route->flags & ROUTE_GRAPH)
		common = graph_params;
	if (query_check(&r->query, r->route->params, common, e))
		return -1;
	if (graph && !auth_graph_is_valid(graph))
		return err_set(e, ERR_INVALID_REQUEST, "graph",
			       "graph \"%.80s\" is not a name of 1 to %d "
			       "characters A-Z a-z 0-9 . _ -",
			       graph, GRAPH_NAME_BYTES_MAX);
	snprintf(r->graph, sizeof(r->graph), "%s", graph ? graph : "main");
	r->caller.environment = r->environment;
	r->caller.graph = r->graph;
	if (!has_graph(r))
		return 0;
	take_places(r);
	if (r->has_grant && strcmp(r->grant.graph, r->graph))
		return err_set(e, ERR_GRANT_DENIED, "graph",
			       "the grant is for graph %s, not for %s",
			       r->grant.graph, r->graph);
	return 0;
}

/* ---- body and key ----------------------------------------------------- */

enum err_code check_too_large(const struct request *r)
{
	if (r->route->flags & ROUTE_STREAM)
		return ERR_GRAPH_FILE_TOO_LARGE;
	return r->route->flags & ROUTE_RAW ? ERR_FILE_TOO_LARGE
					   : ERR_BODY_TOO_LARGE;
}

static int check_body(struct request *r, struct MHD_Connection *c,
		      struct err *e)
{
	const char *type = check_header(c, "Content-Type");
	const char *encoding = check_header(c, "Content-Encoding");
	uint64_t len = check_body_length(c);
	size_t max = r->route->body_bytes_max;

	if (!len)
		return 0;
	if (!max && len != UINT64_MAX)
		return err_set(e, ERR_BODY_TOO_LARGE, NULL,
			       "%s %s takes no body",
			       http_method_name(r->method), r->path);
	if (len != UINT64_MAX && len > max)
		return err_set(e, check_too_large(r), NULL,
			       "the body has %llu bytes; at most %zu",
			       (unsigned long long)len, max);
	if (max && !(r->route->flags & (ROUTE_RAW | ROUTE_STREAM)) &&
	    (!type || strncasecmp(type, "application/json", 16) ||
	     (type[16] && !strchr("; \t", type[16]))))
		return err_set(e, ERR_MEDIA_TYPE, "Content-Type",
			       "Content-Type is %.80s; it must be "
			       "application/json",
			       type ? type : "missing");
	if (encoding && strcasecmp(encoding, "identity"))
		return err_set(e, ERR_MEDIA_TYPE, "Content-Encoding",
			       "Content-Encoding %.40s is not supported; send "
			       "the body as it is",
			       encoding);
	return 0;
}

/* A key that came, whether or not the route needs one. */
static int key_check(const char *key, struct err *e)
{
	size_t len = strlen(key);

	if (!len)
		return err_set(e, ERR_INVALID_REQUEST, "Idempotency-Key",
			       "the Idempotency-Key is empty");
	if (len > IDEMPOTENCY_KEY_BYTES_MAX)
		return err_set(e, ERR_INVALID_REQUEST, "Idempotency-Key",
			       "the Idempotency-Key has %zu bytes; at most %d",
			       len, IDEMPOTENCY_KEY_BYTES_MAX);
	for (size_t i = 0; i < len; i++)
		if (key[i] < ' ' || key[i] > '~')
			return err_set(e, ERR_INVALID_REQUEST,
				       "Idempotency-Key",
				       "the Idempotency-Key has a byte that is "
				       "not printable ASCII");
	return 0;
}

/* `key`: of the header Idempotency-Key, NULL = none. */
static int key_take(struct request *r, const char *key, struct err *e)
{
	if (!key || !*key)
		return err_set(e, ERR_MISSING_KEY, "Idempotency-Key", NULL);
	if (key_check(key, e))
		return -1;
	r->idempotency_key = strdup(key);
	return r->idempotency_key
		       ? 0
		       : err_set(e, ERR_INTERNAL, NULL, "out of memory");
}

int request_key(struct request *r, struct err *e)
{
	return key_take(r, request_header(r, "Idempotency-Key"), e);
}

static int check_draining(const struct request *r, struct err *e)
{
	if (r->priv->server->is_draining && !(r->route->flags & ROUTE_ALWAYS))
		return err_set(e, ERR_UNAVAILABLE, NULL, NULL);
	return 0;
}

int check_inner(struct request *r, const char *query, const char *key,
		struct err *e)
{
	unsigned allow = 0;

	if (check_route(r, &allow, e) || check_draining(r, e) ||
	    query_parse(&r->query, query, e) || check_access(r, e) ||
	    check_query(r, e))
		return -1;
	if (r->body.len > r->route->body_bytes_max)
		return err_set(e, check_too_large(r), NULL,
			       "the body has %zu bytes; at most %zu",
			       r->body.len, r->route->body_bytes_max);
	if (r->route->flags & ROUTE_IDEMPOTENT && key_take(r, key, e))
		return -1;
	return check_epoch(r, e);
}

static void take_version(struct request *r, struct MHD_Connection *c)
{
	const char *v = check_header(c, "Lbb-Version");

	if (v && strlen(v) < sizeof(r->priv->version))
		snprintf(r->priv->version, sizeof(r->priv->version), "%s", v);
}

int check_head(struct request *r, struct MHD_Connection *c, unsigned *ret_allow,
	       struct err *e)
{
	const char *key = check_header(c, "Idempotency-Key");

	take_version(r, c);
	if (check_host(r, c, e) || check_route(r, ret_allow, e))
		return -1;
	*ret_allow = 0;
	if (check_draining(r, e))
		return -1;
	if (query_parse(&r->query, r->priv->raw_query, e) ||
	    check_caller(r, c, e) || check_query(r, e))
		return -1;
	if (check_body(r, c, e))
		return -1;
	if (r->route->flags & ROUTE_IDEMPOTENT ? key_take(r, key, e)
	    : key			       ? key_check(key, e)
					       : 0)
		return -1;
	return check_epoch(r, e);
}
