/*
 * Hostile case C22: the process that serves the disk is killed at any moment,
 * again and again, under a guest that writes.  The guest's database is then
 * played back and passes its checker, and every transaction that the guest
 * was told of is in it (guest_db.h).  Once with io_uring and once without.
 *
 * The next process waits for the disk's lock, as hutch-vmm does: a ring lets
 * go of its files a little after its process is gone.
 */
#include "guest_db.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROWS	    64u
#define LIFE_US_MAX 4000u

static bool use_ring;
static int disk_fd;
static struct {
	atomic_uint told; /* transactions that the guest knows of */
	atomic_bool is_writing;
} * shared;

/* A process of the VM's: the device on a description of its own. */
static void device_up(struct disk *k)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct io_config ic = {.use_ring = use_ring};
	struct blk_config bc = {.bytes = DISK_BYTES};
	char path[64];

	memset(k, 0, sizeof(*k));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", disk_fd);
	k->fd = k->dev_fd = bc.fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(bc.fd >= 0);
	assert_int_equal(fcntl(bc.fd, F_OFD_SETLKW, &l), 0);
	assert_int_equal(mem_init(&k->mem, GUEST_RAM_BYTES), 0);
	guest_canary_fill(&k->mem);
	assert_int_equal(io_create(&k->io, &ic), 0);
	assert_int_equal(blk_create(&k->blk, &k->mem, k->io, &bc), 0);
	assert_int_equal(io_device_add(k->io, blk_dev(k->blk)), 0);
	guest_init(&k->g, &k->mem, k->io, blk_dev(k->blk));
	guest_start(&k->g);
}

static void device_down(struct disk *k)
{
	guest_reset(&k->g);
	guest_canary_check(&k->mem);
	blk_destroy(k->blk);
	io_destroy(k->io);
	close(k->dev_fd);
	mem_finish(&k->mem);
}

static void writer(unsigned seed)
{
	static struct disk k;
	sqlite3 *db;

	setenv("CMOCKA_TEST_ABORT", "1", 1); /* not SIGKILL */
	guest_db_seed(seed);
	device_up(&k);
	db = guest_db_open(&k);
	/* What its predecessor had committed without hearing of it. */
	atomic_store(&shared->told, guest_db_check(db));
	atomic_store(&shared->is_writing, true);
	for (;;) {
		guest_db_step(db);
		atomic_fetch_add(&shared->told, 1);
	}
}

static void nap(unsigned us)
{
	struct timespec t = {.tv_nsec = (long)us * 1000};

	nanosleep(&t, NULL);
}

/* From its first transaction on, or from its start: then the kill may meet it
 * while it plays back. */
static void kill_one(unsigned seed, bool from_start)
{
	unsigned us = (unsigned)rand() % LIFE_US_MAX;
	int status;
	pid_t pid;

	atomic_store(&shared->is_writing, false);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		writer(seed);
	for (int i = 0;
	     !from_start && !atomic_load(&shared->is_writing) && i < 100000;
	     i++)
		nap(100);
	nap(us);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static unsigned check(void)
{
	static struct disk k;
	sqlite3 *db;
	unsigned n;

	device_up(&k);
	db = guest_db_open(&k);
	n = guest_db_check(db);
	guest_db_close(db);
	device_down(&k);
	return n;
}

static void c22_killed_while_writing(void **state)
{
	unsigned kills = getenv("HUTCH_LONG") ? 2000 : 500, n = 0;
	struct disk k = {0};

	(void)state;
	srand(22);
	disk_up(&k, &(struct disk_options){.use_ring = use_ring});
	disk_fd = k.fd;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	atomic_store(&shared->told, 0);
	guest_db_make(disk_fd, ROWS);
	for (unsigned i = 0; i < kills; i++) {
		unsigned told;

		kill_one(i, i % 3 == 2);
		if (i % 3 == 1 && i + 1 < kills)
			continue; /* the next one finds what it left */
		n = check();
		told = atomic_load(&shared->told);
		assert_in_range(n, told, told + 1);
	}
	print_message("# %u kills, %u transactions\n# count=%u\n", kills, n,
		      kills);
	assert_true(n > kills / 10); /* it wrote between the kills */
	munmap(shared, sizeof(*shared));
	disk_down(&k); /* also: the file's tail is as it was */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(c22_killed_while_writing),
	};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
