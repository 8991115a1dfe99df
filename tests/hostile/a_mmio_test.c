/*
 * Hostile cases A1-A23: registers, status, negotiation, reset.  Each test
 * carries its case's number; disk_down() checks the invariants after it.
 */
#include "disk.h"
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static struct disk disk;
static struct guest *const g = &disk.g;

static int up(void **state)
{
	(void)state;
	disk_up(&disk, &(struct disk_options){0});
	return 0;
}

static int down(void **state)
{
	(void)state;
	disk_down(&disk);
	return 0;
}

static void wr_n(uint32_t off, uint64_t v, uint32_t len)
{
	virtio_mmio_write(g->d, off, &v, len);
}

static void a1_narrow_reads(void **state)
{
	static const uint32_t offs[] = {R_MAGIC, R_VERSION, R_ID, R_STATUS};
	static const uint32_t lens[] = {1, 2, 3, 5, 8};
	uint8_t data[24];

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < 5; j++) {
			memset(data, 0x55, sizeof(data));
			virtio_mmio_read(g->d, offs[i], data + 8, lens[j]);
			for (unsigned b = 0; b < 8; b++) {
				assert_int_equal(data[b], 0x55);
				assert_int_equal(data[8 + b], 0);
				assert_int_equal(data[16 + b], 0x55);
			}
		}
	}
	assert_int_equal(guest_rd(g, R_MAGIC), 0x74726976);
	assert_int_equal(guest_rd(g, R_VERSION), 2);
	assert_int_equal(guest_rd(g, R_ID), 2);
}

static void a2_narrow_writes(void **state)
{
	(void)state;
	wr_n(R_STATUS, 1, 1);
	wr_n(R_STATUS, 1, 2);
	wr_n(R_STATUS, 1, 8);
	wr_n(R_STATUS + 1, 1, 4);
	assert_int_equal(guest_status(g), 0);
	guest_start(g);
	wr_n(R_STATUS, 0, 1);
	wr_n(R_STATUS, 0, 8);
	assert_live(g);
}

static void a3_undefined_offsets(void **state)
{
	static const uint32_t offs[] = {0x0c, 0x18, 0x28, 0x3c, 0x48, 0x54,
					0x78, 0x88, 0xa8, 0xc0, 0xf8, 0xfc};
	uint8_t data[8];

	(void)state;
	guest_start(g);
	for (unsigned i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
		guest_wr(g, offs[i], 0xffffffff);
		if (offs[i] != R_VENDOR)
			assert_int_equal(guest_rd(g, offs[i]), 0);
	}
	assert_int_equal(guest_rd(g, R_SHM), 0xffffffff); /* no region */
	memset(data, 0x55, sizeof(data));
	virtio_mmio_read(g->d, 0xfff, data, 4);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(data[i], 0);
	wr_n(0xfff, 0xffffffff, 4);
	assert_live(g);
}

static void a4_past_the_window(void **state)
{
	static const uint32_t offs[] = {0x1000, 0x10000, 0xfffffffc,
					0xffffffff};
	uint8_t data[16];

	(void)state;
	guest_start(g);
	for (unsigned i = 0; i < 4; i++) {
		memset(data, 0x55, sizeof(data));
		virtio_mmio_read(g->d, offs[i], data, 4);
		assert_int_equal(data[0] | data[7], 0);
		assert_int_equal(data[8], 0x55);
		wr_n(offs[i], 0xffffffff, 4);
	}
	/* A string access may come with any length. */
	memset(data, 0x55, sizeof(data));
	virtio_mmio_read(g->d, R_CFG, data, 4096);
	assert_int_equal(data[0] | data[7], 0);
	assert_int_equal(data[8], 0x55);
	virtio_mmio_read(g->d, R_CFG, data, 0);
	wr_n(R_STATUS, 0, 4096);
	wr_n(R_STATUS, 0, 0);
	assert_live(g);
}

