/*
 * hutchd: records what clients ask for, runs it in microVMs, tells what came
 * of it.
 *
 * main reads top to bottom in the order of a start; stop() is the same
 * backwards.  Everything runs on this thread's loop, except the store's thread
 * and the worker pool.  README.md has the theory of operation.
 */
#include "../api/version.h"
#include "clock.h"
#include "config.h"
#include "engine/engine.h"
#include "fault.h"
#include "fd.h"
#include "http/auth.h"
#include "http/server.h"
#include "link/template.h"
#include "log.h"
#include "log_limit.h"
#include "loop.h"
#include "process.h"
#include "services.h"
#include "state_dir.h"
#include "surface/admin/admin.h"
#include "surface/lbb/lbb.h"
#include "surface/mcp/mcp.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define RETENTION_EVERY_MS (3600ll * 1000)
#define DRAIN_CHECK_MS	   50
#define DRAIN_QUIET_MS	   2000

static const struct route_table *const tables[] = {
	&lbb_routes, &mcp_routes, &service_routes, &admin_routes, NULL,
};

struct daemon {
	struct config config;
	const char *vmm_die_at; /* NULL = nowhere */
	struct services services;
	struct loop_watch signals;
	struct loop_timer drain, retention, log_summary;
	int64_t drain_end_ms, drain_quiet_ms; /* clock_mono */
	char admin_path[CONFIG_TEXT_BYTES_MAX + 16];
	int lock_fd;
	int exit_status;
	bool is_stopping;
};

/* ---- what main may do instead of serving ------------------------------ */

static void print_routes(void)
{
	for (const struct route_table *const *t = tables; *t; t++) {
		for (size_t i = 0; i < (*t)->n; i++) {
			const struct route *r = &(*t)->routes[i];

			printf("%s %s %s %s auth=%s access=%s key=%s body=%zu "
			       "params=",
			       (*t)->name, http_method_name(r->method), r->path,
			       r->operation,
			       r->flags & ROUTE_ADMIN ? "admin"
			       : r->flags & ROUTE_KEY ? "key"
						      : "none",
			       route_access_name(r->access),
			       r->flags & ROUTE_IDEMPOTENT ? "yes" : "no",
			       r->body_bytes_max);
			if (r->flags & (ROUTE_GRAPH | ROUTE_ADMIN))
				printf("graph,stack,expected_graph_epoch,");
			if (r->flags & ROUTE_ADMIN)
				printf("environment,");
			for (const char *const *p = r->params; *p; p++)
				printf("%s,", *p);
			printf("\n");
		}
	}
}

static int print_what(const char *what)
{
	if (!strcmp(what, "--routes"))
		print_routes();
	else if (!strcmp(what, "--version"))
		printf("hutchd %s\n", HUTCH_VERSION);
	else
		config_help(stdout);
	return fflush(stdout) ? 1 : 0;
}

static int refuse(const struct err *e)
{
	fprintf(stderr, "hutchd: %s\n", e->text);
	return err_info(e->code)->exit_status;
}

static void set_log_level(const char *name)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]) && !getenv("HUTCH_LOG"))
			log_set_level((enum log_level)i);
}

/* ---- end -------------------------------------------------------------- */

/*
 * Draining: commands go on and who follows them is answered, new runs are
 * not.  It is over when there is nothing to wait for any more, or at
 * drain_seconds.  Had there been something, DRAIN_QUIET_MS more are for its
 * followers, who ask for the end and the last output in calls of their own.
 */
static void drain_check(struct daemon *d)
{
	int64_t now = clock_mono_ms();
	struct http_stats http;
	struct engine_stats engine;
	bool is_quiet;

	http_server_stats(d->services.http, &http);
	engine_stats(d->services.engine, &engine);
	is_quiet = !http.working && !engine.commands_live;
	if (!is_quiet)
		d->drain_quiet_ms = now + DRAIN_QUIET_MS;
	if (is_quiet && now >= d->drain_quiet_ms) {
		loop_stop(d->services.loop);
	} else if (now >= d->drain_end_ms) {
		if (!is_quiet)
			log_warn("drain: %u commands and %u calls did not end "
				 "in %llu s",
				 engine.commands_live, http.working,
				 (unsigned long long)d->config.drain_seconds);
		loop_stop(d->services.loop);
	} else {
		loop_timer_set(d->services.loop, &d->drain, DRAIN_CHECK_MS);
	}
}

