/*
 * KVM set-up; see kvm.h.
 *
 * What waits for RCU grace periods of the host's kernel is avoided or done
 * beside other work: memory slots are added by a thread of their own; there
 * is no GSI routing and no irqfd, interrupts are messages (KVM_SIGNAL_MSI)
 * built from the user-space I/O APIC.
 */
#include "kvm.h"
#include "thread.h"
#include <cpuid.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define KVM_TSS_GPA	    0xfffbd000ull /* three pages, for VMX */
#define KVM_IDENTITY_GPA    0xfffbc000ull
#define IOAPIC_PINS	    24
#define STAT_NAME_BYTES_MAX 64
#define STATS_MAX	    512

static int fail(struct err *e, const char *what)
{
	return err_set(e, ERR_INTERNAL, NULL, "%s: %s", what, strerror(errno));
}

enum kvm_kind kvm_cpuid_kind(void)
{
	unsigned a, b, c = 0, d;

	if (__get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 5))
		return KVM_KIND_STOCK; /* VMX */
	if (__get_cpuid(0x80000001, &a, &b, &c, &d) && (c & 1u << 2))
		return KVM_KIND_STOCK; /* SVM */
	return KVM_KIND_SOFT;
}

/* What the VMM cannot run without, with the sentence for who lacks it. */
static const struct {
	int cap;
	const char *name;
} needed[] = {
	{KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
	{KVM_CAP_SPLIT_IRQCHIP, "KVM_CAP_SPLIT_IRQCHIP"},
	{KVM_CAP_SIGNAL_MSI, "KVM_CAP_SIGNAL_MSI"},
	{KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT"},
	{KVM_CAP_TSC_DEADLINE_TIMER, "KVM_CAP_TSC_DEADLINE_TIMER"},
	{KVM_CAP_XSAVE, "KVM_CAP_XSAVE"},
	{KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS"},
	{KVM_CAP_ADJUST_CLOCK, "KVM_CAP_ADJUST_CLOCK"},
};

static int check_caps(struct kvm *k, struct err *e)
{
	int version = ioctl(k->dev, KVM_GET_API_VERSION, 0);
	int n;

	if (version < 0)
		return fail(e, "kvm: not a KVM descriptor");
	if (version != KVM_API_VERSION)
		return err_set(e, ERR_INTERNAL, NULL,
			       "kvm: API version %d, %d is needed", version,
			       KVM_API_VERSION);
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (ioctl(k->dev, KVM_CHECK_EXTENSION, needed[i].cap) <= 0)
			return err_set(e, ERR_INTERNAL, NULL,
				       "kvm: this host lacks %s",
				       needed[i].name);
	n = ioctl(k->dev, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (n < (int)sizeof(struct kvm_run))
		return err_set(e, ERR_INTERNAL, NULL,
			       "kvm: vCPU mapping of %d bytes", n);
	k->run_bytes = (size_t)n;
	n = ioctl(k->dev, KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2);
	k->xsave_bytes = n > (int)sizeof(struct kvm_xsave)
				 ? (size_t)n
				 : sizeof(struct kvm_xsave);
	k->has_xcrs = ioctl(k->dev, KVM_CHECK_EXTENSION, KVM_CAP_XCRS) > 0;
	k->has_kvmclock_ctrl =
		ioctl(k->dev, KVM_CHECK_EXTENSION, KVM_CAP_KVMCLOCK_CTRL) > 0;
	return 0;
}

static int list_msrs(struct kvm *k, struct err *e)
{
	union {
		struct kvm_msr_list list;
		uint8_t room[sizeof(struct kvm_msr_list) +
			     KVM_MSRS_MAX * sizeof(uint32_t)];
	} u = {.list = {.nmsrs = KVM_MSRS_MAX}};

	if (ioctl(k->dev, KVM_GET_MSR_INDEX_LIST, &u) < 0)
		return fail(e, "KVM_GET_MSR_INDEX_LIST");
	k->n_msrs = u.list.nmsrs;
	memcpy(k->msr, u.list.indices, k->n_msrs * sizeof(k->msr[0]));
	return 0;
}

int kvm_open(struct kvm *k, int dev, enum kvm_kind kind, struct err *e)
{
	*k = (struct kvm){.dev = dev, .vm = -1};
	if (check_caps(k, e) < 0)
		return -1;
	if (kind == KVM_KIND_AUTO)
		kind = kvm_cpuid_kind();
	k->is_soft = kind == KVM_KIND_SOFT;
	k->cpuid = calloc(1, sizeof(*k->cpuid) +
				     KVM_CPUID_ENTRIES_MAX *
					     sizeof(struct kvm_cpuid_entry2));
	if (!k->cpuid)
		return err_set(e, ERR_INTERNAL, NULL, "out of memory");
	k->cpuid->nent = KVM_CPUID_ENTRIES_MAX;
	if (ioctl(dev, KVM_GET_SUPPORTED_CPUID, k->cpuid) < 0)
		return fail(e, "KVM_GET_SUPPORTED_CPUID");
	return list_msrs(k, e);
}

void kvm_dev_close(struct kvm *k)
{
	if (k->dev >= 0)
		close(k->dev);
	k->dev = -1;
}

void kvm_finish(struct kvm *k)
{
	if (k->vm >= 0)
		close(k->vm);
	k->vm = -1;
	kvm_dev_close(k);
	free(k->cpuid);
	k->cpuid = NULL;
}

static int add_slot(struct kvm *k, uint32_t slot, gpa_t at, uint8_t *host,
		    uint64_t bytes, struct err *e)
{
	struct kvm_userspace_memory_region r = {
		.slot = slot,
		.guest_phys_addr = at,
		.memory_size = bytes,
		.userspace_addr = (uintptr_t)host,
	};

	if (ioctl(k->vm, KVM_SET_USER_MEMORY_REGION, &r) < 0)
		return err_set(e, ERR_INTERNAL, NULL,
			       "KVM_SET_USER_MEMORY_REGION %llu bytes at "
			       "0x%llx: %s",
			       (unsigned long long)bytes,
			       (unsigned long long)at, strerror(errno));
	return 0;
}

static void *add_slots(void *arg)
{
	struct kvm *k = arg;
	const struct mem *m = k->mem;
	uint64_t low = m->size < MEM_GAP_START ? m->size : MEM_GAP_START;

	if (add_slot(k, 0, 0, m->host, low, &k->slots_err) == 0 &&
	    m->size > low)
		add_slot(k, 1, MEM_GAP_END, m->host + low, m->size - low,
			 &k->slots_err);
	return NULL;
}

int kvm_slots_wait(struct kvm *k, struct err *e)
{
	if (k->is_slots_running)
		pthread_join(k->slots, NULL);
	k->is_slots_running = false;
	if (k->slots_err.code == ERR_NONE)
		return 0;
	*e = k->slots_err;
	return -1;
}

int kvm_create_vm(struct kvm *k, const struct mem *mem, struct err *e)
{
	uint64_t identity = KVM_IDENTITY_GPA;
	struct kvm_enable_cap cap = {.cap = KVM_CAP_SPLIT_IRQCHIP,
				     .args = {IOAPIC_PINS}};

	k->vm = ioctl(k->dev, KVM_CREATE_VM, 0);
	if (k->vm < 0)
		return fail(e, "KVM_CREATE_VM");
	if (!k->is_soft &&
	    (ioctl(k->vm, KVM_SET_IDENTITY_MAP_ADDR, &identity) < 0 ||
	     ioctl(k->vm, KVM_SET_TSS_ADDR, KVM_TSS_GPA) < 0))
		return fail(e, "KVM_SET_TSS_ADDR");
	k->mem = mem;
	if (thread_create(&k->slots, add_slots, k) == 0)
		k->is_slots_running = true;
	else
		add_slots(k);
	if (ioctl(k->vm, KVM_ENABLE_CAP, &cap) < 0)
		return fail(e, "KVM_CAP_SPLIT_IRQCHIP");
	/* A pending exception keeps its CR2/DR6 apart until it is delivered,
	 * so that a snapshot holds both.  Absent on old kernels: no harm. */
	cap = (struct kvm_enable_cap){.cap = KVM_CAP_EXCEPTION_PAYLOAD,
				      .args = {1}};
	(void)ioctl(k->vm, KVM_ENABLE_CAP, &cap);
	return 0;
}

int kvm_create_vcpu(struct kvm *k, unsigned idx, int *ret_fd,
		    struct kvm_run **ret_run, struct err *e)
{
	void *run;
	int fd = ioctl(k->vm, KVM_CREATE_VCPU, (unsigned long)idx);

	if (fd < 0)
		return fail(e, "KVM_CREATE_VCPU");
	k->tsc_khz = (uint32_t)ioctl(fd, KVM_GET_TSC_KHZ, 0);
	run = mmap(NULL, k->run_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	if (run == MAP_FAILED) {
		fail(e, "mmap of a vCPU");
		close(fd);
		return -1;
	}
	*ret_fd = fd;
	*ret_run = run;
	return 0;
}

int kvm_signal_msi(const struct kvm *k, uint64_t addr, uint32_t data)
{
	struct kvm_msi msi = {
		.address_lo = (uint32_t)addr,
		.address_hi = (uint32_t)(addr >> 32),
		.data = data,
	};

	return ioctl(k->vm, KVM_SIGNAL_MSI, &msi) < 0 ? -errno : 0;
}

int kvm_vcpu_stats_open(int vcpu_fd)
{
	return ioctl(vcpu_fd, KVM_GET_STATS_FD, NULL);
}

uint64_t kvm_stat_read(int stats, const char *name)
{
	uint8_t one[sizeof(struct kvm_stats_desc) + STAT_NAME_BYTES_MAX];
	struct kvm_stats_desc d;
	struct kvm_stats_header h;
	uint64_t value = 0;

	if (pread(stats, &h, sizeof(h), 0) != (ssize_t)sizeof(h) ||
	    h.name_size > STAT_NAME_BYTES_MAX || h.num_desc > STATS_MAX)
		return 0;
	for (uint32_t i = 0; i < h.num_desc; i++) {
		size_t bytes = sizeof(d) + h.name_size;
		off_t at = h.desc_offset + (off_t)(i * bytes);

		if (pread(stats, one, bytes, at) != (ssize_t)bytes)
			return 0;
		if (strncmp((char *)one + sizeof(d), name, h.name_size) != 0)
			continue;
		memcpy(&d, one, sizeof(d));
		at = h.data_offset + (off_t)d.offset;
		if (pread(stats, &value, sizeof(value), at) !=
		    (ssize_t)sizeof(value))
			return 0;
		return value;
	}
	return 0;
}
