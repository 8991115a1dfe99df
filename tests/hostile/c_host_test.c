/*
 * Hostile cases C10, C11, C14, C16, C18, C19: the host's side of a disk: the
 * file is cut, the space ends, foreign formats, pages that change in flight.
 * Once with io_uring and once without.
 */
#include "disk.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OK, IOERR, UNSUPP };
enum { T_IN = 0, T_OUT = 1, T_FLUSH = 4, T_ID = 8, T_DISCARD = 11, T_WZ = 13 };

static struct disk disk;
static struct guest *const g = &disk.g;
static bool use_ring;

static int up_with(struct disk_options o)
{
	o.use_ring = use_ring;
	disk_up(&disk, &o);
	guest_start(g);
	return 0;
}

static int up(void **state)
{
	(void)state;
	return up_with((struct disk_options){0});
}

static int up_capped(void **state)
{
	(void)state;
	return up_with((struct disk_options){.bytes_written_max = DISK_BYTES});
}

static int down(void **state)
{
	(void)state;
	disk_down(&disk);
	return 0;
}

static uint8_t rw(uint32_t type, uint64_t sector, gpa_t data, uint32_t len,
		  uint32_t *ret_len)
{
	return disk_do(
		&disk,
		&(struct blk_req){.type = type,
				  .sector = sector,
				  .data = data,
				  .len = len,
				  .is_out = type == T_IN || type == T_ID},
		ret_len);
}

static struct blk_stats stats(void)
{
	struct blk_stats s;

	blk_stats(disk.blk, &s);
	return s;
}

struct seg {
	uint64_t sector;
	uint32_t n, flags;
};

static uint8_t ranges(uint32_t type, const struct seg *s, uint32_t bytes)
{
	gpa_t at = guest_alloc(g, bytes + 16);
	uint32_t len;
	uint8_t r;

	guest_put(g, at, s, bytes);
	r = rw(type, 0, at, bytes, &len);
	assert_int_equal(len, 1);
	return r;
}

static void c10_file_truncated(void **state)
{
	gpa_t data = guest_alloc(g, 4096);
	uint8_t s[512];
	uint32_t len;

	(void)state;
	assert_int_equal(ftruncate(disk.fd, 10 * 512 + 100), 0);
	assert_int_equal(rw(T_IN, 9, data, 512, &len), OK);
	assert_int_equal(rw(T_IN, 10, data, 512, &len), IOERR);
	assert_int_equal(len, 1);
	assert_int_equal(rw(T_IN, 9, data, 4096, &len), IOERR);
	assert_int_equal(rw(T_IN, 1000, data, 512, &len), IOERR);
	/* As it was, for the invariants. */
	memset(s, 0x7d, sizeof(s));
	assert_int_equal(ftruncate(disk.fd, DISK_BYTES), 0);
	for (off_t at = DISK_BYTES; at < DISK_BYTES + DISK_TAIL_BYTES;
	     at += 512)
		assert_int_equal(pwrite(disk.fd, s, 512, at), 512);
}

static void c11_allocation_cap(void **state)
{
	gpa_t data = guest_alloc(g, 4096);
	uint32_t len;

	(void)state;
	/* The file is full up to its tail, so the cap is passed already:
	 * overwriting goes on, new blocks do not. */
	assert_int_equal(rw(T_OUT, 0, data, 4096, &len), OK);
	assert_int_equal(stats().cap_refused, 0);
	assert_int_equal(ranges(T_DISCARD, &(struct seg){256, 64, 0}, 16), OK);
	assert_int_equal(rw(T_OUT, 256, data, 4096, &len), IOERR);
	assert_int_equal(len, 1);
	assert_int_equal(stats().cap_refused, 1);
	assert_int_equal(ranges(T_DISCARD, &(struct seg){1024, 1024, 0}, 16),
			 OK);
	assert_int_equal(rw(T_OUT, 256, data, 4096, &len), OK);
	assert_int_equal(stats().cap_refused, 1);
}

/* The guest's disk is /dev/full for a while: no place for a byte, and nothing
 * that could be synced. */
static void with_dev_full(void (*fn)(void))
{
	struct blk_config cfg = {.bytes = 1 << 20};
	struct virtio_dev *was = g->d;
	struct blk *was_blk = disk.blk, *full;
	struct guest saved;

	guest_reset(g);
	saved = disk.g;
	cfg.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	assert_true(cfg.fd >= 0);
	assert_int_equal(blk_create(&full, &disk.mem, disk.io, &cfg), 0);
	assert_int_equal(io_device_add(disk.io, blk_dev(full)), 0);
	guest_init(g, &disk.mem, disk.io, blk_dev(full));
	disk.blk = full;
	guest_start(g);
	fn();
	assert_live(g);
	guest_reset(g);
	blk_destroy(full);
	close(cfg.fd);
	disk.g = saved;
	disk.blk = was_blk;
	guest_init(g, &disk.mem, disk.io, was);
}

