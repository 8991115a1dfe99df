/* Connection to the host; see link.h. */
#include "link.h"
#include "fd.h"
#include "limits.h"
#include "port.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOCAL_PORT_FIRST 1023 /* and downwards */
#define LOCAL_PORTS	 64
#define HUGE_PAGE_BYTES	 (2u << 20)

static uint8_t read_buf[LINK_READ_BYTES];

static void on_event(struct watch *w, uint32_t events);

static void on_retry(struct timer *t)
{
	link_connect(container_of(t, struct link, retry));
}

/*
 * Where frames of a whole run lie: one huge page, touched here, so that a
 * megabyte of input after a restore costs no page faults.
 */
static void reader_warm(struct frame_reader *r)
{
	uint8_t *p = aligned_alloc(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);

	if (!p)
		return;
	madvise(p, HUGE_PAGE_BYTES, MADV_HUGEPAGE);
	memset(p, 0, HUGE_PAGE_BYTES);
	r->buf = (struct bytes){.data = p, .cap = HUGE_PAGE_BYTES};
	memset(read_buf, 1, sizeof(read_buf));
}

int link_init(struct link *l, struct loop *loop)
{
	l->loop = loop;
	l->watch = (struct watch){.fd = -1, .fn = on_event};
	l->retry = (struct timer){.fn = on_retry};
	l->retry_ms = LINK_RETRY_MS_MIN;
	frame_reader_init(&l->in, GP_DOWN_BYTES_MAX);
	reader_warm(&l->in);
	return bytes_reserve(&l->out, LINK_QUEUE_BYTES_HIGH);
}

static void link_down(struct link *l, const char *why)
{
	uint32_t max = l->in.payload_max;
	struct bytes keep = l->in.buf;

	port_log("channel: %s", why);
	loop_unwatch(l->loop, &l->watch);
	fd_close(&l->watch.fd);
	l->is_up = l->is_connecting = l->is_held = false;
	l->out.len = l->out_at = 0;
	keep.len = 0;
	frame_reader_init(&l->in, max);
	l->in.buf = keep;
	timer_set_in(l->loop, &l->retry, l->retry_ms);
	l->retry_ms *= 2;
	if (l->retry_ms > LINK_RETRY_MS_MAX)
		l->retry_ms = LINK_RETRY_MS_MAX;
}

/* A port that only root may have; the last one may still linger. */
static int port_bind(struct link *l, int fd)
{
	for (int i = 0; i < LOCAL_PORTS; i++) {
		struct sockaddr_vm a = {
			.svm_family = AF_VSOCK,
			.svm_cid = VMADDR_CID_ANY,
			.svm_port =
				LOCAL_PORT_FIRST - l->next_port++ % LOCAL_PORTS,
		};

		if (!bind(fd, (struct sockaddr *)&a, sizeof(a)))
			return 0;
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -EADDRINUSE;
}

static int socket_open(struct link *l)
{
	uint64_t window = LINK_WINDOW_BYTES;
	int fd =
		socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &window,
		   sizeof(window));
	setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &window,
		   sizeof(window));
	rc = port_bind(l, fd);
	if (rc) {
		close(fd);
		return rc;
	}
	return fd;
}

static void link_now_up(struct link *l)
{
	l->is_up = true;
	l->is_connecting = false;
	l->retry_ms = LINK_RETRY_MS_MIN;
	loop_watch(l->loop, &l->watch, EPOLLIN);
	l->up(l->ctx);
}

void link_connect(struct link *l)
{
	struct sockaddr_vm a = {.svm_family = AF_VSOCK,
				.svm_cid = VMADDR_CID_HOST,
				.svm_port = GP_PORT_AGENT};
	int fd = socket_open(l);

	if (fd < 0) {
		link_down(l, strerror(-fd));
		return;
	}
	l->watch.fd = fd;
	if (!connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		link_now_up(l);
	} else if (errno == EINPROGRESS) {
		l->is_connecting = true;
		loop_watch(l->loop, &l->watch, EPOLLOUT);
	} else {
		link_down(l, strerror(errno));
	}
}

int link_adopt(struct link *l, int fd)
{
	l->watch.fd = fd;
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		return -errno;
	link_now_up(l);
	return 0;
}

static void link_read(struct link *l)
{
	struct frame f;
	ssize_t n = recv(l->watch.fd, read_buf, sizeof(read_buf), MSG_DONTWAIT);
	int rc;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		link_down(l, n ? strerror(errno) : "closed by the host");
		return;
	}
	if (frame_feed(&l->in, read_buf, (size_t)n)) {
		link_down(l, "no memory for a frame");
		return;
	}
	while (l->is_up && (rc = frame_next(&l->in, &f)) != 0) {
		if (rc < 0) {
			link_down(l, "broken frame");
			return;
		}
		l->frame(l->ctx, &f);
	}
}

