/*
 * vCPU threads: run, answer the exit, run again; see vcpu.h.
 *
 * One switch over the exit reasons.  Whatever the guest does ends here in an
 * answered access, an ignored one, or the end of this VM with a reason; never
 * in an abort (hardening F1-F6).
 */
#include "vcpu.h"
#include "bus.h"
#include "confine.h"
#include "thread.h"
#include "vm.h"
#include "x86/cpuid.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

static void kicked(int sig)
{
	(void)sig; /* its only purpose: KVM_RUN returns EINTR */
}

static void exit_io(struct vcpu *c)
{
	struct kvm_run *run = c->run;
	uint64_t bytes = (uint64_t)run->io.size * run->io.count;
	uint64_t at = run->io.data_offset;

	vcpu_count(&c->exits_io);
	if (at > c->vm->kvm.run_bytes || bytes > c->vm->kvm.run_bytes - at) {
		vcpu_end(c, VMM_WHY_KVM, "port data outside of kvm_run");
		return;
	}
	trace_io(c->vm->trace, c->idx, run->io.port, (uint32_t)bytes,
		 run->io.direction == KVM_EXIT_IO_OUT);
	bus_port(c, run->io.port, run->io.size, run->io.count,
		 (uint8_t *)run + at, run->io.direction == KVM_EXIT_IO_OUT);
}

static void exit_mmio(struct vcpu *c)
{
	struct kvm_run *run = c->run;

	vcpu_count(&c->exits_mmio);
	if (run->mmio.len > sizeof(run->mmio.data)) {
		vcpu_end(c, VMM_WHY_KVM, "memory access of %u bytes",
			 run->mmio.len);
		return;
	}
	trace_mmio(c->vm->trace, c->idx, run->mmio.phys_addr, run->mmio.len,
		   run->mmio.is_write);
	bus_mmio(c, run->mmio.phys_addr, run->mmio.data, run->mmio.len,
		 run->mmio.is_write);
}

static void end_shutdown(struct vcpu *c, const char *what)
{
	char line[sizeof(((struct vmm_exit *)0)->text) / 2];

	guest_log_last_line(&c->vm->log, line, sizeof(line));
	vcpu_end(c, VMM_WHY_GUEST_SHUTDOWN, "vCPU %u: %s%s%s", c->idx, what,
		 *line ? "; its last log line: " : "", line);
}

/*
 * A guest kernel resets by a fault with an empty IDT.  Soft KVM cannot emulate
 * the instruction that Linux uses for it (int3), so it arrives here.
 */
static void exit_internal_error(struct vcpu *c)
{
	struct kvm_run *run = c->run;
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	if (ioctl(c->fd, KVM_GET_SREGS, &sregs) < 0 ||
	    ioctl(c->fd, KVM_GET_REGS, &regs) < 0) {
		vcpu_end(c, VMM_WHY_KVM, "vCPU %u: internal error %u", c->idx,
			 run->internal.suberror);
		return;
	}
	if (run->internal.suberror == KVM_INTERNAL_ERROR_EMULATION &&
	    sregs.idt.limit == 0) {
		end_shutdown(c, "the guest reset itself");
		return;
	}
	vcpu_end(c, VMM_WHY_KVM,
		 "vCPU %u: internal error %u at rip 0x%llx, cpl %u", c->idx,
		 run->internal.suberror, (unsigned long long)regs.rip,
		 sregs.cs.dpl);
}

static void handle_exit(struct vcpu *c)
{
	struct kvm_run *run = c->run;

	vcpu_count(&c->exits);
	if (run->exit_reason == KVM_EXIT_IO) {
		exit_io(c);
		return;
	}
	if (run->exit_reason == KVM_EXIT_MMIO) {
		exit_mmio(c);
		return;
	}
	vcpu_count(&c->exits_other);
	trace_exit(c->vm->trace, c->idx, run->exit_reason);
	switch (run->exit_reason) {
	case KVM_EXIT_INTR:
	case KVM_EXIT_IOAPIC_EOI: /* pins are edges: nothing to do */
		return;
	case KVM_EXIT_SHUTDOWN:
		end_shutdown(c, "triple fault");
		return;
	case KVM_EXIT_SYSTEM_EVENT:
		end_shutdown(c, "system event");
		return;
	case KVM_EXIT_INTERNAL_ERROR:
		exit_internal_error(c);
		return;
	case KVM_EXIT_FAIL_ENTRY:
		vcpu_end(c, VMM_WHY_KVM,
			 "vCPU %u: entry failed, hardware reason 0x%llx",
			 c->idx,
			 (unsigned long long)
				 run->fail_entry.hardware_entry_failure_reason);
		return;
	default:
		vcpu_end(c, VMM_WHY_KVM, "vCPU %u: unknown exit reason %u",
			 c->idx, run->exit_reason);
		return;
	}
}

static bool is_park_wanted(struct vcpus *s)
{
	return __atomic_load_n(&s->want, __ATOMIC_SEQ_CST) == VCPU_PARK;
}

/* The last one, under the lock: whoever finds all parked finds this told, or
 * the main thread woken, or waits for the teller's lock. */
static bool is_teller(struct vm *vm)
{
	struct teller *t = &vm->teller;

	if (!lanes_have_news(&vm->lanes))
		return false;
	if (pthread_mutex_trylock(&t->lock) == 0) {
		if (t->tell)
			return true;
		pthread_mutex_unlock(&t->lock);
	}
	notice_wake(&vm->notice);
	return false;
}