static void a5_queue_sel_out_of_range(void **state)
{
	static const uint32_t sels[] = {1, 2, 3, 4, 0xffff, 0xffffffff};

	(void)state;
	guest_negotiate(g);
	for (unsigned i = 0; i < sizeof(sels) / sizeof(sels[0]); i++) {
		guest_wr(g, R_QSEL, sels[i]);
		assert_int_equal(guest_rd(g, R_QNUM_MAX), 0);
		for (uint32_t off = R_QNUM; off <= R_USED + 4; off += 4)
			if (off != R_NOTIFY && off != R_STATUS &&
			    off != R_ISR_ACK)
				guest_wr(g, off, 1);
		assert_int_equal(guest_rd(g, R_QREADY), 0);
	}
	assert_int_equal(g->d->vq[1].size, 0);
	assert_int_equal(g->d->vq[1].desc, 0);
	assert_int_equal(g->d->vq[2].size, 0);
}

static void a6_notify_out_of_range(void **state)
{
	static const uint32_t n[] = {1, 2, 31, 32, 255, 0x80000000, 0xffffffff};

	(void)state;
	guest_start(g);
	for (unsigned i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
		guest_wr(g, R_NOTIFY, n[i]);
		assert_int_equal(g->d->kicked, 0);
	}
	assert_live(g);
}

static void a7_queue_num_bad(void **state)
{
	static const uint32_t n[] = {0, 3, 257, 32768, 65536 + 8, 0x80000000};

	(void)state;
	for (unsigned i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
		guest_negotiate(g);
		guest_queue_set(g, 0);
		guest_wr(g, R_QREADY, 0);
		guest_wr(g, R_QNUM, n[i]);
		guest_wr(g, R_QREADY, 1);
		assert_int_equal(guest_rd(g, R_QREADY), 0);
		guest_wr(g, R_STATUS, S_LIVE);
		assert_broken(g);
		guest_reset(g);
	}
}

static void regs_rewrite(void)
{
	static const uint32_t regs[] = {R_QNUM,	   R_DESC,	R_DESC + 4,
					R_AVAIL,   R_AVAIL + 4, R_USED,
					R_USED + 4};
	struct vq was = g->d->vq[0];

	guest_wr(g, R_QSEL, 0);
	for (unsigned i = 0; i < sizeof(regs) / sizeof(regs[0]); i++) {
		guest_wr(g, regs[i], 64);
		guest_wr(g, regs[i], 0xfffffff0);
	}
	assert_memory_equal(&was, &g->d->vq[0], sizeof(was));
}

static void a8_queue_frozen(void **state)
{
	(void)state;
	guest_negotiate(g);
	guest_queue_set(g, 0);
	assert_int_equal(guest_rd(g, R_QREADY), 1);
	regs_rewrite();
	guest_wr(g, R_STATUS, S_LIVE);
	assert_live(g);
	regs_rewrite();
	guest_wr(g, R_QREADY, 0); /* no way back but a reset */
	assert_int_equal(guest_rd(g, R_QREADY), 1);
	regs_rewrite();
}

static void a9_queue_ready_odd(void **state)
{
	(void)state;
	guest_negotiate(g);
	guest_wr(g, R_QSEL, 0);
	guest_wr(g, R_QREADY, 1); /* without size and addresses */
	assert_int_equal(guest_rd(g, R_QREADY), 0);
	guest_wr(g, R_QREADY, 2);
	assert_int_equal(guest_rd(g, R_QREADY), 0);
	guest_queue_set(g, 0);
	guest_wr(g, R_QREADY, 1);
	assert_int_equal(guest_rd(g, R_QREADY), 1);
	guest_wr(g, R_QREADY, 2);
	assert_int_equal(guest_rd(g, R_QREADY), 1);
	guest_wr(g, R_STATUS, S_LIVE);
	assert_live(g); /* the refusal was made good */
}

static void ring_refused(gpa_t desc, gpa_t avail, gpa_t used)
{
	struct gq was = g->q[0];

	g->q[0].desc = desc;
	g->q[0].avail = avail;
	g->q[0].used = used;
	guest_negotiate(g);
	guest_queue_set(g, 0);
	assert_int_equal(guest_rd(g, R_QREADY), 0);
	guest_wr(g, R_STATUS, S_LIVE);
	assert_broken(g);
	guest_reset(g);
	g->q[0] = was;
}

