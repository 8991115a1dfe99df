/*
 * Hostile cases B1-B17: one descriptor chain of the split virtqueue, driven
 * through virtio-blk (without io_uring: same code above io, and every
 * completion comes at once).  B18-B27 are in b_flow_test.c, B11 in
 * vmm/virtio/queue_test.c.
 */
#include "disk.h"
#include <string.h>

static struct disk disk;
static struct guest *const g = &disk.g;

static int up(void **state)
{
	(void)state;
	disk_up(&disk, &(struct disk_options){0});
	guest_start(g);
	return 0;
}

static int down(void **state)
{
	(void)state;
	disk_down(&disk);
	return 0;
}

static void again(void)
{
	guest_reset(g);
	guest_free_all(g);
	guest_start(g);
}

/* Kick: the device must stop; nothing was completed. */
static void kick_breaks(void)
{
	uint16_t used = guest_used_idx(g, 0);

	guest_kick(g, 0);
	assert_broken(g);
	assert_int_equal(guest_used_idx(g, 0), used);
	assert_true(guest_rd(g, R_ISR) & VIRTIO_ISR_CONFIG);
	guest_kick(g, 0);
	guest_run(g);
	assert_int_equal(g->n_broken, 1); /* not read again */
	again();
}

static uint8_t read_one(uint32_t *len)
{
	return disk_do(&disk,
		       &(struct blk_req){.type = 0,
					 .sector = 2,
					 .data = guest_alloc(g, 512),
					 .len = 512,
					 .is_out = true},
		       len);
}

/* Descriptors 0..2: header, 512 bytes of data, status. */
static void three(gpa_t *data)
{
	gpa_t d = guest_alloc(g, 512);

	guest_desc(g, 0, 0, disk_hdr(&disk, 0, 2), 16, F_NEXT, 1);
	guest_desc(g, 0, 1, d, 512, F_NEXT | F_WRITE, 2);
	guest_desc(g, 0, 2, disk_status_at(&disk), 1, F_WRITE, 0);
	if (data)
		*data = d;
}

static void b1_avail_idx_jumps_forward(void **state)
{
	static const uint16_t jump[] = {129, 256, 4096, 32768, 65535};

	(void)state;
	for (unsigned i = 0; i < sizeof(jump) / sizeof(jump[0]); i++) {
		three(NULL);
		guest_avail_idx(g, 0, jump[i]);
		kick_breaks();
	}
	/* Also relative to where the queue stands by now. */
	for (int i = 0; i < 5; i++)
		assert_int_equal(read_one(NULL), 0);
	guest_avail_idx(g, 0, 5 + 129);
	kick_breaks();
}

static void b2_avail_idx_goes_back(void **state)
{
	(void)state;
	for (uint16_t back = 1; back <= 100; back += 99) {
		for (int i = 0; i < 120; i++) {
			assert_int_equal(read_one(NULL), 0);
			guest_free_all(g);
		}
		guest_avail_idx(g, 0, (uint16_t)(120 - back));
		kick_breaks();
	}
}

static void b3_head_out_of_range(void **state)
{
	static const uint16_t heads[] = {128, 129, 255, 0x8000, 0xffff};

	(void)state;
	for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		three(NULL);
		guest_avail(g, 0, heads[i]);
		kick_breaks();
	}
}

static void b4_next_out_of_range(void **state)
{
	static const uint16_t next[] = {128, 200, 0x7fff, 0xffff};

	(void)state;
	for (unsigned i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
		three(NULL);
		guest_desc(g, 0, 0, disk_hdr(&disk, 0, 2), 16, F_NEXT, next[i]);
		guest_avail(g, 0, 0);
		kick_breaks();
		/* Without NEXT the field means nothing. */
		three(NULL);
		guest_desc(g, 0, 2, disk_status_at(&disk), 1, F_WRITE, next[i]);
		guest_avail(g, 0, 0);
		guest_kick(g, 0);
		assert_live(g);
		again();
	}
}

