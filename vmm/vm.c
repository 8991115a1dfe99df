/* Putting a VM together; see vm.h. */
#include "vm.h"
#include "confine.h"
#include "fd.h"
#include "guest_abi.h"
#include "guest_proto.h"
#include "log.h"
#include "snapshot/snapshot.h"
#include "thread.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOW_BYTES (2u << 20) /* kept in small pages */

static void raise_line(void *ctx, unsigned line)
{
	struct vm *vm = ctx;

	trace_irq(vm->trace, line);
	ioapic_raise(&vm->ioapic, line);
}

static void wake_io(void *ctx)
{
	struct vm *vm = ctx;
	unsigned kicked = 0;

	if (vm->trace) {
		/* A trace may miss a kick that comes right now: no locks. */
		for (unsigned i = 0; i < vm->n_devices; i++)
			if (__atomic_load_n(&vm->device[i]->kicked,
					    __ATOMIC_RELAXED))
				kicked |= 1u << i;
		trace_kick(vm->trace, kicked);
	}
	io_wake(vm->io);
}

static void bytes_moved(void *ctx, uint32_t port, bool is_up, uint32_t len)
{
	struct vm *vm = ctx;

	trace_channel(vm->trace, port, is_up, len);
}

static void rule_broken(void *ctx, struct virtio_dev *d, const char *what)
{
	struct vm *vm = ctx;
	char text[sizeof(((struct vmm_exit *)0)->text)];

	snprintf(text, sizeof(text), "%s: %s (rule break %u)", d->name, what,
		 d->rule_breaks);
	trace_text(vm->trace, "rule_break", text);
	notice_device(&vm->notice, text);
	if (d->rule_breaks >= VIRTIO_RULE_BREAKS_MAX)
		vm_end(vm, VMM_WHY_DEVICE, "%s", text);
}

static void ask_open(void *ctx, uint32_t conn, uint32_t port)
{
	struct vm *vm = ctx;

	/* No room: the connection stays unanswered and times out. */
	(void)notice_open(&vm->notice, conn, port);
}

static int add_device(struct vm *vm, struct virtio_dev *d, struct err *e)
{
	unsigned n = vm->n_devices;
	int r;

	d->raise = raise_line;
	d->wake = wake_io;
	d->broken = rule_broken;
	d->ctx = vm;
	d->line = HUTCH_MMIO_IRQ_BASE + n;
	r = io_device_add(vm->io, d);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "device %s: %s", d->name,
			       strerror(-r));
	vm->device[vm->n_devices++] = d;
	return 0;
}

static int add_disk(struct vm *vm, unsigned n, const struct disk_options *d,
		    struct err *e)
{
	char id[BLK_ID_BYTES + 1];
	struct blk_config cfg = {
		.fd = d->src.fd,
		.bytes = d->bytes,
		.is_read_only = d->is_read_only,
		.is_sync_lazy = d->is_lazy,
		.bytes_written_max = d->cap_bytes,
		.id = id,
	};
	int r;

	snprintf(id, sizeof(id), "hutch-%u", n);
	r = blk_create(&vm->disk[n], &vm->mem, vm->io, &cfg);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "disk %u: %s", n,
			       strerror(-r));
	return add_device(vm, blk_dev(vm->disk[n]), e);
}

static int add_devices(struct vm *vm, const struct options *o, struct err *e)
{
	static const struct vsock_ops ops = {.ask = ask_open,
					     .moved = bytes_moved};
	struct io_config cfg = {.use_ring = o->use_ring};
	int r = io_create(&vm->io, &cfg);

	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "I/O ring: %s",
			       strerror(-r));
	for (unsigned i = 0; i < o->n_disks; i++)
		if (add_disk(vm, i, &o->disk[i], e) < 0)
			return -1;
	r = vsock_create(&vm->vsock, &vm->mem, vm->io, GP_GUEST_CID, &ops, vm);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "vsock: %s",
			       strerror(-r));
	return add_device(vm, vsock_dev(vm->vsock), e);
}

static int add_memory(struct vm *vm, uint32_t mib, struct err *e)
{
	int r = mem_init(&vm->mem, (uint64_t)mib << 20);

	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "guest memory of %u MiB: %s", mib, strerror(-r));
	/* A fault of 2 MiB is some 40 times cheaper a page than one of 4 KiB;
	 * a host without huge pages says EINVAL, which is no loss.  The lowest
	 * part holds boot's tables and a few pages of real mode: a huge page
	 * zeroed for them would delay the first instruction by 1 ms. */
	(void)madvise(vm->mem.host + LOW_BYTES, vm->mem.size - LOW_BYTES,
		      MADV_HUGEPAGE);
	return 0;
}

