/*
 * A vsock connection and its socket.
 *
 *	ASKED --answer--> OPEN --host closed--> GONE --RST from guest--> dead
 *	   \________________\____RST, both sides through___________________/
 *
 * Guest to host: bytes go from the guest's buffers straight into the socket;
 * what the socket does not take is kept in `buf`, at most VSOCK_BUF_BYTES,
 * which is also what the guest was promised (buf_alloc).  fwd_cnt counts what
 * the socket took.
 *
 * Host to guest: bytes are read from the socket straight into the guest's
 * receive buffers, never ahead of its credit, so nothing is kept here.  The
 * socket is polled only while there is credit and a buffer: no spinning.
 *
 * A connection with a poll in flight cannot be freed: it leaves the table and
 * is DEAD until the polls have ended (which shutdown(2) makes them do).
 */
#include "../../api/guest_proto.h"
#include "vsock_priv.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- life ---- */

/* Close the socket of a GONE or DEAD connection once no poll uses it, and
 * free the dead.  true = the connection is still there. */
static bool conn_settle(struct conn *c)
{
	bool is_dead = c->state == CONN_DEAD;

	if (!is_dead && c->state != CONN_GONE)
		return true;
	if (c->rx_op.is_pending || c->tx_op.is_pending)
		return !is_dead;
	io_file_remove(c->v->io, c->slot);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = c->slot = -1;
	if (is_dead) {
		c->v->n_dead--;
		free(c);
	}
	return !is_dead;
}

static void conn_polled(struct conn *c, int res, bool *flag)
{
	struct vsock *v = c->v;

	pthread_mutex_lock(&v->dev.lock);
	if (conn_settle(c)) {
		if (res > 0)
			*flag = true;
		else if (res != -ECANCELED && c->state == CONN_OPEN)
			conn_reset(c);
		vsock_pump(v);
	}
	pthread_mutex_unlock(&v->dev.lock);
}

static void rx_polled(struct io_op *op, int res)
{
	struct conn *c = (struct conn *)(void *)((uint8_t *)op -
						 offsetof(struct conn, rx_op));

	conn_polled(c, res, &c->is_readable);
}

static void tx_polled(struct io_op *op, int res)
{
	struct conn *c = (struct conn *)(void *)((uint8_t *)op -
						 offsetof(struct conn, tx_op));

	conn_polled(c, res, &c->is_writable);
}

static bool has_agent(const struct vsock *v)
{
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++)
		if (v->conn[i] && v->conn[i]->is_agent)
			return true;
	return false;
}

/* A free place in the table; one whose host side is gone gives way. */
static struct conn **place_find(struct vsock *v)
{
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++)
		if (!v->conn[i])
			return &v->conn[i];
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++) {
		if (v->conn[i]->state != CONN_GONE)
			continue;
		conn_reset(v->conn[i]);
		return &v->conn[i];
	}
	return NULL;
}

struct conn *conn_new(struct vsock *v, uint32_t src_port, uint32_t dst_port)
{
	struct conn **place = place_find(v);
	struct conn *c;

	/* The dead are few and short-lived; a flood may not pile them up. */
	if (!place || v->n_dead >= VSOCK_CONNS_MAX)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	if (++v->next_id == 0)
		v->next_id = 1;
	*c = (struct conn){
		.v = v,
		.id = v->next_id,
		.state = CONN_ASKED,
		.src_port = src_port,
		.dst_port = dst_port,
		.answer_fd = -1,
		.fd = -1,
		.slot = -1,
		.is_writable = true,
		.is_agent = dst_port == GP_PORT_AGENT && !has_agent(v),
	};
	c->rx_op.done = rx_polled;
	c->tx_op.done = tx_polled;
	*place = c;
	v->n_conns++;
	return c;
}

struct conn *conn_find(struct vsock *v, uint32_t src_port, uint32_t dst_port)
{
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++) {
		struct conn *c = v->conn[i];

		if (c && c->src_port == src_port && c->dst_port == dst_port)
			return c;
	}
	return NULL;
}