static void no_space_left(void)
{
	gpa_t data = guest_alloc(g, 512);
	uint32_t len;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(rw(T_OUT, 0, data, 512, &len), IOERR);
		assert_int_equal(len, 1);
	}
	assert_int_equal(stats().errors, 3);
}

static void c11_no_space_left(void **state)
{
	(void)state;
	with_dev_full(no_space_left);
}

static void flush_fails(void)
{
	uint32_t len;

	assert_int_equal(rw(T_FLUSH, 0, 0, 0, &len), IOERR);
	assert_int_equal(len, 1);
	assert_int_equal(stats().sync_failed, 1);
}

/* A FLUSH is the file's own sync and answers what that says.  What it must
 * cover is in c_cut_test.c. */
static void c14_flush_syncs_the_file(void **state)
{
	uint32_t len;

	(void)state;
	assert_int_equal(rw(T_FLUSH, 0, 0, 0, &len), OK);
	with_dev_full(flush_fails);
}

static void c16_foreign_header_is_data(void **state)
{
	static const char qcow[16] = "QFI\xfb\0\0\0\3\0\0\0\0\0\0\0\xff";
	gpa_t data = guest_alloc(g, 512);
	uint64_t capacity = 0;
	uint8_t buf[8], got[16];
	uint32_t len;

	(void)state;
	guest_put(g, data, qcow, sizeof(qcow));
	assert_int_equal(rw(T_OUT, 0, data, 512, &len), OK);
	guest_reset(g);
	guest_start(g);
	virtio_mmio_read(g->d, R_CFG, buf, 8);
	memcpy(&capacity, buf, 8);
	assert_int_equal(capacity, DISK_SECTORS);
	guest_fill(g, data, 0, 512);
	assert_int_equal(rw(T_IN, 0, data, 512, &len), OK);
	guest_get(g, data, got, 16);
	assert_memory_equal(got, qcow, 16);
}

static atomic_bool flip_stop;

/* A guest may race with us as it likes; for ThreadSanitizer only our own
 * races count. */
__attribute__((no_sanitize("thread"))) static void *flipper(void *arg)
{
	volatile uint8_t *p = arg;
	uint64_t desc_at = g->q[0].desc;
	volatile uint8_t *desc = mem_span(&disk.mem, desc_at, 16 * 8);

	for (unsigned i = 0; !atomic_load(&flip_stop); i++) {
		p[i % 65536] ^= 0xff;
		desc[i % 128] ^= (uint8_t)(1u << i % 8);
		desc[i % 128] ^= (uint8_t)(1u << i % 8);
		if (i % 4096 == 0)
			madvise(mem_span(&disk.mem, 0x100000, 65536), 65536,
				MADV_DONTNEED);
	}
	return NULL;
}

/* C18 a second CPU changes buffer and descriptors while the kernel moves the
 * data; C19 the host drops the pages meanwhile. */
static void c18_c19_buffer_changes_in_flight(void **state)
{
	pthread_t t;
	gpa_t data = 0x100000;

	(void)state;
	atomic_store(&flip_stop, false);
	assert_int_equal(pthread_create(&t, NULL, flipper,
					mem_span(&disk.mem, data, 65536)),
			 0);
	for (int i = 0; i < 3000; i++) {
		guest_free_all(g);
		disk_put(&disk, &(struct blk_req){.type = i & 1 ? T_OUT : T_IN,
						  .sector = 8,
						  .data = data,
						  .len = 65536,
						  .is_out = !(i & 1)});
		guest_kick(g, 0);
		for (int j = 0; j < 3; j++)
			io_step(disk.io);
		if (guest_status(g) != S_LIVE) {
			guest_reset_with_io(g);
			guest_start(g);
		}
	}
	atomic_store(&flip_stop, true);
	pthread_join(t, NULL);
	guest_reset_with_io(g);
	guest_start(g);
}
#define CASE(f)		cmocka_unit_test_setup_teardown(f, up, down)
#define CASE_WITH(f, u) cmocka_unit_test_setup_teardown(f, u, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(c10_file_truncated),
		CASE_WITH(c11_allocation_cap, up_capped),
		CASE(c11_no_space_left),
		CASE(c14_flush_syncs_the_file),
		CASE(c16_foreign_header_is_data),
		CASE(c18_c19_buffer_changes_in_flight),
	};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