static void a10_rings_unaligned(void **state)
{
	struct gq q = g->q[0];

	(void)state;
	ring_refused(q.desc + 1, q.avail, q.used);
	ring_refused(q.desc + 8, q.avail, q.used);
	ring_refused(q.desc, q.avail + 1, q.used);
	ring_refused(q.desc, q.avail, q.used + 1);
	ring_refused(q.desc, q.avail, q.used - 2);
}

static void a11_rings_misplaced(void **state)
{
	const gpa_t ram = GUEST_RAM_BYTES;
	const gpa_t bad[] = {
		ram - 16,      ram,
		ram + 4096,    0xd0000000,
		MEM_GAP_START, MEM_GAP_END - 16,
		MEM_GAP_END,   UINT64_MAX - 15,
		1ull << 63,
	};
	struct gq q = g->q[0];

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ring_refused(bad[i], q.avail, q.used);
		ring_refused(q.desc, bad[i], q.used);
		ring_refused(q.desc, q.avail, bad[i]);
	}
	/* One byte too far, each; and address 0 is RAM like any other. */
	ring_refused((ram - 16u * q.size + 16) & ~15ull, q.avail, q.used);
	ring_refused(q.desc, ram - (4 + 2u * q.size), q.used);
	ring_refused(q.desc, q.avail, ram - (4 + 8u * q.size));
}

static void a12_rings_overlap(void **state)
{
	struct gq was = g->q[0];

	(void)state;
	g->q[0].avail = g->q[0].desc;
	g->q[0].used = g->q[0].desc;
	guest_start(g);
	for (int i = 0; i < 100; i++) {
		guest_avail_idx(g, 0, (uint16_t)i);
		guest_kick(g, 0);
	}
	guest_reset(g);
	g->q[0] = was;
	g->q[0].desc = 0; /* address 0 is RAM like any other */
	guest_start(g);
	guest_reset(g);
	g->q[0] = was;
}

static void a13_driver_ok_early(void **state)
{
	static const uint32_t first[] = {VIRTIO_DRIVER_OK,
					 S_ACK | VIRTIO_DRIVER_OK,
					 S_DRIVER | VIRTIO_DRIVER_OK,
					 S_LIVE,
					 0xff,
					 0xffffffff,
					 VIRTIO_FEATURES_OK,
					 VIRTIO_NEEDS_RESET,
					 VIRTIO_DRIVER};

	(void)state;
	for (unsigned i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		guest_wr(g, R_STATUS, first[i]);
		assert_int_equal(guest_status(g), 0);
	}
	guest_wr(g, R_STATUS, S_ACK);
	guest_wr(g, R_STATUS, S_ACK | VIRTIO_DRIVER_OK);
	assert_int_equal(guest_status(g), S_ACK);
	guest_wr(g, R_STATUS, S_DRIVER);
	guest_wr(g, R_STATUS, S_DRIVER | VIRTIO_DRIVER_OK);
	assert_int_equal(guest_status(g), S_DRIVER);
	guest_wr(g, R_STATUS, S_LIVE);
	assert_int_equal(guest_status(g), S_DRIVER);
	assert_false(g->d->vq[0].is_ready);
	/* DRIVER_OK with no queue at all: the device cannot work. */
	guest_reset(g);
	guest_negotiate(g);
	guest_wr(g, R_STATUS, S_LIVE);
	assert_broken(g);
}

static void features_wr(uint64_t f)
{
	guest_wr(g, R_DRV_FEAT_SEL, 0);
	guest_wr(g, R_DRV_FEAT, (uint32_t)f);
	guest_wr(g, R_DRV_FEAT_SEL, 1);
	guest_wr(g, R_DRV_FEAT, (uint32_t)(f >> 32));
}

