/* hutch doctor: /dev/kvm, its kind and capabilities. */
#include "../../vmm/kvm.h"
#include "doctor.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

/* Used when they are there; what is missing without each. */
static const struct {
	int cap;
	const char *name, *without;
} wanted[] = {
	{KVM_CAP_BINARY_STATS_FD, "BINARY_STATS_FD",
	 "no count of interpreted guest instructions"},
	{KVM_CAP_XCRS, "XCRS", "no AVX state in snapshots"},
	{KVM_CAP_XSAVE2, "XSAVE2", "no state over 4 KiB in snapshots"},
	{KVM_CAP_KVMCLOCK_CTRL, "KVMCLOCK_CTRL",
	 "guests may report a stall after a pause"},
};

static void say_kind(struct doctor *d, int dev)
{
	enum kvm_kind kind;
	struct err e;

	if (kvm_probe_kind(dev, &kind, &e)) {
		doctor_say(d, DOCTOR_FAIL, "kvm", "see the host's kernel log",
			   "%s", e.text);
		return;
	}
	if (kind == KVM_KIND_SOFT)
		doctor_say(d, DOCTOR_WARN, "kvm kind",
			   "nothing to do; on bare metal or with nested "
			   "virtualisation everything is faster",
			   "soft: no VMX or SVM; guest kernel code is "
			   "interpreted (boot takes tens of seconds, a "
			   "restored run tenths)");
	else
		doctor_say(d, DOCTOR_OK, "kvm kind", NULL,
			   "stock: hardware virtualisation");
}

static void say_capabilities(struct doctor *d, int dev)
{
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		if (ioctl(dev, KVM_CHECK_EXTENSION, wanted[i].cap) <= 0)
			doctor_say(d, DOCTOR_WARN, "kvm",
				   "a newer host kernel may have it",
				   "no KVM_CAP_%s: %s", wanted[i].name,
				   wanted[i].without);
}

void doctor_kvm(struct doctor *d)
{
	_cleanup_fd_ int dev = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	struct kvm k;
	struct err e;
	int copy;

	if (dev < 0) {
		doctor_say(d, DOCTOR_FAIL, "kvm",
			   errno == EACCES
				   ? "run as root, or join the group kvm"
				   : "load kvm_intel or kvm_amd; in a VM, turn "
				     "on nested virtualisation; in a "
				     "container, pass /dev/kvm",
			   "/dev/kvm: %s", strerror(errno));
		return;
	}
	copy = fcntl(dev, F_DUPFD_CLOEXEC, 3);
	if (kvm_open(&k, copy, KVM_KIND_AUTO, &e)) {
		doctor_say(d, DOCTOR_FAIL, "kvm",
			   "a Linux kernel of 5.15 or newer is needed", "%s",
			   e.text);
		kvm_finish(&k);
		return;
	}
	doctor_say(d, DOCTOR_OK, "kvm", NULL,
		   "API version %d, %d vCPUs a VM, all needed capabilities",
		   ioctl(dev, KVM_GET_API_VERSION, 0),
		   ioctl(dev, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS));
	kvm_finish(&k);
	say_capabilities(d, dev);
	say_kind(d, dev);
}
