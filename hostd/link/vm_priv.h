/* struct vm, for vm.c, vm_start.c and link.c. */
#ifndef HUTCHD_VM_PRIV_H
#define HUTCHD_VM_PRIV_H

#include "channel.h"
#include "link_priv.h"
#include "template_priv.h"
#include "vm.h"
#include "vmm.h"

enum vm_state { VM_WAITING = 0, VM_STARTING, VM_RUNNING, VM_ENDING };

struct vm {
	struct list node;  /* in link->vms */
	struct link *link; /* NULL: the link ended, only a call is left */
	struct vm_spec spec;
	const struct vm_ops *ops;
	void *ctx;
	enum vm_state state;
	struct template *t;
	struct template_waiter waiter;
	struct loop_call call;	       /* runs `posted` */
	void (*posted)(struct vm *vm); /* start, or gone without a process */
	bool is_posted;
	struct bytes early; /* frames of commands before the start */
	struct vmm *vmm;
	struct channel channel;
	struct session session;
	struct loop_timer timer;
	int64_t bind_deadline_ms; /* 0 = none */
	int64_t words_deadline_ms;
	int64_t created_us;
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

void vms_destroy(struct link *l); /* kill, wait, no callbacks */

#endif
