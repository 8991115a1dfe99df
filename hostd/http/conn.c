/*
 * Connections, from accept to close: their number, their deadlines.
 *
 * A flood of connections must cost neither the daemon's descriptors nor its
 * time, and must not keep out who has something to say:
 *
 *   below connections_max   a new connection is taken
 *   at it                   the one that waited longest for the first byte of
 *                           a request is ended in its favour: first those
 *                           that never sent a whole head, then those between
 *                           two requests
 *   all of them work        the new one is told 503 and closed
 *   no descriptor is left   the same; a spare one is given up to say so
 *   not even that helps     accepting rests for HTTP_ACCEPT_REST_MS
 *
 * The port takes at most half of RLIMIT_NOFILE and the admin socket an eighth:
 * the rest is for VMs and files.  A client that sends its request at once is
 * the youngest of all that wait, and so the last to be ended.
 */
#include "fd.h"
#include "log.h"
#include "server_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define HTTP_ACCEPT_REST_MS 100

static const int phase_ms[] = {
	[CONN_HEAD] = HTTP_HEAD_MS, [CONN_BODY] = HTTP_BODY_MS, [CONN_WORK] = 0,
	[CONN_SEND] = HTTP_SEND_MS, [CONN_IDLE] = HTTP_IDLE_MS,
};

/* ---- deadlines -------------------------------------------------------- */

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
	list_remove(&c->node);
	if (phase == CONN_HEAD && !c->is_evicted)
		list_append(&c->listener->heads, &c->node);
	if (phase == CONN_IDLE && !c->is_evicted)
		list_append(&c->listener->idles, &c->node);
	if (phase_ms[phase])
		loop_timer_set(loop, &c->timer, phase_ms[phase]);
	else
		loop_timer_stop(loop, &c->timer);
}

/* ---- opened and closed ------------------------------------------------ */

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
	l->n_open++;
	l->server->stats.connections++;
	l->server->stats.open_connections++;
	if (!c) {
		shutdown(info->connect_fd, SHUT_RDWR);
		return;
	}
	list_init(&c->node);
	c->listener = l;
	c->timer.fn = on_deadline;
	c->fd = info->connect_fd;
	c->is_refused = l->is_admin && !is_own_user(c->fd);
	http_conn_phase(c, CONN_HEAD);
}

void conn_on_change(void *cls, struct MHD_Connection *mhd,
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
	if (!c || !c->is_evicted)
		l->n_open--;
	if (c) {
		loop_timer_stop(l->server->services->loop, &c->timer);
		list_remove(&c->node);
	}
	free(c);
	*socket_context = NULL;
}

/* ---- room ------------------------------------------------------------- */

/* False: all connections have work. */
static bool evict_one(struct http_listener *l)
{
	struct list *n =
		!list_is_empty(&l->heads) ? l->heads.next : l->idles.next;
	struct http_conn *c;

	if (n == &l->idles)
		return false;
	c = container_of(n, struct http_conn, node);
	list_remove(&c->node);
	c->is_evicted = true;
	l->n_open--;
	l->server->stats.evicted++;
	shutdown(c->fd, SHUT_RDWR);
	return true;
}

