/*
 * What a snapshot keeps of vsock: the agent's connection, and who else must
 * be told that theirs is gone.
 *
 * The guest's kernel lives on in the snapshot and believes in its connections.
 * The agent's is continued byte for byte: counters, what the socket had not
 * taken (undelivered) and what the guest had not yet been given (unsent: read
 * by MSG_PEEK, so that the running VM loses nothing by being saved).
 */
#include "vsock_priv.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Can it be continued?  Half-closed or unborn ones are reset instead. */
static bool is_whole_agent(const struct conn *c)
{
	return c->is_agent && c->state == CONN_OPEN && !c->is_eof &&
	       !c->shut_got && !c->shut_want && !(c->due & DUE_RESPONSE);
}

static void agent_save(const struct conn *c, struct vsock_state *s)
{
	uint32_t part = VSOCK_BUF_BYTES - c->buf_at;
	ssize_t r = 0;

	s->has_agent = 1;
	s->src_port = c->src_port;
	s->dst_port = c->dst_port;
	s->rx_cnt = c->rx_cnt;
	s->tx_cnt = c->tx_cnt;
	s->fwd_cnt = c->fwd_cnt;
	s->peer_buf_alloc = c->peer_buf_alloc;
	s->peer_fwd_cnt = c->peer_fwd_cnt;
	s->is_credit_due = c->due & DUE_CREDIT ? 1 : 0;

	if (part > c->buf_len)
		part = c->buf_len;
	s->undelivered_len = c->buf_len;
	if (c->buf_len > 0) {
		memcpy(s->undelivered, c->buf + c->buf_at, part);
		memcpy(s->undelivered + part, c->buf, c->buf_len - part);
	}
	s->unsent_len = c->unsent_len;
	if (c->unsent_len > 0)
		memcpy(s->unsent, c->unsent + c->unsent_at, c->unsent_len);
	if (c->fd >= 0 && s->unsent_len < VSOCK_BUF_BYTES)
		r = recv(c->fd, s->unsent + s->unsent_len,
			 VSOCK_BUF_BYTES - s->unsent_len,
			 MSG_PEEK | MSG_DONTWAIT);
	if (r > 0)
		s->unsent_len += (uint32_t)r;
}

void vsock_save(struct vsock *v, struct vsock_state *s)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_lock(&v->dev.lock);
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++) {
		const struct conn *c = v->conn[i];

		if (!c)
			continue;
		if (is_whole_agent(c)) {
			agent_save(c, s);
			continue;
		}
		s->other[s->n_others].src_port = c->src_port;
		s->other[s->n_others].dst_port = c->dst_port;
		s->n_others++;
	}
	s->is_event_due = v->is_event_due;
	s->n_rsts = v->n_rsts;
	for (uint32_t i = 0; i < v->n_rsts; i++)
		s->rst[i] = v->rst[(v->rst_at + i) % VSOCK_RSTS_MAX];
	pthread_mutex_unlock(&v->dev.lock);
}

static bool is_state_good(const struct vsock_state *s)
{
	return s->has_agent <= 1 && s->is_credit_due <= 1 &&
	       s->is_event_due <= 1 && s->n_rsts <= VSOCK_RSTS_MAX &&
	       s->n_others <= VSOCK_CONNS_MAX &&
	       s->unsent_len <= VSOCK_BUF_BYTES &&
	       s->undelivered_len <= VSOCK_BUF_BYTES &&
	       s->undelivered_len == s->rx_cnt - s->fwd_cnt &&
	       s->tx_cnt - s->peer_fwd_cnt <= VSOCK_PEER_BUF_MAX;
}

static int bytes_load(uint8_t **ret, const uint8_t *src, uint32_t len,
		      size_t cap)
{
	if (len == 0)
		return 0;
	*ret = malloc(cap);
	if (!*ret)
		return -ENOMEM;
	memcpy(*ret, src, len);
	return 0;
}

static int agent_load(struct vsock *v, const struct vsock_state *s)
{
	struct conn *c = conn_new(v, s->src_port, s->dst_port);

	if (!c)
		return -ENOMEM;
	if (bytes_load(&c->buf, s->undelivered, s->undelivered_len,
		       VSOCK_BUF_BYTES) < 0 ||
	    bytes_load(&c->unsent, s->unsent, s->unsent_len, s->unsent_len) <
		    0) {
		conn_kill(c);
		return -ENOMEM;
	}
	c->is_agent = true;
	c->state = CONN_OPEN;
	c->buf_len = s->undelivered_len;
	c->unsent_len = s->unsent_len;
	c->rx_cnt = s->rx_cnt;
	c->tx_cnt = s->tx_cnt;
	c->fwd_cnt = s->fwd_cnt;
	/* What the guest was told is not kept: tell it at the next step, or at
	 * once when that was due. */
	c->fwd_told = s->fwd_cnt - (VSOCK_CREDIT_STEP - 1);
	c->due = s->is_credit_due ? DUE_CREDIT : 0;
	c->peer_buf_alloc = s->peer_buf_alloc < VSOCK_PEER_BUF_MAX
				    ? s->peer_buf_alloc
				    : VSOCK_PEER_BUF_MAX;
	c->peer_fwd_cnt = s->peer_fwd_cnt;
	return 0;
}

static void resets_load(struct vsock *v, const struct vsock_state *s)
{
	v->is_event_due = s->is_event_due || (!s->has_agent && s->n_others > 0);
	for (uint32_t i = 0; i < s->n_rsts; i++)
		rst_add_from(v, s->rst[i].host_cid, s->rst[i].of.src_port,
			     s->rst[i].of.dst_port);
	for (uint32_t i = 0; s->has_agent && i < s->n_others; i++)
		rst_add(v, s->other[i].src_port, s->other[i].dst_port);
}

int vsock_load(struct vsock *v, const struct vsock_state *s)
{
	int r = 0;

	if (!is_state_good(s))
		return -EPROTO;
	pthread_mutex_lock(&v->dev.lock);
	if (v->n_conns > 0)
		r = -EBUSY;
	else if (s->has_agent)
		r = agent_load(v, s);
	if (r == 0)
		resets_load(v, s);
	v->dev.kicked |= 1u << VSOCK_RX;
	pthread_mutex_unlock(&v->dev.lock);
	return r;
}

int vsock_attach(struct vsock *v, int fd)
{
	int r = -ENOENT;

	pthread_mutex_lock(&v->dev.lock);
	for (unsigned i = 0; i < VSOCK_CONNS_MAX; i++) {
		struct conn *c = v->conn[i];

		if (!c || !c->is_agent || c->state != CONN_OPEN || c->fd >= 0 ||
		    c->is_answered)
			continue;
		c->is_answered = true;
		c->answer_fd = fd;
		v->dev.kicked |= 1u << VSOCK_RX;
		r = 0;
		break;
	}
	pthread_mutex_unlock(&v->dev.lock);
	if (r == 0)
		io_wake(v->io);
	else if (fd >= 0)
		close(fd);
	return r;
}
