/* MP tables; see mptable.h.  Field names follow the specification. */
#include "mptable.h"
#include "../kvm.h"
#include "boot.h"
#include "ioapic.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

#define MP_VERSION     4 /* 1.4 */
#define LAPIC_GPA      0xfee00000u
#define LAPIC_VERSION  0x14
#define IOAPIC_ID      VCPUS_MAX
#define IOAPIC_VERSION 0x11
#define ISA_IRQS       16

enum { MP_PROCESSOR, MP_BUS, MP_IOAPIC, MP_IOINT, MP_LINT };
enum { MP_INT, MP_NMI, MP_SMI, MP_EXTINT };
#define MP_CPU_ENABLED	  1
#define MP_CPU_BSP	  2
#define MP_IOAPIC_ENABLED 1
#define MP_ALL_LAPICS	  0xff

struct mp_pointer {
	char signature[4];
	uint32_t table;
	uint8_t length, version, checksum, feature[5];
} __attribute__((packed));

struct mp_head {
	char signature[4];
	uint16_t length;
	uint8_t version, checksum;
	char oem[8], product[12];
	uint32_t oem_table;
	uint16_t oem_length, count;
	uint32_t lapic;
	uint16_t ext_length;
	uint8_t ext_checksum, reserved;
} __attribute__((packed));

struct mp_cpu {
	uint8_t type, apic_id, apic_version, flags;
	uint32_t signature, features, reserved[2];
} __attribute__((packed));

struct mp_bus {
	uint8_t type, id;
	char name[6];
} __attribute__((packed));

struct mp_ioapic {
	uint8_t type, id, version, flags;
	uint32_t addr;
} __attribute__((packed));

struct mp_int {
	uint8_t type, kind;
	uint16_t flags; /* 0: conforms to the bus, for ISA an edge */
	uint8_t bus, bus_irq, dest, dest_pin;
} __attribute__((packed));

struct mp_tables {
	struct mp_pointer pointer;
	struct mp_head head;
	uint8_t entries[VCPUS_MAX * sizeof(struct mp_cpu) +
			sizeof(struct mp_bus) + sizeof(struct mp_ioapic) +
			(ISA_IRQS + 2) * sizeof(struct mp_int)];
} __attribute__((packed));
static_assert(sizeof(struct mp_tables) <= BOOT_MPTABLE_BYTES, "fits");

static uint8_t checksum(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint8_t sum = 0;

	while (len--)
		sum += *p++;
	return (uint8_t)-sum;
}

static void add(struct mp_tables *t, const void *entry, size_t len)
{
	size_t at = t->head.length - sizeof(t->head);

	memcpy(t->entries + at, entry, len);
	t->head.length += (uint16_t)len;
	t->head.count++;
}

static void add_interrupts(struct mp_tables *t)
{
	for (uint8_t i = 0; i < ISA_IRQS; i++) {
		struct mp_int n = {
			.type = MP_IOINT,
			.kind = MP_INT,
			.bus_irq = i,
			.dest = IOAPIC_ID,
			.dest_pin = i,
		};
		add(t, &n, sizeof(n));
	}
	add(t, &(struct mp_int){.type = MP_LINT, .kind = MP_EXTINT},
	    sizeof(struct mp_int));
	add(t,
	    &(struct mp_int){.type = MP_LINT,
			     .kind = MP_NMI,
			     .dest = MP_ALL_LAPICS,
			     .dest_pin = 1},
	    sizeof(struct mp_int));
}

int mptable_write(struct mem *m, unsigned n_vcpus)
{
	struct mp_bus bus = {.type = MP_BUS};
	struct mp_ioapic ioapic = {
		.type = MP_IOAPIC,
		.id = IOAPIC_ID,
		.version = IOAPIC_VERSION,
		.flags = MP_IOAPIC_ENABLED,
		.addr = (uint32_t)IOAPIC_GPA,
	};
	struct mp_tables t;

	if (n_vcpus > VCPUS_MAX)
		return -EINVAL;
	memset(&t, 0, sizeof(t));
	memcpy(t.head.signature, "PCMP", 4);
	memcpy(t.head.oem, "HUTCH   ", 8);
	memcpy(t.head.product, "MICROVM     ", 12);
	t.head.version = MP_VERSION;
	t.head.lapic = LAPIC_GPA;
	t.head.length = sizeof(t.head);
	for (unsigned i = 0; i < n_vcpus; i++) {
		struct mp_cpu c = {
			.type = MP_PROCESSOR,
			.apic_id = (uint8_t)i,
			.apic_version = LAPIC_VERSION,
			.flags = MP_CPU_ENABLED | (i ? 0 : MP_CPU_BSP),
		};
		add(&t, &c, sizeof(c));
	}
	memcpy(bus.name, "ISA   ", sizeof(bus.name));
	add(&t, &bus, sizeof(bus));
	add(&t, &ioapic, sizeof(ioapic));
	add_interrupts(&t);
	t.head.checksum = checksum(&t.head, t.head.length);

	memcpy(t.pointer.signature, "_MP_", 4);
	t.pointer.table = (uint32_t)(BOOT_MPTABLE_GPA + sizeof(t.pointer));
	t.pointer.length = sizeof(t.pointer) / 16;
	t.pointer.version = MP_VERSION;
	t.pointer.checksum = checksum(&t.pointer, sizeof(t.pointer));
	return mem_write(m, BOOT_MPTABLE_GPA, &t, sizeof(t));
}
