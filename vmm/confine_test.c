/*
 * Confinement, tried from inside: a child gives up its power by the real
 * stages and then does what an attacker who owns the VMM would do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include "confine_seccomp.c"
#include <cmocka.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define SYSCALLS_MAX 470
#define X32_BIT	     0x40000000
/* Trampolines that a host's root places: the kernel lets them pass seccomp,
 * and they do nothing when called from elsewhere. */
#define NR_URETPROBE 335
#define NR_UPROBE    336
#define TEST_UID     54321u
#define KINDS	     4

/* Run `fn` in a child; its wait status. */
static int in_child(void (*fn)(const void *), const void *arg)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static bool is_killed(int status)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

struct call {
	enum confine_kind kind;
	long nr;
	unsigned long arg[3];
};

static void do_call(const void *arg)
{
	const struct call *c = arg;
	struct err e;

	if (confine_thread(c->kind, &e) < 0)
		_exit(9);
	syscall(c->nr, c->arg[0], c->arg[1], c->arg[2], -1, -1, -1);
	syscall(SYS_exit_group, 0);
}

static bool is_listed(enum confine_kind kind, long nr)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (rules[i].nr == nr && (rules[i].kinds & 1u << kind))
			return true;
	return false;
}

/* Every number that is not listed kills, on every kind of thread, and so do
 * all x32 forms. */
static void test_numbers(void **unused)
{
	(void)unused;
	for (int kind = 0; kind < KINDS; kind++) {
		unsigned n = 0;

		for (long nr = 0; nr < SYSCALLS_MAX; nr++) {
			struct call c = {.kind = (enum confine_kind)kind,
					 .nr = nr};

			if (is_listed(c.kind, nr)) {
				n++;
				continue;
			}
			if (nr == NR_URETPROBE || nr == NR_UPROBE)
				continue;
			if (!is_killed(in_child(do_call, &c)))
				fail_msg("kind %d: call %ld passed", kind, nr);
		}
		print_message("# kind %d: %u calls listed\n", kind, n);
		for (long nr = 0; nr < SYSCALLS_MAX; nr += 7) {
			struct call c = {.kind = (enum confine_kind)kind,
					 .nr = nr | X32_BIT};

			assert_true(is_killed(in_child(do_call, &c)));
		}
	}
}

static void do_int80(const void *arg)
{
	struct err e;
	long r = 20; /* getpid of i386 */

	(void)arg;
	if (confine_thread(CONFINE_MAIN, &e) < 0)
		_exit(9);
	__asm__ volatile("int $0x80" : "+a"(r)::"memory");
}

static void test_i386(void **unused)
{
	int status = in_child(do_int80, NULL);

	(void)unused;
	/* A kernel without the i386 entry gives SIGSEGV: as good. */
	assert_true(WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS ||
					    WTERMSIG(status) == SIGSEGV));
}

