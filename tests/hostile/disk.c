/* See disk.h. */
#include "disk.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TAIL 0x7d

static void pattern(uint8_t *dst, uint64_t sector)
{
	for (unsigned i = 0; i < 512; i++)
		dst[i] = (uint8_t)(sector * 7 + i);
}

static void file_fill(int fd)
{
	uint8_t s[512];

	for (uint64_t i = 0; i < DISK_SECTORS; i++) {
		pattern(s, i);
		assert_int_equal(pwrite(fd, s, 512, (off_t)(i * 512)), 512);
	}
	memset(s, TAIL, sizeof(s));
	for (uint64_t i = 0; i < DISK_TAIL_BYTES; i += 512)
		assert_int_equal(pwrite(fd, s, 512, (off_t)(DISK_BYTES + i)),
				 512);
}

void disk_up(struct disk *k, const struct disk_options *o)
{
	struct io_config ic = {.use_ring = o->use_ring};
	struct blk_config bc = {
		.bytes = DISK_BYTES,
		.is_read_only = o->is_read_only,
		.is_sync_lazy = o->is_sync_lazy,
		.bytes_written_max = o->bytes_written_max,
		.id = "hutch-test",
	};
	char path[64];

	memset(k, 0, sizeof(*k));
	k->fds_before = fds_count();
	assert_int_equal(mem_init(&k->mem, GUEST_RAM_BYTES), 0);
	guest_canary_fill(&k->mem);
	k->fd = memfd_create("disk", MFD_CLOEXEC);
	assert_true(k->fd >= 0);
	file_fill(k->fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", k->fd);
	k->dev_fd =
		open(path, (o->is_read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	assert_true(k->dev_fd >= 0);
	bc.fd = k->dev_fd;
	assert_int_equal(io_create(&k->io, &ic), 0);
	assert_int_equal(blk_create(&k->blk, &k->mem, k->io, &bc), 0);
	assert_int_equal(io_device_add(k->io, blk_dev(k->blk)), 0);
	guest_init(&k->g, &k->mem, k->io, blk_dev(k->blk));
}

static void tail_check(struct disk *k)
{
	uint8_t s[512];

	assert_int_equal(lseek(k->fd, 0, SEEK_END),
			 DISK_BYTES + DISK_TAIL_BYTES);
	for (uint64_t i = 0; i < DISK_TAIL_BYTES; i += 512) {
		assert_int_equal(pread(k->fd, s, 512, (off_t)(DISK_BYTES + i)),
				 512);
		for (unsigned j = 0; j < 512; j++)
			assert_int_equal(s[j], TAIL);
	}
}

void disk_invariants(struct disk *k)
{
	struct guest *g = &k->g;
	uint8_t want[512], got[512];
	uint32_t len = 0;
	gpa_t data;

	guest_reset(g);
	guest_free_all(g);
	guest_start(g);
	data = guest_alloc(g, 512);
	assert_int_equal(pread(k->fd, want, 512, 512), 512);
	assert_int_equal(disk_do(k,
				 &(struct blk_req){.type = 0,
						   .sector = 1,
						   .data = data,
						   .len = 512,
						   .is_out = true},
				 &len),
			 0);
	assert_int_equal(len, 513);
	guest_get(g, data, got, 512);
	assert_memory_equal(got, want, 512);
	assert_live(g);
	guest_canary_check(g->mem);
}

void disk_down(struct disk *k)
{
	disk_invariants(k);
	tail_check(k);
	guest_reset(&k->g);
	blk_destroy(k->blk);
	io_destroy(k->io);
	close(k->dev_fd);
	close(k->fd);
	mem_finish(&k->mem);
	assert_int_equal(fds_count(), k->fds_before);
}

gpa_t disk_hdr(struct disk *k, uint32_t type, uint64_t sector)
{
	struct {
		uint32_t type, reserved;
		uint64_t sector;
	} h = {type, 0, sector};
	gpa_t at = guest_alloc(&k->g, sizeof(h));

	guest_put(&k->g, at, &h, sizeof(h));
	return at;
}

gpa_t disk_status_at(struct disk *k)
{
	gpa_t at = guest_alloc(&k->g, 1);

	guest_fill(&k->g, at, 0xee, 1);
	return at;
}

static uint16_t put(struct disk *k, const struct blk_req *r, gpa_t status)
{
	struct gbuf b[3];
	unsigned n = 0;

	b[n++] = (struct gbuf){disk_hdr(k, r->type, r->sector), 16, false};
	if (r->len > 0)
		b[n++] = (struct gbuf){r->data, r->len, r->is_out};
	b[n++] = (struct gbuf){status, 1, true};
	return guest_chain(&k->g, 0, b, n);
}

uint16_t disk_put(struct disk *k, const struct blk_req *r)
{
	return put(k, r, disk_status_at(k));
}

uint8_t disk_finish(struct disk *k, gpa_t status, uint32_t *len)
{
	uint32_t l = 0;
	uint8_t s;

	guest_kick(&k->g, 0);
	assert_true(guest_used(&k->g, 0, NULL, &l));
	if (len)
		*len = l;
	guest_get(&k->g, status, &s, 1);
	return s;
}

uint8_t disk_do(struct disk *k, const struct blk_req *r, uint32_t *len)
{
	gpa_t status = disk_status_at(k);

	put(k, r, status);
	return disk_finish(k, status, len);
}