static void a14_features_not_offered(void **state)
{
	uint64_t offered = g->d->features;

	(void)state;
	for (unsigned bit = 0; bit < 64; bit++) {
		if (offered >> bit & 1)
			continue;
		guest_wr(g, R_STATUS, S_ACK);
		guest_wr(g, R_STATUS, S_DRIVER);
		features_wr(VIRTIO_F_VERSION_1 | 1ull << bit);
		guest_wr(g, R_STATUS, S_FEATURES);
		assert_int_equal(guest_status(g), S_DRIVER);
		guest_reset(g);
	}
	/* Selectors beyond 1 read 0 and write nothing. */
	guest_negotiate(g);
	for (uint32_t sel = 2; sel < 5; sel++) {
		guest_wr(g, R_DEV_FEAT_SEL, sel);
		assert_int_equal(guest_rd(g, R_DEV_FEAT), 0);
		guest_wr(g, R_DRV_FEAT_SEL, sel);
		guest_wr(g, R_DRV_FEAT, 0xffffffff);
	}
	guest_wr(g, R_DEV_FEAT_SEL, 0xffffffff);
	assert_int_equal(guest_rd(g, R_DEV_FEAT), 0);
	assert_int_equal(g->d->acked, offered);
	/* After FEATURES_OK they stand. */
	features_wr(0);
	assert_int_equal(g->d->acked, offered);
}

static void a15_without_version_1(void **state)
{
	(void)state;
	guest_wr(g, R_STATUS, S_ACK);
	guest_wr(g, R_STATUS, S_DRIVER);
	features_wr(g->d->features & ~VIRTIO_F_VERSION_1);
	guest_wr(g, R_STATUS, S_FEATURES);
	assert_int_equal(guest_status(g), S_DRIVER);
	features_wr(VIRTIO_F_VERSION_1);
	guest_wr(g, R_STATUS, S_FEATURES);
	assert_int_equal(guest_status(g), S_FEATURES);
}

static void a16_status_bits_cleared(void **state)
{
	static const uint32_t less[] = {S_ACK, S_DRIVER, S_FEATURES,
					VIRTIO_DRIVER_OK, 0x80000000};

	(void)state;
	guest_start(g);
	for (unsigned i = 0; i < sizeof(less) / sizeof(less[0]); i++) {
		guest_wr(g, R_STATUS, less[i]);
		assert_live(g);
	}
}

static void a18_reset_cycles(void **state)
{
	struct rusage before, after;
	unsigned fds = fds_count();

	(void)state;
	for (int i = 0; i < 100; i++) {
		guest_start(g);
		guest_reset(g);
	}
	getrusage(RUSAGE_SELF, &before);
	for (int i = 0; i < 10000; i++) {
		guest_start(g);
		guest_reset(g);
	}
	getrusage(RUSAGE_SELF, &after);
	assert_int_equal(fds_count(), fds);
	assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 1024); /* KiB */
	assert_int_equal(g->n_broken, 0);
}

static void a19_reset_in_negotiation(void **state)
{
	static const uint32_t upto[] = {S_ACK, S_DRIVER, S_FEATURES};

	(void)state;
	for (unsigned n = 0; n < 3; n++) {
		for (unsigned i = 0; i <= n; i++)
			guest_wr(g, R_STATUS, upto[i]);
		guest_wr(g, R_QSEL, 0);
		guest_wr(g, R_QNUM, 8);
		guest_reset(g);
		guest_start(g);
		assert_live(g);
		guest_reset(g);
	}
}

static void a20_config_space(void **state)
{
	uint64_t capacity = 0;
	uint8_t data[8], all[256], again[256];

	(void)state;
	virtio_mmio_read(g->d, R_CFG, data, 8);
	memcpy(&capacity, data, 8);
	assert_int_equal(capacity, DISK_SECTORS);
	for (unsigned i = 0; i < sizeof(all); i++) {
		virtio_mmio_read(g->d, R_CFG + i, data, 1);
		all[i] = data[0];
		if (i >= g->d->ops->cfg_size)
			assert_int_equal(all[i], 0);
	}
	/* Across the end: the part inside, then zeroes. */
	memset(data, 0x55, sizeof(data));
	virtio_mmio_read(g->d, R_CFG + g->d->ops->cfg_size - 2, data, 8);
	for (unsigned i = 2; i < 8; i++)
		assert_int_equal(data[i], 0);
	virtio_mmio_read(g->d, 0xff8, data, 8);
	assert_int_equal(data[0] | data[7], 0);
	guest_start(g);
	for (unsigned i = 0; i < sizeof(all); i += 4)
		guest_wr(g, R_CFG + i, 0xffffffff);
	for (unsigned i = 0; i < sizeof(all); i++) {
		virtio_mmio_read(g->d, R_CFG + i, data, 1);
		again[i] = data[0];
	}
	assert_memory_equal(all, again, sizeof(all));
	assert_live(g);
}

