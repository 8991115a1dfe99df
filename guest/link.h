/*
 * The connection to the host: frames over vsock, one at a time.
 *
 * Frames are queued and go out together once a turn (link_flush), because a
 * send costs as much as a small command where the guest's kernel is slow.
 * When the connection drops the queue is thrown away and init connects again
 * for ever; whoever has state to tell does so in `up`.
 *
 * The local port is below 1024, which only root may bind: the host can tell
 * init's connection from one that user code opens.
 */
#ifndef HUTCH_GUEST_LINK_H
#define HUTCH_GUEST_LINK_H

#include "frame.h"
#include "loop.h"
#include "wire.h"

/* Queued bytes beyond which output waits; control frames do not. */
#define LINK_QUEUE_BYTES_HIGH (256u << 10)

struct link {
	struct watch watch;
	struct timer retry;
	struct loop *loop;
	struct frame_reader in;
	struct bytes out;
	size_t out_at;	/* sent bytes at the start of `out` */
	size_t hold_at; /* is_held: what lies behind it waits */
	bool is_up, is_connecting, is_held;
	unsigned retry_ms, next_port;
	void (*up)(void *ctx);	 /* connected: say hello */
	void (*room)(void *ctx); /* the queue is empty again */
	void (*frame)(void *ctx, const struct frame *f);
	void *ctx;
};

int link_init(struct link *l, struct loop *loop);
void link_connect(struct link *l);
/* Use a connected stream socket (tests). */
int link_adopt(struct link *l, int fd);

/* A frame with a ready CBOR payload; len 0 sends the empty map. */
void link_send(struct link *l, enum gp_type type, uint64_t cmd,
	       const struct bytes *payload);
/* A frame whose payload is text, cut at GP_TEXT_BYTES_MAX. */
void link_send_text(struct link *l, enum gp_type type, const char *text);
void link_send_output(struct link *l, uint64_t cmd, enum gp_stream stream,
		      uint64_t offset, uint64_t total, const void *data,
		      size_t len);
/* What was read of a file. */
void link_send_file(struct link *l, uint64_t cmd, uint64_t offset,
		    const void *data, size_t len);
bool link_is_full(const struct link *l);
/* What is queued now goes out, what comes after it waits for link_go; that
 * forgets it instead, if it is_dropped. */
void link_hold(struct link *l);
void link_go(struct link *l, bool is_dropped);
void link_flush(struct link *l);

#endif
