/*
 * Requests and notices; see control.h and api/vmm_ctl.h.
 *
 * Requests are a table.  The owner is trusted to be our own daemon, but every
 * packet is still checked, and one that is wrong gets -EPROTO, not a crash.
 */
#include "control.h"
#include "fault.h"
#include "fd.h"
#include "guest_proto.h"
#include "log.h"
#include "snapshot/snapshot.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct request {
	struct vmm_msg head;
	uint8_t body[VMM_BODY_BYTES_MAX];
	int fds[FD_PASS_MAX];
	size_t n_fds;
};

static int send_msg(struct control *c, uint32_t type, uint32_t seq, int status,
		    const void *body, size_t len)
{
	static uint8_t packet[sizeof(struct vmm_msg) + VMM_BODY_BYTES_MAX];
	struct vmm_msg head = {
		.type = type,
		.seq = seq,
		.status = status,
		.len = (uint32_t)len,
	};

	if (c->sock < 0)
		return 0;
	memcpy(packet, &head, sizeof(head));
	if (len)
		memcpy(packet + sizeof(head), body, len);
	return fd_send(c->sock, packet, sizeof(head) + len, NULL, 0);
}

static void reply(struct control *c, const struct request *r, int status,
		  const void *body, size_t len)
{
	int ret = send_msg(c, r->head.type | VMM_REPLY, r->head.seq, status,
			   body, len);

	if (ret < 0)
		vm_end(c->vm, VMM_WHY_OWNER, "control socket: %s",
		       strerror(-ret));
}

static void on_pause(struct control *c, struct request *r)
{
	fault_point(FAULT_VMM_PAUSE);
	vm_pause(c->vm);
	fault_point(FAULT_VMM_PAUSED);
	reply(c, r, 0, NULL, 0);
}

static void on_resume(struct control *c, struct request *r)
{
	fault_point(FAULT_VMM_RESUME);
	vm_resume(c->vm);
	fault_point(FAULT_VMM_RESUMED);
	reply(c, r, 0, NULL, 0);
}

static void on_stats(struct control *c, struct request *r)
{
	struct vmm_stats s;

	vm_stats(c->vm, &s);
	reply(c, r, 0, &s, sizeof(s));
}

static void on_log(struct control *c, struct request *r)
{
	uint8_t *text = r->body; /* VMM_LOG has no body: its room is free */
	uint64_t at = 0;
	size_t n = guest_log_read(&c->vm->log, &at, text, sizeof(r->body));

	reply(c, r, 0, text, n);
}

static void on_quit(struct control *c, struct request *r)
{
	(void)r;
	vm_end(c->vm, VMM_WHY_OWNER, "ended by its owner");
}

static void on_snapshot(struct control *c, struct request *r)
{
	struct err e = {0};
	int ret;

	if (r->n_fds != 2) {
		reply(c, r, -EINVAL, NULL, 0);
		return;
	}
	fault_point(FAULT_VMM_SAVE);
	ret = snapshot_save(c->vm, r->fds[0], r->fds[1], &e);
	fault_point(FAULT_VMM_SAVED);
	if (ret < 0)
		log_warn("snapshot: %s", e.text);
	reply(c, r, ret, e.text, ret < 0 ? strlen(e.text) : 0);
}

static void on_touched(struct control *c, struct request *r)
{
	const struct vm *vm = c->vm;
	struct err e = {0};
	int ret = -EINVAL;

	if (r->n_fds == 1 && vm->over)
		ret = touched_write(&vm->mem, vm->pagemap, vm->over, vm->n_over,
				    vm->mem_sum, r->fds[0], &e);
	reply(c, r, ret, e.text, ret < 0 ? strlen(e.text) : 0);
}

static void on_open_reply(struct control *c, struct request *r)
{
	struct vmm_open o;
	int fd = -1;

	if (r->head.len != sizeof(o))
		return;
	memcpy(&o, r->body, sizeof(o));
	if (o.allowed && r->n_fds == 1)
		fd = fd_take(&r->fds[0]);
	/* -ENOENT: the guest gave up meanwhile, fd is closed. */
	(void)vsock_answer(c->vm->vsock, o.conn, fd);
}

