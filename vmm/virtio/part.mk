# The VMM's devices.  VMM_DEV_SRCS is linked into hutch-vmm (vmm/part.mk).
VMM_DEV_SRCS := vmm/mem.c $(addprefix vmm/virtio/,queue.c mmio.c state.c)
