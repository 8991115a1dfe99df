/* Listeners and connections; see server.h for the theory. */
#include "server.h"
#include "../clock.h"
#include "fd.h"
#include "listen.h"
#include "log.h"
#include "server_priv.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- MHD in the loop -------------------------------------------------- */

void http_listener_turn(struct http_listener *l)
{
	MHD_UNSIGNED_LONG_LONG ms;

	MHD_run(l->mhd);
	if (MHD_get_timeout(l->mhd, &ms) == MHD_YES)
		loop_timer_set(l->server->services->loop, &l->timer,
			       ms < 60000 ? (int64_t)ms : 60000);
	else
		loop_timer_stop(l->server->services->loop, &l->timer);
}

static void on_epoll(struct loop_watch *w, uint32_t revents)
{
	(void)revents;
	http_listener_turn(container_of(w, struct http_listener, watch));
}

static void on_timeout(struct loop_timer *t)
{
	http_listener_turn(container_of(t, struct http_listener, timer));
}

static void on_wake(void *arg)
{
	struct http_listener *l = arg;

	l->is_waking = false;
	if (l->mhd)
		http_listener_turn(l);
	http_server_free_if_done(l->server);
}

void http_listener_wake(struct http_listener *l)
{
	if (l->is_waking)
		return;
	l->is_waking = true;
	l->wake.fn = on_wake;
	l->wake.arg = l;
	loop_post_call(l->server->services->loop, &l->wake);
}

static void on_log(void *cls, const char *fmt, va_list ap)
{
	char text[256];

	(void)cls;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	vsnprintf(text, sizeof(text), fmt, ap);
#pragma GCC diagnostic pop
	log_debug("http mhd=\"%s\"", log_quoted(text, strcspn(text, "\n")).s);
}

/* ---- listeners -------------------------------------------------------- */

static int listener_start(struct http_listener *l, int fd, struct err *e)
{
	struct http_server *s = l->server;
	const union MHD_DaemonInfo *info;

	l->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
			MHD_USE_NO_LISTEN_SOCKET,
		0, NULL, NULL, request_on_data, l, MHD_OPTION_EXTERNAL_LOGGER,
		on_log, NULL, MHD_OPTION_CONNECTION_LIMIT,
		l->connections_max + HTTP_ACCEPT_BATCH,
		MHD_OPTION_CONNECTION_TIMEOUT, 0u,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)HTTP_CONN_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
		MHD_OPTION_URI_LOG_CALLBACK, request_on_uri, l,
		MHD_OPTION_NOTIFY_COMPLETED, request_on_done, l,
		MHD_OPTION_NOTIFY_CONNECTION, conn_on_change, l,
		MHD_OPTION_END);
	l->accept.fd = fd;
	if (!l->mhd) {
		fd_close(&l->accept.fd);
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot start the HTTP server: %m");
	}
	info = MHD_get_daemon_info(l->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	l->watch.fn = on_epoll;
	l->watch.fd = info->epoll_fd;
	l->watch.events = POLLIN;
	l->timer.fn = on_timeout;
	if (loop_watch_add(s->services->loop, &l->watch) ||
	    conn_accept_begin(l))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	http_listener_turn(l);
	return 0;
}

static void listener_stop(struct http_listener *l)
{
	if (!l->mhd)
		return;
	conn_accept_end(l);
	loop_watch_remove(l->server->services->loop, &l->watch);
	loop_timer_stop(l->server->services->loop, &l->timer);
	MHD_stop_daemon(l->mhd);
	l->mhd = NULL;
}

int http_server_create(struct http_server **ret, struct services *sv,
		       const struct http_config *cfg, struct err *e)
{
	struct http_server *s = calloc(1, sizeof(*s));
	int fd;

	if (!s)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	s->services = sv;
	s->cfg = *cfg;
	s->spare_fd = -1;
	s->tcp.server = s->admin.server = s;
	s->admin.is_admin = true;
	conn_limits(s);
	list_init(&s->working);
	list_init(&s->sending);
	if (wrong_keys_init(&s->wrong_keys)) {
		err_set(e, ERR_INTERNAL, NULL, "no random bytes");
		goto failed;
	}
	if (getrandom(&s->id_seed, sizeof(s->id_seed), 0) < 0)
		s->id_seed = (uint64_t)clock_mono_us();
	fd = listen_unix(cfg->admin_path, e);
	if (fd < 0 || listener_start(&s->admin, fd, e))
		goto failed;
	if (strcmp(cfg->listen, "none")) {
		fd = listen_tcp(cfg->listen, s->address, sizeof(s->address),
				&s->tcp.is_loopback, e);
		if (fd < 0 || listener_start(&s->tcp, fd, e))
			goto failed;
	}
	if (*cfg->public_url)
		snprintf(s->public_url, sizeof(s->public_url), "%s",
			 cfg->public_url);
	else if (*s->address)
		snprintf(s->public_url, sizeof(s->public_url), "http://%s",
			 s->address);
	*ret = s;
	return 0;
failed:
	http_server_destroy(s);
	return -1;
}

static void answer_all(struct http_server *s)
{
	struct list *pos, *tmp;
	struct err e;

	err_set(&e, ERR_UNAVAILABLE, NULL, NULL);
	list_for_each_safe(pos, tmp, &s->working)
	{
		struct request_priv *p =
			container_of(pos, struct request_priv, node);

		request_give_up(&p->request, &e);
	}
}

void http_server_destroy(struct http_server *s)
{
	if (!s)
		return;
	s->is_draining = true;
	answer_all(s);
	file_bodies_end(s);
	/* Resume and queue, then write: MHD panics when it is stopped with a
	 * connection that sleeps. */
	for (int i = 0; i < 4; i++) {
		if (s->tcp.mhd)
			MHD_run(s->tcp.mhd);
		if (s->admin.mhd)
			MHD_run(s->admin.mhd);
	}
	listener_stop(&s->tcp);
	listener_stop(&s->admin);
	fd_close(&s->spare_fd);
	unlink(s->cfg.admin_path);
	s->is_closed = true;
	http_server_free_if_done(s);
}

/* An engine that still owes an answer finds its request and us alive. */
void http_server_free_if_done(struct http_server *s)
{
	if (s->is_closed && list_is_empty(&s->working) && !s->tcp.is_waking &&
	    !s->admin.is_waking)
		free(s);
}

const char *http_server_address(const struct http_server *s)
{
	return s->address;
}

void http_server_drain(struct http_server *s)
{
	s->is_draining = true;
}

bool http_server_is_draining(const struct http_server *s)
{
	return s->is_draining;
}

void http_server_stats(const struct http_server *s, struct http_stats *ret)
{
	*ret = s->stats;
}