static void on_lane_run(struct control *c, struct request *r)
{
	struct vmm_lane p;
	bool is_part = false;
	int ret = -EPROTO;

	if (r->head.len >= sizeof(p)) {
		uint32_t len = r->head.len - (uint32_t)sizeof(p);

		memcpy(&p, r->body, sizeof(p));
		is_part = p.flags & VMM_LANE_IS_PART;
		if (!(p.flags & ~VMM_LANE_IS_PART))
			ret = (is_part ? lanes_part : lanes_request)(
				&c->vm->lanes, p.lane, p.offset, p.total,
				r->body + sizeof(p), len);
	}
	if (ret == 1) {
		trace_lane(c->vm->trace, p.lane, is_part ? "part" : "run",
			   p.total);
		fault_point(FAULT_VMM_RUN);
		vm_resume(c->vm);
		fault_point(FAULT_VMM_RUNNING);
		ret = 0;
	}
	reply(c, r, ret, NULL, 0);
}

static void on_lane_adopt(struct control *c, struct request *r)
{
	struct vmm_lane p;
	int ret = -EPROTO;

	if (r->head.len == sizeof(p)) {
		memcpy(&p, r->body, sizeof(p));
		if (p.offset == 0 && p.total == 0)
			ret = vm_adopt(c->vm, p.lane);
	}
	if (ret == 0)
		trace_lane(c->vm->trace, p.lane, "adopt", 0);
	reply(c, r, ret, NULL, 0);
}

static const struct {
	uint32_t type;
	void (*handle)(struct control *c, struct request *r);
} requests[] = {
	{VMM_SNAPSHOT, on_snapshot},
	{VMM_PAUSE, on_pause},
	{VMM_RESUME, on_resume},
	{VMM_STATS, on_stats},
	{VMM_QUIT, on_quit},
	{VMM_LOG, on_log},
	{VMM_OPEN_REPLY, on_open_reply},
	{VMM_LANE_RUN, on_lane_run},
	{VMM_LANE_ADOPT, on_lane_adopt},
	{VMM_TOUCHED, on_touched},
};

static void handle_request(struct control *c)
{
	static struct request r;
	static uint8_t packet[sizeof(r.head) + sizeof(r.body)];
	ssize_t n;

	r.n_fds = FD_PASS_MAX;
	n = fd_recv(c->sock, packet, sizeof(packet), r.fds, &r.n_fds, 0);
	if (n <= 0) {
		vm_end(c->vm, VMM_WHY_OWNER, "control socket: %s",
		       n == 0 ? "closed by the owner" : strerror((int)-n));
		return;
	}
	memset(&r.head, 0, sizeof(r.head));
	if ((size_t)n >= sizeof(r.head)) {
		memcpy(&r.head, packet, sizeof(r.head));
		memcpy(r.body, packet + sizeof(r.head),
		       (size_t)n - sizeof(r.head));
	}
	if ((size_t)n < sizeof(r.head) ||
	    r.head.len != (size_t)n - sizeof(r.head)) {
		reply(c, &r, -EPROTO, NULL, 0);
	} else {
		size_t i, count = sizeof(requests) / sizeof(requests[0]);

		for (i = 0; i < count; i++)
			if (requests[i].type == r.head.type)
				break;
		if (i < count)
			requests[i].handle(c, &r);
		else
			reply(c, &r, -EOPNOTSUPP, NULL, 0);
	}
	for (size_t i = 0; i < r.n_fds; i++)
		fd_close(&r.fds[i]);
}

/* The first connection to the agent port is joined to the channel; any other
 * is the owner's to allow. */
static void handle_open(struct control *c, const struct notice_open *o)
{
	struct vmm_open ask = {.conn = o->conn, .port = o->port};

	if (o->port == GP_PORT_AGENT && c->channel >= 0) {
		(void)vsock_answer(c->vm->vsock, o->conn, fd_take(&c->channel));
		return;
	}
	if (c->sock < 0 || send_msg(c, VMM_OPEN, 0, 0, &ask, sizeof(ask)) < 0)
		(void)vsock_answer(c->vm->vsock, o->conn, -1);
}

