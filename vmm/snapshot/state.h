/*
 * The state file of a snapshot: everything of a VM but its memory.
 *
 * A sealed file (sealed.h) with `struct vm_state` by the tables in state.c.
 * It is refused by name, too, when it is of another host: the processor's raw
 * CPUID, XCR0, the kind of KVM and its TSC frequency.
 */
#ifndef HUTCH_STATE_H
#define HUTCH_STATE_H

#include "../kvm.h"
#include "../lanes.h"
#include "../options.h"
#include "../virtio/vsock.h"
#include "../x86/ioapic.h"
#include "sha256.h"

/* Changed whenever a table, a struct of the kernel's or the meaning of a
 * field changes. */
#define STATE_VERSION	  3
#define STATE_XSAVE_MAX	  16384
#define STATE_EXTENTS_MAX 256

struct profile { /* the host that a state belongs to */
	uint32_t is_soft;
	uint32_t tsc_khz;
	uint64_t xcr0;
	uint8_t cpuid[SHA256_BYTES]; /* of all raw leaves */
};

struct vcpu_state {
	struct kvm_regs regs;
	struct kvm_sregs sregs;
	struct kvm_xcrs xcrs;
	struct kvm_debugregs debugregs;
	struct kvm_lapic_state lapic;
	struct kvm_vcpu_events events;
	struct kvm_mp_state mp;
	uint32_t n_msrs, n_xsave;
	struct kvm_msr_entry msr[KVM_MSRS_MAX];
	uint8_t xsave[STATE_XSAVE_MAX];
};

struct disk_state { /* a disk must look the same */
	uint64_t bytes;
	uint32_t is_read_only;
};

struct extent { /* of the memory file that is laid over guest memory */
	uint64_t off, len;
};

struct device_state {
	uint32_t id; /* virtio device id */
	struct virtio_state v;
};

struct vm_state {
	struct profile profile;
	uint64_t mem_bytes;
	uint64_t mem_data_bytes;       /* in the memory file */
	uint8_t mem_sum[SHA256_BYTES]; /* of its data, see memfile.h */
	uint64_t clock_ns;
	struct ioapic_state ioapic;
	uint32_t n_vcpus, n_disks, n_devices, n_extents, n_lanes;
	struct vcpu_state vcpu[VCPUS_MAX];
	struct disk_state disk[DISKS_MAX];
	struct device_state device[DISKS_MAX + 1];
	struct lane_saved lane[LANES_MAX];
	struct vsock_state vsock;
	struct extent extent[STATE_EXTENTS_MAX];
};

/* This host. */
void profile_get(struct profile *ret, const struct kvm *k);
/* The name of what differs but the TSC frequency, which is known only once
 * there is a vCPU; NULL when nothing does. */
const char *profile_differs(const struct profile *a, const struct profile *b);

bool profile_is_tsc_other(uint32_t a_khz, uint32_t b_khz);

int state_write(int fd, const struct vm_state *s, struct err *e);
int state_read(int fd, struct vm_state *s, struct err *e);

int vcpu_state_save(struct vcpu_state *s, int vcpu_fd, const struct kvm *k,
		    struct err *e);
/* tsc: what every vCPU's counter starts from, where the host can set it. */
int vcpu_state_load(const struct vcpu_state *s, int vcpu_fd,
		    const struct kvm *k, uint64_t tsc, struct err *e);
/* The counter at the time of the save. */
uint64_t vcpu_state_tsc(const struct vcpu_state *s);

#endif
