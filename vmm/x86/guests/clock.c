/*
 * An init for tests of the monitor under Linux: says the time ten times a
 * second on the log port, from user mode, as lines
 *
 *	T <CLOCK_MONOTONIC ns> <CLOCK_REALTIME ns> <online processors>
 *
 * One process on each processor, so that timers and wake-ups of all of them
 * must work; each adds its number to the line.  Before that, once, the memory
 * that the kernel gives out: `M <KiB>`.
 *
 * With the word `dial` on the command line it first connects to ports 7000 and
 * 7001 of the host and says what came of it: `D <port> <errno> <text read>`.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
/* needs the one above */
#include <linux/vm_sockets.h>
#include <time.h>
#include <unistd.h>

#define LOG_PORT 0xe9
#define STEP_NS	 100000000

static uint64_t now(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put(const char *line)
{
	for (; *line; line++)
		outb((unsigned char)*line, LOG_PORT);
}

static void say_memory(void)
{
	struct sysinfo s;
	char line[32];

	if (sysinfo(&s) < 0)
		return;
	snprintf(line, sizeof(line), "M %llu\n",
		 (unsigned long long)s.totalram * s.mem_unit / 1024);
	put(line);
}

static void say(int cpu, long n)
{
	char line[96];

	snprintf(line, sizeof(line), "T %llu %llu %ld %d\n",
		 (unsigned long long)now(CLOCK_MONOTONIC),
		 (unsigned long long)now(CLOCK_REALTIME), n, cpu);
	put(line);
}

/* Connect, send "hello", read the answer. */
static void dial(unsigned port)
{
	struct sockaddr_vm to = {.svm_family = AF_VSOCK,
				 .svm_port = port,
				 .svm_cid = VMADDR_CID_HOST};
	char line[96], text[32] = "";
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0), error = 0;

	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		error = errno;
	else if (write(fd, "hello", 5) != 5 ||
		 read(fd, text, sizeof(text) - 1) < 0)
		error = errno;
	close(fd);
	snprintf(line, sizeof(line), "D %u %d %s\n", port, error, text);
	put(line);
}

int main(int argc, char **argv)
{
	const struct timespec step = {.tv_nsec = STEP_NS};
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	int cpu = 0;
	cpu_set_t set;

	if (ioperm(LOG_PORT, 1, 1) < 0)
		return 1;
	say_memory();
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "dial") == 0) {
			dial(7000);
			dial(7001);
		}
	while (cpu < n - 1 && fork() == 0)
		cpu++;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (;;) {
		say(cpu, n);
		nanosleep(&step, NULL);
	}
}
