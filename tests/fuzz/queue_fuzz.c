/*
 * Fuzz: the split virtqueue alone.
 *
 * Input: size and features, then for each descriptor a few bytes (address,
 * length, flags, next: mostly in range, now and then anything), then steps:
 * make heads available, pop, push, ask for an interrupt, write anywhere into
 * the rings.  What vq_pop gives out is held against the rules: all spans in
 * RAM, sums right, no head twice.
 */
#include "../../vmm/virtio/virtio.h"
#include "fuzz.h"
#include "input.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RAM	 (64u << 10)
#define DESC_AT	 0x1000u
#define AVAIL_AT 0x3000u
#define USED_AT	 0x4000u

static struct mem ram;

static void check(bool is_true)
{
	if (!is_true)
		abort();
}

static void desc_put(struct in *in, uint16_t i, uint16_t size)
{
	/* Chains that end, most of them. */
	static const uint8_t flags[] = {0, 2, 0, 2, 1, 3, 1, 0};
	struct {
		uint64_t addr;
		uint32_t len;
		uint16_t flags, next;
	} d = {
		.addr = in_u16(in),
		.len = in_u8(in) * 16u,
		.flags = flags[in_u8(in) % 8],
		.next = in_u8(in) % size,
	};

	if (in_rarely(in))
		d.addr = in_edge(in);
	if (in_rarely(in))
		d.len = (uint32_t)in_edge(in);
	if (in_rarely(in))
		d.flags = in_u16(in);
	if (in_rarely(in))
		d.next = in_u16(in);
	mem_write(&ram, DESC_AT + 16u * i, &d, sizeof(d));
}

static void chain_check(const struct vq *q, const struct vq_chain *c)
{
	uint64_t in_len = 0, out_len = 0;
	uint8_t byte;

	check(c->head < q->size && c->n_in + c->n_out <= q->size);
	for (unsigned i = 0; i < c->n_in + c->n_out; i++) {
		const struct vq_span *s = &c->span[i];

		check(s->host >= ram.host && s->len > 0 &&
		      s->len <= (size_t)(ram.host + RAM - s->host));
		*(i < c->n_in ? &in_len : &out_len) += s->len;
	}
	check(in_len == c->in_len && out_len == c->out_len);
	check(vq_in(c, c->in_len, &byte, 1) == 0);
	if (in_len > 0)
		check(vq_in(c, c->in_len - 1, &byte, 1) == 1);
	if (out_len > 0)
		check(vq_out(c, c->out_len - 1, "x", 1) == 1);
	check(vq_out(c, c->out_len, "x", 1) == 0);
}

static void steps(struct in *in, struct vq *q)
{
	static struct vq_chain c;
	uint16_t held[VIRTIO_QUEUE_SIZE_MAX], n_held = 0, idx = 0, head;

	for (unsigned n = 0; n < 2 || in->len > 0; n++) {
		/* The first two make a head available and take it. */
		uint8_t op = n < 2 ? (uint8_t)(2 * n) : in_u8(in);

		switch (op % 8) {
		case 0:
		case 1:
			head = in_u8(in) % q->size;
			if (in_rarely(in))
				head = in_u16(in);
			mem_write(&ram, AVAIL_AT + 4 + 2u * (idx % q->size),
				  &head, 2);
			idx = (uint16_t)(idx + (in_rarely(in) ? op : 1));
			mem_store16_release(&ram, AVAIL_AT + 2, idx);
			break;
		case 2:
		case 3:
			switch (vq_pop(q, &c)) {
			case 1:
				fuzz_reach();
				chain_check(q, &c);
				held[n_held++] = c.head;
				check(n_held == q->n_out);
				break;
			case -EPROTO:
				return; /* the device is broken now */
			default:
				break;
			}
			break;
		case 4:
			if (n_held > 0)
				vq_push(q, held[--n_held], in_u8(in));
			break;
		case 5:
			vq_needs_irq(q);
			vq_has_work(q);
			break;
		case 6: /* anywhere into the rings */
			head = in_u16(in);
			mem_write(&ram, DESC_AT + in_u16(in) % 0x4000u, &head,
				  2);
			break;
		case 7:
			desc_put(in, in_u8(in) % q->size, q->size);
			break;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct in in = {data, len};
	struct vq q = {.mem = &ram,
		       .is_ready = true,
		       .desc = DESC_AT,
		       .avail = AVAIL_AT,
		       .used = USED_AT};

	fuzz_begin();
	fuzz_reach_want(50);
	if (!ram.host && mem_init(&ram, RAM) < 0)
		abort();
	memset(ram.host, 0, RAM);
	q.size = (uint16_t)(1u << in_u8(&in) % 9);
	q.has_event_idx = in_u8(&in) & 1;
	check(vq_check(&q) == 0);
	for (uint16_t i = 0; i < q.size && i < 16; i++)
		desc_put(&in, i, q.size);
	steps(&in, &q);
	return 0;
}
