/*
 * CPUID of the guest: what the host's KVM supports, less what a sandbox must
 * not have (nested virtualisation, performance counters, AMX ...), with the
 * topology of one socket of n single-threaded cores.
 */
#ifndef HUTCH_CPUID_H
#define HUTCH_CPUID_H

#include "../kvm.h"

/* Build the table for vCPU `idx` of `n` and give it to KVM. */
int cpuid_set(const struct kvm *k, int vcpu_fd, unsigned idx, unsigned n,
	      struct err *e);
/* The table alone; dst has room for KVM_CPUID_ENTRIES_MAX. */
void cpuid_build(const struct kvm *k, struct kvm_cpuid2 *dst, unsigned idx,
		 unsigned n);

#endif
