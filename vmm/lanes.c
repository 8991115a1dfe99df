/* See lanes.h. */
#include "lanes.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define LANE_BITS	 4 /* of a PAGE write: the lane; the rest is the page */
#define LANE_HEAD_STATES (LANE_PART + 1)

/* The own state after a ring, by what the head says; none = a stray. */
static const uint8_t after_ring[LANE_OWN_STATES][LANE_HEAD_STATES] = {
	[LANE_OWN_CLOSED] = {[LANE_READY] = LANE_OWN_READY},
	[LANE_OWN_OPEN] = {[LANE_READY] = LANE_OWN_READY,
			   [LANE_ANSWERED] = LANE_OWN_ANSWERED},
	[LANE_OWN_ANSWERED] = {[LANE_READY] = LANE_OWN_READY},
	[LANE_OWN_ADOPTED] = {[LANE_READY] = LANE_OWN_READY},
};

/* What comes of an adoption of a run that is OPEN, by what the head says. */
static const struct {
	int status;
	enum lane_own own;
} after_adopt[LANE_HEAD_STATES] = {
	[LANE_CLOSED] = {-ENOENT, LANE_OWN_CLOSED},
	[LANE_READY] = {-ENOENT, LANE_OWN_CLOSED},
	[LANE_REQUEST] = {0, LANE_OWN_ADOPTED},
	[LANE_FINISHING] = {-EALREADY, LANE_OWN_OPEN},
	[LANE_ANSWERED] = {-EALREADY, LANE_OWN_OPEN},
	[LANE_ADOPTED] = {-ENOENT, LANE_OWN_CLOSED},
	[LANE_PART] = {-ENOENT, LANE_OWN_CLOSED},
};

void lanes_init(struct lanes *l, struct mem *mem)
{
	*l = (struct lanes){.mem = mem};
	pthread_mutex_init(&l->lock, NULL);
}

/* Lock held, as in all static functions. */
static enum lane_verdict bad(struct lanes *l)
{
	if (l->n_bad >= LANE_STRAYS_FREE + LANE_STRAYS_MAX)
		return LANE_END;
	l->n_bad++;
	return l->n_bad > LANE_STRAYS_FREE ? LANE_NAP : LANE_GO_ON;
}

static enum lane_verdict rule_break(struct lanes *l)
{
	l->n_rule_breaks++;
	return bad(l);
}

static bool is_page_free(const struct lanes *l, gpa_t page)
{
	if (!mem_span(l->mem, page, LANE_PAGE_BYTES))
		return false;
	for (unsigned i = 0; i < LANES_MAX; i++)
		if (l->lane[i].own != LANE_OWN_NONE && l->lane[i].page == page)
			return false;
	return true;
}

enum lane_verdict lanes_page(struct lanes *l, uint32_t v)
{
	uint32_t lane = v & ((1u << LANE_BITS) - 1);
	gpa_t page = (gpa_t)(v >> LANE_BITS) * LANE_PAGE_BYTES;
	enum lane_verdict r = LANE_GO_ON;

	pthread_mutex_lock(&l->lock);
	if (lane < LANES_MAX && l->lane[lane].own == LANE_OWN_NONE &&
	    is_page_free(l, page))
		l->lane[lane] =
			(struct lane){.page = page, .own = LANE_OWN_CLOSED};
	else
		r = rule_break(l);
	pthread_mutex_unlock(&l->lock);
	return r;
}

enum lane_verdict lanes_break(struct lanes *l)
{
	enum lane_verdict r;

	pthread_mutex_lock(&l->lock);
	r = rule_break(l);
	pthread_mutex_unlock(&l->lock);
	return r;
}

/* The only copy of the head that this ring is judged by. */
static enum lane_own ring_next(struct lanes *l, unsigned i, uint32_t *ret_state)
{
	struct lane *lane = &l->lane[i];
	struct lane_head head;

