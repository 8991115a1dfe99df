/*
 * vectest: are every process's vector registers kept?
 *
 *	vectest [SECONDS]	prints "vectest checks=<n> wrong=<n>", exits 0
 *or
 *1
 *
 * Three processes hold patterns in all SSE, AVX or AVX-512 registers (what
 * the CPU has), in MXCSR and on the x87 stack, over preemption, system calls,
 * forks and signals whose handler overwrites all of them. Meanwhile the first
 * process forges signal frames (each must be refused by SIGSEGV, or restored
 * as written) and reads and writes a stopped child's registers by ptrace; the
 * three must not notice. Also works as a guest's first process: then it writes
 * to the kernel's log. Static, nothing but libc:
 *
 *	gcc -O2 -static -Iapi -o vectest images/kernel/vectest.c
 */
#define _GNU_SOURCE
#include "guest_abi.h"
#include <cpuid.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define WORKERS 3

/* Registers as the assembler below lays them out */
struct regs {
	uint8_t v[32][64];
	uint64_t k[8];
	uint32_t mxcsr, pad;
	double st0;
} __attribute__((aligned(64)));

/* Loads IN, spins, makes one system call (NR < 0: none), spins, stores OUT. */
long hold_sse(const struct regs *in, struct regs *out, long spin, long nr,
	      long a, long b);
long hold_avx(const struct regs *in, struct regs *out, long spin, long nr,
	      long a, long b);
long hold_512(const struct regs *in, struct regs *out, long spin, long nr,
	      long a, long b);
/* Fills every register with ones: what a signal handler may do */
void fill_sse(void);
void fill_avx(void);
void fill_512(void);

/* clang-format off */
#define R16 "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
#define R32 R16 ",16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"
#define HOLD(name, regs, mov, reg, kload, kstore)			\
	".globl " name "\n" name ":\n"					\
	"push %rbx\n push %r12\n mov %rsi,%rbx\n mov %rdx,%r12\n"	\
	"mov %rcx,%rax\n"						\
	".irp i," regs "\n " mov " \\i*64(%rdi),%" reg "\\i\n .endr\n"	\
	kload								\
	"fninit\n ldmxcsr 2112(%rdi)\n fldl 2120(%rdi)\n"		\
	"mov %r12,%rcx\n 1: dec %rcx\n jg 1b\n"				\
	"test %rax,%rax\n js 2f\n"					\
	"mov %r8,%rdi\n mov %r9,%rsi\n xor %edx,%edx\n syscall\n"	\
	"2: mov %r12,%rcx\n 3: dec %rcx\n jg 3b\n"			\
	".irp i," regs "\n " mov " %" reg "\\i,\\i*64(%rbx)\n .endr\n"	\
	kstore								\
	"stmxcsr 2112(%rbx)\n fstpl 2120(%rbx)\n"			\
	"push $0x1f80\n ldmxcsr (%rsp)\n add $8,%rsp\n"			\
	"pop %r12\n pop %rbx\n ret\n"
#define FILL(name, regs, op)						\
	".globl " name "\n" name ":\n"					\
	".irp i," regs "\n " op "\n .endr\n fldpi\n ret\n"
__asm__(".text\n"
	HOLD("hold_sse", R16, "movdqu", "xmm", "", "")
	HOLD("hold_avx", R16, "vmovdqu", "ymm", "", "vzeroupper\n")
	HOLD("hold_512", R32, "vmovdqu64", "zmm",
	     ".irp i,0,1,2,3,4,5,6,7\n kmovw 2048+\\i*8(%rdi),%k\\i\n .endr\n",
	     ".irp i,0,1,2,3,4,5,6,7\n kmovw %k\\i,2048+\\i*8(%rbx)\n .endr\n"
	     "vzeroupper\n")
	FILL("fill_sse", R16, "pcmpeqd %xmm\\i,%xmm\\i")
	FILL("fill_avx", R16, "vcmptrueps %ymm\\i,%ymm\\i,%ymm\\i")
	FILL("fill_512", R32, "vpternlogd $0xff,%zmm\\i,%zmm\\i,%zmm\\i"));
/* clang-format on */

static struct {
	const char *name;
	int count, width;
	long (*hold)(const struct regs *, struct regs *, long, long, long,
		     long);
	void (*fill)(void);
} isa;

/* Shared by all processes */
static struct {
	volatile long checks, wrong, signals, forks, forged;
	volatile int stop;
} * shared;

static int log_fd = 1;
static long spin_ms; /* loop turns in a millisecond */

