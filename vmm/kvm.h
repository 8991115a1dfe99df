/*
 * /dev/kvm: what this host offers, and the VM and vCPU descriptors.
 *
 * Two kinds of host.  Stock KVM uses VMX or SVM.  Soft KVM has neither: guest
 * user code runs natively, guest kernel code is interpreted.  The kind decides
 * the guest's default command line and whether the paravirtual XSAVE port
 * exists (x86/pvxsave.h); nothing else depends on it.
 *
 * All calls are made by the main thread before the first KVM_RUN, except
 * kvm_signal_msi and kvm_stat_read (any thread, any time).
 */
#ifndef HUTCH_VMM_KVM_H
#define HUTCH_VMM_KVM_H

#include "err.h"
#include "mem.h"
#include <linux/kvm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VCPUS_MAX	      4
#define KVM_CPUID_ENTRIES_MAX 128
#define KVM_MSRS_MAX	      512

enum kvm_kind { KVM_KIND_AUTO, KVM_KIND_SOFT, KVM_KIND_STOCK };

struct kvm {
	int dev; /* owned until kvm_dev_close */
	int vm;	 /* owned */
	bool is_soft;
	bool has_xcrs;
	bool has_kvmclock_ctrl;
	size_t run_bytes;   /* of a vCPU's kvm_run mapping */
	size_t xsave_bytes; /* KVM_GET_XSAVE2, at least sizeof kvm_xsave */
	struct kvm_cpuid2 *cpuid; /* owned: what the host supports */
	const struct mem *mem;	  /* borrowed */
	pthread_t slots;	  /* the thread that gives it to KVM */
	bool is_slots_running;
	struct err slots_err;
	uint32_t tsc_khz;
	uint32_t n_msrs;
	uint32_t msr[KVM_MSRS_MAX]; /* that a snapshot saves */
};

/* Check the API, read capabilities, decide the kind.  dev: owned from now. */
int kvm_open(struct kvm *k, int dev, enum kvm_kind kind, struct err *e);
void kvm_finish(struct kvm *k);

/* Create the VM over `mem` with the split interrupt controller.  Giving KVM
 * its memory waits for a grace period of the host's kernel (0.2 ms on an idle
 * host, 4 ms on a busy one), so a thread does it while the caller goes on
 * with what needs no guest memory in KVM; kvm_slots_wait() ends that. */
int kvm_create_vm(struct kvm *k, const struct mem *mem, struct err *e);
int kvm_slots_wait(struct kvm *k, struct err *e);
/* A vCPU's descriptor and its kvm_run page. */
int kvm_create_vcpu(struct kvm *k, unsigned idx, int *ret_fd,
		    struct kvm_run **ret_run, struct err *e);
/* Nothing of the host can be asked after this (hardening G7). */
void kvm_dev_close(struct kvm *k);

/* Deliver an interrupt message; 0 or -errno. */
int kvm_signal_msi(const struct kvm *k, uint64_t addr, uint32_t data);

/* A vCPU's statistics: a descriptor of their own, because any ioctl on the
 * vCPU waits while it runs.  -1 = this kernel has none. */
int kvm_vcpu_stats_open(int vcpu_fd);
/* Value of a named counter, 0 if there is none; any thread, any time. */
uint64_t kvm_stat_read(int stats_fd, const char *name);

/*
 * Proof of the kind, by running eight instructions of guest kernel code and
 * asking KVM whether it interpreted them.  Costs a VM of its own (some
 * milliseconds): for `--probe` and the doctor, not for every start.
 */
int kvm_probe_kind(int dev, enum kvm_kind *ret_kind, struct err *e);
/* The quick answer: no VMX and no SVM in CPUID means soft. */
enum kvm_kind kvm_cpuid_kind(void);

#endif