	if (lane->own == LANE_OWN_NONE || l->news & 1u << i ||
	    mem_read(l->mem, lane->page, &head, sizeof(head)) < 0)
		return LANE_OWN_NONE;
	*ret_state = head.state;
	if (head.version != LANE_VERSION || head.state >= LANE_HEAD_STATES)
		return LANE_OWN_NONE;
	lane->answer_len = head.answer_len;
	return (enum lane_own)after_ring[lane->own][head.state];
}

static void news_add(struct lanes *l, unsigned i)
{
	__atomic_store_n(&l->news, l->news | 1u << i, __ATOMIC_SEQ_CST);
}

enum lane_verdict lanes_ring(struct lanes *l, uint32_t v, uint32_t *ret_state)
{
	enum lane_verdict r = LANE_PARK;
	enum lane_own next;

	*ret_state = 0;
	pthread_mutex_lock(&l->lock);
	if (v >= LANES_MAX) {
		r = rule_break(l);
	} else {
		l->n_rings++;
		next = ring_next(l, v, ret_state);
		if (next == LANE_OWN_NONE) {
			l->n_strays++;
			r = bad(l);
		} else {
			l->lane[v].own = next;
			news_add(l, v);
		}
	}
	pthread_mutex_unlock(&l->lock);
	return r;
}

bool lanes_take(struct lanes *l, struct lane_news *ret)
{
	struct lane *lane;
	unsigned i;

	pthread_mutex_lock(&l->lock);
	if (!l->news) {
		pthread_mutex_unlock(&l->lock);
		return false;
	}
	i = (unsigned)__builtin_ctz(l->news);
	__atomic_store_n(&l->news, l->news & ~(1u << i), __ATOMIC_SEQ_CST);
	lane = &l->lane[i];
	lane->request_done = lane->request_total = 0;
	*ret = (struct lane_news){.lane = i};
	if (lane->own == LANE_OWN_ANSWERED) {
		ret->is_answer = true;
		ret->at = lane->page + LANE_ANSWER_OFF;
		if (lane->answer_len <= LANE_ANSWER_BYTES_MAX)
			ret->len = lane->answer_len;
		else
			(void)rule_break(l);
	}
	pthread_mutex_unlock(&l->lock);
	return true;
}

/* ---- requests ---- */

static int piece_add(struct lanes *l, struct lane *lane, uint32_t offset,
		     uint32_t total, const void *bytes, uint32_t len)
{
	if (offset == 0 && lane->request_done == 0)
		lane->request_total = total;
	if (total > LANE_REQUEST_BYTES_MAX || total != lane->request_total ||
	    offset != lane->request_done || len > total - offset ||
	    (len == 0 && total > 0) ||
	    mem_write(l->mem, lane->page + LANE_REQUEST_OFF + offset, bytes,
		      len) < 0) {
		lane->request_done = lane->request_total = 0;
		return -EPROTO;
	}
	lane->request_done += len;
	return lane->request_done == total;
}

/* The runner's version stays; no vCPU runs, so the order does not matter. */
static int open_it(struct lanes *l, struct lane *lane, enum lane_state state)
{
	struct lane_head head = {.state = state,
				 .request_len = lane->request_total};
	size_t at = offsetof(struct lane_head, state);

	if (mem_write(l->mem, lane->page + at, &head.state, sizeof(head) - at) <
	    0)
		return -EPROTO;
	lane->own = LANE_OWN_OPEN;
	return 1;
}

static int piece_take(struct lanes *l, uint32_t i, uint32_t offset,
		      uint32_t total, const void *bytes, uint32_t len,
		      enum lane_state state)
{
	struct lane *lane;
	int r;

	if (i >= LANES_MAX)
		return -EPROTO;
	lane = &l->lane[i];
	pthread_mutex_lock(&l->lock);
	if (lane->own != LANE_OWN_READY || l->news & 1u << i)
		r = -EBUSY;
	else
		r = piece_add(l, lane, offset, total, bytes, len);
	if (r == 1)
		r = open_it(l, lane, state);
	pthread_mutex_unlock(&l->lock);
	return r;
}

