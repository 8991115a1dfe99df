/*
 * What a driver writes to bring a virtio-mmio device to life (virtio 1.2,
 * section 3.1.1), for the targets that go on from there.
 */
#ifndef HUTCH_FUZZ_DRIVER_H
#define HUTCH_FUZZ_DRIVER_H

#include "../../vmm/virtio/virtio.h"
#include "../hostile/registers.h"
#include <stdint.h>

static inline void driver_write(struct virtio_dev *d, uint32_t off, uint32_t v)
{
	virtio_mmio_write(d, off, &v, sizeof(v));
}

/* From reset to FEATURES_OK, with all that is offered. */
static inline void driver_negotiate(struct virtio_dev *d)
{
	uint32_t status = VIRTIO_ACKNOWLEDGE;

	driver_write(d, R_STATUS, status);
	status |= VIRTIO_DRIVER;
	driver_write(d, R_STATUS, status);
	driver_write(d, R_DRV_FEAT_SEL, 0);
	driver_write(d, R_DRV_FEAT, (uint32_t)d->features);
	driver_write(d, R_DRV_FEAT_SEL, 1);
	driver_write(d, R_DRV_FEAT, (uint32_t)(d->features >> 32));
	driver_write(d, R_STATUS, status | VIRTIO_FEATURES_OK);
}

static inline void driver_queue(struct virtio_dev *d, uint32_t q, uint32_t size,
				uint32_t desc, uint32_t avail, uint32_t used)
{
	driver_write(d, R_QSEL, q);
	driver_write(d, R_QNUM, size);
	driver_write(d, R_DESC, desc);
	driver_write(d, R_AVAIL, avail);
	driver_write(d, R_USED, used);
	driver_write(d, R_QREADY, 1);
}

#endif
