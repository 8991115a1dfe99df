/*
 * Ports and addresses: which device answers an exit.
 *
 * One table of ports (bus.c) and three address windows: the I/O APIC and the
 * virtio-mmio devices.  What nobody owns reads as all ones and ignores writes
 * (hardening F1, F2).  vCPU threads call; each owner has its own lock.
 */
#ifndef HUTCH_BUS_H
#define HUTCH_BUS_H

#include <stdint.h>

struct vcpu;

/* A port access of `count` items of `size` bytes at `data`. */
void bus_port(struct vcpu *c, uint16_t port, uint8_t size, uint32_t count,
	      uint8_t *data, int is_write);
/* A memory access of 1 to 8 bytes. */
void bus_mmio(struct vcpu *c, uint64_t addr, uint8_t *data, uint32_t len,
	      int is_write);

#endif
