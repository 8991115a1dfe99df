/*
 * virtio-blk (spec 5.2) on a file descriptor.
 *
 * Read-only is enforced here and by the descriptor (the VM opens it O_RDONLY
 * and checks).  Requests are copied out of the ring once, run as one io_uring
 * operation each, and completed from the operation's own slot: never found
 * again by a number of the guest's (CVE-2026-45782).  Without a ring the same
 * requests run at once by preadv/pwritev.
 */
#ifndef HUTCH_BLK_H
#define HUTCH_BLK_H

#include "../io.h"
#include "virtio.h"

#define BLK_SECTOR_BYTES  512
#define BLK_SEG_MAX	  126	     /* data spans a request */
#define BLK_SIZE_MAX	  (1u << 20) /* bytes a segment */
#define BLK_REQ_BYTES_MAX (4u << 20)
#define BLK_ID_BYTES	  20

struct blk_config {
	int fd;		/* borrowed */
	uint64_t bytes; /* capacity; rounded down to sectors */
	bool is_read_only;
	bool is_sync_lazy;	    /* FLUSH need not reach the platter */
	uint64_t bytes_written_max; /* cap on allocated space; 0 = none */
	const char *id;		    /* serial, at most BLK_ID_BYTES */
};

struct blk; /* has struct virtio_dev first */

int blk_create(struct blk **ret, struct mem *mem, struct io *io,
	       const struct blk_config *cfg);
void blk_destroy(struct blk *b);
struct virtio_dev *blk_dev(struct blk *b);
/* Wait until no operation is in flight (pause, snapshot); lock NOT held. */
void blk_drain(struct blk *b);

struct blk_stats {
	uint64_t reads, writes, read_bytes, write_bytes, errors;
	uint64_t flushes, discards;
	uint64_t cap_refused; /* writes past bytes_written_max */
	uint64_t sync_failed; /* FLUSH refused: a sync failed once */
};
void blk_stats(struct blk *b, struct blk_stats *ret);

#endif
