/*
 * Hostile cases C1-C9, C20, C21: what a guest may ask of virtio-blk, over a
 * real file, once with io_uring and once without.  What the host does to the
 * file meanwhile is in c_host_test.c, faults of I/O in c_fault_test.c.
 */
#include "disk.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

static int up_ro(void **state)
{
	(void)state;
	return up_with((struct disk_options){.is_read_only = true});
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

static void c0_read_and_write(void **state)
{
	gpa_t a = guest_alloc(g, 8192), b = guest_alloc(g, 8192);
	uint8_t want[8192], got[8192];
	uint32_t len;

	(void)state;
	for (unsigned i = 0; i < sizeof(want); i++)
		want[i] = (uint8_t)(i * 31);
	guest_put(g, a, want, sizeof(want));
	assert_int_equal(rw(T_OUT, 7, a, 8192, &len), OK);
	assert_int_equal(len, 1);
	assert_int_equal(rw(T_IN, 7, b, 8192, &len), OK);
	assert_int_equal(len, 8193);
	guest_get(g, b, got, sizeof(got));
	assert_memory_equal(got, want, sizeof(got));
	assert_int_equal(pread(disk.fd, got, 8192, 7 * 512), 8192);
	assert_memory_equal(got, want, sizeof(got));
	assert_int_equal(rw(T_FLUSH, 0, 0, 0, &len), OK);
	assert_int_equal(stats().read_bytes, 8192);
	assert_int_equal(stats().write_bytes, 8192);
	assert_int_equal(stats().flushes, 1);
}

static void c1_sector_out_of_range(void **state)
{
	static const struct {
		uint64_t sector;
		uint32_t len;
	} bad[] = {
		{DISK_SECTORS, 512},	   {DISK_SECTORS - 1, 1024},
		{1ull << 55, 512},	   {UINT64_MAX, 512},
		{UINT64_MAX - 1, 1024},	   {(1ull << 55) - 1, 1024},
		{UINT64_MAX / 512, 512},   {UINT64_MAX / 512 + 1, 512},
		{DISK_SECTORS + 1, 65536},
	};
	gpa_t data = guest_alloc(g, 65536);
	uint32_t len;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(
			rw(T_IN, bad[i].sector, data, bad[i].len, &len), IOERR);
		assert_int_equal(len, 1);
		assert_int_equal(
			rw(T_OUT, bad[i].sector, data, bad[i].len, &len),
			IOERR);
		assert_int_equal(len, 1);
	}
	assert_int_equal(rw(T_IN, DISK_SECTORS - 1, data, 512, &len), OK);
	assert_int_equal(stats().reads + stats().writes, 1);
}

static void c2_length_not_sectors(void **state)
{
	static const uint32_t lens[] = {1, 511, 513, 1023, 4097};
	gpa_t data = guest_alloc(g, 8192);
	uint32_t len;

	(void)state;
	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		assert_int_equal(rw(T_IN, 0, data, lens[i], &len), IOERR);
		assert_int_equal(len, 1);
		assert_int_equal(rw(T_OUT, 0, data, lens[i], &len), IOERR);
	}
	assert_int_equal(stats().reads + stats().writes, 0);
}

/* Header in `n` pieces, then 512 bytes of data to read. */
static uint8_t split_header(unsigned n, uint32_t *len)
{
	gpa_t hdr = disk_hdr(&disk, T_IN, 3), data = guest_alloc(g, 512);
	gpa_t status = disk_status_at(&disk);
	struct gbuf b[18];

	for (unsigned i = 0; i < n; i++) {
		uint32_t from = 16 * i / n, to = 16 * (i + 1) / n;

		b[i] = (struct gbuf){hdr + from, to - from, false};
	}
	b[n] = (struct gbuf){data, 512, true};
	b[n + 1] = (struct gbuf){status, 1, true};
	guest_chain(g, 0, b, n + 2);
	return disk_finish(&disk, status, len);
}

