/*
 * The I/O APIC, in user space: 24 pins, one page at IOAPIC_GPA.
 *
 * A device raises its pin; the redirection entry that the guest wrote for it
 * becomes a message to the in-kernel local APICs.  Pins are edge triggered
 * (virtio lines), whatever the guest writes as trigger mode.  An edge on a
 * masked pin is kept and delivered when the pin is unmasked: none is lost.
 *
 * Any thread; one lock.
 */
#ifndef HUTCH_IOAPIC_H
#define HUTCH_IOAPIC_H

#include "../kvm.h"
#include <pthread.h>

#define IOAPIC_GPA    0xfec00000ull
#define IOAPIC_BYTES  0x1000ull
#define IOAPIC_N_PINS 24

struct ioapic_state {		      /* what a snapshot keeps */
	uint32_t select, id, pending; /* pending: bit per pin */
	uint64_t entry[IOAPIC_N_PINS];
};

struct ioapic {
	pthread_mutex_t lock;
	const struct kvm *kvm; /* borrowed: lives as long as the VM */
	struct ioapic_state s;
	uint64_t raised; /* messages sent */
};

void ioapic_init(struct ioapic *a, const struct kvm *kvm);
/* off < IOAPIC_BYTES, len 1..8 */
void ioapic_read(struct ioapic *a, uint32_t off, void *data, uint32_t len);
void ioapic_write(struct ioapic *a, uint32_t off, const void *data,
		  uint32_t len);
void ioapic_raise(struct ioapic *a, unsigned pin);

void ioapic_save(struct ioapic *a, struct ioapic_state *ret);
/* -EPROTO when the state holds bits that no register has. */
int ioapic_load(struct ioapic *a, const struct ioapic_state *s);

#endif
