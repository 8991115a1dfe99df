/* The channel's socket; see channel.h. */
#include "channel.h"
#include "../clock.h"
#include "fd.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A request of 1 MiB should leave in one go. */
#define CHANNEL_SNDBUF_BYTES (4 << 20)
/* An idle channel keeps no more than this of a queue that was long. */
#define CHANNEL_IDLE_BYTES (16u << 10)

static void channel_end(struct channel *c, int rc)
{
	channel_close(c);
	c->ended(c, rc);
}

/* Bytes that may still be read in this window; 0 pauses until the next. */
static size_t window_room(struct channel *c)
{
	const size_t max =
		(size_t)CHANNEL_IN_BYTES_PER_S * CHANNEL_IN_WINDOW_MS / 1000;
	int64_t now = clock_mono_ms();

	if (now - c->window_ms >= CHANNEL_IN_WINDOW_MS) {
		c->window_ms = now;
		c->window_bytes = 0;
	}
	return c->window_bytes < max ? max - c->window_bytes : 0;
}

static uint32_t events_wanted(const struct channel *c)
{
	uint32_t ev = c->pause.heap_idx ? 0 : POLLIN;

	return ev | (c->out.len > c->out_at ? POLLOUT : 0);
}

static void on_pause_end(struct loop_timer *t)
{
	struct channel *c = container_of(t, struct channel, pause);

	if (c->watch.fd >= 0)
		loop_watch_mod(c->loop, &c->watch, events_wanted(c));
}

/* 0, or the error that ended the channel. */
static int read_some(struct channel *c)
{
	static uint8_t buf[CHANNEL_READ_BYTES]; /* loop thread only */
	size_t room = window_room(c);
	ssize_t n;

	if (!room) {
		loop_timer_set(c->loop, &c->pause, CHANNEL_IN_WINDOW_MS);
		return 0;
	}
	n = recv(c->watch.fd, buf, room < sizeof(buf) ? room : sizeof(buf),
		 MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	c->window_bytes += (size_t)n;
	return session_feed(c->session, buf, (size_t)n);
}

static int write_some(struct channel *c)
{
	while (c->out_at < c->out.len) {
		ssize_t n = send(c->watch.fd, c->out.data + c->out_at,
				 c->out.len - c->out_at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		c->out_at += (size_t)n;
	}
	/* What was sent may be a command's env: it does not wait here for the
	 * next frame. */
	if (c->out.cap > CHANNEL_IDLE_BYTES)
		bytes_finish_secret(&c->out);
	else if (c->out.len)
		explicit_bzero(c->out.data, c->out.len);
	c->out.len = 0;
	c->out_at = 0;
	return 0;
}

static void on_socket(struct loop_watch *w, uint32_t revents)
{
	struct channel *c = container_of(w, struct channel, watch);
	int rc = 0;

	if (revents & POLLOUT)
		rc = write_some(c);
	/* A peer that is gone may have left bytes: read to the end. */
	if (!rc && !c->pause.heap_idx &&
	    (revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)))
		rc = read_some(c);
	if (w->fd < 0)
		return; /* closed from within an event */
	if (rc < 0)
		channel_end(c, rc);
	else
		loop_watch_mod(c->loop, w, events_wanted(c));
}

int channel_open(struct channel *c, struct loop *loop, struct session *session,
		 void (*ended)(struct channel *c, int rc), int *ret_peer)
{
	int sv[2], size = CHANNEL_SNDBUF_BYTES, rc;

	memset(c, 0, sizeof(*c));
	c->loop = loop;
	c->session = session;
	c->ended = ended;
	c->pause.fn = on_pause_end;
	c->watch = (struct loop_watch){on_socket, -1, POLLIN, NULL};
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		       sv))
		return -errno;
	/* Over wmem_max only with CAP_NET_ADMIN; less is only slower. */
	if (setsockopt(sv[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)))
		setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	c->watch.fd = sv[0];
	rc = loop_watch_add(loop, &c->watch);
	if (rc) {
		close(sv[1]);
		channel_close(c);
		return rc;
	}
	*ret_peer = sv[1];
	return 0;
}

void channel_close(struct channel *c)
{
	if (!c->loop)
		return;
	loop_timer_stop(c->loop, &c->pause);
	loop_watch_remove(c->loop, &c->watch);
	fd_close(&c->watch.fd);
	bytes_finish_secret(&c->out);
	c->out_at = 0;
}

size_t channel_room(const struct channel *c)
{
	size_t used = c->out.len - c->out_at;

	return used < CHANNEL_OUT_BYTES_MAX ? CHANNEL_OUT_BYTES_MAX - used : 0;
}

void channel_flush(struct channel *c)
{
	if (c->watch.fd < 0 || c->out_at == c->out.len)
		return;
	/* An error is told by the loop, which sees it on the socket, too: the
	 * caller may not expect `ended` from within. */
	(void)write_some(c);
	loop_watch_mod(c->loop, &c->watch, events_wanted(c));
}
