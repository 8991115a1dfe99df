/*
 * A virtio-vsock device for the hostile tests: the device, its owner (who
 * answers with socket pairs, refuses or is silent) and a guest that sends any
 * packet it likes and reads what comes.
 */
#ifndef HUTCH_TEST_CHANNEL_H
#define HUTCH_TEST_CHANNEL_H

#include "../../vmm/virtio/vsock.h"
#include "guest.h"

#define CH_CID	       3u
#define CH_HOST	       2u
#define CH_RX_MAX      64
#define CH_ASKS_MAX    128
#define CH_PAYLOAD_MAX 65536u

enum op {
	OP_REQUEST = 1,
	OP_RESPONSE,
	OP_RST,
	OP_SHUTDOWN,
	OP_RW,
	OP_CREDIT,
	OP_CREDIT_REQUEST,
};
enum { RCV = 1, SEND = 2 };

struct pkt {
	uint64_t src_cid, dst_cid;
	uint32_t src_port, dst_port;
	uint32_t len;
	uint16_t type, op;
	uint32_t flags;
	uint32_t buf_alloc, fwd_cnt;
} __attribute__((packed));

enum policy { ANSWER, REFUSE, SILENT };

struct channel {
	struct guest g; /* first */
	struct mem mem;
	struct io *io;
	struct vsock *v;
	unsigned fds_before;

	enum policy policy;
	unsigned n_asks, n_taken; /* asked; handled by channel_run */
	uint32_t ask_conn[CH_ASKS_MAX], ask_port[CH_ASKS_MAX];
	int host_fd; /* of the last answer; owned until taken */

	uint32_t rx_len; /* of each receive buffer */
	gpa_t rx_buf, tx_buf;
	bool rx_posted[CH_RX_MAX];
};

/* Only the device, on memory and io that are there. */
void channel_device(struct channel *c);
void channel_up(struct channel *c, bool use_ring);
/* Canary, a connection and an echo after a reset; then all is closed. */
void channel_down(struct channel *c);
void channel_invariants(struct channel *c);
/* DRIVER_OK with n receive buffers of `len` bytes. */
void channel_start(struct channel *c, unsigned n, uint32_t len);

/* Steps of io, and the owner's answers. */
void channel_run(struct channel *c);
/* Post buffer i again. */
void rx_post(struct channel *c, unsigned i);

/* A packet of a sound guest; what is given overrides, on purpose. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define PKT(...)                                                               \
	(&(struct pkt){.src_cid = CH_CID,                                      \
		       .dst_cid = CH_HOST,                                     \
		       .type = 1,                                              \
		       .buf_alloc = 262144,                                    \
		       __VA_ARGS__})
/* Send; `n` payload bytes follow the header, p->len says what it likes. */
void tx(struct channel *c, const struct pkt *p, const void *payload,
	uint32_t n);
/* The next packet to the guest (its payload in `data`); false = none. */
bool rx(struct channel *c, struct pkt *p, uint8_t *data);
void rx_none(struct channel *c);
/* The next packet must be this operation on these ports (guest's, host's). */
void rx_expect(struct channel *c, enum op op, uint32_t guest_port,
	       uint32_t host_port, struct pkt *p);

/* Connect: REQUEST, answer, RESPONSE; returns the host's end. */
int channel_connect(struct channel *c, uint32_t guest_port, uint32_t host_port);
void channel_close(struct channel *c, uint32_t guest_port, uint32_t host_port);
void send_data(struct channel *c, uint32_t guest_port, uint32_t host_port,
	       uint32_t fwd_cnt, const void *data, uint32_t n);
struct vsock_stats channel_stats(struct channel *c);
/* 1 = readable within `ms`, 0 = not. */
int fd_readable(int fd, int ms);

#endif