static void test_arguments(void **unused)
{
	const unsigned long exec = PROT_READ | PROT_EXEC;
	const struct call killed[] = {
		{CONFINE_MAIN, SYS_mmap, {0, 4096, exec}}, /* G4 */
		{CONFINE_IO, SYS_mmap, {0, 4096, exec}},
		{CONFINE_MAIN, SYS_mprotect, {0, 4096, exec}},
		{CONFINE_VCPU, SYS_ioctl, {0, KVM_CREATE_DEVICE, 0}}, /* G7 */
		{CONFINE_MAIN, SYS_ioctl, {0, KVM_CREATE_VM, 0}},
		{CONFINE_MAIN, SYS_ioctl, {0, KVM_CREATE_VCPU, 0}},
		{CONFINE_MAIN, SYS_ioctl, {0, KVM_SET_USER_MEMORY_REGION, 0}},
		{CONFINE_MAIN, SYS_ioctl, {0, KVM_RUN, 0}},
		{CONFINE_IO, SYS_ioctl, {0, KVM_RUN, 0}},
		{CONFINE_MAIN, SYS_ioctl, {0, 0x5412 /* TIOCSTI */, 0}},
		{CONFINE_MAIN, SYS_tgkill, {1, 1, SIGKILL}}, /* G9 */
		{CONFINE_VCPU, SYS_tgkill, {1, 1, 0}},
	};
	const struct call allowed[] = {
		{CONFINE_MAIN, SYS_mmap, {0, 4096, PROT_READ}},
		{CONFINE_VCPU, SYS_ioctl, {~0u, KVM_RUN, 0}},
		{CONFINE_VCPU, SYS_ioctl, {~0u, KVM_SET_XSAVE, 0}},
		{CONFINE_IO, SYS_ioctl, {~0u, KVM_SIGNAL_MSI, 0}},
		{CONFINE_MAIN, SYS_ioctl, {~0u, KVM_GET_REGS, 0}},
		{CONFINE_TRACE, SYS_write, {~0u, 0, 0}},
	};

	(void)unused;
	for (size_t i = 0; i < sizeof(killed) / sizeof(killed[0]); i++)
		if (!is_killed(in_child(do_call, &killed[i])))
			fail_msg("killed[%zu] passed", i);
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (in_child(do_call, &allowed[i]) != 0)
			fail_msg("allowed[%zu] did not pass", i);
}

static struct options some_options(bool has_ids)
{
	struct options o = {.mem_mib = 64, .is_confined = true};

	o.kernel.fd = o.trace.fd = o.state.fd = o.memory.fd = -1;
	o.control = o.channel = o.log = o.kvm = o.pagemap = -1;
	if (has_ids) {
		o.has_ids = true;
		o.uid = TEST_UID;
		o.gid = TEST_UID;
	}
	return o;
}

/* What must fail without seccomp, by the other stages alone. */
#define MUST_FAIL(call)                                                        \
	do {                                                                   \
		if ((call) >= 0) {                                             \
			fprintf(stderr, "passed: %s\n", #call);                \
			_exit(1);                                              \
		}                                                              \
	} while (0)

static void escape(const void *arg)
{
	struct options o = some_options(true);
	struct sockaddr_un abstract = {.sun_family = AF_UNIX,
				       .sun_path = "\0hutch-test"};
	struct err e = {0};
	struct rlimit r;
	struct stat st;
	char name[IF_NAMESIZE];

	(void)arg;
	if (confine_process(&o, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		_exit(2);
	}
	MUST_FAIL(open("/etc/passwd", O_RDONLY)); /* G1 */
	MUST_FAIL(open("/proc/self/mem", O_RDWR));
	MUST_FAIL(open("/", O_RDONLY | O_DIRECTORY));
	MUST_FAIL(open("/new", O_WRONLY | O_CREAT, 0600));
	MUST_FAIL(stat("/etc", &st));
	MUST_FAIL(mkdir("/x", 0700));
	MUST_FAIL(unshare(CLONE_NEWNS)); /* G3 */
	MUST_FAIL(mount("x", "/", "tmpfs", 0, NULL));
	MUST_FAIL(chroot("/"));
	MUST_FAIL(setuid(0));
	MUST_FAIL(setgid(0));
	MUST_FAIL(kill(1, 0)); /* G9, G10 */
	MUST_FAIL(kill(getppid(), 0));
	MUST_FAIL(execl("/bin/true", "true", NULL));
	MUST_FAIL(connect(socket(AF_UNIX, SOCK_STREAM, 0),
			  (struct sockaddr *)&abstract, sizeof(abstract)));
	if (if_indextoname(2, name)) /* G2: only lo, and it is down */
		_exit(3);
	if (getrlimit(RLIMIT_CORE, &r) < 0 || r.rlim_max != 0) /* G13 */
		_exit(4);
	for (int fd = 3; fd < 4096; fd++) /* G8; one socket of our own */
		if (fcntl(fd, F_GETFD) >= 0 && fd > 3)
			_exit(5);
	if (geteuid() != TEST_UID || getegid() != TEST_UID ||
	    getgroups(0, NULL) != 0)
		_exit(6);
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) != 0)
			_exit(7);
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 ||
	    prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0)
		_exit(8);
}

