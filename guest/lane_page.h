/*
 * The huge page that a waiting runner and the monitor share (api/lane.h).
 *
 * It is hugetlb memory: unlike an ordinary page, also a locked one, it keeps
 * its frame over fork, exec and compaction, so the monitor is told the frame
 * once.  It is made early in PREPARE, when two contiguous MiB are there, and
 * lives as a memfd: each runner maps it.
 *
 * The bell has one ringer at a time.  Before BIND that is init (lane_bell.h):
 * the runner sleeps on the word `turn` behind the head.  After it the runner
 * rings, and init only looks at its state.
 *
 * What stands in the page once user code has run is user code's word.
 */
#ifndef HUTCH_GUEST_LANE_PAGE_H
#define HUTCH_GUEST_LANE_PAGE_H

#include "lane.h"
#include <stdbool.h>
#include <stddef.h>

/* Between init and the runner: a futex word of the page, unknown to the
 * monitor. */
#define LANE_TURN_OFF 64u
enum lane_turn {
	LANE_TURN_RUNNER = 0, /* rings itself */
	LANE_TURN_INIT = 1,   /* the runner sleeps */
	LANE_TURN_GIVEN = 2,  /* init rang; what it found is the runner's */
};

struct lane_page {
	int fd;			/* owned; -1 = no lane */
	struct lane_head *head; /* mapped as long as fd is open */
};

/* 0 and the number of the 2 MiB page in guest memory, or -errno with a sentence
 * in `why`: then there is no lane. */
int lane_page_make(struct lane_page *p, uint64_t *ret_frame, char *why,
		   size_t why_cap);
void lane_page_finish(struct lane_page *p);
/* Where it is now; 0 or -errno. */
int lane_page_frame(const struct lane_page *p, uint64_t *ret);
/* Nobody waits there (any more). */
void lane_page_close(struct lane_page *p);
/* Somebody is about to. */
void lane_page_ready(struct lane_page *p);
/* A runner that sleeps for its turn is woken. */
void lane_page_turn(struct lane_page *p, enum lane_turn turn);
/* `from` -> `to`; false: it was another state. */
bool lane_page_move(struct lane_page *p, uint32_t from, uint32_t to);
/* `off` bytes behind its start. */
void *lane_page_at(const struct lane_page *p, uint32_t off);
/* As it stands there now, also a number that is no state. */
uint32_t lane_page_state(const struct lane_page *p);

#endif
