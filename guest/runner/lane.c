/* A runner's end of its express lane; see lane_call.h. */
#include "lane.h"
#include "../ended.h"
#include "../lane_page.h"
#include "../limits.h"
#include "../payload.h"
#include "../stream.h"
#include "fd.h"
#include "frame.h"
#include "lane_call.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Descriptors go up here, out of the way of user code's. */
#define FD_HIGH 1000
/* What one stream may bring into an answer: the rest of it is for frame heads
 * and the result. */
#define STREAM_BYTES_MAX ((LANE_ANSWER_BYTES_MAX - (128u << 10)) / 2)
#define ADOPTION_POLL_NS 2000000
#define PAGE_BYTES	 4096u
/* "owner" while this is the process that opened the lane. */
#define OWNER_MARK 1

struct lane {
	uint32_t number;
	struct lane_head *head; /* the shared page */
	volatile char *owner;	/* a page that forks find wiped */
	struct stream out[2];
	struct bytes env, ended, answer;
	struct bytes whole;    /* a request that came in parts, up to now */
	int whole_rc;	       /* why it cannot be read */
	struct rusage from[2]; /* self, children: when the wait began */
	uint64_t cmd;
	uint32_t prefix; /* of the answer: init's BOUND */
	bool is_rehearsal;
};

static struct lane lane = {.out = {{.fd = -1}, {.fd = -1}}};

/* One exit to the monitor; it comes back when the VM goes on.  The test rings
 * a bell of its own. */
#ifndef LANE_RING
#define LANE_RING(number) outl(number, HUTCH_PORT_LANE_RING)
#endif

static void ring(void)
{
	/* No access to the page may move over the doorbell. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	LANE_RING(lane.number);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static bool state_move(uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&lane.head->state, &from, to, false,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static uint32_t state_now(void)
{
	return __atomic_load_n(&lane.head->state, __ATOMIC_ACQUIRE);
}

static uint8_t *page_at(uint32_t off)
{
	return (uint8_t *)lane.head + off;
}

/* ---- open -------------------------------------------------------------- */

/* The page is not there in a child (MADV_DONTFORK); the port would be. */
static void in_child(void)
{
	ioperm(HUTCH_PORT_LANE_RING, 4, 0);
}

static int fd_raise(int fd, int *ret)
{
	int up = fcntl(fd, F_DUPFD_CLOEXEC, FD_HIGH);

	if (up < 0) /* a low limit of open files */
		up = fcntl(fd, F_DUPFD_CLOEXEC, fd);
	if (up < 0)
		return -errno;
	close(fd);
	*ret = up;
	return 0;
}

static int memory_map(int page_fd)
{
	void *page = mmap(NULL, LANE_PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED, page_fd, 0);
	void *mark = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED || mark == MAP_FAILED ||
	    madvise(page, LANE_PAGE_BYTES, MADV_DONTFORK) ||
	    madvise(mark, PAGE_BYTES, MADV_WIPEONFORK))
		return -errno;
	lane.head = page;
	lane.owner = mark;
	*lane.owner = OWNER_MARK;
	return 0;
}

int lane_open(uint32_t number, int page_fd, int out_fd, int err_fd)
{
	int rc = memory_map(page_fd);

	close(page_fd);
	lane.number = number;
	for (int i = 0; i < 2; i++)
		stream_init(&lane.out[i], -1, 0, 0);
	rc = rc ? rc : fd_raise(out_fd, &lane.out[0].fd);
	rc = rc ? rc : fd_raise(err_fd, &lane.out[1].fd);
	rc = rc ? rc : bytes_reserve(&lane.answer, LANE_ANSWER_BYTES_MAX);
	rc = rc ? rc : bytes_reserve(&lane.ended, 2 * GP_RESULT_BYTES_MAX);
	return rc ? rc : -pthread_atfork(NULL, NULL, in_child);
}

/* ---- the answer -------------------------------------------------------- */

