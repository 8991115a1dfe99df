/*
 * Lanes of a VM: registration, doorbells, requests and answers (api/lane.h).
 *
 * The VMM keeps an own idea of each lane's state.  The page is looked at in
 * two places only, one copy of its head each: when the lane is rung, and when
 * a run is adopted.  What the copy says moves the own state by the tables of
 * lanes.c or means nothing; nothing else depends on it.
 *
 *   own state   rung READY   rung ANSWERED   request   adopted   resumed
 *   CLOSED      READY        -               -         -         CLOSED
 *   READY       -            -               OPEN      -         CLOSED
 *   OPEN        READY        ANSWERED        -         ADOPTED   OPEN
 *   ANSWERED    READY        -               -         -         ANSWERED
 *   ADOPTED     READY        -               -         -         ADOPTED
 *
 * A ring that is taken is news for the main thread, and until that has taken
 * them the lane takes no other ring.  A stray ring or a rule break is counted;
 * after LANE_STRAYS_FREE of them in a VM's life each costs its vCPU a nap, and
 * LANE_STRAYS_MAX later the VM ends.
 *
 * vCPU threads call lanes_page, lanes_ring and lanes_break; the main thread
 * the rest, lanes_request, lanes_adopt and lanes_resumed while all vCPUs are
 * parked.
 */
#ifndef HUTCH_LANES_H
#define HUTCH_LANES_H

#include "lane.h"
#include "mem.h"
#include <pthread.h>
#include <stdbool.h>

#define LANE_STRAYS_FREE 100u
#define LANE_STRAYS_MAX	 10000u
#define LANE_NAP_NS	 1000000

enum lane_own {
	LANE_OWN_NONE, /* no page is registered */
	LANE_OWN_CLOSED,
	LANE_OWN_READY,
	LANE_OWN_OPEN, /* a request was given */
	LANE_OWN_ANSWERED,
	LANE_OWN_ADOPTED,
	LANE_OWN_STATES,
};

/* What a vCPU does after its port write. */
enum lane_verdict {
	LANE_GO_ON,
	LANE_PARK, /* all vCPUs; there is news */
	LANE_NAP,  /* LANE_NAP_NS */
	LANE_END,  /* the VM: too many rings that mean nothing */
};

struct lane {
	gpa_t page;
	enum lane_own own;
	uint32_t answer_len;		      /* from the copy of the ring */
	uint32_t request_done, request_total; /* bytes; total 0 = none begun */
};

struct lanes {
	pthread_mutex_t lock;
	struct mem *mem; /* borrowed */
	uint32_t news;	 /* bit per lane; atomic, written under the lock */
	uint32_t n_bad;	 /* strays and rule breaks */
	uint64_t n_rings, n_strays, n_rule_breaks;
	struct lane lane[LANES_MAX];
};

struct lane_news {
	uint32_t lane;
	bool is_answer; /* else READY */
	gpa_t at;	/* of the answer */
	uint32_t len;	/* of the answer; 0 also when it breaks lane.h */
};

struct lane_saved { /* of a snapshot */
	uint64_t page;
	uint32_t lane, own;
};

struct lanes_stats {
	uint64_t rings, strays, rule_breaks;
};

void lanes_init(struct lanes *l, struct mem *mem);

/* The port writes: PAGE, RING, and one of another width to either. */
enum lane_verdict lanes_page(struct lanes *l, uint32_t v);
/* ret_state: what the head said, for the trace; 0 when it was not read. */
enum lane_verdict lanes_ring(struct lanes *l, uint32_t v, uint32_t *ret_state);
enum lane_verdict lanes_break(struct lanes *l);

/* Any thread, no lock: is there something to take? */
static inline bool lanes_have_news(const struct lanes *l)
{
	return __atomic_load_n(&l->news, __ATOMIC_SEQ_CST) != 0;
}
/* False when there is none. */
bool lanes_take(struct lanes *l, struct lane_news *ret);

/*
 * The next piece of a request.  0 = more to come, 1 = it is complete and its
 * lane is OPEN; -EBUSY: the lane is not READY, nothing has changed; -EPROTO:
 * the piece is not the next one or too large, begin again from offset 0.
 */
int lanes_request(struct lanes *l, uint32_t lane, uint32_t offset,
		  uint32_t total, const void *bytes, uint32_t len);
/* The same of a part that is not the last one of a request. */
int lanes_part(struct lanes *l, uint32_t lane, uint32_t offset, uint32_t total,
	       const void *bytes, uint32_t len);
/* 0 = adopted; -EALREADY, -ENOENT as in vmm_ctl.h; -EPROTO: no such lane. */
int lanes_adopt(struct lanes *l, uint32_t lane);
/* The vCPUs are about to go on: a lane that is READY got no request. */
void lanes_resumed(struct lanes *l);

uint32_t lanes_count(struct lanes *l); /* registered */
void lanes_stats(struct lanes *l, struct lanes_stats *ret);
/* Registered lanes; `ret` has room for LANES_MAX.  Their number. */
uint32_t lanes_save(struct lanes *l, struct lane_saved *ret);
/* Into fresh lanes; 0, or -EPROTO for what could not have been registered.  A
 * lane that is READY is news. */
int lanes_load(struct lanes *l, const struct lane_saved *s, uint32_t n);

#endif
