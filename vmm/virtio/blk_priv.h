/*
 * Between blk.c (the device: queue, config space, life) and blk_req.c (one
 * request).  Nobody else includes this.
 */
#ifndef HUTCH_BLK_PRIV_H
#define HUTCH_BLK_PRIV_H

#include "blk.h"

#define BLK_SLOTS		64 /* requests in flight */
#define BLK_DISCARD_SEGS_MAX	16
#define BLK_DISCARD_SECTORS_MAX (2u << 20) /* a segment: 1 GiB */

enum blk_type {
	BLK_T_IN = 0,
	BLK_T_OUT = 1,
	BLK_T_FLUSH = 4,
	BLK_T_GET_ID = 8,
	BLK_T_DISCARD = 11,
	BLK_T_WRITE_ZEROES = 13,
};

enum blk_status { BLK_S_OK = 0, BLK_S_IOERR = 1, BLK_S_UNSUPP = 2 };

#define BLK_F_SIZE_MAX	   (1ull << 1)
#define BLK_F_SEG_MAX	   (1ull << 2)
#define BLK_F_RO	   (1ull << 5)
#define BLK_F_BLK_SIZE	   (1ull << 6)
#define BLK_F_FLUSH	   (1ull << 9)
#define BLK_F_DISCARD	   (1ull << 13)
#define BLK_F_WRITE_ZEROES (1ull << 14)

struct blk_range {
	uint64_t off, len; /* bytes, inside the disk */
};

/* A request in flight.  Its operation completes into the slot itself: the
 * guest's head number is only what is pushed at the end. */
struct blk_slot {
	struct io_op op; /* first */
	struct blk *b;
	struct blk_slot *next; /* free or waiting list */
	enum blk_type type;
	uint16_t head;
	uint8_t *status; /* borrowed guest memory, one byte */
	uint64_t off;	 /* bytes: where the operation goes on */
	uint32_t left;	 /* data bytes not yet moved */
	uint32_t len;	 /* data bytes of the request */
	uint8_t n_retries;
	uint16_t iov_at, iov_n;
	uint16_t range_at, range_n;
	union {
		struct iovec iov[BLK_SEG_MAX];
		struct blk_range range[BLK_DISCARD_SEGS_MAX];
	};
};

struct blk {
	struct virtio_dev dev; /* first */
	struct io *io;	       /* borrowed */
	int fd;		       /* borrowed */
	int slot;	       /* fd's registered number */
	uint64_t bytes;
	bool is_read_only, is_sync_lazy;
	bool has_sync_failed; /* latched until the disk is opened again */
	char id[BLK_ID_BYTES];

	uint64_t bytes_max;    /* cap on allocated space, 0 = none */
	uint64_t bytes_used;   /* st_blocks at the last look */
	uint64_t bytes_since;  /* written or started since */
	uint64_t bytes_flying; /* of writes in flight */

	unsigned n_flying;	  /* slots taken */
	bool is_stalled;	  /* no slot was free: serve at a completion */
	unsigned n_used;	  /* slots ever taken */
	struct blk_slot *free;	  /* list of them */
	struct blk_slot *waiting; /* list: found no room in io */
	bool is_syncing;	  /* one sync at a time: see flush_end */
	struct blk_slot *sync_waiting; /* list: FLUSHes that came meanwhile */
	pthread_cond_t idle; /* n_flying fell to 0, or a kick was served */
	struct blk_stats stats;
	struct vq_chain chain;	/* scratch of serve */
	struct blk_slot *slots; /* owned, BLK_SLOTS */
};

/* All with the lock held.  Take over a popped chain that has a writable part:
 * it is pushed and the slot freed, now or by blk_req_advance. */
void blk_req_start(struct blk *b, struct blk_slot *s, const struct vq_chain *c);
/* The slot's operation ended with `res`. */
void blk_req_advance(struct blk *b, struct blk_slot *s, int res);
/* Start the operation again that found no room in io. */
void blk_req_retry(struct blk *b, struct blk_slot *s);
/* Would this write pass the cap on allocated space? */
bool blk_cap_refuses(struct blk *b, uint64_t off, uint32_t len);
/* blk.c: give the slot back. */
void blk_slot_free(struct blk *b, struct blk_slot *s);

#endif
