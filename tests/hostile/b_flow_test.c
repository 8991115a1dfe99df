/*
 * Hostile cases B18-B27: the split virtqueue over many requests: heads given
 * twice, interrupts wanted or not, a guest that adds while we drain.  Counts
 * are larger with HUTCH_LONG.  B26 is in c_fault_test.c.
 */
#include "disk.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
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

static unsigned times(unsigned n, unsigned n_long)
{
	return getenv("HUTCH_LONG") ? n_long : n;
}

static void again(void)
{
	guest_reset(g);
	guest_free_all(g);
	guest_start(g);
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

static void b18_same_head_twice(void **state)
{
	(void)state;
	three(NULL);
	guest_avail(g, 0, 0);
	guest_avail(g, 0, 0);
	guest_kick(g, 0);
	assert_broken(g); /* the first was still with us */
	again();
	/* One after the other is sound. */
	three(NULL);
	for (int i = 0; i < 300; i++) {
		uint32_t id;

		guest_avail(g, 0, 0);
		guest_kick(g, 0);
		assert_true(guest_used(g, 0, &id, NULL));
		assert_int_equal(id, 0);
	}
	assert_live(g);
}

static void b19_all_entries_same_head(void **state)
{
	(void)state;
	three(NULL);
	for (int i = 0; i < 128; i++)
		guest_avail(g, 0, 0);
	guest_kick(g, 0);
	assert_broken(g);
	assert_true(guest_used_idx(g, 0) <= 1);
}

static void b20_no_interrupt_flag(void **state)
{
	static const uint16_t off = 1, on = 0;
	unsigned n = 0;

	(void)state;
	guest_reset(g);
	g->drop_features = VIRTIO_F_EVENT_IDX;
	guest_start(g);
	for (int i = 0; i < 100; i++) {
		bool is_off = i % 3 == 0;

		guest_put(g, g->q[0].avail, is_off ? &off : &on, 2);
		g->n_irqs = 0;
		assert_int_equal(read_one(NULL), 0);
		guest_free_all(g);
		assert_int_equal(g->n_irqs, is_off ? 0 : 1);
		n += g->n_irqs;
	}
	assert_int_equal(n, 66);
	g->drop_features = 0;
}

static void b21_event_idx(void **state)
{
	(void)state;
	/* One request at a time over the wrap at 65536. */
	for (uint32_t i = 0; i < 66000; i++) {
		bool wants = i % 7 == 0;

		/* "tell me when used.idx passes i", or something far ahead. */
		guest_used_event(g, 0, (uint16_t)(wants ? i : i + 0x4000));
		g->n_irqs = 0;
		three(NULL);
		guest_avail(g, 0, 0);
		guest_kick(g, 0);
		assert_true(guest_used_now(g, 0, NULL, NULL));
		/* The very first one is always told. */
		assert_int_equal(g->n_irqs, wants || i == 0 ? 1 : 0);
		assert_int_equal(guest_avail_event(g, 0), (uint16_t)(i + 1));
		guest_free_all(g);
	}
	/* A batch across the event: one interrupt. */
	for (int odd = 0; odd < 3; odd++) {
		static const uint16_t ahead[] = {0, 3, 9};

		guest_used_event(g, 0,
				 (uint16_t)(g->q[0].used_seen + ahead[odd]));
		g->n_irqs = 0;
		for (uint16_t i = 0; i < 8; i++)
			disk_put(&disk, &(struct blk_req){.type = 4});
		guest_kick(g, 0);
		for (int i = 0; i < 8; i++)
			assert_true(guest_used(g, 0, NULL, NULL));
		assert_int_equal(g->n_irqs, ahead[odd] < 8 ? 1 : 0);
	}
	assert_live(g);
}

static void b22_guest_writes_used_ring(void **state)
{
	uint32_t id, len;

	(void)state;
	for (uint16_t i = 0; i < 50; i++) {
		guest_fill(g, g->q[0].used, 0xff, 4 + 8 * 128);
		three(NULL);
		guest_avail(g, 0, 0);
		guest_kick(g, 0);
		assert_int_equal(guest_used_idx(g, 0), i + 1);
		g->q[0].used_seen = i;
		assert_true(guest_used_now(g, 0, &id, &len));
		assert_int_equal(id, 0);
		assert_int_equal(len, 513);
		guest_free_all(g);
	}
}

static atomic_bool adder_stop;

/* A second CPU that adds FLUSH requests as fast as it can. */
static void *adder(void *arg)
{
	uint16_t idx = 0, used, head;

	(void)arg;
	while (!atomic_load(&adder_stop)) {
		mem_load16_acquire(&disk.mem, g->q[0].used + 2, &used);
		if ((uint16_t)(idx - used) >= 64)
			continue;
		head = (uint16_t)(idx % 64 * 2);
		mem_write(&disk.mem, g->q[0].avail + 4 + 2 * (idx % 128), &head,
			  2);
		mem_store16_release(&disk.mem, g->q[0].avail + 2, ++idx);
	}
	return NULL;
}

static void b23_guest_adds_while_draining(void **state)
{
	gpa_t hdr = disk_hdr(&disk, 8, 0), status = disk_status_at(&disk);
	uint16_t before;
	pthread_t t;

	(void)state;
	for (uint16_t i = 0; i < 128; i += 2) {
		guest_desc(g, 0, i, hdr, 16, F_NEXT, (uint16_t)(i + 1));
		guest_desc(g, 0, (uint16_t)(i + 1), status, 1, F_WRITE, 0);
	}
	atomic_store(&adder_stop, false);
	assert_int_equal(pthread_create(&t, NULL, adder, NULL), 0);
	guest_wr(g, R_NOTIFY, 0);
	for (int i = 0; i < 2000; i++) {
		before = g->d->vq[0].used_idx;
		io_step(disk.io); /* one turn: bounded whatever is added */
		assert_in_range((uint16_t)(g->d->vq[0].used_idx - before), 0,
				128);
	}
	atomic_store(&adder_stop, true);
	pthread_join(t, NULL);
	assert_live(g);
	for (int i = 0; i < 10; i++)
		io_step(disk.io);
	g->q[0].used_seen = guest_used_idx(g, 0);
}

static void b24_full_and_empty(void **state)
{
	const unsigned rounds = times(2000, 16000); /* x 64 requests */
	gpa_t hdr = disk_hdr(&disk, 8, 0), at = guest_alloc(g, 64 * 32);
	static uint8_t seen[128];
	uint8_t got[32];

	(void)state;
	for (uint16_t i = 0; i < 64; i++) {
		guest_desc(g, 0, (uint16_t)(2 * i), hdr, 16, F_NEXT,
			   (uint16_t)(2 * i + 1));
		guest_desc(g, 0, (uint16_t)(2 * i + 1), at + 32u * i, 21,
			   F_WRITE, 0);
	}
	for (unsigned r = 0; r < rounds; r++) {
		memset(seen, 0, sizeof(seen));
		guest_fill(g, at, 0xee, 64 * 32);
		for (uint16_t i = 0; i < 64; i++)
			guest_avail(g, 0, (uint16_t)(2 * ((i * 37u) % 64)));
		guest_kick(g, 0);
		for (int i = 0; i < 64; i++) {
			uint32_t id = 999, len = 0;

			assert_true(guest_used_now(g, 0, &id, &len));
			assert_true(id < 128 && id % 2 == 0);
			assert_int_equal(seen[id]++, 0);
			assert_int_equal(len, 21);
			guest_get(g, at + 16u * id, got, 32);
			assert_memory_equal(got, "hutch-test", 10);
			assert_int_equal(got[20], 0);
			assert_int_equal(got[21], 0xee);
		}
		assert_false(guest_used_now(g, 0, NULL, NULL));
	}
	assert_live(g);
}

static uint64_t seed_next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void b25_random_tables(void **state)
{
	const unsigned seeds = times(20000, 1000000);
	uint64_t s = 0x9e3779b97f4a7c15;
	uint64_t table[128 * 2];

	(void)state;
	for (unsigned n = 0; n < seeds; n++) {
		for (unsigned i = 0; i < 256; i++)
			table[i] = seed_next(&s);
		if (n % 2) /* half of them: addresses and links in range */
			for (unsigned i = 0; i < 256; i += 2) {
				table[i] %= GUEST_CANARY_AT - 4096;
				table[i + 1] &= 0x007f0007000007ff;
			}
		guest_put(g, g->q[0].desc, table, sizeof(table));
		for (unsigned i = 0; i < 4; i++)
			guest_avail(g, 0, (uint16_t)(seed_next(&s) % 130));
		guest_wr(g, R_NOTIFY, 0);
		io_step(disk.io);
		io_step(disk.io);
		if (n % 64 == 0)
			guest_canary_check(&disk.mem);
		if (guest_status(g) != S_LIVE)
			again();
	}
	again();
}

static void b27_used_len_and_tail(void **state)
{
	gpa_t data = guest_alloc(g, 2048), status;
	uint8_t got[2048];
	uint32_t len;

	(void)state;
	guest_fill(g, data, 0xee, 2048);
	/* Fails: nothing but the status is written. */
	assert_int_equal(disk_do(&disk,
				 &(struct blk_req){.sector = 1ull << 40,
						   .data = data,
						   .len = 1024,
						   .is_out = true},
				 &len),
			 1);
	assert_int_equal(len, 1);
	guest_get(g, data, got, 2048);
	for (unsigned i = 0; i < 2048; i++)
		assert_int_equal(got[i], 0xee);
	/* Identity into a long buffer: 20 bytes, then as it was. */
	status = disk_status_at(&disk);
	guest_chain(g, 0,
		    (struct gbuf[]){{disk_hdr(&disk, 8, 0), 16, false},
				    {data, 1024, true},
				    {status, 1, true}},
		    3);
	assert_int_equal(disk_finish(&disk, status, &len), 0);
	assert_int_equal(len, 21);
	guest_get(g, data, got, 2048);
	for (unsigned i = 20; i < 2048; i++)
		assert_int_equal(got[i], 0xee);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(b18_same_head_twice),
		CASE(b19_all_entries_same_head),
		CASE(b20_no_interrupt_flag),
		CASE(b21_event_idx),
		CASE(b22_guest_writes_used_ring),
		CASE(b23_guest_adds_while_draining),
		CASE(b24_full_and_empty),
		CASE(b25_random_tables),
		CASE(b27_used_len_and_tail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
