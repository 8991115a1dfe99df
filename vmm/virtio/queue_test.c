/*
 * Virtqueues of 2 and 4 entries, exhaustively: every descriptor table over a
 * small alphabet of flags and links, against a model written from the
 * specification alone.  Loads of guest memory are counted: a pop reads each
 * descriptor at most once and never more than the queue has.
 */
#define MEM_TRACE
#include "../mem.c"
#include "queue.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#define RAM	 (1u << 20)
#define DESC_AT	 0x1000u
#define AVAIL_AT 0x2000u
#define USED_AT	 (RAM - (4u + 8u * 4u + 2u) - 2u) /* ends at the guard */

static struct mem ram;
static unsigned n_loads, n_desc_loads[4];

static void on_load(const void *host, size_t len)
{
	size_t at = (size_t)((const uint8_t *)host - ram.host);

	n_loads++;
	if (at >= DESC_AT && at < DESC_AT + 4 * DESC_BYTES) {
		assert_int_equal(len, DESC_BYTES);
		n_desc_loads[(at - DESC_AT) / DESC_BYTES]++;
	}
}

static struct vq queue_of(uint16_t size)
{
	struct vq q = {.mem = &ram,
		       .size = size,
		       .is_ready = true,
		       .has_event_idx = true,
		       .desc = DESC_AT,
		       .avail = AVAIL_AT,
		       .used = USED_AT};

	assert_int_equal(vq_check(&q), 0);
	return q;
}

/* What section 2.7 allows: bytes in and out of the chain, or -1. */
struct verdict {
	bool is_good;
	unsigned n_in, n_out;
};

static struct verdict model(const struct desc *d, unsigned size, unsigned head)
{
	struct verdict v = {0};
	unsigned at = head;

	if (head >= size)
		return v;
	for (unsigned n = 1;; n++) {
		if (n > size || d[at].flags & 4)
			return (struct verdict){0};
		if (d[at].flags & 2)
			v.n_out++;
		else if (v.n_out)
			return (struct verdict){0};
		else
			v.n_in++;
		if (!(d[at].flags & 1))
			break;
		at = d[at].next;
		if (at >= size)
			return (struct verdict){0};
	}
	v.is_good = true;
	return v;
}

static void pop_one(struct desc *d, uint16_t size, uint16_t head,
		    struct vq_chain *c)
{
	struct verdict want = model(d, size, head);
	struct vq q = queue_of(size);
	int r;

	mem_write(&ram, AVAIL_AT + 4, &head, 2);
	mem_store16_release(&ram, AVAIL_AT + 2, 1);
	n_loads = 0;
	memset(n_desc_loads, 0, sizeof(n_desc_loads));
	r = vq_pop(&q, c);
	assert_int_equal(r, want.is_good ? 1 : -EPROTO);
	assert_true(n_loads <= size + 2u); /* idx, entry, descriptors */
	for (unsigned i = 0; i < size; i++)
		assert_true(n_desc_loads[i] <= 1);
	if (r < 0) {
		assert_int_equal(q.n_out, 0);
		return;
	}
	assert_int_equal(c->n_in, want.n_in);
	assert_int_equal(c->n_out, want.n_out);
	assert_int_equal(c->in_len, want.n_in);
	assert_int_equal(c->out_len, want.n_out);
	for (unsigned i = 0; i < c->n_in + c->n_out; i++)
		assert_true(c->span[i].host >= ram.host &&
			    c->span[i].host < ram.host + RAM);
	assert_int_equal(vq_pop(&q, c), 0);
	vq_push(&q, head, 0);
	assert_int_equal(q.n_out, 0);
}

static void every_table(void **state)
{
	static const uint16_t flags[] = {0, 1, 2, 3, 5};
	struct vq_chain c;
	unsigned long n = 0;

	(void)state;
	for (uint16_t size = 2; size <= 4; size += 2) {
		unsigned kinds = 5u * (size + 1u), total = 1;
		struct desc d[4] = {0};

		for (unsigned i = 0; i < size; i++)
			total *= kinds;
		for (unsigned t = 0; t < total; t++) {
			unsigned rest = t;

			for (unsigned i = 0; i < size; i++) {
				unsigned k = rest % kinds;

				rest /= kinds;
				d[i] = (struct desc){.addr = 0x4000 + i,
						     .len = 1,
						     .flags = flags[k % 5],
						     .next = (uint16_t)(k / 5)};
			}
			mem_write(&ram, DESC_AT, d, sizeof(d[0]) * size);
			for (uint16_t head = 0; head <= size; head++, n++)
				pop_one(d, size, head, &c);
		}
	}
	print_message("# count=%lu\n", n);
}