static void say(const char *fmt, ...)
{
	char line[300];
	int n = 0;
	va_list ap;

	if (log_fd != 1) /* a line of the kernel log, level alert */
		n = snprintf(line, sizeof line, "<1>");
	va_start(ap, fmt);
	n += vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof line - 2)
		n = sizeof line - 2;
	line[n++] = '\n';
	if (write(log_fd, line, (size_t)n) != n)
		_exit(3);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void choose_isa(void)
{
	unsigned a, b, c, d, xcr0 = 0;

	isa.name = "SSE", isa.count = 16, isa.width = 16;
	isa.hold = hold_sse, isa.fill = fill_sse;
	__cpuid(1, a, b, c, d);
	if (c >> 27 & 1)
		__asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(d) : "c"(0));
	if ((xcr0 & 6) != 6 || !(c >> 28 & 1))
		return;
	isa.name = "AVX", isa.width = 32, isa.hold = hold_avx,
	isa.fill = fill_avx;
	__cpuid_count(7, 0, a, b, c, d);
	if ((xcr0 & 0xe6) != 0xe6 || !(b >> 16 & 1))
		return;
	isa.name = "AVX-512", isa.count = 32, isa.width = 64;
	isa.hold = hold_512, isa.fill = fill_512;
}

static void pattern(struct regs *r, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
	size_t i;

	memset(r, 0, sizeof *r);
	for (i = 0; i < sizeof r->v / 8; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memcpy((uint8_t *)r->v + i * 8, &x, 8);
	}
	for (i = 0; i < 8; i++)
		r->k[i] = isa.width == 64 ? x >> i & 0xffff : 0;
	r->mxcsr = 0x1f80 | (uint32_t)(seed & 3) << 13;
	r->st0 = (double)(seed % 1000003);
}

/* Counts a check of OUT against IN; the first few wrong ones are described. */
static int compare(const struct regs *in, const struct regs *out,
		   const char *what)
{
	int i, bad = 0;

	for (i = 0; i < isa.count; i++)
		if (memcmp(in->v[i], out->v[i], (size_t)isa.width))
			bad++;
	if (memcmp(in->k, out->k, sizeof in->k) || in->mxcsr != out->mxcsr ||
	    in->st0 < out->st0 || in->st0 > out->st0)
		bad++;
	__atomic_add_fetch(&shared->checks, 1, __ATOMIC_RELAXED);
	if (bad &&
	    __atomic_add_fetch(&shared->wrong, 1, __ATOMIC_RELAXED) <= 10)
		say("vectest: %s: %d registers wrong, mxcsr %x for %x, st0 %g "
		    "for %g",
		    what, bad, out->mxcsr, in->mxcsr, out->st0, in->st0);
	return bad;
}

static void fail(const char *what)
{
	__atomic_add_fetch(&shared->wrong, 1, __ATOMIC_RELAXED);
	say("vectest: %s", what);
}

static void on_timer(int sig)
{
	(void)sig;
	isa.fill();
	__atomic_add_fetch(&shared->signals, 1, __ATOMIC_RELAXED);
}

/* One of the three: hold, yield, fork, be interrupted, look. */
static void worker(int id)
{
	static struct regs in, out;
	struct itimerval every = {{0, 97000 + id * 1000}, {0, 97000}};
	struct sigaction sa = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
	uint64_t n;
	int status;

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (n = 0; !shared->stop; n++) {
		long spin = spin_ms * (long)(1 + n % 12), r;

		pattern(&in, n * WORKERS + (uint64_t)id);
		if (n % 16 == 7) {
			r = isa.hold(&in, &out, spin, SYS_fork, 0, 0);
			compare(&in, &out, r ? "fork, parent" : "fork, child");
			if (r == 0)
				_exit(0);
			__atomic_add_fetch(&shared->forks, 1, __ATOMIC_RELAXED);
			if (r < 0 || waitpid((pid_t)r, &status, 0) != r ||
			    status)
				fail("a forked child did not end well");
		} else if (n % 16 == 3) {
			isa.hold(&in, &out, spin, SYS_kill, getpid(), SIGALRM);
			compare(&in, &out, "signal");
		} else {
			isa.hold(&in, &out, spin, n % 4 ? -1 : SYS_sched_yield,
				 0, 0);
			compare(&in, &out, n % 4 ? "spin" : "yield");
		}
	}
	_exit(0);
}

/* ---- forged signal frames ---- */

enum forge {
	GOOD,
	BAD_MXCSR,
	BAD_BV,
	BAD_XCOMP,
	BAD_RESERVED,
	NO_MAGIC,
	NO_MAGIC_MXCSR,
	NO_AVX,
	FORGES
};
static const char *const forge_name[] = {
	"frame rewritten",	     "bad MXCSR",
	"unknown bit in XSTATE_BV",  "XCOMP_BV set",
	"reserved header bytes set", "no magic",
	"no magic, bad MXCSR",	     "AVX bit cleared",
};
static enum forge forging;
static struct regs forged;

