/* One hutch-vmm process; see vmm.h. */
#include "vmm.h"
#include "../clock.h"
#include "../loop.h"
#include "fd.h"
#include "lane.h"
#include "link_priv.h"
#include "log.h"
#include "vmm_args.h"
#include "vmm_log.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Messages taken in a window: a VMM that was taken over, or a guest that asks
 * for ports in a loop, waits and does not take the loop's time. */
#define VMM_CONTROL_MSGS_MAX  100
#define VMM_CONTROL_WINDOW_MS 100
/* Of a dead process: more than its socket can hold. */
#define VMM_LAST_MSGS_MAX 4096

struct vmm {
	struct list node; /* in link->vmms */
	struct link *link;
	const struct vmm_ops *ops;
	void *ctx;
	char name[80];
	pid_t pid;
	int uid_slot;
	uint64_t cgroup;	   /* number of its folders; 0 = none */
	struct loop_watch process; /* fd: pidfd */
	struct loop_watch control;
	struct loop_timer control_rest; /* until the next window */
	int64_t window_ms;
	unsigned n_msgs; /* in this window */
	bool is_full;	 /* the owner waits for room in the socket */
	struct loop_watch log_watch; /* fd: our end of the pipe */
	struct vmm_log log;
	uint32_t seq, run_seq; /* of the last request, of the last piece */
	bool is_killed, has_started;
	struct vmm_end end;
};

/* ---- its descriptors ---------------------------------------------------- */

static void watch_close(struct vmm *v, struct loop_watch *w)
{
	if (w->fd < 0)
		return;
	loop_watch_remove(v->link->loop, w);
	fd_close(&w->fd);
}

static void on_log(struct loop_watch *w, uint32_t revents)
{
	struct vmm *v = container_of(w, struct vmm, log_watch);
	int n = vmm_log_read(&v->log, w->fd);

	(void)revents;
	if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR)) {
		vmm_log_flush(&v->log);
		watch_close(v, w);
	}
}

/* ---- control socket --------------------------------------------------- */

static void end_take(struct vmm *v, const uint8_t *body, size_t len)
{
	struct vmm_exit x;

	if (len != sizeof(x) || v->end.text[0])
		return;
	memcpy(&x, body, sizeof(x));
	x.text[sizeof(x.text) - 1] = '\0';
	v->end.why = (int)x.why;
	snprintf(v->end.text, sizeof(v->end.text), "%.255s",
		 log_text(x.text, strlen(x.text)).s);
}

