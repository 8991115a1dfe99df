/*
 * One vCPU's registers; see state.h.
 *
 * The order of reading: MP state first (asking for it may deliver a pending
 * INIT), the local APIC before the MSRs.  The order of writing: special
 * registers before the local APIC (they hold its base and mode), the local
 * APIC before the MSRs (a TSC deadline needs its timer mode), events last.
 *
 * Time.  Where the host can set the guest's counter (stock KVM), it goes on
 * from the saved value.  On soft KVM the counter is the host's and cannot be
 * set, though KVM_SET_MSRS says so: a saved TSC deadline is therefore moved by
 * the difference between the counter then and now, read back from KVM, which
 * is right on both.
 */
#include "state.h"
#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#define TSS_TYPE_AVAILABLE 9
#define TSS_TYPE_BUSY	   11

#define MSR_TSC		 0x10
#define MSR_TSC_DEADLINE 0x6e0

static int fail(struct err *e, const char *what)
{
	return err_set(e, ERR_INTERNAL, NULL, "%s: %s", what, strerror(errno));
}

/* MSRs that are read but may not be writable, and why that loses nothing. */
static const struct {
	uint32_t first, last;
	const char *why;
} may_refuse[] = {
	{0x8b, 0x8b, "microcode revision: the host's"},
	{0x10a, 0x10a, "ARCH_CAPABILITIES: a fact of the host"},
	{0x345, 0x345, "performance capabilities: no counters offered"},
	{0x480, 0x493, "VMX capabilities: not offered"},
	{0x186, 0x18d, "performance event selects: not offered"},
	{0xc1, 0xc8, "performance counters: not offered"},
	{0x309, 0x30b, "fixed counters: not offered"},
	{0x38d, 0x38f, "counter control: not offered"},
	{0xc0010000, 0xc0010007, "performance counters: not offered"},
	{0xc0010117, 0xc0010117, "SVM save area: not offered"},
	{0xc0010200, 0xc001020b, "performance counters: not offered"},
	{0xc0000300, 0xc0000302, "counter control: not offered"},
	{0x4b564d04, 0x4b564d04, "end-of-interrupt page: not offered"},
	{0x4b564d02, 0x4b564d03, "async faults, steal time: not offered"},
	{0x4b564d06, 0x4b564d07, "async faults: not offered"},
};

static bool may_msr_refuse(uint32_t index)
{
	for (size_t i = 0; i < sizeof(may_refuse) / sizeof(may_refuse[0]); i++)
		if (index >= may_refuse[i].first && index <= may_refuse[i].last)
			return true;
	return false;
}

/* struct kvm_msrs with room for one entry. */
union one_msr {
	struct kvm_msrs msrs;
	uint8_t room[sizeof(struct kvm_msrs) + sizeof(struct kvm_msr_entry)];
};

static bool msr_get(int vcpu_fd, uint32_t index, uint64_t *ret)
{
	union one_msr m = {.msrs = {.nmsrs = 1}};

	m.msrs.entries[0].index = index;
	if (ioctl(vcpu_fd, KVM_GET_MSRS, &m) != 1)
		return false;
	*ret = m.msrs.entries[0].data;
	return true;
}

static bool msr_set(int vcpu_fd, uint32_t index, uint64_t value)
{
	union one_msr m = {.msrs = {.nmsrs = 1}};

	m.msrs.entries[0].index = index;
	m.msrs.entries[0].data = value;
	return ioctl(vcpu_fd, KVM_SET_MSRS, &m) == 1;
}

static int save_msrs(struct vcpu_state *s, int vcpu_fd, const struct kvm *k)
{
	s->n_msrs = 0;
	for (uint32_t i = 0; i < k->n_msrs; i++) {
		struct kvm_msr_entry *m = &s->msr[s->n_msrs];
		uint64_t v;

		/* One that cannot be read is one this guest does not have. */
		if (!msr_get(vcpu_fd, k->msr[i], &v))
			continue;
		m->index = k->msr[i];
		m->data = v;
		s->n_msrs++;
	}
	return 0;
}

int vcpu_state_save(struct vcpu_state *s, int vcpu_fd, const struct kvm *k,
		    struct err *e)
{
	bool is_xsave2 = k->xsave_bytes > sizeof(struct kvm_xsave);

	if (k->xsave_bytes > sizeof(s->xsave))
		return err_set(e, ERR_INTERNAL, NULL,
			       "XSAVE state of %zu bytes, %zu is the limit",
			       k->xsave_bytes, sizeof(s->xsave));
	if (ioctl(vcpu_fd, KVM_GET_MP_STATE, &s->mp) < 0)
		return fail(e, "KVM_GET_MP_STATE");
	if (ioctl(vcpu_fd, KVM_GET_REGS, &s->regs) < 0)
		return fail(e, "KVM_GET_REGS");
	if (ioctl(vcpu_fd, KVM_GET_SREGS, &s->sregs) < 0)
		return fail(e, "KVM_GET_SREGS");
	if (ioctl(vcpu_fd, is_xsave2 ? KVM_GET_XSAVE2 : KVM_GET_XSAVE,
		  s->xsave) < 0)
		return fail(e, "KVM_GET_XSAVE");
	s->n_xsave = (uint32_t)k->xsave_bytes;
	if (k->has_xcrs && ioctl(vcpu_fd, KVM_GET_XCRS, &s->xcrs) < 0)
		return fail(e, "KVM_GET_XCRS");
	if (ioctl(vcpu_fd, KVM_GET_DEBUGREGS, &s->debugregs) < 0)
		return fail(e, "KVM_GET_DEBUGREGS");
	if (ioctl(vcpu_fd, KVM_GET_LAPIC, &s->lapic) < 0)
		return fail(e, "KVM_GET_LAPIC");
	if (save_msrs(s, vcpu_fd, k) < 0)
		return -1;
	if (ioctl(vcpu_fd, KVM_GET_VCPU_EVENTS, &s->events) < 0)
		return fail(e, "KVM_GET_VCPU_EVENTS");
	return 0;
}

