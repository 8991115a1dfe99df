/*
 * A guest without a CPU: drives one virtio device from the test's own thread,
 * register by register and descriptor by descriptor, as well or as badly as
 * the test likes.
 *
 * Guest RAM is made by mem_init, so a PROT_NONE page follows its last byte and
 * precedes its first.  Rings lie at the end of RAM: the used ring of the last
 * queue ends a few bytes before the guard.  A part of RAM that no request
 * names is filled with a pattern (the canary) and compared after every case.
 *
 *	0        descriptors' buffers, by guest_alloc
 *	CANARY   64 KiB, never given to a device
 *	end      rings
 */
#ifndef HUTCH_TEST_GUEST_H
#define HUTCH_TEST_GUEST_H

#include "../../vmm/io.h"
#include "../../vmm/virtio/virtio.h"
#include "registers.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#define GUEST_RAM_BYTES	   (4u << 20)
#define GUEST_CANARY_AT	   (2u << 20)
#define GUEST_CANARY_BYTES (64u << 10)
#define GUEST_RINGS_BYTES  (64u << 10)
#define GUEST_WAIT_MS	   5000

enum desc_flag { F_NEXT = 1, F_WRITE = 2, F_INDIRECT = 4 };

enum {
	S_ACK = VIRTIO_ACKNOWLEDGE,
	S_DRIVER = S_ACK | VIRTIO_DRIVER,
	S_FEATURES = S_DRIVER | VIRTIO_FEATURES_OK,
	S_LIVE = S_FEATURES | VIRTIO_DRIVER_OK,
};

struct gq {
	uint16_t size;
	gpa_t desc, avail, used;
	uint16_t avail_idx, used_seen;
	uint16_t next_desc; /* simple round robin of descriptors */
};

struct guest {
	struct mem *mem;      /* borrowed */
	struct io *io;	      /* borrowed */
	struct virtio_dev *d; /* borrowed */
	unsigned n_queues;
	struct gq q[VIRTIO_QUEUES_MAX];
	uint64_t drop_features; /* offered ones not to take */
	gpa_t alloc_at;
	unsigned n_irqs, n_broken;
	const char *broken;
	atomic_bool stop_steps;
	bool has_io_thread; /* io_run has its own: nothing is stepped here */
};

/* Hook the device's callbacks and lay the rings out; no register is touched. */
void guest_init(struct guest *g, struct mem *mem, struct io *io,
		struct virtio_dev *d);
void guest_canary_fill(struct mem *mem);
void guest_canary_check(const struct mem *mem);

uint32_t guest_rd(struct guest *g, uint32_t off);
void guest_wr(struct guest *g, uint32_t off, uint32_t v);
uint32_t guest_status(struct guest *g);

/* The steps of a well-behaved driver, one by one and all at once. */
void guest_negotiate(struct guest *g); /* to FEATURES_OK */
void guest_queue_set(struct guest *g, unsigned q);
void guest_start(struct guest *g); /* to DRIVER_OK, from reset */
void guest_reset(struct guest *g);
/* The same while requests may be in flight: another thread serves io. */
void guest_reset_with_io(struct guest *g);

/* Buffers: 16-byte aligned, below the canary; guest_free_all forgets them. */
gpa_t guest_alloc(struct guest *g, size_t len);
void guest_free_all(struct guest *g);
void guest_put(struct guest *g, gpa_t at, const void *src, size_t len);
void guest_get(struct guest *g, gpa_t at, void *dst, size_t len);
void guest_fill(struct guest *g, gpa_t at, uint8_t byte, size_t len);

void guest_desc(struct guest *g, unsigned q, uint16_t i, gpa_t addr,
		uint32_t len, uint16_t flags, uint16_t next);
/* Put a head into the avail ring and move idx by one. */
void guest_avail(struct guest *g, unsigned q, uint16_t head);
void guest_avail_idx(struct guest *g, unsigned q, uint16_t idx);
uint16_t guest_used_idx(struct guest *g, unsigned q);
uint16_t guest_avail_event(struct guest *g, unsigned q);
void guest_used_event(struct guest *g, unsigned q, uint16_t v);

struct gbuf {
	gpa_t at;
	uint32_t len;
	bool is_out; /* device writes */
};
/* A chain in the next free descriptors; returns its head, made available. */
uint16_t guest_chain(struct guest *g, unsigned q, const struct gbuf *b,
		     unsigned n);

/* Notify and let the I/O thread's work run. */
void guest_kick(struct guest *g, unsigned q);
void guest_run(struct guest *g); /* a few turns */
/* Wait for the next used element: true, and id and len. */
bool guest_used(struct guest *g, unsigned q, uint32_t *id, uint32_t *len);
/* The same without waiting. */
bool guest_used_now(struct guest *g, unsigned q, uint32_t *id, uint32_t *len);

#define assert_broken(g)                                                       \
	do {                                                                   \
		assert_true(guest_status(g) & VIRTIO_NEEDS_RESET);             \
		assert_int_equal((g)->n_broken, 1);                            \
	} while (0)
#define assert_live(g) assert_int_equal(guest_status(g), S_LIVE)

/* Does the kernel give us an io_uring?  Says so when it does not. */
bool ring_is_here(void);
/* Descriptors of this process that are open now. */
unsigned fds_count(void);

#endif