/* Every avail.idx against several places of our own shadow. */
static void every_avail_idx(void **state)
{
	static const uint16_t shadow[] = {0, 1, 3, 0x7fff, 0xfffc, 0xffff};
	struct desc d[4] = {{0x4000, 1, 0, 0},
			    {0x4000, 1, 0, 0},
			    {0x4000, 1, 0, 0},
			    {0x4000, 1, 0, 0}};
	uint16_t heads[4] = {0, 1, 2, 3};
	struct vq_chain c;

	(void)state;
	mem_write(&ram, DESC_AT, d, sizeof(d));
	mem_write(&ram, AVAIL_AT + 4, heads, sizeof(heads));
	for (unsigned s = 0; s < 6; s++) {
		for (uint32_t idx = 0; idx < 65536; idx++) {
			uint16_t ahead = (uint16_t)(idx - shadow[s]);
			struct vq q = queue_of(4);
			uint16_t n = 0;
			int r;

			q.last_avail = q.used_idx = shadow[s];
			mem_store16_release(&ram, AVAIL_AT + 2, (uint16_t)idx);
			while ((r = vq_pop(&q, &c)) == 1)
				n++;
			assert_int_equal(n, ahead <= 4 ? ahead : 0);
			assert_int_equal(r, ahead <= 4 ? 0 : -EPROTO);
			assert_int_equal(q.n_out, n);
		}
	}
}

/* vq_needs_irq against its definition: used_event lies in (old, now]. */
static void every_used_event(void **state)
{
	static const uint16_t olds[] = {0, 5, 0x7ffe, 0xfffd, 0xffff};

	(void)state;
	for (unsigned o = 0; o < 5; o++) {
		for (uint16_t step = 0; step <= 4; step++) {
			for (uint32_t e = 0; e < 65536; e++) {
				struct vq q = queue_of(4);
				bool want = false;

				q.signalled = olds[o];
				q.signalled_valid = true;
				q.used_idx = (uint16_t)(olds[o] + step);
				mem_store16_release(&ram, AVAIL_AT + 4 + 8,
						    (uint16_t)e);
				for (uint16_t i = 0; i < step; i++)
					if ((uint16_t)(olds[o] + i) == e)
						want = true;
				assert_int_equal(vq_needs_irq(&q), want);
				assert_false(vq_needs_irq(&q));
			}
		}
	}
}

static void b11_buffer_over_the_gap(void **state)
{
	struct mem big;
	struct vq q = queue_of(4);
	struct desc d = {MEM_GAP_START - 4, 8, 0, 0};
	uint16_t head = 0;
	struct vq_chain c;

	(void)state;
	assert_int_equal(mem_init(&big, MEM_GAP_START + RAM), 0);
	q.mem = &big;
	for (unsigned i = 0; i < 3; i++) {
		static const gpa_t at[] = {MEM_GAP_START - 4, MEM_GAP_END - 4,
					   MEM_GAP_END + RAM - 4};

		d.addr = at[i];
		mem_write(&big, DESC_AT, &d, sizeof(d));
		mem_write(&big, AVAIL_AT + 4, &head, 2);
		mem_store16_release(&big, AVAIL_AT + 2, 1);
		assert_int_equal(vq_pop(&q, &c), -EPROTO);
	}
	d.addr = MEM_GAP_END;
	mem_write(&big, DESC_AT, &d, sizeof(d));
	assert_int_equal(vq_pop(&q, &c), 1);
	/* Rings over the gap are refused as well. */
	q.desc = MEM_GAP_START - 16;
	assert_int_equal(vq_check(&q), -EINVAL);
	q.desc = MEM_GAP_START - 64;
	assert_int_equal(vq_check(&q), 0);
	q.avail = MEM_GAP_START - 8;
	assert_int_equal(vq_check(&q), -EINVAL);
	mem_finish(&big);
}

static void copies_by_offset(void **state)
{
	uint8_t src[64], dst[64];
	struct vq_chain c = {.n_in = 3, .n_out = 2, .in_len = 10, .out_len = 7};
	struct iovec v[8];

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		src[i] = (uint8_t)i;
	mem_write(&ram, 0x8000, src, 64);
	c.span[0] = (struct vq_span){mem_span(&ram, 0x8000, 1), 1};
	c.span[1] = (struct vq_span){mem_span(&ram, 0x8001, 4), 4};
	c.span[2] = (struct vq_span){mem_span(&ram, 0x8005, 5), 5};
	c.span[3] = (struct vq_span){mem_span(&ram, 0x9000, 3), 3};
	c.span[4] = (struct vq_span){mem_span(&ram, 0x9010, 4), 4};
	for (size_t off = 0; off <= 12; off++) {
		for (size_t len = 0; len <= 12; len++) {
			size_t left = off < 10 ? 10 - off : 0;
			size_t want = len < left ? len : left;
			int n = vq_in_iov(&c, off, len, v, 8);
			size_t sum = 0;

			assert_int_equal(vq_in(&c, off, dst, len), want);
			assert_memory_equal(dst, src + off, want);
			assert_int_equal(n >= 0, len <= left);
			for (int i = 0; i < n; i++)
				sum += v[i].iov_len;
			if (n >= 0)
				assert_int_equal(sum, len);
		}
	}
	assert_int_equal(vq_in_iov(&c, 0, 10, v, 2), -E2BIG);
	assert_int_equal(vq_out(&c, 2, src, 64), 5);
	mem_read(&ram, 0x9000, dst, 20);
	assert_int_equal(dst[2], 0);
	assert_int_equal(dst[3], 0); /* behind the span: as it was */
	assert_memory_equal(dst + 16, src + 1, 4);
}

static int up(void **state)
{
	(void)state;
	mem_trace_load = on_load;
	return mem_init(&ram, RAM);
}

static int down(void **state)
{
	(void)state;
	mem_finish(&ram);
	return 0;
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_table),	CASE(every_avail_idx),
		CASE(every_used_event), CASE(b11_buffer_over_the_gap),
		CASE(copies_by_offset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
