/* The scripted driver; see guest.h. */
#include "guest.h"
#include <dirent.h>
#include <string.h>
#include <time.h>

#define CANARY 0xc5

static void step(struct guest *g)
{
	static const struct timespec nap = {.tv_nsec = 20000};

	if (g->has_io_thread)
		nanosleep(&nap, NULL);
	else
		io_step(g->io);
}

static void on_raise(void *ctx, unsigned line)
{
	struct guest *g = ctx;

	(void)line;
	g->n_irqs++;
}

static void on_wake(void *ctx)
{
	struct guest *g = ctx;

	io_wake(g->io);
}

static void on_broken(void *ctx, struct virtio_dev *d, const char *what)
{
	struct guest *g = ctx;

	(void)d;
	g->n_broken++;
	g->broken = what;
}

void guest_init(struct guest *g, struct mem *mem, struct io *io,
		struct virtio_dev *d)
{
	gpa_t at = mem->size - GUEST_RINGS_BYTES;

	*g = (struct guest){
		.mem = mem, .io = io, .d = d, .n_queues = d->ops->n_queues};
	d->raise = on_raise;
	d->wake = on_wake;
	d->broken = on_broken;
	d->ctx = g;
	for (unsigned i = 0; i < g->n_queues; i++) {
		struct gq *q = &g->q[i];
		size_t used = 4 + 8u * d->ops->queue_max[i] + 2;

		q->size = d->ops->queue_max[i];
		q->desc = at;
		at += UINT64_C(16) * q->size;
		q->avail = at;
		at += 4 + 2u * q->size + 2;
		at = (at + 3) & ~(gpa_t)3;
		q->used = at;
		at += used;
		at = (at + 15) & ~(gpa_t)15;
	}
	/* The last used ring goes to the very end of RAM. */
	g->q[g->n_queues - 1].used =
		(mem->size - (4 + 8u * g->q[g->n_queues - 1].size + 2)) &
		~(gpa_t)3;
	g->alloc_at = 4096;
}

void guest_canary_fill(struct mem *mem)
{
	memset(mem_span(mem, GUEST_CANARY_AT, GUEST_CANARY_BYTES), CANARY,
	       GUEST_CANARY_BYTES);
}

void guest_canary_check(const struct mem *mem)
{
	static uint8_t now[GUEST_CANARY_BYTES];

	assert_int_equal(mem_read(mem, GUEST_CANARY_AT, now, sizeof(now)), 0);
	for (size_t i = 0; i < sizeof(now); i++)
		assert_int_equal(now[i], CANARY);
}

uint32_t guest_rd(struct guest *g, uint32_t off)
{
	uint8_t data[8];
	uint32_t v;

	virtio_mmio_read(g->d, off, data, 4);
	memcpy(&v, data, sizeof(v));
	return v;
}

void guest_wr(struct guest *g, uint32_t off, uint32_t v)
{
	uint8_t data[8] = {0};

	memcpy(data, &v, sizeof(v));
	virtio_mmio_write(g->d, off, data, 4);
}

uint32_t guest_status(struct guest *g)
{
	return guest_rd(g, R_STATUS);
}

void guest_negotiate(struct guest *g)
{
	guest_wr(g, R_STATUS, S_ACK);
	guest_wr(g, R_STATUS, S_DRIVER);
	for (uint32_t sel = 0; sel < 2; sel++) {
		uint32_t f;

		guest_wr(g, R_DEV_FEAT_SEL, sel);
		f = guest_rd(g, R_DEV_FEAT);
		f &= ~(uint32_t)(g->drop_features >> 32 * sel);
		guest_wr(g, R_DRV_FEAT_SEL, sel);
		guest_wr(g, R_DRV_FEAT, f);
	}
	guest_wr(g, R_STATUS, S_FEATURES);
}

static void addr_wr(struct guest *g, uint32_t off, gpa_t at)
{
	guest_wr(g, off, (uint32_t)at);
	guest_wr(g, off + 4, (uint32_t)(at >> 32));
}

void guest_queue_set(struct guest *g, unsigned i)
{
	const struct gq *q = &g->q[i];

	guest_wr(g, R_QSEL, i);
	guest_wr(g, R_QNUM, q->size);
	addr_wr(g, R_DESC, q->desc);
	addr_wr(g, R_AVAIL, q->avail);
	addr_wr(g, R_USED, q->used);
	guest_wr(g, R_QREADY, 1);
}

/* Rings as a driver's fresh allocation. */
static void rings_clear(struct guest *g)
{
	for (unsigned i = 0; i < g->n_queues; i++) {
		struct gq *q = &g->q[i];

		guest_fill(g, q->desc, 0, UINT64_C(16) * q->size);
		guest_fill(g, q->avail, 0, 4 + 2u * q->size + 2);
		guest_fill(g, q->used, 0, 4 + 8u * q->size + 2);
		q->avail_idx = q->used_seen = q->next_desc = 0;
	}
}

void guest_start(struct guest *g)
{
	rings_clear(g);
	guest_negotiate(g);
	assert_int_equal(guest_status(g), S_FEATURES);
	for (unsigned i = 0; i < g->n_queues; i++) {
		guest_queue_set(g, i);
		assert_int_equal(guest_rd(g, R_QREADY), 1);
	}
	guest_wr(g, R_STATUS, S_LIVE);
	assert_int_equal(guest_status(g), S_LIVE);
}