int lanes_request(struct lanes *l, uint32_t i, uint32_t offset, uint32_t total,
		  const void *bytes, uint32_t len)
{
	return piece_take(l, i, offset, total, bytes, len, LANE_REQUEST);
}

int lanes_part(struct lanes *l, uint32_t i, uint32_t offset, uint32_t total,
	       const void *bytes, uint32_t len)
{
	return piece_take(l, i, offset, total, bytes, len, LANE_PART);
}

static int adopt_open(struct lanes *l, struct lane *lane)
{
	static const uint32_t adopted = LANE_ADOPTED;
	gpa_t at = lane->page + offsetof(struct lane_head, state);
	uint32_t state;

	if (mem_read(l->mem, at, &state, sizeof(state)) < 0 ||
	    state >= LANE_HEAD_STATES)
		state = LANE_CLOSED;
	lane->own = after_adopt[state].own;
	if (lane->own == LANE_OWN_ADOPTED)
		(void)mem_write(l->mem, at, &adopted, sizeof(adopted));
	return after_adopt[state].status;
}

int lanes_adopt(struct lanes *l, uint32_t i)
{
	struct lane *lane;
	int r = -ENOENT;

	if (i >= LANES_MAX)
		return -EPROTO;
	lane = &l->lane[i];
	pthread_mutex_lock(&l->lock);
	if (lane->own == LANE_OWN_ANSWERED)
		r = -EALREADY;
	else if (lane->own == LANE_OWN_OPEN)
		r = adopt_open(l, lane);
	pthread_mutex_unlock(&l->lock);
	return r;
}

void lanes_resumed(struct lanes *l)
{
	pthread_mutex_lock(&l->lock);
	for (unsigned i = 0; i < LANES_MAX; i++) {
		struct lane *lane = &l->lane[i];

		lane->request_done = lane->request_total = 0;
		if (lane->own == LANE_OWN_READY && !(l->news & 1u << i))
			lane->own = LANE_OWN_CLOSED;
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- counters, snapshots ---- */

void lanes_stats(struct lanes *l, struct lanes_stats *ret)
{
	pthread_mutex_lock(&l->lock);
	*ret = (struct lanes_stats){
		.rings = l->n_rings,
		.strays = l->n_strays,
		.rule_breaks = l->n_rule_breaks,
	};
	pthread_mutex_unlock(&l->lock);
}

uint32_t lanes_count(struct lanes *l)
{
	struct lane_saved unused[LANES_MAX];

	return lanes_save(l, unused);
}

uint32_t lanes_save(struct lanes *l, struct lane_saved *ret)
{
	uint32_t n = 0;

	pthread_mutex_lock(&l->lock);
	for (uint32_t i = 0; i < LANES_MAX; i++)
		if (l->lane[i].own != LANE_OWN_NONE)
			ret[n++] = (struct lane_saved){
				.lane = i,
				.page = l->lane[i].page,
				.own = l->lane[i].own,
			};
	pthread_mutex_unlock(&l->lock);
	return n;
}

int lanes_load(struct lanes *l, const struct lane_saved *s, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct lane *lane;

		if (s[i].lane >= LANES_MAX || s[i].own == LANE_OWN_NONE ||
		    s[i].own >= LANE_OWN_STATES ||
		    s[i].page % LANE_PAGE_BYTES || !is_page_free(l, s[i].page))
			return -EPROTO;
		lane = &l->lane[s[i].lane];
		if (lane->own != LANE_OWN_NONE)
			return -EPROTO;
		lane->page = s[i].page;
		lane->own = (enum lane_own)s[i].own;
		if (lane->own == LANE_OWN_READY)
			news_add(l, s[i].lane);
	}
	return 0;
}