static void on_drain_check(struct loop_timer *t)
{
	drain_check(container_of(t, struct daemon, drain));
}

static void on_signal(struct loop_watch *w, uint32_t revents)
{
	struct daemon *d = container_of(w, struct daemon, signals);
	struct services *sv = &d->services;
	struct signalfd_siginfo info;

	(void)revents;
	if (read(w->fd, &info, sizeof(info)) != sizeof(info) ||
	    info.ssi_signo == SIGHUP)
		return;
	log_info("signal=%u state=draining", info.ssi_signo);
	if (!sv->http || http_server_is_draining(sv->http)) {
		loop_stop(sv->loop);
		return;
	}
	http_server_drain(sv->http);
	d->drain_end_ms =
		clock_mono_ms() + (int64_t)d->config.drain_seconds * 1000;
	drain_check(d);
}

static void stop(struct daemon *d)
{
	struct services *sv = &d->services;
	struct err e;

	d->is_stopping = true;
	http_server_destroy(sv->http);
	if (d->lock_fd >= 0)
		state_dir_write(d->config.state_dir, "listen", NULL, &e);
	if (sv->engine)
		engine_destroy(sv->engine);
	if (sv->link)
		link_destroy(sv->link);
	if (sv->store)
		store_close(sv->store);
	auth_destroy(sv->auth);
	if (sv->loop) {
		loop_watch_remove(sv->loop, &d->signals);
		loop_destroy(sv->loop);
		log_limit_summary();
		log_info("state=stopped");
	}
	fd_close(&d->signals.fd);
	fd_close(&d->lock_fd);
}

/* ---- start ------------------------------------------------------------ */

static int start_state(struct daemon *d, struct err *e)
{
	struct config *c = &d->config;
	char path[CONFIG_TEXT_BYTES_MAX + 16];

	d->lock_fd = state_dir_open(c->state_dir, e);
	if (d->lock_fd < 0 || state_dir_node(c->state_dir, c->node, e) ||
	    state_dir_path(c->state_dir, "admin.sock", d->admin_path,
			   sizeof(d->admin_path), e) ||
	    state_dir_path(c->state_dir, "request.key", path, sizeof(path), e))
		return -1;
	state_dir_write(c->state_dir, "listen", NULL, e);
	return canon_key_load(path, d->services.request_key, e);
}

static int start_store(struct daemon *d, struct err *e)
{
	struct services *sv = &d->services;
	char boot_id[64];

	if (process_boot_id(boot_id, sizeof(boot_id), e) ||
	    store_open(&sv->store, sv->loop, d->config.state_dir, e) ||
	    store_recover(sv->store, boot_id, clock_wall_ms(), &sv->n_lost, e))
		return -1;
	if (sv->n_lost)
		log_warn("store: %u records of VMs that ended with the daemon "
			 "are now lost",
			 sv->n_lost);
	return 0;
}

#define POOL_WANTS_MAX 32

struct pool_wants {
	struct pool_want list[POOL_WANTS_MAX];
	size_t n;
	const char *base;
};

static void pool_want_add(void *ctx, const struct config_pool *p)
{
	struct pool_wants *w = ctx;
	struct pool_want *one = &w->list[w->n];

	if (w->n == POOL_WANTS_MAX) {
		log_warn("pool: more than %d kinds are wanted", POOL_WANTS_MAX);
		return;
	}
	snprintf(one->base, sizeof(one->base), "%s", w->base);
	one->limits = (struct limits){p->vcpus, p->memory_mib, p->disk_mib};
	one->count = p->count;
	w->n++;
}

