/*
 * virtio 1.2 devices over MMIO (version 2 of the register layout, spec 4.2).
 *
 * mmio.c   registers, status, negotiation; never mentions disks or sockets
 * queue.c  split virtqueues: vq_pop vq_in vq_out vq_push
 * blk.c    disk on a descriptor          vsock.c  sockets of the guest
 *
 * Threads: registers are written by vCPU threads, queues are served by the
 * I/O thread.  One lock per device (`lock`) is held by both; no callback runs
 * without it.  QueueNotify only sets a bit and wakes the I/O thread.
 *
 * A guest that breaks a rule gets DEVICE_NEEDS_RESET on that device; its
 * queues are not read again until it is reset.  `rule_breaks` counts, also
 * over resets; the VM is stopped at VIRTIO_RULE_BREAKS_MAX.
 */
#ifndef HUTCH_VIRTIO_H
#define HUTCH_VIRTIO_H

#include "../mem.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define VIRTIO_QUEUES_MAX      3
#define VIRTIO_QUEUE_SIZE_MAX  256
#define VIRTIO_RULE_BREAKS_MAX 64

struct vq {
	struct mem *mem; /* borrowed: lives as long as the VM */
	uint16_t size;	 /* entries, power of two; frozen once ready */
	bool is_ready;
	bool has_event_idx;
	gpa_t desc, avail, used;
	uint16_t last_avail; /* our shadow: next avail entry to take */
	uint16_t used_idx;   /* our shadow: next used entry to write */
	uint16_t signalled;  /* used_idx at the last vq_needs_irq */
	bool signalled_valid;
	uint16_t n_out; /* chains popped and not yet pushed */
	uint64_t in_flight[VIRTIO_QUEUE_SIZE_MAX / 64]; /* heads taken */
};

struct vq_span {
	uint8_t *host; /* borrowed guest memory, bulk data only */
	uint32_t len;
};

/* One request: readable spans first, then writable ones.  Copied from the
 * descriptors once; nothing of it is read again. */
struct vq_chain {
	uint16_t head;
	uint16_t n_in, n_out;
	uint32_t in_len, out_len; /* sums, bytes */
	struct vq_span span[VIRTIO_QUEUE_SIZE_MAX];
};

/* 1 = got one, 0 = empty, -EPROTO = the guest broke the rules. */
int vq_pop(struct vq *q, struct vq_chain *c);
/* Copy from the readable / into the writable part at byte offset `off`;
 * returns the bytes copied, short at the end. */
size_t vq_in(const struct vq_chain *c, size_t off, void *dst, size_t len);
size_t vq_out(const struct vq_chain *c, size_t off, const void *src,
	      size_t len);
/* The bytes [off, off + len) of one part as iovecs: count, or -E2BIG when
 * they do not fit into `max`, -EINVAL when the part is shorter. */
int vq_in_iov(const struct vq_chain *c, size_t off, size_t len,
	      struct iovec *iov, int max);
int vq_out_iov(const struct vq_chain *c, size_t off, size_t len,
	       struct iovec *iov, int max);
/* Exactly once per pop, also on errors.  written <= c->out_len. */
void vq_push(struct vq *q, uint16_t head, uint32_t written);
/* Ask once per batch, after the pushes. */
bool vq_needs_irq(struct vq *q);
/* Are there avail entries?  Also sets avail_event for the next kick. */
bool vq_has_work(struct vq *q);
/* Undo the last vq_pop, nothing popped or pushed since. */
void vq_unpop(struct vq *q, uint16_t head);
/* Size, alignment and place of the rings: 0 or -EINVAL. */
int vq_check(const struct vq *q);

struct virtio_dev;

struct virtio_dev_ops {
	const char *name;		       /* for logs: "blk" "vsock" */
	uint32_t id;			       /* virtio device id */
	uint16_t n_queues;		       /* 1..VIRTIO_QUEUES_MAX */
	uint16_t queue_max[VIRTIO_QUEUES_MAX]; /* entries, power of two */
	uint32_t cfg_size;		       /* bytes of config space */
	void (*cfg_read)(struct virtio_dev *d, uint32_t off, void *dst,
			 uint32_t len);
	int (*activate)(struct virtio_dev *d); /* 0 or -errno: NEEDS_RESET */
	/* I/O thread: serve queue q; bounded by the queue's size. */
	void (*serve)(struct virtio_dev *d, uint16_t q);
	/* Returns only when no I/O is in flight. */
	void (*reset)(struct virtio_dev *d);
};