static void park(struct vm *vm)
{
	struct vcpus *s = &vm->vcpus;

	pthread_mutex_lock(&s->lock);
	s->n_parked++;
	pthread_cond_signal(&s->parked);
	if (s->n_parked == s->n) {
		trace_park(vm->trace, s->n);
		if (is_teller(vm)) {
			/* Parked all the same: not in KVM_RUN. */
			pthread_mutex_unlock(&s->lock);
			vm->teller.tell(vm->teller.ctx);
			pthread_mutex_unlock(&vm->teller.lock);
			pthread_mutex_lock(&s->lock);
		}
	}
	while (is_park_wanted(s))
		pthread_cond_wait(&s->unparked, &s->lock);
	s->n_parked--;
	pthread_mutex_unlock(&s->lock);
}

/* Run until KVM_RUN says EINTR: the only point where a vCPU may park. */
static void run_until_interrupted(struct vcpu *c)
{
	struct vcpus *s = &c->vm->vcpus;
	unsigned exits_left = VCPU_PARK_EXITS_MAX;

	for (;;) {
		if (is_park_wanted(s)) {
			c->run->immediate_exit = 1;
			if (exits_left-- == 0) {
				vcpu_end(c, VMM_WHY_KVM,
					 "vCPU %u does not stop", c->idx);
				return;
			}
		}
		if (ioctl(c->fd, KVM_RUN, 0) == 0) {
			handle_exit(c);
		} else if (errno == EINTR) {
			return;
		} else if (errno != EAGAIN) {
			vcpu_end(c, VMM_WHY_KVM, "vCPU %u: KVM_RUN: %s", c->idx,
				 strerror(errno));
			return;
		}
	}
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *vcpu_thread(void *arg)
{
	struct vcpu *c = arg;
	struct vcpus *s = &c->vm->vcpus;
	struct err e = {0};

	if (confine_thread(CONFINE_VCPU, &e) < 0)
		return NULL; /* the start fails */
	park(c->vm);
	if (c->idx == 0)
		notice_started(&c->vm->notice, now_ns());
	for (;;) {
		run_until_interrupted(c);
		/* Cleared first, looked at second: a request that comes
		 * between sets it again. */
		__atomic_store_n(&c->run->immediate_exit, 0, __ATOMIC_SEQ_CST);
		if (is_park_wanted(s))
			park(c->vm);
	}
	return NULL;
}

int vcpus_create(struct vcpus *s, struct vm *vm, unsigned n, struct err *e)
{
	pthread_condattr_t attr;

	*s = (struct vcpus){.want = VCPU_PARK};
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->unparked, NULL);
	pthread_cond_init(&s->parked, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->nap_over, &attr);
	pthread_condattr_destroy(&attr);
	for (unsigned i = 0; i < n; i++) {
		struct vcpu *c = &s->cpu[i];

		c->vm = vm;
		c->idx = i;
		if (kvm_create_vcpu(&vm->kvm, i, &c->fd, &c->run, e) < 0 ||
		    cpuid_set(&vm->kvm, c->fd, i, n, e) < 0)
			return -1;
		c->stats = kvm_vcpu_stats_open(c->fd);
		s->n++;
	}
	return 0;
}

int vcpus_start(struct vcpus *s, struct err *e)
{
	struct sigaction sa = {.sa_handler = kicked};

	sigaction(VCPU_KICK_SIGNAL, &sa, NULL);
	for (unsigned i = 0; i < s->n; i++) {
		struct vcpu *c = &s->cpu[i];
		int r = thread_create(&c->thread, vcpu_thread, c);

		if (r < 0)
			return err_set(e, ERR_INTERNAL, NULL,
				       "thread of vCPU %u: %s", i,
				       strerror(-r));
		c->has_thread = true;
	}
	return 0;
}

void vcpus_unpark(struct vcpus *s)
{
	pthread_mutex_lock(&s->lock);
	__atomic_store_n(&s->want, VCPU_RUN, __ATOMIC_SEQ_CST);
	pthread_cond_broadcast(&s->unparked);
	pthread_mutex_unlock(&s->lock);
}

/* Lock held. */
static void ask_park(struct vcpus *s, const struct vcpu *but)
{
	__atomic_store_n(&s->want, VCPU_PARK, __ATOMIC_SEQ_CST);
	if (s->n_parked == s->n)
		return; /* one that is on its way out looks at `want` again */
	pthread_cond_broadcast(&s->nap_over);
	for (unsigned i = 0; i < s->n; i++) {
		struct vcpu *c = &s->cpu[i];

		if (c == but)
			continue;
		__atomic_store_n(&c->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
		if (c->has_thread)
			pthread_kill(c->thread, VCPU_KICK_SIGNAL);
	}
}

void vcpus_park(struct vcpus *s)
{
	pthread_mutex_lock(&s->lock);
	ask_park(s, NULL);
	while (s->n_parked < s->n)
		pthread_cond_wait(&s->parked, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

void vcpu_park_all(struct vcpu *c)
{
	struct vcpus *s = &c->vm->vcpus;

	pthread_mutex_lock(&s->lock);
	ask_park(s, c); /* this one looks at `want` before it runs again */
	pthread_mutex_unlock(&s->lock);
}

void vcpu_nap(struct vcpu *c, uint32_t ns)
{
	struct vcpus *s = &c->vm->vcpus;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += ns;
	until.tv_sec += until.tv_nsec / NS_PER_S;
	until.tv_nsec %= NS_PER_S;
	pthread_mutex_lock(&s->lock);
	while (!is_park_wanted(s) &&
	       pthread_cond_timedwait(&s->nap_over, &s->lock, &until) == 0)
		;
	pthread_mutex_unlock(&s->lock);
}
