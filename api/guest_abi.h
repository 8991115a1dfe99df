/*
 * What hutch-vmm gives to its guest beside virtio: port numbers, addresses and
 * the disks' order.  Compiled by the VMM, by hutch-init and by tests; the
 * kernel patch repeats HUTCH_PORT_PVX, HUTCH_PORT_CLEAR and HUTCH_PORT_LOG.
 */
#ifndef HUTCH_GUEST_ABI_H
#define HUTCH_GUEST_ABI_H

/* 4-byte OUT of HUTCH_POWER_OFF: the VM ends, reason "poweroff". */
#define HUTCH_PORT_POWER 0x500
#define HUTCH_POWER_OFF	 0x0ff0u
/* 4-byte OUT of any number: a mark in the trace with time and exit counts. */
#define HUTCH_PORT_MARK	 0x504
#define HUTCH_MARK_INIT	 1 /* init's first instruction */
#define HUTCH_MARK_HELLO 2 /* connected */
#define HUTCH_MARK_READY 3
#define HUTCH_MARK_BOUND 4
#define HUTCH_MARK_RUN	 5 /* the request was passed to the runner */
#define HUTCH_MARK_ENDED 6 /* ENDED is queued */
/* Byte OUTs (also string form): the boot log, kept in a ring. */
#define HUTCH_PORT_LOG 0xe9

/*
 * Paravirtual XSAVE, soft KVM only.  One 4-byte OUT of (physical address of a
 * standard-format XSAVE area) >> 6.  The request is in the area's
 * software-usable bytes; the VMM writes the status back.
 */
#define HUTCH_PORT_PVX	     0x510
#define HUTCH_PVX_OFF_MASK   464 /* le64 requested components */
#define HUTCH_PVX_OFF_OP     472 /* le32 HUTCH_PVX_SAVE or _RESTORE */
#define HUTCH_PVX_OFF_STATUS 476 /* le32 0 = done, 13 = #GP: refused */
#define HUTCH_PVX_SAVE	     1u
#define HUTCH_PVX_RESTORE    2u

/*
 * Zeroed memory, soft KVM only.  One 4-byte OUT of page frame number << 4 with
 * the order in the low bits: 4096 << order bytes at a multiple of their size
 * are zero when it returns.  What is no RAM, or larger, is left alone.
 */
#define HUTCH_PORT_CLEAR      0x518
#define HUTCH_CLEAR_ORDER_MAX 9

/* virtio-mmio windows, one page each, device n at BASE + n * SIZE. */
#define HUTCH_MMIO_BASE	    0xd0000000ull
#define HUTCH_MMIO_SIZE	    0x1000ull
#define HUTCH_MMIO_IRQ_BASE 5

/* Disks: vda = init image (ro), vdb = template root (ro), vdc = sandbox. */

#endif