static void c3_header_shapes(void **state)
{
	gpa_t hdr, data, status;
	uint32_t len;

	(void)state;
	for (unsigned n = 1; n <= 16; n++) {
		assert_int_equal(split_header(n, &len), OK);
		assert_int_equal(len, 513);
		guest_free_all(g);
	}
	for (uint32_t short_len = 0; short_len < 16; short_len++) {
		hdr = disk_hdr(&disk, T_IN, 3);
		data = guest_alloc(g, 512);
		status = disk_status_at(&disk);
		guest_chain(g, 0,
			    (struct gbuf[]){{hdr, short_len, false},
					    {data, 512, true},
					    {status, 1, true}},
			    3);
		assert_int_equal(disk_finish(&disk, status, &len), IOERR);
		assert_int_equal(len, 1);
	}
	/* Data behind the header of a read; header and data in one buffer. */
	hdr = disk_hdr(&disk, T_IN, 3);
	guest_alloc(g, 512);
	status = disk_status_at(&disk);
	guest_chain(g, 0,
		    (struct gbuf[]){{hdr, 16 + 512, false}, {status, 1, true}},
		    2);
	assert_int_equal(disk_finish(&disk, status, &len), IOERR);
	hdr = disk_hdr(&disk, T_OUT, 3);
	guest_alloc(g, 512);
	guest_chain(g, 0,
		    (struct gbuf[]){{hdr, 16 + 512, false}, {status, 1, true}},
		    2);
	assert_int_equal(disk_finish(&disk, status, &len), OK);
}

static void c4_directions_and_status(void **state)
{
	gpa_t hdr = disk_hdr(&disk, T_IN, 0), data = guest_alloc(g, 8192);
	gpa_t status = disk_status_at(&disk);
	uint32_t len;
	uint8_t byte;

	(void)state;
	/* Header writable: nothing to read a request from. */
	guest_chain(g, 0, (struct gbuf[]){{hdr, 16, true}, {status, 1, true}},
		    2);
	assert_int_equal(disk_finish(&disk, status, &len), IOERR);
	assert_int_equal(len, 1);
	/* Data of a read is readable, data of a write is writable. */
	guest_chain(g, 0,
		    (struct gbuf[]){{disk_hdr(&disk, T_IN, 0), 16, false},
				    {data, 512, false},
				    {status, 1, true}},
		    3);
	assert_int_equal(disk_finish(&disk, status, &len), IOERR);
	guest_chain(g, 0,
		    (struct gbuf[]){{disk_hdr(&disk, T_OUT, 0), 16, false},
				    {data, 512, true},
				    {status, 1, true}},
		    3);
	assert_int_equal(disk_finish(&disk, status, &len), IOERR);
	assert_int_equal(len, 1);
	/* Status 4096 long: one byte is written, the last. */
	guest_fill(g, data, 0xee, 8192);
	guest_chain(g, 0,
		    (struct gbuf[]){{disk_hdr(&disk, T_FLUSH, 0), 16, false},
				    {data, 4096, true}},
		    2);
	assert_int_equal(disk_finish(&disk, data + 4095, &len), IOERR);
	guest_get(g, data + 4094, &byte, 1);
	assert_int_equal(byte, 0xee);
	guest_get(g, data + 4096, &byte, 1);
	assert_int_equal(byte, 0xee);
	/* Status of length 0: the data's last byte is the last of all. */
	guest_chain(g, 0,
		    (struct gbuf[]){{disk_hdr(&disk, T_IN, 0), 16, false},
				    {data, 513, true},
				    {status, 0, true}},
		    3);
	assert_int_equal(disk_finish(&disk, data + 512, &len), OK);
	assert_int_equal(len, 513);
	assert_live(g);
}

static void broken_by(const struct gbuf *b, unsigned n)
{
	guest_chain(g, 0, b, n);
	guest_kick(g, 0);
	assert_broken(g);
	assert_int_equal(guest_used_idx(g, 0), 0);
	guest_reset(g);
	guest_start(g);
}

static void c4_no_place_for_status(void **state)
{
	gpa_t hdr = disk_hdr(&disk, T_OUT, 0), data = guest_alloc(g, 512);

	(void)state;
	broken_by((struct gbuf[]){{hdr, 16, false}, {data, 512, false}}, 2);
	broken_by((struct gbuf[]){{hdr, 16, false},
				  {data, 512, false},
				  {data, 1, false}},
		  3);
	broken_by((struct gbuf[]){{hdr, 16, false}, {data, 0, true}}, 2);
	broken_by((struct gbuf[]){{hdr, 0, false}}, 1);
}