void guest_reset(struct guest *g)
{
	guest_wr(g, R_STATUS, 0);
	assert_int_equal(guest_status(g), 0);
	g->n_broken = 0;
	g->broken = NULL;
}

static void *stepper(void *arg)
{
	struct guest *g = arg;

	while (!atomic_load(&g->stop_steps))
		io_step(g->io);
	return NULL;
}

void guest_reset_with_io(struct guest *g)
{
	pthread_t t;

	atomic_store(&g->stop_steps, false);
	assert_int_equal(pthread_create(&t, NULL, stepper, g), 0);
	guest_reset(g);
	atomic_store(&g->stop_steps, true);
	pthread_join(t, NULL);
}

gpa_t guest_alloc(struct guest *g, size_t len)
{
	gpa_t at = g->alloc_at;

	g->alloc_at = (at + len + 15) & ~(gpa_t)15;
	assert_true(g->alloc_at <= GUEST_CANARY_AT);
	return at;
}

void guest_free_all(struct guest *g)
{
	g->alloc_at = 4096;
}

void guest_put(struct guest *g, gpa_t at, const void *src, size_t len)
{
	assert_int_equal(mem_write(g->mem, at, src, len), 0);
}

void guest_get(struct guest *g, gpa_t at, void *dst, size_t len)
{
	assert_int_equal(mem_read(g->mem, at, dst, len), 0);
}

void guest_fill(struct guest *g, gpa_t at, uint8_t byte, size_t len)
{
	void *p = mem_span(g->mem, at, len);

	assert_non_null(p);
	memset(p, byte, len);
}

void guest_desc(struct guest *g, unsigned q, uint16_t i, gpa_t addr,
		uint32_t len, uint16_t flags, uint16_t next)
{
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} d = {addr, len, flags, next};

	guest_put(g, g->q[q].desc + UINT64_C(16) * i, &d, sizeof(d));
}

void guest_avail_idx(struct guest *g, unsigned q, uint16_t idx)
{
	g->q[q].avail_idx = idx;
	assert_int_equal(mem_store16_release(g->mem, g->q[q].avail + 2, idx),
			 0);
}

void guest_avail(struct guest *g, unsigned q, uint16_t head)
{
	struct gq *gq = &g->q[q];

	guest_put(g, gq->avail + 4 + UINT64_C(2) * (gq->avail_idx % gq->size),
		  &head, sizeof(head));
	guest_avail_idx(g, q, (uint16_t)(gq->avail_idx + 1));
}

uint16_t guest_used_idx(struct guest *g, unsigned q)
{
	uint16_t v = 0;

	assert_int_equal(mem_load16_acquire(g->mem, g->q[q].used + 2, &v), 0);
	return v;
}

uint16_t guest_avail_event(struct guest *g, unsigned q)
{
	uint16_t v = 0;

	guest_get(g, g->q[q].used + 4 + UINT64_C(8) * g->q[q].size, &v,
		  sizeof(v));
	return v;
}

void guest_used_event(struct guest *g, unsigned q, uint16_t v)
{
	guest_put(g, g->q[q].avail + 4 + UINT64_C(2) * g->q[q].size, &v,
		  sizeof(v));
}

uint16_t guest_chain(struct guest *g, unsigned q, const struct gbuf *b,
		     unsigned n)
{
	struct gq *gq = &g->q[q];
	uint16_t head = gq->next_desc;

	for (unsigned i = 0; i < n; i++) {
		uint16_t at = gq->next_desc;
		uint16_t next = (uint16_t)((at + 1) % gq->size);
		uint16_t flags = b[i].is_out ? F_WRITE : 0;

		if (i + 1 < n)
			flags |= F_NEXT;
		guest_desc(g, q, at, b[i].at, b[i].len, flags, next);
		gq->next_desc = next;
	}
	guest_avail(g, q, head);
	return head;
}

void guest_run(struct guest *g)
{
	for (int i = 0; i < 4; i++)
		step(g);
}

void guest_kick(struct guest *g, unsigned q)
{
	guest_wr(g, R_NOTIFY, q);
	guest_run(g);
}

bool guest_used_now(struct guest *g, unsigned q, uint32_t *id, uint32_t *len)
{
	struct gq *gq = &g->q[q];
	uint32_t e[2];

	if (guest_used_idx(g, q) == gq->used_seen)
		return false;
	guest_get(g, gq->used + 4 + UINT64_C(8) * (gq->used_seen % gq->size), e,
		  sizeof(e));
	gq->used_seen++;
	if (id)
		*id = e[0];
	if (len)
		*len = e[1];
	return true;
}

bool guest_used(struct guest *g, unsigned q, uint32_t *id, uint32_t *len)
{
	static const struct timespec nap = {.tv_nsec = 200000};

	for (int i = 0; i < GUEST_WAIT_MS * 5; i++) {
		if (guest_used_now(g, q, id, len))
			return true;
		step(g);
		if (guest_used_now(g, q, id, len))
			return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

unsigned fds_count(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