int vm_create(struct vm *vm, struct options *o, struct err *e)
{
	int r;

	vm->pagemap = fd_take(&o->pagemap);
	guest_log_init(&vm->log);
	r = notice_init(&vm->notice);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "eventfd: %s",
			       strerror(-r));
	if (o->trace.is_given && trace_create(&vm->trace, o->trace.fd) < 0)
		return err_set(e, ERR_INTERNAL, NULL, "trace: out of memory");
	vm->n_vcpus = o->n_vcpus;
	vm->n_disks = o->n_disks;
	for (unsigned i = 0; i < o->n_disks; i++)
		vm->disk_shape[i] = (struct disk_state){
			.bytes = o->disk[i].bytes,
			.is_read_only = o->disk[i].is_read_only,
		};
	if (kvm_open(&vm->kvm, fd_take(&o->kvm), o->kind, e) < 0 ||
	    add_memory(vm, o->mem_mib, e) < 0)
		return -1;
	/* Laid over RAM before KVM knows of it: nothing to tell it later. */
	if (o->is_restore &&
	    snapshot_open(vm, o->state.fd, o->memory.fd, o->is_verified, e) < 0)
		return -1;
	vm->ahead = (struct touched_work){
		.fd = o->touched.fd,
		.mem_fd = o->memory.fd,
		.mem = &vm->mem,
		.mem_sum = vm->mem_sum,
	};
	touched_start(&vm->ahead);
	if (kvm_create_vm(&vm->kvm, &vm->mem, e) < 0)
		return -1;
	ioapic_init(&vm->ioapic, &vm->kvm);
	pvx_init(&vm->pvx, &vm->kvm);
	lanes_init(&vm->lanes, &vm->mem);
	pthread_mutex_init(&vm->teller.lock, NULL);
	if (vcpus_create(&vm->vcpus, vm, o->n_vcpus, e) < 0)
		return -1;
	if (add_devices(vm, o, e) < 0)
		return -1;
	touched_wait(&vm->ahead);
	return kvm_slots_wait(&vm->kvm, e);
}

static void *io_thread(void *arg)
{
	struct vm *vm = arg;
	struct err e = {0};

	if (confine_thread(CONFINE_IO, &e) == 0)
		io_run(vm->io);
	return NULL;
}

int vm_start(struct vm *vm, struct err *e)
{
	unsigned n = 1 + vm->vcpus.n;
	int r = thread_create(&vm->io_thread, io_thread, vm);

	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "I/O thread: %s",
			       strerror(-r));
	if (vm->trace) {
		r = trace_start(vm->trace);
		if (r < 0)
			return err_set(e, ERR_INTERNAL, NULL, "trace: %s",
				       strerror(-r));
		n++;
	}
	vm->is_paused = true;
	if (vcpus_start(&vm->vcpus, e) < 0)
		return -1;
	/* This thread's list while the others make theirs. */
	if (confine_thread(CONFINE_MAIN, e) < 0)
		return -1;
	return confine_threads_wait(n, e);
}

static void devices_stop(struct vm *vm)
{
	vsock_hold(vm->vsock, true);
	for (unsigned i = 0; i < vm->n_disks; i++)
		blk_drain(vm->disk[i]);
}

void vm_begin(struct vm *vm, uint64_t now_ns)
{
	vm->n_lanes = lanes_count(&vm->lanes);
	if (!lanes_have_news(&vm->lanes)) {
		vm_resume(vm);
		return;
	}
	devices_stop(vm);
	notice_started(&vm->notice, now_ns);
}

void vm_pause(struct vm *vm)
{
	if (vm->is_paused)
		return;
	vcpus_park(&vm->vcpus);
	devices_stop(vm);
	vm->is_paused = true;
}

void vm_resume(struct vm *vm)
{
	if (!vm->is_paused)
		return;
	vsock_hold(vm->vsock, false);
	/* The guest's watchdogs shall not count the pause.  EINVAL: it has no
	 * kvm-clock (yet). */
	if (vm->kvm.has_kvmclock_ctrl)
		for (unsigned i = 0; i < vm->vcpus.n; i++)
			(void)ioctl(vm->vcpus.cpu[i].fd, KVM_KVMCLOCK_CTRL, 0);
	lanes_resumed(&vm->lanes);
	vm->is_paused = false;
	vcpus_unpark(&vm->vcpus);
}

int vm_adopt(struct vm *vm, uint32_t lane)
{
	bool did_run = !vm->is_paused;
	int r;

	if (did_run)
		vcpus_park(&vm->vcpus);
	r = lanes_adopt(&vm->lanes, lane);
	if (did_run && !lanes_have_news(&vm->lanes))
		vcpus_unpark(&vm->vcpus);
	return r;
}

static uint64_t load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

void vm_stats(struct vm *vm, struct vmm_stats *ret)
{
	struct vsock_stats vs;
	struct lanes_stats ls;
	struct blk_stats bs;

	*ret = (struct vmm_stats){.syscalls_io = io_syscalls(vm->io)};
	for (unsigned i = 0; i < vm->vcpus.n; i++) {
		const struct vcpu *c = &vm->vcpus.cpu[i];

		ret->exits += load(&c->exits);
		ret->exits_io += load(&c->exits_io);
		ret->exits_mmio += load(&c->exits_mmio);
		ret->exits_pvx += load(&c->exits_pvx);
		ret->exits_other += load(&c->exits_other);
		ret->insn_emulation +=
			kvm_stat_read(c->stats, "insn_emulation");
	}
	for (unsigned i = 0; i < vm->n_disks; i++) {
		blk_stats(vm->disk[i], &bs);
		ret->blk_reads += bs.reads;
		ret->blk_writes += bs.writes;
		ret->blk_read_bytes += bs.read_bytes;
		ret->blk_write_bytes += bs.write_bytes;
	}
	vsock_stats(vm->vsock, &vs);
	ret->vsock_rx_bytes = vs.rx_bytes;
	ret->vsock_tx_bytes = vs.tx_bytes;
	lanes_stats(&vm->lanes, &ls);
	ret->lane_rings = ls.rings;
	ret->lane_strays = ls.strays;
	ret->rule_breaks = ls.rule_breaks;
	for (unsigned i = 0; i < vm->n_devices; i++) {
		pthread_mutex_lock(&vm->device[i]->lock);
		ret->rule_breaks += vm->device[i]->rule_breaks;
		pthread_mutex_unlock(&vm->device[i]->lock);
	}
}
