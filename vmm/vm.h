/*
 * One microVM: its parts, and what is done to all of them together.
 *
 * Threads: the main thread (control), one I/O thread (disks and channel), one
 * thread a vCPU, and a trace writer when asked for.  What a vCPU or the I/O
 * thread has to say goes to the main thread by `notice`.
 *
 * Guest physical memory:
 *
 *   0 ........ RAM .... 3 GiB | devices, I/O APIC, local APIC | 4 GiB .. RAM
 *                               0xd0000000  virtio-mmio, a page each
 *                               0xfec00000  I/O APIC
 *                               0xfee00000  local APIC (in KVM)
 */
#ifndef HUTCH_VM_H
#define HUTCH_VM_H

#include "guest_log.h"
#include "io.h"
#include "kvm.h"
#include "lanes.h"
#include "mem.h"
#include "notice.h"
#include "options.h"
#include "snapshot/state.h"
#include "snapshot/touched.h"
#include "trace.h"
#include "vcpu.h"
#include "virtio/blk.h"
#include "virtio/vsock.h"
#include "vmm_ctl.h"
#include "x86/ioapic.h"
#include "x86/pvxsave.h"

#define DEVICES_MAX (DISKS_MAX + 1)

/*
 * The owner's side.  `lock`: who holds it speaks to the owner, pauses and
 * resumes; the main thread has it except while it waits.  A vCPU's thread only
 * ever tries, and tells what its lane has to say when it gets it: a ring then
 * waits for no other thread.
 */
struct teller {
	pthread_mutex_t lock;
	void (*tell)(void *ctx); /* NULL: only the main thread */
	void *ctx;
};

struct vm {
	struct kvm kvm;
	struct mem mem;
	struct ioapic ioapic;
	struct pvx pvx;
	struct lanes lanes;
	struct teller teller;
	struct guest_log log;
	struct notice notice;
	struct trace *trace; /* owned; NULL = off */
	struct io *io;
	pthread_t io_thread;
	struct blk *disk[DISKS_MAX];
	struct vsock *vsock;
	/* All devices in the order of their windows and lines. */
	struct virtio_dev *device[DEVICES_MAX];
	struct disk_state disk_shape[DISKS_MAX]; /* what a snapshot checks */
	unsigned n_disks, n_devices, n_vcpus;
	uint32_t n_lanes; /* that came with the snapshot */
	struct vcpus vcpus;
	bool is_paused, is_log_forwarded;
	int pagemap; /* owned: of this process */
	/* Restore: the state until it is loaded; the parts of memory that lie
	 * over the snapshot's file, and its sum. */
	struct vm_state *state; /* owned */
	struct extent *over;	/* owned */
	uint32_t n_over;
	uint8_t mem_sum[SHA256_BYTES];
	struct touched_work ahead;
};

/* Memory, devices and vCPUs as `o` says; all parked, nothing loaded. */
int vm_create(struct vm *vm, struct options *o, struct err *e);
/* Start the threads; all are then confined, the caller too.  The vCPUs stay
 * parked. */
int vm_start(struct vm *vm, struct err *e);
/* The vCPUs run; but a snapshot of a lane that waited for its request waits on,
 * parked, and says so.  now_ns: CLOCK_MONOTONIC. */
void vm_begin(struct vm *vm, uint64_t now_ns);

/* With the teller's lock.  Paused: all vCPUs parked, no disk operation in
 * flight, no bytes taken from sockets. */
void vm_pause(struct vm *vm);
void vm_resume(struct vm *vm);
/* The run of `lane` goes on as init's command; as lanes_adopt.  A VM that ran
 * goes on, except when a lane was rung meanwhile. */
int vm_adopt(struct vm *vm, uint32_t lane);
void vm_stats(struct vm *vm, struct vmm_stats *ret);

/* Any thread: the VM is over.  The first reason wins. */
#define vm_end(vm, why, ...) notice_end(&(vm)->notice, why, __VA_ARGS__)
/* The same from a vCPU's thread, which then parks instead of running on. */
#define vcpu_end(c, why, ...)                                                  \
	do {                                                                   \
		vm_end((c)->vm, why, __VA_ARGS__);                             \
		__atomic_store_n(&(c)->vm->vcpus.want, VCPU_PARK,              \
				 __ATOMIC_SEQ_CST);                            \
	} while (0)

#endif
