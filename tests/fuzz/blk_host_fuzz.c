/*
 * Fuzz: virtio-blk while its host misbehaves (tests/hostile/played_io.h).
 *
 * Input: steps: a request of the guest (now and then a bad chain), an
 * operation that ends with any result in any order, less or more room for
 * operations, a driver that gives up.  At the end all operations end: every
 * chain that was taken must have been given back once, with a status, nothing
 * may be in flight, a FLUSH never succeeds after a failed sync, and the device
 * drains without waiting.
 * Reached = an operation ended.
 */
#include "../../vmm/virtio/blk_priv.h"
#include "../hostile/played_io.h"
#include "driver.h"
#include "fuzz.h"
#include "input.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RAM	 (256u << 10)
#define SECTORS	 64u
#define QUEUE	 128u
#define REQS	 (QUEUE / 4) /* 4 descriptors each */
#define DESC_AT	 0x1000u
#define AVAIL_AT 0x2000u
#define USED_AT	 0x3000u
#define HDR_AT	 0x4000u /* 64 bytes a request: header, segments, status */
#define DATA_AT	 0x8000u
#define NO_WORD	 0xee

static struct mem ram;
static struct blk *blk;
static struct virtio_dev *dev;
static uint16_t n_put, used_seen;
static bool has_failed;

static void check(bool is_true)
{
	if (!is_true)
		abort();
}

static void wr(uint32_t off, uint32_t v)
{
	driver_write(dev, off, v);
}

static void start(void)
{
	struct blk_config bc = {.bytes = UINT64_C(1) * SECTORS *
					 BLK_SECTOR_BYTES};

	if (!ram.host)
		check(mem_init(&ram, RAM) == 0);
	memset(ram.host, 0, RAM);
	bc.fd = memfd_create("disk", MFD_CLOEXEC);
	check(bc.fd >= 0 && ftruncate(bc.fd, (off_t)bc.bytes) == 0);
	check(blk_create(&blk, &ram, NULL, &bc) == 0);
	dev = blk_dev(blk);
	played_begin(dev);
	n_put = used_seen = 0;
	has_failed = false;
	driver_negotiate(dev);
	driver_queue(dev, 0, QUEUE, DESC_AT, AVAIL_AT, USED_AT);
	wr(0x70, 15);
	check(dev->status == 15);
}

static uint32_t status_at(unsigned i)
{
	return HDR_AT + 64 * i + 63;
}

static void desc_put(uint16_t i, uint64_t addr, uint32_t len, uint16_t flags)
{
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} d = {addr, len, flags, (uint16_t)(i + 1)};

	mem_write(&ram, DESC_AT + UINT64_C(16) * i, &d, sizeof(d));
}

/* Requests take the places 0 to REQS - 1 in turn; one whose place is not yet
 * free again is not put. */
static void request_put(struct in *in)
{
	static const uint32_t types[] = {BLK_T_IN,	     BLK_T_OUT,
					 BLK_T_FLUSH,	     BLK_T_FLUSH,
					 BLK_T_WRITE_ZEROES, BLK_T_DISCARD};
	unsigned i = n_put % REQS;
	uint16_t d = (uint16_t)(4 * i), head = d;
	uint32_t type = types[in_u8(in) % 6], n = 1 + in_u8(in) % 4;
	uint64_t h[4] = {type, in_u8(in) % SECTORS, 0, n};
	bool is_range = type > BLK_T_FLUSH;
	uint8_t word = NO_WORD;

	if ((uint16_t)(n_put - used_seen) >= REQS)
		return;
	h[2] = h[1]; /* the segment's sector */
	mem_write(&ram, HDR_AT + UINT64_C(64) * i, h, sizeof(h));
	mem_write(&ram, status_at(i), &word, 1);
	desc_put(d++, HDR_AT + UINT64_C(64) * i, is_range ? 32 : 16, 1);
	if (type <= BLK_T_OUT)
		for (int k = 0; k < 2; k++)
			desc_put(d++, DATA_AT + UINT64_C(4096) * i, n * 512,
				 type == BLK_T_IN ? 3 : 1);
	desc_put(d, status_at(i), 1, in_rarely(in) ? 0 : 2);
	mem_write(&ram, AVAIL_AT + 4 + UINT64_C(2) * (n_put % QUEUE), &head, 2);
	mem_store16_release(&ram, AVAIL_AT + 2, ++n_put);
	wr(0x50, 0);
}

static void used_look(void)
{
	uint32_t e[2];
	uint8_t word;
	uint16_t idx;

	mem_load16_acquire(&ram, USED_AT + 2, &idx);
	for (; used_seen != idx; used_seen++) {
		mem_read(&ram, USED_AT + 4 + UINT64_C(8) * (used_seen % QUEUE),
			 e, sizeof(e));
		check(e[0] % 4 == 0 && e[0] < QUEUE && e[1] >= 1);
		mem_read(&ram, status_at(e[0] / 4), &word, 1);
		check(word <= BLK_S_UNSUPP);
	}
	check((uint16_t)(n_put - used_seen) <= REQS);
}

static int result_of(struct in *in, const struct pending *p)
{
	switch (in_u8(in) % 8) {
	case 0:
		return -EINTR;
	case 1:
		return -EIO;
	case 2:
		return p->kind < FSYNC ? (int)(in_u8(in) * 16u) : -EAGAIN;
	case 3:
		return (int)in_edge(in);
	default:
		return p->kind < FSYNC ? (int)p->len : 0;
	}
}

static void one_ends(struct in *in)
{
	unsigned i;
	struct pending p;
	int res;

	if (n_pend == 0)
		return;
	i = in_u8(in) % n_pend;
	p = pend[i];
	res = result_of(in, &p);
	fuzz_reach();
	complete(i, res);
	if (p.kind == FSYNC && dev->vq[0].is_ready) {
		has_failed |= res < 0;
		check(blk->has_sync_failed == has_failed);
	}
	for (unsigned k = 0; k < n_pend; k++) /* one at a time, none after */
		check(pend[k].kind != FSYNC || !has_failed);
}

static void end(void)
{
	room = PENDING_MAX;
	for (int i = 0; i < 2000 && (n_pend > 0 || dev->kicked); i++) {
		if (n_pend > 0)
			complete(0,
				 pend[0].kind < FSYNC ? (int)pend[0].len : 0);
		io_step(NULL);
	}
	check(n_pend == 0);
	used_look();
	if (dev->status == 15)
		check(used_seen == dev->vq[0].last_avail);
	blk_drain(blk); /* would wait for ever if something were left */
	check(blk->n_flying == 0);
	wr(0x70, 0);
	check(dev->status == 0);
	close(blk->fd);
	blk_destroy(blk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct in in = {data, len};

	fuzz_begin();
	fuzz_reach_want(30);
	start();
	request_put(&in);
	io_step(NULL);
	while (in.len > 0) {
		uint8_t op = in_u8(&in);

		switch (op % 8) {
		case 0:
		case 1:
		case 2:
			request_put(&in);
			break;
		case 3:
		case 4:
		case 5:
			one_ends(&in);
			break;
		case 6:
			room = op / 8 % 6;
			break;
		case 7:
			if (op >= 0xf8)
				wr(0x70, 15 | VIRTIO_FAILED);
			break;
		}
		if (op >> 4 != 7 || dev->status != 15)
			io_step(NULL);
		used_look();
	}
	end();
	return 0;
}
