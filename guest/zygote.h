/*
 * The zygote: a Python that has imported its libraries and runs no user code.
 *
 * A runner serves one run.  The first one waits in the snapshot, on its lane;
 * each one after it would import the libraries anew, which takes seconds, and a
 * minute where the guest's kernel is interpreted.  So a zygote waits in the
 * snapshot too: every later runner is a fork of it, at the cost of a page table
 * and of the pages that a run writes to.  Some forks wait there as well, with
 * those pages already theirs.
 *
 *   init -> zygote   FORK: tag; descriptors of stdout, stderr and channel
 *   runner -> init   BORN (pid), WAITING ... on its own channel
 *   zygote -> init   DIED: tag and status of wait(2)
 *
 * A fork is the zygote's child; should the zygote end, it is the nest's, which
 * was told its pid for that.  A zygote that ends is replaced once; then runners
 * are started one by one.
 *
 * It shares the uid of user code, which may kill it or speak in its place: what
 * it says can end or mix up the runners of this sandbox, and no more.
 */
#ifndef HUTCH_GUEST_ZYGOTE_H
#define HUTCH_GUEST_ZYGOTE_H

#include "command.h"

struct zygote {
	struct command *c; /* NULL = none */
	bool is_ready;
	unsigned runners; /* that shall wait, with the one on the lane; less
			   * than 2: no zygote */
	unsigned ends;	  /* how many have ended */
};

/* Is one there that makes runners, or to be started? */
bool zygote_is_wanted(const struct guest *g);
/* How many runners shall wait. */
unsigned zygote_runners(const struct guest *g);
/* 0: a runner is under way, or will be asked for when the zygote waits. */
int zygote_ask(struct guest *g, void (*done)(struct command *c));

/* What came on the channel of a zygote, or of a fork. */
void zygote_waits(struct command *c);
void zygote_child_born(struct command *c, uint32_t pid);
void zygote_child_died(struct guest *g, uint32_t tag, int status);

#endif
