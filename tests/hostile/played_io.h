/*
 * io.h, played by the test: operations of a disk are kept until the test lets
 * them end, in the order and with the result it likes.  For tests and fuzz
 * targets that link no I/O layer.
 */
#ifndef HUTCH_TEST_PLAYED_IO_H
#define HUTCH_TEST_PLAYED_IO_H

#include "../../vmm/io.h"
#include "../../vmm/virtio/blk.h"

#define PENDING_MAX 256

enum kind { READV, WRITEV, FSYNC, PUNCH };

struct pending {
	struct io_op *op;
	enum kind kind;
	struct iovec iov[BLK_SEG_MAX];
	int n;
	uint64_t off, len;
	unsigned id; /* of this operation: counts from 0 */
};

extern struct pending pend[PENDING_MAX];
/* `room`: operations that may be pending; `n_started` so far. */
extern unsigned n_pend, n_started, room;

/* Forget what was; this device is served by io_step. */
void played_begin(struct virtio_dev *served);
/* Operation `i` of `pend` ends with `res`. */
void complete(unsigned i, int res);

#endif
