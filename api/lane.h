/*
 * The express lane: a run is a call into the guest, past its kernel.
 *
 * A waiting runner and the VMM share one huge page of guest memory (hugetlb,
 * MAP_SHARED: it stays where it is over fork, exec and compaction).  The page
 * holds a head, a request and an answer; both are frames of guest_proto.h, so
 * the lane is a second way for the same bytes:
 *
 *   request   one frame GP_RUN; in parts where it is longer than its area
 *   answer    STARTED, OUTPUT*, ENDED of that command, in this order
 *
 * A snapshot is taken at the first READY, before BIND.  The first request of a
 * VM restored from it begins with a frame GP_BIND, alone or with GP_RUN behind
 * it; its answer begins with BOUND, and READY comes again when it was alone.
 *
 * A doorbell is one port write, which the runner may do in user mode: it ends
 * KVM_RUN.  Who rings has set `state` before:
 *
 *   runner rings READY      the VMM parks all vCPUs: the VM waits, at no cost
 *   VMM     writes REQUEST  request copied in, then the vCPUs go on
 *   runner rings ANSWERED   the VMM parks all vCPUs and copies the answer out
 *
 *        READY -> REQUEST -> FINISHING -> ANSWERED
 *         | |        `-> ADOPTED              VMM, while the vCPUs are parked
 *         | `-> PART -> READY                 the runner took it: the next one
 *         `-> CLOSED                          runner, resumed without a request
 *
 * A run that takes long is adopted: from then on it is init's command (GP_ADOPT
 * on the channel), and the runner answers init.  The runner decides by one
 * compare-and-swap REQUEST -> FINISHING at its end; the VMM writes ADOPTED only
 * while no vCPU runs and only over REQUEST, so exactly one of the two happens.
 * A runner that is resumed without a request closes its lane and waits on init
 * as one without a lane does.
 *
 * Trust: the VMM reads the page as any guest memory: copied once, checked, then
 * used.  What a guest writes here can only cost that guest.  A ring that means
 * nothing is counted, then slowed, then the VM is stopped.
 * Plain C, standard headers only: the VMM, init and runners compile this file.
 */
#ifndef HUTCH_LANE_H
#define HUTCH_LANE_H

#include <assert.h>
#include <stdint.h>

#define LANE_VERSION	2
#define LANE_PAGE_BYTES (2u << 20)
/* Lanes of a VM: one a waiting runner. */
#define LANES_MAX 4

#define LANE_REQUEST_OFF       4096u
#define LANE_ANSWER_OFF	       (1u << 20)
#define LANE_REQUEST_BYTES_MAX (LANE_ANSWER_OFF - LANE_REQUEST_OFF)
#define LANE_ANSWER_BYTES_MAX  (LANE_PAGE_BYTES - LANE_ANSWER_OFF)
/* Of a request in parts: any RUN, with room for BIND before it. */
#define LANE_WHOLE_BYTES_MAX (5u << 20)

enum lane_state {
	LANE_CLOSED = 0, /* the runner waits elsewhere, or is not there */
	LANE_READY = 1,
	LANE_REQUEST = 2,
	LANE_FINISHING = 3,
	LANE_ANSWERED = 4,
	LANE_ADOPTED = 5,
	LANE_PART = 6, /* not the last of a request */
};

/* At the start of the page; little endian. */
struct lane_head {
	uint32_t version;		  /* LANE_VERSION, by the runner */
	uint32_t state;			  /* enum lane_state */
	uint32_t request_len, answer_len; /* bytes */
};
static_assert(sizeof(struct lane_head) == 16, "shared memory");

/*
 * Ports (4-byte OUTs).  PAGE is init's: number of the 2 MiB page << 4 | lane.
 * RING is the runner's: its lane.  Another number or width is a rule break.
 */
#define HUTCH_PORT_LANE_RING 0x520
#define HUTCH_PORT_LANE_PAGE 0x524

#endif