static uint64_t micros(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

static void usage_read(struct rusage u[2])
{
	getrusage(RUSAGE_SELF, &u[0]);
	getrusage(RUSAGE_CHILDREN, &u[1]);
}

static void usage_put(struct ended *e)
{
	struct rusage now[2];

	usage_read(now);
	for (int i = 0; i < 2; i++) {
		e->user_us += micros(&now[i].ru_utime) -
			      micros(&lane.from[i].ru_utime);
		e->sys_us += micros(&now[i].ru_stime) -
			     micros(&lane.from[i].ru_stime);
	}
	/* As in the cgroup of a run: what it added to the waiting runner. */
	e->rss_bytes =
		(uint64_t)(now[0].ru_maxrss - lane.from[0].ru_maxrss) * 1024;
}

static int output_put(int i)
{
	struct stream *s = &lane.out[i];
	struct gp_output_head h = {.stream = i ? GP_STDERR : GP_STDOUT,
				   .total = s->total};
	size_t len;
	const uint8_t *p;

	while ((p = stream_next(s, GP_OUTPUT_BYTES_MAX, &h.offset, &len))) {
		struct gp_head f = {.type = GP_OUTPUT,
				    .len = (uint32_t)(sizeof(h) + len),
				    .cmd = lane.cmd};
		int rc = bytes_append(&lane.answer, &f, sizeof(f));

		rc = rc ? rc : bytes_append(&lane.answer, &h, sizeof(h));
		rc = rc ? rc : bytes_append(&lane.answer, p, len);
		if (rc)
			return rc;
		stream_sent(s, h.offset, len);
	}
	return 0;
}

static int frames_put(const struct ended *e, bool has_output)
{
	static const uint8_t empty_map = 0xa0;
	int rc = 0;

	lane.answer.len = lane.ended.len = 0;
	if (e->how != GP_END_NOT_STARTED)
		rc = frame_append(&lane.answer, GP_STARTED, lane.cmd,
				  &empty_map, 1);
	for (int i = 0; i < 2 && has_output; i++)
		rc = rc ? rc : output_put(i);
	rc = rc ? rc : ended_put(&lane.ended, e);
	rc = rc ? rc
		: frame_append(&lane.answer, GP_ENDED, lane.cmd,
			       lane.ended.data, lane.ended.len);
	if (!rc && lane.answer.len > LANE_ANSWER_BYTES_MAX - lane.prefix)
		rc = -EFBIG;
	return rc;
}

static void answer_tell(const struct ended *e)
{
	/* Without memory for its output the run's end is told all the same:
	 * that fits what lane_open has reserved. */
	if (frames_put(e, true))
		frames_put(e, false);
	memcpy(page_at(LANE_ANSWER_OFF + lane.prefix), lane.answer.data,
	       lane.answer.len);
	lane.head->answer_len = lane.prefix + (uint32_t)lane.answer.len;
	if (lane.is_rehearsal)
		return;
	__atomic_store_n(&lane.head->state, LANE_ANSWERED, __ATOMIC_RELEASE);
	ring();
}

/*
 * Whether the answer can hold what the caps let through.  Larger caps matter
 * only when the pipe holds that much.
 */
static bool stream_fits(struct stream *s)
{
	int held = 0;

	if (s->fd < 0 || s->head_max + s->tail_max <= STREAM_BYTES_MAX)
		return true;
	if (ioctl(s->fd, FIONREAD, &held) || held < 0 ||
	    (unsigned)held > STREAM_BYTES_MAX)
		return false;
	/* Who still writes meanwhile loses that. */
	if (s->head_max > STREAM_BYTES_MAX)
		s->head_max = STREAM_BYTES_MAX;
	s->tail_max = STREAM_BYTES_MAX - s->head_max;
	return true;
}

/* Too much for the lane: init takes it from the pipes once it has the run. */
static void adoption_wait(void)
{
	const struct timespec pause = {.tv_nsec = ADOPTION_POLL_NS};

	while (state_now() == LANE_REQUEST)
		nanosleep(&pause, NULL);
}

int lane_finish(uint32_t kind, uint32_t code, const void *text, size_t len)
{
	static char error[GP_TEXT_BYTES_MAX];
	struct ended e = {0};
	struct verdict v;

	if (*lane.owner != OWNER_MARK)
		return LANE_END_NOT_MINE;
	if (!lane.is_rehearsal &&
	    (!stream_fits(&lane.out[0]) || !stream_fits(&lane.out[1])))
		adoption_wait();
	if (!lane.is_rehearsal && !state_move(LANE_REQUEST, LANE_FINISHING))
		return LANE_END_ADOPTED;
	for (int i = 0; i < 2; i++) {
		stream_pull(&lane.out[i], -1);
		e.stream_bytes[i] = lane.out[i].total;
	}
	if (!ended_judge(kind, code, text, len, &v))
		ended_judge(RUNNER_FAILED, 1, NULL, 0, &v);
	e.how = v.how;
	e.code = v.code;
	if (v.how == GP_END_EXITED) {
		e.result = v.text;
	} else {
		snprintf(error, sizeof(error), "%.*s",
			 (int)(v.text.len < sizeof(error) ? v.text.len
							  : sizeof(error) - 1),
			 (const char *)v.text.data);
		e.error = error;
	}
	usage_put(&e);
	answer_tell(&e);
	lane.is_rehearsal = false;
	return LANE_END_TOLD;
}

/* ---- the request ------------------------------------------------------- */

static struct lane_part part_of(const struct wire_value *v, const char *absent)
{
	if (v->is_set)
		return (struct lane_part){v->s.data, v->s.len};
	return (struct lane_part){absent, strlen(absent)};
}

static int env_take(struct span list, struct lane_part *ret)
{
	int rc;

	lane.env.len = 0;
	rc = payload_env_pack(&lane.env, list);
	*ret = (struct lane_part){lane.env.data, lane.env.len};
	return rc;
}

static uint64_t cap_of(const struct wire_value *v)
{
	return v->is_set ? v->u : OUTPUT_CAP_BYTES_DEFAULT;
}

/* Is what the page has the beginning of its request? */
static bool is_first(void)
{
	return !lane.whole.len && !lane.whole_rc;
}

/* Whom an answer is for, also when the rest cannot be read. */
static void cmd_read(const uint8_t *at)
{
	struct gp_head h;

	memcpy(&h, at, sizeof(h));
	lane.cmd = h.cmd;
}

/* What is in the page now goes behind what came before. */
static void part_take(void)
{
	size_t len = __atomic_load_n(&lane.head->request_len, __ATOMIC_RELAXED);

	if (is_first())
		cmd_read(page_at(LANE_REQUEST_OFF));
	if (len > LANE_REQUEST_BYTES_MAX ||
	    lane.whole.len + len > LANE_WHOLE_BYTES_MAX)
		lane.whole_rc = -EPROTO;
	else if (!lane.whole_rc)
		lane.whole_rc = bytes_append(&lane.whole,
					     page_at(LANE_REQUEST_OFF), len);
}

/* The frame where it is: in the page, or in `whole`. */
static int request_find(const uint8_t **ret, size_t *ret_len)
{
	*ret = page_at(LANE_REQUEST_OFF);
	*ret_len = __atomic_load_n(&lane.head->request_len, __ATOMIC_RELAXED);
	if (is_first()) {
		cmd_read(*ret);
		return *ret_len > LANE_REQUEST_BYTES_MAX ? -EPROTO : 0;
	}
	part_take();
	*ret = lane.whole.data;
	*ret_len = lane.whole.len;
	return lane.whole_rc;
}

static int request_take(struct lane_run *ret, char *why, size_t why_cap)
{
	const uint8_t *at;
	struct wire_map m;
	struct gp_head h;
	size_t len;
	int rc;

	rc = request_find(&at, &len);
	if (!rc && len < sizeof(h))
		rc = -EPROTO;
	if (!rc) {
		memcpy(&h, at, sizeof(h));
		lane.cmd = h.cmd;
		if (h.type != GP_RUN || h.len != len - sizeof(h))
			rc = -EPROTO;
	}
	if (rc) {
		snprintf(why, why_cap,
			 rc == -ENOMEM ? "RUN: no memory for its parts"
				       : "RUN: not one frame on the lane");
		return rc;
	}
	rc = payload_decode(GP_RUN, at + sizeof(h), h.len, &m, why, why_cap);
	if (rc)
		return rc;
	snprintf(why, why_cap, "RUN: no memory for env");
	ret->code = part_of(&m.v[GP_RUN_CODE], "");
	ret->input = part_of(&m.v[GP_RUN_INPUT], "null");
	ret->config = part_of(&m.v[GP_RUN_CONFIG], "null");
	for (int i = 0; i < 2; i++)
		stream_reset(&lane.out[i], cap_of(&m.v[GP_RUN_HEAD_MAX]),
			     cap_of(&m.v[GP_RUN_TAIL_MAX]));
	return env_take(m.v[GP_RUN_ENV].s, &ret->env);
}

/* Sleeps while the bell is init's; false: it was not. */
static bool turn_wait(void)
{
	uint32_t *word = (uint32_t *)(void *)page_at(LANE_TURN_OFF);

	/* It may have been given before it was waited for. */
	if (__atomic_load_n(word, __ATOMIC_ACQUIRE) == LANE_TURN_RUNNER)
		return false;
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == LANE_TURN_INIT)
		syscall(SYS_futex, word, FUTEX_WAIT, LANE_TURN_INIT, NULL, NULL,
			0);
	*word = LANE_TURN_RUNNER;
	return true;
}

