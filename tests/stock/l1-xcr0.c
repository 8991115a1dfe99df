/*
 * l1-xcr0.c: XSAVE and AVX for guests of an emulated SVM host.
 *
 * QEMU's TCG executes a guest's XSETBV itself and never asks the hypervisor,
 * however it set its intercepts.  So KVM in L1 believes that XCR0 is 1, says
 * so in CPUID leaf 0xd and puts 1 back at the next entry; the guest's kernel
 * finds the sizes wrong, says "XSAVE consistency problem" and goes without.
 * Nothing about AVX or XSAVE would be tested.  Preloaded into hutch-vmm, this
 * tells KVM the value that Linux is about to set: everything the host has.
 */
#include <dlfcn.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

static uint64_t xcr0_of_host(void)
{
	uint32_t lo, hi;

	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (uint64_t)hi << 32 | lo;
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, ...);
	void *arg;
	va_list ap;
	int r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	*(void **)&next = dlsym(RTLD_NEXT, "ioctl");
	r = next(fd, request, arg);
	if (r == 0 && request == KVM_SET_CPUID2) {
		struct kvm_xcrs x = {
			.nr_xcrs = 1,
			.xcrs = {{.xcr = 0, .value = xcr0_of_host()}},
		};

		if (next(fd, KVM_SET_XCRS, &x)) {
			perror("l1-xcr0: KVM_SET_XCRS");
			exit(1);
		}
	}
	return r;
}