static void one_read(void)
{
	gpa_t data = guest_alloc(g, 512);

	assert_int_equal(disk_do(&disk,
				 &(struct blk_req){.data = data,
						   .len = 512,
						   .is_out = true},
				 NULL),
			 0);
}

static void a21_interrupt_ack(void **state)
{
	(void)state;
	guest_start(g);
	guest_wr(g, R_ISR_ACK, 0xffffffff);
	assert_int_equal(guest_rd(g, R_ISR), 0);
	assert_int_equal(g->n_irqs, 0);
	guest_used_event(g, 0, 0);
	one_read();
	assert_int_equal(g->n_irqs, 1);
	guest_wr(g, R_ISR_ACK, 0xfffffffe); /* not the one that is set */
	assert_int_equal(guest_rd(g, R_ISR), 1);
	guest_run(g);
	assert_int_equal(g->n_irqs, 1); /* never acknowledged: no storm */
	guest_used_event(g, 0, 1);
	one_read();
	assert_int_equal(g->n_irqs, 2); /* and no later one lost */
	guest_wr(g, R_ISR_ACK, 1);
	assert_int_equal(guest_rd(g, R_ISR), 0);
}

static void a22_kick_storm(void **state)
{
	uint64_t before, after;

	(void)state;
	guest_start(g);
	guest_run(g);
	before = io_syscalls(disk.io);
	for (int i = 0; i < 1000000; i++)
		guest_wr(g, R_NOTIFY, 0);
	guest_run(g);
	after = io_syscalls(disk.io);
	assert_in_range(after - before, 1, 16); /* kicks were merged */
	assert_live(g);
	one_read();
}

static void a23_kick_when_not_live(void **state)
{
	(void)state;
	guest_wr(g, R_NOTIFY, 0);
	assert_int_equal(g->d->kicked, 0);
	guest_negotiate(g);
	guest_queue_set(g, 0);
	guest_wr(g, R_NOTIFY, 0);
	assert_int_equal(g->d->kicked, 0);
	guest_reset(g);
	guest_wr(g, R_NOTIFY, 0);
	assert_int_equal(g->d->kicked, 0);
	guest_start(g);
	guest_wr(g, R_NOTIFY, 0);
	assert_int_equal(g->d->kicked, 1);
	guest_wr(g, R_STATUS, S_LIVE | VIRTIO_FAILED);
	guest_run(g);
	guest_wr(g, R_NOTIFY, 0);
	assert_int_equal(g->d->kicked, 0);
	assert_int_equal(guest_status(g), S_LIVE | VIRTIO_FAILED);
	guest_run(g);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a1_narrow_reads),
		CASE(a2_narrow_writes),
		CASE(a3_undefined_offsets),
		CASE(a4_past_the_window),
		CASE(a5_queue_sel_out_of_range),
		CASE(a6_notify_out_of_range),
		CASE(a7_queue_num_bad),
		CASE(a8_queue_frozen),
		CASE(a9_queue_ready_odd),
		CASE(a10_rings_unaligned),
		CASE(a11_rings_misplaced),
		CASE(a12_rings_overlap),
		CASE(a13_driver_ok_early),
		CASE(a14_features_not_offered),
		CASE(a15_without_version_1),
		CASE(a16_status_bits_cleared),
		CASE(a18_reset_cycles),
		CASE(a19_reset_in_negotiation),
		CASE(a20_config_space),
		CASE(a21_interrupt_ack),
		CASE(a22_kick_storm),
		CASE(a23_kick_when_not_live),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
