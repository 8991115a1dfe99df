/*
 * Fuzz: virtio-blk requests on a live device.
 *
 * Input: up to 8 requests; each has a type and sector near the edges, its
 * bytes cut into descriptors of any lengths and directions, mostly as a driver
 * would do it.  Files: one in memory with a tail that must stay.  Reached = a
 * request got its status byte.
 */
#include "../../vmm/virtio/blk.h"
#include "driver.h"
#include "fuzz.h"
#include "input.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM	 (256u << 10)
#define SECTORS	 256u
#define TAIL	 4096u
#define QUEUE	 128u
#define DESC_AT	 0x1000u
#define AVAIL_AT 0x3000u
#define USED_AT	 0x4000u
#define BUFS_AT	 0x8000u

static struct mem ram;
static struct io *io;
static struct blk *blk;
static struct virtio_dev *dev;
static int file;

static void check(bool is_true)
{
	if (!is_true)
		abort();
}

static void set_up(void)
{
	struct io_config ic = {.use_ring = false};
	struct blk_config bc = {.bytes = SECTORS * 512, .id = "fuzz"};
	uint8_t tail[TAIL];

	memset(tail, 0x7d, sizeof(tail));
	file = memfd_create("disk", MFD_CLOEXEC);
	check(file >= 0);
	check(pwrite(file, tail, TAIL, SECTORS * 512) == TAIL);
	bc.fd = file;
	bc.bytes_written_max = SECTORS * 512;
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

static void go_live(void)
{
	wr(0x70, 0);
	driver_negotiate(dev);
	driver_queue(dev, 0, QUEUE, DESC_AT, AVAIL_AT, USED_AT);
	wr(0x70, 15);
	check(dev->status == 15);
}

struct builder {
	uint16_t next_desc;
	gpa_t at;
};

static void desc_add(struct in *in, struct builder *b, uint32_t len,
		     bool is_out, bool is_last)
{
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} d = {.addr = b->at,
	       .len = len,
	       .flags = (uint16_t)((is_out ? 2 : 0) | (is_last ? 0 : 1)),
	       .next = (uint16_t)((b->next_desc + 1u) % QUEUE)};

	if (in_rarely(in))
		d.addr = in_edge(in);
	if (in_rarely(in))
		d.len = (uint32_t)in_edge(in);
	if (in_rarely(in))
		d.flags ^= (uint16_t)(1u << in_u8(in) % 16);
	mem_write(&ram, DESC_AT + 16u * b->next_desc, &d, sizeof(d));
	b->at += len;
	if (b->at > RAM - 65536)
		b->at = BUFS_AT;
	b->next_desc = d.next;
}

static void request_put(struct in *in, struct builder *b, uint16_t n)
{
	static const uint32_t types[] = {0, 1, 4, 8, 11, 13};
	uint32_t type = types[in_u8(in) % 6];
	uint64_t sector = in_u8(in);
	uint32_t len = in_u8(in) % 16 * 512u;
	uint8_t cuts = in_u8(in), shape = in_u8(in);
	uint16_t head = b->next_desc;
	struct {
		uint32_t type, reserved;
		uint64_t sector;
	} h;
	bool is_out = type == 0 || type == 8;

	if (in_rarely(in))
		type = in_u32(in);
	if (in_rarely(in))
		sector = in_edge(in);
	if (in_rarely(in))
		len = in_u16(in);
	if (type >= 11)
		len = shape % 20 * 16u;
	h.type = type;
	h.reserved = 0;
	h.sector = sector;
	mem_write(&ram, b->at, &h, sizeof(h));
	if (type >= 11) /* segments right behind the header */
		for (uint32_t i = 0; i + 4 <= len && in->len > 0; i += 4) {
			uint32_t v = in_u8(in);

			mem_write(&ram, b->at + 16 + i, &v, 4);
		}
	if (cuts & 1) {
		desc_add(in, b, 8, false, false);
		desc_add(in, b, 8, false, false);
	} else {
		desc_add(in, b, 16, false, false);
	}
	for (uint32_t part; len > 0; len -= part) {
		part = cuts & 2 ? (len > 600 ? 600 : len) : len;
		desc_add(in, b, part, is_out, false);
	}
	if (!in_rarely(in))
		desc_add(in, b, 1, true, true);
	mem_write(&ram, AVAIL_AT + 4 + 2u * n, &head, 2);
}

static void tail_check(void)
{
	uint8_t tail[TAIL];

	check(pread(file, tail, TAIL, SECTORS * 512) == TAIL);
	for (unsigned i = 0; i < TAIL; i++)
		check(tail[i] == 0x7d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct in in = {data, len};
	struct builder b = {.at = BUFS_AT};
	uint16_t n = 0;

	fuzz_begin();
	fuzz_reach_want(50);
	if (!dev)
		set_up();
	memset(ram.host, 0, RAM);
	go_live();
	while (n < 8 && (n == 0 || in.len > 0))
		request_put(&in, &b, n++);
	if (in_rarely(&in))
		n = in_u16(&in);
	mem_store16_release(&ram, AVAIL_AT + 2, n);
	wr(0x50, 0);
	do {
		io_step(io); /* a segment or a piece each turn */
	} while (dev->vq[0].n_out > 0 && dev->vq[0].is_ready);
	for (int i = 0; i < 4; i++)
		io_step(io);
	if (dev->vq[0].used_idx > 0)
		fuzz_reach();
	wr(0x70, 0);
	tail_check();
	return 0;
}
