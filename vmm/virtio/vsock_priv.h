/*
 * Inside of virtio-vsock: shared by vsock.c (queues, life), vsock_packet.c
 * (what the guest sent), vsock_conn.c (connections and their sockets) and
 * vsock_state.c (snapshot).  Nobody else includes this.
 *
 * Everything here runs with the device's lock held, and except for
 * vsock_answer and friends on the I/O thread.
 */
#ifndef HUTCH_VSOCK_PRIV_H
#define HUTCH_VSOCK_PRIV_H

#include "vsock.h"
#include <assert.h>

enum vsock_queue { VSOCK_RX, VSOCK_TX, VSOCK_EVENT, VSOCK_QUEUES };

#define VSOCK_CID_HOST	  2
#define VSOCK_TYPE_STREAM 1

enum vsock_op {
	VSOCK_OP_REQUEST = 1,
	VSOCK_OP_RESPONSE = 2,
	VSOCK_OP_RST = 3,
	VSOCK_OP_SHUTDOWN = 4,
	VSOCK_OP_RW = 5,
	VSOCK_OP_CREDIT_UPDATE = 6,
	VSOCK_OP_CREDIT_REQUEST = 7,
};

enum vsock_shutdown {
	VSOCK_SHUT_RCV = 1,  /* the sender will receive no more */
	VSOCK_SHUT_SEND = 2, /* the sender will send no more */
	VSOCK_SHUT_BOTH = 3,
};

struct vsock_hdr {
	uint64_t src_cid, dst_cid;
	uint32_t src_port, dst_port;
	uint32_t len;
	uint16_t type, op;
	uint32_t flags;
	uint32_t buf_alloc, fwd_cnt;
} __attribute__((packed));
static_assert(sizeof(struct vsock_hdr) == 44, "wire");
#define VSOCK_HDR_BYTES sizeof(struct vsock_hdr)

/* Tell the guest of freed space when it is this much. */
#define VSOCK_CREDIT_STEP (VSOCK_BUF_BYTES / 2)
/* What we take a guest's buf_alloc for at most. */
#define VSOCK_PEER_BUF_MAX (1u << 30)

enum conn_state {
	CONN_ASKED, /* REQUEST came; the owner has not answered */
	CONN_OPEN,  /* fd may be -1: restored and not yet attached */
	CONN_GONE,  /* the host side is closed; the guest was told */
	CONN_DEAD,  /* out of the table; waits for its polls to end */
};

/* Packets that a connection still has to send. */
enum conn_due { DUE_RESPONSE = 1, DUE_CREDIT = 2, DUE_SHUTDOWN = 4 };

struct conn {
	struct io_op rx_op, tx_op; /* polls for POLLIN, POLLOUT */
	struct vsock *v;
	uint32_t id;
	enum conn_state state;
	uint32_t src_port, dst_port; /* guest's, host's */
	bool is_agent;

	bool is_answered; /* answer_fd is to be taken over */
	int answer_fd;	  /* owned */
	int fd;		  /* owned */
	int slot;	  /* fd's registered number, or -1 */

	uint32_t due;
	uint32_t shut_want, shut_got; /* enum vsock_shutdown */

	/* guest to host; all counters wrap */
	uint32_t rx_cnt, fwd_cnt, fwd_told;
	uint8_t *buf; /* owned ring of VSOCK_BUF_BYTES, or NULL */
	uint32_t buf_at, buf_len;
	bool is_writable;

	/* host to guest */
	uint32_t tx_cnt, peer_buf_alloc, peer_fwd_cnt;
	uint8_t *unsent; /* owned: bytes that came with a snapshot */
	uint32_t unsent_at, unsent_len;
	bool is_readable, is_eof;
};

struct vsock {
	struct virtio_dev dev; /* first */
	struct io *io;	       /* borrowed */
	uint64_t guest_cid;
	const struct vsock_ops *ops;
	void *ctx;

	struct conn *conn[VSOCK_CONNS_MAX]; /* owned */
	uint32_t n_conns, n_dead, next_id;
	uint32_t turn; /* round robin over conn */
	struct vsock_rst rst[VSOCK_RSTS_MAX];
	uint32_t rst_at, n_rsts;
	bool is_tx_stalled; /* too many resets to send */
	bool is_rx_dry;	    /* no receive buffers: wait for a kick */
	bool is_event_due;  /* transport reset */
	bool is_missed;	    /* a pump was asked for and did nothing */
	struct vsock_stats stats;
	struct vq_chain chain; /* scratch */
};

/* vsock.c */
void vsock_pump(struct vsock *v); /* all queues; interrupts at the end */

/* vsock_packet.c */
void vsock_packet_take(struct vsock *v, const struct vq_chain *c);

/* vsock_conn.c */
struct conn *conn_new(struct vsock *v, uint32_t src_port, uint32_t dst_port);
struct conn *conn_find(struct vsock *v, uint32_t src_port, uint32_t dst_port);
/* Drop it, close its socket; the guest is told nothing. */
void conn_kill(struct conn *c);
/* Tell the guest by RST and drop it. */
void conn_reset(struct conn *c);
void conns_kill_all(struct vsock *v);
void rst_add(struct vsock *v, uint32_t guest_port, uint32_t host_port);
/* The same, as from another than the host. */
void rst_add_from(struct vsock *v, uint64_t cid, uint32_t guest_port,
		  uint32_t host_port);
/* Take over the owner's answer. */
void conn_answered(struct conn *c);
/* New numbers from a packet; -EPROTO if they cannot be. */
int conn_credit(struct conn *c, uint32_t buf_alloc, uint32_t fwd_cnt);
/* Bytes that may be sent to the guest now. */
uint32_t conn_room(const struct conn *c);
/* Payload of a packet, to the socket or the buffer. */
void conn_deliver(struct conn *c, const struct vq_chain *chain, uint32_t len);
/* Buffered bytes to the socket; closes what is through. */
void conn_flush(struct conn *c);
/* Read from the socket into a receive buffer behind the header: bytes, or 0
 * when there is nothing (now); the connection may be gone after it. */
uint32_t conn_fill(struct conn *c, const struct vq_chain *chain);
bool conn_can_fill(const struct conn *c);
/* Wait for the socket where there is something to wait for. */
void conn_arm(struct conn *c);
/* After a change of shut_got or the buffer. */
void conn_shutdown_check(struct conn *c);

#endif