/* Close the socket's side only; polls in flight end by it. */
static void socket_drop(struct conn *c)
{
	free(c->buf);
	free(c->unsent);
	c->buf = c->unsent = NULL;
	c->buf_len = c->unsent_len = 0;
	c->is_readable = false;
	if (c->answer_fd >= 0)
		close(c->answer_fd);
	c->answer_fd = -1;
	if (c->fd >= 0)
		shutdown(c->fd, SHUT_RDWR);
	io_poll_cancel(c->v->io, &c->rx_op);
	io_poll_cancel(c->v->io, &c->tx_op);
}

void conn_kill(struct conn *c)
{
	struct vsock *v = c->v;

	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++)
		if (v->conn[i] == c)
			v->conn[i] = NULL;
	v->n_conns--;
	v->n_dead++;
	socket_drop(c);
	c->state = CONN_DEAD;
	conn_settle(c);
}

void rst_add_from(struct vsock *v, uint64_t cid, uint32_t guest_port,
		  uint32_t host_port)
{
	v->stats.resets++;
	if (v->n_rsts == VSOCK_RSTS_MAX) {
		v->stats.drops++;
		return;
	}
	v->rst[(v->rst_at + v->n_rsts++) % VSOCK_RSTS_MAX] =
		(struct vsock_rst){cid, {guest_port, host_port}};
}

void rst_add(struct vsock *v, uint32_t guest_port, uint32_t host_port)
{
	rst_add_from(v, VSOCK_CID_HOST, guest_port, host_port);
}

void conn_reset(struct conn *c)
{
	rst_add(c->v, c->src_port, c->dst_port);
	conn_kill(c);
}

void conns_kill_all(struct vsock *v)
{
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++)
		if (v->conn[i])
			conn_kill(v->conn[i]);
	v->n_rsts = 0;
	v->is_tx_stalled = v->is_rx_dry = false;
}

/* The host's end is closed both ways: say so, wait for the guest's RST. */
static void conn_gone(struct conn *c)
{
	c->state = CONN_GONE;
	c->is_agent = false;
	c->is_eof = true;
	socket_drop(c);
	c->fwd_cnt = c->rx_cnt;
	c->shut_want = VSOCK_SHUT_BOTH;
	c->due |= DUE_SHUTDOWN;
	conn_settle(c);
}

void conn_answered(struct conn *c)
{
	int fd = c->answer_fd;

	c->is_answered = false;
	c->answer_fd = -1;
	if (fd < 0) {
		conn_reset(c);
		return;
	}
	c->fd = fd;
	c->slot = io_file_add(c->v->io, fd);
	if (c->slot < 0) {
		conn_reset(c);
		return;
	}
	c->rx_op.slot = c->tx_op.slot = c->slot;
	if (c->state == CONN_ASKED)
		c->due |= DUE_RESPONSE;
	c->state = CONN_OPEN;
}

/* ---- credit ---- */

int conn_credit(struct conn *c, uint32_t buf_alloc, uint32_t fwd_cnt)
{
	uint32_t unread = c->tx_cnt - c->peer_fwd_cnt;
	uint32_t step = fwd_cnt - c->peer_fwd_cnt;

	c->peer_buf_alloc =
		buf_alloc < VSOCK_PEER_BUF_MAX ? buf_alloc : VSOCK_PEER_BUF_MAX;
	if (step <= unread) {
		c->peer_fwd_cnt = fwd_cnt;
		return 0;
	}
	/* Two CPUs of a guest may send their counts in the wrong order: an
	 * older one is stale.  One ahead of what was sent is nonsense. */
	return (int32_t)step < 0 ? 0 : -EPROTO;
}

uint32_t conn_room(const struct conn *c)
{
	uint32_t unread = c->tx_cnt - c->peer_fwd_cnt;

	return unread < c->peer_buf_alloc ? c->peer_buf_alloc - unread : 0;
}

