/*
 * virtio-vsock (spec 5.10) with its own muxer: guest streams to descriptors.
 *
 * The guest connects to the host only (CID 2); there is no way from VM to VM
 * and no listening socket.  Each new connection is put to the owner by
 * `ask(conn, port)`; vsock_answer() gives it a connected Unix stream socket
 * or refuses (RST).  Bytes then pass both ways under the credit rules; a slow
 * reader pushes back, nothing is buffered beyond VSOCK_BUF_BYTES a connection.
 *
 * The agent's connection (port GP_PORT_AGENT, first one) survives a snapshot:
 * its 4-tuple, credit counters and unsent bytes are in struct vsock_state, and
 * vsock_attach() joins it to a new descriptor.  All others get a reset: an RST
 * packet each, because the transport reset event of the specification would
 * make Linux drop the agent's connection too.  The event is used when there is
 * no agent.
 */
#ifndef HUTCH_VSOCK_H
#define HUTCH_VSOCK_H

#include "../io.h"
#include "virtio.h"

#define VSOCK_CONNS_MAX	    64
#define VSOCK_BUF_BYTES	    (64u << 10) /* our buf_alloc, a connection */
#define VSOCK_PKT_BYTES_MAX (64u << 10)
/* Resets not yet sent.  The guest's packets are not read beyond the first
 * limit; the rest is room for what comes from the sockets. */
#define VSOCK_RSTS_TX_MAX 128
#define VSOCK_RSTS_MAX	  (VSOCK_RSTS_TX_MAX + 2 * VSOCK_CONNS_MAX)

struct vsock;

struct vsock_ops {
	/* I/O thread, device lock held: must not call back into vsock. */
	void (*ask)(void *ctx, uint32_t conn, uint32_t port);
	/* Bytes passed to (up) or from the socket of host port `port`; for
	 * traces, may be NULL.  The same rules. */
	void (*moved)(void *ctx, uint32_t port, bool is_up, uint32_t len);
};

int vsock_create(struct vsock **ret, struct mem *mem, struct io *io,
		 uint64_t guest_cid, const struct vsock_ops *ops, void *ctx);
void vsock_destroy(struct vsock *v);
struct virtio_dev *vsock_dev(struct vsock *v);

/* Any thread.  fd: owned from now on; -1 refuses.  Unknown `conn`: -ENOENT
 * and fd is closed. */
int vsock_answer(struct vsock *v, uint32_t conn, int fd);

struct vsock_pair { /* guest's, host's */
	uint32_t src_port, dst_port;
};

struct vsock_rst {
	uint64_t host_cid; /* whom the guest spoke to */
	struct vsock_pair of;
};

struct vsock_state {
	uint8_t has_agent;
	uint32_t src_port, dst_port; /* guest's, host's */
	uint32_t rx_cnt, tx_cnt, fwd_cnt;
	uint32_t peer_buf_alloc, peer_fwd_cnt;
	uint32_t unsent_len; /* host to guest, not yet in the ring */
	uint8_t unsent[VSOCK_BUF_BYTES];
	uint32_t undelivered_len; /* guest to host, not yet taken */
	uint8_t undelivered[VSOCK_BUF_BYTES];
	uint32_t n_others; /* connections that get an RST after restore */
	struct vsock_pair other[VSOCK_CONNS_MAX];
	/* What the guest had no buffers for. */
	uint8_t is_credit_due; /* the agent's: it may wait for nothing else */
	uint8_t is_event_due;
	uint32_t n_rsts;
	struct vsock_rst rst[VSOCK_RSTS_MAX];
};
/* VM paused.  Save leaves the device as it was. */
void vsock_save(struct vsock *v, struct vsock_state *s);
int vsock_load(struct vsock *v, const struct vsock_state *s);
/* Join the agent's connection of a loaded state to `fd` (owned from now). */
int vsock_attach(struct vsock *v, int fd);
/* Stop taking bytes from sockets (pause) and go on (resume). */
void vsock_hold(struct vsock *v, bool is_held);

struct vsock_stats {
	uint64_t rx_bytes, tx_bytes, drops, resets;
	uint32_t n_conns;
};
void vsock_stats(struct vsock *v, struct vsock_stats *ret);

#endif
