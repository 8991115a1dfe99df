/* See cmdline.h. */
#include "cmdline.h"
#include "guest_abi.h"
#include <stdio.h>
#include <string.h>

/* A panic, a reset and the end of init all end the VM at once: panic=-1 and a
 * triple fault.  earlyprintk=hutch is the boot log port (HUTCH_PORT_LOG).
 * swiotlb=noforce: with RAM above 4 GiB the kernel would keep 64 MiB to bounce
 * data of devices that cannot reach it; ours reach all of it. */
static const char base_line[] =
	"root=/dev/vda ro rootfstype=erofs init=/sbin/hutch-init "
	"panic=-1 reboot=t quiet earlyprintk=hutch,keep "
	"no_timer_check tsc=reliable rcupdate.rcu_expedited=1 "
	"random.trust_cpu=on swiotlb=noforce";

/* Soft KVM only: switches the kernel patch on, which also clears the CPU
 * features that the interpreter of kernel code lacks. */
static const char soft_line[] = " soft_kvm";

int cmdline_build(char *dst, bool is_soft, unsigned n_devices, const char *more,
		  struct err *e)
{
	size_t cap = CMDLINE_BYTES_MAX + 1, len;
	int n = snprintf(dst, cap, "%s%s", base_line, is_soft ? soft_line : "");

	len = (size_t)n;
	for (unsigned i = 0; i < n_devices && len < cap; i++)
		len += (size_t)snprintf(dst + len, cap - len,
					" virtio_mmio.device=%lluK@0x%llx:%u",
					(unsigned long long)HUTCH_MMIO_SIZE >>
						10,
					HUTCH_MMIO_BASE + i * HUTCH_MMIO_SIZE,
					HUTCH_MMIO_IRQ_BASE + i);
	if (more && *more && len < cap)
		len += (size_t)snprintf(dst + len, cap - len, " %s", more);
	if (len >= cap)
		return err_set(e, ERR_INVALID_REQUEST, "cmdline",
			       "--cmdline: %zu bytes with the defaults, the "
			       "limit is %d",
			       len, CMDLINE_BYTES_MAX);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)dst[i] < ' ' || dst[i] == 0x7f)
			return err_set(e, ERR_INVALID_REQUEST, "cmdline",
				       "--cmdline holds a control byte 0x%02x",
				       (unsigned char)dst[i]);
	return 0;
}
