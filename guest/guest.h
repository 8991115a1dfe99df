/*
 * The one guest: what init holds, and the phases of its life.
 */
#ifndef HUTCH_GUEST_GUEST_H
#define HUTCH_GUEST_GUEST_H

#include "cgroup.h"
#include "command.h"
#include "lane_page.h"
#include "link.h"
#include "loop.h"
#include "nest.h"
#include "spare.h"
#include "world.h"
#include "zygote.h"

enum phase {
	PHASE_NEW, /* no PREPARE yet */
	PHASE_PREPARING,
	PHASE_READY,  /* the snapshot point */
	PHASE_BOUND,  /* identity given: user code may run */
	PHASE_BROKEN, /* set-up failed: READY said why */
};

enum runner_kind { RUNNER_NONE, RUNNER_PYTHON, RUNNER_NODE, RUNNER_SHELL };

struct prepare {
	enum runner_kind runner;
	bool has_preload;
	size_t step, program;
	uint64_t started_ns;
	struct timer settle; /* quiet time before READY */
	char error[GP_TEXT_BYTES_MAX];
};

struct guest {
	enum phase phase;
	struct loop loop;
	struct link link;
	struct world world;
	struct cgroups cg;
	struct nest nest;
	struct commands commands;
	struct prepare prepare;
	struct lane_page lane; /* of the waiting runner */
	bool is_bound_untold;  /* BIND came by it; BOUND is in the answer */
	struct timer refill;   /* a new waiting runner, when idle */
	struct zygote zygote;
	struct spares spares;
	int null_fd;	    /* /dev/null, both ways */
	uint64_t user_room; /* bytes of RAM that user code can have */
};

#endif