/* sw_reserved, as the kernel's ABI has it */
struct sw_bytes {
	uint32_t magic1, extended_size;
	uint64_t xfeatures;
	uint32_t xstate_size;
};

static void on_forge(int sig, siginfo_t *si, void *uc)
{
	uint8_t *fp = (void *)((ucontext_t *)uc)->uc_mcontext.fpregs;
	struct sw_bytes *sw = (void *)(fp + 464);
	uint64_t *header = (void *)(fp + 512);
	uint32_t magic2;
	int i;

	(void)sig, (void)si;
	memcpy(&magic2, fp + sw->xstate_size % 16384, 4);
	if (isa.width > 16 &&
	    (sw->magic1 != 0x46505853 || magic2 != 0x46505845 ||
	     (sw->xfeatures & 7) != 7 ||
	     sw->extended_size != sw->xstate_size + 4 || (header[0] & 3) != 3 ||
	     header[1] || header[2]))
		_exit(20);
	for (i = 0; i < 16; i++)
		memcpy(fp + 160 + i * 16, forged.v[i], 16);
	for (i = 0; isa.width > 16 && i < 16; i++)
		memcpy(fp + 576 + i * 16, forged.v[i] + 16, 16);
	header[0] |= isa.width > 16 ? 4 : 0;
	memcpy(fp + 24, &forged.mxcsr, 4);
	switch (forging) {
	case BAD_MXCSR:
		memset(fp + 24, 0xff, 4);
		break;
	case BAD_BV:
		header[0] |= 1ull << 62;
		break;
	case BAD_XCOMP:
		header[1] = 1;
		break;
	case BAD_RESERVED:
		header[2] = 1ull << 40;
		break;
	case NO_MAGIC:
		sw->magic1 = 0;
		break;
	case NO_MAGIC_MXCSR:
		sw->magic1 = 0;
		memset(fp + 24, 0xff, 4);
		break;
	case NO_AVX:
		header[0] &= ~4ull;
		break;
	case GOOD:
	case FORGES:
		break;
	}
}

/* After a refused frame the process has initial registers, nobody else's. */
static void on_segv(int sig, siginfo_t *si, void *uc)
{
	uint8_t *fp = (void *)((ucontext_t *)uc)->uc_mcontext.fpregs;
	uint64_t bv = 0;
	int i, n = 0;

	(void)sig, (void)si;
	if (isa.width > 16)
		memcpy(&bv, fp + 512, 8);
	for (i = 160; i < 416; i++)
		n += fp[i];
	for (i = 576; bv & 4 && i < 832; i++)
		n += fp[i];
	_exit(n ? 21 : 11);
}

/* In a child: registers IN, a handler that forges the frame, what came out. */
static int forge_child(enum forge what)
{
	static struct regs in, out, want;
	struct sigaction forge = {.sa_sigaction = on_forge,
				  .sa_flags = SA_SIGINFO};
	struct sigaction segv = {.sa_sigaction = on_segv,
				 .sa_flags = SA_SIGINFO};
	int i, k;

	forging = what;
	pattern(&in, 1000 + (uint64_t)what);
	pattern(&forged, 2000 + (uint64_t)what);
	sigaction(SIGUSR1, &forge, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	isa.hold(&in, &out, spin_ms, SYS_kill, getpid(), SIGUSR1);
	want = in;
	for (i = 0; i < 16; i++) {
		memcpy(want.v[i], forged.v[i], 32);
		for (k = 16; k < 64 && (what == NO_MAGIC || what == NO_AVX);
		     k++)
			if (k < 32 || what == NO_MAGIC)
				want.v[i][k] = 0;
	}
	for (; i < 32; i++)
		if (what == NO_MAGIC)
			memset(want.v[i], 0, 64);
	want.mxcsr = forged.mxcsr;
	if (what == NO_MAGIC) { /* FXRSTOR, then XRSTOR of initial AVX state */
		memset(want.k, 0, sizeof want.k);
		if (out.mxcsr == 0x1f80) /* with MXCSR in the standard form */
			want.mxcsr = 0x1f80;
	}
	return compare(&want, &out, forge_name[what]) ? 22 : 0;
}

/* An emulated CPU may take any MXCSR (QEMU's does): nothing to refuse there. */
static int any_mxcsr;

static void probe_mxcsr(void)
{
	uint32_t ones = 0xffffffff;
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		__asm__ volatile("ldmxcsr %0" : : "m"(ones));
		_exit(0);
	}
	any_mxcsr = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
	if (any_mxcsr)
		say("vectest: this CPU takes any MXCSR: two forged frames left "
		    "out");
}

