/*
 * What the guest sends: one packet at a time, copied, checked, acted on.
 *
 * A packet that cannot be from this guest to its host is dropped and counted;
 * so is one to another CID, but its REQUEST is answered by RST in that one's
 * name, so that connect fails at once and not by the guest's own time-out.
 * One that names no connection, or breaks a connection's rules, is answered by
 * RST once and leaves no state.  A reset is never answered.  The length in the
 * header is believed only as far as the descriptors go.
 */
#include "vsock_priv.h"
#include <errno.h>

static void on_request(struct vsock *v, const struct vsock_hdr *h,
		       struct conn *c)
{
	if (c && c->state == CONN_GONE) {
		conn_kill(c); /* the guest has forgotten it */
		c = NULL;
	}
	if (c) {
		conn_reset(c); /* twice on one pair of ports */
		return;
	}
	c = conn_new(v, h->src_port, h->dst_port);
	if (!c) {
		rst_add(v, h->src_port, h->dst_port);
		return;
	}
	conn_credit(c, h->buf_alloc, 0);
	v->ops->ask(v->ctx, c->id, c->dst_port);
}

static void on_data(struct conn *c, const struct vsock_hdr *h,
		    const struct vq_chain *chain)
{
	if (c->shut_got & VSOCK_SHUT_SEND) {
		c->v->stats.drops++; /* said that it would send no more */
		return;
	}
	if (h->len == 0)
		return;
	if (h->len > VSOCK_BUF_BYTES - c->buf_len) {
		conn_reset(c); /* beyond what we promised to keep */
		return;
	}
	conn_deliver(c, chain, h->len);
}

/* A packet on a connection that is OPEN or GONE. */
static void on_open(struct conn *c, const struct vsock_hdr *h,
		    const struct vq_chain *chain)
{
	if (conn_credit(c, h->buf_alloc, h->fwd_cnt) < 0) {
		conn_reset(c);
		return;
	}
	switch (h->op) {
	case VSOCK_OP_RW:
		on_data(c, h, chain);
		break;
	case VSOCK_OP_CREDIT_UPDATE:
		break;
	case VSOCK_OP_CREDIT_REQUEST:
		c->due |= DUE_CREDIT;
		break;
	case VSOCK_OP_SHUTDOWN:
		c->shut_got |= h->flags & VSOCK_SHUT_BOTH;
		conn_shutdown_check(c);
		break;
	default:
		conn_reset(c); /* RESPONSE, or no operation at all */
		break;
	}
}

/* From this guest to its host?  Else it is counted, and that is its end. */
static bool is_addressed(struct vsock *v, const struct vsock_hdr *h)
{
	bool is_ours = h->src_cid == v->guest_cid;

	if (is_ours && h->dst_cid == VSOCK_CID_HOST)
		return true;
	v->stats.drops++;
	if (is_ours && h->op == VSOCK_OP_REQUEST)
		rst_add_from(v, h->dst_cid, h->src_port, h->dst_port);
	return false;
}

static bool is_sound(const struct vsock_hdr *h, const struct vq_chain *chain)
{
	return h->type == VSOCK_TYPE_STREAM &&
	       h->len <= chain->in_len - VSOCK_HDR_BYTES &&
	       h->len <= VSOCK_PKT_BYTES_MAX;
}

void vsock_packet_take(struct vsock *v, const struct vq_chain *chain)
{
	struct vsock_hdr h;
	struct conn *c;

	if (vq_in(chain, 0, &h, sizeof(h)) != sizeof(h)) {
		v->stats.drops++;
		return;
	}
	if (!is_addressed(v, &h))
		return;
	c = conn_find(v, h.src_port, h.dst_port);
	if (h.op == VSOCK_OP_RST) {
		if (c)
			conn_kill(c);
		else
			v->stats.drops++;
		return;
	}
	if (!is_sound(&h, chain)) {
		if (c)
			conn_reset(c);
		else
			rst_add(v, h.src_port, h.dst_port);
		return;
	}
	if (h.op == VSOCK_OP_REQUEST)
		on_request(v, &h, c);
	else if (!c)
		rst_add(v, h.src_port, h.dst_port);
	else if (c->state == CONN_ASKED)
		conn_reset(c); /* nothing may come before the RESPONSE */
	else
		on_open(c, &h, chain);
}
