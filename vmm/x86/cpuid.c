/*
 * CPUID rules; see cpuid.h.  A table of masks with a reason each, then the
 * topology leaves, which depend on the vCPU.
 *
 * The invariant TSC is hidden on purpose: a guest that sees it reads the raw
 * counter as its clock, and a snapshot restored after a reboot or on another
 * host would see time jump.  Without it Linux uses kvm-clock (by vDSO, as
 * cheap), which KVM adjusts.
 */
#include "cpuid.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum reg { EAX, EBX, ECX, EDX };

#define ANY_INDEX	  0xffffffffu
#define BIT(n)		  (1u << (n))
#define KVM_LEAF_FEATURES 0x40000001u
#define ALL		  0xffffffffu

/* KVM paravirtual features that survive a snapshot and need no help:
 * clocksource (both), no I/O delay, stable clock. */
#define KVM_FEATURES_KEPT (BIT(0) | BIT(1) | BIT(3) | BIT(24))

static const struct {
	uint32_t leaf, index;
	enum reg reg;
	uint32_t clear, set;
} rules[] = {
	{0x1, ANY_INDEX, ECX, BIT(2), 0},  /* DTES64: debug store */
	{0x1, ANY_INDEX, ECX, BIT(3), 0},  /* MONITOR */
	{0x1, ANY_INDEX, ECX, BIT(5), 0},  /* VMX */
	{0x1, ANY_INDEX, ECX, BIT(6), 0},  /* SMX */
	{0x1, ANY_INDEX, ECX, BIT(15), 0}, /* PDCM: performance MSRs */
	{0x1, ANY_INDEX, ECX, 0, BIT(21)}, /* x2APIC, by KVM */
	{0x1, ANY_INDEX, ECX, 0, BIT(24)}, /* TSC deadline, by KVM */
	{0x1, ANY_INDEX, ECX, 0, BIT(31)}, /* hypervisor */
	{0x1, ANY_INDEX, EDX, BIT(21), 0}, /* DS */
	{0x5, ANY_INDEX, ECX, ALL, 0},	   /* MONITOR leaf */
	{0x6, ANY_INDEX, ECX, ALL, 0},	   /* thermal, power */
	{0x7, 0, EBX, BIT(2), 0},	   /* SGX */
	{0x7, 0, EBX, BIT(14), 0},	   /* MPX */
	{0x7, 0, EBX, BIT(25), 0},	   /* processor trace */
	{0x7, 0, ECX, BIT(5), 0},	   /* WAITPKG */
	{0x7, 0, ECX, BIT(7), 0},	   /* shadow stacks: not saved */
	{0x7, 0, ECX, BIT(30), 0},	   /* SGX launch control */
	{0x7, 0, EDX, BIT(20), 0},	   /* indirect branch tracking */
	{0x7, 0, EDX, BIT(22), 0},	   /* AMX-BF16 */
	{0x7, 0, EDX, BIT(24), 0},	   /* AMX-TILE */
	{0x7, 0, EDX, BIT(25), 0},	   /* AMX-INT8 */
	{0x7, 1, EAX, BIT(21), 0},	   /* AMX-FP16 */
	{0xa, ANY_INDEX, EAX, ALL, 0},	   /* performance counters */
	{0xa, ANY_INDEX, EBX, ALL, 0},
	{0xa, ANY_INDEX, ECX, ALL, 0},
	{0xa, ANY_INDEX, EDX, ALL, 0},
	{0xd, 0, EAX, BIT(17) | BIT(18), 0}, /* AMX state */
	{0xd, 1, ECX, ALL, 0},		     /* supervisor states */
	{0xd, 1, EDX, ALL, 0},
	{0x12, ANY_INDEX, EAX, ALL, 0}, /* SGX */
	{0x14, ANY_INDEX, EAX, ALL, 0}, /* processor trace */
	{0x14, ANY_INDEX, EBX, ALL, 0},
	{0x14, ANY_INDEX, ECX, ALL, 0},
	{0x1d, ANY_INDEX, EAX, ALL, 0}, /* AMX tiles */
	{0x1e, ANY_INDEX, EBX, ALL, 0},
	{KVM_LEAF_FEATURES, ANY_INDEX, EAX, ~KVM_FEATURES_KEPT, 0},
	{KVM_LEAF_FEATURES, ANY_INDEX, EDX, ALL, 0}, /* hints */
	{0x80000001, ANY_INDEX, ECX, BIT(2), 0},     /* SVM */
	{0x80000001, ANY_INDEX, ECX, BIT(10), 0},    /* IBS */
	{0x80000001, ANY_INDEX, ECX, BIT(12), 0},    /* SKINIT */
	{0x80000001, ANY_INDEX, ECX, BIT(23), 0},    /* core counters */
	{0x80000001, ANY_INDEX, ECX, BIT(24), 0},    /* northbridge counters */
	{0x80000001, ANY_INDEX, ECX, BIT(28), 0},    /* L3 counters */
	{0x80000001, ANY_INDEX, ECX, BIT(29), 0},    /* MONITORX */
	{0x80000007, ANY_INDEX, EDX, BIT(8), 0},     /* invariant TSC */
	{0x8000000a, ANY_INDEX, EAX, ALL, 0},	     /* SVM leaf */
	{0x8000000a, ANY_INDEX, EBX, ALL, 0},
	{0x8000000a, ANY_INDEX, EDX, ALL, 0},
	{0x80000022, ANY_INDEX, EAX, ALL, 0}, /* performance, version 2 */
	{0x80000022, ANY_INDEX, EBX, ALL, 0},
};

