/*
 * A virtio-blk device for the hostile tests: a file in memory with a tail that
 * must never change, the device on it, and a guest that drives it.
 */
#ifndef HUTCH_TEST_DISK_H
#define HUTCH_TEST_DISK_H

#include "../../vmm/virtio/blk.h"
#include "guest.h"

#define DISK_BYTES	(1u << 20)
#define DISK_SECTORS	(DISK_BYTES / 512)
#define DISK_TAIL_BYTES 65536u

struct disk {
	struct guest g; /* first */
	struct mem mem;
	struct io *io;
	struct blk *blk;
	int fd; /* read and write, whatever the device has */
	int dev_fd;
	unsigned fds_before;
};

struct disk_options {
	bool use_ring, is_read_only, is_sync_lazy;
	uint64_t bytes_written_max;
};

void disk_up(struct disk *k, const struct disk_options *o);
/* Invariants: the canaries and the tail are as they were, a well-formed
 * request succeeds after a reset; then everything is closed and as many
 * descriptors are open as before. */
void disk_down(struct disk *k);
void disk_invariants(struct disk *k);

struct blk_req {
	uint32_t type;
	uint64_t sector;
	gpa_t data;
	uint32_t len;
	bool is_out; /* the data is for the device to write (IN, GET_ID) */
};
/* Header, data, status as three descriptors; returns the head.  The status
 * byte is at disk_status_at, filled with 0xee before. */
uint16_t disk_put(struct disk *k, const struct blk_req *r);
gpa_t disk_status_at(struct disk *k);
/* Put, kick, wait; returns the status byte; *len = used.len. */
uint8_t disk_do(struct disk *k, const struct blk_req *r, uint32_t *len);
/* One chain of the caller's making: wait for it, return the status byte at
 * `status`. */
uint8_t disk_finish(struct disk *k, gpa_t status, uint32_t *len);
gpa_t disk_hdr(struct disk *k, uint32_t type, uint64_t sector);

#endif