static void broken(struct vmm *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* It does not do what api/vmm_ctl.h says. */
static void broken(struct vmm *v, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (!v->end.text[0])
		vsnprintf(v->end.text, sizeof(v->end.text), fmt, ap);
	va_end(ap);
	vmm_kill(v);
}

static void started_take(struct vmm *v, const uint8_t *body, size_t len)
{
	struct vmm_started st;

	if (len != sizeof(st))
		return;
	memcpy(&st, body, sizeof(st));
	if (st.version != VMM_CTL_VERSION) {
		broken(v, "hutch-vmm speaks control version %u, this daemon %u",
		       st.version, VMM_CTL_VERSION);
		return;
	}
	if (v->has_started) {
		broken(v, "hutch-vmm says that it started twice");
		return;
	}
	if (st.n_lanes > LANES_MAX) {
		broken(v, "hutch-vmm has %u lanes, at most %d are possible",
		       st.n_lanes, LANES_MAX);
		return;
	}
	v->has_started = true;
	link_cgroup_join(v->link, v->cgroup, v->pid);
	v->ops->started(v->ctx, &st);
}

/* The guest asks for a port: nothing but the agent's channel is served. */
static void open_refuse(struct vmm *v, const uint8_t *body, size_t len)
{
	struct {
		struct vmm_msg msg;
		struct vmm_open open;
	} reply = {.msg = {.type = VMM_OPEN_REPLY, .len = sizeof(reply.open)}};

	if (len != sizeof(reply.open))
		return;
	memcpy(&reply.open, body, sizeof(reply.open));
	reply.open.allowed = 0;
	if (fd_send(v->control.fd, &reply, sizeof(reply), NULL, 0) == -EAGAIN)
		broken(v, "hutch-vmm does not read its control socket");
}

static void lane_take(struct vmm *v, enum vmm_type type, const uint8_t *body,
		      size_t len)
{
	struct vmm_lane l;

	if (!v->ops->lane || len < sizeof(l) ||
	    (type == VMM_LANE_READY && len != sizeof(l))) {
		broken(v, "hutch-vmm speaks of a lane out of turn");
		return;
	}
	memcpy(&l, body, sizeof(l));
	v->ops->lane(v->ctx, type, &l, body + sizeof(l), len - sizeof(l));
}

/* Every piece of a request is replied to; the last one counts, or a no. */
static bool is_of_a_piece(const struct vmm *v, const struct vmm_msg *m)
{
	return m->type == (VMM_LANE_RUN | VMM_REPLY) && !m->status &&
	       m->seq != v->run_seq;
}

static void message_take(struct vmm *v, const uint8_t *p, size_t n)
{
	const uint8_t *body = p + sizeof(struct vmm_msg);
	struct vmm_msg m;

	if (n < sizeof(m))
		return;
	memcpy(&m, p, sizeof(m));
	n -= sizeof(m);
	if (m.len != n)
		return;
	if (m.type & VMM_REPLY) {
		if (!v->is_killed && !is_of_a_piece(v, &m))
			v->ops->replied(v->ctx,
					(enum vmm_type)(m.type & ~VMM_REPLY),
					m.status, body, n);
		return;
	}
	if (m.type == VMM_EXIT)
		end_take(v, body, n);
	if (v->is_killed)
		return;
	if (m.type == VMM_STARTED)
		started_take(v, body, n);
	if (m.type == VMM_OPEN)
		open_refuse(v, body, n);
	if (m.type == VMM_LANE_READY || m.type == VMM_LANE_ANSWER)
		lane_take(v, (enum vmm_type)m.type, body, n);
	if (m.type == VMM_DEVICE && n && vmm_log_token(&v->log))
		log_warn("%s pid=%d device=\"%s\"", v->name, (int)v->pid,
			 log_quoted(body, strnlen((const char *)body, n)).s);
}

/* One packet; false at the end of file or when there is none now. */
static bool control_read(struct vmm *v, bool *ret_eof)
{
	static uint8_t buf[sizeof(struct vmm_msg) + VMM_BODY_BYTES_MAX];
	ssize_t n = fd_recv(v->control.fd, buf, sizeof(buf), NULL, NULL,
			    MSG_DONTWAIT);

	if (n == -EMSGSIZE)
		return true;	/* dropped: no message of ours is that big */
	if (n == -ECONNRESET) { /* said once; then come its last words */
		v->end.has_unread = true;
		return true;
	}
	*ret_eof = n == 0 || (n < 0 && n != -EAGAIN);
	if (n <= 0)
		return false;
	message_take(v, buf, (size_t)n);
	return true;
}

static void control_watch(struct vmm *v)
{
	uint32_t in = v->control_rest.heap_idx ? 0 : POLLIN;

	if (v->control.fd >= 0)
		loop_watch_mod(v->link->loop, &v->control,
			       in | (v->is_full ? POLLOUT : 0));
}

static void on_control_rest(struct loop_timer *t)
{
	control_watch(container_of(t, struct vmm, control_rest));
}

/* True: this window's messages were taken. */
static bool is_too_loud(struct vmm *v)
{
	int64_t now = clock_mono_ms();

	if (now - v->window_ms >= VMM_CONTROL_WINDOW_MS) {
		v->window_ms = now;
		v->n_msgs = 0;
	}
	return ++v->n_msgs > VMM_CONTROL_MSGS_MAX;
}

static void on_control(struct loop_watch *w, uint32_t revents)
{
	struct vmm *v = container_of(w, struct vmm, control);
	bool is_eof = false;

	if (v->is_full && revents & POLLOUT) {
		v->is_full = false;
		control_watch(v);
		if (v->ops->writable)
			v->ops->writable(v->ctx);
	}
	if (!(revents & ~(uint32_t)POLLOUT))
		return;
	if (is_too_loud(v)) {
		loop_timer_set(v->link->loop, &v->control_rest,
			       VMM_CONTROL_WINDOW_MS);
		control_watch(v);
		return;
	}
	control_read(v, &is_eof);
	if (is_eof) {
		/* Its end is near; if not, it has no business living on. */
		watch_close(v, w);
		syscall(SYS_pidfd_send_signal, v->process.fd, SIGKILL, NULL, 0);
	}
}

int vmm_ask(struct vmm *v, enum vmm_type type, const int *fds, size_t n_fds)
{
	struct vmm_msg m = {.type = type, .seq = ++v->seq};

	if (v->control.fd < 0)
		return -EPIPE;
	return fd_send(v->control.fd, &m, sizeof(m), fds, n_fds);
}

/* Head and data from where they are: a request may hold secrets. */
static int lane_send(struct vmm *v, enum vmm_type type,
		     const struct vmm_lane *l, const void *data, size_t len)
{
	struct vmm_lane lane = *l;
	struct vmm_msg m = {.type = type,
			    .seq = v->seq + 1,
			    .len = (uint32_t)(sizeof(lane) + len)};
	struct iovec iov[3] = {{&m, sizeof(m)},
			       {&lane, sizeof(lane)},
			       {(void *)(uintptr_t)data, len}};
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = 3};

	if (v->control.fd < 0)
		return -EPIPE;
	while (sendmsg(v->control.fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	v->seq++;
	return 0;
}

int vmm_lane_run(struct vmm *v, const struct vmm_lane *l, const void *data,
		 size_t len)
{
	int rc = lane_send(v, VMM_LANE_RUN, l, data, len);

	if (!rc) {
		v->run_seq = v->seq;
	} else if (rc == -EAGAIN) {
		v->is_full = true;
		control_watch(v);
	}
	return rc;
}

int vmm_lane_adopt(struct vmm *v, uint32_t lane)
{
	return lane_send(v, VMM_LANE_ADOPT, &(struct vmm_lane){.lane = lane},
			 NULL, 0);
}

/* ---- the end ---------------------------------------------------------- */

static void status_text(struct vmm *v, const siginfo_t *si)
{
	static const char *const whys[] = {
		[VMM_WHY_POWEROFF] = "the guest powered off",
		[VMM_WHY_SETUP] = "the VM could not be set up",
		[VMM_WHY_GUEST_SHUTDOWN] = "the guest crashed",
		[VMM_WHY_KVM] = "KVM reported an error",
		[VMM_WHY_DEVICE] = "the guest broke device rules",
		[VMM_WHY_OWNER] = "ended by its owner",
		[VMM_WHY_HOST] = "the host failed",
	};
	size_t n = sizeof(whys) / sizeof(whys[0]);

	if (v->end.text[0])
		return;
	if (si->si_code != CLD_EXITED) {
		snprintf(v->end.text, sizeof(v->end.text),
			 "hutch-vmm was killed by signal %d", si->si_status);
		return;
	}
	v->end.why = si->si_status;
	if ((size_t)si->si_status < n)
		snprintf(v->end.text, sizeof(v->end.text), "%s",
			 whys[si->si_status]);
	else
		snprintf(v->end.text, sizeof(v->end.text),
			 "hutch-vmm ended with status %d", si->si_status);
}

static void vmm_free(struct vmm *v)
{
	loop_timer_stop(v->link->loop, &v->control_rest);
	watch_close(v, &v->control);
	watch_close(v, &v->log_watch);
	watch_close(v, &v->process);
	link_cgroup_leave(v->link, v->cgroup);
	link_uid_give(v->link, v->uid_slot);
	list_remove(&v->node);
	free(v);
}

static void on_process(struct loop_watch *w, uint32_t revents)
{
	struct vmm *v = container_of(w, struct vmm, process);
	bool is_eof = false;
	siginfo_t si = {0};

	(void)revents;
	if (waitid(P_PIDFD, (id_t)w->fd, &si, WEXITED | WNOHANG) || !si.si_pid)
		return;
	for (int i = 0; i < VMM_LAST_MSGS_MAX && v->control.fd >= 0; i++)
		if (!control_read(v, &is_eof))
			break;
	for (int i = 0; i < VMM_LAST_MSGS_MAX && v->log_watch.fd >= 0; i++)
		if (vmm_log_read(&v->log, v->log_watch.fd) <= 0)
			break;
	vmm_log_flush(&v->log);
	status_text(v, &si);
	v->end.was_killed = v->is_killed;
	v->ops->gone(v->ctx, &v->end);
	vmm_free(v);
}

void vmm_kill(struct vmm *v)
{
	v->is_killed = true;
	syscall(SYS_pidfd_send_signal, v->process.fd, SIGKILL, NULL, 0);
}

void vmms_kill(struct link *link)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &link->vmms)
		vmm_kill(container_of(pos, struct vmm, node));
}

