/* struct vm, for vm.c, vm_....c and link.c. */
#ifndef HUTCHD_VM_PRIV_H
#define HUTCHD_VM_PRIV_H

#include "channel.h"
#include "link_priv.h"
#include "template_priv.h"
#include "vm.h"
#include "vmm.h"

enum vm_state {
	VM_WAITING = 0,
	VM_STARTING,
	VM_RUNNING,
	VM_ENDING,
	/* vm_pool.c */
	VM_RESTORING,
	VM_POOLED,
	VM_RESUMING,
	/* vm_bell.c */
	VM_BELL,
	VM_BINDING,
	/* vm_lane.c */
	VM_ARMED,
	VM_LANE_SENDING,
	VM_LANE_GIVEN,
	VM_LANE_OPEN,
	VM_LANE_ADOPTING,
	VM_LANE_FINISHING,
	VM_LANE_ANSWERING,
	/* vm_stop.c */
	VM_PINGED,
	VM_PAUSING,
	VM_SAVING,
	VM_KEEPING,
	/* vm_snapshot.c */
	VM_HOLDING,
	VM_SNAP_PAUSING,
	VM_SNAP_SAVING,
	VM_SNAP_COPYING,
};

/* What hutch-vmm said of a lane. */
struct lane_said {
	struct vmm_lane at;
	const uint8_t *data;
	size_t len;
	int status;
};

/* The express lane of a VM that waits, and the one run that it gets. */
struct lane {
	uint32_t n; /* lanes of the VM; 0 = not known yet, or none */
	uint32_t idx;
	bool is_ready;	       /* the runner waits at its doorbell */
	bool is_late;	       /* PAUSE was asked for meanwhile */
	bool is_resume_unsaid; /* RESUME after BIND, its reply is to come */
	bool is_adopt_unsaid;  /* ADOPT was asked, its reply is to come */
	bool is_adopt_wanted;  /* as soon as the run is open */
	bool is_parked;	       /* it answered: nobody runs in there */
	bool is_bind;	       /* BIND went by it, BOUND was not heard yet */
	uint64_t cmd;	       /* of the run */
	uint32_t request_len;  /* its frame, the first of `early` */
	uint32_t sent;	       /* of the frame */
	uint32_t part;	       /* where the part that is being sent begins */
	bool is_part_taken;    /* by the VMM */
	bool is_part_wanted;   /* the runner has it, and waits for the next */
	uint32_t at, total;    /* of the answer */
	int64_t given_ms;
	int64_t adopt_at_ms; /* 0 = not */
};

struct vm {
	struct list node;  /* in link->vms */
	struct link *link; /* NULL: the link ended, only a call is left */
	struct vm_spec spec;
	const struct vm_ops *ops; /* NULL: of the pool */
	const struct vm_pool_ops *pool_ops;
	void *ctx;
	enum vm_state state;
	struct template *t;
	uint64_t generation; /* of t, when the process started */
	struct template_waiter waiter;
	struct loop_call call;	       /* runs `posted` */
	void (*posted)(struct vm *vm); /* start, or gone without a process */
	bool is_posted;
	bool is_bind_given;
	bool is_claimed;    /* from the pool, and not yet resumed */
	bool had_run;	    /* the runner of its snapshot has its RUN */
	struct bytes early; /* frames of commands before the start */
	struct lane lane;
	int disk_fd;	 /* owned; -1 = no process yet */
	bool was_live;	 /* its snapshot is of a sandbox, not a template */
	bool is_stopped; /* it goes on from its files (vm_stop.c) */
	struct saving *saving;	   /* owned, until a worker has it */
	struct vm_from *from;	   /* the same (vm_from.c) */
	struct snapping *snapping; /* the same (vm_snapshot.c) */
	struct {
		const uint8_t *data; /* borrowed; NULL: none */
		size_t sent;
		bool is_piecewise; /* by vm_file_piece */
		bool is_given_up;
		size_t awaited;	 /* of a piece that was asked for */
	} file;			 /* the write that is under way */
	int64_t held_ms;	 /* since when, monotonic */
	uint64_t base_mem_bytes; /* of the memory file that it began from */
	struct vmm *vmm;
	struct channel channel;
	struct session session;
	struct loop_timer timer;
	int64_t bind_deadline_ms; /* 0 = none */
	int64_t words_deadline_ms;
	int64_t created_us, ready_us;
	enum end_reason why; /* END_NONE: not known yet */
	char text[REASON_BYTES_MAX];
};

/* Disk copy, channel, process.  0 or -1 with `e`; what was opened is closed by
 * vm_end. */
int vm_process_start(struct vm *vm, const struct vmm_ops *ops,
		     void (*channel_ended)(struct channel *c, int rc),
		     struct err *e);

/* A fresh identity as frame BIND.  0 or -errno. */
int vm_bind_put(const struct vm *vm, struct bytes *out);

/* vm_command.c: what was asked for early goes into the channel, and is wiped
 * here.  0 or -ENOMEM. */
int vm_early_send(struct vm *vm);
/* Where a frame goes now, or NULL when there is no room; and when it is there:
 * it is on its way. */
struct bytes *vm_queue(struct vm *vm);
void vm_queue_sent(struct vm *vm);

/* vm_file.c, for vm.c. */
void vm_file_more(void *ctx, uint64_t number, size_t max);

/* vm.c, for its other files. */
/* In the link's list, not started; NULL with `e`. */
struct vm *vm_new(struct link *link, const struct vm_spec *spec, void *ctx,
		  struct err *e);