static void on_event(struct watch *w, uint32_t events)
{
	struct link *l = container_of(w, struct link, watch);

	if (l->is_connecting) {
		int error = 0;
		socklen_t len = sizeof(error);

		getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len);
		if (error)
			link_down(l, strerror(error));
		else
			link_now_up(l);
		return;
	}
	if (events & EPOLLOUT)
		link_flush(l);
	if (l->is_up && events & ~(uint32_t)EPOLLOUT)
		link_read(l);
}

bool link_is_full(const struct link *l)
{
	return !l->is_up || l->is_held ||
	       l->out.len - l->out_at > LINK_QUEUE_BYTES_HIGH;
}

/* A frame that cannot be queued ends the connection: what was to be told is
 * kept by its owner and told again. */
static void queue(struct link *l, int rc)
{
	if (rc && l->is_up)
		link_down(l, "no memory for the queue");
}

void link_send(struct link *l, enum gp_type type, uint64_t cmd,
	       const struct bytes *payload)
{
	static const uint8_t empty_map = 0xa0;

	if (!l->is_up)
		return;
	if (payload && payload->len)
		queue(l, frame_append(&l->out, (uint16_t)type, cmd,
				      payload->data, payload->len));
	else
		queue(l, frame_append(&l->out, (uint16_t)type, cmd, &empty_map,
				      1));
}

void link_send_text(struct link *l, enum gp_type type, const char *text)
{
	struct bytes b = {.data = (uint8_t *)(uintptr_t)text,
			  .len = strnlen(text, GP_TEXT_BYTES_MAX)};

	link_send(l, type, 0, &b);
}

/* Bytes behind a head of their own. */
static void send_raw(struct link *l, enum gp_type type, uint64_t cmd,
		     const void *head, size_t head_len, const void *data,
		     size_t len)
{
	struct gp_head h = {
		.len = (uint32_t)(head_len + len),
		.type = (uint16_t)type,
		.cmd = cmd,
	};
	int rc;

	if (!l->is_up)
		return;
	rc = bytes_reserve(&l->out, sizeof(h) + head_len + len);
	if (!rc) {
		bytes_append(&l->out, &h, sizeof(h));
		bytes_append(&l->out, head, head_len);
		bytes_append(&l->out, data, len);
	}
	queue(l, rc);
}

void link_send_output(struct link *l, uint64_t cmd, enum gp_stream stream,
		      uint64_t offset, uint64_t total, const void *data,
		      size_t len)
{
	struct gp_output_head o = {
		.offset = offset, .total = total, .stream = (uint8_t)stream};

	send_raw(l, GP_OUTPUT, cmd, &o, sizeof(o), data, len);
}

void link_send_file(struct link *l, uint64_t cmd, uint64_t offset,
		    const void *data, size_t len)
{
	struct gp_file_head h = {.offset = offset};

	send_raw(l, GP_FILE_DATA, cmd, &h, sizeof(h), data, len);
}

/* Of `out`, so much may be sent. */
static size_t flush_end(const struct link *l)
{
	return l->is_held ? l->hold_at : l->out.len;
}

/* What was sent leaves the queue. */
static void consume(struct link *l)
{
	if (l->is_held)
		l->hold_at -= l->out_at;
	bytes_consume(&l->out, l->out_at);
	l->out_at = 0;
}

void link_hold(struct link *l)
{
	if (l->is_held)
		return;
	l->is_held = true;
	l->hold_at = l->out.len;
}

void link_go(struct link *l, bool is_dropped)
{
	if (!l->is_held)
		return;
	if (is_dropped)
		l->out.len = l->hold_at;
	l->is_held = false;
	l->room(l->ctx);
}

void link_flush(struct link *l)
{
	bool was_waiting = l->watch.events & EPOLLOUT;

	while (l->is_up && l->out_at < flush_end(l)) {
		ssize_t n = send(l->watch.fd, l->out.data + l->out_at,
				 flush_end(l) - l->out_at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			consume(l);
			loop_watch(l->loop, &l->watch, EPOLLIN | EPOLLOUT);
			return;
		}
		if (n < 0) {
			link_down(l, strerror(errno));
			return;
		}
		l->out_at += (size_t)n;
	}
	consume(l);
	if (!l->is_up || !was_waiting)
		return;
	loop_watch(l->loop, &l->watch, EPOLLIN);
	if (!l->is_held)
		l->room(l->ctx);
}