static void forgotten_started(void *ctx, const struct vmm_started *s)
{
	(void)ctx;
	(void)s;
}

static void forgotten_replied(void *ctx, enum vmm_type type, int status,
			      const uint8_t *body, size_t len)
{
	(void)ctx;
	(void)type;
	(void)status;
	(void)body;
	(void)len;
}

static void forgotten_gone(void *ctx, const struct vmm_end *end)
{
	(void)ctx;
	(void)end;
}

static const struct vmm_ops forgotten = {
	.started = forgotten_started,
	.replied = forgotten_replied,
	.gone = forgotten_gone,
};

void vmm_forget(struct vmm *v)
{
	v->ops = &forgotten;
	v->ctx = NULL;
	vmm_kill(v);
}

void vmms_forgotten_destroy(struct link *link)
{
	struct list *pos, *tmp;

	list_for_each_safe(pos, tmp, &link->vmms)
	{
		struct vmm *v = container_of(pos, struct vmm, node);

		if (v->ops == &forgotten)
			vmm_destroy(v);
	}
}

void vmm_foreground(struct vmm *v)
{
	link_cgroup_foreground(v->link, v->cgroup);
}

bool vmm_is_alive(const struct vmm *v)
{
	siginfo_t si = {0};

	return !v->is_killed &&
	       !waitid(P_PIDFD, (id_t)v->process.fd, &si,
		       WEXITED | WNOHANG | WNOWAIT) &&
	       !si.si_pid;
}

