/*
 * Process 1 of a guest that tries to make the lane's page move: fork and
 * write, exec, a fragmented memory and compaction.  What it finds goes to the
 * boot log (test_lane_frame.py); an ordinary page is watched beside it, to see
 * that a move would be seen.
 */
#include "../../guest/lane_page.h"
#include "../../guest/port.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_BYTES (64u << 10)
#define BLOCKS_MAX  512u

static uint64_t pfn_of(const volatile void *p)
{
	_cleanup_fd_ int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	fd_pread_all(fd, &entry, sizeof(entry), (off_t)((uintptr_t)p / 512));
	return entry & ((1ull << 55) - 1);
}

static void setting(const char *path, const char *value)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		port_log("%s: %s", path, strerror(errno));
}

static void say(const char *when, const struct lane_page *p, uint64_t want)
{
	uint64_t frame = 0;
	int rc = lane_page_frame(p, &frame);

	port_log("frame after %s: %s", when,
		 rc		 ? strerror(-rc)
		 : frame == want ? "stays"
				 : "moved");
}

/* A child that lives while the parent writes: a private page is copied. */
static void fork_and_write(struct lane_page *p, volatile char *plain)
{
	uint64_t before = pfn_of(plain);
	pid_t pid = fork();

	if (!pid) {
		p->head->version++;
		pause();
	}
	p->head->version++;
	plain[0]++;
	port_log("an ordinary page after fork: %s",
		 pfn_of(plain) == before ? "stays" : "moved");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Holes all over: every other block of what there is. */
static void fragment(void)
{
	char *block[BLOCKS_MAX];

	for (size_t i = 0; i < BLOCKS_MAX; i++) {
		block[i] =
			mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		madvise(block[i], BLOCK_BYTES, MADV_NOHUGEPAGE);
	}
	for (size_t i = 0; i < BLOCKS_MAX; i += 2)
		if (block[i] != MAP_FAILED)
			munmap(block[i], BLOCK_BYTES);
}

/* After exec: the descriptor and the frame came along. */
static void after_exec(char **argv)
{
	struct lane_page p = {.fd = (int)strtol(argv[1], NULL, 10)};
	void *at = mmap(NULL, LANE_PAGE_BYTES, PROT_READ | PROT_WRITE,
			MAP_SHARED, p.fd, 0);

	if (at == MAP_FAILED) {
		port_log("mmap after exec: %s", strerror(errno));
		port_power_off();
	}
	p.head = at;
	p.head->version++;
	say("exec", &p, strtoull(argv[2], NULL, 10));
	port_power_off();
}

int main(int argc, char **argv)
{
	static char plain[4096] __attribute__((aligned(4096)));
	char why[128], fd_text[16], frame_text[24];
	struct lane_page p;
	uint64_t frame;

	port_open();
	if (argc == 3 && strcmp(argv[0], "again") == 0)
		after_exec(argv);
	if (mount("proc", "/proc", "proc", 0, NULL))
		port_log("mount: %s", strerror(errno));
	plain[0] = 1;
	if (lane_page_make(&p, &frame, why, sizeof(why))) {
		port_log("no page: %s", why);
		port_power_off();
	}
	fork_and_write(&p, plain);
	say("fork", &p, frame);
	fragment();
	setting("/proc/sys/vm/drop_caches", "3");
	setting("/proc/sys/vm/compact_memory", "1");
	say("compaction", &p, frame);
	fcntl(p.fd, F_SETFD, 0);
	snprintf(fd_text, sizeof(fd_text), "%d", p.fd);
	snprintf(frame_text, sizeof(frame_text), "%llu",
		 (unsigned long long)frame);
	execl("/sbin/hutch-init", "again", fd_text, frame_text, NULL);
	port_log("exec: %s", strerror(errno));
	port_power_off();
}
