/*
 * The huge page that a waiting runner and the monitor share (api/lane.h).
 *
 * It is hugetlb memory: unlike an ordinary page, also a locked one, it keeps
 * its frame over fork, exec and compaction, so the monitor is told the frame
 * once.  It is made early in PREPARE, when two contiguous MiB are there, and
 * lives as a memfd: each runner maps it, init only looks at its state.
 *
 * What stands in the page is user code's word.
 */
#ifndef HUTCH_GUEST_LANE_PAGE_H
#define HUTCH_GUEST_LANE_PAGE_H

#include "lane.h"
#include <stddef.h>

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
/* As it stands there now, also a number that is no state. */
uint32_t lane_page_state(const struct lane_page *p);

#endif
