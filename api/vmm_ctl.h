/*
 * Control of one hutch-vmm by its owner (hutchd, a test, a bench).
 *
 * Transport: an inherited SOCK_SEQPACKET socket; one message = one packet =
 * `struct vmm_msg` followed by `len` body bytes.  Both ends are of one build:
 * VMM_CTL_VERSION travels in STARTED and another version is refused by name.
 * End of file on the socket ends the VM: a VMM never outlives its owner.
 *
 * A request has a `seq` of its sender's choice; the reply has the same `seq`,
 * type | VMM_REPLY and `status` 0 or a negative errno.  Events have seq 0.
 */
#ifndef HUTCH_VMM_CTL_H
#define HUTCH_VMM_CTL_H

#include <assert.h>
#include <stdint.h>

#define VMM_CTL_VERSION	   4
#define VMM_BODY_BYTES_MAX 65536
#define VMM_REPLY	   0x100u

enum vmm_type {
	/* owner to VMM */
	VMM_PAUSE = 1, /* all vCPUs parked, devices drained */
	VMM_RESUME = 2,
	VMM_SNAPSHOT =
		3,     /* 2 fds: state file, memory file; VM must be paused */
	VMM_STATS = 4, /* reply body: struct vmm_stats */
	VMM_QUIT = 5,  /* ends at once, no reply */
	VMM_LOG = 6,   /* reply body: the boot log ring, newest last */
	VMM_OPEN_REPLY = 7, /* body: struct vmm_open, 1 fd when allowed */
	/* Express lane (lane.h); bodies begin with struct vmm_lane. */
	VMM_LANE_RUN = 8, /* and bytes of the request at `offset` */
	VMM_LANE_ADOPT = 9,
	/* 1 fd: the file of the pages that a restored VM touched so far; it is
	 * for `touched` of the next restore of that snapshot */
	VMM_TOUCHED = 10,
	/* VMM to owner */
	VMM_STARTED = 65,     /* struct vmm_started: vCPUs run */
	VMM_EXIT = 66,	      /* struct vmm_exit: last message */
	VMM_OPEN = 67,	      /* struct vmm_open: the guest asks for a port */
	VMM_DEVICE = 68,      /* struct vmm_exit: a device needs reset (text) */
	VMM_LANE_READY = 69,  /* struct vmm_lane: parked, waits for a request */
	VMM_LANE_ANSWER = 70, /* struct vmm_lane and bytes: parked */
};

struct vmm_msg {
	uint32_t type;
	uint32_t seq;
	int32_t status;
	uint32_t len;
};
static_assert(sizeof(struct vmm_msg) == 16, "wire");

/* Why the VM ended; also the exit status of the process. */
enum vmm_why {
	VMM_WHY_POWEROFF = 0,	    /* the guest asked for it */
	VMM_WHY_SETUP = 1,	    /* could not start: text says what */
	VMM_WHY_GUEST_SHUTDOWN = 2, /* triple fault, panic */
	VMM_WHY_KVM = 3,    /* internal error, failed entry, unknown exit */
	VMM_WHY_DEVICE = 4, /* too many rule breaks */
	VMM_WHY_OWNER = 5,  /* QUIT, or the control socket closed */
	VMM_WHY_HOST = 6,   /* host failure: out of memory, ring ... */
};

struct vmm_started {
	uint32_t version;
	uint32_t is_soft; /* 1 = no hardware virtualisation */
	uint32_t n_lanes; /* known from the snapshot */
	uint32_t pad;
	uint64_t since_start_ns; /* process start to first KVM_RUN */
};

struct vmm_exit {
	uint32_t why;	/* enum vmm_why */
	char text[252]; /* NUL terminated */
};

struct vmm_open {
	uint32_t conn;	  /* VMM's number for the request */
	uint32_t port;	  /* host port asked for */
	uint32_t allowed; /* in the reply: 1 with one fd, or 0 */
	uint32_t pad;
};

/*
 * RUN: the pieces of one request, in order, total <= LANE_REQUEST_BYTES_MAX;
 * the last one (offset + its bytes == total) starts the run.  The VM must be
 * parked with that lane READY: -EBUSY otherwise, and nothing has changed.  A
 * longer request is some of these, all but the last with VMM_LANE_IS_PART: the
 * guest takes the part, and READY asks for the next.
 * ADOPT: offset and total 0.  0 = adopted, the guest goes on; -EALREADY: the
 * answer is being written or there, VMM_LANE_ANSWER follows or came; -ENOENT:
 * no request is open.
 * ANSWER: the pieces of one answer, in order; total as for RUN.  An answer that
 * breaks lane.h comes as one with total 0.
 */
struct vmm_lane {
	uint32_t lane;
	uint32_t offset, total; /* bytes */
	uint32_t flags;
};
#define VMM_LANE_IS_PART 1u
static_assert(sizeof(struct vmm_lane) == 16, "wire");
/* Bytes that one piece takes. */
#define VMM_LANE_PIECE_BYTES_MAX (VMM_BODY_BYTES_MAX - sizeof(struct vmm_lane))

struct vmm_stats {
	uint64_t exits; /* KVM_RUN returns to user space, all vCPUs */
	uint64_t exits_io, exits_mmio, exits_pvx, exits_other;
	uint64_t insn_emulation; /* guest kernel instructions on soft KVM */
	uint64_t blk_reads, blk_writes, blk_read_bytes, blk_write_bytes;
	uint64_t vsock_rx_bytes, vsock_tx_bytes;
	uint64_t rule_breaks;
	uint64_t lane_rings, lane_strays; /* strays: rings that mean nothing */
	uint64_t syscalls_io; /* io_uring_enter and sends of the I/O thread */
};

#endif
