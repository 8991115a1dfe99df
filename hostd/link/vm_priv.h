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
	bool is_claimed;    /* from the pool, and not yet resumed */
	struct bytes early; /* frames of commands before the start */
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

/*
 * Disk copy, channel with BIND and the early commands in it, process.
 * 0 or -1 with `e`; what was opened is closed by vm_end.
 */
int vm_process_start(struct vm *vm, const struct vmm_ops *ops,
		     void (*channel_ended)(struct channel *c, int rc),
		     struct err *e);

/* Fresh identity and the early commands into the channel, in one write. */
int vm_bind_send(struct vm *vm);

/* vm.c, for its other files. */
struct vm *vm_new(struct link *link, const struct vm_spec *spec,
		  const struct shape *shape);
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

void vms_destroy(struct link *l); /* kill, wait, no callbacks */

#endif
