/* Head and tail of an output stream; see stream.h. */
#include "stream.h"
#include "fd.h"
#include "limits.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define READ_BYTES (128u << 10)
/* Of one visit: a writer on another CPU must not keep init here. */
#define VISIT_BYTES_MAX (4u << 20)
static_assert(VISIT_BYTES_MAX > OUTPUT_TAIL_BYTES_MAX + READ_BYTES,
	      "a visit refills the ring after a gap");

void stream_init(struct stream *s, int fd, uint64_t head_max, uint64_t tail_max)
{
	memset(s, 0, sizeof(*s));
	s->fd = fd;
	s->head_max = head_max < OUTPUT_HEAD_BYTES_MAX ? head_max
						       : OUTPUT_HEAD_BYTES_MAX;
	s->tail_max = tail_max < OUTPUT_TAIL_BYTES_MAX ? tail_max
						       : OUTPUT_TAIL_BYTES_MAX;
}

void stream_finish(struct stream *s)
{
	fd_close(&s->fd);
	bytes_finish(&s->head);
	free(s->ring);
	s->ring = NULL;
}

void stream_reset(struct stream *s, uint64_t head_max, uint64_t tail_max)
{
	int fd = fd_take(&s->fd);

	stream_finish(s);
	stream_init(s, fd, head_max, tail_max);
}

static int ring_put(struct stream *s, const uint8_t *p, size_t len)
{
	if (!s->tail_max) {
		s->total += len;
		return 0;
	}
	if (!s->ring)
		s->ring = malloc(s->tail_max);
	if (!s->ring) {
		s->total += len;
		return -ENOMEM;
	}
	if (len > s->tail_max) {
		s->total += len - s->tail_max;
		p += len - s->tail_max;
		len = s->tail_max;
	}
	while (len) {
		size_t at = s->total % s->tail_max;
		size_t n = s->tail_max - at;

		if (n > len)
			n = len;
		memcpy(s->ring + at, p, n);
		s->total += n;
		p += n;
		len -= n;
	}
	return 0;
}

int stream_push(struct stream *s, const void *data, size_t len)
{
	const uint8_t *p = data;

	if (s->total < s->head_max) {
		uint64_t room = s->head_max - s->total;
		size_t n = len < room ? len : (size_t)room;

		if (bytes_append(&s->head, p, n)) {
			/* No memory: the head ends here. */
			s->head_max = s->total;
			return ring_put(s, p, len);
		}
		s->total += n;
		p += n;
		len -= n;
	}
	return len ? ring_put(s, p, len) : 0;
}

/* Throw away what the pipe holds beyond the tail; nothing is copied. */
static void skip_flood(struct stream *s, int null_fd)
{
	int held = 0;

	if (ioctl(s->fd, FIONREAD, &held) || held < 0)
		return;
	while ((uint64_t)held > s->tail_max + READ_BYTES) {
		size_t want = (size_t)held - s->tail_max;
		ssize_t n = splice(s->fd, NULL, null_fd, NULL, want,
				   SPLICE_F_NONBLOCK);

		if (n <= 0)
			return;
		/* The ring's bytes before this gap are no longer the tail. */
		s->total += (uint64_t)n;
		held -= (int)n;
	}
}

int stream_pull(struct stream *s, int null_fd)
{
	static uint8_t buf[READ_BYTES];
	size_t got = 0;

	if (s->fd < 0)
		return -EPIPE;
	if (stream_is_past_head(s) && null_fd >= 0)
		skip_flood(s, null_fd);
	for (;;) {
		ssize_t n = read(s->fd, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return got > 0;
		if (n <= 0) {
			fd_close(&s->fd);
			return -EPIPE;
		}
		stream_push(s, buf, (size_t)n);
		got += (size_t)n;
		/* Less than asked for: the pipe was emptied, at most its end
		 * is left, and that wakes the loop again. */
		if ((size_t)n < sizeof(buf) || got >= VISIT_BYTES_MAX)
			return 1;
	}
}

/* First offset of the kept tail. */
static uint64_t tail_start(const struct stream *s)
{
	uint64_t at = s->head.len;

	if (s->total - at > s->tail_max)
		at = s->total - s->tail_max;
	return at;
}

const uint8_t *stream_next(const struct stream *s, size_t cap,
			   uint64_t *ret_offset, size_t *ret_len)
{
	uint64_t at = s->sent;
	size_t len;

	if (at < s->head.len) {
		len = s->head.len - at;
		*ret_offset = at;
		*ret_len = len < cap ? len : cap;
		return s->head.data + at;
	}
	if (at < tail_start(s))
		at = tail_start(s);
	if (at >= s->total || !s->ring)
		return NULL;
	len = s->tail_max - at % s->tail_max;
	if (len > s->total - at)
		len = s->total - at;
	*ret_offset = at;
	*ret_len = len < cap ? len : cap;
	return s->ring + at % s->tail_max;
}

void stream_sent(struct stream *s, uint64_t offset, size_t len)
{
	s->sent = offset + len;
}

uint64_t stream_unsent(const struct stream *s)
{
	uint64_t n = 0, at = s->sent;

	if (at < s->head.len) {
		n = s->head.len - at;
		at = s->head.len;
	}
	if (at < tail_start(s))
		at = tail_start(s);
	return n + (s->ring && s->total > at ? s->total - at : 0);
}

void stream_rewind(struct stream *s)
{
	s->sent = 0;
}
