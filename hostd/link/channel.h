/*
 * Our end of a VM's byte stream: a socket, what waits to be written, and a
 * session that what is read goes to.
 *
 * Writing: frames are appended to `out`; channel_flush writes what the socket
 * takes and leaves the rest to the loop.  More than CHANNEL_OUT_BYTES_MAX
 * waiting is refused to the caller (channel_room).
 *
 * Reading is bounded in bytes a second: a guest that floods the channel is
 * paused, not served at the cost of the others.
 */
#ifndef HUTCHD_CHANNEL_H
#define HUTCHD_CHANNEL_H

#include "../loop.h"
#include "bytes.h"
#include "session.h"

#define CHANNEL_OUT_BYTES_MAX (16u << 20)
#define CHANNEL_READ_BYTES    (64u << 10)
/* An honest guest sends at most 192 KiB a second and command; this is for
 * some dozens of them, and for the flood at which a guest is paused. */
#define CHANNEL_IN_BYTES_PER_S (16u << 20)
#define CHANNEL_IN_WINDOW_MS   100

struct channel {
	struct loop *loop;
	struct loop_watch watch; /* fd: ours, owned */
	struct loop_timer pause;
	struct bytes out;
	size_t out_at; /* of `out`: written already */
	struct session *session;
	int64_t window_ms; /* start of the present window */
	size_t window_bytes;
	/* The channel ended: -EPIPE end of file, -EPROTO the session broke the
	 * rules, another errno.  Called once, from the loop; the channel is
	 * closed and may be finished from within. */
	void (*ended)(struct channel *c, int rc);
};

/* Makes the socket pair; *ret_peer is the VM's end, the caller's. */
int channel_open(struct channel *c, struct loop *loop, struct session *session,
		 void (*ended)(struct channel *c, int rc), int *ret_peer);
void channel_close(struct channel *c); /* may be called twice */

size_t channel_room(const struct channel *c);
/* Write what `out` holds; errors come by `ended`. */
void channel_flush(struct channel *c);

#endif