/* The texts were checked when they were set. */
static void pool_wants_read(struct pool_wants *w, const struct config *c)
{
	const struct {
		const char *base, *text;
	} all[] = {
		{"lbb/python", c->pool_python},
		{"lbb/node", c->pool_node},
		{"lbb/shell", c->pool_shell},
	};
	struct err e;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		w->base = all[i].base;
		(void)config_pool_each(all[i].text, pool_want_add, w, &e);
	}
}

static int start_vms(struct daemon *d, struct err *e)
{
	struct pool_wants wants = {0};
	struct services *sv = &d->services;
	const struct config *c = &d->config;
	struct link_config link = {
		.state_dir = c->state_dir,
		.cache_dir = c->cache_dir,
		.images_dir = c->images_dir,
		.vmm_path = c->vmm_path,
		.init_image = c->init_image,
		.uid_base = (uint32_t)c->uid_base,
		.is_confined = c->is_confined,
		.has_lane = !strcmp(c->lane, "on"),
		.renew_ms = (int64_t)c->snapshot_renew_hours * 3600 * 1000,
		.vmm_die_at = d->vmm_die_at,
	};
	struct engine_config engine = {
		.graph_places = (uint32_t)c->graph_places,
		.environment_places = (uint32_t)c->environment_places,
		.ram_budget_bytes = c->ram_budget_mib << 20,
		.disk_reserve_bytes = c->disk_reserve_mib << 20,
		.snapshots_max_bytes = c->snapshots_max_mib << 20,
		.stopped_max_bytes = c->stopped_max_mib << 20,
		.files_max_bytes = c->files_max_mib << 20,
		.file_max_bytes = c->file_max_mib << 20,
		.state_dir = c->state_dir,
		.node = c->node,
		.pool_max = (uint32_t)c->pool_max,
		.pool_idle_seconds = (uint32_t)c->pool_idle_seconds,
		.pool_wants = wants.list,
	};

	if (link_create(&sv->link, sv->loop, &link, e))
		return -1;
	pool_wants_read(&wants, c);
	engine.n_pool_wants = wants.n;
	return engine_create(&sv->engine, sv->loop, sv->store, sv->link,
			     &engine, e);
}

static int start_http(struct daemon *d, struct err *e)
{
	struct services *sv = &d->services;
	const struct config *c = &d->config;
	struct http_config http = {
		.listen = c->listen,
		.admin_path = d->admin_path,
		.public_url = c->public_url,
		.allowed_hosts = c->allowed_hosts,
		.connections_max = (unsigned)c->connections_max,
		.body_budget_bytes = c->body_budget_mib << 20,
		.is_metrics_open = c->is_metrics_open,
		.tables = tables,
	};
	char line[CONFIG_TEXT_BYTES_MAX + 2];

	if (http_server_create(&sv->http, sv, &http, e))
		return -1;
	snprintf(line, sizeof(line), "%s\n", http_server_address(sv->http));
	if (state_dir_write(c->state_dir, "listen",
			    line[0] == '\n' ? NULL : line, e))
		return -1;
	log_info("state=running listen=%s admin=%s node=%s",
		 http_server_address(sv->http), d->admin_path, c->node);
	if (line[0] != '\n')
		printf("hutchd listens on http://%s\n",
		       http_server_address(sv->http));
	fflush(stdout);
	return 0;
}

/* Keys and grants are known: open for clients. */
static void on_grants(void *ctx, int rc)
{
	struct daemon *d = ctx;
	struct err e;

	/* The store's last answers come in stop(), too. */
	if (d->is_stopping || (!rc && !start_http(d, &e)))
		return;
	if (rc)
		err_set(&e, ERR_INTERNAL, NULL,
			"cannot read keys and grants: %s", strerror(-rc));
	d->exit_status = refuse(&e);
	loop_stop(d->services.loop);
}