static uint64_t find_msr(const struct vcpu_state *s, uint32_t index)
{
	for (uint32_t i = 0; i < s->n_msrs; i++)
		if (s->msr[i].index == index)
			return s->msr[i].data;
	return 0;
}

uint64_t vcpu_state_tsc(const struct vcpu_state *s)
{
	return find_msr(s, MSR_TSC);
}

static int load_deadline(const struct vcpu_state *s, int vcpu_fd, struct err *e)
{
	uint64_t deadline = find_msr(s, MSR_TSC_DEADLINE), now = 0;
	int64_t left = (int64_t)(deadline - vcpu_state_tsc(s));

	if (!deadline)
		return 0;
	if (!msr_get(vcpu_fd, MSR_TSC, &now))
		return fail(e, "read the TSC");
	/* One that has passed fires at once; 0 would disarm it. */
	if (left < 1)
		left = 1;
	if (!msr_set(vcpu_fd, MSR_TSC_DEADLINE, now + (uint64_t)left))
		return fail(e, "set the TSC deadline");
	return 0;
}

static int load_msrs(const struct vcpu_state *s, int vcpu_fd, bool is_soft,
		     uint64_t tsc, struct err *e)
{
	/* First, because others are relative to it. */
	if (!is_soft && !msr_set(vcpu_fd, MSR_TSC, tsc))
		return fail(e, "set the TSC");
	for (uint32_t i = 0; i < s->n_msrs; i++) {
		const struct kvm_msr_entry *m = &s->msr[i];

		if (m->index == MSR_TSC || m->index == MSR_TSC_DEADLINE)
			continue;
		if (!msr_set(vcpu_fd, m->index, m->data) &&
		    !may_msr_refuse(m->index))
			return err_set(e, ERR_INTERNAL, NULL,
				       "KVM refused MSR 0x%x = 0x%llx",
				       m->index, (unsigned long long)m->data);
	}
	return load_deadline(s, vcpu_fd, e);
}

/*
 * QEMU's TCG, as an emulated SVM host, lets a port write of user mode through
 * only when the task register's hidden type is "available" (9); KVM reports
 * "busy" (11), as hardware has it.  Without this a guest that has been
 * restored there gets #GP for ports that ioperm gave it.
 */
static bool host_is_tcg(void)
{
	unsigned a = 0, b = 0, c = 0, d = 0;

	__cpuid(1, a, b, c, d);
	if (!(c & (1u << 31))) /* no hypervisor: no such leaf */
		return false;
	__cpuid(0x40000000, a, b, c, d);
	return !memcmp(&b, "TCGT", 4) && !memcmp(&c, "CGTC", 4) &&
	       !memcmp(&d, "GTCG", 4);
}

static int load_sregs(const struct vcpu_state *s, int vcpu_fd)
{
	struct kvm_sregs sregs = s->sregs;

	if (host_is_tcg() && sregs.tr.type == TSS_TYPE_BUSY)
		sregs.tr.type = TSS_TYPE_AVAILABLE;
	return ioctl(vcpu_fd, KVM_SET_SREGS, &sregs);
}

int vcpu_state_load(const struct vcpu_state *s, int vcpu_fd,
		    const struct kvm *k, uint64_t tsc, struct err *e)
{
	if (s->n_xsave != k->xsave_bytes)
		return err_set(e, ERR_INVALID_REQUEST, "restore",
			       "XSAVE state of %u bytes, this host has %zu",
			       s->n_xsave, k->xsave_bytes);
	if (ioctl(vcpu_fd, KVM_SET_MP_STATE, &s->mp) < 0)
		return fail(e, "KVM_SET_MP_STATE");
	if (ioctl(vcpu_fd, KVM_SET_REGS, &s->regs) < 0)
		return fail(e, "KVM_SET_REGS");
	if (load_sregs(s, vcpu_fd) < 0)
		return fail(e, "KVM_SET_SREGS");
	if (k->has_xcrs && ioctl(vcpu_fd, KVM_SET_XCRS, &s->xcrs) < 0)
		return fail(e, "KVM_SET_XCRS");
	if (ioctl(vcpu_fd, KVM_SET_XSAVE, s->xsave) < 0)
		return fail(e, "KVM_SET_XSAVE");
	if (ioctl(vcpu_fd, KVM_SET_DEBUGREGS, &s->debugregs) < 0)
		return fail(e, "KVM_SET_DEBUGREGS");
	if (ioctl(vcpu_fd, KVM_SET_LAPIC, &s->lapic) < 0)
		return fail(e, "KVM_SET_LAPIC");
	if (load_msrs(s, vcpu_fd, k->is_soft, tsc, e) < 0)
		return -1;
	if (ioctl(vcpu_fd, KVM_SET_VCPU_EVENTS, &s->events) < 0)
		return fail(e, "KVM_SET_VCPU_EVENTS");
	return 0;
}