static void test_escape_without_seccomp(void **unused)
{
	(void)unused;
	if (geteuid() != 0) {
		print_message("# needs root\n");
		skip();
	}
	assert_int_equal(in_child(escape, NULL), 0);
}

static void as_user(const void *arg)
{
	struct options o = some_options(false);
	struct err e = {0};

	(void)arg;
	if (setgid(TEST_UID) < 0 || setuid(TEST_UID) < 0 ||
	    confine_process(&o, &e) < 0)
		_exit(2);
	MUST_FAIL(open("/etc/passwd", O_RDONLY)); /* by Landlock alone */
	MUST_FAIL(execl("/bin/true", "true", NULL));
}

static void test_without_root(void **unused)
{
	(void)unused;
	assert_int_equal(in_child(as_user, NULL), 0);
}

/* G15: each step fails once; the start must be refused, at this stage. */
static const struct fault {
	int nr;
	const char *stage;
	int arg; /* -1: any */
	uint64_t value;
} faults[] = {
	{SCMP_SYS(close_range), "fds", -1, 0},
	{SCMP_SYS(prlimit64), "limits", -1, 0},
	{SCMP_SYS(unshare), "namespaces", -1, 0},
	{SCMP_SYS(mount), "namespaces", -1, 0},
	{SCMP_SYS(chdir), "namespaces", -1, 0},
	{SCMP_SYS(pivot_root), "namespaces", -1, 0},
	{SCMP_SYS(umount2), "namespaces", -1, 0},
	{SCMP_SYS(setresuid), "ids", -1, 0},
	{SCMP_SYS(setresgid), "ids", -1, 0},
	{SCMP_SYS(setgroups), "ids", -1, 0},
	{SCMP_SYS(capset), "ids", -1, 0},
	{SCMP_SYS(prctl), "privileges", 0, PR_SET_NO_NEW_PRIVS},
	{SCMP_SYS(landlock_create_ruleset), "landlock", -1, 0},
	{SCMP_SYS(landlock_restrict_self), "landlock", -1, 0},
	{SCMP_SYS(prctl), "dump", 0, PR_SET_DUMPABLE},
	{SCMP_SYS(seccomp), "thread", -1, 0},
};

static void with_fault(const void *arg)
{
	const struct fault *f = arg;
	struct options o = some_options(true);
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	struct scmp_arg_cmp cmp = {.arg = (unsigned)f->arg,
				   .op = SCMP_CMP_EQ,
				   .datum_a = f->value};
	struct err e = {0};
	char want[32];
	int r;

	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_NNP, 0);
	r = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(EPERM), f->nr,
				   f->arg >= 0, &cmp);
	if (r < 0 || seccomp_load(ctx) < 0)
		_exit(9);
	seccomp_release(ctx);
	r = confine_process(&o, &e);
	if (strcmp(f->stage, "thread") == 0)
		_exit(r == 0 && confine_thread(CONFINE_IO, &e) < 0 ? 0 : 1);
	snprintf(want, sizeof(want), "stage %s", f->stage);
	_exit(r < 0 && strncmp(e.text, want, strlen(want)) == 0 ? 0 : 1);
}

static void test_faults(void **unused)
{
	(void)unused;
	if (geteuid() != 0) {
		print_message("# needs root\n");
		skip();
	}
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		if (in_child(with_fault, &faults[i]) != 0)
			fail_msg("fault %zu (%s) was not refused there", i,
				 faults[i].stage);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_i386),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_escape_without_seccomp),
		cmocka_unit_test(test_without_root),
		cmocka_unit_test(test_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