static void b5_chain_loop(void **state)
{
	(void)state;
	/* Itself, a cycle of two, the whole table. */
	for (uint16_t cycle = 1; cycle <= 128;
	     cycle = cycle == 2 ? 128 : cycle + 1) {
		for (uint16_t i = 0; i < cycle; i++)
			guest_desc(g, 0, i, 0x1000, 16, F_NEXT,
				   (uint16_t)((i + 1) % cycle));
		guest_avail(g, 0, 0);
		kick_breaks();
		for (uint16_t i = 0; i < cycle; i++)
			guest_desc(g, 0, i, 0x1000, 0, F_NEXT | F_WRITE,
				   (uint16_t)((i + 1) % cycle));
		guest_avail(g, 0, 0);
		kick_breaks();
	}
}

static void b6_chain_longer_than_queue(void **state)
{
	(void)state;
	/* 100 descriptors, then back into the middle: never an end. */
	for (uint16_t i = 0; i < 100; i++)
		guest_desc(g, 0, i, 0x1000, 1, F_NEXT,
			   i == 99 ? 50 : (uint16_t)(i + 1));
	guest_avail(g, 0, 0);
	kick_breaks();
}

static void b7_length_zero(void **state)
{
	gpa_t hdr = disk_hdr(&disk, 0, 2), data = guest_alloc(g, 512);
	gpa_t status = disk_status_at(&disk);
	uint32_t len;

	(void)state;
	guest_chain(g, 0,
		    (struct gbuf[]){{hdr, 0, false},
				    {hdr, 16, false},
				    {data, 0, true},
				    {data, 512, true},
				    {data, 0, true},
				    {status, 1, true},
				    {status, 0, true}},
		    7);
	assert_int_equal(disk_finish(&disk, status, &len), 0);
	assert_int_equal(len, 513);
	for (uint16_t i = 0; i < 128; i++) /* nothing but empty ones */
		guest_desc(g, 0, i, 0x1000, 0, i < 127 ? F_NEXT : 0,
			   (uint16_t)(i + 1));
	guest_avail(g, 0, 0);
	kick_breaks(); /* no place for a status */
}

static void b8_lengths_huge(void **state)
{
	static const uint32_t lens[] = {0xffffffff, 0x80000000,
					GUEST_RAM_BYTES + 1, 0xfffff000};

	(void)state;
	for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		three(NULL);
		guest_desc(g, 0, 1, 0, lens[i], F_NEXT | F_WRITE, 2);
		guest_avail(g, 0, 0);
		kick_breaks();
	}
}

static void b9_address_wraps(void **state)
{
	static const struct {
		gpa_t at;
		uint32_t len;
	} bad[] = {
		{UINT64_MAX, 1},       {UINT64_MAX, 2},
		{UINT64_MAX - 15, 16}, {UINT64_MAX - 4095, 0xffffffff},
		{1ull << 63, 512},     {UINT64_MAX - 511, 513},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		three(NULL);
		guest_desc(g, 0, 1, bad[i].at, bad[i].len, F_NEXT | F_WRITE, 2);
		guest_avail(g, 0, 0);
		kick_breaks();
	}
}

static void b10_end_past_ram(void **state)
{
	uint32_t len;

	(void)state;
	three(NULL);
	guest_desc(g, 0, 1, GUEST_RAM_BYTES - 511, 512, F_NEXT | F_WRITE, 2);
	guest_avail(g, 0, 0);
	kick_breaks();
	three(NULL);
	guest_desc(g, 0, 1, GUEST_RAM_BYTES, 512, F_NEXT | F_WRITE, 2);
	guest_avail(g, 0, 0);
	kick_breaks();
	/* Up to the last byte is sound (the used ring of this queue lies
	 * there and is overwritten: the guest's own harm). */
	three(NULL);
	guest_desc(g, 0, 1, GUEST_RAM_BYTES - 512, 512, F_NEXT | F_WRITE, 2);
	guest_avail(g, 0, 0);
	guest_kick(g, 0);
	assert_live(g);
	again();
	assert_int_equal(read_one(&len), 0);
}