static void on_keys(void *ctx, int rc)
{
	struct daemon *d = ctx;

	if (!rc && !d->is_stopping)
		rc = auth_load_grants(d->services.auth, on_grants, d);
	if (rc && !d->is_stopping)
		on_grants(d, rc);
}

static void on_retention_done(void *ctx, int rc)
{
	(void)ctx;
	if (rc)
		log_error("retention failed: %s", strerror(-rc));
}

static void on_retention(struct loop_timer *t)
{
	struct daemon *d = container_of(t, struct daemon, retention);
	struct services *sv = &d->services;
	int rc = store_retention(sv->store, clock_wall_ms(), on_retention_done,
				 NULL);

	if (rc)
		on_retention_done(NULL, rc);
	loop_timer_set(sv->loop, t, RETENTION_EVERY_MS);
}

static void on_log_summary(struct loop_timer *t)
{
	struct daemon *d = container_of(t, struct daemon, log_summary);

	log_limit_summary();
	loop_timer_set(d->services.loop, t, LOG_LIMIT_SUMMARY_MS);
}

/* For tests: HUTCH_DIE_AT of our environment, see api/base/fault.h. */
static int start_dying(struct daemon *d, struct err *e)
{
	const char *at = getenv("HUTCH_DIE_AT");
	int rc = at ? fault_arm(FAULT_OF_HUTCHD, at, e) : 0;

	if (rc < 0)
		return err_wrap(e, "HUTCH_DIE_AT");
	if (!at)
		return 0;
	d->vmm_die_at = rc ? NULL : at;
	log_warn("FOR TESTS: %s dies at %s", rc ? "this daemon" : "hutch-vmm",
		 at);
	return 0;
}

static int start(struct daemon *d, struct err *e)
{
	struct services *sv = &d->services;
	int rc;

	process_prepare();
	if (start_dying(d, e))
		return -1;
	d->signals.fd = process_signals(e);
	if (d->signals.fd < 0 || start_state(d, e))
		return -1;
	rc = loop_create(&sv->loop);
	if (rc)
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot make the event loop (io_uring): %s",
			       strerror(-rc));
	d->signals.events = POLLIN;
	d->signals.fn = on_signal;
	d->drain.fn = on_drain_check;
	d->retention.fn = on_retention;
	d->log_summary.fn = on_log_summary;
	loop_timer_set(sv->loop, &d->log_summary, LOG_LIMIT_SUMMARY_MS);
	if (start_store(d, e) || start_vms(d, e))
		return -1;
	if (loop_watch_add(sv->loop, &d->signals) ||
	    auth_create(&sv->auth, sv->store) ||
	    auth_load(sv->auth, on_keys, d))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	on_retention(&d->retention);
	return 0;
}

int main(int argc, char **argv)
{
	static struct daemon d = {.lock_fd = -1, .signals.fd = -1};
	char exe_dir[CONFIG_TEXT_BYTES_MAX];
	const char *what = NULL;
	struct err e;
	int rc;

	log_init("hutchd");
	log_limit_begin();
	if (clock_is_movable())
		log_warn("FOR TESTS: this daemon's clock is moved by the file "
			 "of HUTCH_TEST_CLOCK");
	if (process_exe_dir(exe_dir, sizeof(exe_dir), &e) ||
	    config_defaults(&d.config, exe_dir, &e))
		return refuse(&e);
	rc = config_args(&d.config, argc, argv, &what, &e);
	if (rc)
		return rc > 0 ? print_what(what) : refuse(&e);
	set_log_level(d.config.log_level);
	d.services.config = &d.config;
	d.services.started_ms = clock_wall_ms();

	if (start(&d, &e)) {
		d.exit_status = refuse(&e);
	} else {
		rc = loop_run(d.services.loop);
		if (rc) {
			log_error("loop: %s", strerror(-rc));
			d.exit_status = err_info(ERR_INTERNAL)->exit_status;
		}
	}
	stop(&d);
	return d.exit_status;
}
