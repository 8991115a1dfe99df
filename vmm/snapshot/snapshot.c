/* See snapshot.h. */
#include "snapshot.h"
#include "../vm.h"
#include "fault.h"
#include "memfile.h"
#include "state.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* ---- save ---- */

static void save_devices(struct vm *vm, struct vm_state *s)
{
	s->n_devices = vm->n_devices;
	for (unsigned i = 0; i < vm->n_devices; i++) {
		struct virtio_dev *d = vm->device[i];

		pthread_mutex_lock(&d->lock);
		s->device[i].id = d->ops->id;
		virtio_dev_save(d, &s->device[i].v);
		pthread_mutex_unlock(&d->lock);
	}
	vsock_save(vm->vsock, &s->vsock);
	s->n_disks = vm->n_disks;
	for (unsigned i = 0; i < vm->n_disks; i++)
		s->disk[i] = vm->disk_shape[i];
	ioapic_save(&vm->ioapic, &s->ioapic);
	s->n_lanes = lanes_save(&vm->lanes, s->lane);
}

static int save_all(struct vm *vm, int state_fd, int mem_fd, struct vm_state *s,
		    struct err *e)
{
	struct kvm_clock_data clock = {0};
	int r;

	profile_get(&s->profile, &vm->kvm);
	s->mem_bytes = vm->mem.size;
	save_devices(vm, s);
	s->n_vcpus = vm->vcpus.n;
	for (unsigned i = 0; i < vm->vcpus.n; i++)
		if (vcpu_state_save(&s->vcpu[i], vm->vcpus.cpu[i].fd, &vm->kvm,
				    e) < 0)
			return -EIO;
	if (ioctl(vm->kvm.vm, KVM_GET_CLOCK, &clock) < 0) {
		err_set(e, ERR_INTERNAL, NULL, "KVM_GET_CLOCK: %s",
			strerror(errno));
		return -EIO;
	}
	s->clock_ns = clock.clock;
	r = memfile_write(&vm->mem, vm->pagemap, mem_fd, vm->over, vm->n_over,
			  s, e);
	fault_point(FAULT_VMM_SAVE_STATE);
	return r < 0 ? r : state_write(state_fd, s, e);
}

int snapshot_save(struct vm *vm, int state_fd, int mem_fd, struct err *e)
{
	struct vm_state *s;
	int r;

	if (!vm->is_paused) {
		err_set(e, ERR_INVALID_REQUEST, NULL, "the VM is not paused");
		return -EBUSY;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		err_set(e, ERR_INTERNAL, NULL, "out of memory");
		return -ENOMEM;
	}
	r = save_all(vm, state_fd, mem_fd, s, e);
	free(s);
	return r;
}

/* ---- restore ---- */

static int differs(struct err *e, const char *what, unsigned long long was,
		   unsigned long long is)
{
	return err_set(e, ERR_INVALID_REQUEST, "restore",
		       "the snapshot has another %s: %llu, here %llu", what,
		       was, is);
}

static int check_shape(const struct vm *vm, const struct vm_state *s,
		       struct err *e)
{
	struct profile here;
	const char *what;

	profile_get(&here, &vm->kvm);
	what = profile_differs(&s->profile, &here);
	if (what)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "the snapshot is of another host: its %s "
			       "differs",
			       what);
	if (s->mem_bytes != vm->mem.size)
		return differs(e, "memory size", s->mem_bytes, vm->mem.size);
	if (s->n_vcpus != vm->n_vcpus)
		return differs(e, "number of vCPUs", s->n_vcpus, vm->n_vcpus);
	if (s->n_disks != vm->n_disks)
		return differs(e, "number of disks", s->n_disks, vm->n_disks);
	for (unsigned i = 0; i < s->n_disks; i++) {
		if (s->disk[i].bytes != vm->disk_shape[i].bytes)
			return differs(e, "disk size", s->disk[i].bytes,
				       vm->disk_shape[i].bytes);
		if (s->disk[i].is_read_only != vm->disk_shape[i].is_read_only)
			return differs(e, "read-only disk",
				       s->disk[i].is_read_only,
				       vm->disk_shape[i].is_read_only);
	}
	if (s->n_devices != s->n_disks + 1)
		return differs(e, "number of devices", s->n_devices,
			       s->n_disks + 1ull);
	return 0;
}

int snapshot_open(struct vm *vm, int state_fd, int mem_fd, bool is_verified,
		  struct err *e)
{
	vm->state = calloc(1, sizeof(*vm->state));
	if (!vm->state)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	if (state_read(state_fd, vm->state, e) < 0 ||
	    check_shape(vm, vm->state, e) < 0 ||
	    memfile_map(&vm->mem, mem_fd, vm->state, is_verified, e) < 0)
		return -1;
	vm->over = calloc(vm->state->n_extents + 1, sizeof(vm->over[0]));
	if (!vm->over)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	vm->n_over = vm->state->n_extents;
	memcpy(vm->mem_sum, vm->state->mem_sum, sizeof(vm->mem_sum));
	memcpy(vm->over, vm->state->extent, vm->n_over * sizeof(vm->over[0]));
	fault_point(FAULT_VMM_MAPPED);
	return 0;
}

static int load_devices(struct vm *vm, const struct vm_state *s, struct err *e)
{
	if (ioapic_load(&vm->ioapic, &s->ioapic) < 0)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "state file: I/O APIC registers");
	for (unsigned i = 0; i < vm->n_devices; i++) {
		struct virtio_dev *d = vm->device[i];
		int r;

		pthread_mutex_lock(&d->lock);
		r = s->device[i].id == d->ops->id
			    ? virtio_dev_load(d, &s->device[i].v)
			    : -EPROTO;
		pthread_mutex_unlock(&d->lock);
		if (r < 0)
			return err_set(e, ERR_INVALID_REQUEST, "restore",
				       "state file: device %s breaks the "
				       "rules of a driver",
				       d->name);
	}
	if (vsock_load(vm->vsock, &s->vsock) < 0)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "state file: connections");
	if (lanes_load(&vm->lanes, s->lane, s->n_lanes) < 0)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "state file: lanes");
	return 0;
}

int snapshot_load(struct vm *vm, struct err *e)
{
	const struct vm_state *s = vm->state;
	struct kvm_clock_data clock = {.clock = s->clock_ns};
	uint64_t tsc = vcpu_state_tsc(&s->vcpu[0]);
	int r = 0;

	if (profile_is_tsc_other(s->profile.tsc_khz, vm->kvm.tsc_khz))
		return differs(e, "TSC frequency (kHz)", s->profile.tsc_khz,
			       vm->kvm.tsc_khz);
	if (load_devices(vm, s, e) < 0)
		return -1;
	for (unsigned i = 0; r == 0 && i < vm->vcpus.n; i++) {
		r = vcpu_state_load(&s->vcpu[i], vm->vcpus.cpu[i].fd, &vm->kvm,
				    tsc, e);
		if (r < 0)
			err_wrap(e, "vCPU %u", i);
	}
	/* Last: the guest's clock goes on from where it was. */
	if (r == 0 && ioctl(vm->kvm.vm, KVM_SET_CLOCK, &clock) < 0)
		r = err_set(e, ERR_INTERNAL, NULL, "KVM_SET_CLOCK: %s",
			    strerror(errno));
	free(vm->state);
	vm->state = NULL;
	return r;
}
