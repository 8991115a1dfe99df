/* Init at the doorbell; see lane_bell.h. */
#include "lane_bell.h"
#include "bind.h"
#include "port.h"
#include <string.h>

/* The test has a monitor of its own behind the bell. */
#ifndef LANE_BELL_RING
#define LANE_BELL_RING() port_lane_ring(0)
#endif

static void ring(void)
{
	/* No access to the page may move over the doorbell. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	LANE_BELL_RING();
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* The request's first frame is BIND; what follows it is *ret_rest.  *ret_bound
 * is BOUND's payload. */
static bool bind_take(struct guest *g, struct span *ret_rest,
		      struct bytes *ret_bound)
{
	const uint8_t *at = lane_page_at(&g->lane, LANE_REQUEST_OFF);
	size_t len = g->lane.head->request_len;
	struct gp_head h;
	bool is_ok = false;

	*ret_rest = (struct span){0};
	memcpy(&h, at, sizeof(h));
	if (len < sizeof(h) || len > LANE_REQUEST_BYTES_MAX ||
	    h.type != GP_BIND || h.len > len - sizeof(h)) {
		bind_bound(ret_bound, "BIND: no such frame on the lane");
	} else {
		is_ok = bind_do(g, at + sizeof(h), h.len, ret_bound);
		ret_rest->data = at + sizeof(h) + h.len;
		ret_rest->len = len - sizeof(h) - h.len;
	}
	return is_ok;
}

/* As a frame at the start of the answer. */
static void bound_put(struct guest *g, const struct bytes *bound)
{
	uint8_t *at = lane_page_at(&g->lane, LANE_ANSWER_OFF);
	struct gp_head h = {.type = GP_BOUND, .len = (uint32_t)bound->len};

	memcpy(at, &h, sizeof(h));
	memcpy(at + sizeof(h), bound->data, bound->len);
	g->lane.head->answer_len = (uint32_t)(sizeof(h) + bound->len);
}

static void bound_tell(struct guest *g, const struct bytes *bound)
{
	bound_put(g, bound);
	if (lane_page_move(&g->lane, LANE_REQUEST, LANE_ANSWERED))
		ring();
	else /* adopted: the host listens on the channel */
		link_send(&g->link, GP_BOUND, 0, bound);
}

/* The runner finds RUN where the monitor would have put it. */
static void run_give(struct guest *g, struct span run,
		     const struct bytes *bound)
{
	memmove(lane_page_at(&g->lane, LANE_REQUEST_OFF), run.data, run.len);
	g->lane.head->request_len = (uint32_t)run.len;
	bound_put(g, bound);
	g->is_bound_untold = true;
}

void lane_bell_wait(struct guest *g)
{
	_cleanup_bytes_ struct bytes bound = {0};
	struct span rest;

	lane_page_ready(&g->lane);
	ring();
	if (!lane_page_move(&g->lane, LANE_READY, LANE_CLOSED)) {
		if (!bind_take(g, &rest, &bound)) {
			bound_tell(g, &bound);
			return;
		}
		if (rest.len)
			run_give(g, rest, &bound);
		else
			bound_tell(g, &bound);
		port_mark(HUTCH_MARK_BOUND);
	}
	lane_page_turn(&g->lane, LANE_TURN_GIVEN);
}

void lane_bell_tell_bound(struct guest *g)
{
	_cleanup_bytes_ struct bytes bound = {0};

	if (!g->is_bound_untold)
		return;
	g->is_bound_untold = false;
	bind_bound(&bound, NULL);
	link_send(&g->link, GP_BOUND, 0, &bound);
}