static void ready_ring(void)
{
	lane.head->version = LANE_VERSION;
	lane.head->request_len = lane.head->answer_len = 0;
	__atomic_store_n(&lane.head->state, LANE_READY, __ATOMIC_RELEASE);
	ring();
}

int lane_wait(struct lane_run *ret)
{
	struct ended e = {.how = GP_END_NOT_STARTED};
	char why[128];

	lane.prefix = 0;
	lane.whole.len = 0;
	lane.whole_rc = 0;
	ret->was_unbound = turn_wait();
	if (ret->was_unbound)
		lane.prefix = lane.head->answer_len;
	else
		ready_ring();
	while (state_now() == LANE_PART) {
		part_take();
		ready_ring();
	}
	if (state_now() == LANE_ANSWERED)
		return LANE_END_BOUND;
	if (state_now() == LANE_CLOSED || state_move(LANE_READY, LANE_CLOSED))
		return LANE_END_CLOSED;
	/* Not before: the time that the VM waited is charged to who waits. */
	usage_read(lane.from);
	if (!request_take(ret, why, sizeof(why)))
		return LANE_END_RUN;
	e.error = why;
	if (!state_move(LANE_REQUEST, LANE_FINISHING))
		return LANE_END_CLOSED;
	answer_tell(&e);
	return LANE_END_TOLD;
}

int lane_rehearse(const void *code, size_t code_len, const void *input,
		  size_t input_len, struct lane_run *ret)
{
	_cleanup_bytes_ struct bytes payload = {0}, request = {0};
	struct writer w = {.out = &payload};
	char why[128];

	wire_put_map(&w, 2);
	wire_put_bytes(&w, GP_RUN_CODE, code, code_len);
	wire_put_bytes(&w, GP_RUN_INPUT, input, input_len);
	if (w.rc ||
	    frame_append(&request, GP_RUN, 0, payload.data, payload.len))
		return -ENOMEM;
	if (request.len > LANE_REQUEST_BYTES_MAX)
		return -EFBIG;
	usage_read(lane.from);
	memcpy(page_at(LANE_REQUEST_OFF), request.data, request.len);
	lane.head->request_len = (uint32_t)request.len;
	lane.is_rehearsal = true;
	return request_take(ret, why, sizeof(why)) ? -EPROTO : LANE_END_RUN;
}
