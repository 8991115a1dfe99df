/*
 * Paravirtual XSAVE: the monitor's half (soft KVM only).
 *
 * On soft KVM guest user code reaches the real vector registers, but the
 * interpreter of kernel code has neither xsave nor xrstor.  The guest kernel
 * asks by one port write instead (HUTCH_PORT_PVX): the address of a standard
 * format XSAVE area whose software bytes hold the request.  The answer has the
 * meaning of the instruction:
 *
 *   save     the components of mask & XCR0 are written, also those in their
 *            initial state; XSTATE_BV gets their in-use bits; nothing else of
 *            the area changes
 *   restore  components with a bit in XSTATE_BV are loaded, the others of the
 *            mask get their initial state, MXCSR is loaded with SSE or AVX;
 *            what the processor would refuse by #GP (XSTATE_BV outside XCR0,
 *            header bytes 8-23 not zero, reserved bits of MXCSR) is refused
 *            by status 13 and leaves the registers as they were
 *
 * The area is guest memory: every range is checked, and each byte is copied
 * once.  Components outside of mask & XSTATE_BV are not read, as in hardware.
 * An area that is not in RAM has no place for a status: such a request is
 * counted and dropped.
 *
 * Called on the vCPU's own thread; buffers are per vCPU.
 */
#ifndef HUTCH_PVXSAVE_H
#define HUTCH_PVXSAVE_H

#include "../kvm.h"
#include "../mem.h"

/* Largest state without AMX (which is never offered) fits 4 KiB; the rest is
 * room for what KVM_CAP_XSAVE2 may report. */
#define PVX_STATE_BYTES_MAX 16384
#define PVX_AREA_BYTES_MIN  576 /* legacy region and header */
#define PVX_COMPONENTS	    63
#define PVX_STATUS_GP	    13u

struct pvx_buffers {
	uint8_t now[PVX_STATE_BYTES_MAX]; /* KVM's copy of the registers */
	uint8_t area[PVX_AREA_BYTES_MIN]; /* the guest's area */
};

struct pvx {
	uint64_t supported;  /* user components KVM saves for this guest */
	uint32_t mxcsr_mask; /* bits that MXCSR may have */
	size_t state_bytes;  /* of KVM_GET_XSAVE or KVM_GET_XSAVE2 */
	uint32_t off[PVX_COMPONENTS], len[PVX_COMPONENTS];
	uint64_t dropped;
	struct pvx_buffers buf[VCPUS_MAX];
};

void pvx_init(struct pvx *p, const struct kvm *k);
void pvx_request(struct pvx *p, struct mem *m, unsigned vcpu, int vcpu_fd,
		 gpa_t area);

#endif