/* The socket took `n` bytes. */
static void forwarded(struct conn *c, uint32_t n)
{
	c->fwd_cnt += n;
	c->v->stats.tx_bytes += n;
	if (c->v->ops->moved)
		c->v->ops->moved(c->v->ctx, c->dst_port, true, n);
	if (c->fwd_cnt - c->fwd_told >= VSOCK_CREDIT_STEP)
		c->due |= DUE_CREDIT;
}

/* ---- guest to host ---- */

/* Bytes taken by the socket, 0 if it is full, or -errno. */
static ssize_t socket_send(struct conn *c, struct iovec *iov, int n)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = (size_t)n};
	ssize_t r;

	do {
		r = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (r < 0 && errno == EINTR);
	if (r < 0 && errno == EAGAIN) {
		c->is_writable = false;
		return 0;
	}
	return r < 0 ? -errno : r;
}

/* Keep `len` bytes of the packet from `off`; the credit check has seen that
 * they fit. */
static int buf_add(struct conn *c, const struct vq_chain *chain, uint32_t off,
		   uint32_t len)
{
	uint32_t end, part;

	assert(len <= VSOCK_BUF_BYTES - c->buf_len);
	if (!c->buf) {
		c->buf = malloc(VSOCK_BUF_BYTES);
		if (!c->buf)
			return -ENOMEM;
		c->buf_at = 0;
	}
	end = (c->buf_at + c->buf_len) % VSOCK_BUF_BYTES;
	part = VSOCK_BUF_BYTES - end;
	if (part > len)
		part = len;
	vq_in(chain, off, c->buf + end, part);
	vq_in(chain, off + part, c->buf, len - part);
	c->buf_len += len;
	return 0;
}

void conn_deliver(struct conn *c, const struct vq_chain *chain, uint32_t len)
{
	struct iovec iov[VIRTIO_QUEUE_SIZE_MAX];
	ssize_t sent = 0;
	int n;

	c->rx_cnt += len;
	if (c->state == CONN_GONE) {
		c->fwd_cnt = c->rx_cnt;
		c->v->stats.drops++;
		return;
	}
	if (c->fd >= 0 && c->buf_len == 0 && c->is_writable) {
		n = vq_in_iov(chain, VSOCK_HDR_BYTES, len, iov,
			      VIRTIO_QUEUE_SIZE_MAX);
		sent = socket_send(c, iov, n);
		if (sent < 0) {
			conn_gone(c);
			return;
		}
		/* Not all: it is full, and the rest waits for POLLOUT. */
		if ((uint32_t)sent < len)
			c->is_writable = false;
		forwarded(c, (uint32_t)sent);
	}
	len -= (uint32_t)sent;
	if (len > 0 &&
	    buf_add(c, chain, (uint32_t)(VSOCK_HDR_BYTES + (size_t)sent), len) <
		    0)
		conn_reset(c);
}

void conn_flush(struct conn *c)
{
	while (c->buf_len > 0 && c->fd >= 0 && c->is_writable) {
		uint32_t part = VSOCK_BUF_BYTES - c->buf_at;
		struct iovec iov[2];
		ssize_t r;

		if (part > c->buf_len)
			part = c->buf_len;
		iov[0] = (struct iovec){c->buf + c->buf_at, part};
		iov[1] = (struct iovec){c->buf, c->buf_len - part};
		r = socket_send(c, iov, 2);
		if (r < 0) {
			conn_gone(c);
			return;
		}
		c->buf_at = (c->buf_at + (uint32_t)r) % VSOCK_BUF_BYTES;
		c->buf_len -= (uint32_t)r;
		forwarded(c, (uint32_t)r);
	}
	if (c->buf_len == 0) {
		free(c->buf);
		c->buf = NULL;
	}
	conn_shutdown_check(c);
}

