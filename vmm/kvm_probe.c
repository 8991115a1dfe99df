/*
 * Which kind of KVM is this?  Proof by running code; see kvm.h.
 *
 * Real mode is guest kernel code (CPL0).  Stock KVM runs it on the processor;
 * soft KVM interprets each instruction and counts it in `insn_emulation`.
 */
#include "kvm.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROBE_RAM_BYTES 0x10000ull
#define PROBE_CODE_GPA	0x1000
#define PROBE_INSNS	64

static int probe_run(int fd, struct kvm_run *run, enum kvm_kind *ret_kind,
		     struct err *e)
{
	struct kvm_regs regs = {.rip = PROBE_CODE_GPA, .rflags = 2};
	struct kvm_sregs sregs;
	int r, stats;
	uint64_t n;

	if (ioctl(fd, KVM_GET_SREGS, &sregs) < 0)
		goto fail;
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	if (ioctl(fd, KVM_SET_SREGS, &sregs) < 0 ||
	    ioctl(fd, KVM_SET_REGS, &regs) < 0)
		goto fail;
	do
		r = ioctl(fd, KVM_RUN, 0);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		goto fail;
	if (run->exit_reason != KVM_EXIT_IO)
		return err_set(e, ERR_INTERNAL, NULL,
			       "kvm probe: exit reason %u, not a port write",
			       run->exit_reason);
	stats = kvm_vcpu_stats_open(fd);
	n = kvm_stat_read(stats, "insn_emulation");
	if (stats >= 0)
		close(stats);
	*ret_kind = n >= PROBE_INSNS / 2 ? KVM_KIND_SOFT : KVM_KIND_STOCK;
	return 0;
fail:
	return err_set(e, ERR_INTERNAL, NULL, "kvm probe: %s", strerror(errno));
}

int kvm_probe_kind(int dev, enum kvm_kind *ret_kind, struct err *e)
{
	struct mem mem = {.size = PROBE_RAM_BYTES};
	struct kvm k = {.dev = -1, .vm = -1};
	struct kvm_run *run = NULL;
	uint8_t *code;
	int fd = -1, r = -1;

	mem.host = mmap(NULL, PROBE_RAM_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem.host == MAP_FAILED)
		return err_set(e, ERR_INTERNAL, NULL, "kvm probe: %s",
			       strerror(errno));
	code = mem.host + PROBE_CODE_GPA;
	memset(code, 0x40, PROBE_INSNS);	       /* inc ax */
	memcpy(code + PROBE_INSNS, "\xe6\x80\xf4", 3); /* out 0x80, al; hlt */

	if (kvm_open(&k, fcntl(dev, F_DUPFD_CLOEXEC, 3), KVM_KIND_STOCK, e) ==
		    0 &&
	    kvm_create_vm(&k, &mem, e) == 0 && kvm_slots_wait(&k, e) == 0 &&
	    kvm_create_vcpu(&k, 0, &fd, &run, e) == 0)
		r = probe_run(fd, run, ret_kind, e);
	if (run)
		munmap(run, k.run_bytes);
	if (fd >= 0)
		close(fd);
	kvm_finish(&k);
	munmap(mem.host, PROBE_RAM_BYTES);
	return r;
}
