/* Registers of a virtio-mmio device (virtio 1.2, section 4.2.2), as its driver
 * sees them. */
#ifndef HUTCH_TEST_REGISTERS_H
#define HUTCH_TEST_REGISTERS_H

enum reg {
	R_MAGIC = 0x00,
	R_VERSION = 0x04,
	R_ID = 0x08,
	R_VENDOR = 0x0c,
	R_DEV_FEAT = 0x10,
	R_DEV_FEAT_SEL = 0x14,
	R_DRV_FEAT = 0x20,
	R_DRV_FEAT_SEL = 0x24,
	R_QSEL = 0x30,
	R_QNUM_MAX = 0x34,
	R_QNUM = 0x38,
	R_QREADY = 0x44,
	R_NOTIFY = 0x50,
	R_ISR = 0x60,
	R_ISR_ACK = 0x64,
	R_STATUS = 0x70,
	R_DESC = 0x80,
	R_AVAIL = 0x90,
	R_USED = 0xa0,
	R_SHM = 0xb0,
	R_GEN = 0xfc,
	R_CFG = 0x100,
};

#endif
