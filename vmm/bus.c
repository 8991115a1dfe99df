/* Ports and address windows; see bus.h. */
#include "bus.h"
#include "guest_abi.h"
#include "lane.h"
#include "vm.h"
#include <string.h>

static void out_power(struct vcpu *c, const uint8_t *data, uint32_t len)
{
	uint32_t v;

	(void)len;
	memcpy(&v, data, sizeof(v));
	if (v == HUTCH_POWER_OFF)
		vcpu_end(c, VMM_WHY_POWEROFF, "the guest powered off");
}

static void out_mark(struct vcpu *c, const uint8_t *data, uint32_t len)
{
	uint32_t v;

	(void)len;
	memcpy(&v, data, sizeof(v));
	trace_mark(c->vm->trace, c->idx, v, c->exits);
}

static void out_log(struct vcpu *c, const uint8_t *data, uint32_t len)
{
	struct vm *vm = c->vm;

	guest_log_add(&vm->log, data, len);
	/* --log is line buffered; a wake a byte would cost a write each. */
	if (vm->is_log_forwarded && memchr(data, '\n', len))
		notice_wake(&vm->notice);
}

static void out_pvx(struct vcpu *c, const uint8_t *data, uint32_t len)
{
	uint32_t v;

	(void)len;
	if (!c->vm->kvm.is_soft)
		return;
	memcpy(&v, data, sizeof(v));
	vcpu_count(&c->exits_pvx);
	pvx_request(&c->vm->pvx, &c->vm->mem, c->idx, c->fd, (gpa_t)v << 6);
}

/* Bounded by a huge page; the guest's other vCPUs see what they would see of
 * any vCPU that zeroes memory. */
static void out_clear(struct vcpu *c, const uint8_t *data, uint32_t len)
{
	uint32_t v, order;
	uint64_t bytes;
	uint8_t *p;
	gpa_t at;

	(void)len;
	memcpy(&v, data, sizeof(v));
	order = v & 15;
	at = (gpa_t)(v >> 4) << 12;
	bytes = 4096ull << order;
	if (!c->vm->kvm.is_soft || order > HUTCH_CLEAR_ORDER_MAX || at % bytes)
		return;
	p = mem_span(&c->vm->mem, at, bytes);
	if (p)
		memset(p, 0, bytes);
}

static void lane_act(struct vcpu *c, enum lane_verdict v)
{
	switch (v) {
	case LANE_GO_ON:
		break;
	case LANE_PARK:
		vcpu_park_all(c);
		break;
	case LANE_NAP:
		vcpu_nap(c, LANE_NAP_NS);
		break;
	case LANE_END:
		vcpu_end(c, VMM_WHY_DEVICE, "lanes: %u rings that mean nothing",
			 LANE_STRAYS_FREE + LANE_STRAYS_MAX);
		break;
	}
}

static void out_lane_page(struct vcpu *c, const uint8_t *data, uint32_t len)
{
	struct lanes *l = &c->vm->lanes;
	uint32_t v;

	if (len != sizeof(v)) {
		lane_act(c, lanes_break(l));
		return;
	}
	memcpy(&v, data, sizeof(v));
	lane_act(c, lanes_page(l, v));
}

static void out_lane_ring(struct vcpu *c, const uint8_t *data, uint32_t len)
{
	struct lanes *l = &c->vm->lanes;
	enum lane_verdict r;
	uint32_t v, state;

	if (len != sizeof(v)) {
		lane_act(c, lanes_break(l));
		return;
	}
	memcpy(&v, data, sizeof(v));
	r = lanes_ring(l, v, &state);
	trace_ring(c->vm->trace, c->idx, v, state, r == LANE_PARK);
	lane_act(c, r);
}

/* Writes that mean something.  Exact item size, 0 = any; `is_string`: a string
 * of items is one call, else only single items are taken. */
static const struct {
	uint16_t port;
	uint8_t size;
	uint8_t is_string;
	void (*out)(struct vcpu *c, const uint8_t *data, uint32_t len);
} ports[] = {
	{HUTCH_PORT_PVX, 4, 0, out_pvx},
	{HUTCH_PORT_CLEAR, 4, 0, out_clear},
	{HUTCH_PORT_LOG, 1, 1, out_log},
	{HUTCH_PORT_LANE_RING, 0, 1, out_lane_ring},
	{HUTCH_PORT_LANE_PAGE, 0, 1, out_lane_page},
	{HUTCH_PORT_MARK, 4, 0, out_mark},
	{HUTCH_PORT_POWER, 4, 0, out_power},
};

void bus_port(struct vcpu *c, uint16_t port, uint8_t size, uint32_t count,
	      uint8_t *data, int is_write)
{
	if (!is_write) {
		memset(data, 0xff, (size_t)size * count);
		return;
	}
	for (size_t i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
		if (ports[i].port != port)
			continue;
		if ((ports[i].size == size || ports[i].size == 0) &&
		    (ports[i].is_string || count == 1))
			ports[i].out(c, data, size * count);
		return;
	}
}

void bus_mmio(struct vcpu *c, uint64_t addr, uint8_t *data, uint32_t len,
	      int is_write)
{
	struct vm *vm = c->vm;
	uint64_t off = addr - HUTCH_MMIO_BASE;
	uint32_t reg = (uint32_t)(addr % HUTCH_MMIO_SIZE);

	if (addr >= HUTCH_MMIO_BASE && off / HUTCH_MMIO_SIZE < vm->n_devices) {
		struct virtio_dev *d = vm->device[off / HUTCH_MMIO_SIZE];

		if (is_write)
			virtio_mmio_write(d, reg, data, len);
		else
			virtio_mmio_read(d, reg, data, len);
	} else if (addr >= IOAPIC_GPA && addr - IOAPIC_GPA < IOAPIC_BYTES) {
		if (is_write)
			ioapic_write(&vm->ioapic, reg, data, len);
		else
			ioapic_read(&vm->ioapic, reg, data, len);
	} else if (!is_write) {
		memset(data, 0xff, len);
	}
}