bool vmm_is_quiet(const struct vmm *v)
{
	uint8_t byte;

	return vmm_is_alive(v) && v->control.fd >= 0 &&
	       recv(v->control.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       errno == EAGAIN;
}

void vmm_destroy(struct vmm *v)
{
	siginfo_t si;

	vmm_kill(v);
	while (waitid(P_PIDFD, (id_t)v->process.fd, &si, WEXITED) &&
	       errno == EINTR)
		continue;
	vmm_free(v);
}

pid_t vmm_pid(const struct vmm *v)
{
	return v->pid;
}

/* ---- the start -------------------------------------------------------- */

static int watches_add(struct vmm *v)
{
	struct loop_watch *all[] = {&v->process, &v->control, &v->log_watch};

	for (size_t i = 0; i < 3; i++) {
		int rc = loop_watch_add(v->link->loop, all[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int vmm_start(struct vmm **ret, struct link *link, const struct vmm_args *args,
	      const struct vmm_ops *ops, void *ctx, struct err *e)
{
	int control[2] = {-1, -1}, log[2] = {-1, -1};
	uint32_t uid = 0;
	struct vmm *v = calloc(1, sizeof(*v));
	int rc = -1;

	if (!v)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	list_init(&v->node);
	v->link = link;
	v->ops = ops;
	v->ctx = ctx;
	v->end.why = -1;
	snprintf(v->name, sizeof(v->name), "%s", args->name);
	v->process = (struct loop_watch){on_process, -1, POLLIN, NULL};
	v->control = (struct loop_watch){on_control, -1, POLLIN, NULL};
	v->control_rest.fn = on_control_rest;
	v->log_watch = (struct loop_watch){on_log, -1, POLLIN, NULL};
	vmm_log_begin(&v->log, v->name, &v->pid);
	v->uid_slot = link_uid_take(link, &uid);
	if (v->uid_slot < 0) {
		err_set(e, ERR_CAPACITY, NULL,
			"all %d user ids for VMs are in use", LINK_UIDS);
		goto out;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) ||
	    pipe2(log, O_CLOEXEC | O_NONBLOCK) ||
	    /* Our end only: the loop never waits for a VMM that does not read.
	     */
	    fcntl(control[0], F_SETFL, O_NONBLOCK)) {
		err_set(e, ERR_INTERNAL, NULL, "sockets for a VM: %s",
			strerror(errno));
		goto out;
	}
	v->control.fd = fd_take(&control[0]);
	v->log_watch.fd = fd_take(&log[0]);
	v->cgroup = link_cgroup_make(link, args->vcpus, args->ram_mib,
				     args->is_background);
	rc = vmm_spawn(link, args, control[1], log[1], uid, &v->pid,
		       &v->process.fd, e);
	if (rc < 0)
		goto out;
	rc = watches_add(v);
	if (rc < 0) {
		err_set(e, ERR_INTERNAL, NULL, "watching a VM: %s",
			strerror(-rc));
		vmm_kill(v);
		waitid(P_PIDFD, (id_t)v->process.fd, &(siginfo_t){0}, WEXITED);
		rc = -1;
		goto out;
	}
	list_append(&link->vmms, &v->node);
	*ret = v;
out:
	fd_close(&control[0]);
	fd_close(&control[1]);
	fd_close(&log[0]);
	fd_close(&log[1]);
	if (rc < 0)
		vmm_free(v);
	return rc < 0 ? -1 : 0;
}