void conn_shutdown_check(struct conn *c)
{
	if (!c->shut_got || c->buf_len > 0)
		return;
	if (c->shut_got == VSOCK_SHUT_BOTH)
		conn_reset(c); /* the answer to a full shutdown */
	else if (c->fd >= 0 && c->state == CONN_OPEN)
		shutdown(c->fd,
			 c->shut_got == VSOCK_SHUT_SEND ? SHUT_WR : SHUT_RD);
}

/* ---- host to guest ---- */

bool conn_can_fill(const struct conn *c)
{
	return c->state == CONN_OPEN && !(c->shut_got & VSOCK_SHUT_RCV) &&
	       conn_room(c) > 0 &&
	       (c->unsent_len > 0 || (c->is_readable && !c->is_eof));
}

/* recv said 0: closed altogether, or only its sending half? */
static void socket_ended(struct conn *c)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	if (poll(&p, 1, 0) == 1 && p.revents & POLLHUP) {
		conn_gone(c);
		return;
	}
	c->is_eof = true;
	c->is_readable = false;
	c->shut_want |= VSOCK_SHUT_SEND;
	c->due |= DUE_SHUTDOWN;
}

static uint32_t unsent_fill(struct conn *c, const struct vq_chain *chain,
			    uint32_t len)
{
	if (len > c->unsent_len)
		len = c->unsent_len;
	vq_out(chain, VSOCK_HDR_BYTES, c->unsent + c->unsent_at, len);
	c->unsent_at += len;
	c->unsent_len -= len;
	if (c->unsent_len == 0) {
		free(c->unsent);
		c->unsent = NULL;
	}
	return len;
}

static ssize_t socket_recv(struct conn *c, const struct vq_chain *chain,
			   uint32_t len)
{
	struct iovec iov[VIRTIO_QUEUE_SIZE_MAX];
	struct msghdr msg = {.msg_iov = iov};
	ssize_t r;
	int n = vq_out_iov(chain, VSOCK_HDR_BYTES, len, iov,
			   VIRTIO_QUEUE_SIZE_MAX);

	msg.msg_iovlen = (size_t)n;
	do {
		r = recvmsg(c->fd, &msg, MSG_DONTWAIT);
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

uint32_t conn_fill(struct conn *c, const struct vq_chain *chain)
{
	uint32_t len = chain->out_len - (uint32_t)VSOCK_HDR_BYTES;
	uint32_t room = conn_room(c);
	ssize_t r;

	if (len > room)
		len = room;
	if (len > VSOCK_PKT_BYTES_MAX)
		len = VSOCK_PKT_BYTES_MAX;
	r = c->unsent_len > 0 ? (ssize_t)unsent_fill(c, chain, len)
			      : socket_recv(c, chain, len);
	if (r > 0) {
		/* A stream gives all it has: less means that it is empty. */
		if ((uint32_t)r < len)
			c->is_readable = false;
		c->tx_cnt += (uint32_t)r;
		c->v->stats.rx_bytes += (uint64_t)r;
		if (c->v->ops->moved)
			c->v->ops->moved(c->v->ctx, c->dst_port, false,
					 (uint32_t)r);
		return (uint32_t)r;
	}
	if (r == 0)
		socket_ended(c);
	else if (r == -EAGAIN)
		c->is_readable = false;
	else
		conn_reset(c);
	return 0;
}

static void arm(struct conn *c, struct io_op *op, uint32_t events)
{
	/* No room for the poll now: come back after a completion. */
	if (!op->is_pending && io_poll(c->v->io, op, events) < 0)
		c->v->dev.kicked |= 1u << VSOCK_RX;
}

void conn_arm(struct conn *c)
{
	if (c->state != CONN_OPEN || c->fd < 0)
		return;
	if (!c->is_readable && !c->is_eof && !c->v->is_rx_dry &&
	    !(c->shut_got & VSOCK_SHUT_RCV) && conn_room(c) > 0)
		arm(c, &c->rx_op, POLLIN);
	if (c->buf_len > 0 && !c->is_writable)
		arm(c, &c->tx_op, POLLOUT);
}
