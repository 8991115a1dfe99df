/*
 * Fuzz: the registers of a virtio-mmio device (a disk), in any order.
 *
 * Input: a list of accesses: offset, width, value; some are whole steps of a
 * sound driver (negotiate, set the queue up, go live), so that every state is
 * met.  After each: a frozen queue has not changed, and a queue that is ready
 * is one that vq_check takes.  Reached = the device went live.
 */
#include "../../vmm/virtio/blk.h"
#include "driver.h"
#include "fuzz.h"
#include "input.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM (64u << 10)

static struct mem ram;
static struct io *io;
static struct blk *blk;
static struct virtio_dev *dev;

static void check(bool is_true)
{
	if (!is_true)
		abort();
}

static void set_up(void)
{
	struct io_config ic = {.use_ring = false};
	struct blk_config bc = {.bytes = 1 << 20};

	bc.fd = memfd_create("disk", MFD_CLOEXEC);
	check(bc.fd >= 0 && ftruncate(bc.fd, 1 << 20) == 0);
	check(mem_init(&ram, RAM) == 0);
	check(io_create(&io, &ic) == 0);
	check(blk_create(&blk, &ram, io, &bc) == 0);
	dev = blk_dev(blk);
	check(io_device_add(io, dev) == 0);
}

static void wr(uint32_t off, uint32_t v)
{
	driver_write(dev, off, v);
}

static void driver_step(struct in *in)
{
	static const uint32_t status[] = {0, 1, 3, 11, 15, 0x8f, 0xff};
	uint8_t n = in_u8(in);

	switch (n % 8) {
	case 0: /* to FEATURES_OK */
		driver_negotiate(dev);
		break;
	case 1: /* a queue */
		driver_queue(dev, 0, 1u << n / 8 % 9, 0x1000, 0x3000, 0x4000);
		break;
	case 2:
		wr(0x70, 15);
		break;
	case 3:
		wr(0x50, 0);
		break;
	default:
		wr(0x70, status[n / 8 % 7]);
		break;
	}
}

static void access_any(struct in *in)
{
	uint32_t off = in_u8(in) * 4u, len = 4;
	uint64_t v = in_u32(in);
	uint8_t data[8], kind = in_u8(in);

	if (kind & 1)
		v = in_edge(in);
	if (kind % 16 == 15)
		off = in_u32(in);
	if (kind % 16 == 7)
		len = in_u8(in);
	if (kind & 64) {
		virtio_mmio_read(dev, off, data, len);
		return;
	}
	/* A store of more than 8 bytes has no more than 8 behind it. */
	virtio_mmio_write(dev, off, &v, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct in in = {data, len};

	fuzz_begin();
	fuzz_reach_want(50);
	if (!dev)
		set_up();
	memset(ram.host, 0, RAM);
	wr(0x70, 0);
	check(dev->status == 0);
	/* Most inputs start as a driver does, a byte decides. */
	if (in_u8(&in) % 4)
		for (uint8_t i = 0; i < 3; i++)
			driver_step(&(struct in){&i, 1});
	while (in.len > 0) {
		struct vq was = dev->vq[0];
		uint32_t status = dev->status;

		if (in_u8(&in) % 4 == 0)
			driver_step(&in);
		else
			access_any(&in);
		if (dev->status & VIRTIO_DRIVER_OK)
			fuzz_reach();
		if (was.is_ready && dev->vq[0].is_ready && dev->status != 0 &&
		    status != 0)
			check(was.size == dev->vq[0].size &&
			      was.desc == dev->vq[0].desc &&
			      was.avail == dev->vq[0].avail &&
			      was.used == dev->vq[0].used);
		if (dev->vq[0].is_ready)
			check(vq_check(&dev->vq[0]) == 0);
		check(!(dev->acked & ~dev->features) ||
		      !(dev->status & VIRTIO_FEATURES_OK));
		io_step(io);
		io_step(io);
	}
	return 0;
}