static void c5_types_unknown(void **state)
{
	static const uint32_t types[] = {2,  3,	 5,   7,	  9,
					 10, 12, 14,  15,	  16,
					 17, 24, 255, 0x80000000, 0xffffffff};
	gpa_t data = guest_alloc(g, 512);
	uint32_t len;

	(void)state;
	for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		assert_int_equal(rw(types[i], 0, data, 512, &len), UNSUPP);
		assert_int_equal(len, 1);
	}
}

static void c6_data_missing_or_extra(void **state)
{
	gpa_t data = guest_alloc(g, 512);
	uint32_t len;

	(void)state;
	assert_int_equal(rw(T_IN, 0, 0, 0, &len), IOERR);
	assert_int_equal(rw(T_OUT, 0, 0, 0, &len), IOERR);
	assert_int_equal(rw(T_FLUSH, 0, data, 512, &len), IOERR);
	assert_int_equal(rw(T_FLUSH, UINT64_MAX, 0, 0, &len), OK);
}

static void c7_get_id(void **state)
{
	static const uint32_t lens[] = {0, 1, 19, 20, 21, 4096};
	static const char id[20] = "hutch-test";
	uint8_t got[4096];
	uint32_t len;

	(void)state;
	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		gpa_t data = guest_alloc(g, 4096);
		uint32_t n = lens[i] < 20 ? lens[i] : 20;

		guest_fill(g, data, 0xee, 4096);
		assert_int_equal(rw(T_ID, 0, data, lens[i], &len), OK);
		assert_int_equal(len, n + 1);
		guest_get(g, data, got, 4096);
		assert_memory_equal(got, id, n);
		for (uint32_t j = n; j < 4096; j++)
			assert_int_equal(got[j], 0xee);
	}
}