/* The same, from a snapshot of a sandbox. */
struct vm *vm_new_live(struct link *link, const struct vm_spec *spec,
		       const struct vm_ops *ops, void *ctx, struct err *e);
/* It starts when its template's images are known. */
void vm_await_template(struct vm *vm);
int vm_begin_process(struct vm *vm, struct err *e);
void vm_free(struct vm *vm);
void vm_start_post(struct vm *vm);
void vm_timer_arm(struct vm *vm);
void vm_cmd_deadline(struct vm *vm, struct session_cmd *c, int64_t after_ms);
/* Commands may start: their deadlines run, and the owner is told. */
void vm_bound(struct vm *vm);
void vm_end(struct vm *vm, enum end_reason why, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* vm_pool.c, for vm.c. */
void vm_pooled_resume(struct vm *vm);
/* It was claimed, given nothing, and is of no use: restore another. */
void vm_pooled_instead(struct vm *vm);
/* Claimed, and nothing given to it yet. */
bool vm_is_ungiven(const struct vm *vm);
void vm_pooled_bound(struct vm *vm);
void vm_pooled_replied(struct vm *vm, enum vmm_type type, int status);

/* vm_stop.c, for vm.c and vm_start.c. */
void vm_stop_ponged(struct vm *vm);
void vm_stop_replied(struct vm *vm, enum vmm_type type, int status);
bool vm_is_stopping(const struct vm *vm); /* and has a deadline */
/* The VM ends: what was being written is of no use. */
void vm_stop_forget(struct vm *vm);
/* State and memory to read, disk to read and write; 0 or -errno.  What was
 * opened is in `ret`, also then. */
int vm_stopped_open(const struct link *l, const char *sandbox, int ret[3]);
/* It went on: state and memory are removed. */
void vm_stopped_used(struct vm *vm);

/* vm_snapshot.c, for vm.c and vm_command.c. */
bool vm_is_snapping(const struct vm *vm); /* held, or standing still */
void vm_snapshot_ponged(struct vm *vm);
void vm_snapshot_replied(struct vm *vm, enum vmm_type type, int status);
/* Its deadline passed; true = it goes on all the same. */
bool vm_snapshot_is_late(struct vm *vm);
void vm_snapshot_forget(struct vm *vm); /* the VM is freed */

/* vm_from.c, for vm.c and vm_start.c. */
void vm_from_forget(struct vm *vm);
int vm_from_take(struct vm *vm, int *ret_state, int *ret_mem, int *ret_disk,
		 struct err *e);

/* vm_bell.c: for vm.c ... */
void vm_bell_none(struct vm *vm); /* it runs: no lane, or not at its bell */
/* ... and for the table of vm_lane.c. */
void vm_bell_run(struct vm *vm, const struct lane_said *said);
void vm_bell_pooled(struct vm *vm, const struct lane_said *said);
void vm_bell_taken(struct vm *vm, const struct lane_said *said);
void vm_bell_refused(struct vm *vm, const struct lane_said *said);
void vm_bell_answer(struct vm *vm, const struct lane_said *said);

/* vm_lane_give.c: for vm_pool.c and vm_bell.c ... */
/* Is what was asked for one RUN? */
bool vm_lane_takes(const struct vm *vm);
uint64_t vm_lane_command(const struct vm *vm); /* its number */
/* `early` is the request of that command.  0 or -errno. */
int vm_lane_give(struct vm *vm, uint64_t cmd);
/* ... for vm_lane.c ... */
/* READY for the next part; false: out of turn. */
bool vm_give_part_wanted(struct vm *vm, const struct lane_said *said);
void vm_give_part_taken(struct vm *vm, const struct lane_said *said);
void vm_give_run_taken(struct vm *vm, const struct lane_said *said);
void vm_give_run_refused(struct vm *vm, const struct lane_said *said);
/* ... and for vm.c. */
void vm_lane_writable(void *ctx);
void vm_lane_due(struct vm *vm, int64_t now); /* adopt_at_ms has come */

/* vm_lane.c: for vm_bell.c ... */
/* One more piece of an answer; true: that was the last.  The VM may have ended.
 */
bool vm_lane_piece(struct vm *vm, const struct lane_said *said);
/* ... and for vm.c. */
void vm_lane_unready(struct vm *vm); /* READY is late */
void vm_lane_resumed(struct vm *vm); /* RESUME was answered */
void vm_lane_adopt(struct vm *vm);   /* the run shall be init's command */
void vm_lane_unpark(struct vm *vm);  /* it answered, and gets more to do */
bool vm_lane_is_open(const struct vm *vm);
/* Of the time-out of the run that it was given. */
int64_t vm_lane_left_ms(const struct vm *vm, const struct session_cmd *c);
/* It was claimed and ended, and its request is still in the socket: nothing
 * ran.
 */
bool vm_lane_is_unread(const struct vm *vm, const struct vmm_end *end);
void vm_lane_said(void *ctx, enum vmm_type type, const struct vmm_lane *l,
		  const uint8_t *data, size_t len);
void vm_lane_replied(struct vm *vm, enum vmm_type type, int status);

/* vm_pool.c, for vm_lane.c. */
void vm_pooled_pause(struct vm *vm);
void vm_pooled_waits(struct vm *vm);

void vms_destroy(struct link *l); /* kill, wait, no callbacks */

#endif
