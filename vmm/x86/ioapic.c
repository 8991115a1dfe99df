/* The I/O APIC; see ioapic.h.  Registers: Intel 82093AA data sheet. */
#include "ioapic.h"
#include <errno.h>
#include <string.h>

#define OFF_SELECT  0x00
#define OFF_WINDOW  0x10
#define REG_ID	    0x00
#define REG_VERSION 0x01
#define REG_ARB	    0x02
#define REG_ENTRY   0x10
#define VERSION	    (0x11u | (IOAPIC_N_PINS - 1) << 16)

#define ENTRY_VECTOR	     0xffull
#define ENTRY_DELIVERY_SHIFT 8
#define ENTRY_LOGICAL	     (1ull << 11)
#define ENTRY_STATUS	     (1ull << 12) /* read only */
#define ENTRY_REMOTE_IRR     (1ull << 14) /* read only */
#define ENTRY_MASKED	     (1ull << 16)
#define ENTRY_DEST_SHIFT     56
#define ENTRY_BITS	     0xff0000000001ffffull
#define ENTRY_READ_ONLY	     (ENTRY_STATUS | ENTRY_REMOTE_IRR)

#define MSI_BASE       0xfee00000ull
#define MSI_DEST_SHIFT 12
#define MSI_LOGICAL    (1ull << 2)

void ioapic_init(struct ioapic *a, const struct kvm *kvm)
{
	*a = (struct ioapic){.kvm = kvm};
	pthread_mutex_init(&a->lock, NULL);
	for (unsigned i = 0; i < IOAPIC_N_PINS; i++)
		a->s.entry[i] = ENTRY_MASKED;
}

/* Send what pends on an unmasked pin.  A message that KVM refuses (vector
 * below 16) is the guest's own loss, as on a real bus. */
static void deliver(struct ioapic *a, unsigned pin)
{
	uint64_t entry = a->s.entry[pin];
	uint64_t addr = MSI_BASE;
	uint32_t data;

	if (!(a->s.pending & 1u << pin) || (entry & ENTRY_MASKED))
		return;
	a->s.pending &= ~(1u << pin);
	addr |= (entry >> ENTRY_DEST_SHIFT) << MSI_DEST_SHIFT;
	if (entry & ENTRY_LOGICAL)
		addr |= MSI_LOGICAL;
	data = (uint32_t)(entry & ENTRY_VECTOR);
	data |= (uint32_t)(entry & (7u << ENTRY_DELIVERY_SHIFT));
	a->raised++;
	(void)kvm_signal_msi(a->kvm, addr, data);
}

void ioapic_raise(struct ioapic *a, unsigned pin)
{
	if (pin >= IOAPIC_N_PINS)
		return;
	pthread_mutex_lock(&a->lock);
	a->s.pending |= 1u << pin;
	deliver(a, pin);
	pthread_mutex_unlock(&a->lock);
}

static uint32_t window_read(const struct ioapic *a)
{
	uint32_t reg = a->s.select, n;

	if (reg == REG_ID || reg == REG_ARB)
		return a->s.id;
	if (reg == REG_VERSION)
		return VERSION;
	if (reg < REG_ENTRY || reg >= REG_ENTRY + 2 * IOAPIC_N_PINS)
		return 0;
	n = (reg - REG_ENTRY) / 2;
	return (uint32_t)(a->s.entry[n] >> (reg & 1 ? 32 : 0));
}

static void window_write(struct ioapic *a, uint32_t v)
{
	uint32_t reg = a->s.select, n;
	uint64_t entry;

	if (reg == REG_ID)
		a->s.id = v & 0x0f000000;
	if (reg < REG_ENTRY || reg >= REG_ENTRY + 2 * IOAPIC_N_PINS)
		return;
	n = (reg - REG_ENTRY) / 2;
	entry = a->s.entry[n];
	if (reg & 1)
		entry = (entry & 0xffffffffull) | (uint64_t)v << 32;
	else
		entry = (entry & ~0xffffffffull) | v;
	a->s.entry[n] = entry & ENTRY_BITS & ~ENTRY_READ_ONLY;
	deliver(a, n);
}

void ioapic_read(struct ioapic *a, uint32_t off, void *data, uint32_t len)
{
	uint64_t v = 0;

	pthread_mutex_lock(&a->lock);
	if (off == OFF_SELECT)
		v = a->s.select;
	else if (off == OFF_WINDOW)
		v = window_read(a);
	pthread_mutex_unlock(&a->lock);
	memcpy(data, &v, len <= sizeof(v) ? len : sizeof(v));
}

void ioapic_write(struct ioapic *a, uint32_t off, const void *data,
		  uint32_t len)
{
	uint32_t v;

	if (len != sizeof(v))
		return;
	memcpy(&v, data, sizeof(v));
	pthread_mutex_lock(&a->lock);
	if (off == OFF_SELECT)
		a->s.select = v & 0xff;
	else if (off == OFF_WINDOW)
		window_write(a, v);
	pthread_mutex_unlock(&a->lock);
}

void ioapic_save(struct ioapic *a, struct ioapic_state *ret)
{
	pthread_mutex_lock(&a->lock);
	*ret = a->s;
	pthread_mutex_unlock(&a->lock);
}

int ioapic_load(struct ioapic *a, const struct ioapic_state *s)
{
	if (s->select > 0xff || (s->id & ~0x0f000000u) ||
	    s->pending >> IOAPIC_N_PINS)
		return -EPROTO;
	for (unsigned i = 0; i < IOAPIC_N_PINS; i++)
		if (s->entry[i] & ~(ENTRY_BITS & ~ENTRY_READ_ONLY))
			return -EPROTO;
	pthread_mutex_lock(&a->lock);
	a->s = *s;
	pthread_mutex_unlock(&a->lock);
	return 0;
}
