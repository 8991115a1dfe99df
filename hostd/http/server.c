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

static const int phase_ms[] = {
	[CONN_HEAD] = HTTP_HEAD_MS, [CONN_BODY] = HTTP_BODY_MS, [CONN_WORK] = 0,
	[CONN_SEND] = HTTP_SEND_MS, [CONN_IDLE] = HTTP_IDLE_MS,
};

/* ---- MHD in the loop -------------------------------------------------- */

static void turn(struct http_listener *l)
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
	turn(container_of(w, struct http_listener, watch));
}

static void on_timeout(struct loop_timer *t)
{
	turn(container_of(t, struct http_listener, timer));
}

static void on_wake(void *arg)
{
	struct http_listener *l = arg;

	l->is_waking = false;
	if (l->mhd)
		turn(l);
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

/* ---- connections ------------------------------------------------------ */

static void on_deadline(struct loop_timer *t)
{
	struct http_conn *c = container_of(t, struct http_conn, timer);

	c->listener->server->stats.timeouts++;
	log_debug("http client too slow phase=%d", (int)c->phase);
	/* MHD sees the end of the stream and closes it in its own order. */
	shutdown(c->fd, SHUT_RDWR);
}

void http_conn_phase(struct http_conn *c, enum conn_phase phase)
{
	struct loop *loop = c->listener->server->services->loop;

	c->phase = phase;
	if (phase_ms[phase])
		loop_timer_set(loop, &c->timer, phase_ms[phase]);
	else
		loop_timer_stop(loop, &c->timer);
}

/* Only root and the daemon's own user; the socket's mode says the same. */
static bool is_own_user(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) &&
	       (who.uid == 0 || who.uid == getuid());
}

static void conn_opened(struct http_listener *l, struct MHD_Connection *mhd,
			void **socket_context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_conn *c = calloc(1, sizeof(*c));

	*socket_context = c;
	l->server->stats.connections++;
	l->server->stats.open_connections++;
	if (!c) {
		shutdown(info->connect_fd, SHUT_RDWR);
		return;
	}
	c->listener = l;
	c->timer.fn = on_deadline;
	c->fd = info->connect_fd;
	c->is_refused = l->is_admin && !is_own_user(c->fd);
	http_conn_phase(c, CONN_HEAD);
}

static void on_connection(void *cls, struct MHD_Connection *mhd,
			  void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct http_listener *l = cls;
	struct http_conn *c = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		conn_opened(l, mhd, socket_context);
		return;
	}
	l->server->stats.open_connections--;
	if (c)
		loop_timer_stop(l->server->services->loop, &c->timer);
	free(c);
	*socket_context = NULL;
}

/* ---- listeners -------------------------------------------------------- */

static int listener_start(struct http_listener *l, int fd, struct err *e)
{
	struct http_server *s = l->server;
	const union MHD_DaemonInfo *info;

	l->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0,
		NULL, NULL, request_on_data, l, MHD_OPTION_EXTERNAL_LOGGER,
		on_log, NULL, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd,
		MHD_OPTION_CONNECTION_LIMIT, s->cfg.connections_max,
		MHD_OPTION_CONNECTION_TIMEOUT, 0u,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)HTTP_CONN_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
		MHD_OPTION_URI_LOG_CALLBACK, request_on_uri, l,
		MHD_OPTION_NOTIFY_COMPLETED, request_on_done, l,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, l, MHD_OPTION_END);
	if (!l->mhd) {
		close(fd);
		return err_set(e, ERR_INTERNAL, NULL,
			       "cannot start the HTTP server: %m");
	}
	info = MHD_get_daemon_info(l->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	l->watch.fn = on_epoll;
	l->watch.fd = info->epoll_fd;
	l->watch.events = POLLIN;
	l->timer.fn = on_timeout;
	if (loop_watch_add(s->services->loop, &l->watch))
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	turn(l);
	return 0;
}

static void listener_stop(struct http_listener *l)
{
	if (!l->mhd)
		return;
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
	s->tcp.server = s->admin.server = s;
	s->admin.is_admin = true;
	list_init(&s->working);
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

void http_server_drain(struct http_server *s, void (*drained)(void *ctx),
		       void *ctx)
{
	s->is_draining = true;
	s->drained = drained;
	s->drained_ctx = ctx;
	http_server_check_drained(s);
}

void http_server_check_drained(struct http_server *s)
{
	void (*fn)(void *ctx) = s->drained;

	if (!fn || !list_is_empty(&s->working))
		return;
	s->drained = NULL;
	fn(s->drained_ctx);
}

bool http_server_is_draining(const struct http_server *s)
{
	return s->is_draining;
}

void http_server_stats(const struct http_server *s, struct http_stats *ret)
{
	*ret = s->stats;
}