static void c8_read_only(void **state)
{
	gpa_t data = guest_alloc(g, 512), wz = guest_alloc(g, 16);
	struct {
		uint64_t sector;
		uint32_t n, flags;
	} seg = {0, 8, 0};
	char path[64];
	uint32_t len;

	(void)state;
	assert_true(g->d->features & 1u << 5);
	guest_put(g, wz, &seg, sizeof(seg));
	assert_int_equal(rw(T_OUT, 0, data, 512, &len), IOERR);
	assert_int_equal(len, 1);
	assert_int_equal(rw(T_DISCARD, 0, wz, 16, &len), UNSUPP);
	assert_int_equal(rw(T_WZ, 0, wz, 16, &len), UNSUPP);
	assert_int_equal(rw(T_IN, 0, data, 512, &len), OK);
	/* The descriptor could not write either. */
	assert_int_equal(fcntl(disk.dev_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(pwrite(disk.dev_fd, "x", 1, 0), -1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", disk.dev_fd);
	assert_true(access(path, R_OK) == 0);
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

static void c9_discard_and_zeroes(void **state)
{
	static const struct seg ok[] = {{8, 8, 0}, {100, 1, 0}, {8, 8, 0}};
	static const struct seg many[17] = {{0, 1, 0}};
	uint8_t s[512];

	(void)state;
	for (uint32_t type = T_DISCARD; type <= T_WZ; type += 2) {
#define ONE(...) ranges(type, &(struct seg){__VA_ARGS__}, 16)
		assert_int_equal(ranges(type, ok, 0), IOERR);
		assert_int_equal(ranges(type, ok, 15), IOERR);
		assert_int_equal(ranges(type, ok, 17), IOERR);
		assert_int_equal(ranges(type, many, sizeof(many)), IOERR);
		assert_int_equal(ONE(0, 0, 0), IOERR);
		assert_int_equal(ONE(0, UINT32_MAX, 0), IOERR);
		assert_int_equal(ONE(DISK_SECTORS, 1, 0), IOERR);
		assert_int_equal(ONE(DISK_SECTORS - 1, 2, 0), IOERR);
		assert_int_equal(ONE(UINT64_MAX, 1, 0), IOERR);
		assert_int_equal(ONE(UINT64_MAX / 512, 2, 0), IOERR);
		assert_int_equal(ONE(0, 1, 2), UNSUPP);
		assert_int_equal(ONE(0, 1, 0x80000000), UNSUPP);
		assert_int_equal(ONE(0, 1, 1), type == T_WZ ? OK : UNSUPP);
		/* Second of two is bad: nothing of the first is done. */
		assert_int_equal(
			ranges(type,
			       (struct seg[]){{50, 1, 0}, {DISK_SECTORS, 1, 0}},
			       32),
			IOERR);
		assert_int_equal(pread(disk.fd, s, 512, 50 * 512), 512);
		assert_int_not_equal(s[1], 0);
		assert_int_equal(ranges(type, ok, sizeof(ok)), OK);
#undef ONE
	}
	assert_int_equal(pread(disk.fd, s, 512, 12 * 512), 512);
	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(s[i], 0);
	/* Not taken by the driver: not there. */
	guest_reset(g);
	g->drop_features = 1u << 13 | 1u << 14;
	guest_start(g);
	assert_int_equal(ranges(T_DISCARD, ok, 16), UNSUPP);
	assert_int_equal(ranges(T_WZ, ok, 16), UNSUPP);
	g->drop_features = 0;
}

static void c20_segments_of_4_gib(void **state)
{
	gpa_t hdr = disk_hdr(&disk, T_IN, 0);
	gpa_t status = disk_status_at(&disk);

	(void)state;
	for (int shape = 0; shape < 2; shape++) {
		guest_desc(g, 0, 0, hdr, 16, F_NEXT, 1);
		for (uint16_t i = 1; i <= 126; i++)
			guest_desc(g, 0, i, shape ? 0 : 0x1000,
				   shape ? GUEST_RAM_BYTES : 0xffffffff,
				   F_NEXT | F_WRITE, (uint16_t)(i + 1));
		guest_desc(g, 0, 127, status, 1, F_WRITE, 0);
		guest_avail(g, 0, 0);
		guest_kick(g, 0);
		if (shape == 0) {
			assert_broken(g);
			guest_reset(g);
			guest_start(g);
		} else { /* 504 MiB of RAM: sound, but too long */
			uint32_t len;
			uint8_t s;

			assert_true(guest_used(g, 0, NULL, &len));
			guest_get(g, status, &s, 1);
			assert_int_equal(s, IOERR);
			assert_int_equal(len, 1);
		}
	}
}

static void c21_many_small_segments(void **state)
{
	gpa_t hdr, status, data = guest_alloc(g, 4096);
	struct gbuf b[128];
	uint32_t len;

	(void)state;
	for (unsigned n = 120; n <= 126; n++) {
		hdr = disk_hdr(&disk, T_IN, 5);
		status = disk_status_at(&disk);
		b[0] = (struct gbuf){hdr, 16, false};
		for (unsigned i = 0; i < n - 1; i++)
			b[1 + i] = (struct gbuf){data + i, 1, true};
		b[n] = (struct gbuf){data + n - 1, 512 - (n - 1), true};
		b[n + 1] = (struct gbuf){status, 1, true};
		guest_chain(g, 0, b, n + 2);
		assert_int_equal(disk_finish(&disk, status, &len), OK);
		assert_int_equal(len, 513);
	}
	/* One segment more than SEG_MAX (header and status in one). */
	hdr = disk_hdr(&disk, T_IN, 5);
	b[0] = (struct gbuf){hdr, 16, false};
	for (unsigned i = 0; i < 126; i++)
		b[1 + i] = (struct gbuf){data + i, 1, true};
	b[127] = (struct gbuf){data + 126, 512 - 126 + 1, true};
	guest_chain(g, 0, b, 128);
	assert_int_equal(disk_finish(&disk, data + 512, &len), IOERR);
	/* A segment longer than SIZE_MAX, a request longer than the cap. */
	assert_int_equal(rw(T_IN, 0, 0x1000, (1u << 20) + 512, &len), IOERR);
	assert_live(g);
}

#define CASE(f)		cmocka_unit_test_setup_teardown(f, up, down)
#define CASE_WITH(f, u) cmocka_unit_test_setup_teardown(f, u, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(c0_read_and_write),
		CASE(c1_sector_out_of_range),
		CASE(c2_length_not_sectors),
		CASE(c3_header_shapes),
		CASE(c4_directions_and_status),
		CASE(c4_no_place_for_status),
		CASE(c5_types_unknown),
		CASE(c6_data_missing_or_extra),
		CASE(c7_get_id),
		CASE_WITH(c8_read_only, up_ro),
		CASE(c9_discard_and_zeroes),
		CASE(c20_segments_of_4_gib),
		CASE(c21_many_small_segments),
	};
	int failed = cmocka_run_group_tests_name("ppoll", tests, NULL, NULL);

	use_ring = true;
	if (!ring_is_here())
		return failed;
	return failed +
	       cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);
}