struct virtio_dev {
	const struct virtio_dev_ops *ops;
	pthread_mutex_t lock;
	struct mem *mem;
	char name[8];	   /* "blk0" */
	uint64_t features; /* offered, with VERSION_1 */
	uint64_t acked;
	uint32_t status, dev_feat_sel, drv_feat_sel, queue_sel;
	uint32_t isr;
	uint32_t cfg_gen;
	uint32_t kicked; /* bit per queue, set by QueueNotify */
	uint32_t rule_breaks;
	uint32_t refused;  /* bit per queue: QueueReady = 1 was refused */
	bool is_resetting; /* ops->reset runs: registers do not answer */
	bool is_held;	   /* queues are not served (paused) */
	struct vq vq[VIRTIO_QUEUES_MAX];

	/* Set by the VM: raise the interrupt line; wake the I/O thread; tell
	 * that a rule was broken.  Called with `lock` held. */
	void (*raise)(void *ctx, unsigned line);
	void (*wake)(void *ctx);
	void (*broken)(void *ctx, struct virtio_dev *d, const char *what);
	void *ctx;
	unsigned line;
};

/* For creators: offered = feature bits without VERSION_1 and EVENT_IDX, which
 * every device of ours has. */
void virtio_dev_init(struct virtio_dev *d, const struct virtio_dev_ops *ops,
		     struct mem *mem, uint64_t offered);
void virtio_dev_finish(struct virtio_dev *d);

/* I/O thread: serve what was kicked; true = there is more at once. */
bool virtio_dev_serve(struct virtio_dev *d);

/* off < HUTCH_MMIO_SIZE; len 1..8; data has 8 bytes of room. */
void virtio_mmio_read(struct virtio_dev *d, uint32_t off, void *data,
		      uint32_t len);
void virtio_mmio_write(struct virtio_dev *d, uint32_t off, const void *data,
		       uint32_t len);

/* For devices, `lock` held. */
void virtio_dev_needs_reset(struct virtio_dev *d, const char *what);
/* Raise if vq_needs_irq(q); the second: without asking. */
void virtio_dev_irq_used(struct virtio_dev *d, struct vq *q);
void virtio_dev_raise_used(struct virtio_dev *d);

/* What a snapshot keeps of any device: plain numbers.  Load makes the same
 * checks as activation (hardening N5) and refuses with -EPROTO. */
struct virtio_state {
	uint64_t acked;
	uint32_t status, isr, cfg_gen, queue_sel, dev_feat_sel, drv_feat_sel;
	uint32_t kicked;
	struct {
		uint64_t desc, avail, used;
		uint16_t size, last_avail, used_idx, signalled;
		uint8_t is_ready, signalled_valid;
	} vq[VIRTIO_QUEUES_MAX];
};
void virtio_dev_save(const struct virtio_dev *d, struct virtio_state *s);
int virtio_dev_load(struct virtio_dev *d, const struct virtio_state *s);

/* Feature bits and status bits (spec 2.1, 6). */
#define VIRTIO_F_INDIRECT_DESC (1ull << 28)
#define VIRTIO_F_EVENT_IDX     (1ull << 29)
#define VIRTIO_F_VERSION_1     (1ull << 32)

enum virtio_status {
	VIRTIO_ACKNOWLEDGE = 1,
	VIRTIO_DRIVER = 2,
	VIRTIO_DRIVER_OK = 4,
	VIRTIO_FEATURES_OK = 8,
	VIRTIO_NEEDS_RESET = 64,
	VIRTIO_FAILED = 128,
};

enum virtio_isr { VIRTIO_ISR_USED = 1, VIRTIO_ISR_CONFIG = 2 };

#endif