static uint32_t *reg_of(struct kvm_cpuid_entry2 *n, enum reg reg)
{
	switch (reg) {
	case EAX:
		return &n->eax;
	case EBX:
		return &n->ebx;
	case ECX:
		return &n->ecx;
	case EDX:
		return &n->edx;
	}
	return NULL;
}

static void apply_rules(struct kvm_cpuid_entry2 *n)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		uint32_t *v;

		if (rules[i].leaf != n->function ||
		    (rules[i].index != ANY_INDEX && rules[i].index != n->index))
			continue;
		v = reg_of(n, rules[i].reg);
		*v = (*v & ~rules[i].clear) | rules[i].set;
	}
}

static unsigned ceil_log2(unsigned n)
{
	unsigned bits = 0;

	while (1u << bits < n)
		bits++;
	return bits;
}

/* Leaf 0xb and 0x1f: level 0 = threads of a core (1), level 1 = cores. */
static void topology(struct kvm_cpuid_entry2 *n, unsigned idx, unsigned count)
{
	n->edx = idx;
	n->eax = n->index == 1 ? ceil_log2(count) : 0;
	n->ebx = n->index == 0 ? 1 : n->index == 1 ? count : 0;
	n->ecx = n->index | (n->index < 2 ? (n->index + 1) << 8 : 0);
}

static void set_topology(struct kvm_cpuid_entry2 *n, unsigned idx,
			 unsigned count)
{
	switch (n->function) {
	case 0x1:
		n->ebx = (n->ebx & 0x0000ffff) | idx << 24 | count << 16;
		n->edx = (n->edx & ~BIT(28)) | (count > 1 ? BIT(28) : 0);
		break;
	case 0x4: /* Intel caches: shared by all cores only at level 3 */
		if (!(n->eax & 0x1f))
			break;
		n->eax &= 0x3fff;
		n->eax |= (count - 1) << 26;
		if ((n->eax >> 5 & 7) >= 3)
			n->eax |= (count - 1) << 14;
		break;
	case 0xb:
	case 0x1f:
		topology(n, idx, count);
		break;
	case 0x80000001:
		n->ecx = (n->ecx & ~BIT(1)) | (count > 1 ? BIT(1) : 0);
		break;
	case 0x80000008:
		n->ecx = (n->ecx & ~0xf0ffu) | (count - 1) |
			 ceil_log2(count) << 12;
		break;
	case 0x8000001d: /* AMD caches */
		if (!(n->eax & 0x1f))
			break;
		n->eax &= 0x3fff;
		if ((n->eax >> 5 & 7) >= 3)
			n->eax |= (count - 1) << 14;
		break;
	case 0x8000001e:
		n->eax = idx;
		n->ebx = idx; /* core id; one thread a core */
		n->ecx = 0;
		break;
	default:
		break;
	}
}

static bool has_leaf(const struct kvm_cpuid2 *t, uint32_t leaf, uint32_t index)
{
	for (uint32_t i = 0; i < t->nent; i++)
		if (t->entries[i].function == leaf &&
		    t->entries[i].index == index)
			return true;
	return false;
}

void cpuid_build(const struct kvm *k, struct kvm_cpuid2 *dst, unsigned idx,
		 unsigned n)
{
	dst->nent = 0;
	for (uint32_t i = 0; i < k->cpuid->nent; i++) {
		struct kvm_cpuid_entry2 *to = &dst->entries[dst->nent++];

		*to = k->cpuid->entries[i];
		apply_rules(to);
		set_topology(to, idx, n);
	}
	/* KVM lists level 0 of the topology only on some hosts. */
	if (has_leaf(dst, 0xb, 0) && !has_leaf(dst, 0xb, 1) &&
	    dst->nent < KVM_CPUID_ENTRIES_MAX) {
		struct kvm_cpuid_entry2 *to = &dst->entries[dst->nent++];

		*to = (struct kvm_cpuid_entry2){
			.function = 0xb,
			.index = 1,
			.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
		};
		set_topology(to, idx, n);
	}
}

int cpuid_set(const struct kvm *k, int vcpu_fd, unsigned idx, unsigned n,
	      struct err *e)
{
	struct kvm_cpuid2 *t =
		calloc(1, sizeof(*t) + KVM_CPUID_ENTRIES_MAX *
					       sizeof(struct kvm_cpuid_entry2));
	int r = 0;

	if (!t)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	cpuid_build(k, t, idx, n);
	if (ioctl(vcpu_fd, KVM_SET_CPUID2, t) < 0)
		r = err_set(e, ERR_INTERNAL, NULL, "KVM_SET_CPUID2: %s",
			    strerror(errno));
	free(t);
	return r;
}
