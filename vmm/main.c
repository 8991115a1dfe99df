/*
 * hutch-vmm: one process is one microVM.
 *
 * main is the story: read the command line, open everything, give up power,
 * put the VM together, load a kernel or a snapshot, start the threads (each
 * with its own seccomp list), then answer the owner until the VM ends.  There
 * is no tear-down: the process exits and the kernel frees it all.
 */
#include "confine.h"
#include "control.h"
#include "fault.h"
#include "fd.h"
#include "log.h"
#include "snapshot/snapshot.h"
#include "vm.h"
#include "x86/boot.h"
#include "x86/cmdline.h"
#include "x86/elf.h"
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct vm vm;
static struct options opt;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int probe(void)
{
	static const char *const names[] = {"auto", "soft", "stock"};
	enum kvm_kind ran = KVM_KIND_AUTO, cpuid = kvm_cpuid_kind();
	struct err e = {0};

	if (options_open(&opt, &e) < 0 ||
	    kvm_probe_kind(opt.kvm, &ran, &e) < 0) {
		log_error("%s", e.text);
		return VMM_WHY_SETUP;
	}
	printf("kind=%s cpuid=%s\n", names[ran], names[cpuid]);
	return ran == cpuid ? 0 : VMM_WHY_KVM;
}

static int load_kernel(struct err *e)
{
	char cmdline[CMDLINE_BYTES_MAX + 1];
	gpa_t entry = 0;

	if (cmdline_build(cmdline, vm.kvm.is_soft, vm.n_devices, opt.cmdline,
			  e) < 0 ||
	    elf_load(&vm.mem, opt.kernel.fd, &entry, e) < 0)
		return -1;
	fd_close(&opt.kernel.fd);
	return boot_setup(&vm.mem, vm.vcpus.cpu[0].fd, vm.vcpus.n, entry,
			  cmdline, e);
}

/* The agent's connection goes on over a new channel. */
static int load_snapshot(struct err *e)
{
	int channel;

	if (snapshot_load(&vm, e) < 0)
		return -1;
	fault_point(FAULT_VMM_LOADED);
	fd_close(&opt.state.fd);
	fd_close(&opt.memory.fd); /* its mappings stay */
	fd_close(&opt.touched.fd);
	/* vsock_attach closes what it cannot use (-ENOENT: the guest had no
	 * such connection when it was saved); the channel then waits for the
	 * guest's first one. */
	channel = fcntl(opt.channel, F_DUPFD_CLOEXEC, 3);
	if (channel >= 0 && vsock_attach(vm.vsock, channel) == 0)
		fd_close(&opt.channel);
	return 0;
}

static int set_up(struct err *e)
{
	if (options_open(&opt, e) < 0)
		return -1;
	fault_point(FAULT_VMM_OPENED);
	if (confine_process(&opt, e) < 0)
		return -1;
	fault_point(FAULT_VMM_CONFINED);
	if (vm_create(&vm, &opt, e) < 0)
		return -1;
	vm.is_log_forwarded = opt.log >= 0;
	if (opt.is_restore ? load_snapshot(e) < 0 : load_kernel(e) < 0)
		return -1;
	kvm_dev_close(&vm.kvm);
	return vm_start(&vm, e);
}

int main(int argc, char **argv)
{
	struct control c = {.vm = &vm, .start_ns = now_ns()};
	struct vmm_exit end = {.why = VMM_WHY_SETUP};
	struct err e = {0};
	int r;

	/* Log lines carry UTC; without this the C library would look for the
	 * host's time zone at the first one, after confinement. */
	setenv("TZ", "UTC0", 1);
	tzset();
	log_init("hutch-vmm");
	/* A reader that has gone, a file that may not grow: errors, not our
	 * end. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	/* One heap for all threads: an arena each would cost memory. */
	mallopt(M_ARENA_MAX, 1);
	r = options_parse(&opt, argc, argv, &e);
	if (r > 0)
		return 0;
	if (r < 0) {
		log_error("%s", e.text);
		return VMM_WHY_SETUP;
	}
	if (opt.is_probe)
		return probe();
	c.sock = opt.control;
	c.log = opt.log;
	if (set_up(&e) < 0) {
		snprintf(end.text, sizeof(end.text), "%.*s",
			 (int)sizeof(end.text) - 1, e.text);
		log_error("%s", e.text);
		control_tell_end(&c, &end);
		_exit(VMM_WHY_SETUP);
	}
	c.channel = opt.channel;
	fault_point(FAULT_VMM_READY);
	vm_begin(&vm, now_ns());
	_exit(control_run(&c));
}