static void forge_one(enum forge what)
{
	int status, want = what == GOOD || what == NO_MAGIC || what == NO_AVX
				   ? 0
				   : 11;
	pid_t pid;

	if (isa.width == 16 && what != GOOD && what != BAD_MXCSR)
		return;
	if (any_mxcsr && (what == BAD_MXCSR || what == NO_MAGIC_MXCSR))
		return;
	pid = fork();
	if (pid == 0)
		_exit(forge_child(what));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return fail("fork for a forged frame");
	__atomic_add_fetch(&shared->forged, 1, __ATOMIC_RELAXED);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != want) {
		fail(forge_name[what]);
		say("vectest: wait status %#x, expected exit %d "
		    "(11 SIGSEGV, 20 bad frame, 21 foreign registers, 22 not "
		    "restored)",
		    (unsigned)status, want);
	}
}

/* A stopped child's registers, read and written by its tracer */
static void trace_one(void)
{
	static struct regs in, out, other;
	static uint8_t area[16384] __attribute__((aligned(64)));
	struct iovec iov = {area, sizeof area};
	int status, i, bad = 0;
	pid_t pid;

	if (isa.width == 16)
		return;
	pattern(&in, 31337);
	pattern(&other, 4711);
	for (i = 0; i < 16; i++) /* what the tracer will write */
		memcpy(in.v[i] + 32, other.v[i] + 32, 32);
	pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		isa.hold(&in, &out, spin_ms, SYS_kill, getpid(), SIGSTOP);
		for (i = 0; i < 16; i++)
			memcpy(in.v[i], other.v[i], 32);
		_exit(compare(&in, &out, "written by ptrace") ? 22 : 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		return fail("ptrace: no stopped child");
	if (ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, &iov))
		return fail("PTRACE_GETREGSET");
	for (i = 0; i < 16; i++) {
		bad += memcmp(area + 160 + i * 16, in.v[i], 16) != 0;
		bad += memcmp(area + 576 + i * 16, in.v[i] + 16, 16) != 0;
		memcpy(area + 160 + i * 16, other.v[i], 16);
		memcpy(area + 576 + i * 16, other.v[i] + 16, 16);
	}
	if (bad)
		fail("PTRACE_GETREGSET: other registers than the child's");
	if (ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, &iov))
		fail("PTRACE_SETREGSET");
	ptrace(PTRACE_CONT, pid, NULL, 0);
	if (waitpid(pid, &status, 0) != pid || status)
		fail("ptrace: the child did not find what was written");
}

static void calibrate(void)
{
	static struct regs in, out;
	double t;

	pattern(&in, 1);
	spin_ms = 1000;
	do {
		spin_ms *= 2;
		t = now();
		isa.hold(&in, &out, spin_ms, -1, 0, 0);
		t = now() - t;
	} while (t < 0.02);
	spin_ms = (long)((double)spin_ms * 2 * 0.001 / t);
	compare(&in, &out, "alone");
}

static void as_init(void)
{
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	log_fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10, i,
	    init = getpid() == 1;
	pid_t pid[WORKERS];
	double end;

	if (init)
		as_init();
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 3;
	choose_isa();
	calibrate();
	say("vectest: %s, %d registers of %d bytes, %d s", isa.name, isa.count,
	    isa.width, seconds);
	probe_mxcsr();
	for (i = 0; i < WORKERS; i++) {
		pid[i] = fork();
		if (pid[i] == 0)
			worker(i);
	}
	for (end = now() + seconds, i = 0; i <= FORGES || now() < end; i++) {
		if (i % (FORGES + 1) == FORGES)
			trace_one();
		else
			forge_one((enum forge)(i % (FORGES + 1)));
		usleep(50000);
	}
	shared->stop = 1;
	for (i = 0; i < WORKERS; i++) {
		int status = 0;

		if (pid[i] < 0 || waitpid(pid[i], &status, 0) != pid[i] ||
		    status)
			fail("a worker did not end well");
	}
	say("vectest: %ld signals, %ld forks, %ld forged frames",
	    shared->signals, shared->forks, shared->forged);
	say("vectest checks=%ld wrong=%ld", shared->checks, shared->wrong);
	if (init) { /* leave the VM: hutch-vmm, or QEMU, or by itself */
		if (iopl(3) == 0) {
			outl(HUTCH_POWER_OFF, HUTCH_PORT_POWER);
			outb(shared->wrong != 0, 0xf4);
		}
		reboot(RB_POWER_OFF);
	}
	return shared->wrong || !shared->checks;
}
