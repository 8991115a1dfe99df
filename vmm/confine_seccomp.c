/*
 * System calls of each kind of thread, with the reason for each entry.
 *
 * The lists are installed by the threads themselves, after everything is set
 * up and before the first KVM_RUN.  A call that is not listed, another
 * architecture, or x32 kills the process.  seccomp does not see what io_uring
 * does: the ring restricts itself (io_ring.c).
 */
#include "confine.h"
#include <errno.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define M	  (1u << CONFINE_MAIN)
#define V	  (1u << CONFINE_VCPU)
#define I	  (1u << CONFINE_IO)
#define T	  (1u << CONFINE_TRACE)
#define ALL_KINDS (M | V | I | T)

/* How one argument is checked; NONE = any arguments. */
enum check { NONE, ARG_EQ, ARG_WITHOUT, ARG_OWN_PID };

struct rule {
	unsigned kinds;
	int nr;
	enum check check;
	unsigned arg;
	uint64_t value;
};

#define CALL(kinds, name)                                                      \
	{                                                                      \
		kinds, SCMP_SYS(name), NONE, 0, 0                              \
	}
#define IOCTL(kinds, request)                                                  \
	{                                                                      \
		kinds, SCMP_SYS(ioctl), ARG_EQ, 1, request                     \
	}

static const struct rule rules[] = {
	/* every thread */
	CALL(ALL_KINDS, futex),	       /* locks, conditions, heap */
	CALL(ALL_KINDS, write),	       /* eventfds, log, trace, state file */
	CALL(ALL_KINDS, rt_sigreturn), /* end of the kick's handler */
	CALL(ALL_KINDS, restart_syscall),
	CALL(ALL_KINDS, exit_group),	 /* end of the VM; a failed assert */
	CALL(ALL_KINDS, clock_gettime),	 /* hosts without a vDSO clock */
	CALL(ALL_KINDS, gettid),	 /* abort() */
	CALL(ALL_KINDS, getpid),	 /* abort() */
	CALL(ALL_KINDS, rt_sigprocmask), /* abort(), thread start */
	/* abort(), the kick; only to this process */
	{ALL_KINDS, SCMP_SYS(tgkill), ARG_OWN_PID, 0, 0},

	/* vCPUs */
	IOCTL(V, KVM_RUN),
	IOCTL(V, KVM_GET_XSAVE), /* paravirtual XSAVE */
	IOCTL(V, KVM_GET_XSAVE2),
	IOCTL(V, KVM_SET_XSAVE),
	IOCTL(V, KVM_GET_REGS), /* say where an internal error was */
	IOCTL(V, KVM_GET_SREGS),
	IOCTL(V | I, KVM_SIGNAL_MSI), /* interrupts of devices */

	/* I/O thread and main: memory of the heap, never executable */
	CALL(I | M, brk),
	{I | M, SCMP_SYS(mmap), ARG_WITHOUT, 2, PROT_EXEC},
	{I | M, SCMP_SYS(mprotect), ARG_WITHOUT, 2, PROT_EXEC},
	CALL(I | M, munmap),
	CALL(I | M, madvise), /* heap; buffers given back */

	/* I/O thread: disks and channel */
	CALL(I, io_uring_enter),
	CALL(I, io_uring_register), /* files of new connections; the ring
				     * refuses all else */
	CALL(I, preadv),	    /* --sync-io */
	CALL(I, pwritev),	    /* --sync-io */
	CALL(I, fdatasync),	    /* --sync-io */
	CALL(I, fallocate),	    /* discard */
	CALL(I, newfstatat),	    /* space that a disk has allocated */
	CALL(I, lseek),		    /* its allocated ranges */
	CALL(I, ppoll),		    /* --sync-io */
	CALL(I | M, poll),	    /* main loop; hang-up of a connection */
	CALL(I | M, read),	    /* eventfds */
	CALL(I | M | V, sendmsg),   /* a vCPU: what its lane has to say */
	CALL(I | M, recvmsg),
	CALL(I, shutdown),
	CALL(I | M, close), /* connections; descriptors sent to us */

	/* main: snapshots, statistics, requests */
	CALL(M, pread64),
	CALL(M, pwrite64),
	CALL(M, ftruncate),
	CALL(M, recvfrom), /* a look at what a connection has to read */

	IOCTL(M, KVM_GET_REGS), /* this and the next: state of a snapshot */
	IOCTL(M, KVM_GET_SREGS),
	IOCTL(M, KVM_GET_XSAVE),
	IOCTL(M, KVM_GET_XSAVE2),
	IOCTL(M, KVM_GET_XCRS),
	IOCTL(M, KVM_GET_DEBUGREGS),
	IOCTL(M, KVM_GET_LAPIC),
	IOCTL(M, KVM_GET_MSRS),
	IOCTL(M, KVM_GET_VCPU_EVENTS),
	IOCTL(M, KVM_GET_MP_STATE),
	IOCTL(M, KVM_GET_CLOCK),
	IOCTL(M, KVM_KVMCLOCK_CTRL), /* resume: not a stall of the guest */

	/* trace writer: `write` is in every list */
};

static bool is_off;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_more = PTHREAD_COND_INITIALIZER;
static unsigned n_confined;
static struct err first_error;

void confine_threads_off(void)
{
	is_off = true;
}

static int add_rule(scmp_filter_ctx ctx, const struct rule *r)
{
	struct scmp_arg_cmp cmp = {.arg = r->arg, .datum_a = r->value};

	switch (r->check) {
	case NONE:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, r->nr, 0);
	case ARG_EQ:
		cmp.op = SCMP_CMP_EQ;
		break;
	case ARG_WITHOUT: /* (argument & value) == 0 */
		cmp.op = SCMP_CMP_MASKED_EQ;
		break;
	case ARG_OWN_PID:
		cmp.op = SCMP_CMP_EQ;
		cmp.datum_a = (scmp_datum_t)getpid();
		break;
	}
	return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, r->nr, 1, &cmp);
}

static int install(enum confine_kind kind, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r;

	if (!ctx)
		return err_set(e, ERR_INTERNAL, NULL, "seccomp: no memory");
	r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH,
			     SCMP_ACT_KILL_PROCESS);
	for (size_t i = 0; r == 0 && i < sizeof(rules) / sizeof(rules[0]); i++)
		if (rules[i].kinds & 1u << kind)
			r = add_rule(ctx, &rules[i]);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	if (r < 0)
		return err_set(e, ERR_INTERNAL, NULL, "seccomp: %s",
			       strerror(-r));
	return 0;
}

int confine_thread(enum confine_kind kind, struct err *e)
{
	int r = is_off ? 0 : install(kind, e);

	if (kind == CONFINE_MAIN)
		return r;
	pthread_mutex_lock(&lock);
	if (r < 0 && first_error.code == ERR_NONE)
		first_error = *e;
	n_confined++;
	pthread_cond_signal(&one_more);
	pthread_mutex_unlock(&lock);
	return r;
}

int confine_threads_wait(unsigned n, struct err *e)
{
	int r = 0;

	pthread_mutex_lock(&lock);
	while (n_confined < n)
		pthread_cond_wait(&one_more, &lock);
	if (first_error.code != ERR_NONE) {
		*e = first_error;
		r = -1;
	}
	pthread_mutex_unlock(&lock);
	return r;
}