static void b12_address_in_device_window(void **state)
{
	static const gpa_t at[] = {0xd0000000, 0xd0000050, 0xd0001000,
				   0xfec00000, 0xfee00000};

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		for (uint16_t d = 0; d < 3; d++) {
			three(NULL);
			guest_desc(g, 0, d, at[i], d == 2 ? 1 : 16,
				   d == 0   ? F_NEXT
				   : d == 1 ? F_NEXT | F_WRITE
					    : F_WRITE,
				   (uint16_t)(d + 1));
			guest_avail(g, 0, 0);
			kick_breaks();
		}
	}
}

static void b13_address_is_a_ring(void **state)
{
	const gpa_t at[] = {g->q[0].desc, g->q[0].avail, g->q[0].used};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		for (int k = 0; k < 8; k++) {
			three(NULL);
			guest_desc(g, 0, 1, at[i], 512, F_NEXT | F_WRITE, 2);
			guest_avail(g, 0, 0);
			guest_kick(g, 0);
		}
		guest_run(g);
		again();
	}
}

static void b14_directions(void **state)
{
	gpa_t data = guest_alloc(g, 512);
	uint8_t before[512], after[512];

	(void)state;
	/* Never read from write-only, never write to read-only: a read into a
	 * readable buffer leaves it as it was. */
	guest_fill(g, data, 0x3c, 512);
	guest_get(g, data, before, 512);
	guest_chain(g, 0,
		    (struct gbuf[]){{disk_hdr(&disk, 0, 2), 16, false},
				    {data, 512, false},
				    {disk_status_at(&disk), 1, true}},
		    3);
	guest_kick(g, 0);
	assert_live(g);
	guest_get(g, data, after, 512);
	assert_memory_equal(before, after, 512);
}

static void b15_readable_after_writable(void **state)
{
	(void)state;
	three(NULL);
	guest_desc(g, 0, 0, 0x1000, 16, F_NEXT | F_WRITE, 1);
	guest_desc(g, 0, 1, 0x1000, 16, F_NEXT, 2);
	guest_avail(g, 0, 0);
	kick_breaks();
	three(NULL);
	guest_desc(g, 0, 2, 0x1000, 16, 0, 0);
	guest_avail(g, 0, 0);
	kick_breaks();
}

static void b16_indirect_not_offered(void **state)
{
	static const uint16_t flags[] = {F_INDIRECT, F_INDIRECT | F_NEXT,
					 F_INDIRECT | F_WRITE,
					 F_INDIRECT | F_WRITE | F_NEXT};

	(void)state;
	assert_false(g->d->features & VIRTIO_F_INDIRECT_DESC);
	for (unsigned i = 0; i < 4; i++) {
		for (uint16_t d = 0; d < 3; d++) {
			three(NULL);
			guest_desc(g, 0, d, 0x1000, 48, flags[i],
				   (uint16_t)(d + 1));
			guest_avail(g, 0, 0);
			kick_breaks();
		}
	}
}

static void b17_flag_bits_undefined(void **state)
{
	uint32_t len;
	gpa_t status;

	(void)state;
	three(NULL);
	status = disk_status_at(&disk);
	guest_desc(g, 0, 0, disk_hdr(&disk, 0, 2), 16, 0xfff8 | F_NEXT, 1);
	guest_desc(g, 0, 2, status, 1, 0xfff8 | F_WRITE, 0xffff);
	guest_avail(g, 0, 0);
	assert_int_equal(disk_finish(&disk, status, &len), 0);
	assert_int_equal(len, 513);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(b1_avail_idx_jumps_forward),
		CASE(b2_avail_idx_goes_back),
		CASE(b3_head_out_of_range),
		CASE(b4_next_out_of_range),
		CASE(b5_chain_loop),
		CASE(b6_chain_longer_than_queue),
		CASE(b7_length_zero),
		CASE(b8_lengths_huge),
		CASE(b9_address_wraps),
		CASE(b10_end_past_ram),
		CASE(b12_address_in_device_window),
		CASE(b13_address_is_a_ring),
		CASE(b14_directions),
		CASE(b15_readable_after_writable),
		CASE(b16_indirect_not_offered),
		CASE(b17_flag_bits_undefined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