/* Best effort, in the envelope of all errors (LBB-9). */
static void refuse(struct http_listener *l, int fd)
{
	static const char body[] =
		"{\"error\":{\"type\":\"api_error\",\"code\":"
		"\"service_unavailable\",\"message\":\"The daemon has as many "
		"connections as it can.\",\"request_id\":null,\"doc_url\":null,"
		"\"retryable\":true,\"retry_after_seconds\":1}}";
	char text[512], unread[2048];
	int n = snprintf(text, sizeof(text),
			 "HTTP/1.1 503 Service Unavailable\r\n"
			 "Content-Type: application/json\r\n"
			 "Content-Length: %zu\r\nRetry-After: 1\r\n"
			 "Connection: close\r\n\r\n%s",
			 sizeof(body) - 1, body);

	l->server->stats.refused++;
	/* Bytes that nobody read turn a close into a reset, which may
	 * overtake the answer. */
	(void)!recv(fd, unread, sizeof(unread), MSG_DONTWAIT);
	(void)!send(fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	close(fd);
}

static int accept_fd(struct http_listener *l, struct sockaddr_storage *peer,
		     socklen_t *len)
{
	*len = sizeof(*peer);
	memset(peer, 0, sizeof(*peer));
	return accept4(l->accept.fd, (struct sockaddr *)peer, len,
		       SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* No descriptor is left: make one free, or say no with the spare one. */
static bool accept_without_room(struct http_listener *l)
{
	struct http_server *s = l->server;
	struct sockaddr_storage peer;
	socklen_t len;
	int fd;

	log_warn("http descriptors are used up (RLIMIT_NOFILE), %u connections",
		 l->n_open);
	if (evict_one(l)) {
		http_listener_turn(l);
		return true;
	}
	fd_close(&s->spare_fd);
	fd = accept_fd(l, &peer, &len);
	if (fd >= 0)
		refuse(l, fd);
	s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd >= 0;
}

/* ---- accepting -------------------------------------------------------- */

enum accepted { ACCEPT_MORE, ACCEPT_DONE, ACCEPT_REST };

static enum accepted accept_one(struct http_listener *l)
{
	struct sockaddr_storage peer;
	socklen_t len;
	int fd = accept_fd(l, &peer, &len);

	if (fd >= 0 && (l->n_open < l->connections_max || evict_one(l))) {
		/* It closes fd itself, also when it fails. */
		MHD_add_connection(l->mhd, fd, (struct sockaddr *)&peer, len);
		return ACCEPT_MORE;
	}
	if (fd >= 0) {
		refuse(l, fd);
		return ACCEPT_MORE;
	}
	switch (errno) {
	case EAGAIN:
		return ACCEPT_DONE;
	case EMFILE:
	case ENFILE:
		return accept_without_room(l) ? ACCEPT_MORE : ACCEPT_REST;
	case ENOMEM:
	case ENOBUFS:
		return ACCEPT_REST;
	default: /* of that connection, not of ours */
		return ACCEPT_MORE;
	}
}

static void on_accept(struct loop_watch *w, uint32_t revents)
{
	struct http_listener *l = container_of(w, struct http_listener, accept);
	struct loop *loop = l->server->services->loop;
	enum accepted rc = ACCEPT_MORE;

	(void)revents;
	for (int i = 0; i < HTTP_ACCEPT_BATCH && rc == ACCEPT_MORE; i++)
		rc = accept_one(l);
	if (rc == ACCEPT_REST) {
		loop_watch_mod(loop, w, 0);
		loop_timer_set(loop, &l->accept_again, HTTP_ACCEPT_REST_MS);
	}
	http_listener_turn(l);
}

static void on_accept_again(struct loop_timer *t)
{
	struct http_listener *l =
		container_of(t, struct http_listener, accept_again);

	loop_watch_mod(l->server->services->loop, &l->accept, POLLIN);
}

void conn_limits(struct http_server *s)
{
	struct rlimit files = {.rlim_cur = 1024};
	rlim_t port, admin;

	getrlimit(RLIMIT_NOFILE, &files);
	port = files.rlim_cur / 2;
	admin = files.rlim_cur / 8;
	s->tcp.connections_max = s->cfg.connections_max;
	if (port < s->cfg.connections_max) {
		s->tcp.connections_max = (unsigned)port;
		log_warn("http connections_max=%u instead of %u: RLIMIT_NOFILE "
			 "is %llu",
			 s->tcp.connections_max, s->cfg.connections_max,
			 (unsigned long long)files.rlim_cur);
	}
	s->admin.connections_max = admin < HTTP_ADMIN_CONNECTIONS_MAX
					   ? (unsigned)admin
					   : HTTP_ADMIN_CONNECTIONS_MAX;
}

int conn_accept_begin(struct http_listener *l)
{
	struct http_server *s = l->server;

	list_init(&l->heads);
	list_init(&l->idles);
	l->accept.fn = on_accept;
	l->accept.events = POLLIN;
	l->accept_again.fn = on_accept_again;
	if (s->spare_fd < 0)
		s->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return loop_watch_add(s->services->loop, &l->accept);
}

void conn_accept_end(struct http_listener *l)
{
	struct loop *loop = l->server->services->loop;

	loop_timer_stop(loop, &l->accept_again);
	loop_watch_remove(loop, &l->accept);
	fd_close(&l->accept.fd);
}