/* All vCPUs are parked: the answer is read once, from one that stays. */
static void tell_answer(struct control *c, const struct lane_news *n)
{
	static struct {
		struct vmm_lane lane;
		uint8_t bytes[VMM_LANE_PIECE_BYTES_MAX];
	} piece;
	uint32_t len;

	static_assert(sizeof(piece) == VMM_BODY_BYTES_MAX, "no padding");
	piece.lane = (struct vmm_lane){.lane = n->lane, .total = n->len};
	do {
		len = n->len - piece.lane.offset;
		if (len > VMM_LANE_PIECE_BYTES_MAX)
			len = VMM_LANE_PIECE_BYTES_MAX;
		if (mem_read(&c->vm->mem, n->at + piece.lane.offset,
			     piece.bytes, len) < 0)
			len = piece.lane.total = 0;
		(void)send_msg(c, VMM_LANE_ANSWER, 0, 0, &piece,
			       sizeof(piece.lane) + len);
		piece.lane.offset += len;
	} while (piece.lane.offset < piece.lane.total);
}

/* Main thread, or the vCPU that parked last.  A VM without an owner has nobody
 * to wait for. */
static void handle_lanes(void *ctx)
{
	struct control *c = ctx;
	struct vm *vm = c->vm;
	struct lane_news n;

	vm_pause(vm);
	while (lanes_take(&vm->lanes, &n)) {
		struct vmm_lane lane = {.lane = n.lane};

		if (n.is_answer)
			fault_point(FAULT_VMM_ANSWER);
		if (n.is_answer)
			tell_answer(c, &n);
		else
			(void)send_msg(c, VMM_LANE_READY, 0, 0, &lane,
				       sizeof(lane));
		trace_lane(vm->trace, n.lane, n.is_answer ? "answer" : "ready",
			   n.len);
	}
	if (c->sock < 0)
		vm_resume(vm);
}

static void forward_log(struct control *c)
{
	uint8_t part[4096];
	size_t n;

	if (c->log < 0)
		return;
	while ((n = guest_log_read(&c->vm->log, &c->vm->log.forwarded, part,
				   sizeof(part))))
		if (fd_write_all(c->log, part, n) < 0)
			c->log = -1;
}

static void handle_notices(struct control *c)
{
	struct notice *n = &c->vm->notice;
	struct notice_open open;
	struct vmm_exit device, end;
	uint64_t ns;

	notice_clear(n);
	if (notice_take_started(n, &ns)) {
		struct vmm_started s = {
			.version = VMM_CTL_VERSION,
			.is_soft = c->vm->kvm.is_soft,
			.n_lanes = c->vm->n_lanes,
			.since_start_ns = ns - c->start_ns,
		};

		fault_point(FAULT_VMM_BEGUN);
		(void)send_msg(c, VMM_STARTED, 0, 0, &s, sizeof(s));
		/* Not before: STARTED is the first message. */
		if (c->sock >= 0)
			c->vm->teller.tell = handle_lanes;
	}
	while (notice_take_open(n, &open))
		handle_open(c, &open);
	while (notice_take_device(n, &device)) {
		log_warn("device %s", device.text);
		(void)send_msg(c, VMM_DEVICE, 0, 0, &device, sizeof(device));
	}
	forward_log(c);
	if (lanes_have_news(&c->vm->lanes) && !notice_get_end(n, &end))
		handle_lanes(c);
}

/* Keeps the teller's lock to the end: nobody says anything after EXIT. */
enum vmm_why control_run(struct control *c)
{
	pthread_mutex_t *lock = &c->vm->teller.lock;
	struct pollfd p[2] = {
		{.fd = c->vm->notice.fd, .events = POLLIN},
		{.fd = c->sock, .events = POLLIN},
	};
	struct vmm_exit end;
	int n;

	c->vm->teller.ctx = c;
	pthread_mutex_lock(lock);
	for (;;) {
		pthread_mutex_unlock(lock);
		n = poll(p, 2, -1);
		pthread_mutex_lock(lock);
		if (n < 0 && errno != EINTR)
			vm_end(c->vm, VMM_WHY_HOST, "poll: %s",
			       strerror(errno));
		if (p[0].revents)
			handle_notices(c);
		if (!notice_get_end(&c->vm->notice, &end) && p[1].revents)
			handle_request(c);
		if (notice_get_end(&c->vm->notice, &end))
			break;
	}
	vcpus_park(&c->vm->vcpus);
	handle_notices(c);
	trace_flush(c->vm->trace);
	control_tell_end(c, &end);
	return end.why;
}

void control_tell_end(struct control *c, const struct vmm_exit *end)
{
	if (c->sock < 0)
		log_info("end why=%u text=\"%s\"", end->why, end->text);
	(void)send_msg(c, VMM_EXIT, 0, 0, end, sizeof(*end));
}
